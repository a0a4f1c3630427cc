# SPDX-License-Identifier: Apache-2.0
"""One run each: fit once, by us or by the published mechanism, and compare with DILCA without privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

import pinq
from benchmarks.papers.dilca import peer
from benchmarks.papers.dilca.data import Dataset, load, synthetic
from benchmarks.papers.dilca.oracle import Oracle, f_score, object_distances, pearson
from benchmarks.papers.dilca.unlimited import unlimited_handle
from miners import DPDilca

__all__ = [
    "WHO",
    "Setting",
    "chance",
    "clustering",
    "contexts_and_distances",
    "each_attribute",
    "neighbours",
    "objects",
    "synthetic_context",
]

# "ours" has the paper's adjacency, so that an epsilon means the same on both sides; "ours, add-remove"
# has the one that this project recommends.
WHO = {"ours": "substitute", "ours, add-remove": "add-remove", "published": None}
CONTEXT_SHARE = 0.3  # the share of epsilon that chooses the context
FOLDS = 4
NEIGHBOURS = 5
MAX_CLUSTERED, MAX_NEIGHBOUR_ROWS, MAX_COMPARED = 1000, 1500, 300
Context = tuple[int, ...]
Answer = tuple[Context, np.ndarray]


Method = Literal["max_relevance", "max_dependency", "mean_su", "baseline"]


class Setting(NamedTuple):
    """The setting of a fit: its method, implementation, table and loss."""

    dataset: str
    method: Method
    who: str
    epsilon: float
    k: int = 3
    noise: float = 0.0

    def seed(self, run: int, *more: int) -> np.random.Generator:
        """Returns the randomness of a run of the published mechanism."""
        return np.random.default_rng([run, round(1000 * self.epsilon), *more, len(self.method)])


@lru_cache(maxsize=16)
def dataset(name: str) -> Dataset:
    """Returns a table, read once."""
    return load(name)


@lru_cache(maxsize=16)
def codes_of(name: str) -> np.ndarray:
    """Returns a table's codes, computed once."""
    return dataset(name).codes


@lru_cache(maxsize=64)
def handle(name: str, adjacency: str, fold: int | None = None) -> pinq.PrivateQueryable:
    """Returns a handle on all rows outside a fold, or on all."""
    data, rows = dataset(name), _rows_outside(name, fold)
    schema = data.under(adjacency).model_copy(update={"max_rows": len(rows)})
    return unlimited_handle(schema, data.frame.iloc[rows])


@lru_cache(maxsize=64)
def oracle(name: str, fold: int | None = None) -> Oracle:
    """Returns the truth about all rows outside a fold, or about all."""
    return Oracle(codes_of(name)[:, _rows_outside(name, fold)], dataset(name).sizes)


def _shuffled(name: str) -> np.ndarray:
    """Returns the rows of a table in the order that folds and samples are cut from."""
    return np.random.default_rng(0).permutation(len(dataset(name).frame))


def _rows_outside(name: str, fold: int | None) -> np.ndarray:
    if fold is None:
        return np.arange(len(dataset(name).frame))
    order = _shuffled(name)
    return np.sort(np.concatenate([order[other::FOLDS] for other in range(FOLDS) if other != fold]))


@cache
def exact(name: str, method: str, target: int, k: int) -> Answer:
    """Returns the context and distances without privacy."""
    context = oracle(name).context(method, target, k)
    return context, oracle(name).distances(target, context)


def chance(method: str, others: int, size: int) -> float:
    """Returns the expected F-score of a context that is drawn evenly.

    It is of the right size for the max methods, else any set that is not empty.
    """
    if method in ("max_relevance", "max_dependency"):
        return size / others
    scores = (math.comb(others, drawn) * 2 * drawn * size / others / (size + drawn) for drawn in range(1, others + 1))
    return sum(scores) / (2**others - 1)


def contexts_and_distances(setting: Setting, run: int) -> dict[str, float]:
    """Learns each attribute's distances for all of epsilon, and compares them with the exact ones.

    Returns:
        Means over the attributes; of correlations, over those with more than two values.
    """
    scores, adjusted, upper, full = [], [], [], []
    for one in _compared(setting, run):
        scores.append(one.f)
        expected = chance(setting.method, one.others, len(one.exact[0]))
        adjusted.append((one.f - expected) / (1 - expected) if expected < 1 else 1.0)
        if len(one.exact[1]) > 2:
            upper.append(one.pearson(one.found[1]))
            full.append(one.pearson(one.found[1], diagonal=True))
    values = {"f": scores, "f_adjusted": adjusted, "pearson": upper, "pearson_diagonal": full}
    return {measure: float(np.mean(of_targets)) for measure, of_targets in values.items()}


