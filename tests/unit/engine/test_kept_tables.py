# SPDX-License-Identifier: Apache-2.0
"""Tables that an engine keeps: those of a measure, whoever asks at the same time, and a column's own, of which its intervals are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pinq.engine import ArrayEngine, arrays
from pinq.engine.tables import Moments, Sparse, TableRequest, go_on
from pinq.language.parts import PartSet
from pinq.language.specs import Axis, Cuts, Groups, Values, bind
from tests.support.tables.engines import WHOLE
from tests.support.tables.mixed_schema import SCHEMA
from tests.support.tables.spark_workers import codes_of


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


CUT = WHOLE.split(bind(Cuts("rate", (0.3, 0.5)), SCHEMA))
FINER = CUT.split(bind(Cuts("rate", (0.1, 0.4, 0.9)), SCHEMA))
CODES = SCHEMA.columns["rate"].codes
RATE = Axis("rate", CODES, ())
LEVEL = bind(Cuts("rate", (0.2, 0.35)), SCHEMA).axes[0]


@pytest.fixture
def rated() -> ArrayEngine:
    """Rows of 40 rates and of none, some of them often."""
    rates = np.append(np.random.default_rng(1).integers(0, CODES, 40), [0, CODES - 2, CODES - 1])
    rows = [[0, rate, job % 5, 0, 0, 0, 0] for job, rate in enumerate(np.random.default_rng(2).choice(rates, 500))]
    return ArrayEngine(codes_of(rows, SCHEMA), SCHEMA, b"salt")


@pytest.mark.parametrize(
    "parts",
    [
        WHOLE,
        CUT,
        FINER,
        CUT.take(np.array([3, 0])),
        FINER.take(np.array([9, 2, 3, 0, 15])),
        PartSet.union([CUT.take(np.array([2])), FINER.take(np.array([5, 4]))]),
        WHOLE.split(bind(Values("rate"), SCHEMA)),
    ],
)
def test_intervals_of_a_column_are_read_of_its_own_table(rated: ArrayEngine, parts: PartSet) -> None:
    """Part below part, out of order, of missing values, or of each code: the tables that a pass over the rows gives."""
    tables = [TableRequest(), TableRequest((LEVEL,)), TableRequest((RATE,), "sparse")]
    tables += [TableRequest((RATE,))] if len(parts) < 20 else []
    for own, want in zip(rated.tabulate(parts, tables), rated._from_rows(parts, tables, None, go_on), strict=True):
        if isinstance(own, Sparse) and isinstance(want, Sparse):
            assert own.places.tolist() == want.places.tolist()
            own, want = own.values, want.values
        assert isinstance(own, np.ndarray)
        assert own.dtype == np.int64
        assert own.tolist() == np.asarray(want).tolist()
    assert list(rated._kept._values) == [("occupied", "rate")]


@pytest.mark.parametrize(
    ("parts", "table"),
    [
        (CUT, TableRequest((LEVEL,), "sparse")),
        (CUT, TableRequest((bind(Values("sex"), SCHEMA).axes[0],))),
        (WHOLE.split(bind(Groups("job", (("self", "none"),)), SCHEMA)), TableRequest()),
    ],
)
def test_all_else_is_counted_by_rows(
    rated: ArrayEngine, parts: PartSet, table: TableRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Occupied parts, two columns, groups; and a column of more codes than are kept."""
    rated.tabulate(parts, [table])
    monkeypatch.setattr(arrays, "KEPT_TABLE_BYTES", arrays.CELL_BYTES * CODES - 1)
    assert np.asarray(rated.tabulate(CUT)[0]).sum() == 500
    assert ("occupied", "rate") not in rated._kept._values
