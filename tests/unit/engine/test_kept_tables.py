# SPDX-License-Identifier: Apache-2.0
"""Tables that an engine keeps belong to one measure, whoever asks at the same time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pinq.engine import ArrayEngine
from pinq.engine.tables import Moments
from tests.engines import WHOLE
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
def test_sums_are_those_of_the_measure_that_was_asked_for() -> None:
    """A key that two measures share would answer one with the other's sums, and with noise for other bounds."""
    rows = [[code, 0, 0, 0, 0, 0, 0] for code in range(64)]
    engine = ArrayEngine(codes_of(rows, SCHEMA), SCHEMA, b"salt")

    def sums(shift: int) -> set[int]:
        tables = (engine.tabulate(WHOLE, measure=Moments("age", shift))[0] for _ in range(200))
        return {int(np.asarray(table)[0, 1]) for table in tables}

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sums, range(4))) == [{sum(code >> shift for code in range(64))} for shift in range(4)]
    assert len(engine._kept.values()) == 4
