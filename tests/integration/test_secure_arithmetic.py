# SPDX-License-Identifier: Apache-2.0
"""Secret arithmetic at one party, who keeps no secret: which of a list is the first largest, and sums of fractions."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import pinq_secure
from pinq_secure.mpc.arithmetic import ALONE, Arithmetic, run_to_end, signed_bits

FOLDER = Path(pinq_secure.__file__).parent
BITS = 64
T = TypeVar("T")


def computed(step: Callable[[Arithmetic], Awaitable[T]]) -> T:
    """What a step finds, which opens nothing."""

    async def work() -> T:
        arithmetic = Arithmetic(ALONE, BITS)
        found = await step(arithmetic)
        assert arithmetic.rounds.opened == []
        return found

    return run_to_end(work())


fraction = st.tuples(st.integers(0, 4), st.integers(1, 4))
lists = st.lists(st.lists(fraction, min_size=1, max_size=9), min_size=1, max_size=6)
tables = st.integers(1, 9).flatmap(
    lambda length: st.lists(st.lists(fraction, min_size=length, max_size=length), min_size=1, max_size=6)
)


@settings(max_examples=40, deadline=None)
@given(tables)
def test_the_first_largest_of_each_list(fractions: list[list[tuple[int, int]]]) -> None:
    """Lists with many ties: the unit vector of the first largest, of numbers and of fractions, and the element."""
    table = np.array(fractions, dtype=object)
    for elements in (table[..., 0], table):
        units, largest = computed(partial(Arithmetic.first_largest, elements=elements, bits=signed_bits(16)))
        for one, unit, found in zip(elements, units.tolist(), largest.tolist(), strict=True):
            values = [Fraction(value) if elements.ndim == 2 else Fraction(*value) for value in one.tolist()]
            first = values.index(max(values))
            assert unit == [int(place == first) for place in range(len(values))]
            assert found == one[first].tolist() if elements.ndim == 3 else found == one[first]


@settings(max_examples=40, deadline=None)
@given(lists)
def test_the_sum_of_each_list_of_fractions(fractions: list[list[tuple[int, int]]]) -> None:
    """Ragged lists."""
    over, under = np.array([pair for one in fractions for pair in one], dtype=object).T
    sizes = np.array([len(one) for one in fractions])
    sums = computed(lambda arithmetic: arithmetic.sums_of_fractions(over, under, sizes))
    found = [Fraction(int(n), int(d)) for n, d in zip(*sums, strict=True)]
    assert found == [sum(Fraction(n, d) for n, d in one) for one in fractions]


def test_the_docstrings_examples() -> None:
    """3, 7, 5: the second is the largest. 1/2 + 1/3 + 1/4 = 26/24, not reduced."""
    units, largest = computed(lambda arithmetic: arithmetic.first_largest(np.array([[3, 7, 5]], dtype=object), 8))
    assert (units.tolist(), largest.tolist()) == ([[0, 1, 0]], [7])
    ones, under = np.ones(3, dtype=object), np.array([2, 3, 4], dtype=object)
    sums = computed(lambda arithmetic: arithmetic.sums_of_fractions(ones, under, np.array([3])))
    assert [int(one[0]) for one in sums] == [26, 24]


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.py")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_nothing_goes_without_types(file: Path) -> None:
    """No module takes a value of any type, but for the fields of a session and the tables that a caller hands over; none says that a method of an interface never returns."""
    names = [node.id for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)]
    assert "NoReturn" not in names
    assert names.count("Any") <= {"session.py": 1, "provider.py": 3}.get(file.name, 0)
