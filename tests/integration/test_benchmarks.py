# SPDX-License-Identifier: Apache-2.0
"""The experiments' own machinery: what was measured is kept, tests are corrected, baselines are what they say."""

from __future__ import annotations

import importlib
import pickle
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.accuracy.measures import shares_figures
from benchmarks.accuracy.problems import Problem
from benchmarks.accuracy.regret import DefaultsStudy, named, write as write_regret
from benchmarks.accuracy.scorecards import DATA_SETS as SCORECARDS, write as write_scorecards
from benchmarks.accuracy.trees import STUDY as TREES
from benchmarks.accuracy.which import ProblemStudy, recommended, write as write_which
from benchmarks.harness.cells import Cell, Store
from benchmarks.harness.command import Study, options, reproduce
from benchmarks.harness.datasets import stratified_folds, why_missing
from benchmarks.harness.learners import Rows, exact_tree
from benchmarks.harness.measure import measure, missing
from benchmarks.harness.origin import ORIGINS, moved, write_origins
from benchmarks.harness.publish import RESULTS, ROOT, publish, shortfall, without_short
from benchmarks.harness.tables import replace_section
from benchmarks.papers.dilca.__main__ import STUDY as DILCA
from benchmarks.papers.dilca.experiments import Comparison
from benchmarks.papers.diprime.__main__ import STUDY as DIPRIME
from benchmarks.papers.diprime.experiments import EXPERIMENTS as FORESTS
from benchmarks.papers.diprime.report import write as write_forests
from benchmarks.papers.friedman_schuster.__main__ import STUDY as FRIEDMAN_SCHUSTER
from benchmarks.papers.friedman_schuster.report import corrected_t, write
from benchmarks.papers.friedman_schuster.synthetic import FIGURES
from benchmarks.papers.secure.__main__ import STUDY as SECURE
from benchmarks.papers.topdown.__main__ import STUDY as TOPDOWN
from benchmarks.speed import large_worker
from benchmarks.speed.verbs import LARGE, VERBS, WORKER, Worker, in_turn
from miners.tuning.suggestion import dummy_rows
from pinq.public.schema import Categorical, Column, Numeric, Schema
from tests.support.processes.idle_experiment import Pause

CELL = Cell("fig3", "Max", 100.0, 0, "accuracy", 0.5)


def accuracy_of(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: by_measure["accuracy"] for name, by_measure in values.items()}


def test_a_store_goes_on_where_it_was(tmp_path: Any) -> None:
    path = tmp_path / "deep" / "cells.csv"
    Store(path).add([CELL, CELL._replace(run=1, value=0.75)])
    with path.open("a") as file:
        file.write("fig3,Max,100.0,2,accuracy,0.")  # the program was killed here
    again = Store(path)
    assert again.done == {("fig3", "Max", 100.0, 0), ("fig3", "Max", 100.0, 1)}
    again.add([CELL._replace(algorithm="best, 10 bins", run=2)])
    assert again.frame()["value"].tolist() == [0.5, 0.75, 0.5]
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
    assert store.frame()["value"].between(0, 1).all()
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
    """On dummy rows: errors of classes and of numbers, tables and pictures, what others reached beside them."""
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
        monkeypatch.setattr(
            "benchmarks.papers.diprime.experiments.table", lambda name, target=target: (schema, target, rows)
        )
        whole = FORESTS[key]
        one = replace(whole, xs=(4.0,), learners={name: whole.learners[name] for name in names})
        measured = accuracy_of(one.measure(4.0, 0, names))
        assert measured[names[0]] > measured[names[2]]
        assert accuracy_of(one.measure(4.0, 0, names[2:])) == {names[2]: measured[names[2]]}
        cells = pd.DataFrame(
            [Cell(key, name, 4.0, run, "accuracy", value) for run in (0, 1) for name, value in measured.items()]
        )
        assert write_forests([one], cells, tmp_path) == [f"{key}.csv", f"{key}.png", "README.md"]
        assert pd.read_csv(tmp_path / f"{key}.csv")["error"].tolist() == pytest.approx(
            [1 - value for value in measured.values()], rel=1e-3
        )
        assert f"| {names[0]} |" in (tmp_path / "README.md").read_text()
    few = FORESTS["fig6-rho"]
    name = "DiPriMe, paper, epsilon 10"
    assert accuracy_of(few.measure(0.9, 0, [name]))[name] > measured["mean"]


