# SPDX-License-Identifier: Apache-2.0
"""What scores refuse, and how fine they are; what all promise is held by tests/contract/test_every_score.py."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from pinq.errors import QueryError
from pinq.language.scores import (
    AbsoluteError,
    Gini,
    InfoGain,
    MaxClass,
    SquaredError,
    require_score,
)
from pinq.language.specs import bind
from pinq.public.schema import Schema

SCHEMA = Schema(
    max_rows=50,
    columns={
        "y": {"type": "categorical", "values": ["n", "p"]},
        "x": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
        "fine": {"type": "numeric", "lower": 0, "upper": 1},
        "one": {"type": "numeric", "lower": 3, "upper": 3, "integer": True},
    },
)


@pytest.mark.parametrize(
    "score",
    [
        None,
        "gini",
        Gini,
        InfoGain("x"),
        InfoGain("nobody"),
        Gini(cast(str, None)),
        SquaredError("y"),
        AbsoluteError("y"),
        len,
    ],
    ids=str,
)
def test_everything_else_is_refused(score: Any) -> None:
    """Code is no score, nor is a score of a target that it is not defined for."""
    with pytest.raises(QueryError):
        require_score(score, SCHEMA)


@pytest.mark.parametrize(
    ("target", "within", "shift", "levels"),
    [
        ("x", None, 0, 10),
        ("x", (2, 6), 0, 5),
        ("fine", None, 2, 1024),
        ("fine", (8 / 4096, 2055 / 4096), 1, 1024),
        ("one", None, 0, 1),
    ],
)
def test_squared_error_has_at_most_1024_levels(target: str, within: Any, shift: int, levels: int) -> None:
    """Fine grids lose their low bits, in a narrower range fewer, and the sensitivity is that of the levels."""
    score = SquaredError(target, within)
    first, last, dropped = score.clamp(SCHEMA)
    assert dropped == shift
    assert ((last - first) >> dropped) + 1 == levels
    assert score.sensitivity(SCHEMA) == max(1, (levels - 1) ** 2)


@pytest.mark.parametrize(
    ("target", "within", "levels"),
    [("x", None, 10), ("x", (2, 6), 5), ("fine", None, 256), ("fine", (100 / 4096, 199 / 4096), 100), ("one", None, 1)],
)
def test_absolute_error_has_at_most_256_levels(target: str, within: Any, levels: int) -> None:
    """Its classes are the levels: runs of grid cells of equal length, within the range."""
    score = AbsoluteError(target, within)
    classes: Any = score.classes(SCHEMA)
    assert score.levels(SCHEMA) == bind(classes, SCHEMA).size == levels
    assert score.sensitivity(SCHEMA) == max(1, levels - 1)


@pytest.mark.parametrize("score", [InfoGain("y"), Gini("y"), MaxClass("y")], ids=lambda s: s.kind)
def test_better_splits_score_higher(score: Any) -> None:
    """A pure split beats a half-pure one, which beats none; empty tables score 0."""
    pure, half, none = np.array([[10, 0], [0, 10]]), np.array([[10, 2], [0, 8]]), np.array([[10, 10], [0, 0]])
    found = score.of(np.stack([pure, half, none]), SCHEMA)
    assert found[0] > found[1] > found[2]
    assert score.of(np.zeros((1, 2, 2), dtype=np.int64), SCHEMA)[0] == 0
    assert found.dtype.kind == "i"


@pytest.mark.parametrize("classes", [2, 3, 40])
def test_gini_is_exact_for_as_many_rows_as_can_be_counted(classes: int) -> None:
    """Up to 2^38 rows, however they lie, as Python's integers have it, whatever is declared."""
    random = np.random.default_rng(classes)
    for most in (2, 50, 2**21, 2**31, 2**38 // classes):
        table = random.integers(0, most + 1, (60, 5, classes)) * random.integers(0, 2, (60, 5, classes))
        expected = [
            sum(-1024 * sum(c * (sum(cell) - c) for c in cell) // max(1, sum(cell)) for cell in cells)
            for cells in table.tolist()
        ]
        assert Gini("y").of(table, SCHEMA).tolist() == expected


@pytest.mark.parametrize("most", [3, 10**6, 2**33, 2**38])
def test_squared_error_is_exact_for_as_many_rows_as_can_be_counted(most: int) -> None:
    """The value of a row never decides how it is computed."""
    random = np.random.default_rng(most)
    tables, expected = [], []
    for _ in range(60):
        cells = []
        for _ in range(4):
            low, high = sorted(random.integers(0, 1024, 2).tolist())
            few, many = random.integers(0, most // 2 + 1, 2).tolist()
            cells.append([few + many, few * low + many * high, few * low**2 + many * high**2])
        tables.append(cells)
        expected.append(sum((s * s - n * q) // max(1, n) for n, s, q in cells))
    assert SquaredError("x").of(np.array(tables), SCHEMA).tolist() == expected
