# SPDX-License-Identifier: Apache-2.0
"""What really reaches the samplers, end to end, on hundreds of neighbouring tables that Hypothesis made; five thousand in `make assurance`.

Each cell of one column has a small table, and in the second world one row more. One request to all cells is as many
pairs of neighbours: through policy, encoding, engine and curator, down to the call that draws. There the numbers of a pair may differ by
the sensitivity that is handed over, and the scores of a pair by the span; and they must do so somewhere, or the noise is too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings, strategies as st

from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.language.derivatives import Logistic, Residuals, Softmax
from pinq.language.points import Points
from pinq.language.products import Products
from pinq.language.scores import MaxClass, Misfit, Score
from pinq.language.specs import AnyCut, AnyGrouping, Cuts, Groups, Values
from pinq.policy.policy import Policy
from pinq.provider.selftest.claims import EVERY_KIND, claims_of, values_of
from pinq.public.schema import Schema
from tests.support.house.assurance import ASSURANCE, note
from tests.support.requests.catalogue import SCORES, scores_on

pytestmark = pytest.mark.usefixtures("unrehearsed")

PAIRS, MOST = 5_000 if ASSURANCE else 700, 60
EPSILON = Fraction(1)


# Half of the numbers lie at an end or beyond it.
VALUES: dict[str, list[Any]] = {
    **{name: ["u", "v"] for name in "abc"},
    "g": ["u", "v", "w"],
    "y": ["n", "p"],
    "x": [*(end for end in (-5, 0, 100, 300) for _ in range(8)), *range(3, 99, 3)],
    "z": [*(end for end in (0, 0, 15, 99) for _ in range(4)), *range(16)],
    "low": [-300, -100, -100, 0, 10, 99],
}
RANGE = (3, 9)  # some values of z are below, some above
LOW = {"low": {"type": "numeric", "lower": -100, "upper": 10, "integer": True}}
ROWS = st.integers(0, math.prod(map(len, VALUES.values())) - 1)
"""A row as one number: much quicker to draw than seven values."""


def rows_of(numbers: Sequence[int]) -> pd.DataFrame:
    """The rows that some numbers stand for: a digit for each column."""
    left, columns = np.array(numbers, dtype=np.int64), {}
    for name, values in VALUES.items():
        left, digit = np.divmod(left, len(values))
        columns[name] = np.array(values)[digit]
    return pd.DataFrame(columns)


def made_pairs() -> list[tuple[list[int], int]]:
    """So many small tables, each with a row that comes."""
    pairs = []

    @settings(max_examples=PAIRS, database=None, phases=[Phase.generate])
    @given(st.lists(ROWS, max_size=12), ROWS)
    def make(before: list[int], more: int) -> None:
        pairs.append((before, more))

    make()
    return pairs


def worst(rows: Any) -> pd.DataFrame:
    return pd.DataFrame({name: values_of(rows, name, EVERY_KIND).to_pandas() for name in VALUES})


@pytest.fixture(scope="module")
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both worlds: cells that Hypothesis made, and the worst pairs that the self-test knows, in which a row comes."""
    made = made_pairs()
    assert len(made) == PAIRS
    known = [claim.pair for claim in claims_of(EVERY_KIND)[0]]
    claims = [pair for pair in known if pair.adjacency == "add-remove" and not pair.unit_rows]
    before = in_cells([rows for rows, _ in made], [worst(pair.before) for pair in claims])
    more = in_cells([[row] for _, row in made], [worst(pair.after[len(pair.before) :]) for pair in claims])
    return before, pd.concat([before, more], ignore_index=True)