def test_scorecards_are_measured_beside_trees(tmp_path: Any, monkeypatch: Any) -> None:
    """On dummy rows: classes with their shares, and means; tables of what came out."""
    columns: dict[str, Column] = {
        "x": Numeric(lower=0, upper=9, integer=True),
        "y": Numeric(lower=0, upper=9, integer=True),
        "c": Categorical(values=("n", "p")),
    }
    schema = Schema(columns=columns, max_rows=500)
    x = np.random.default_rng(1).integers(0, 10, 400)
    rows = pd.DataFrame({"x": x, "y": x, "c": np.where(x < 4, "n", "p")})
    cells = []
    for key, target, measures in (
        ("banknote", "c", {"accuracy", "auc", "log_loss", "off"}),
        ("appliances_energy", "y", {"r2"}),
    ):
        monkeypatch.setattr("benchmarks.accuracy.scorecards.table", lambda name, target=target: (schema, target, rows))
        whole = next(data_set for data_set in SCORECARDS if data_set.key == key)
        measured = whole.measure(4.0, 0, list(whole.learners))
        assert all(set(values) == measures for values in measured.values())
        cells += [
            Cell(key, name, 4.0, run, measure, value)
            for run in (0, 1)
            for name, values in measured.items()
            for measure, value in values.items()
        ]
    assert min(cell.value for cell in cells if cell.measure in ("accuracy", "auc", "r2")) > 0.7
    write_scorecards(SCORECARDS, pd.DataFrame(cells), tmp_path)
    assert len(pd.read_csv(tmp_path / "figures.csv")) == 3 * 4 + 3
    assert "| Scorecard |" in (tmp_path / "README.md").read_text()


@pytest.mark.skipif(bool(why_missing("banknote")), reason="the data set is not there")
def test_all_miners_are_measured_where_one_is_recommended(tmp_path: Any, monkeypatch: Any) -> None:
    """On dummy rows: shares by three measures, the recommended miner in bold, and how far it is from the best."""
    columns: dict[str, Any] = {"x": Numeric(lower=0, upper=9, integer=True), "c": Categorical(values=("n", "p"))}
    x = np.random.default_rng(1).integers(0, 10, 400)
    rows = pd.DataFrame({"x": x, "c": np.where(x < 4, "n", "p")})
    loaded = Schema(columns=columns, max_rows=500), "c", rows
    monkeypatch.setattr("benchmarks.accuracy.problems._loaded", lambda problem: loaded)
    study = ProblemStudy(Problem("banknote"))
    measured = study.measure(4.0, 0, list(study.learners))
    assert all(set(values) == {"accuracy", "auc", "log_loss", "off"} for values in measured.values())
    assert measured["DiffPC45"]["accuracy"] > measured["most frequent class"]["accuracy"]
    cells = [
        Cell(study.key, name, 4.0, 0, measure, value)
        for name, values in measured.items()
        for measure, value in values.items()
    ]
    write_which([study], pd.DataFrame(cells), tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert f"**{measured[recommended(study.problem, 4.0)]['accuracy']:.3f}**" in page
    assert "missed by" in page


@pytest.mark.skipif(bool(why_missing("banknote")), reason="the data set is not there")
def test_the_regret_of_the_default_is_measured_by_seeds(tmp_path: Any) -> None:
    """The same noise each time; the recommended miner's distance from the best is the page's first figure."""
    study = DefaultsStudy(Problem("banknote"))
    measured = study.measure(0.5, 0, list(study.learners))
    assert measured == study.measure(0.5, 0, list(study.learners))
    few = study.measure(0.02, 0, ["Scorecard", "Scorecard(pairs=True)"])
    assert few["Scorecard"] == few["Scorecard(pairs=True)"]  # no pair is offered, so both make the same fit
    cells = [
        Cell(study.key, name, 0.5, 0, measure, value)
        for name, values in measured.items()
        for measure, value in values.items()
    ]
    write_regret([study], pd.DataFrame(cells), tmp_path)
    best = max(values["accuracy"] for values in measured.values())
    missed = best - measured[named(study.problem, 0.5)]["accuracy"]
    assert f"| accuracy | 0.5 | {missed:.4f} / {missed:.3f} |" in (tmp_path / "README.md").read_text()


def test_shares_of_many_classes_are_judged() -> None:
    """By the mean area of one class against the rest, by their rows; by the own class; by the likeliest one."""
    shares = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.1, 0.9, 0.0]])
    judged = shares_figures(shares, np.array([0, 1, 1, 1]))
    assert judged["log_loss"] == pytest.approx(-np.log([0.8, 0.7, 0.3, 0.9]).mean())
    assert judged["auc"] == 1.0
    assert judged["off"] == pytest.approx((0.2 + 0.3 + 0.6 + 0.1) / 4)


