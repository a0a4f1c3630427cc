# SPDX-License-Identifier: Apache-2.0
"""Secret arithmetic on the ``Runtime`` protocol alone: a runtime of plain numbers in place of MPyC."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import miners.secure
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.bounds import signed_bits
from miners.secure.mpc.runtime import Shares
from tests.checkout import ROOT

PRIME = 2**521 - 1
FOLDER = Path(miners.secure.__file__).parent


class PlainIntegers:
    """One party that keeps no secret: a share is the number itself."""

    modulus = PRIME

    async def share(self, values: np.ndarray, owner: int) -> Shares:
        return values % PRIME

    async def share_all(self, values: np.ndarray) -> list[Shares]:
        return [values % PRIME]

    async def reshare(self, products: Shares) -> Shares:
        return products % PRIME

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        signed = _signed(secrets)
        assert max(map(abs, signed)) <= 2 ** (bits - 1)  # what was proved in ``bounds``
        return np.array([int(number < 0) for number in signed], dtype=object)

    async def is_zero(self, secrets: Shares) -> np.ndarray:
        return np.asarray(secrets % PRIME == 0)

    async def open(self, secrets: Shares, receiver: int | None) -> np.ndarray:
        return np.array(_signed(secrets), dtype=object).reshape(secrets.shape)


class PlainRuntime:
    """Computes alone, on plain numbers."""

    parties = 1

    def clock(self) -> float:
        return 0.0

    def integers(self, bits: int) -> PlainIntegers:
        return PlainIntegers()

    def keys_for(self, party: int) -> list[bytes]:
        return []

    def accept_keys(self, party: int, keys: Sequence[bytes]) -> None:
        raise AssertionError("nobody gives keys to a party that is alone")


def _signed(shares: Shares) -> list[int]:
    return [int(number) if number <= PRIME // 2 else int(number) - PRIME for number in np.ravel(shares) % PRIME]


lists = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=9), min_size=1, max_size=6
)


@settings(max_examples=200, deadline=None)
@given(lists)
def test_the_first_largest_of_each_list(fractions: list[list[tuple[int, int]]]) -> None:
    """Ragged lists with many ties: the unit vector of the first largest, of numbers and of fractions, and its numerator."""
    flat = [pair for one in fractions for pair in one]
    over, under = (np.array(side, dtype=object) for side in zip(*flat, strict=True))
    sizes = np.array([len(one) for one in fractions])
    for below in (None, under):
        arithmetic = Arithmetic(PlainRuntime(), 64)
        units, largest = asyncio.run(arithmetic.first_largest(over, below, sizes, signed_bits(16)))
        expected, numerators = [], []
        for one in fractions:
            values = [Fraction(n, 1 if below is None else d) for n, d in one]
            first = values.index(max(values))
            expected += [int(place == first) for place in range(len(one))]
            numerators.append(one[first][0])
        assert units.tolist() == expected
        assert largest.tolist() == numerators
        assert arithmetic.opened == []


@settings(max_examples=100, deadline=None)
@given(lists)
def test_the_sum_of_each_list_of_fractions(fractions: list[list[tuple[int, int]]]) -> None:
    over, under = (
        np.array(side, dtype=object) for side in zip(*[pair for one in fractions for pair in one], strict=True)
    )
    arithmetic = Arithmetic(PlainRuntime(), 64)
    numerators, denominators = asyncio.run(
        arithmetic.sums_of_fractions(over, under, np.array([len(one) for one in fractions]))
    )
    sums = [Fraction(int(n), int(d)) for n, d in zip(numerators, denominators, strict=True)]
    assert sums == [sum(Fraction(n, d) for n, d in one) for one in fractions]


def test_the_docstrings_examples() -> None:
    """3, 7, 5: the second is the largest. 1/2 + 1/3 + 1/4 = 26/24, not reduced."""
    arithmetic = Arithmetic(PlainRuntime(), 64)
    units, largest = asyncio.run(arithmetic.first_largest(np.array([3, 7, 5], dtype=object), None, np.array([3]), 8))
    assert (units.tolist(), largest.tolist()) == ([0, 1, 0], [7])
    ones, under = np.ones(3, dtype=object), np.array([2, 3, 4], dtype=object)
    assert [int(one[0]) for one in asyncio.run(arithmetic.sums_of_fractions(ones, under, np.array([3])))] == [26, 24]


def test_the_protocols_need_no_mpyc() -> None:
    """SID3 among plain numbers, where MPyC cannot be imported, learns what plain ID3 learns."""
    code = """
import asyncio, sys
sys.modules["mpyc"] = sys.modules["gmpy2"] = None
import numpy as np
from fractions import Fraction
from tests.plain_id3 import plain_id3
from miners.secure.session.protocols import SID3, SID3P, Role
from miners.secure.id3.rules import Exact
from tests.parties import random_task
from tests.integration.test_secure_arithmetic import PlainRuntime

task, holding = random_task(np.random.default_rng(3), 40, 4)
for protocol in (SID3, SID3P):
    outcome = asyncio.run(Role(protocol(Exact(task, Fraction(1, 20), 8)), task, holding, 0).run(PlainRuntime()))
    print(list(outcome.branches) == plain_id3(task, holding, Fraction(1, 20), 8))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "True\nTrue\n", done.stderr


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.py")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_nothing_goes_without_types(file: Path) -> None:
    """MPyC has no types, but what we use of it has; and no module says that a method of its interface never returns."""
    names = {node.id for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)}
    assert not {"Any", "NoReturn"} & names
