# SPDX-License-Identifier: Apache-2.0
"""Rows of a database server, as an ADBC driver streams them: one query, read once.

The policy names the environment variable that holds the URI, never the URI: it has a password in it.
What a driver says of a failure may quote the URI, or a value, so it is not repeated.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pinq.engine.raw import declared_columns, quoted
from pinq.errors import PolicyError
from pinq.public.policy import AdbcRows, Policy

__all__ = ["streamed"]


@contextmanager
def streamed(policy: Policy) -> Iterator[pa.RecordBatchReader | None]:
    """Asks the database of a policy for its rows; None where the source is none.

    Of a table only the columns are asked for that the policy declares.

    Raises:
        PolicyError: The driver is not installed, the variable is not set, or the database refuses.
    """
    rows = policy.adbc
    if rows is None:
        yield None
        return
    connect, uri = _driver(rows), _uri(rows)
    names = ", ".join(quoted(name) for name in dict.fromkeys(declared_columns(policy)))
    try:
        connection = connect(uri)
    except Exception as error:  # each driver has its own classes
        raise _refused(policy, rows, "cannot be reached", error) from None
    with connection, connection.cursor() as cursor:
        try:
            cursor.execute(rows.query or f"SELECT {names} FROM {rows.table}")
            stream = cursor.fetch_record_batch()
        except Exception as error:
            raise _refused(policy, rows, "does not give the rows", error) from None
        yield stream


def _driver(rows: AdbcRows) -> Any:
    """What connects to a database."""
    try:
        return importlib.import_module(f"{rows.driver}.dbapi").connect
    except ImportError:
        package = rows.driver.replace("_", "-")
        raise PolicyError(f"The driver {rows.driver!r} is not installed: pip install {package}.") from None


def _uri(rows: AdbcRows) -> str:
    if not (uri := os.environ.get(rows.uri_env)):
        raise PolicyError(f"The environment variable {rows.uri_env} is not set; it must hold the URI of the database.")
    return uri


# Standard SQL's and PostgreSQL's codes of what a policy can have wrong; none of them tells of rows.
_MEANT = {
    "42P01": "there is no such table",
    "42S02": "there is no such table",
    "42703": "there is no such column",
    "42501": "the user may not read it",
    "28P01": "the password is wrong",
    "28000": "the user may not connect",
    "3D000": "there is no such database",
}


def _refused(policy: Policy, rows: AdbcRows, what: str, error: Exception) -> PolicyError:
    state = getattr(error, "sqlstate", None)
    meant = f": {_MEANT[state]}" if state in _MEANT else ""
    code = f" (SQLSTATE {state}{meant})" if isinstance(state, str) and state.isalnum() else ""
    return PolicyError(
        f"The database of {policy.dataset!r} {what}{code}. Try {rows.uri_env}, the rights of its user and the "
        f"{'query' if rows.query else 'table'} with another client; what the driver says may quote a password, so it "
        "is not shown."
    )