def test_the_same_run_meets_the_same_rows() -> None:
    """Two measurements of one run differ by the noise of privacy alone."""
    figure = FIGURES["fig7"]
    names = ["J48-like, not private", "J48-like pruned, not private"]
    assert figure.measure(1000, 3, names) == figure.measure(1000, 3, names)
    assert figure.measure(1000, 3, names) != figure.measure(1000, 4, names)
    assert figure.rule(3) == figure.rule(13) != figure.rule(4)


def test_the_corrected_test_is_students_but_for_its_variance() -> None:
    differences = np.random.default_rng(1).normal(0.2, 1, 100)
    assert corrected_t(differences, 0.0) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    t = differences.mean() / (differences.std(ddof=1) * np.sqrt(1 / 100 + 1 / 9))
    assert corrected_t(differences, 1 / 9) == pytest.approx(2 * stats.t.sf(abs(t), 99))
    assert corrected_t(np.zeros(10), 1 / 9) == 1.0
    assert corrected_t(np.full(10, 0.5), 1 / 9) == 0.0


def test_pruning_helps_the_exact_tree_where_classes_are_noisy() -> None:
    figure = FIGURES["fig4"]
    rule = figure.rule(0)
    noisy, clean = dummy_rows(rule, 2000, noise=0.1, seed=1), dummy_rows(rule, 4000, seed=2)
    rows = Rows(figure.schema(), "class", None, noisy, clean)  # type: ignore[arg-type]
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


def test_a_picture_changes_with_a_table_of_its_data_only(tmp_path: Path) -> None:
    """The pixels of a picture depend on the drawing library too: here each drawing differs from the last."""
    drawn = iter(range(100))

    def published(adult: int, car: int) -> dict[str, bytes]:
        def write(folder: Path) -> None:
            for name, runs in (("adult", adult), ("car", car)):
                table({"Max": runs}).to_csv(folder / f"fig2-{name}.csv", index=False)
            for picture in ("fig2-adult", "fig3-adult", "fig2-car", "all"):
                (folder / f"{picture}.png").write_bytes(str(next(drawn)).encode())

        publish(write, tmp_path / "committed", tmp_path / "spare", ("adult", "car"))
        return {path.stem: path.read_bytes() for path in (tmp_path / "committed").glob("*.png")}

    first = published(3, 3)
    assert published(3, 3) == first
    again = published(4, 3)
    assert {name for name in first if again[name] != first[name]} == {"fig2-adult", "fig3-adult", "all"}


@pytest.mark.parametrize("study", ["friedman_schuster", "diprime", "dilca", "topdown", "secure"])
def test_the_page_of_the_papers_names_each_commit_that_measured(study: str) -> None:
    origins = pd.read_csv(ROOT / "benchmarks" / "results" / study / "origins.csv")["origin"]
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert [origin for origin in origins if f"`{origin.strip('≤ ')[:8]}`" not in page] == []


def test_a_figure_that_was_not_measured_counts_as_no_runs(tmp_path: Any) -> None:
    for folder in (tmp_path / "mine", tmp_path / "theirs"):
        folder.mkdir()
    table({"Max": 3}).to_csv(tmp_path / "theirs" / "fig2.csv", index=False)
    assert shortfall(tmp_path / "mine", tmp_path / "theirs") == ["Max 0.5 in fig2.csv, 0 of 3"]


