# SPDX-License-Identifier: Apache-2.0
"""The tables of a ledger, and their rows."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

__all__ = [
    "SINCE",
    "AnswerSize",
    "EventRow",
    "StoredAnswer",
    "answers",
    "checkpoints",
    "events",
    "make_tables",
    "origin",
]

_metadata = sa.MetaData()
_counts = sa.text("kind IN ('charge', 'answer')")
events = sa.Table(
    "events",
    _metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("analyst", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("events_request_kind", "analyst", "request", "kind"),
    sa.Index(  # the log's fold holds this too; here it holds whoever writes
        "events_once", "analyst", "request", "kind", unique=True, sqlite_where=_counts, postgresql_where=_counts
    ),
)
answers = sa.Table(
    "answers",
    _metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("payload", sa.Text, nullable=False),
)
checkpoints = sa.Table(
    "checkpoints",
    _metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("form", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)
# Which file this is. A copy has the number of the file that it was made of.
origin = sa.Table("place", _metadata, sa.Column("inode", sa.BigInteger, nullable=False))
SINCE = f"SELECT {', '.join(column.name for column in events.c)} FROM events WHERE seq >= %d ORDER BY seq"
"""The events from a number on: asked in every transaction, so as plain text."""


class EventRow(NamedTuple):
    """An event as the table has it; ``body`` is its record as JSON."""

    seq: int
    at: str
    kind: str
    analyst: str
    request: str
    body: str
    hash: str


class StoredAnswer(NamedTuple):
    """A stored answer: its event's number, time and body, and the answer's text."""

    seq: int
    at: str
    body: str
    payload: str


class AnswerSize(NamedTuple):
    """What is known of an answer before it is read: its event's number, its time and length."""

    seq: int
    at: str
    length: int


def make_tables(connection: sa.Connection) -> None:
    """Makes what is missing of them."""
    if connection.dialect.name == "sqlite":
        _make_in_sqlite(connection)
    else:
        _metadata.create_all(connection)
        for index in events.indexes:  # a ledger of an earlier release has another
            index.create(connection, checkfirst=True)
    connection.exec_driver_sql("DROP INDEX IF EXISTS events_request")


def _make_in_sqlite(connection: sa.Connection) -> None:
    """Makes them by statements that are compiled once: each simulation has a ledger in memory."""
    made = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
    for name, statement in _in_sqlite().items():
        if name not in made:
            connection.exec_driver_sql(statement)


@cache
def _in_sqlite() -> dict[str, str]:
    """The statements that make each table and index, by its name, tables first."""
    made: dict[str, ExecutableDDLElement] = {table.name: CreateTable(table) for table in _metadata.sorted_tables}
    made |= {str(index.name): CreateIndex(index) for index in events.indexes}
    return {name: str(element.compile(dialect=SQLiteDialect())) for name, element in made.items()}
