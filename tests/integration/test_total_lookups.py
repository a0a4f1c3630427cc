# SPDX-License-Identifier: Apache-2.0
"""A compiled request has finished arrays: no code that encoding can produce fails in them, and dummy rows show what fails."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pinq.engine import (
    Moments,
    RowBlock,
    SparkEngine,
    TableRequest,
    count,
    count_request,
    encode,
    open_engine,
    rehearsal,
)
from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import Codes, kinds_of
from pinq.engine.counting import Counts
from pinq.engine.rehearsal import DummyEngine
from pinq.engine.rows import CodeTable
from pinq.engine.spark import add_pieces, count_blocks, encode_rows
from pinq.language.derivatives import Logistic
from pinq.language.parts import Block, Part, PartSet
from pinq.language.points import Points
from pinq.language.products import Products
from pinq.language.specs import Calendar, Cross, Cuts, Groups, Ranges, Shards, Values, bind
from pinq.policy.policy import Policy
from tests.support.oracles.tabulation import tabulate
from tests.support.requests.catalogue import DERIVATIVES, losses_on

WHOLE = PartSet([Block(Part())])
# Columns at their ends: bounds within one period, one cell, one label, and finer grids than a table holds.
COLUMNS: dict[str, dict[str, Any]] = {
    "day": {"type": "datetime", "lower": "2024-03-01", "upper": "2024-03-28 23:59", "step": 60},
    "late": {"type": "date", "lower": "2024-03-01", "upper": "2024-03-28", "nullable": True},
    "flat": {"type": "numeric", "lower": 5, "upper": 5, "integer": True},
    "fine": {"type": "numeric", "lower": 0, "upper": 2**22, "integer": True, "nullable": True},
    "only": {"type": "categorical", "values": ["x"]},
    "ill": {"type": "categorical", "values": ["no", "yes"]},
    "odd": {"type": "categorical", "values": ["a", "b", "c"], "nullable": True, "other": "b"},
}
POLICY = Policy.model_validate({"dataset": "d", "cap": 1, "max_rows": 1000, "columns": COLUMNS})
SCHEMA = POLICY.schema_
SPECS: tuple[Any, ...] = (
    *(Calendar(name, period) for name in ("day", "late") for period in ("year", "quarter", "month", "weekday")),
    Cuts("late", ("2024-03-15",)),
    Cuts("fine", (1, 2**21, 2**22)),
    Values("flat"),
    Values("only"),
    Values("ill"),
    Groups("odd", (("c",), (None,))),
    Ranges("late", (((None, "2024-03-05"), None), (("2024-03-15", "2024-03-20"), ("2024-03-25", None)))),
    Ranges("late", (((None, None),),)),
    Ranges("flat", (((None, None),),)),
)
ILL = PartSet([Block(Part(Part(), bind(Values("ill"), SCHEMA), 1))])


def _codes(rows: int) -> dict[Any, np.ndarray]:
    """The first codes, the last ones, then any."""
    random, kinds = np.random.default_rng(1), kinds_of(SCHEMA)
    columns: dict[Any, np.ndarray] = {}
    for name, column in SCHEMA.columns.items():
        codes = random.integers(0, column.codes, rows)
        codes[:1], codes[1:2] = 0, column.codes - 1
        columns[name] = codes.astype(kinds[name])
    return columns


def _losses(spec: Any) -> list[Any]:
    points = Points((spec,), (tuple(range(5, 5 + bind(spec, SCHEMA).size)),))
    losses = [loss for kind in DERIVATIVES.values() for loss in losses_on(kind, SCHEMA, points, points)]
    return [loss.vectors(SCHEMA) for loss in (*losses, Products(tuple(SCHEMA.columns), limit=1.0))]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_any_code_has_a_place_along_any_axis(spec: Any, rows: int) -> None:
    """As a last split, on the way down, as a table's axis, and where a function of rows looks: the row-by-row table."""
    codes = _codes(rows)
    below = WHOLE.split(bind(spec, SCHEMA)).split(bind(Values("ill"), SCHEMA))
    axes = bind(spec, SCHEMA).axes
    engine = ArrayEngine(Codes([RowBlock(codes, rows)], SCHEMA), SCHEMA, b"")
    for parts in (WHOLE.split(bind(spec, SCHEMA)), below, ILL):
        for own in ((), axes):
            for measure in (None, Moments("fine"), *(_losses(spec) if rows < 2 and parts is ILL else ())):
                null = SCHEMA.columns["fine"].null_code if isinstance(measure, Moments) else None
                wanted = tabulate(parts, own, codes, measure, null)
                request = pickle.loads(pickle.dumps(count_request(parts, [TableRequest(own)], measure, schema=SCHEMA)))
                alone = count(RowBlock(codes, rows), request).tables()[0]
                for counted in (engine.tabulate(parts, [TableRequest(own)], measure)[0], alone):
                    assert (np.asarray(counted) == wanted).all()