def test_an_algorithm_that_was_measured_again_takes_its_place_alone(tmp_path: Path) -> None:
    """What was not measured now stays as it is published, and so does what has fewer runs now; each says of what code."""
    learners: Any = {"Max": None, "best": None}
    figures = [replace(FIGURES[key], sizes=(100,), learners=learners) for key in ("fig3", "fig4")]
    first = [
        CELL._replace(figure=key, algorithm=name, run=run)
        for key in ("fig3", "fig4")
        for name in ("Max", "best")
        for run in (0, 1)
    ]
    write(figures, pd.DataFrame(first), tmp_path)
    write_origins(pd.DataFrame(first).assign(origin="0123456789ab"), tmp_path)
    page = (tmp_path / "README.md").read_text()
    few = CELL._replace(algorithm="best")
    again = pd.DataFrame([few, *(CELL._replace(figure="fig4", run=run, value=1.0) for run in range(3))])
    kept = without_short(again.assign(origin="ba9876543210"), tmp_path)
    assert set(zip(kept["figure"], kept["algorithm"], strict=True)) == {("fig4", "Max")}
    write(figures, kept, tmp_path)
    write_origins(kept, tmp_path)
    assert pd.read_csv(tmp_path / "fig3.csv")["n"].tolist() == [2, 2]
    assert pd.read_csv(tmp_path / "fig4.csv")[["algorithm", "n", "mean"]].values.tolist() == [
        ["Max", 3, 1.0],
        ["best", 2, 0.5],
    ]
    cut = "### Figure 4"
    assert (tmp_path / "README.md").read_text().split(cut)[0] == page.split(cut)[0]
    assert (tmp_path / ORIGINS).read_text().splitlines()[1:] == [
        "fig3,0123456789ab,4",
        "fig4,0123456789ab,4",
        "fig4,ba9876543210,3",
    ]


OF_ONE_RUN = ("growth.csv", "mapped.csv", "table-6.csv", "wire.csv", "runs.csv")  # times, bytes, a line for each run
OTHERWISE = ("errors.csv", "origins.csv")  # the column `runs` says it; which code made each figure


FIGURES_OF_RUNS = [path for path in sorted(RESULTS.glob("*/*.csv")) if path.name not in OF_ONE_RUN + OTHERWISE]


@pytest.mark.parametrize("folder", sorted({path.parent for path in FIGURES_OF_RUNS}), ids=lambda folder: folder.name)
def test_every_figure_says_how_many_runs_it_is_of(folder: Any) -> None:
    """`publish` reads it, a table replaces its like; or there is a line for each run."""
    for path in FIGURES_OF_RUNS:
        assert path.parent != folder or {"n", "run"} & set(pd.read_csv(path, nrows=0).columns), path
    assert shortfall(folder, folder) == []


STUDIES = [FRIEDMAN_SCHUSTER, DILCA, DIPRIME, TOPDOWN, SECURE, TREES]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_study_has_the_same_command_line(study: Study[Any]) -> None:
    """All experiments have keys of their own, the data sets are those of the experiments, and `python -m` finds it."""
    experiments = study.experiments(study.data)
    keys = [experiment.key for experiment in experiments]
    assert len(set(keys)) == len(keys)
    assert {experiment.data for experiment in experiments} - {""} == set(study.data)
    module = study.module if study is TREES else f"{study.module}.__main__"
    assert vars(importlib.import_module(module))["STUDY"] is study
    parsed = vars(options(study).parse_args([]))
    assert list(parsed) == ["figures", "data", "runs", "quick", "processes", "minutes", "redo", "only", "report"]
    assert options(study).parse_args(["--quick"]).quick == study.quick > 0


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_experiments_travel_to_other_processes(study: Study[Any]) -> None:
    for experiment in study.experiments(study.data):
        again = pickle.loads(pickle.dumps(experiment))
        assert (again.key, list(again.xs), list(again.learners)) == (
            experiment.key,
            list(experiment.xs),
            list(experiment.learners),
        )


def test_what_cannot_be_measured_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that no experiment has, and data that are not there, end the program before anything is measured."""
    monkeypatch.setattr("benchmarks.harness.command.ROOT", tmp_path)
    monkeypatch.setenv("PINQ_DATA", str(tmp_path))
    parser = options(DIPRIME)
    with pytest.raises(SystemExit, match=r"begins with fig9; there are .*banknote"):
        reproduce(DIPRIME, parser.parse_args(["--figures", "fig9"]))
    with pytest.raises(SystemExit, match=r"begins with fig4 on adult; there are .*banknote"):
        reproduce(DIPRIME, parser.parse_args(["--figures", "fig4", "--data", "adult"]))
    with pytest.raises(SystemExit):
        reproduce(DIPRIME, parser.parse_args(["--figures", "banknote"]))
    assert "banknote is left out. The data set 'banknote' is not in" in capsys.readouterr().err


def test_a_quick_look_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is published yet, which any result would surpass."""
    monkeypatch.setattr("benchmarks.harness.command.ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.harness.command.RESULTS", tmp_path / "results")
    Store(tmp_path / "build" / "friedman_schuster" / "cells.csv").add([CELL])
    asked = options(FRIEDMAN_SCHUSTER).parse_args(["--quick", "--report"])
    reproduce(FRIEDMAN_SCHUSTER, asked)
    assert (tmp_path / "build" / "friedman_schuster" / "quick" / "fig3.csv").exists()
    assert not (tmp_path / "results").exists()


