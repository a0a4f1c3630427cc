# SPDX-License-Identifier: Apache-2.0
"""Faults that other libraries published, asked of this one: what a row, or a person, moves at the samplers is what the noise is for.

A bound that was taken before its column was redefined (opendp#2949), sums of small floats that overflow or follow the order of rows
(opendp#2941), and a clipped copy that is computed and not used (smartnoise-sdk#622).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pinq.language.derivatives import Residuals
from pinq.language.points import Points
from pinq.language.specs import Values
from pinq.policy.policy import Policy
from tests.support.laws.exact_releases import scripted

EPSILON = Fraction(1)
Ask = Callable[[Any], Any]


def reached(in_memory: Any, columns: dict[str, Any], rows: dict[str, Any], ask: Ask, **terms: Any) -> Any:
    """The numbers that get noise, and its scale."""
    policy = Policy(dataset="known", cap=10**6, max_rows=1_000, columns=columns, **terms)
    with scripted() as samplers:
        ask(in_memory(10**6, policy=policy, data=pa.table(rows)))
        (call,) = samplers.calls
    return np.array(call.numbers), call.scale


def moved(in_memory: Any, columns: dict[str, Any], before: Any, after: Any, ask: Ask, **terms: Any) -> Fraction:
    """What is lost where one table becomes the other, as a share of epsilon."""
    (first, scale), (second, same) = (reached(in_memory, columns, rows, ask, **terms) for rows in (before, after))
    assert scale == same
    return Fraction(int(np.abs(second - first).sum())) / scale / EPSILON


def count(handle: Any) -> Any:
    return handle.partition(Values("g")).noisy_count(epsilon=EPSILON)


def total(handle: Any) -> Any:
    return handle.noisy_sum("x", epsilon=EPSILON)


@pytest.mark.parametrize(
    "formula", ["CASE WHEN g < 50 THEN 'none' ELSE 'all' END", "CASE WHEN g < 0 THEN 'none' ELSE 'all' END"]
)
def test_a_column_that_is_redefined_keeps_what_bounds_a_person(formula: str, in_memory: Any) -> None:
    """A person with a row in each of a hundred groups: the bound is on the person's rows, whatever a formula makes of the groups."""
    one = {"id": [1] * 3, "g": [0, 1, 99]}
    both = {"id": [1] * 3 + [0] * 100, "g": [0, 1, 99, *range(100)]}
    columns = {"g": {"type": "categorical", "values": ["all", "none"], "from": ["g"], "formula": formula}}
    unit = {"column": "id", "max_rows": 3}
    assert moved(in_memory, columns, one, both, count, privacy_unit=unit) == 1


@pytest.mark.parametrize("formula", ["x * 1e6", "x - 1e9", "x / 0.0", "CASE WHEN x > 5 THEN -1e300 ELSE 1e300 END"])
def test_a_column_that_is_redefined_is_clamped_after_it(formula: str, in_memory: Any) -> None:
    """Bounds are of what the formula gives: the source's own values are within them, and say nothing of it."""
    columns = {"x": {"type": "numeric", "lower": -10, "upper": 10, "integer": True, "from": ["x"], "formula": formula}}
    rows = [0.0, 1.0, -7.0]
    for row in (-10.0, 0.0, 10.0):
        assert moved(in_memory, columns, {"x": rows}, {"x": [*rows, row]}, total) <= 1


BIG = 1e38
HOSTILE = [BIG] * 3 + [-BIG] * 7 + [np.inf, -np.inf, np.nan, -0.0, 5e-324, 1 / 3]
KINDS = [pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("bounds", [(-BIG, BIG), (-1, 1), (0, 65_535)], ids=str)
def test_sums_of_small_floats_neither_overflow_nor_follow_the_order(
    kind: pa.DataType, bounds: tuple[float, float], in_memory: Any
) -> None:
    """Rows become whole numbers one by one: one row more moves the sum by at most its bound, and no order moves it."""
    columns = {"x": {"type": "numeric", "lower": bounds[0], "upper": bounds[1], "nullable": True}}

    def table(rows: list[float]) -> dict[str, Any]:
        with np.errstate(over="ignore"):
            typed = np.array(rows).astype(kind.to_pandas_dtype())
        return {"x": pa.array(typed, kind)}

    for row in (BIG, -BIG, np.inf, 1e-7):
        assert moved(in_memory, columns, table(HOSTILE), table([*HOSTILE, row]), total) <= 1
    assert moved(in_memory, columns, table(HOSTILE), table(HOSTILE[::-1]), total) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_32_bits_do_not_wrap(sign: int, in_memory: Any) -> None:
    """Three hundred rows at the end of the finest grid there is: one more moves the sum by what the noise is for."""
    most = 2**24 - 3
    bounds = {"lower": min(0, sign * most), "upper": max(0, sign * most)}
    columns = {"x": {"type": "numeric", "integer": True, "step": 1, **bounds}}
    exact, _ = reached(in_memory, columns, {"x": [sign * most] * 300}, total)
    assert exact.tolist() == [sign * most * 300]
    assert moved(in_memory, columns, {"x": [sign * most] * 300}, {"x": [sign * most] * 301}, total) == 1


FAR: dict[str, Callable[[int], Any]] = {
    "int64": lambda number: pa.array([3, number], pa.int64()),
    "double": lambda number: pa.array([3, number], pa.float64()),
    "text": lambda number: pa.array(["3", str(number)]),
    "decimal": lambda number: pa.array([Decimal(3), Decimal(number)], pa.decimal128(38, 3)),
}
LOSS = Residuals("x", Points(base=0), limit=4.0)
ASKED: dict[str, Ask] = {
    "sum": total,
    "average": lambda handle: handle.noisy_avg("x", epsilon=EPSILON),
    "residuals": lambda handle: handle.noisy_sum(LOSS, epsilon=EPSILON),
    "residuals in cells": lambda handle: handle.noisy_sum(LOSS, by=[Values("x")], epsilon=EPSILON),
}


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("kind", FAR)
def test_what_is_added_up_is_what_was_clipped(kind: str, question: str, in_memory: Any) -> None:
    """A row far beyond a bound counts as the bound, in every kind of source and every question; nothing else of it is read."""
    for grid in ({"integer": True}, {"step": "0.5"}):
        columns = {"x": {"type": "numeric", "lower": -8, "upper": 5, **grid}}
        numbers = [reached(in_memory, columns, {"x": FAR[kind](far)}, ASKED[question]) for far in (5, 10**9, 10**15)]
        assert len({tuple(exact.tolist()) for exact, _ in numbers}) == 1
        without = {"x": FAR[kind](0).slice(0, 1)}
        for far in (10**12, -(10**12)):
            assert moved(in_memory, columns, without, {"x": FAR[kind](far)}, ASKED[question]) <= 1
