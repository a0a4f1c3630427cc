# SPDX-License-Identifier: Apache-2.0
"""Draws what miners learn from Adult, for README and the miners' pages: ``python docs/pictures/models.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt

import pinq
from miners import DiffPC45, DPDilca, LinearRegression, Scorecard, Synthesizer

FOLDER = Path(__file__).parent


def main() -> None:
    """Fits to public rows behind a simulated handle, and writes a picture of each miner."""
    mpl.use("Agg")
    policy = pinq.load_policy("policies/adult.yaml")
    with pinq.simulate(policy, data=pd.read_parquet("data/adult.parquet"), epsilon=7.5) as handle:
        tree = DiffPC45(epsilon=1, max_depth=3).fit(handle, "income")
        card = Scorecard(epsilon=1).fit(handle, "income")
        some = ["age", "education_num", "sex", "capital_gain"]
        hours = LinearRegression(epsilon=4, attributes=some).fit(handle, "hours_per_week")
        synthesizer = Synthesizer(epsilon=1, random_state=0).fit(handle)
        distances = DPDilca(method="max_dependency", k=3, epsilon=0.5).fit(handle, "education")
    tree.plot(max_depth=2).figure.savefig(FOLDER / "tree.png", dpi=110, bbox_inches="tight")
    card.plot(max_attributes=6).figure.savefig(FOLDER / "card.png", dpi=90)
    hours.plot().figure.savefig(FOLDER / "regression.png", dpi=90, bbox_inches="tight")
    synthesizer.plot().figure.savefig(FOLDER / "synthesizer.png", dpi=90)
    distances.plot("education").figure.savefig(FOLDER / "dilca-education.png", dpi=90, bbox_inches="tight")
    secure(pd.read_csv("benchmarks/results/secure/accuracy.csv"))


def secure(figures: pd.DataFrame) -> None:
    """Draws the accuracy of trees among four owners over epsilon."""
    methods = {"noise inside, none collude": "one noise, inside", "each owner its own noise": "each owner its own"}
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for axes, data in zip(panels, ("adult", "car"), strict=True):
        lines = dict(iter(figures[figures["data"] == data].groupby("method")))
        plain = lines["plain ID3, not private"]["accuracy"].iloc[0]
        axes.axhline(plain, color="#999999", linestyle="--", linewidth=1, label="not private")
        for method, label in methods.items():
            line = lines[method]
            error = 2 * line["sd"] / line["n"] ** 0.5
            axes.errorbar(line["epsilon"], line["accuracy"], yerr=error, marker="o", markersize=4, label=label)
        axes.set(xscale="log", title=data, xlabel="epsilon", ylabel="accuracy")
        axes.set_xticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
        axes.minorticks_off()
    panels[0].legend(fontsize=8)
    figure.savefig(FOLDER / "secure.png", dpi=110)


if __name__ == "__main__":
    main()
