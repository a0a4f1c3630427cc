# SPDX-License-Identifier: Apache-2.0
"""The engine at its edges. Whole tables are checked against a loop over rows in tests/contract/test_every_engine.py."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pinq.engine import open_engine
from pinq.engine.duckdb import TableRequest
from pinq.errors import PolicyError
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.specs import Cross, Cuts, Groups, Shards, Values, bind

WHOLE = PartSet([Block(Part())])


def test_numbers_of_answers_do_not_overflow_the_codes(tiny_policy: Policy) -> None:
    """Two hundred single parts before a histogram of two hundred: numbers beyond one byte are right, and no error depends on a row."""
    values = [f"v{i}" for i in range(200)]
    policy = Policy(
        dataset="wide",
        cap=1,
        max_rows=999,
        columns={"v": {"type": "categorical", "values": values}, "s": {"type": "categorical", "values": ["f", "m"]}},
    )
    engine, _ = open_engine(policy, data=pd.DataFrame({"v": values * 2, "s": ["f"] * 200 + ["m"] * 200}), salt=b"")
    by_value, by_sex = bind(Values("v"), policy.schema_), bind(Values("s"), policy.schema_)
    women, men = WHOLE.split(by_sex)
    parts = PartSet([*(Block(Part(women, by_value, i)) for i in range(200)), Block(men, by_value)])
    assert engine.tabulate(parts)[0].tolist() == [1] * 400
    partial = bind(Groups("v", (tuple(values[:150]),)), policy.schema_)
    assert engine.tabulate(PartSet([*(Block(Part(women, by_value, i)) for i in range(200)), Block(men, partial)]))[
        0
    ].tolist() == [1] * 200 + [150]
    engine.close()


def test_an_empty_table_has_zeros(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """No rows, all parts: zeros of the right shape, shards included."""
    engine, report = open_engine(tiny_policy, data=frame.iloc[:0], salt=b"", report=True)
    assert report is not None
    assert report.encoded_rows == 0
    parts = WHOLE.split(bind(Cross((Values("sex"), Shards(3))), tiny_policy.schema_))
    axis = bind(Values("job"), tiny_policy.schema_).axes[0]
    dense, sparse = engine.tabulate(parts, (TableRequest((axis,)), TableRequest((axis,), sparse=True)))
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
        match=r"`data` is a test_engine\.LazyFrame; collect\(\) it first; it must be a table of Arrow, pandas, polars or DuckDB",
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
        open_engine(tiny_policy, data=data, salt=b"")[0].tabulate(WHOLE, [request]) for data in (frame, table(frame))
    ]
    assert np.array_equal(counts[0][0], counts[1][0])


def test_nothing_behind_the_engine_reaches_the_source(tiny_policy: Policy, frame: pd.DataFrame, tmp_path: Path) -> None:
    """Once encoded, its connection has no raw values and no files."""
    import duckdb

    frame.to_parquet(tmp_path / "t.parquet")
    engine, _ = open_engine(tiny_policy, data=frame, salt=b"")
    for statement in (
        "SELECT * FROM source",
        f"SELECT * FROM '{tmp_path / 't.parquet'}'",
        f"ATTACH '{tmp_path / 'x.db'}'",
        "SET enable_external_access = true",
        f"COPY codes TO '{tmp_path / 'out.csv'}'",
    ):
        with pytest.raises(duckdb.Error):
            engine._connection.execute(statement)
    engine.close()


def test_threads_ask_at_the_same_time(tiny_policy: Policy, frame: pd.DataFrame) -> None:
    """Also while the first question about shards makes the coins."""
    engine, _ = open_engine(tiny_policy, data=frame, salt=b"s")
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


def test_large_sources_are_encoded_on_disk(
    tiny_policy: Policy, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a size the codes go to a scratch file that ends with the engine; answers are the same."""
    frame.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr("pinq.engine.encoding.IN_MEMORY_BYTES", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    engine, _ = open_engine(
        tiny_policy.model_copy(update={"source": "t.parquet", "memory_limit": "200MB", "folder": tmp_path}), salt=b""
    )
    assert len(list((tmp_path / "scratch").rglob("codes.duckdb"))) == 1
    assert engine.tabulate(WHOLE.split(bind(Cross((Values("sex"), Shards(1))), tiny_policy.schema_)))[0].reshape(
        -1
    ).tolist() == [20, 20]
    engine.close()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_many_tables_in_one_pass(tiny_policy: Policy, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables are asked together, the data are read once."""
    engine, _ = open_engine(tiny_policy, data=frame, salt=b"")
    schema = tiny_policy.schema_
    axes = {name: bind(Values(name), schema).axes[0] for name in schema.columns}
    queries: list[str] = []
    right = engine._fetch
    monkeypatch.setattr(engine, "_fetch", lambda query: queries.append(query) or right(query))
    tables = [TableRequest((axes[name], axes["income"])) for name in ("sex", "job", "age")] + [
        TableRequest((axes["age"], axes["income"]), sparse=True),
        TableRequest(),
    ]
    *dense, sparse, rows = engine.tabulate(WHOLE, tables)
    assert len(queries) == 1
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
    engine, _ = open_engine(schema, data=pd.DataFrame({"a": ["x", "y", "z", "z"], "b": ["u", "v", "u", "v"]}), salt=b"")
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
    engine, _ = open_engine(tiny_policy, data=frame, salt=b"")
    asked, fetch = [], engine._fetch
    monkeypatch.setattr(engine, "_fetch", lambda query: (asked.append(query), fetch(query))[1])
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
    monkeypatch.setattr("pinq.engine.duckdb.KEPT_CELLS", 9)
    engine.tabulate(WHOLE, (TableRequest((bind(Values("income"), tiny_policy.schema_).axes[0],)),))
    assert sum(table.size for table in engine._tables.values()) <= 9
    engine.close()