@pytest.mark.parametrize("edges", [(), (1,), (3, 5), (2**16, 2**16 + 1), (7, 2**23)])
def test_a_code_table_is_total(edges: tuple[int, ...]) -> None:
    """It has a place for each code of any width, and it is that of a search."""
    codes = np.array([0, 1, 2, 3, 4, 5, 2**16, 2**23, 2**24 - 1], dtype=np.uint32)
    wanted = np.searchsorted(edges, codes, side="right").tolist()
    for table in (CodeTable.of_edges(edges), CodeTable.of_edges(edges, 0)):
        assert table(codes).tolist() == pickle.loads(pickle.dumps(table))(codes).tolist() == wanted


@pytest.mark.parametrize("ill", ["no", "yes"])
def test_a_calendar_of_one_period_tells_nothing_of_a_part(ill: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Codes in memory, codes in a file and Spark's workers answer alike whether or not a part has a row."""
    table = pa.table(
        {
            "admitted": pa.array([np.datetime64("2024-03-01T10:00", "us")] * 50),
            "sex": ["f", "m"] * 25,
            "ill": [ill] + ["no"] * 49,
        }
    )
    columns = {
        "admitted": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-12-31 23:59", "step": 60},
        "sex": {"type": "categorical", "values": ["f", "m"]},
        "ill": {"type": "categorical", "values": ["no", "yes"]},
    }
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("pinq.engine.opening.is_large", lambda *_: True)
    pa.parquet.write_table(table, tmp_path / "people.parquet")
    policy = Policy.model_validate(
        {"dataset": "d", "source": "people.parquet", "folder": tmp_path, "cap": 1, "max_rows": 99, "columns": columns}
    )
    schema = policy.schema_
    year = Calendar("admitted", "year")
    loss = Logistic("sex", ("f",), Points((year,), ((5,),)))
    sick = PartSet([Block(Part(Part(), bind(Values("ill"), schema), 1))])
    wanted = tabulate(sick, (), _codes_of(policy, table), loss.vectors(schema))
    for data in (table, None, None):  # in memory, written to a file, and mapped again
        engine, _ = open_engine(policy, data=data, salt=b"")
        assert not isinstance(engine, SparkEngine)
        for _ in range(2):
            assert (np.asarray(engine.tabulate(sick, measure=loss.vectors(schema))[0]) == wanted).all()
        assert np.asarray(engine.tabulate(WHOLE.split(bind(year, schema)))[0]).tolist() == [50]
        engine.close()
    request = count_request(sick, measure=loss.vectors(schema), schema=schema)
    counts = Counts(request)
    for shares in (1, 3):
        blocks = encode_rows(policy, b"", 2, table.to_batches())
        names = {name: f"c{number}" for number, name in enumerate(schema.columns)}
        added = add_pieces(count_blocks(schema, b"", pickle.dumps(request), names, shares, blocks))
        rows, *tallies = zip(*(pickle.loads(batch["data"][0].as_py()) for batch in added), strict=True)
        assert [share.sums[0] for share in rows] == [50] * shares
        counts.fill(zip(*tallies, strict=True))
        assert (np.asarray(counts.tables()[0]) == wanted).all()


def _codes_of(policy: Policy, table: pa.Table) -> dict[Any, np.ndarray]:
    return dict(RowBlock.from_arrow(encode(table, policy), policy.schema_).columns)


@pytest.mark.parametrize("spec", [*SPECS, Cross((Values("ill"), Shards(3))), Shards(1)], ids=repr)
def test_a_rehearsal_has_a_row_in_each_asked_part_and_one_outside(spec: Any) -> None:
    """Without rows all is 0; with them each of a few parts has one, and a row in no part is there too."""
    parts = WHOLE.split(bind(spec, SCHEMA))
    assert not np.asarray(DummyEngine(SCHEMA, filled=False).tabulate(parts)[0]).any()
    counted = np.asarray(DummyEngine(SCHEMA, filled=True).tabulate(parts)[0])
    if len(parts) <= rehearsal.SAMPLED_PARTS and not isinstance(spec, Calendar):
        assert (counted > 0).all()
    if isinstance(spec, Groups):
        everywhere = np.asarray(DummyEngine(SCHEMA, filled=True).tabulate(parts, [TableRequest()])[0])
        assert everywhere.sum() < 2 + 2 * len(parts) + 1


def test_a_rehearsal_counts_any_form_of_table_and_measure() -> None:
    """Dense, occupied and summed tables below a part, and nothing of a part that no row can be in."""
    never = PartSet(
        [Block(Part(Part(Part(), bind(Values("ill"), SCHEMA), 1), bind(Cross((Values("ill"),)), SCHEMA), 0))]
    )
    axes = bind(Groups("odd", (("a", "b"),)), SCHEMA).axes
    for filled in (False, True):
        engine = DummyEngine(SCHEMA, filled=filled)
        dense, sparse = engine.tabulate(ILL, [TableRequest(axes), TableRequest(axes, "sparse")])
        assert bool(np.any(np.asarray(dense))) == bool(len(sparse.values)) == filled  # type: ignore[union-attr]
        assert engine.tabulate(ILL, measure=Moments("fine"))[0].shape == (1, 2)  # type: ignore[union-attr]
        assert not np.asarray(engine.tabulate(never)[0]).any()
