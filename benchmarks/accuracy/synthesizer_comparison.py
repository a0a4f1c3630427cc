# SPDX-License-Identifier: Apache-2.0
"""Synthetic rows of other mechanisms beside ours: ``python -m benchmarks.accuracy.synthesizer_comparison``.

MST, PrivBayes and AIM are written here by their papers, at pure epsilon or at (epsilon, 1e-6), and fit this library's
graphical model; ``PEERS_PYTHON`` names an interpreter that has dpmm, whose own AIM and MST are measured, too. All get
the same rows in the same cells, and spend nothing on these. A run that results/synthesizer/peers.csv has is not
measured again. The distance is that of ``benchmarks.accuracy.synthesizer``: the mean total variation distance of all
two-way tables of as many synthetic rows as there are private ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.synthesizer import RESULTS, Adult, codes_of, counted
from benchmarks.accuracy.trees import table as data_set
from benchmarks.harness.tables import markdown
from miners import Synthesizer
from miners.growth.candidates import Grid, attribute_cells
from miners.synthesizer.graphical_model import Clique, GraphicalModel, Measurement, tree_cells
from miners.synthesizer.purchase import TREE_CELLS
from pinq.language.specs import bind

TABLES = ("car", "cmc", "adult", "mushroom", "credit_default")
EPSILONS = (0.1, 0.5, 1.0, 4.0)
DELTA = 1e-6
OURS = "Synthesizer"
FILE = RESULTS / "peers.csv"


class Case:
    """A data set in numbers of cells."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "adult":
            adult = Adult()
            self.schema, self.frame = adult.schema, adult.rows
        else:
            self.schema, _, frame = data_set(name)
            self.frame = frame[list(self.schema.columns)]
        self.specs = attribute_cells(self.schema, None, None, None, Grid(12))
        self.sizes = [bind(spec, self.schema).size for spec in self.specs]
        self.codes = codes_of(self.schema, self.specs, self.frame)
        self.pairs = list(itertools.combinations(range(len(self.sizes)), 2))

    @cached_property
    def exact(self) -> dict[Clique, np.ndarray]:
        """The exact tables of one and of two columns."""
        singles = [(column,) for column in range(len(self.sizes))]
        return {own: counted(self.codes, own, self.sizes) for own in (*singles, *self.pairs)}

    def distance(self, codes: np.ndarray) -> float:
        """The mean total variation distance of all two-way tables."""
        apart = [np.abs(counted(codes, pair, self.sizes) - self.exact[pair]).sum() / 2 for pair in self.pairs]
        return float(np.mean(apart)) / len(self.codes)


class Loss(ABC):
    """A privacy loss to be divided: its ``total``, and the noise that a part of it buys."""

    total: float

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random

    @abstractmethod
    def noise(self, part: float) -> tuple[float, float]:
        """The deviation and the mean size of the noise of a count."""

    @abstractmethod
    def drawn(self, deviation: float, size: int) -> np.ndarray:
        """Noise of a deviation."""

    @abstractmethod
    def choosing(self, part: float) -> float:
        """The epsilon of an exponential mechanism."""

    def table(self, case: Case, columns: Clique, part: float) -> Measurement:
        """Buys a table."""
        deviation, _ = self.noise(part)
        exact = case.exact[columns]
        return Measurement(columns, exact + self.drawn(deviation, exact.size), deviation)

    def chosen(self, scores: np.ndarray, part: float, sensitivity: float = 1.0) -> int:
        """Chooses by the exponential mechanism."""
        likely = scores * self.choosing(part) / (2 * sensitivity)
        return int(np.argmax(likely + self.random.gumbel(size=len(likely))))


class Pure(Loss):
    """Epsilon: Laplace noise, and parts that add up."""

    def __init__(self, epsilon: float, random: np.random.Generator) -> None:
        super().__init__(random)
        self.total = epsilon

    def noise(self, part: float) -> tuple[float, float]:
        return math.sqrt(2) / part, 1 / part

    def drawn(self, deviation: float, size: int) -> np.ndarray:
        return self.random.laplace(0, deviation / math.sqrt(2), size)

    def choosing(self, part: float) -> float:
        return part


