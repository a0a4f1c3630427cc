# SPDX-License-Identifier: Apache-2.0
"""The figures of DP-TopDown: the same run meets the same rows, and all that was measured is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.harness.cells import Cell
from benchmarks.harness.datasets import why_missing
from benchmarks.papers.topdown.experiments import Figure, figures
from benchmarks.papers.topdown.report import write


@pytest.mark.skipif(bool(why_missing("adult")), reason=why_missing("adult") or "it is there")
def test_learners_are_measured_on_few_rows() -> None:
    """Of a federation and of all rows in one place; over losses and over shares for the leaves."""
    by_key = figures(["adult"])
    for key, x, learners in (
        ("fig2-adult", 1.0, ["turns", "DiffPC45 (all rows in one place)"]),
        ("fig1-adult", 0.5, ["turns, decay"]),
        ("secure-adult", 8.0, ["secure"]),
        ("fig6-adult-0.01", 8.0, ["turns"]),
    ):
        measured = replace(by_key[key], fraction=0.01).measure(x, 0, learners)
        assert list(measured) == learners
        shares = [
            value for values in measured.values() for what, value in values.items() if what in ("accuracy", "train")
        ]
        assert len(shares) == len(learners)
        assert all(0.2 < share < 1 for share in shares)


def test_a_picture_is_drawn_of_each_figure(tmp_path: Path) -> None:
    made = figures(["adult"])
    cells = pd.DataFrame(
        [
            Cell(key, name, x, run, what, 0.8)
            for key, figure in made.items()
            for name in figure.learners
            for x in figure.xs
            for run in range(2)
            for what in (("train", "depth", "nodes") if key.startswith(("fig5", "fig6")) else ("accuracy",))
        ]
    )
    written = write(list(made.values()), cells, tmp_path)
    assert {name for name in written if name.endswith("png")} == {
        "fig1-adult-0.125.png",
        "fig1-adult.png",
        "fig1-adult-8.png",
        "fig2-adult.png",
        "fig3-adult.png",
    }
    assert {path.name for path in tmp_path.glob("fig[56]*.png")} == {
        *(f"fig5-adult-{what}.png" for what in ("train", "depth", "nodes")),
        *(f"fig6-adult-{size}-train.png" for size in ("0.01", "0.05", "0.25")),
    }
    assert {name for name in written if name.endswith("csv")} == {f"{key}.csv" for key in made}
    table = pd.read_csv(tmp_path / "fig2-adult.csv")
    assert list(table.columns) == ["algorithm", "x", "n", "mean", "sd", "se"]
    assert set(table["n"]) == {2}


def test_a_figure_says_what_it_varies() -> None:
    made = figures(["adult", "other"])
    assert all(isinstance(figure, Figure) and figure.key == key for key, figure in made.items())
    assert {figure.data for figure in made.values()} == {"adult", "other"}