def test_results_say_which_code_made_them(tmp_path: Path) -> None:
    """By the cells, so that a study that went on under another commit names both; code that moved since is listed."""
    folder = tmp_path / "results" / "diprime"
    folder.mkdir(parents=True)
    for commit, run in (("0123456789ab", 0), ("0123456789ab", 1), ("ba9876543210+", 2)):
        Store(tmp_path / "cells.csv", f"{commit}; Python 3").add([CELL._replace(run=run)])
    write_origins(Store(tmp_path / "cells.csv").frame(), folder)
    assert (folder / ORIGINS).read_text().splitlines() == [
        "figure,origin,cells",
        "fig3,0123456789ab; Python 3,2",
        "fig3,ba9876543210+; Python 3,1",
    ]
    assert [line[:2] for line in moved(tmp_path / "results")] == [["diprime", "ba9876543210+"]]


def test_results_name_commits_of_this_history() -> None:
    """Not those of a branch, which get other names when they land."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists() or _said(git, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("there is no history here")
    tables = [pd.read_csv(path) for path in RESULTS.glob(f"*/{ORIGINS}")]
    commits = {origin.split(";")[0].strip("≤ +") for table in tables for origin in table["origin"]}
    for commit in sorted(commits):
        assert _said(git, "merge-base", commit, "HEAD").startswith(commit), commit


def _said(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def test_a_store_of_other_columns_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("figure,algorithm,x,run,accuracy\nfig3,Max,100.0,0,0.5\n")
    with pytest.raises(SystemExit, match="Move it away; its numbers are then measured again"):
        Store(path)
    assert path.read_text().endswith("0.5\n")


def test_times_are_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is measured alone begins after all else has ended, one run after the other."""
    monkeypatch.setattr("benchmarks.harness.command.ROOT", tmp_path)
    frames = []
    study = Study(
        name="pauses",
        module="pauses",
        about="",
        experiments=lambda data: [Pause("alone", True), Pause("beside", False)],
        data=(),
        write=lambda experiments, cells, folder: frames.append(cells),
        runs="3",
        quick=2,
    )
    reproduce(study, options(study).parse_args(["--quick", "--processes", "2"]))
    (cells,) = frames
    assert len(cells) == 2 * 2 * 2
    times = cells.pivot(index=["figure", "run"], columns="measure", values="value")
    alone: Any = times.loc["alone"]
    (began, following), (ended, _) = alone.sort_values("began")[["began", "ended"]].to_numpy(float).T
    assert times.loc["beside"]["ended"].to_numpy(float).max() < began
    assert ended < following


