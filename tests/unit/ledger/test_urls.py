# SPDX-License-Identifier: Apache-2.0
"""URLs of ledgers in PostgreSQL, as policies have them: what they say, what is shown of them, what is refused."""

from __future__ import annotations

import pytest

from pinq.errors import LedgerError
from pinq.ledger.postgresql import PostgreSQL, _parameters

pytest.importorskip("psycopg")
SCHEME = "postgresql+psycopg://"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("user@host/db", {"user": "user", "host": "host", "dbname": "db"}),
        (
            "u:p%40ss@h:5433/db?sslmode=require",
            {"user": "u", "password": "p@ss", "host": "h", "port": "5433", "dbname": "db", "sslmode": "require"},
        ),
        ("u:p/w@h/db", {"user": "u", "password": "p/w", "host": "h", "dbname": "db"}),
        ("u:p@[::1]:5/db", {"user": "u", "password": "p", "host": "::1", "port": "5", "dbname": "db"}),
        ("u@/db?host=/run/pg", {"user": "u", "host": "/run/pg", "dbname": "db"}),
        ("/db?host=a,b&port=1,2", {"host": "a,b", "port": "1,2", "dbname": "db"}),
        ("h", {"host": "h"}),
    ],
)
def test_a_url_says_where_a_ledger_is(rest: str, said: dict[str, str]) -> None:
    """User, password, host and port, database, and options of libpq; escapes are undone."""
    assert _parameters(SCHEME + rest) == said
    assert PostgreSQL(SCHEME + rest).address == SCHEME + rest.replace("p%40ss@", "***@").replace(
        ":p/w@", ":***@"
    ).replace(":p@", ":***@")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2", "mysql"])
def test_another_driver_is_refused_with_the_right_one(scheme: str) -> None:
    """And without the password."""
    with pytest.raises(
        LedgerError, match=r"^The ledger \S+://u:\*\*\*@h/db needs the driver psycopg: write postgresql\+psycopg://"
    ):
        PostgreSQL(f"{scheme}://u:secret@h/db")


def test_a_url_that_cannot_be_read_is_refused() -> None:
    """Before anything is asked of the network."""
    with pytest.raises(LedgerError, match=r"cannot be opened: its URL cannot be read"):
        PostgreSQL(f"{SCHEME}h:port/db").open(create=True)
