# SPDX-License-Identifier: Apache-2.0
"""One measurement: fit once, by us or by the published mechanism, and compare with DILCA without privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

import pinq
import pinq.curator.selection
from benchmarks.papers.dilca import peer
from benchmarks.papers.dilca.data import Dataset, load, synthetic
from benchmarks.papers.dilca.oracle import Oracle, f_score, object_distances, pearson
from miners import DPDilca
from pinq.curator.monitor import Curator
from pinq.ledger.composition import Costs, Demand
from pinq.ledger.ledger import Grant
from pinq.provider.local import LocalSession

__all__ = ["WHO", "clustering", "contexts_and_distances", "neighbours", "synthetic_context"]

# "ours" has the paper's adjacency, so that an epsilon means the same; "ours, add-remove" the one that this project recommends.
WHO = {"ours": "substitute", "ours, add-remove": "add-remove", "published": None}
H = 0.3


def remembered(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Exact scores of the same table do not change between repeats."""
    known: dict[Any, np.ndarray] = {}

    def scores(
        codes: np.ndarray,
        target: np.ndarray,
        counts: np.ndarray,
        sizes: Sequence[int],
        classes: int,
        size: int,
        score: Any,
        schema: Any,
    ) -> np.ndarray:
        key = (
            codes[:, :64].tobytes(),
            codes.shape,
            target[:64].tobytes(),
            tuple(sizes),
            size,
            repr(score),
            schema.digest,
        )
        if key not in known:
            known[key] = function(codes, target, counts, sizes, classes, size, score, schema)
        return known[key]

    return scores


pinq.curator.selection.member_scores = remembered(pinq.curator.selection.member_scores)


@lru_cache(maxsize=16)
def dataset(name: str, place: str | None = None) -> Dataset:
    return load(name, place)


@lru_cache(maxsize=16)
def codes_of(name: str, place: str | None = None) -> np.ndarray:
    return dataset(name, place).codes


@lru_cache(maxsize=16)
def oracle(name: str, place: str | None = None) -> Oracle:
    return Oracle(codes_of(name, place), dataset(name, place).sizes)


class PassingLedger:
    """Says yes and counts, and keeps no log: what is measured here is noise, and a log of a million simulated charges is read by nobody."""

    def __init__(self) -> None:
        self.costs = Costs()

    def charge(
        self, analyst: str, request: str, demand: Demand, epsilon: int, body: dict[str, Any], **terms: object
    ) -> tuple[None, None]:
        self.costs.charge(demand, epsilon)
        return None, None

    def answer(self, analyst: str, request: str, payload: str) -> str:
        return payload

    def price(self, analyst: str, demand: Demand, epsilon: int, **terms: object) -> tuple[int, int]:
        return self.costs.price(demand, epsilon), 10**18

    def grants(self) -> dict[str, Grant]:
        return {"simulated": Grant("simulated", 10**18, costs=self.costs)}

    def joint(self) -> tuple[int, int]:
        return self.costs.spent, 10**18


def free_handle(schema: pinq.Schema, rows: Any) -> pinq.PrivateQueryable:
    """Like ``pinq.simulate``, with a budget that does not end and no log."""
    simulated = pinq.simulate(schema, data=rows)
    engine = simulated._session._curator._engine  # type: ignore[attr-defined]
    return pinq.PrivateQueryable(LocalSession("simulated", "simulated", Curator(schema, PassingLedger(), engine)))  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def handle(name: str, place: str | None, adjacency: str) -> pinq.PrivateQueryable:
    data = dataset(name, place)
    return free_handle(data.under(adjacency), data.frame)


@cache
def exact(name: str, place: str | None, method: str, target: int, k: int) -> tuple[tuple[int, ...], np.ndarray]:
    """The context and distances without privacy."""
    truth = oracle(name, place)
    context = truth.context(method, target, k)
    return context, truth.distances(target, context)


