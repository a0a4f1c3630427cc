# SPDX-License-Identifier: Apache-2.0
"""Rows that come as a stream of Arrow batches: from a real PostgreSQL by ADBC, and from streams that break off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from pinq.engine.sources import read_columns
from pinq.errors import PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cross, Shards, Values, bind
from pinq.policy.policy import AdbcTable, Policy
from pinq.provider.check import check
from pinq.provider.claim import ledger_url
from pinq.provider.policy_file import load_policy
from tests.support.processes.commands import failed, run
from tests.support.processes.postgresql import HERE, SKIPPED, running
from tests.support.requests.handles import engine_over

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
    engine = engine_over(policy, data=data, salt=b"salt")
    specs = Cross((Values("ward"), Values("cost"), Shards(3)))
    (table,) = engine.tabulate(WHOLE.split(bind(specs, policy.schema_)))
    engine.close()
    assert isinstance(table, np.ndarray)
    return table.tolist()


def test_a_stream_gives_the_codes_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """However its batches are cut, bounded units and shards too."""
    monkeypatch.setattr("pinq.engine.codes.BLOCK_ROWS", 50)
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


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    """A real PostgreSQL with the rows in a table that has other columns too."""
    if not HERE:
        pytest.skip(SKIPPED)
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with running() as url:
        uri = url.replace("+psycopg", "")
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE visits (who text, ward varchar(9), cost numeric(6, 2), day date)")
            cursor.adbc_ingest("staged", ROWS)
            cursor.execute("INSERT INTO visits SELECT who, ward, cost::numeric(6, 2), now()::date FROM staged")
            connection.commit()
        yield uri


def test_rows_of_postgresql_stream_through_adbc(uri: str) -> None:
    """A query's rows, with its numerics, texts and dates, are encoded as the same table in memory."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM visits")
        assert counts(cursor.fetch_record_batch()) == counts(ROWS)
        cursor.execute(
            "SELECT who, ward, CASE WHEN who = '99' THEN 1 / (length(who) - 2) ELSE 1 END AS cost FROM visits"
        )
        with pytest.raises(PolicyError, match="broke off"):  # a server's error in the middle of the rows
            counts(cursor.fetch_record_batch())


def adbc(**words: str) -> Policy:
    rows = {"driver": "adbc_driver_postgresql", "uri_env": "VISITS_URI"} | words
    return POLICY.model_copy(update={"source": AdbcTable.model_validate({"adbc": rows})})


def test_a_policy_names_a_table_of_a_database(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table, of which only declared columns are asked for, or a query: the same codes; nothing is kept on disk."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("VISITS_URI", uri)
    for policy in (adbc(table="visits"), adbc(table="public.visits"), adbc(query="SELECT * FROM visits")):
        (tmp_path / "p.yaml").write_text(policy.to_yaml())
        assert counts(None, load_policy(tmp_path / "p.yaml")) == counts(ROWS)
        assert check(policy).source_rows == 300
    assert not list(tmp_path.glob("state/**/*"))


def test_init_looks_at_a_table_of_a_database(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact numbers are numbers, the proposal names table and variable, and opens by them; what is not there is said."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("VISITS_URI", uri)
    assert run("init", "public.visits", "--uri-env", "VISITS_URI", "-o", tmp_path / "p.yaml").exit_code == 0
    proposed = load_policy(tmp_path / "p.yaml")
    assert proposed.source == adbc(table="public.visits").source
    kinds = {name: column.type for name, column in proposed.columns.items()}
    assert kinds == {"ward": "categorical", "cost": "numeric", "day": "date"}  # `who` names persons
    assert set(check(proposed).left_out.values()) == {0}
    failed(run("init", "nope", "--uri-env", "VISITS_URI"), "SQLSTATE 42P01: there is no such table")
    monkeypatch.setenv("VISITS_URI", "postgresql://me:secret@127.0.0.1:1/d")
    refused = run("init", "visits", "--uri-env", "VISITS_URI")
    failed(refused, "cannot be reached: nothing listens there")
    assert "secret" not in refused.stderr
    failed(run("init", "visits", "--uri-env", "NO_URI"), "NO_URI is not set to the URI")


def test_what_a_database_refuses_says_nothing_of_it(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the URI nor its password nor a value is in an error; each says what to try."""
    broken = "SELECT who, ward, CASE WHEN who = '99' THEN 1 / (length(who) - 2) ELSE 1 END AS cost FROM visits"
    for value, words, text in (
        (uri, {"table": "secret"}, r"does not give the rows \(SQLSTATE 42P01: there is no such table\)"),
        (uri, {"query": "SELECT 'secret'::int"}, "does not give the rows|broke off"),
        (uri, {"query": "SELECT who, ward FROM visits"}, "has no column 'cost'"),
        (uri, {"query": broken}, "broke off before their end"),
        ("postgresql://me:secret@127.0.0.1:1/d", {"table": "visits"}, "cannot be reached"),
        ("secret", {"table": "visits"}, "cannot be reached"),
        ("", {"table": "visits"}, "VISITS_URI is not set"),
        (uri, {"table": "visits", "driver": "adbc_driver_none"}, "pip install adbc-driver-none"),
    ):
        monkeypatch.setenv("VISITS_URI", value)
        with pytest.raises(PolicyError, match=text) as error:
            counts(None, adbc(**words))
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{adbc: {driver: x, uri_env: A, table: t}}", "source.adbc.driver: it is 'x'; it must be a package with"),
        ("{adbc: {driver: adbc_driver_x, uri_env: 'a b', table: t}}", "source.adbc.uri_env: it is 'a b'; it must be"),
        ("{adbc: {driver: adbc_driver_x, uri_env: A, table: 'a b'}}", "source.adbc.table: it is 'a b'; it must be"),
        ("{adbc: {driver: adbc_driver_x, uri: A, table: t}}", r"not valid:\n  source.adbc.uri_env: it is missing\n"),
        ("{database: a.duckdb, tabel: t}", r"not valid:\n  source.table: it is missing\n  source.tabel: unknown key$"),
    ],
)
def test_a_wrong_key_of_a_source_is_named(source: str, text: str, tmp_path: Path) -> None:
    """Of the kind of source that is meant, and not of all others too."""
    columns = "{a: {type: numeric, lower: 0, upper: 5}}"
    content = f"dataset: d\nsource: {source}\ncap: 1\nmax_rows: 9\ncolumns: {columns}\n"
    (tmp_path / "p.yaml").write_text(content)
    with pytest.raises(PolicyError, match=text):
        load_policy(tmp_path / "p.yaml")


def test_a_table_of_a_database_is_declared_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table or query, and a variable's name where the URI would be; one ledger guards it; of Spark, `init` looks at a sample."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for words in (
        {},
        {"table": "t", "query": "SELECT 1"},
        {"table": "t; DROP"},
        {"table": "t", "uri_env": "pg://me:pw@h"},
    ):
        with pytest.raises(ValidationError):
            adbc(**words)
    with pytest.raises(ValidationError):
        adbc(table="t", driver="os")
    url = ledger_url(adbc(table="t").model_copy(update={"folder": tmp_path}), create=True)
    assert url == str(tmp_path / "visits.ledger")
    other = {"folder": tmp_path / "other", "dataset": "other"}
    assert ledger_url(adbc(table="t").model_copy(update=other)) == url
    assert ledger_url(adbc(table="u").model_copy(update=other)) != url
    with (
        pytest.raises(PolicyError, match="from a sample"),
        read_columns(POLICY.model_copy(update={"source": {"spark": "health.visits"}})),
    ):
        pass