def in_cells(made: Sequence[Sequence[int]], others: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables as cells of one column: first those that numbers stand for, then others."""
    cells = np.repeat(np.arange(len(made)), list(map(len, made)))
    rows = rows_of([number for numbers in made for number in numbers]).assign(cell=cells)
    return pd.concat(
        [rows, *(frame.assign(cell=cell) for cell, frame in enumerate(others, start=len(made)))], ignore_index=True
    )


@pytest.fixture
def worlds(in_memory: Callable[..., PrivateQueryable], frames: tuple[pd.DataFrame, pd.DataFrame]) -> list[Parts]:
    cells = list(range(int(frames[1]["cell"].max()) + 1))
    known = {name: EVERY_KIND.columns[name] for name in VALUES}
    columns = {"cell": {"type": "categorical", "values": cells}, **known, **LOW}
    policy = Policy.model_validate({"dataset": "pairs", "cap": 10**6, "max_rows": MOST, "columns": columns})
    return [in_memory(10**6, policy=policy, data=frame).partition(Values("cell")) for frame in frames]


def ratio(name: str, movements: np.ndarray, allowed: int) -> float:
    """The largest movement, as a share of what the noise is for."""
    largest = float(movements.max() / allowed)
    note(
        f"neighbours at the samplers: {name}", len(movements), f"moved by up to {largest:.3f} of what the noise is for"
    )
    return largest


QUERIES: dict[str, Callable[[Parts], Any]] = {
    "count": lambda parts: parts.noisy_count(epsilon=EPSILON),
    "count of classes": lambda parts: parts.partition(Values("y"), Cuts("x", (50,))).noisy_count(epsilon=EPSILON),
    "sum": lambda parts: parts.noisy_sum("x", epsilon=EPSILON),
    "sum, the lower bound the larger": lambda parts: parts.noisy_sum("low", epsilon=EPSILON),
    "average": lambda parts: parts.noisy_avg("z", epsilon=EPSILON),
    "average of a range": lambda parts: parts.noisy_avg("z", within=RANGE, epsilon=EPSILON),
    "logistic": lambda parts: parts.noisy_sum(
        Logistic("y", ("n",), Points((Cuts("x", (50,)),), ((2048, -2048),))),
        by=[Values("a"), Values("g")],
        epsilon=EPSILON,
    ),
    # Without clipping a row of class p would have a norm of 2.
    "softmax, clipped": lambda parts: parts.noisy_sum(
        Softmax("y", (Points(base=2048), Points(base=-2048)), limit=1.0), epsilon=EPSILON
    ),
    "products, shortened": lambda parts: parts.noisy_sum(Products(("x", "g", "z"), limit=2.0), epsilon=EPSILON),
    "residuals": lambda parts: parts.noisy_sum(Residuals("x", Points(base=0), limit=40.0), epsilon=EPSILON),
}


@pytest.mark.parametrize("name", QUERIES)
def test_no_row_moves_numbers_by_more_than_the_noise_is_for(
    name: str, worlds: list[Parts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1 distance of a pair's exact numbers: at most the sensitivity, and just that somewhere; epsilon is the one that was asked."""
    seen: list[tuple[np.ndarray, int, Fraction]] = []

    def laplace(exact: np.ndarray, sensitivity: int, epsilon: Fraction, check: Any = None) -> np.ndarray:
        seen.append((np.asarray(exact), sensitivity, epsilon))
        return np.asarray(exact)

    monkeypatch.setattr("pinq.curator.prepared.laplace", laplace)
    exact = []
    for parts in worlds:
        seen.clear()
        QUERIES[name](parts)
        assert {epsilon for _, _, epsilon in seen} == {EPSILON}
        (sensitivity,) = {sensitivity for _, sensitivity, _ in seen}
        pairs = len(parts)
        # An average's two bins come as one array, (2, parts); all else has the parts first.
        arrays = [array.T if "average" in name else array for array, _, _ in seen]
        exact.append(np.concatenate([array.reshape(array.shape[0], -1) for array in arrays]).reshape(pairs, -1))
    moved = np.abs(exact[1] - exact[0]).sum(axis=1)
    assert (0.999 if name != "residuals" else 0.9) <= ratio(name, moved, sensitivity) <= 1


A, B = Values("a"), Values("b")
MANY_ROWS = 10**6  # more than any part has
TARGETS = Schema(max_rows=MOST, columns={name: EVERY_KIND.columns[name] for name in "yz"})
LOSS = Logistic("y", ("n",), Points((Cuts("x", (50,)),), ((2048, -2048),)))
# A new score is here by its entry of ``SCORES``. Votes and leaves have no candidates (tests/privacy/test_stopping.py).
CHOSEN: dict[str, tuple[list[Any], Any]] = {
    **{
        repr(score): ([A, B, Cuts("x", (50,))], score)
        for kind in SCORES.values()
        if issubclass(kind, Score) and kind is not Misfit
        for score in scores_on(kind, TARGETS, losses=[LOSS], within=RANGE)
    },
    "misfit": ([A, B], Misfit((A, B), ((0,) * 2, (16 * MANY_ROWS,) * 2))),
    "cuts": ([AnyCut("z")], MaxClass("y")),
    "groupings": ([AnyGrouping("g")], MaxClass("y")),
    "a mixture": ([AnyCut("z"), AnyGrouping("g"), Groups("g", (("u",), ("v", "w")))], MaxClass("y")),
}
# How near the span the worst pair comes: of the mixed and the small lists it is not known, so they must only stay below.
REACHED = {"cuts": 0.9, "groupings": 0.9, "a mixture": 0.9}


@pytest.mark.parametrize("name", CHOSEN)
def test_no_row_moves_two_scores_apart_by_more_than_the_span(
    name: str, worlds: list[Parts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range of a pair's changes of scores: at most the span that the selection divides epsilon by, and nearly that somewhere."""
    seen: list[tuple[np.ndarray, int, Fraction]] = []

    def choose_each(scores: np.ndarray, lengths: np.ndarray, span: int, epsilon: Fraction) -> np.ndarray:
        seen.extend((own, span, epsilon) for own in np.split(scores, np.cumsum(lengths)[:-1]))
        return np.zeros(len(lengths), dtype=np.int64)

    def choose_weighted(
        candidates: Any, span: int, epsilon: Fraction, whole: Callable[[], Any] | None = None
    ) -> tuple[int, int]:
        candidates = candidates if whole is None else whole()
        seen.append((np.repeat(candidates.scores, candidates.members), span, epsilon))
        return int(np.flatnonzero(candidates.members)[0]), 0

    monkeypatch.setattr("pinq.curator.candidates.selection.choose_each", choose_each)
    monkeypatch.setattr("pinq.curator.candidates.selection.choose_weighted", choose_weighted)
    candidates, score = CHOSEN[name]
    scores = []
    for parts in worlds:
        seen.clear()
        parts.exp_mech(candidates, score=score, epsilon=EPSILON)
        assert {epsilon for _, _, epsilon in seen} == {EPSILON}
        assert len(seen) == len(parts)
        ((span),) = {span for _, span, _ in seen}
        scores.append([each for each, _, _ in seen])
    moved = [after - before for before, after in zip(*scores, strict=True)]
    ranges = np.array([change.max() - change.min() for change in moved])
    assert REACHED.get(name, 0.95) <= ratio(f"choice by {name}", ranges, span) <= 1
