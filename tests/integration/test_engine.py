# SPDX-License-Identifier: Apache-2.0
"""The engine at its edges. Whole tables are checked against a loop over rows in tests/contract/test_every_engine.py."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType, ModuleType
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pinq.engine import TableRequest, arrays, open_engine, shards
from pinq.engine.counting import CountRequest
from pinq.engine.rows import Descent, Rows
from pinq.errors import PolicyError
from pinq.language.derivatives import Logistic, RowVectors
from pinq.language.parts import Block, Part, PartSet
from pinq.language.points import Points
from pinq.language.specs import Axis, Cross, Cuts, Groups, Shards, Values, bind
from pinq.policy.policy import Policy
from pinq.public.schema import ENTRY_BYTES, Schema
from tests.support.requests.handles import engine_over
from tests.support.requests.recorded_calls import noting

WHOLE = PartSet([Block(Part())])


def test_an_empty_table_has_zeros(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """No rows, all parts: zeros of the right shape, shards included."""
    engine, report = open_engine(tiny_policy, data=frame.iloc[:0], salt=b"", report=True)
    assert report is not None
    assert report.encoded_rows == 0
    parts = WHOLE.split(bind(Cross((Values("sex"), Shards(3))), tiny_policy.schema_))
    axis = bind(Values("job"), tiny_policy.schema_).axes[0]
    tables: Any = engine.tabulate(parts, (TableRequest((axis,)), TableRequest((axis,), "sparse")))
    dense, sparse = tables
    assert dense.shape == (6, 4)
    assert not dense.any()
    assert len(sparse.places) == 0
    engine.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"source": "none.parquet"}, "There is no source"),
        ({"source": "none-*.parquet"}, "There is no source"),
        ({"source": {"database": "none.db", "table": "t"}}, "There is no database"),
        ({"source": "bad.parquet"}, "cannot be read"),
        ({}, "names no source"),
    ],
)
def test_sources_that_cannot_be_read(change: dict[str, object], text: str, tiny_policy: Policy) -> None:
    """The provider is told which and why."""
    (tiny_policy.folder / "bad.parquet").write_text("not parquet")
    with pytest.raises(PolicyError, match=text):
        open_engine(
            tiny_policy.model_copy(update={"source": Policy.model_validate(tiny_policy.model_dump() | change).source}),
            salt=b"",
        )


def test_a_missing_column_is_named(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """With the closest one that there is."""
    with pytest.raises(PolicyError, match=r"The source has no column 'income' \(did you mean 'incom'\?\)"):
        open_engine(tiny_policy, data=frame.rename(columns={"income": "incom"}), salt=b"")
    with pytest.raises(PolicyError, match="`data` is a list"):
        open_engine(tiny_policy, data=[1], salt=b"")
    with pytest.raises(
        PolicyError,
        match=r"`data` is a test_engine\.LazyFrame; collect\(\) it first; it must be a table of Arrow, pandas, polars, DuckDB or Spark",
    ):
        open_engine(tiny_policy, data=LazyFrame(), salt=b"")


class LazyFrame:
    """A table that is not computed yet."""

    def collect(self) -> None: ...


class Stream:
    """A table of a library that pinq does not know; polars' frames are such."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.table = pa.Table.from_pandas(frame, preserve_index=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "table", [pa.Table.from_pandas, Stream, lambda frame: duckdb.from_arrow(pa.Table.from_pandas(frame))]
)
def test_tables_of_any_make_are_sources(table: Any, tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """Whatever speaks Arrow's stream protocol gives the same codes as a pandas frame."""
    request = TableRequest((bind(Values("sex"), tiny_policy.schema_).axes[0],))
    counts = [
        engine_over(tiny_policy, data=data, salt=b"").tabulate(WHOLE, [request]) for data in (frame, table(frame))
    ]
    assert np.array_equal(counts[0][0], counts[1][0])


def test_nothing_of_the_source_is_behind_the_engine(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """Once encoded, nothing that it holds knows a raw value or how to reach one."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    engine.tabulate(WHOLE.split(bind(Shards(2), tiny_policy.schema_)))
    seen: set[int] = set()
    held = [engine]
    while held:
        thing = held.pop()
        if id(thing) in seen or isinstance(thing, (Schema, type, ModuleType, FunctionType)):
            continue
        seen.add(id(thing))
        assert not isinstance(thing, (duckdb.DuckDBPyConnection, pa.Table, pd.DataFrame, Policy))
        held += gc.get_referents(thing)
    engine.close()


def test_threads_ask_at_the_same_time(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """Also while the first question about shards makes the coins."""
    engine = engine_over(tiny_policy, data=frame, salt=b"s")
    schema = tiny_policy.schema_
    asked = [WHOLE.split(bind(spec, schema)) for spec in (Shards(4), Values("job"), Cuts("age", (40,)), Shards(5, 2))]
    found: dict[int, list[list[int]]] = {}

    def ask(number: int) -> None:
        found[number] = [engine.tabulate(asked[(number + turn) % 4])[0].reshape(-1).tolist() for turn in range(8)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    want = [engine.tabulate(parts)[0].reshape(-1).tolist() for parts in asked]
    assert all(
        counts == want[(number + turn) % 4]
        for number, all_counts in found.items()
        for turn, counts in enumerate(all_counts)
    )
    engine.close()


def count_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry whenever a block of rows is looked through."""
    passes: list[int] = []
    locate = CountRequest.locate
    monkeypatch.setattr(CountRequest, "locate", noting(locate, passes, lambda *asked: 1))
    return passes


def test_many_tables_in_one_pass(tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables are asked together, the data are read once."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    schema = tiny_policy.schema_
    axes = {name: bind(Values(name), schema).axes[0] for name in schema.columns}
    passes = count_passes(monkeypatch)
    tables = [TableRequest((axes[name], axes["income"])) for name in ("sex", "job", "age")] + [
        TableRequest((axes["age"], axes["income"]), "sparse"),
        TableRequest(),
    ]
    *dense, sparse, rows = engine.tabulate(WHOLE, tables)
    assert len(passes) == 1
    assert all(table.sum() == 40 for table in dense)
    assert rows.tolist() == [40]
    assert (np.array(sparse.values).sum(), len(sparse.places)) == (40, 40)
    engine.close()


def test_a_row_in_no_group_is_in_no_part_of_a_cross() -> None:
    """A place that is NULL is not the last part's, however few parts there are."""
    schema = Policy(
        dataset="t",
        cap=1,
        max_rows=9,
        columns={
            "a": {"type": "categorical", "values": ["x", "y", "z"]},
            "b": {"type": "categorical", "values": ["u", "v"]},
        },
    )
    engine = engine_over(schema, data=pd.DataFrame({"a": ["x", "y", "z", "z"], "b": ["u", "v", "u", "v"]}), salt=b"")
    cross = bind(Cross((Groups("a", [["x"], ["y"]]), Values("b"))), schema.schema_)  # type: ignore[arg-type]
    parts = WHOLE.split(cross)
    assert engine.tabulate(PartSet.union([parts.take(np.array([3, 0])), parts.take(np.array([1]))]))[0].tolist() == [
        1,
        1,
        0,
    ]
    assert engine.tabulate(parts)[0].tolist() == [1, 0, 0, 1]
    engine.close()


def test_tables_of_the_whole_table_are_counted_once(
    tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, in another order of its columns or as parts of a split, a table comes from memory; what does not fit there is counted again."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    asked = count_passes(monkeypatch)
    sex, job = (bind(Values(name), tiny_policy.schema_).axes[0] for name in ("sex", "job"))
    (first,) = engine.tabulate(WHOLE, (TableRequest((sex, job)),))
    turned, alone = engine.tabulate(WHOLE, (TableRequest((job, sex)), TableRequest((job,))))
    assert len(asked) == 2
    assert first.tolist() == [pd.crosstab(frame["sex"], frame["job"].fillna("~")).to_numpy().tolist()]
    assert (turned == first.transpose(0, 2, 1)).all()
    assert alone.tolist() == first.sum(axis=1).tolist()
    (parts,) = engine.tabulate(WHOLE.split(bind(Cross((Values("job"), Values("sex"))), tiny_policy.schema_)))
    assert parts.tolist() == turned.ravel().tolist()
    assert len(asked) == 2
    with pytest.raises(ValueError, match="read-only"):
        parts[0] = 1
    for part in engine.tabulate(WHOLE.split(bind(Values("sex"), tiny_policy.schema_)), (TableRequest((job,)),)):
        assert part.tolist() == first[0].tolist()
    engine._kept.room = 2 * ENTRY_BYTES
    engine.tabulate(WHOLE, (TableRequest((bind(Values("income"), tiny_policy.schema_).axes[0],)),))
    assert engine._kept._taken <= engine._kept.room
    assert len(engine._kept.values()) == 1
    engine.close()


def test_sums_of_what_was_just_chosen_by_are_not_counted_again(
    tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice sums one loss over every attribute; the sums of one of them then come from memory, and no others do."""
    engine, schema = engine_over(tiny_policy, data=frame, salt=b""), tiny_policy.schema_
    passes = count_passes(monkeypatch)
    sex, job = (TableRequest(bind(Values(name), schema).axes) for name in ("sex", "job"))

    def loss(base: int) -> RowVectors:
        return Logistic("income", (">50K",), Points(base=base)).vectors(schema)

    both = engine.tabulate(WHOLE, (sex, job), loss(0))
    (again,) = engine.tabulate(WHOLE, (job,), loss(0))
    assert len(passes) == 1
    assert again.tolist() == both[1].tolist()
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 1
    (other,) = engine.tabulate(WHOLE, (job,), loss(256))
    assert len(passes) == 2
    assert other.tolist() != again.tolist()
    engine.tabulate(WHOLE, (sex,), loss(256))
    engine.tabulate(PartSet([Block(Part(Part(), bind(Values("sex"), schema), 0))]), (sex,), loss(256))
    assert len(passes) == 4
    engine.close()


def test_a_level_of_many_splits_looks_each_column_up_once(
    tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts of one column, a different one in each part, are told along one axis, however many there are."""
    engine, schema = engine_over(tiny_policy, data=frame, salt=b""), tiny_policy.schema_
    above = WHOLE.split(bind(Cuts("age", tuple(range(20, 60, 2))), schema))
    sex = bind(Values("sex"), schema)
    engine.tabulate(
        PartSet([Block(part) for part in above]), [TableRequest(sex.axes)]
    )  # of two columns: rows are found
    cuts = [bind(Cuts("age", (20 + number,)), schema) for number in range(len(above) - 1)]
    parts = above.split_each([*cuts, sex])
    axes = list[Axis]()
    monkeypatch.setattr(Rows, "places", noting(Rows.places, axes, lambda rows, axis, some=None: axis))
    (counted,) = engine.tabulate(parts)
    assert counted.sum() == 40
    assert [axis.source for axis in axes] == ["age", "sex"]
    engine.close()


def test_a_level_goes_on_from_the_one_above(
    tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts below those that were found last are found from there, one step down; what is kept for it stays bounded."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    steps, down = list[int](), Descent.down
    monkeypatch.setattr(Descent, "down", noting(down, steps, lambda *asked: 1))
    schema = tiny_policy.schema_
    parts = WHOLE.split(bind(Values("sex"), schema))
    # The first level is intervals of one column, whose own table is counted: no row is found.
    for number, spec in ((0, Values("job")), (2, Cuts("age", (40,))), (1, Values("income"))):
        steps.clear()
        counted = engine.tabulate(PartSet([Block(part) for part in parts]))[0]
        assert len(steps) == number, spec
        assert counted.sum() == 40
        parts = parts.split(bind(spec, schema))
    for number in range(6):  # a request that is cut into pieces goes on from the whole level each time
        steps.clear()
        engine.tabulate(parts.take(np.array([number])))
        assert len(steps) == 1, number
    for key in range(6):
        level = WHOLE.split(bind(Shards(2, key), schema))
        engine.tabulate(PartSet([Block(part) for part in level]))
    assert len(engine._located.values()) <= arrays.KEPT_LOCATIONS
    engine.close()


def test_work_can_be_ended_between_blocks(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """What the caller's check raises goes through, and the engine answers the next question."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    parts = WHOLE.split(bind(Values("sex"), tiny_policy.schema_)).take(np.array([0]))
    with pytest.raises(TimeoutError):
        engine.tabulate(parts, check=_end)
    assert engine.tabulate(parts, check=list)[0].sum() > 0
    engine.close()


def test_work_can_be_ended_between_keys_of_shards(
    tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for twenty keys is looked at before each; what was not made then is made by the next."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    made: list[int] = []
    right = shards.shards_of
    monkeypatch.setattr(shards, "shards_of", noting(right, made, lambda *asked: asked[2]))
    tables = [TableRequest(bind(Shards(2, key), tiny_policy.schema_).axes) for key in range(20)]

    def end_after_three() -> None:
        if len(made) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        engine.tabulate(WHOLE, tables, check=end_after_three)
    assert len(made) == 3
    assert all(counts.sum() == 40 for counts in engine.tabulate(WHOLE, tables))
    assert len(made) - 3 >= 17
    assert len(engine._shards._kept.values()) == shards.KEPT_SHARDS
    engine.close()


def test_shards_of_one_key_keep_nobody_from_others(
    tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one analyst's key is hashed, another's is answered; who wants the same one later hashes nothing."""
    engine = engine_over(tiny_policy, data=frame, salt=b"")
    made: list[int] = []
    begun, go_on, right = threading.Event(), threading.Event(), shards.shards_of

    def slow(coins: np.ndarray, salt: bytes, key: int, count: int) -> np.ndarray:
        made.append(key)
        if key == 1:
            begun.set()
            assert go_on.wait(20)
        return right(coins, salt, key, count)

    monkeypatch.setattr(shards, "shards_of", slow)

    def count(key: int) -> int:
        return int(engine.tabulate(WHOLE.split(bind(Shards(2, key), tiny_policy.schema_)))[0].sum())

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(count, 1)
        assert begun.wait(20)
        other = pool.submit(count, 2)
        try:
            assert other.result(20) == 40
            assert not first.done()
        finally:
            go_on.set()
        assert first.result(20) == count(1) == 40
    assert sorted(made) == [1, 2]
    engine.close()


def _end() -> None:
    raise TimeoutError