def chance(method: str, others: int, size: int) -> float:
    """Expected F-score of a context drawn evenly: of the right size for the max methods, else from all sets that are not empty."""
    if method in ("max_relevance", "max_dependency"):
        return size / others
    return sum(math.comb(others, s) * 2 * s * size / others / (size + s) for s in range(1, others + 1)) / (
        2**others - 1
    )


def contexts_and_distances(
    name: str, place: str | None, method: str, who: str, epsilon: float, k: int, repeat: int
) -> dict[str, float]:
    """Each attribute a target with all of ``epsilon`` for itself: means over the targets (over those that are not binary, for correlations)."""
    truth, data = oracle(name, place), dataset(name, place)
    random = np.random.default_rng([repeat, round(1000 * epsilon), k, len(method)])
    scores, adjusted, upper, full = [], [], [], []
    everything = _everything(truth, data, name, place, who, epsilon, random) if method == "baseline" else None
    for target, column in enumerate(data.attributes):
        wanted, distances = exact(name, place, method, target, k)
        if everything is not None:
            context, found = everything(target)
        elif who == "published":
            context, found = peer.fit(truth, target, method, epsilon, k, H, random)
        else:
            miner = DPDilca(method=method, k=k, h=H, epsilon=epsilon).fit(handle(name, place, str(WHO[who])), column)  # type: ignore[arg-type]
            context = tuple(data.attributes.index(other) for other in miner.context_[column])
            found = miner.distances_[column].to_numpy()
        scores.append(f_score(wanted, context))
        expected = chance(method, len(data.attributes) - 1, len(wanted))
        adjusted.append((scores[-1] - expected) / (1 - expected) if expected < 1 else 1.0)
        if data.sizes[target] > 2:
            upper.append(pearson(distances, found))
            full.append(pearson(distances, found, diagonal=True))
    return {
        "f": float(np.mean(scores)),
        "f_adjusted": float(np.mean(adjusted)),
        "pearson": float(np.mean(upper)),
        "pearson_diagonal": float(np.mean(full)),
    }


def _everything(
    truth: Oracle, data: Dataset, name: str, place: str | None, who: str, epsilon: float, random: np.random.Generator
) -> Callable[[int], tuple[tuple[int, ...], np.ndarray]]:
    """The baseline's tables of all pairs serve all targets alike."""
    if who == "published":
        noisy = peer.noisy_oracle(truth, epsilon, random)

        def published(target: int) -> tuple[tuple[int, ...], np.ndarray]:
            context = noisy.context("baseline", target, 0)
            return context, peer.noisy_distances([noisy.noisy[target, other] for other in context])

        return published
    miner = DPDilca(method="baseline", epsilon=epsilon).fit(handle(name, place, str(WHO[who])))

    def ours(target: int) -> tuple[tuple[int, ...], np.ndarray]:
        column = data.attributes[target]
        return tuple(data.attributes.index(other) for other in miner.context_[column]), miner.distances_[
            column
        ].to_numpy()

    return ours


def clustering(
    name: str, place: str | None, method: str, who: str, epsilon: float, repeat: int, most: int = 1000
) -> dict[str, float]:
    """Adjusted Rand index of Ward's clustering of records, with as many clusters as classes, distances learned from the whole table for ``epsilon`` in all.

    Larger tables are clustered by ``most`` rows of them, the same in every repeat.
    """
    data = dataset(name, place)
    assert data.classes is not None
    rows = np.sort(np.random.default_rng(0).permutation(len(data.frame))[:most])
    matrices = _all_distances(name, place, method, who, epsilon, repeat, None)
    codes = codes_of(name, place)[:, rows]
    near = object_distances(matrices, codes, codes)
    found = fcluster(
        linkage(squareform(near, checks=False), method="ward"), data.classes.nunique(), criterion="maxclust"
    )
    return {"ari": float(adjusted_rand_score(data.classes.iloc[rows], found))}


