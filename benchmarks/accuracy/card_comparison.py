# SPDX-License-Identifier: Apache-2.0
"""Scorecards beside other libraries' private models on Adult and Credit Card Default, in one run.

    PEERS_PYTHON=.venv-cards/bin/python python -m benchmarks.accuracy.card_comparison --runs 3

Ours and the tree are pure epsilon. DP-EBM is (epsilon, 1e-5), which is less to promise; diffprivlib's
models are pure. All get the same rows, declared bounds and values, and their own defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.measures import shares_figures
from benchmarks.accuracy.problems import Problem
from benchmarks.accuracy.trees import UNLIMITED_EPSILON
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.tables import markdown, replace_section
from miners import DiffPC45, Scorecard
from pinq.public.schema import Numeric, Schema

__all__ = ["main"]

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
PEERS = ("DP-EBM", "diffprivlib logistic", "diffprivlib forest", "boosted stumps", "boosted trees")
PROMISE = {"DP-EBM": "1e-5", "boosted stumps": "not private", "boosted trees": "not private"}
OURS = {"Scorecard": Scorecard, "DiffPC45": DiffPC45}
MEASURES = {"accuracy": "Accuracy", "auc": "Area under the ROC curve", "log_loss": "Log loss"}
Row = dict[str, str | float]


def _row(data: str, name: str, epsilon: float, run: int, shares: np.ndarray, truth: np.ndarray) -> Row:
    """Returns the figures of one fit."""
    both = np.column_stack([1 - shares, shares])
    accuracy = float(np.mean((shares > 0.5) == (truth == 1)))
    figures = {"accuracy": accuracy, **shares_figures(both, truth)}
    return {"data": data, "name": name, "epsilon": epsilon, "run": run, **figures}


def _ours(problem: Problem, run: int) -> Iterator[Row]:
    """Yields the figures of our miners."""
    schema, target, rows = problem.load()
    tested = problem.tested(run)
    train, test = rows[~tested][list(schema.columns)], rows[tested]
    truth = (test[target] == schema.categorical(target).values[1]).to_numpy(dtype=np.int64)
    with pinq.simulate(schema, data=train, epsilon=UNLIMITED_EPSILON) as handle:
        for epsilon in EPSILONS:
            for name, kind in OURS.items():
                shares = np.asarray(kind(epsilon=epsilon).fit(handle, target).predict_proba(test))[:, 1]
                yield _row(problem.key, name, epsilon, run, shares, truth)


def _peers(problem: Problem, run: int, python: str) -> Iterator[tuple[Row, dict[str, str]]]:
    """Yields the figures of the peers, with their versions."""
    schema, target, rows = problem.load()
    positive, tested = schema.categorical(target).values[1], problem.tested(run)
    columns = {name: _declared(schema, name) for name in schema.columns if name != target}
    frame = _filled(rows[list(columns)], columns)
    frame[target] = (rows[target] == positive).astype(int)
    frame["tested"] = tested
    truth = frame.loc[tested, target].to_numpy(dtype=np.int64)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        frame.to_parquet(file)
        asked = [(name, epsilon) for epsilon in EPSILONS for name in PEERS]
        task = {"rows": str(file), "columns": columns, "target": target, "asked": asked}
        script = Path(__file__).with_name("card_peers.py")
        done = subprocess.run([python, str(script)], input=json.dumps(task), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"The peers ended with status {done.returncode}: {done.stderr[-500:]}")
    for line in done.stdout.splitlines():
        fit = json.loads(line)
        yield _row(problem.key, fit["name"], fit["epsilon"], run, np.array(fit["shares"]), truth), fit["versions"]


def _declared(schema: Schema, name: str) -> dict[str, object]:
    """Returns what is public about a column, as JSON."""
    column = schema.columns[name]
    if isinstance(column, Numeric):
        return {"lower": float(column.lower), "upper": float(column.upper)}
    values = [str(value) for value in schema.categorical(name).values]
    return {"values": [*values, ""] if column.nullable else values}


def _filled(rows: pd.DataFrame, columns: dict[str, dict[str, object]]) -> pd.DataFrame:
    """Returns rows with text for categories; missing numbers become the lower bound."""
    filled = {
        name: rows[name].astype(object).where(rows[name].notna(), "").astype(str)
        if "values" in declared
        else rows[name].astype(float).fillna(float(str(declared["lower"])))
        for name, declared in columns.items()
    }
    return pd.DataFrame(filled)


def _write(rows: pd.DataFrame, versions: dict[str, str]) -> None:
    """Writes ``peers.csv`` and its section of the page."""
    folder = RESULTS / "scorecards"
    named = rows.rename(columns={"data": "figure", "name": "algorithm", "epsilon": "x"})
    cells = named.drop(columns="run").melt(["figure", "algorithm", "x"], var_name="measure")
    grouped = cells.groupby(["figure", "measure", "algorithm", "x"], sort=False)["value"]
    means = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    means.to_csv(folder / "peers.csv", index=False, float_format="%.5g", lineterminator="\n")
    about = (
        "Means of test rows ± standard deviation of the runs, one run of one machine, everybody's defaults, the same "
        "splits, bounds and values: Adult by UCI's split (no declared cuts), Credit Card Default 90/10. *delta*: "
        "what is promised beside epsilon. DP-EBM of interpret-core "
        f"{versions['interpret-core']}; diffprivlib {versions['diffprivlib']}: logistic regression on one-hot columns "
        "with the norm that follows from their number, forest on codes. Boosted stumps and trees are those of "
        f"scikit-learn {versions['scikit-learn']}, without noise, whatever epsilon: what there is to learn. Stumps "
        "add up as a scorecard does. A *DPDecisionForest* of that name is on no "
        "package index; ours of that name stands in [which](../which/README.md). Repeat: `PEERS_PYTHON=... python -m "
        "benchmarks.accuracy.card_comparison`."
    )
    sections = ["## Beside other libraries", about]
    for data, of_data in rows.groupby("data", sort=False):
        for measure, title in MEASURES.items():
            head = [f"{data}: {title.lower()}", "delta", *(f"{epsilon:g}" for epsilon in EPSILONS), "runs"]
            lines = [_line(name, of_data[of_data["name"] == name], measure) for name in (*OURS, *PEERS)]
            sections.append(markdown(head, lines))
    replace_section(folder / "README.md", "peers", "\n\n".join(sections), heading="Scorecards")


def _line(name: str, rows: pd.DataFrame, measure: str) -> list[str | int]:
    """Returns a miner's line of a table."""
    by_epsilon = [rows[rows["epsilon"] == epsilon][measure] for epsilon in EPSILONS]
    texts = [f"{values.mean():.4f} ± {values.std():.4f}" for values in by_epsilon]
    return [name, PROMISE.get(name, "0"), *texts, min(map(len, by_epsilon))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all, and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args(arguments).runs
    python = os.environ.get("PEERS_PYTHON")
    if not python:
        sys.exit("PEERS_PYTHON must name an interpreter with benchmarks/accuracy/card_peers.txt installed.")
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for problem in (Problem("adult"), Problem("credit_default")):
        for run in range(runs):
            rows += _ours(problem, run)
            for row, of_peers in _peers(problem, run, python):
                rows.append(row)
                versions = of_peers
            print(f"{problem.key}, run {run}: done", file=sys.stderr)
    _write(pd.DataFrame(rows), versions)


if __name__ == "__main__":
    main()
