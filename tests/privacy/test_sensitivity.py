# SPDX-License-Identifier: Apache-2.0
"""Each score's span, against every small table and the proofs (privacy.md 2.4, 2.5, 7). Sensitivity and direction: tests/contract/test_every_score.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from pinq.errors import QueryError
from pinq.language.derivatives import Logistic
from pinq.language.points import Points
from pinq.language.scores import (
    GINI_UNIT,
    AbsoluteError,
    Balance,
    EnoughRows,
    Gini,
    Gradient,
    InfoGain,
    MaxClass,
    Misfit,
    SquaredError,
    monotone_step_table,
)
from pinq.language.specs import Cuts, Shards, Values
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.schema import Schema
from tests.support.laws.sensitivities import search_sensitivity, small_tables
from tests.support.requests.catalogue import SCORES, scores_on

ROWS = 8
SHAPES = [(2, 2), (3, 2), (2, 3)]


def schema_of(rows: int = ROWS, classes: int = 3) -> Schema:
    return Schema(
        max_rows=rows,
        columns={
            "y": {"type": "categorical", "values": [f"c{i}" for i in range(classes)]},
            "x": {"type": "numeric", "lower": 0, "upper": classes - 1, "integer": True},
        },
    )


# The share of the declared span that a table of ROWS rows attains, where that is not all of it.
ATTAINED: dict[str, Callable[[int], int]] = {
    kind: lambda span: span * (ROWS - 1) // ROWS for kind in ("gini", "squared_error")
}
OF_THEIR_OWN = (Gradient, Misfit, EnoughRows)
"""Scores with tests of their own, below and in tests/privacy/test_stopping.py."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "kind", [kind for kind in SCORES.values() if kind not in OF_THEIR_OWN], ids=lambda kind: kind.kind
)
def test_the_declared_spans_hold_and_are_attained(kind: Any, shape: tuple[int, int]) -> None:
    """Over all tables of at most 8 rows no span is larger than declared, and none smaller than the supremum that the proof gives."""
    schema = schema_of(classes=shape[1])
    for score in scores_on(kind, schema):
        found, declared = search_sensitivity(score, schema, cells=shape[0], classes=shape[1]), score.span(schema)
        assert ATTAINED.get(kind.kind, int)(declared) <= found.span <= declared


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weights", [(), (50,)])
def test_the_span_of_a_misfit_is_attained(shape: tuple[int, int], weights: tuple[int, ...]) -> None:
    """A row more is one too many in a cell and one missing in another; half the weight, half the change."""
    cells, classes = shape
    schema = schema_of(classes=max(cells, classes))
    score = Misfit((Cuts("x", tuple(range(1, cells))),), ((16 * ROWS // 2,) * cells,), 3, weights)
    found = search_sensitivity(score, schema, cells=cells, classes=classes)
    assert found.span == (16 if weights else 32) <= score.span(schema) == 32


@pytest.mark.parametrize("allowed", [True, False])
def test_a_row_moves_a_misfit_by_little_however_much_is_expected(*, allowed: bool) -> None:
    """Numbers that wrap around would let one row move a score from one end of 64 bits to the other."""
    parts, most = 6000, 2**63 // 100
    each = (2**55 if allowed else most) // parts
    # Without rows all but part 0 are off by `each`, and part 0 by what is left up to the bound: a row there adds 16.
    expected = (each * (parts - 1) - (2**55 if allowed else most), *[each] * (parts - 1))
    tables = np.zeros((2, parts, 1), dtype=np.int64)
    tables[1, 0] = 1
    for table, allowance in ((expected, 0), ((0,) * parts, each)):
        if not allowed:
            with pytest.raises(QueryError, match="at most"):
                Misfit((Shards(parts),), (table,), allowance)
            continue
        score = Misfit((Shards(parts),), (table,), allowance)
        before, after = map(int, score.of(tables, schema_of()))
        assert after - before == score.sensitivity(schema_of())


def test_the_points_of_a_gradient_are_part_of_the_search() -> None:
    """A row's gradient follows from what it scores: here nearly nothing of the loss is left for one of the classes."""
    schema = schema_of(classes=2)
    points = Points((Values("y"),), ((2000, -5),))
    score = Gradient(Logistic("y", ("c1",), points))
    found = search_sensitivity(score, schema, cells=2, classes=2, rows=4)
    assert 0.99 * 2**16 < found.change <= score.sensitivity(schema)


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_info_gain_stays_within_its_span_beyond_the_declared_rows(rows: int) -> None:
    """A wrong ``max_rows`` costs utility, never privacy: the capped score moves no further on larger tables (privacy.md 2.6)."""
    schema = schema_of(rows, classes=2)
    found = search_sensitivity(InfoGain("y"), schema, cells=2, classes=2, rows=12)
    assert found.span <= InfoGain("y").span(schema)
    assert found.monotone


@pytest.mark.parametrize("max_rows", [1, 2, 7, 2**16, 2**16 + 1, 2**20, 2**33])
def test_the_entropy_steps_never_fall(max_rows: int) -> None:
    """φ is nondecreasing, starts at 0, and the running sum is its exact sum: what the proof of the span needs."""
    starts, steps, sums = monotone_step_table(max_rows)
    assert starts[0] == steps[0] == sums[0] == 0
    assert (np.diff(starts) > 0).all()
    assert (np.diff(steps) >= 0).all()
    assert (np.diff(sums) == steps[:-1] * np.diff(starts)).all()
    assert starts[-1] < max_rows


@pytest.mark.parametrize("max_rows", [10, 2**16 - 1, 2**18])
def test_large_random_tables_move_info_gain_within_its_span(max_rows: int) -> None:
    """The same at the sizes where φ has wide steps, on random tables and the extreme ones."""
    schema = schema_of(max_rows, classes=2)
    score = InfoGain("y")
    random = np.random.default_rng(5)
    tables = random.integers(0, max_rows // 4, size=(4000, 2, 2))
    tables[:4] = [
        [[0, max_rows - 1], [0, 0]],
        [[max_rows - 1, 0], [0, 0]],
        [[0, 0], [0, 0]],
        [[1, max_rows - 2], [0, 0]],
    ]
    before = score.of(tables, schema)
    moved = []
    for cell in range(2):
        after = tables.copy()
        after[:, cell, 0] += 1
        moved.append(score.of(after, schema) - before)
    assert max(map(np.max, moved)) <= 0
    assert min(map(np.min, moved)) == -score.sensitivity(schema)


def test_the_scores_are_what_their_names_say() -> None:
    """Against the textbook formulas in floats, up to the floors."""
    schema = schema_of(1000)
    random = np.random.default_rng(2)
    tables = random.integers(0, 50, size=(200, 3, 3))
    n_j = tables.sum(axis=2)

    def f(x: np.ndarray) -> np.ndarray:
        return x * np.log2(np.maximum(x, 1))

    entropy = f(tables).sum(axis=(1, 2)) - f(n_j).sum(axis=1)
    assert np.abs(InfoGain("y").of(tables, schema) / 2**20 - entropy).max() < 0.01
    gini = ((tables**2).sum(axis=2) / np.maximum(n_j, 1) - n_j).sum(axis=1)
    assert np.abs(Gini("y").of(tables, schema) / GINI_UNIT - gini).max() < 0.01
    assert (MaxClass("y").of(tables, schema) == tables.max(axis=2).sum(axis=1)).all()
    assert (Balance().of(tables[:, :2, :1], schema) == -np.abs(tables[:, 0, 0] - tables[:, 1, 0])).all()
    levels = np.arange(3)
    moments = np.stack([n_j, tables @ levels, tables @ levels**2], axis=-1)
    error = (moments[..., 2] - moments[..., 1] ** 2 / np.maximum(n_j, 1)).sum(axis=1)
    assert np.abs(-SquaredError("x").of(moments, schema) - error).max() <= 3
    apart = (
        np.array([min(table @ np.abs(levels - centre) for centre in levels) for table in tables.reshape(-1, 3)])
        .reshape(200, 3)
        .sum(axis=1)
    )
    assert (-AbsoluteError("x").of(tables, schema) == apart).all()
    assert (
        AbsoluteError("x").of(np.concatenate([tables, tables[..., :1]], axis=-1), schema) == -apart
    ).all()  # missing values do not count


@pytest.mark.parametrize("score", [Gini("y"), SquaredError("x")], ids=lambda score: score.kind)
def test_scores_do_not_overflow(score: Any) -> None:
    """At the largest tables that a policy admits the score is still the exact integer that Python's own integers give."""
    schema = Schema(
        max_rows=2**33,
        columns={
            "y": {"type": "categorical", "values": ["a", "b"]},
            "x": {"type": "numeric", "lower": 0, "upper": 1023, "integer": True},
        },
    )
    big = 2**33 - 5
    if isinstance(score, Gini):
        table, want = (
            np.array([[[big, 3], [1, 2**32]]]),
            -sum(-(-GINI_UNIT * 2 * a * b // (a + b)) for a, b in ((big, 3), (1, 2**32))),
        )
    else:
        table, want = np.array([[[big, big * 1000, big * 1000**2], [0, 0, 0]]]), 0
    assert int(score.of(table, schema)[0]) == want


def test_the_search_finds_a_score_that_moves_too_far() -> None:
    """Information gain per row, sensitivity 1 bit at every size, passed off as one that moves by 1 / rows."""

    class PerRow:
        measure = "classes"

        def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
            return InfoGain("y").of(table, schema) // np.maximum(table.sum(axis=(-1, -2)), 1)

    found = search_sensitivity(PerRow(), schema_of(), cells=2, classes=2)
    assert found.span > 2**20 // 2
    assert not found.monotone


def test_small_tables_are_all_there() -> None:
    """C(rows + cells, cells) tables, each once."""
    tables = list(small_tables(4, 5))
    assert len(tables) == len(set(tables)) == 126
    assert max(map(sum, tables)) == 5


def test_the_lower_bound_is_zero_for_what_does_not_depend_on_the_table() -> None:
    """Fair coins on both tables: no loss is found."""
    random = np.random.default_rng(0)
    assert epsilon_lower_bound(lambda _, runs: random.integers(0, 2, runs), 0, 1, runs=2000) == 0


def _randomised(random: np.random.Generator, table: int, runs: int) -> np.ndarray:
    return (random.random(runs) < 0.75) ^ (table == 1)


def test_the_lower_bound_finds_the_loss_of_randomised_response() -> None:
    """Coins of bias 3 : 1 lose ln 3; the bound comes close from below, whichever table is called the neighbour."""
    for one, other in ((0, 1), (1, 0)):
        bound = epsilon_lower_bound(partial(_randomised, np.random.default_rng(1)), one, other, runs=40_000)
        assert 0.9 < bound <= np.log(3)