class Compared(NamedTuple):
    """The context and distances of one target, beside those without privacy."""

    name: str
    others: int
    exact: Answer
    found: Answer

    @property
    def f(self) -> float:
        """The F-score of the context."""
        return f_score(self.exact[0], self.found[0])

    def pearson(self, distances: np.ndarray, *, diagonal: bool = False) -> float:
        """Returns the correlation of some distances with the exact ones."""
        return pearson(self.exact[1], distances, diagonal=diagonal)


def _compared(setting: Setting, run: int) -> Iterator[Compared]:
    data, answer = dataset(setting.dataset), _answers(setting, run)
    for target, name in enumerate(data.attributes):
        truth = exact(setting.dataset, setting.method, target, setting.k)
        yield Compared(name, len(data.attributes) - 1, truth, answer(target))


def each_attribute(setting: Setting, run: int) -> dict[str, float]:
    """Returns what figures 8 and 9 and tables 3 to 5 follow from: numbers of each attribute, and what chance gives.

    ``l1`` is the mean over the attributes of the mean difference of two distances.
    """
    values, gaps, random = {}, [], setting.seed(run, 9)
    for one in _compared(setting, run):
        gaps.append(float(np.abs(one.found[1] - one.exact[1]).mean()))
        values[f"f of {one.name}"] = one.f
        values[f"f by chance of {one.name}"] = f_score(one.exact[0], _random_context(setting, one.others, random))
        if len(one.exact[1]) > 2:
            drawn = np.triu(random.random(one.exact[1].shape), 1)
            values[f"pearson of {one.name}"] = one.pearson(one.found[1])
            values[f"pearson by chance of {one.name}"] = one.pearson(drawn + drawn.T)
    return {"l1": float(np.mean(gaps)), **values}


def _random_context(setting: Setting, others: int, random: np.random.Generator) -> Sequence[int]:
    """Returns a context that is drawn evenly: of the right size for the max methods, else any that is not empty."""
    if setting.method in ("max_relevance", "max_dependency"):
        return random.choice(others, setting.k, replace=False).tolist()
    while True:
        drawn = np.flatnonzero(random.integers(0, 2, others))
        if len(drawn):
            return drawn.tolist()


def _answers(setting: Setting, run: int) -> Callable[[int], Answer]:
    """Returns who answers for one target: the baseline's tables of all pairs serve all targets alike."""
    random = setting.seed(run, setting.k)
    name, method, who, epsilon, k, _ = setting
    if who == "published" and method == "baseline":
        noisy = peer.noisy_oracle(oracle(name), epsilon, random)
        return lambda target: peer.baseline_answer(noisy, target)
    if who == "published":
        return lambda target: peer.fit(oracle(name), target, method, epsilon, k, CONTEXT_SHARE, random)
    asked = handle(name, str(WHO[who]))
    if method == "baseline":
        baseline = DPDilca(method="baseline", epsilon=epsilon).fit(asked)
        return lambda target: _of_miner(baseline, dataset(name), target)

    def fit(target: int) -> Answer:
        miner = DPDilca(method=method, k=k, h=CONTEXT_SHARE, epsilon=epsilon)
        return _of_miner(miner.fit(asked, dataset(name).attributes[target]), dataset(name), target)

    return fit


def _of_miner(miner: DPDilca, data: Dataset, target: int) -> Answer:
    column = data.attributes[target]
    context = tuple(data.attributes.index(other) for other in miner.context_[column])
    return context, miner.distances_[column].to_numpy()


def clustering(setting: Setting, run: int) -> dict[str, float]:
    """Compares Ward's clusters of records with the classes; epsilon is for all attributes together.

    There are as many clusters as classes. Distances are learned from the whole table; of larger tables
    ``MAX_CLUSTERED`` rows are clustered, the same in every run.
    """
    data = dataset(setting.dataset)
    assert data.classes is not None
    rows = np.sort(_shuffled(setting.dataset)[:MAX_CLUSTERED])
    codes = codes_of(setting.dataset)[:, rows]
    distances = object_distances(_all_distances(setting, run, None), codes, codes)
    tree = linkage(squareform(distances, checks=False), method="ward")
    clusters = fcluster(tree, data.classes.nunique(), criterion="maxclust")
    return {"ari": float(adjusted_rand_score(data.classes.iloc[rows], clusters))}


