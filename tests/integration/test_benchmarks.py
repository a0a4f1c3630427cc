# SPDX-License-Identifier: Apache-2.0
"""The experiments' own machinery: what was measured is kept, tests are corrected, baselines are what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.cells import Cell, Store
from benchmarks.datasets import stratified_folds, why_missing
from benchmarks.diprime.experiments import EXPERIMENTS as FORESTS
from benchmarks.diprime.report import write as write_forests
from benchmarks.friedman_schuster.report import corrected_t, write
from benchmarks.friedman_schuster.synthetic import FIGURES
from benchmarks.learners import Rows, exact_tree
from benchmarks.measure import measure, missing
from benchmarks.publish import RESULTS, publish, shortfall
from benchmarks.reproduce import options, reproduce
from pinq.public.schema import Categorical, Numeric, Schema

CELL = Cell("fig3", "Max", 100.0, 0, 0.5)


def test_a_store_goes_on_where_it_was(tmp_path: Any) -> None:
    path = tmp_path / "deep" / "cells.csv"
    Store(path).add([CELL, CELL._replace(run=1, accuracy=0.75)])
    with path.open("a") as file:
        file.write("fig3,Max,100.0,2,0.")  # the program was killed here
    again = Store(path)
    assert again.done == {("fig3", "Max", 100.0, 0), ("fig3", "Max", 100.0, 1)}
    again.add([CELL._replace(algorithm="best, 10 bins", run=2)])
    assert again.frame()["accuracy"].tolist() == [0.5, 0.75, 0.5]
    assert again.forget("best", ["fig4"]) == 0
    assert again.forget("best") == 1
    assert Store(path).done == again.done == {("fig3", "Max", 100.0, 0), ("fig3", "Max", 100.0, 1)}


def test_a_figure_is_measured_once_and_drawn(tmp_path: Any) -> None:
    """Three learners, one size, two runs, in a process of its own; what is in the store is not measured again."""
    whole = FIGURES["fig3"]
    small = replace(
        whole,
        sizes=(200,),
        runs=2,
        learners={name: whole.learners[name] for name in ("Max", "best", "ID3, not private")},
    )
    store = Store(tmp_path / "cells.csv")
    tasks = missing(store, [small])
    assert [(task.run, task.x) for task in tasks] == [(0, 200), (1, 200)]
    measure(tasks[:1], store.add, processes=1)
    assert len(store.done) == 3
    assert [task.run for task in missing(store, [small])] == [1]
    assert missing(store, [small], runs=1) == []
    assert store.frame()["accuracy"].between(0, 1).all()
    files = write([small], store.frame(), tmp_path / "results")
    assert files == ["fig3.csv", "fig3.png", "table1.csv", "README.md"]
    assert "| Max |" in (tmp_path / "results" / "README.md").read_text()
    readme = tmp_path / "results" / "README.md"
    readme.write_text(readme.read_text().replace("again\n", "again\n\nWords of people.\n") + "\nMore of them.\n")
    write([small], store.frame(), tmp_path / "results")
    assert (
        readme.read_text().count("Words of people.")
        == readme.read_text().count("More of them.")
        == readme.read_text().count("### Figure 3.")
        == 1
    )


def test_a_sweep_of_forests_is_measured_and_drawn(tmp_path: Any, monkeypatch: Any) -> None:
    """On made-up rows: errors of classes and of numbers, tables and pictures, what others reached beside them."""
    schema = Schema(
        columns={
            "x": Numeric(lower=0, upper=9, integer=True),
            "y": Numeric(lower=0, upper=9, integer=True),
            "c": Categorical(values=("n", "p")),
        },
        max_rows=500,
    )
    x = np.random.default_rng(1).integers(0, 10, 400)
    rows = pd.DataFrame({"x": x, "y": x, "c": np.where(x < 4, "n", "p")})
    for key, target, names in (
        ("banknote", "c", ("DiPriMe, best", "DP-ERT", "majority class")),
        ("appliances_energy", "y", ("DiPriMe, best", "extra trees, not private", "mean")),
    ):
        monkeypatch.setattr("benchmarks.diprime.experiments.table", lambda name, target=target: (schema, target, rows))
        whole = FORESTS[key]
        one = replace(whole, xs=(4.0,), learners={name: whole.learners[name] for name in names})
        measured = one.measure(4.0, 0, names)
        assert measured[names[0]] > measured[names[2]]
        assert one.measure(4.0, 0, names[2:]) == {names[2]: measured[names[2]]}
        cells = pd.DataFrame([Cell(key, name, 4.0, run, value) for run in (0, 1) for name, value in measured.items()])
        assert write_forests([one], cells, tmp_path) == [f"{key}.csv", f"{key}.png", "README.md"]
        assert pd.read_csv(tmp_path / f"{key}.csv")["error"].tolist() == pytest.approx(
            [1 - value for value in measured.values()], rel=1e-3
        )
        assert f"| {names[0]} |" in (tmp_path / "README.md").read_text()
    few = FORESTS["fig6-rho"]
    assert few.measure(0.9, 0, ["DiPriMe, paper, epsilon 10"])["DiPriMe, paper, epsilon 10"] > measured["mean"]


def test_the_same_run_meets_the_same_rows() -> None:
    """Two measurements of one run differ by the noise of privacy alone."""
    figure = FIGURES["fig7"]
    names = ["J48-like, not private", "J48-like pruned, not private"]
    assert figure.measure(1000, 3, names) == figure.measure(1000, 3, names)
    assert figure.measure(1000, 3, names) != figure.measure(1000, 4, names)
    assert figure.concept(3).tree == figure.concept(13).tree != figure.concept(4).tree


def test_the_corrected_test_is_students_but_for_its_variance() -> None:
    differences = np.random.default_rng(1).normal(0.2, 1, 100)
    assert corrected_t(differences, 0.0) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    t = differences.mean() / (differences.std(ddof=1) * np.sqrt(1 / 100 + 1 / 9))
    assert corrected_t(differences, 1 / 9) == pytest.approx(2 * stats.t.sf(abs(t), 99))
    assert corrected_t(np.zeros(10), 1 / 9) == 1.0
    assert corrected_t(np.full(10, 0.5), 1 / 9) == 0.0


def test_pruning_helps_the_exact_tree_where_classes_are_noisy() -> None:
    figure = FIGURES["fig4"]
    concept = figure.concept(0)
    rows = Rows(figure.schema(), "class", None, concept.sample(2000, noise=0.1, seed=1), concept.sample(4000, seed=2))
    deep, pruned, exact = (
        exact_tree(pruned=prune, max_depth=depth)(rows, 0) for prune, depth in ((False, None), (True, None), (False, 1))
    )
    assert deep < 0.95 < pruned
    assert exact > 0.99


def test_folds_are_even_in_size_and_class() -> None:
    classes = np.array([0] * 83 + [1] * 17)
    folds = stratified_folds(classes, 10, seed=3)
    table = pd.crosstab(folds, classes).to_numpy()
    assert np.ptp(table.sum(axis=1)) == 0
    assert np.ptp(table, axis=0).max() <= 1
    assert (folds != stratified_folds(classes, 10, seed=4)).any()
    assert (folds == stratified_folds(classes, 10, seed=3)).all()


def test_missing_data_is_explained(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PINQ_DATA", str(tmp_path))
    assert "PINQ_DATA=/path/to/data make" in why_missing("adult")


def table(runs: dict[str, int]) -> pd.DataFrame:
    return pd.DataFrame({"algorithm": list(runs), "x": 0.5, "n": list(runs.values()), "mean": 0.75})


def test_fewer_runs_do_not_take_the_place_of_more(tmp_path: Any, capsys: Any) -> None:
    committed, spare = tmp_path / "committed", tmp_path / "spare"

    def written(**runs: int) -> str:
        def write(folder: Path) -> None:
            table(runs).to_csv(folder / "fig1.csv", index=False)
            table({"speed": 1}).drop(columns="n").to_csv(folder / "speed.csv", index=False)

        return publish(write, committed, spare)[0].name

    assert written(Max=10, Gini=10) == "committed"
    assert written(Max=10, Gini=12, best=1) == "committed"
    capsys.readouterr()
    assert written(Max=10, Gini=11, best=5) == "spare"
    assert "(1 times; the first: Gini 0.5 in fig1.csv, 11 of 12)" in capsys.readouterr().err
    assert written(Max=10, Gini=12) == "spare"
    assert pd.read_csv(committed / "fig1.csv")["n"].tolist() == [10, 12, 1]
    (committed / "fig1.csv").unlink()
    assert written(Max=1) == "committed"


def test_a_figure_that_was_not_measured_counts_as_no_runs(tmp_path: Any) -> None:
    for folder in (tmp_path / "mine", tmp_path / "theirs"):
        folder.mkdir()
    table({"Max": 3}).to_csv(tmp_path / "theirs" / "fig2.csv", index=False)
    assert shortfall(tmp_path / "mine", tmp_path / "theirs") == ["Max 0.5 in fig2.csv, 0 of 3"]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/fig*.csv")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_figure_says_how_many_runs_it_is_of(path: Any) -> None:
    """`publish` reads it; a table replaces its like."""
    assert "n" in pd.read_csv(path).columns
    assert shortfall(path.parent, path.parent) == []


def test_what_cannot_be_measured_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that no experiment has, and data that are not there, end the program before anything is measured or published."""
    monkeypatch.setattr("benchmarks.reproduce.ROOT", tmp_path)
    monkeypatch.setenv("PINQ_DATA", str(tmp_path))
    parser = options("diprime", "About.", runs="20", quick=2)
    with pytest.raises(SystemExit, match=r"begins with fig9; there are .*banknote"):
        reproduce("diprime", parser.parse_args(["--figures", "fig9"]), FORESTS, write_forests)
    with pytest.raises(SystemExit):
        reproduce("diprime", parser.parse_args(["--figures", "banknote"]), FORESTS, write_forests)
    assert "banknote is left out. The data set 'banknote' is not in" in capsys.readouterr().err


def test_a_quick_look_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is published yet, which any result would surpass."""
    monkeypatch.setattr("benchmarks.reproduce.ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.reproduce.RESULTS", tmp_path / "results")
    Store(tmp_path / "build" / "friedman_schuster" / "cells.csv").add([CELL])
    asked = options("friedman_schuster", "About.", runs="200", quick=10).parse_args(["--quick", "--report"])
    reproduce("friedman_schuster", asked, FIGURES, write)
    assert (tmp_path / "build" / "friedman_schuster" / "quick" / "fig3.csv").exists()
    assert not (tmp_path / "results").exists()
