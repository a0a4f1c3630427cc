# SPDX-License-Identifier: Apache-2.0
"""Occupied cells are those of the rows, in order."""

from __future__ import annotations

import numpy as np
import pytest

from pinq.engine import counting
from pinq.engine.codes import RowBlock
from pinq.engine.counting import count, count_request
from pinq.engine.tables import Moments, Sparse, TableRequest
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Axis, Groups, Values, bind
from pinq.policy.policy import Policy

NUMBERS = {"type": "numeric", "lower": 0, "upper": 3000, "integer": True}
POLICY = Policy(
    dataset="d",
    cap=1,
    max_rows=100_000,
    columns={"n": NUMBERS, "s": {"type": "categorical", "values": ["a", "b", "c"]}},
)


@pytest.mark.parametrize("grouped", [False, True], ids=["all rows", "rows in no group"])
def test_occupied_cells_are_those_of_the_rows(grouped: bool) -> None:
    """Of two blocks of rows, added up; also where rows are in no place along an axis."""
    schema, random = POLICY.schema_, np.random.default_rng(4)
    rows: dict[str, np.ndarray] = {
        "n": random.integers(0, 3001, 500, dtype=np.uint16),
        "s": random.integers(0, 3, 500, dtype=np.uint8),
    }
    other = bind(Groups("s", (("a",), ("c",))) if grouped else Values("s"), schema).axes[0]
    parts = PartSet([Block(Part(), bind(Values("s"), schema))]) if not grouped else PartSet([Block(Part())])
    axes = (Axis("n", 3001, ()), other) if grouped else (Axis("n", 3001, ()),)
    request = count_request(parts, [TableRequest(axes, "sparse")], schema=schema)
    blocks = [
        RowBlock({name: codes[half] for name, codes in rows.items()}, half.stop - half.start)
        for half in (slice(0, 200), slice(200, 500))
    ]
    (table,) = count(blocks[0], request).merged(count(blocks[1], request)).tables()
    assert isinstance(table, Sparse)
    # Groups of a and c are the places 0 and 1 behind the number; where the table is split, s comes first.
    inside = rows["s"] != 1 if grouped else np.ones(500, dtype=bool)
    number, other_place = rows["n"].astype(np.int64), rows["s"].astype(np.int64)
    cells = number * 2 + other_place // 2 if grouped else other_place * 3001 + number
    places, counts = np.unique(cells[inside], return_counts=True)
    assert np.array_equal(table.places, places)
    assert np.array_equal(table.values, counts)


@pytest.mark.parametrize("rows", range(30))
def test_runs_of_sorted_numbers_are_counted(rows: int) -> None:
    """The first, the last and each between; of no row none."""
    ordered = np.sort(np.random.default_rng(rows).integers(0, 1 + rows // 2, rows)).astype(np.uint32)
    numbers, lengths = np.unique(ordered, return_counts=True)
    starts = counting.run_starts(ordered)
    assert ordered[starts].tolist() == numbers.tolist()
    assert np.diff(starts, append=rows).tolist() == lengths.tolist()


@pytest.mark.parametrize("waiting", [1, 40, 2**16])
def test_sums_of_many_pieces_are_those_of_all_rows(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten blocks one after another, whenever their cells are merged; fewer shares than blocks are held."""
    monkeypatch.setattr(counting, "WAITING", waiting)
    schema, random = POLICY.schema_, np.random.default_rng(waiting)
    rows: dict[str, np.ndarray] = {
        "n": random.integers(0, 60, 500, dtype=np.uint16),
        "s": random.integers(0, 3, 500, dtype=np.uint8),
    }
    request = count_request(
        PartSet([Block(Part())]), [TableRequest((Axis("n", 3001, ()),), "sparse")], Moments("s"), schema=schema
    )
    counts = counting.Counts(request)
    for own in (slice(start, start + 50) for start in range(0, 500, 50)):
        counts.take(RowBlock({name: codes[own] for name, codes in rows.items()}, 50))
    (tally,) = counts.tallies
    assert isinstance(tally, counting.SparseTally)
    assert len(tally._pieces) <= (4 if waiting < 2**16 else 11)
    (table,) = counts.tables()
    assert isinstance(table, Sparse)
    places, at = np.unique(rows["n"].astype(np.int64), return_inverse=True)
    assert np.array_equal(table.places, places)
    assert np.array_equal(table.values[:, 1], np.bincount(at, rows["s"]).astype(np.int64))
