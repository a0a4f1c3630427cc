# SPDX-License-Identifier: Apache-2.0
"""What is small shares a database, and nothing in it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from pinq.engine import sources
from pinq.engine.sources import SMALL_ROWS, opened, small_database
from pinq.errors import PolicyError
from pinq.policy.policy import Policy
from tests.support.requests.handles import encoded_rows, engine_over
from tests.support.tables.tiny_tables import policy_in, rows

OBJECTS = {
    "views": ("", "SELECT * FROM source"),
    "types": ("CREATE TEMP TYPE own AS ENUM ('a')", "SELECT 'a'::own"),
    "macros": ("CREATE TEMP MACRO own(x) AS x + 1", "SELECT own(1)"),
    "tables": ("CREATE TEMP TABLE kept AS SELECT 1", "SELECT * FROM kept"),
}


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("kind", OBJECTS)
def test_nothing_is_seen_beside_its_connection_or_after_it(kind: str) -> None:
    """Neither by a connection that is open meanwhile, nor by the next one."""
    make, use = OBJECTS[kind]
    with small_database() as beside:
        with small_database() as own:
            own.register("source", pa.table({"x": [1]}))
            own.execute(make or "SELECT 1")
            assert own.execute(use).fetchall()
            with pytest.raises(duckdb.CatalogException):
                beside.execute(use)
        with small_database() as later, pytest.raises(duckdb.CatalogException):
            later.execute(use)


def test_a_setting_is_its_connections_own() -> None:
    """Times are read in a zone that one opening sets."""
    zone = "SELECT current_setting('TimeZone')"
    with small_database() as beside, small_database() as own:
        own.execute("SET TimeZone = 'Asia/Tokyo'")
        assert own.execute(zone).fetchall() == [("Asia/Tokyo",)]
        assert beside.execute(zone).fetchall() != [("Asia/Tokyo",)]


def test_two_connections_have_a_view_of_one_name_each() -> None:
    """Two tables are encoded at once."""
    with small_database() as first, small_database() as second:
        first.register("source", pa.table({"x": [1]}))
        second.register("source", pa.table({"x": [2]}))
        assert [own.execute("SELECT x FROM source").fetchall() for own in (first, second)] == [[(1,)], [(2,)]]


def test_it_has_no_threads() -> None:
    """So that a process may fork beside it."""
    before = threads()
    with sources._shared.__wrapped__(0) as connection:
        connection.execute("SELECT sum(range) FROM range(100000)").fetchall()
        assert threads() == before


def test_a_forked_process_has_a_database_of_its_own(tmp_path: Path) -> None:
    """It opens a table while its parent has one open."""
    policy = policy_in(tmp_path)
    with small_database() as connection:
        connection.register("source", pa.table({"x": [1]}))
        child = os.fork()
        if not child:
            status = 1
            try:
                status = int(len(encoded_rows(engine_over(policy, data=rows()))) != len(rows()))
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert connection.execute("SELECT x FROM source").fetchall() == [(1,)]


def test_after_a_failure_of_the_database_another_takes_its_place() -> None:
    """One of its own assertions would otherwise keep all tables of the process closed."""

    def fail() -> None:
        with small_database() as connection:
            connection.execute("CREATE TABLE memory.main.stays AS SELECT 1")
            raise duckdb.InternalException("an assertion failed")

    with small_database() as beside, ThreadPoolExecutor(1) as thread, small_database() as busy:
        counted = thread.submit(
            lambda: busy.execute("SELECT count(*) FROM range(3000000) WHERE hash(range) >= 0").fetchall()
        )
        with pytest.raises(duckdb.InternalException, match="an assertion failed"):
            fail()
        assert beside.execute("SELECT 1").fetchall() == [(1,)]  # other tables go on being read
        assert counted.result() == [(3_000_000,)]
    with small_database() as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("SELECT * FROM memory.main.stays")


@pytest.mark.parametrize("change", [{}, {"memory_limit": "1GB"}])
@pytest.mark.parametrize("count", [40, SMALL_ROWS + 1])
def test_what_is_large_or_sets_a_limit_has_a_database_of_its_own(
    change: dict[str, str], count: int, tmp_path: Path
) -> None:
    """A limit of memory holds for all of a database."""
    policy = policy_in(tmp_path).model_copy(update=change)
    data = pd.concat([rows()] * (count // 40 + 1)).head(count)
    with opened(policy, data, []) as source:
        ((number,),) = source.connection.execute("SELECT current_setting('threads')").fetchall()
        ((limit,),) = source.connection.execute("SELECT current_setting('async_threads')").fetchall()
    assert (limit == 0) == (not change and count <= SMALL_ROWS)
    assert number >= 1


def test_a_file_has_a_database_of_its_own_unless_it_is_short_text(tmp_path: Path) -> None:
    """Parquet packs equal values: by its bytes alone millions of rows would be small, on one thread and without disk."""
    for name, small in (("t.csv", True), ("t.parquet", False)):
        file = tmp_path / name
        policy = policy_in(tmp_path).model_copy(update={"source": name})
        rows().to_parquet(file) if name.endswith("parquet") else rows().to_csv(file, index=False)
        with opened(policy, None, [file]) as source:
            ((limit,),) = source.connection.execute("SELECT current_setting('async_threads')").fetchall()
        assert (limit == 0) == small
        file.write_bytes(b"no Parquet")
        with pytest.raises(PolicyError, match="cannot be read" if not small else "column"):
            engine_over(policy)


def test_a_file_that_changed_within_a_moment_is_read_again(tmp_path: Path) -> None:
    """Nothing of it stays in memory: its length and times may be those of before."""
    file = tmp_path / "t.parquet"
    policy: Policy = policy_in(tmp_path).model_copy(update={"source": file.name})
    codes = []
    for job in ("clerk", "nurse"):
        rows().assign(job=job).to_parquet(file)
        os.utime(file, ns=(10**18, 10**18))
        codes.append(encoded_rows(engine_over(policy)))
    assert codes[0] != codes[1]
    assert len(codes[0]) == len(codes[1]) == len(rows())
