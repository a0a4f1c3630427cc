# SPDX-License-Identifier: Apache-2.0
"""Rows that come as a stream of Arrow batches: from a real PostgreSQL by ADBC, and from streams that break off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pinq.engine import open_engine, pieces
from pinq.errors import PolicyError
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.specs import Cross, Shards, Values, bind
from tests.postgresql import HERE, SKIPPED, running

WHOLE = PartSet([Block(Part())])
POLICY = Policy(
    dataset="visits",
    cap=1,
    max_rows=1000,
    privacy_unit={"column": "who", "max_rows": 2},
    columns={
        "ward": {"type": "categorical", "values": ["a", "b"], "nullable": True},
        "cost": {"type": "numeric", "lower": 0, "upper": 10, "step": "0.5", "nullable": True},
    },
)
ROWS = pa.table(
    {
        "who": [str(number // 3) for number in range(300)],
        "ward": [["a", "b", None, "c"][number % 4] for number in range(300)],
        "cost": [None if number % 7 == 0 else number % 13 - 0.25 for number in range(300)],
    }
)


def counts(data: object, policy: Policy = POLICY) -> list[int]:
    engine, _ = open_engine(policy, data=data, salt=b"salt")
    specs = Cross((Values("ward"), Values("cost"), Shards(3)))
    (table,) = engine.tabulate(WHOLE.split(bind(specs, policy.schema_)))
    engine.close()
    assert isinstance(table, np.ndarray)
    return table.tolist()


def test_a_stream_gives_the_codes_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """However its batches are cut, bounded units and shards too."""
    monkeypatch.setattr(pieces, "BLOCK_ROWS", 50)
    for size in (1, 49, 300):
        assert counts(ROWS.to_reader(size)) == counts(ROWS)
    assert sum(counts(ROWS.slice(0, 0).to_reader())) == 0


def test_a_stream_that_breaks_off_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not half of it: one error, whose text has nothing of the rows, and no codes are left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches(10)
        raise OSError("value 'secret' is wrong")

    with pytest.raises(PolicyError, match="broke off before their end") as error:
        counts(pa.RecordBatchReader.from_batches(ROWS.schema, batches()))
    assert "secret" not in str(error.value)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.skipif(not HERE, reason=SKIPPED)
def test_rows_of_postgresql_stream_through_adbc() -> None:
    """A query's rows, with its numerics, texts and dates, are encoded as the same table in memory."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with running() as url, dbapi.connect(url.replace("+psycopg", "")) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE visits (who text, ward varchar(9), cost numeric(6, 2), day date)")
        cursor.adbc_ingest("staged", ROWS)
        cursor.execute("INSERT INTO visits SELECT who, ward, cost::numeric(6, 2), now()::date FROM staged")
        cursor.execute("SELECT * FROM visits")
        assert counts(cursor.fetch_record_batch()) == counts(ROWS)
        cursor.execute(
            "SELECT who, ward, CASE WHEN who = '99' THEN 1 / (length(who) - 2) ELSE 1 END AS cost FROM visits"
        )
        with pytest.raises(PolicyError, match="broke off"):  # a server's error in the middle of the rows
            counts(cursor.fetch_record_batch())