class Concentrated(Loss):
    """Rho of zero-concentrated privacy, as much as (epsilon, ``DELTA``) allows: Gaussian noise.

    A choice at epsilon costs epsilon²/8 (Cesar & Rogers 2021).
    """

    def __init__(self, epsilon: float, random: np.random.Generator) -> None:
        super().__init__(random)
        low, high = 0.0, epsilon
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._delta(middle, epsilon) <= DELTA else (low, middle)
        self.total = low

    @staticmethod
    def _delta(rho: float, epsilon: float) -> float:
        """The smallest delta of rho (Canonne, Kamath & Steinke 2020, corollary 13)."""
        orders = 1 + np.logspace(-3, 4, 2000)
        logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
        return float(np.exp(np.minimum(logs, 0)).min())

    def noise(self, part: float) -> tuple[float, float]:
        deviation = math.sqrt(1 / (2 * part))
        return deviation, deviation * math.sqrt(2 / math.pi)

    def drawn(self, deviation: float, size: int) -> np.ndarray:
        return self.random.normal(0, deviation, size)

    def choosing(self, part: float) -> float:
        return math.sqrt(8 * part)


def fitted(case: Case, measured: Sequence[Measurement], before: GraphicalModel | None = None) -> GraphicalModel:
    """This library's model of the tables."""
    return GraphicalModel.fitted(case.sizes, measured, measured[-1].deviation, case.schema.max_rows, before)


def misfits(case: Case, model: GraphicalModel, own: Sequence[Clique]) -> np.ndarray:
    """The rows that the model has in other cells, of each table."""
    expected = model.pairs(pair for pair in own if len(pair) == 2)
    tables = [expected[each] if len(each) == 2 else model.marginal(each) for each in own]
    pairs = zip(own, tables, strict=True)
    return np.array([np.abs(case.exact[each] - model.rows * table.ravel()).sum() for each, table in pairs])


def mst(case: Case, loss: Loss) -> np.ndarray:
    """McKenna, Miklau & Sheldon 2021: a tree of pairs, chosen by their distance from independence; a third for each."""
    columns, third = len(case.sizes), loss.total / 3
    measured = [loss.table(case, (column,), third / columns) for column in range(columns)]
    scores = dict(zip(case.pairs, misfits(case, fitted(case, measured), case.pairs), strict=True))
    pieces = list(range(columns))
    for _ in range(columns - 1):
        open_pairs = [pair for pair in case.pairs if pieces[pair[0]] != pieces[pair[1]]]
        number = loss.chosen(np.array([scores[pair] for pair in open_pairs]), third / (columns - 1))
        first, second = open_pairs[number]
        old, new = pieces[first], pieces[second]
        pieces = [new if piece == old else piece for piece in pieces]
        measured.append(loss.table(case, (first, second), third / (columns - 1)))
    return fitted(case, measured).sampled(len(case.codes), loss.random)


def aim(case: Case, loss: Loss) -> np.ndarray:
    """McKenna et al. 2022, algorithms 1 to 3, on all two-way tables; trees of at most ``TREE_CELLS`` cells."""
    columns = len(case.sizes)
    own = [*((column,) for column in range(columns)), *case.pairs]
    weights = np.array([len(each) for each in own], dtype=float)  # other columns that a candidate shares with pairs
    part = loss.total / (16 * columns)
    measured = [loss.table(case, (column,), 0.9 * part) for column in range(columns)]
    model, spent = fitted(case, measured), 0.9 * part * columns
    while spent < loss.total * (1 - 1e-9):
        if loss.total - spent < 2 * part:
            part = loss.total - spent
        spent += part
        room = sum(case.sizes) + TREE_CELLS * spent / loss.total
        known = [each for each in model.potentials if len(each) > 1]
        held = {each for each in own if model.tree.home(each) >= 0}
        able = np.array([each in held or tree_cells(case.sizes, [*known, each]) <= room for each in own])
        _, size = loss.noise(0.9 * part)
        allowed = size * np.array([case.exact[each].size for each in own])
        scores = np.where(able, weights * (misfits(case, model, own) - allowed), -np.inf)
        chosen = own[loss.chosen(scores, 0.1 * part, weights.max())]
        before = model.marginal(chosen)
        measured.append(loss.table(case, chosen, 0.9 * part))
        model = fitted(case, measured, model)
        if np.abs(model.marginal(chosen) - before).sum() * model.rows <= size * before.size:
            part *= 2 if isinstance(loss, Pure) else 4  # half the noise
    return model.sampled(len(case.codes), loss.random)


