# SPDX-License-Identifier: Apache-2.0
"""Figure 8: Adult without rows that miss a value (45,222), repeated 10-fold cross-validation.

diffprivlib is measured beside on the same folds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.cells import Cell, Store
from benchmarks.harness.datasets import load, stratified_folds
from benchmarks.harness.learners import CRITERIA, Learner, Rows, exact_tree, private
from benchmarks.harness.measure import Experiment, accuracies
from miners import DiffPC45
from miners.fitted.route import encode
from pinq.public.schema import Schema

__all__ = ["ADULT", "PEERS", "Adult", "measure_peers"]

FOLDS = 10
UNLIMITED_EPSILON = 10**5
PEERS = ("diffprivlib tree, depth 5", "diffprivlib tree, depth 10", "diffprivlib forest, depth 10")


@dataclass(frozen=True)
class Adult(Experiment):
    """A figure that varies the budget; run ``10 r + f`` tests on fold f of repeat r."""

    key: str = "fig8"
    title: str = "Accuracy against privacy (B) on Adult, depth up to 5, repeated 10-fold cross-validation"
    xs: Sequence[float] = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    runs: int = 100
    xlabel: str = "privacy budget B"
    data: str = "adult"

    @property
    def learners(self) -> Mapping[str, Learner]:
        """The compared learners without the peers."""
        paper = {
            name: private(DiffPC45, variant="paper", criterion=criterion, max_depth=5)
            for name, criterion in CRITERIA.items()
        }
        return paper | {"best": private(DiffPC45), "depth 5, not private": exact_tree(pruned=False, max_depth=5)}

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns test accuracies of some learners on one fold."""
        schema, target, table = complete_rows()
        tested = fold_of(run // FOLDS) == run % FOLDS
        train, test = table[~tested], table[tested]
        with pinq.simulate(schema, data=train, epsilon=UNLIMITED_EPSILON) as handle:
            rows = Rows(schema, target, handle, train, test)
            return accuracies({name: self.learners[name](rows, x) for name in learners})


ADULT = Adult()


@cache
def complete_rows() -> tuple[Schema, str, pd.DataFrame]:
    """Returns Adult's training and test rows together, those that miss no value; 50,000 is the bound."""
    declared, target, rows = load("adult", max_rows=50_000)
    rows = rows.drop(columns="fold").dropna().reset_index(drop=True)
    columns = {name: declared.columns[name].model_copy(update={"nullable": False}) for name in rows.columns}
    return Schema(columns=columns, max_rows=50_000), target, rows


@cache
def fold_of(repeat: int) -> np.ndarray:
    """Returns which fold tests each row, shape (rows,)."""
    schema, target, rows = complete_rows()
    return stratified_folds(encode(schema, target, rows), FOLDS, seed=repeat)


PeerRun = tuple[str, float, int]


def _missing(store: Store, runs: int | None) -> list[PeerRun]:
    """Returns what the peers' interpreter is to measure: algorithm, epsilon, run."""
    peer_runs = [
        (name, x, run) for run in range(min(ADULT.runs, runs or ADULT.runs)) for x in ADULT.xs for name in PEERS
    ]
    return [(name, x, run) for name, x, run in peer_runs if (ADULT.key, name, float(x), run) not in store.done]


def measure_peers(
    store: Store,
    experiments: Sequence[Experiment],
    runs: int | None,
    keep: Callable[[Iterable[Cell]], None],
    late: Callable[[], bool],
) -> None:
    """Has the peers' interpreter measure what is missing on Adult, until it is late.

    ``PEERS_PYTHON`` names the interpreter; without it nothing is measured. Each cell is kept as it comes.
    """
    peer_runs = _missing(store, runs) if ADULT in experiments else []
    if not peer_runs:
        return
    python = os.environ.get("PEERS_PYTHON")
    if not python:
        print(
            "diffprivlib is left out: PEERS_PYTHON does not name an interpreter that has it "
            "(pip install -r benchmarks/speed/peers.txt).",
            file=sys.stderr,
        )
        return
    file = store.path.with_name("adult.npz")
    _save_codes(file, n_repeats=1 + max(run for *_, run in peer_runs) // FOLDS)
    command = [python, str(Path(__file__).with_name("peers.py")), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(peer_runs))
        process.stdin.close()
        for line in process.stdout:
            name, x, run, accuracy = json.loads(line)
            keep([Cell(ADULT.key, name, x, run, "accuracy", accuracy)])
            if late():
                process.kill()
    if process.returncode and not late():
        raise SystemExit(
            f"The peers' interpreter {python} failed; `pip install -r benchmarks/speed/peers.txt` into it, "
            "or unset PEERS_PYTHON to go without."
        )


def _save_codes(file: Path, n_repeats: int) -> None:
    """Writes what the peers learn from: codes, classes, the largest code of each attribute, and folds."""
    schema, target, rows = complete_rows()
    names = [name for name in schema.columns if name != target]
    np.savez(
        file,
        features=np.column_stack([encode(schema, name, rows) for name in names]).astype(float),
        classes=encode(schema, target, rows),
        upper=np.array([schema.columns[name].cells - 1.0 for name in names]),
        folds=np.array([fold_of(repeat) for repeat in range(n_repeats)]),
    )
