# SPDX-License-Identifier: Apache-2.0
"""No number wraps around: the bounds hold at their extremes, and a field that would be too large is refused before anything starts."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from pinq.errors import QueryError
from pinq.public.schema import Categorical, Schema
from pinq_secure.id3.public_tree import ExactRules
from pinq_secure.id3.task import Task
from pinq_secure.mpc.arithmetic import (
    ALONE,
    Arithmetic,
    gini_bits,
    require_bits,
    run_to_end,
    signed_bits,
    stop_bits,
)
from pinq_secure.mpc.noise import noise_bound


def fraction(cells: tuple[tuple[int, ...], ...], alpha: int) -> tuple[int, int]:
    under, over = 1, Fraction(0)
    for cell in cells:
        under *= alpha * sum(cell) + 1
        over += Fraction(sum(count * count for count in cell), alpha * sum(cell) + 1)
    return int(over * under), under


def tables(rows: int, size: int) -> list[tuple[tuple[int, ...], ...]]:
    """All tables of ``size`` cells and two classes with at most so many rows."""
    cells = [cell for cell in product(range(rows + 1), repeat=2) if sum(cell) <= rows]
    return [table for table in product(cells, repeat=size) if sum(map(sum, table)) <= rows]


@pytest.mark.parametrize(("rows", "alpha"), [(1, 1), (1, 8), (4, 1), (4, 8)])
def test_no_pair_of_small_tables_passes_the_bound(rows: int, alpha: int) -> None:
    """Every two tables of the same rows: the difference that decides fits, and so do numerator and denominator alone."""
    scores = {size: [(fraction(table, alpha), sum(map(sum, table))) for table in tables(rows, size)] for size in (2, 3)}
    bits = gini_bits((2, 3), rows, alpha)
    for size, other in ((2, 3), (3, 3), (2, 2)):
        limit = 2 ** (gini_bits((size, other), rows, alpha) - 1)
        for (over, under), total in scores[size]:
            assert max(over, under) < 2 ** (bits - 1)
            assert all(abs(over * d - n * under) < limit for (n, d), t in scores[other] if t == total)


@pytest.mark.parametrize("rows", [625, 100_000])
def test_the_bound_is_not_wasteful(rows: int) -> None:
    """Even splits of pure cells come within three bits of it."""
    size = 5
    over, under = fraction(tuple((rows // size, 0) for _ in range(size)), 8)
    assert gini_bits((size, size), rows, 8) <= signed_bits(over * under) + 3


def test_comparison_is_right_at_the_extremes() -> None:
    """The largest and smallest numbers that the bits allow, and their neighbours."""
    bits = 40
    values = np.array([0, -1, 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)) + 1, -(2 ** (bits - 1))], dtype=object)

    async def work() -> np.ndarray:
        arithmetic = Arithmetic(ALONE, bits)
        return await arithmetic.open(await arithmetic.is_negative(values % arithmetic.modulus, bits), "test")

    assert run_to_end(work()).tolist() == [int(value < 0) for value in values]


def test_other_numbers_fit_too() -> None:
    """Counts, the stop test's two sides, and noise."""
    assert 2 ** (signed_bits(1000) - 1) > 1000
    share = Fraction(1, 20)
    assert 2 ** (stop_bits(1000, share) - 1) > max(share.denominator * 1000, share.numerator * 1000)
    for epsilon in (Fraction(1, 1000), Fraction(3)):
        assert 2 * np.exp(-float(epsilon) * noise_bound(epsilon)) <= 2.0**-100


def test_a_field_that_would_be_too_large_is_refused() -> None:
    """By a message that says what to do, before any session begins."""
    schema = Schema(
        columns={"a": Categorical(values=tuple(range(200))), "y": Categorical(values=(0, 1))}, max_rows=10**6
    )
    with pytest.raises(
        QueryError, match=r"numbers of [\d,]+ bits would be compared; at most 2,048 .* Nothing left any party"
    ):
        require_bits(ExactRules(Task.of(schema, "y", (10**6,)), Fraction(1, 20), 8).bits)


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(1, 10**9)])
def test_noise_that_could_not_be_drawn_is_refused(epsilon: Fraction) -> None:
    """A loss so small that the noise would take minutes a number; before any session begins."""
    with pytest.raises(
        QueryError, match=r"it must be at least 0.00001, the noise of about 100,000 rows. Ask for more epsilon"
    ):
        noise_bound(epsilon)
