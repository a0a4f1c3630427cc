# SPDX-License-Identifier: Apache-2.0
"""A hospital's report at a budget of 1: table 1, survival by arm, and odds ratios, beside the exact report.

Run with ``python examples/hospital.py``. The 2,000 patients are made up, so the exact numbers may be shown;
an analyst of a real hospital sees the private ones alone. Everything that it writes is in ``build/hospital-example``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

import pinq
from miners.statistics import compare, independence, logistic, survival
from pinq.analyst.queryable import PrivateQueryable

mpl.use("Agg")
FOLDER = Path(__file__).resolve().parent.parent / "build" / "hospital-example"
AGES = pinq.Cuts("age", (55, 70))
SCHEMA = pinq.Schema(
    columns={
        "month": pinq.Numeric(lower=1, upper=48, integer=True),
        "died": pinq.Categorical(values=("no", "yes")),
        "treated": pinq.Categorical(values=("no", "yes")),
        "sex": pinq.Categorical(values=("female", "male")),
        "age": pinq.Numeric(lower=30, upper=90, integer=True),
    },
    max_rows=5000,
)


def patients() -> pd.DataFrame:
    """Makes up 2,000 patients; the treated die later."""
    random, rows = np.random.default_rng(1), 2000
    treated, male = random.integers(0, 2, (2, rows))
    age = np.clip(random.normal(63, 11, rows).round(), 30, 90).astype(int)
    until = np.ceil(random.exponential(1 / (0.02 * np.exp(0.03 * (age - 63) - 0.6 * treated + 0.2 * male))))
    seen = random.integers(12, 49, rows)
    yes_no = np.array(["no", "yes"])
    return pd.DataFrame(
        {
            "month": np.minimum(until, seen).astype(int),
            "died": yes_no[(until <= seen).astype(int)],
            "treated": yes_no[treated],
            "sex": np.array(["female", "male"])[male],
            "age": age,
        }
    )


def report(handle: PrivateQueryable, epsilon: float) -> dict[str, pd.DataFrame]:
    """Asks four statistics, each for a quarter of epsilon."""
    each = {"epsilon": epsilon / 4}
    ages, sexes = compare(handle, "age", "treated", **each), independence(handle, "sex", "treated", **each)
    curves = survival(handle, "month", "died", by="treated", intervals=6, **each)
    odds = logistic(handle, "died", ["treated", "sex", AGES], **each)
    if epsilon <= 1:
        FOLDER.mkdir(parents=True, exist_ok=True)
        curves.plot().figure.savefig(FOLDER / "survival.png", dpi=100, bbox_inches="tight")
        odds.plot().figure.savefig(FOLDER / "odds.png", dpi=100, bbox_inches="tight")
    tests = {"age, Welch's t": ages, "sex, chi-square": sexes, "survival, log-rank": curves, "death, Wald": odds}
    return {
        "Table 1: age by treatment": ages.frame,
        "Survival by treatment": curves.frame,
        "Odds ratios of death": odds.frame,
        "P-values": pd.DataFrame({"groups": list(tests), "value": [result.pvalue for result in tests.values()]}).assign(
            low=np.nan, high=np.nan
        ),
    }


def main() -> None:
    """Prints each number of the private report beside the exact one."""
    rows = patients()
    handle = pinq.simulate(SCHEMA, data=rows, epsilon=1)
    private = report(handle, 1)
    exact = report(pinq.simulate(SCHEMA, data=rows, epsilon=10**6), 10**5)
    for title, frame in private.items():
        print(f"\n{title}\n")
        shown = frame.assign(exact=exact[title]["value"]).dropna(axis=1, how="all")
        print(shown.round(3).to_string(index=False))
    print(f"\n{handle.budget}")


if __name__ == "__main__":
    main()
