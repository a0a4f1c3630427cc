# SPDX-License-Identifier: Apache-2.0
"""Which rows every engine keeps, and in which shard: values left out, shards, privacy units, sources of all forms."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from pinq.engine import Moments, open_engine
from pinq.errors import PolicyError
from pinq.language.specs import Cross, Shards, Values, bind
from pinq.policy.policy import Policy
from pinq.public.schema import Categorical, Numeric
from tests.support.tables.engines import WHOLE, Opener, every_engine, examples, worlds


@every_engine
@given(worlds())
@settings(max_examples=examples(30, 200))
def test_what_is_left_out_is_counted(opener: Opener, world: tuple[Policy, pd.DataFrame]) -> None:
    """The provider's report agrees, column by column, with each column's own rule."""
    policy, frame = world
    engine, report = opener(policy, data=frame, salt=b"", report=True)
    engine.close()
    assert report is not None
    for name, column in policy.columns.items():
        assert report.left_out[name] == int((column.encode(frame[name]) < 0).sum())
        if isinstance(column, Numeric):
            assert report.clamped[name] == int(
                ((frame[name] < float(column.lower)) | (frame[name] > float(column.upper))).sum()
            )


# Shards


def shards(opener: Opener, policy: Policy, frame: pd.DataFrame, spec: Shards, salt: bytes, by: str) -> np.ndarray:
    """Rows by value and shard, shape (values, shards)."""
    engine, _ = opener(policy, data=frame, salt=salt)
    found = engine.tabulate(WHOLE.split(bind(Cross((Values(by), spec)), policy.schema_)))[0]
    engine.close()
    return found.reshape(-1, spec.count)


POPULATION = Policy(
    dataset="shards",
    cap=1,
    max_rows=10_000,
    columns={
        "id": {"type": "categorical", "values": [str(i) for i in range(300)]},
        "s": {"type": "categorical", "values": ["f", "m"]},
    },
)


def population(rows: int = 900, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame({"id": random.integers(0, 300, rows).astype(str), "s": random.choice(["f", "m"], rows)})


every_salt = pytest.mark.parametrize("salt", [b"salt", bytes(range(32))], ids=["MD5", "words"])


@every_engine
@every_salt
def test_each_row_is_in_one_shard(opener: Opener, salt: bytes) -> None:
    """Shards part the rows: nobody is lost or counted twice, and each shard gets its share."""
    frame = population(6000)
    found = shards(opener, POPULATION, frame, Shards(7), salt, "id")
    assert found.sum(axis=1).tolist() == [int((frame.id == str(i)).sum()) for i in range(300)]
    expected = len(frame) / 7
    assert (np.abs(found.sum(axis=0) - expected) < 6 * math.sqrt(expected)).all()


@every_engine
@every_salt
def test_shards_are_steady_and_keyed(opener: Opener, salt: bytes) -> None:
    """The same salt and key give the same shards in every session; another salt or key gives others."""
    frame = population()
    first = shards(opener, POPULATION, frame, Shards(5), salt, "id")
    assert (shards(opener, POPULATION, frame, Shards(5), salt, "id") == first).all()
    assert (shards(opener, POPULATION, frame, Shards(5, 1), salt, "id") != first).any()
    assert (shards(opener, POPULATION, frame, Shards(5), salt[::-1], "id") != first).any()


@every_engine
@every_salt
def test_the_order_of_rows_does_not_move_them(opener: Opener, salt: bytes) -> None:
    """Shards go by what a row is, not by where it stands."""
    frame = population()
    assert (
        shards(opener, POPULATION, frame.sample(frac=1, random_state=1), Shards(5), salt, "id")
        == shards(opener, POPULATION, frame, Shards(5), salt, "id")
    ).all()


@every_engine
@every_salt
@given(st.integers(0, 299), st.sampled_from("fm"), st.integers(1, 9))
@settings(max_examples=examples(12, 12))
def test_a_new_row_moves_no_other_row(opener: Opener, salt: bytes, person: int, sex: str, count: int) -> None:
    """With one more row exactly one shard of its own value gains exactly one row, equal rows or not: shards have stability one."""
    frame = population(400)
    more = pd.concat([pd.DataFrame({"id": [str(person)], "s": [sex]}), frame])
    changed = shards(opener, POPULATION, more, Shards(count), salt, "id") - shards(
        opener, POPULATION, frame, Shards(count), salt, "id"
    )
    assert changed.sum() == np.abs(changed).sum() == 1
    assert changed[person].sum() == 1


def test_another_encoding_makes_other_shards() -> None:
    """Coins follow all columns, so under a changed schema ``Shards`` is another partition and its charges add."""
    narrow, wide = (
        POPULATION.schema_,
        Policy(**POPULATION.model_dump() | {"columns": {"s": {"type": "categorical", "values": ["f", "m"]}}}).schema_,
    )
    assert bind(Shards(3), narrow).key != bind(Shards(3), wide).key
    assert bind(Values("s"), narrow).key == bind(Values("s"), wide).key


# Privacy units


@every_engine
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30), st.integers(1, 3), st.integers(0, 2**32 - 1)
)
@settings(max_examples=examples(16, 200))
def test_a_unit_keeps_its_bound_and_no_other_unit_notices(
    opener: Opener, rows: list[tuple[int, int]], bound: int, seed: int
) -> None:
    """At most ``max_rows`` rows of each unit are kept, the same ones whatever the order and whoever else is in the table."""
    columns = {"v": {"type": "categorical", "values": [str(i) for i in range(5)]}}
    policy = Policy(
        dataset="u", cap=1, max_rows=100, columns=columns, privacy_unit={"column": "who", "max_rows": bound}
    )

    def kept(chosen: list[tuple[int, int]]) -> np.ndarray:
        frame = pd.DataFrame(
            {"who": [f"p{who}" for who, _ in chosen], "v": [str(value) for _, value in chosen]}, dtype=object
        )
        engine, _ = opener(policy, data=frame, salt=b"salt")
        found = engine.tabulate(WHOLE.split(bind(Values("v"), policy.schema_)))[0]
        engine.close()
        return found

    alone = [kept([row for row in rows if row[0] == who]) for who in range(4)]
    assert all(one.sum() == min(bound, sum(row[0] == who for row in rows)) for who, one in enumerate(alone))
    together = kept(rows)
    assert (together == sum(alone)).all()
    assert (kept([rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]) == together).all()


@every_engine
def test_rows_without_a_unit_are_left_out(opener: Opener) -> None:
    """Nobody knows whose they are, so nobody could bound them."""
    policy = Policy(
        dataset="u",
        cap=1,
        max_rows=9,
        columns={"v": {"type": "categorical", "values": ["a"]}},
        privacy_unit={"column": "who", "max_rows": 2},
    )
    frame = pd.DataFrame({"who": ["x", None, "x", "x", None], "v": ["a"] * 5})
    engine, report = opener(policy, data=frame, salt=b"", report=True)
    assert report is not None
    assert (engine.rows(), report.over_unit) == (2, 3)
    engine.close()


@every_engine
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_equal_units_are_one_unit(opener: Opener, kind: pa.DataType) -> None:
    """Equal numbers are one person; as text 0.0 and -0.0 are two people."""
    who = ["0.0", "-0.0", "0.0"] if kind == pa.string() else pa.array([0.0, -0.0, 0.0]).cast(kind)
    data = pa.table({"who": pa.chunked_array([pa.array(who, kind), pa.array([1]).cast(kind)]), "v": ["a"] * 4})
    columns = {"v": {"type": "categorical", "values": ["a"]}}
    policy = Policy(dataset="u", cap=1, max_rows=9, columns=columns, privacy_unit={"column": "who", "max_rows": 1})
    engine, _ = opener(policy, data=data.to_pandas(), salt=b"salt")
    assert engine.rows() == (3 if kind == pa.string() else 2)
    engine.close()


@pytest.mark.parametrize("kind", ["INTERVAL", "STRUCT(a DOUBLE)", "DOUBLE[]", "TIME WITH TIME ZONE"])
def test_a_unit_whose_equal_values_have_several_texts_is_refused(kind: str, tmp_path: Path) -> None:
    """A month is 30 days, and {0.0} is {-0.0}: one person would be two."""
    with duckdb.connect(str(tmp_path / "u.duckdb")) as connection:
        connection.execute(f"CREATE TABLE u AS SELECT NULL::{kind} AS who, 'a' AS v")
    columns = {"v": {"type": "categorical", "values": ["a"]}}
    unit = {"column": "who", "max_rows": 1}
    policy = Policy(
        dataset="u",
        cap=1,
        max_rows=9,
        source={"database": "u.duckdb", "table": "u"},
        folder=tmp_path,
        columns=columns,
        privacy_unit=unit,
    )
    with pytest.raises(PolicyError, match="equal values"):
        open_engine(policy, salt=b"salt")


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_unit_of_doubles_is_refused(kind: Any, tmp_path: Path) -> None:
    """One row without a person makes whole numbers doubles, in which two persons' numbers of 17 digits are one."""
    pq.write_table(pa.table({"who": np.arange(4).astype(kind), "v": ["a"] * 4}), tmp_path / "u.parquet")
    columns = {"v": {"type": "categorical", "values": ["a"]}}
    unit = {"column": "who", "max_rows": 1}
    policy = Policy(
        dataset="u", cap=1, max_rows=9, source="u.parquet", folder=tmp_path, columns=columns, privacy_unit=unit
    )
    for data in (None, pq.read_table(tmp_path / "u.parquet"), pq.read_table(tmp_path / "u.parquet").to_pandas()):
        with pytest.raises(PolicyError, match=r"'who' of `privacy_unit` has the type (DOUBLE|FLOAT), in which"):
            open_engine(policy, data=data, salt=b"salt")