def privbayes(case: Case, loss: Loss) -> np.ndarray:
    """Zhang et al. 2017: a network of tables with up to as many parents as noise allows, chosen by the score R.

    The score is half the distance of a column and its parents from independence, in rows; a row moves it by at
    most 3. A third of the loss chooses, the rest counts. The number of rows is taken as public, as there.
    """
    random, rows, columns = loss.random, len(case.codes), len(case.sizes)
    choice, price = 0.3 * loss.total / (columns - 1), 0.7 * loss.total / columns
    largest = rows * price / (2 * 4)  # cells: an average cell has four times its noise (theta-usefulness)
    first = int(random.integers(columns))
    network: list[tuple[int, Clique]] = [(first, ())]
    left = set(range(columns)) - {first}
    while left:
        done = [column for column, _ in network]
        offered = [(column, parents) for column in sorted(left) for parents in _parents(case, column, done, largest)]
        scores = np.array([_dependence(case, *each) for each in offered])
        network.append(offered[loss.chosen(scores, choice, 3.0)])
        left.remove(network[-1][0])
    codes = np.zeros((rows, columns), dtype=np.int64)
    for column, parents in network:
        exact = counted(case.codes, (*parents, column), case.sizes).astype(float)
        noisy = np.maximum(exact + loss.drawn(loss.noise(price)[0], exact.size), 0).reshape(-1, case.sizes[column])
        noisy[noisy.sum(axis=1) == 0] = 1
        ends = np.cumsum(noisy / noisy.sum(axis=1, keepdims=True), axis=1)
        sizes = [case.sizes[parent] for parent in parents]
        own = np.ravel_multi_index(tuple(codes[:, parents].T), sizes) if parents else np.zeros(rows, dtype=np.int64)
        drawn = (random.random((rows, 1)) > ends[own]).sum(axis=1)
        codes[:, column] = np.minimum(drawn, case.sizes[column] - 1)
    return codes


def _parents(case: Case, column: int, done: Sequence[int], largest: float) -> list[Clique]:
    """The largest sets of at most two parents whose table has few enough cells; none if there is no other."""
    for count in (2, 1):
        sets = itertools.combinations(sorted(done), count)
        fitting = [own for own in sets if math.prod(case.sizes[each] for each in (*own, column)) <= largest]
        if fitting:
            return fitting
    return [()]


def _dependence(case: Case, column: int, parents: Clique) -> float:
    table = counted(case.codes, (*parents, column), case.sizes).reshape(-1, case.sizes[column])
    even = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return float(np.abs(table - even).sum()) / 2


def ours(case: Case, epsilon: float, run: int) -> np.ndarray:
    """Rows of this library, through a handle."""
    with pinq.simulate(case.schema, data=case.frame, epsilon=epsilon) as handle:
        model = Synthesizer(epsilon=epsilon, random_state=run).fit(handle).model_
    return model.model.sampled(len(case.codes), np.random.default_rng(run))


def written_here(
    mechanism: Callable[[Case, Loss], np.ndarray], kind: type[Pure | Concentrated]
) -> Callable[[Case, float, int], np.ndarray]:
    """Rows of a mechanism of this file."""
    return lambda case, epsilon, run: mechanism(case, kind(epsilon, np.random.default_rng(run)))