def test_a_section_is_replaced_and_the_words_around_it_stay(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    replace_section(page, "times", "| 1 |", heading="Secure")
    page.write_text(page.read_text() + "\nWords of people.\n")
    replace_section(page, "growth", "| 2 |", heading="Secure")
    replace_section(page, "times", "| 3 |", heading="Secure")
    assert page.read_text() == (
        "# Secure\n\n<!-- times -->\n\n| 3 |\n\n<!-- end of times -->\n\nWords of people.\n"
        "\n<!-- growth -->\n\n| 2 |\n\n<!-- end of growth -->\n"
    )


def test_the_published_accuracies_of_secure_trees_follow_from_cells(tmp_path: Path) -> None:
    """Means and errors of two folds, by hand: 80 and 90 are 85 ± 5 percent; what has no epsilon is under each."""
    cells = pd.DataFrame(
        [
            *(
                Cell("accuracy-car", "FederatedTopDown, turns", 1.0, run, "accuracy", value)
                for run, value in ((0, 0.8), (1, 0.9))
            ),
            Cell("exact-car", "plain ID3, not private", 0.0, 0, "accuracy", 0.75),
            Cell("growth-sid3p", "sid3p", 10.0, 0, "rows", 17280),
            Cell("growth-sid3p", "sid3p", 10.0, 0, "bytes", 2665068),
            Cell("growth-sid3p", "sid3p", 10.0, 0, "seconds", 0.43),
        ]
    )
    written = SECURE.write(SECURE.experiments(SECURE.data), cells, tmp_path)
    assert written == ["growth.csv", "accuracy.csv", "README.md"]
    page = (tmp_path / "README.md").read_text()
    assert "| car | FederatedTopDown, turns | 2 |  |  | 85.0 ± 5.0 |  |  |" in page
    assert f"| car | plain ID3, not private | 1 |{' 75.0 ± 0.0 |' * 5}" in page
    assert "| sid3p | 17,280 | 2,665,068 | 0.43 |" in page
    assert shortfall(tmp_path, tmp_path) == []


DILCA_MEASURES = {
    "2-3": ("f", "f_adjusted", "pearson", "pearson_diagonal"),
    "4": ("ari",),
    "5": ("accuracy",),
    "6": ("right",),
    "7": ("f", "f_adjusted", "pearson", "pearson_diagonal"),
    "8": ("l1",),
    "10-11": ("pearson", "l1"),
}


def dilca_cells(*starts: str) -> pd.DataFrame:
    """Two runs of all experiments whose keys begin so: 0.5 and 0.7."""
    return pd.DataFrame(
        [
            Cell(experiment.key, name, float(x), run, measure, 0.5 + 0.2 * run)
            for experiment in DILCA.experiments(DILCA.data)
            if isinstance(experiment, Comparison) and experiment.key.startswith(starts)
            for name in experiment.learners
            for x in experiment.xs
            for run in (0, 1)
            for measure in DILCA_MEASURES[experiment.figure]
        ]
    )


def test_a_figure_of_dilca_is_summarised_and_drawn(tmp_path: Path) -> None:
    DILCA.write(DILCA.experiments(DILCA.data), dilca_cells("figure-5-cmc", "figure-7"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "figure-5.csv",
        "figure-5.png",
        "figure-7.csv",
        "figure-7.png",
    }
    table = pd.read_csv(tmp_path / "figure-7.csv")
    assert (set(table["n"]), set(table["mean"]), set(table["sd"])) == ({2}, {0.6}, {0.1})


def test_the_figures_of_dilca_have_the_published_columns_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letter by letter, for `publish` compares them: every line that is published is measured, and no other."""
    monkeypatch.setattr("benchmarks.papers.dilca.report.draw", lambda table, folder: None)
    DILCA.write(DILCA.experiments(DILCA.data), dilca_cells(""), tmp_path)
    for path in sorted((RESULTS / "dilca").glob("figure-*.csv")):
        now, published = (pd.read_csv(folder / path.name, dtype=str) for folder in (tmp_path, path.parent))
        assert list(now.columns) == list(published.columns)
        settings = list(now.columns[: now.columns.get_loc("n")])
        assert now[settings].to_numpy().tolist() == published[settings].to_numpy().tolist()


def test_table_6_of_dilca_has_ratios_of_cpu_seconds(tmp_path: Path) -> None:
    values = {"wall": 0.9, "cpu": 0.5, "requests": 46, "text": 20.0, "codes": 5.0}
    cells = pd.DataFrame([Cell("table-6-cmc", "max_dependency", 3.0, 0, name, value) for name, value in values.items()])
    DILCA.write(DILCA.experiments(DILCA.data), cells, tmp_path)
    head, line = (tmp_path / "table-6.csv").read_text().splitlines()
    assert head == (RESULTS / "dilca" / "table-6.csv").read_text().splitlines()[0]
    assert line == "cmc,max_dependency,0.90,0.50,46,20.0,40.0,5.0,10.0"


def test_the_verbs_of_a_checkout_are_timed_in_its_own_process() -> None:
    """Every verb that the table names; both checkouts equally often."""
    with Worker(ROOT, WORKER) as worker:
        for verb in VERBS:
            assert worker.seconds(verb) > 0
        now, before = in_turn([worker, worker], "count", 3)
    assert len(now) == len(before) == 3


def test_a_checkout_without_the_library_is_refused(tmp_path: Path) -> None:
    """Or this checkout would be compared with itself."""
    with pytest.raises(SystemExit, match="imports pinq of"), Worker(tmp_path, WORKER):
        pass


def test_all_lines_of_large_tables_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On small ones here: each line of the page is prepared off the clock, and then done."""
    monkeypatch.setattr(large_worker, "ROWS", 3000)
    monkeypatch.setattr(large_worker, "WIDE_ROWS", 2000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that noise hides such tables, and a second fit costs again
        known = large_worker.tasks(ROOT, tmp_path)
        assert set(known) == set(LARGE)
        for prepare in known.values():
            prepare()()