@every_engine
def test_only_what_was_clamped_is_counted(opener: Opener) -> None:
    """Values far out, tiny, and of columns that are named like the encoding's own, or like what they are derived from.

    A bound holds for the column that it is declared of: neither the raw value, nor a column of the source that has a
    derived one's name, comes past it.
    """
    values = [1e308, -1e308, math.inf, 5e-324, -5e-324, -0.0, 3e-45, 9.999999999999999, 10.0, 4.0]
    frame = pd.DataFrame({"c0": values, "c1": [-value for value in values], "derived_0": values, "unit": [*range(10)]})
    numeric = {"type": "numeric", "lower": 0, "upper": 10, "integer": True}
    columns: dict[str, Any] = {
        "c1": numeric,
        "c0": numeric,
        "derived_0": {**numeric, "upper": 7, "from": "c0", "formula": '"c0" / 2'},
        "number": {"type": "categorical", "values": ["0", "4", "10"], "other": "10", "from": "c0"},
    }
    policy = Policy(dataset="c", cap=1, max_rows=99, columns=columns, privacy_unit={"column": "unit", "max_rows": 1})
    engine, _ = opener(policy, data=frame, salt=b"salt")
    sums = {
        name: np.asarray(engine.tabulate(WHOLE, measure=Moments(name))[0]).tolist()
        for name in ("c0", "c1", "derived_0")
    }
    raw = {"c0": frame["c0"], "c1": frame["c1"], "derived_0": frame["c0"] / 2}
    assert sums == {name: [[10, int(policy.columns[name].encode(raw[name]).sum())]] for name in raw}
    assert max(total for ((_, total),) in sums.values()) <= 10 * 10
    assert np.asarray(engine.tabulate(WHOLE.split(bind(Values("number"), policy.schema_)))[0]).tolist() == [1, 1, 8]
    engine.close()


