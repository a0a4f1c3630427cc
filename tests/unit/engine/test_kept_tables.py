# SPDX-License-Identifier: Apache-2.0
"""Tables that an engine keeps belong to one measure, whoever asks at the same time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pinq.engine import ArrayEngine
from pinq.engine.tables import Moments
from tests.people import SCHEMA
from tests.workers import codes_of


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient")
def test_no_two_measures_get_one_number() -> None:
    """A number that two of them share would answer one with the other's sums, and with noise for other bounds."""
    engine = ArrayEngine(codes_of([], SCHEMA), SCHEMA, b"salt")

    def numbers(shift: int) -> set[tuple[int, int]]:
        return {(engine._number_of(Moments("age", shift)), shift) for _ in range(3000)}

    with ThreadPoolExecutor(4) as pool:
        found = set().union(*pool.map(numbers, range(4)))
    assert len({number for number, _ in found}) == len(found)
