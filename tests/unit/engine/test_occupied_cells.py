# SPDX-License-Identifier: Apache-2.0
"""Occupied cells are the same, whether they are sorted or counted as a table of all cells."""

from __future__ import annotations

import numpy as np
import pytest

from pinq.engine import counting
from pinq.engine.codes import RowBlock
from pinq.engine.counting import Counts, OccupiedTally, SparseTally, count, count_request
from pinq.engine.tables import Sparse, TableRequest
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.specs import Axis, Groups, Values, bind

NUMBERS = {"type": "numeric", "lower": 0, "upper": 3000, "integer": True}
POLICY = Policy(
    dataset="d",
    cap=1,
    max_rows=100_000,
    columns={"n": NUMBERS, "s": {"type": "categorical", "values": ["a", "b", "c"]}},
)


@pytest.mark.parametrize("grouped", [False, True], ids=["all rows", "rows in no group"])
def test_occupied_cells_are_the_same_either_way(grouped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two blocks of rows, added up; also where rows are in no place along an axis."""
    schema, random = POLICY.schema_, np.random.default_rng(4)
    rows: dict[str, np.ndarray] = {
        "n": random.integers(0, 3001, 500, dtype=np.uint16),
        "s": random.integers(0, 3, 500, dtype=np.uint8),
    }
    other = bind(Groups("s", (("a",), ("c",))) if grouped else Values("s"), schema).axes[0]
    parts = PartSet([Block(Part(), bind(Values("s"), schema))]) if not grouped else PartSet([Block(Part())])
    axes = (Axis("n", 3001, ()), other) if grouped else (Axis("n", 3001, ()),)
    counted: list[Sparse] = []
    for most, kind in ((0, SparseTally), (2**20, OccupiedTally)):
        monkeypatch.setattr(counting, "TABLED_CELLS", most)
        request = count_request(parts, [TableRequest(axes, "sparse")], schema=schema, at_home=True)
        assert [type(tally) for tally in Counts(request).tallies] == [kind]
        blocks = [
            RowBlock({name: codes[half] for name, codes in rows.items()}, half.stop - half.start)
            for half in (slice(0, 200), slice(200, 500))
        ]
        (table,) = count(blocks[0], request).merged(count(blocks[1], request)).tables()
        assert isinstance(table, Sparse)
        counted.append(table)
    assert np.array_equal(counted[0].places, counted[1].places)
    assert np.array_equal(counted[0].values, counted[1].values)
    assert counted[0].values.sum() == (np.count_nonzero(rows["s"] != 1) if grouped else 500)


def test_tables_of_all_cells_share_a_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables a request has: what finds no room any more is sorted."""
    monkeypatch.setattr(counting, "TABLED_AT_ONCE", 7000)
    tables = [TableRequest((Axis("n", size, ()),), "sparse") for size in (3001, 3002, 3003, 990)]
    request = count_request(PartSet([Block(Part())]), tables, schema=POLICY.schema_, at_home=True)
    kinds = [type(tally) for tally in Counts(request).tallies]
    assert kinds == [OccupiedTally, OccupiedTally, SparseTally, OccupiedTally]


@pytest.mark.parametrize("rows", range(30))
def test_runs_of_sorted_numbers_are_counted(rows: int) -> None:
    """The first, the last and each between; of no row none."""
    ordered = np.sort(np.random.default_rng(rows).integers(0, 1 + rows // 2, rows)).astype(np.uint32)
    numbers, lengths = np.unique(ordered, return_counts=True)
    got = counting._counted_runs(ordered)
    assert got[0].tolist() == numbers.tolist()
    assert got[1].tolist() == [lengths.tolist()]