@every_engine
def test_all_forms_of_a_table_encode_alike(opener: Opener, tmp_path: Any) -> None:
    """A frame, an Arrow table, Parquet, CSV and a DuckDB table with the same rows give the same tables."""
    import duckdb
    import pyarrow.parquet as pq

    frame = pd.DataFrame(
        {"s": ["f", "m", None, "x", "f"], "x": [1.0, math.nan, 3.0, 1e9, -5.0], "b": [True, False, True, True, False]}
    )
    columns: dict[str, Any] = {
        "s": {"type": "categorical", "values": ["f", "m"], "nullable": True},
        "x": {"type": "numeric", "lower": 0, "upper": 10, "integer": True, "nullable": True},
        "b": {"type": "categorical", "values": [True, False]},
    }
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table.slice(0, 2), tmp_path / "part-0.parquet")
    pq.write_table(table.slice(2), tmp_path / "part-1.parquet")
    frame.assign(b=frame["b"].map({True: "true", False: "false"})).to_csv(tmp_path / "t.csv", index=False)
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.register("frame", table)
        connection.execute('CREATE TABLE "Ta ble" AS SELECT * FROM frame')
    sources: list[Any] = ["t.parquet", "part-*.parquet", "t.csv", {"database": "d.duckdb", "table": "Ta ble"}]
    policies: list[tuple[Policy, Any]] = [
        (Policy(dataset="f", cap=1, max_rows=9, columns=columns, source=source, folder=tmp_path), None)
        for source in sources
    ]
    policies += [
        (Policy(dataset="f", cap=1, max_rows=9, columns=columns), data)
        for data in (frame, table, table.combine_chunks().filter(pa.array([True] * 5)))
    ]
    found = []
    for policy, data in policies:
        schema = policy.schema_
        engine, report = opener(policy, data=data, salt=b"s", report=True)
        found.append(
            (
                engine.tabulate(WHOLE.split(bind(Cross((Values("s"), Values("b"), Values("x"), Shards(3))), schema)))[
                    0
                ].tolist(),
                report,
            )
        )
        engine.close()
    assert all(one == found[0] for one in found)
    assert found[0][1].encoded_rows == 4
    assert isinstance(policies[0][0].columns["s"], Categorical)
    assert len(list(itertools.chain(found))) == 7