def objects(setting: Setting, run: int) -> dict[str, float]:
    """Compares the distances between records with those without privacy, on ``MAX_COMPARED`` rows of the table."""
    codes = codes_of(setting.dataset)[:, np.sort(_shuffled(setting.dataset)[:MAX_COMPARED])]
    found = object_distances(_all_distances(setting, run, None), codes, codes)
    truth = _exact_objects(setting.dataset, setting.method, setting.k)
    return {"pearson": pearson(truth, found), "l1": float(np.abs(truth - found).mean())}


@cache
def _exact_objects(name: str, method: Method, k: int) -> np.ndarray:
    codes = codes_of(name)[:, np.sort(_shuffled(name)[:MAX_COMPARED])]
    return object_distances(_all_distances(Setting(name, method, "exact", 0.0, k), 0, None), codes, codes)


def neighbours(setting: Setting, run: int) -> dict[str, float]:
    """Returns the accuracy of k-NN on one fold of a 4-fold cross-validation, on each in turn.

    Distances and classifier both learn from the other folds. Distances are learned from all their
    rows; of larger tables ``MAX_NEIGHBOUR_ROWS`` of those are neighbours, and a third as many rows of
    the fold are tested.
    """
    data, order, fold = dataset(setting.dataset), _shuffled(setting.dataset), run % FOLDS
    assert data.classes is not None
    learned = np.concatenate([order[other::FOLDS] for other in range(FOLDS) if other != fold])[:MAX_NEIGHBOUR_ROWS]
    tested = order[fold::FOLDS][: MAX_NEIGHBOUR_ROWS // 3]
    codes = codes_of(setting.dataset)
    distances = object_distances(_all_distances(setting, run, fold), codes[:, tested], codes[:, learned])
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    classes = np.unique(data.classes.to_numpy(), return_inverse=True)[1]
    votes = np.apply_along_axis(np.bincount, 1, classes[learned][nearest], minlength=classes.max() + 1)
    return {"accuracy": float((votes.argmax(axis=1) == classes[tested]).mean())}


def _all_distances(setting: Setting, run: int, fold: int | None) -> Sequence[np.ndarray]:
    """Returns the distances of all attributes: for epsilon together, or without privacy.

    Hamming's distance, for comparison, learns nothing: 1 between any two values.
    """
    name, method, who, epsilon, k, _ = setting
    truth = oracle(name, fold)
    targets = range(len(truth.sizes))
    if who == "hamming":
        return [1 - np.eye(size) for size in truth.sizes]
    if who == "exact":
        return [truth.distances(target, truth.context(method, target, k)) for target in targets]
    if who == "published":
        random, share = setting.seed(run, 7), epsilon / len(targets)
        return [peer.fit(truth, target, method, share, k, CONTEXT_SHARE, random)[1] for target in targets]
    miner = DPDilca(method=method, k=k, epsilon=epsilon, h=CONTEXT_SHARE).fit(handle(name, str(WHO[who]), fold))
    return [miner.distances_[column].to_numpy() for column in dataset(name).attributes]


@lru_cache(maxsize=16)
def _synthetic(kind: str, noise: float, adjacency: str) -> tuple[pinq.PrivateQueryable, Oracle, str, tuple[str, ...]]:
    data, target, context = synthetic(kind, noise)
    asked = unlimited_handle(data.under(adjacency), data.frame)
    return asked, Oracle(data.codes, data.sizes), target, context


def synthetic_context(setting: Setting, run: int) -> dict[str, float]:
    """Returns whether the context is exactly the right one, on Synth-A to Synth-D."""
    kind, method, who, epsilon, _, noise = setting
    asked, truth, target, right = _synthetic(kind, noise, WHO[who] or "substitute")
    k = len(right)
    if who == "published":
        random = setting.seed(run, ord(kind), round(100 * noise))
        context = {f"x{i}" for i in peer.fit(truth, 0, method, epsilon, k, CONTEXT_SHARE, random)[0]}
    else:
        miner = DPDilca(method=method, k=k, epsilon=epsilon, h=CONTEXT_SHARE)
        context = set(miner.fit(asked, target).context_[target])
    return {"right": float(context == set(right))}