WHO: dict[str, Callable[[Case, float, int], np.ndarray]] = {
    OURS: ours,
    "AIM, pure": written_here(aim, Pure),
    "MST, pure": written_here(mst, Pure),
    "PrivBayes, pure": written_here(privbayes, Pure),
    "AIM, 1e-6": written_here(aim, Concentrated),
    "MST, 1e-6": written_here(mst, Concentrated),
}


def of_dpmm(case: Case, model: str, epsilon: float, run: int) -> tuple[np.ndarray, float]:
    """Rows of dpmm's model, and its processor seconds, in the peers' interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cells.npz"
        np.savez(file, codes=case.codes, sizes=case.sizes)
        asked = json.dumps({"model": model, "epsilon": epsilon, "run": run})
        script = str(Path(__file__).with_name("synthesizer_peers.py"))
        command = [os.environ["PEERS_PYTHON"], script, str(file)]
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
        return np.load(f"{file}.npy"), json.loads(done.stdout)["CPU s"]


def measured_line(case: Case, who: str, epsilon: float, run: int) -> dict[str, object]:
    """One run."""
    if who.startswith("dpmm"):
        codes, seconds = of_dpmm(case, who.split()[1], epsilon, run)
    else:
        began = time.process_time()
        codes = WHO[who](case, epsilon, run)
        seconds = time.process_time() - began
    line = {"table": case.name, "epsilon": epsilon, "who": who, "run": run}
    return {**line, "TVD 2-way": round(case.distance(codes), 5), "CPU s": round(seconds, 2)}


def page(lines: pd.DataFrame) -> str:
    """The results as a page."""
    sections = ["# Synthetic rows beside other mechanisms", str(__doc__)]
    heads = [f"{epsilon:g}" for epsilon in EPSILONS]
    for name, own in lines.groupby("table", sort=False):
        rows = []
        for who, of_one in own.groupby("who", sort=False):
            means = of_one.groupby("epsilon")["TVD 2-way"].agg(["mean", "std", "count"]).reindex(EPSILONS)
            texts = [
                "" if np.isnan(each["mean"]) else f"{each['mean']:.3f} ± {each['std']:.3f}"
                for _, each in means.iterrows()
            ]
            seconds = of_one.groupby("epsilon")["CPU s"].mean().reindex(EPSILONS)
            times = ["" if np.isnan(each) else f"{each:.3g}" for each in seconds]
            counts = "/".join(f"{int(count)}" for count in means["count"].fillna(0))
            rows.append([who, *texts, counts, " / ".join(times)])
        head = [f"{name}: distance at epsilon", *heads, "runs", "CPU s"]
        sections.append(markdown(head, rows))
    return "\n\n".join(sections) + "\n"


def main() -> None:
    """Measures what is not measured yet, and writes after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--who", nargs="+", default=list(WHO), help="also: 'dpmm AIM', 'dpmm MST'")
    asked = parser.parse_args()
    lines = pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=["table", "epsilon", "who", "run"])
    known = set(lines[["table", "epsilon", "who", "run"]].itertuples(index=False, name=None))
    for name in asked.tables:
        case = Case(name)
        for run, epsilon, who in itertools.product(range(asked.runs), asked.epsilons, asked.who):
            if (name, epsilon, who, run) in known:
                continue
            lines = pd.concat([lines, pd.DataFrame([measured_line(case, who, epsilon, run)])], ignore_index=True)
            print(lines.iloc[-1].to_dict(), flush=True)
            lines.to_csv(FILE, index=False)
    order = {who: number for number, who in enumerate(WHO)}
    lines = lines.sort_values(
        ["table", "who"], key=lambda own: own.map({**order, **{t: n for n, t in enumerate(TABLES)}}), kind="stable"
    )
    FILE.with_suffix(".md").write_text(page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
