# SPDX-License-Identifier: Apache-2.0
"""The experiments: times of the protocols, bytes as rows grow, and accuracy with noise inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.datasets import stratified_folds
from benchmarks.harness.measure import Experiment, accuracies
from benchmarks.papers.secure import protocols
from benchmarks.papers.secure.owners import OWNERS, Fit, coarse, exact, noise_alone, noise_inside, topdown

__all__ = ["DATA", "EPSILONS", "Accuracy", "Growth", "ProtocolTimes", "experiments"]

TIMED_DATA = ("spect", "balance_scale", "car")
DATA = (*TIMED_DATA, "adult")
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
DEPTHS = {"car": 3, "adult": 2}
FOLDS = 10


@dataclass(frozen=True)
class ProtocolTimes(Experiment):
    """One data set's lines of Table 6.1: what each protocol takes, three parties on one machine."""

    name: str
    learners: Sequence[str]
    runs: int = 5
    xlabel: str = "parties"
    xs: Sequence[float] = (protocols.PARTIES,)
    alone: bool = True

    @property
    def key(self) -> str:
        """Names it."""
        return f"times-{self.name}"

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"Table 6.1, {self.name}"

    @property
    def data(self) -> str:
        """The data set; none where rows are made up."""
        return "" if self.name == protocols.KRKPA7 else self.name

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns seconds and bytes of each protocol, in turn, so that all meet the same machine."""
        return {form: protocols.run(self.name, form) for form in learners}


@dataclass(frozen=True)
class Growth(Experiment):
    """Bytes and seconds of one protocol as rows grow: Car, with each row so many times."""

    protocol: str
    xs: Sequence[float]
    data: str = "car"
    runs: int = 1
    xlabel: str = "times each row"
    alone: bool = True

    @property
    def key(self) -> str:
        """Names it."""
        return f"growth-{self.protocol}"

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"{self.protocol} as rows grow"

    @property
    def learners(self) -> tuple[str, ...]:
        """The protocol alone."""
        return (self.protocol,)

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns rows, bytes and seconds; the declared bound is fixed, because SID3P's traffic depends on it."""
        bound = int(max(self.xs)) if self.protocol == "sid3p" else int(x)
        return {self.protocol: protocols.run_grown(self.data, self.protocol, int(x), bound)}


@dataclass(frozen=True)
class Accuracy(Experiment):
    """Accuracy of trees of four owners: each method learns from the same rows and is scored on the same."""

    key: str
    data: str
    learners: Mapping[str, Fit]
    xs: Sequence[float] = EPSILONS
    runs: int = 20
    xlabel: str = "epsilon"

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"Accuracy on {self.data}, {OWNERS} owners"

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns the test accuracies of some methods on one fold."""
        schema, target, rows = coarse(self.data)
        fold = stratified_folds(rows[target].to_numpy(), FOLDS, run // FOLDS)
        tested = fold == run % FOLDS
        train, test = rows[~tested].sample(frac=1, random_state=run), rows[tested]
        tables = [train.iloc[number::OWNERS] for number in range(OWNERS)]
        values = {}
        for name in learners:
            tree = self.learners[name](tables, target, schema, f"{x:g}")
            values[name] = float(np.mean(tree.predict(test) == test[target].to_numpy()))
        return accuracies(values)


def experiments(data: Sequence[str]) -> list[Experiment]:
    """Returns all experiments; times, on any data set that is categorical or has cuts.

    Args:
        data: Data sets. Accuracies are measured on two of them only.
    """
    all_experiments: list[Experiment] = []
    for name in data:
        if name not in DATA or name in TIMED_DATA:
            all_experiments.append(ProtocolTimes(name, protocols.forms(name)))
        if name in DEPTHS:
            depth = DEPTHS[name]
            all_experiments.append(Accuracy(f"exact-{name}", name, {EXACT: exact(depth)}, xs=(0.0,)))
            all_experiments.append(Accuracy(f"accuracy-{name}", name, _methods(depth)))
    growths = [Growth("sid3p", (1, 10, 100)), Growth("sid3", (1, 10))]
    made_up = ProtocolTimes(protocols.KRKPA7, protocols.forms(protocols.KRKPA7))
    return [*all_experiments, made_up, *growths]


EXACT = "plain ID3, not private"


def _methods(depth: int) -> dict[str, Fit]:
    return {
        "noise inside, none collude": noise_inside(depth, 0),
        "noise inside, one colludes": noise_inside(depth, 1),
        "each owner its own noise": noise_alone(depth),
        **{f"FederatedTopDown, {strategy}": topdown(strategy) for strategy in ("turns", "local_rnm", "noisy_counts")},
    }