def neighbours(
    name: str,
    place: str | None,
    method: str,
    who: str,
    epsilon: float,
    repeat: int,
    most: int = 1500,
    folds: int = 4,
    k: int = 5,
) -> dict[str, float]:
    """Accuracy of k-NN by 4-fold cross-validation: distances and classifier both learn from the other folds; one fold for each repeat in turn.

    Distances are learned from all rows outside the fold; of larger tables ``most`` rows of those are neighbours and a third as many are tested.
    """
    data = dataset(name, place)
    assert data.classes is not None
    order = np.random.default_rng(0).permutation(len(data.frame))
    tested, learned = (
        order[repeat % folds :: folds],
        np.concatenate([order[i::folds] for i in range(folds) if i != repeat % folds]),
    )
    matrices = _all_distances(name, place, method, who, epsilon, repeat, repeat % folds)
    known, asked = learned[:most], tested[: most // 3]
    classes = np.unique(data.classes.to_numpy(), return_inverse=True)[1]
    near = np.argsort(
        object_distances(matrices, codes_of(name, place)[:, asked], codes_of(name, place)[:, known]),
        axis=1,
        kind="stable",
    )[:, :k]
    votes = np.apply_along_axis(np.bincount, 1, classes[known][near], minlength=classes.max() + 1)
    return {"accuracy": float((votes.argmax(axis=1) == classes[asked]).mean())}


@lru_cache(maxsize=64)
def _fold_handle(
    name: str, place: str | None, adjacency: str, fold: int, folds: int = 4
) -> tuple[pinq.PrivateQueryable, Oracle]:
    """A handle on, and the oracle of, all rows outside a fold."""
    data = dataset(name, place)
    order = np.random.default_rng(0).permutation(len(data.frame))
    rows = np.sort(np.concatenate([order[i::folds] for i in range(folds) if i != fold]))
    schema = data.under(adjacency).model_copy(update={"max_rows": len(rows)})
    return free_handle(schema, data.frame.iloc[rows]), Oracle(codes_of(name, place)[:, rows], data.sizes)


def _all_distances(
    name: str, place: str | None, method: str, who: str, epsilon: float, repeat: int, fold: int | None
) -> list[np.ndarray]:
    """The distances of all attributes: for ``epsilon`` together, or without privacy (who is "exact")."""
    data = dataset(name, place)
    if fold is None:
        truth = oracle(name, place)
    else:
        truth = _fold_handle(name, place, "substitute", fold)[1]
    targets = range(len(data.attributes))
    if who == "exact":
        return [truth.distances(target, truth.context(method, target, 3)) for target in targets]
    if who == "published":
        random = np.random.default_rng([repeat, round(1000 * epsilon), 7, len(method)])
        return [peer.fit(truth, target, method, epsilon / len(targets), 3, H, random)[1] for target in targets]
    asked = handle(name, place, str(WHO[who])) if fold is None else _fold_handle(name, place, str(WHO[who]), fold)[0]
    miner = DPDilca(method=method, epsilon=epsilon, h=H).fit(asked)  # type: ignore[arg-type]
    return [miner.distances_[column].to_numpy() for column in data.attributes]


@lru_cache(maxsize=16)
def _synthetic_handle(
    kind: str, noise: float, adjacency: str
) -> tuple[pinq.PrivateQueryable, Oracle, str, tuple[str, ...]]:
    data, target, context = synthetic(kind, noise)
    return free_handle(data.under(adjacency), data.frame), Oracle(data.codes, data.sizes), target, context


def synthetic_context(kind: str, noise: float, method: str, who: str, epsilon: float, repeat: int) -> dict[str, float]:
    """Whether the context is exactly the right one, on Synth-A to Synth-D."""
    asked, truth, target, wanted = _synthetic_handle(kind, noise, WHO[who] or "substitute")
    if who == "published":
        random = np.random.default_rng([repeat, round(1000 * epsilon), ord(kind), round(100 * noise), len(method)])
        found = {f"x{i}" for i in peer.fit(truth, 0, method, epsilon, len(wanted), H, random)[0]}
    else:
        found = set(DPDilca(method=method, k=len(wanted), epsilon=epsilon, h=H).fit(asked, target).context_[target])  # type: ignore[arg-type]
    return {"right": float(found == set(wanted))}
