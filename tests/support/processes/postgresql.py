# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server for tests, if PostgreSQL is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes.ports import free_port

BIN = next((path for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
HERE = BIN is not None or shutil.which("initdb") is not None
SKIPPED = "NO POSTGRESQL: apt-get install postgresql to test the shared ledger"


def kind_of(ledger: str | None) -> str:
    """The kind of database of a ledger; None means the file beside the source."""
    return "PostgreSQL" if ledger is not None and ledger.startswith("postgresql") else "SQLite"


@contextmanager
def running() -> Iterator[str]:
    """A new server on a free port of this machine; for root it runs as the user postgres, because it refuses root."""
    where = (BIN or Path(shutil.which("initdb") or "").parent).resolve()
    root = os.geteuid() == 0
    home = Path(tempfile.mkdtemp(prefix="pinq-postgresql-"))
    if root:
        shutil.chown(home, "postgres")
    user = pwd.getpwnam("postgres").pw_uid if root else None
    port = free_port()

    def run(*command: str) -> None:
        subprocess.run(
            [str(where / command[0]), "-D", str(home / "data"), *command[1:]],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user,
            cwd=home,
        )

    try:
        run("initdb", "-A", "trust", "-U", "postgres")
        run(
            "pg_ctl", "-w", "-l", str(home / "log"), "-o", f"-p {port} -k {home} -c listen_addresses=127.0.0.1", "start"
        )
        yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    finally:
        if (home / "data" / "postmaster.pid").exists():
            run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)


def connected(url: str) -> Any:
    """A connection, for ``with``, in which each statement is committed by itself."""
    import psycopg

    return closing(psycopg.connect(url.replace("+psycopg", ""), autocommit=True))


def database(url: str) -> str:
    """Makes one more database of a running server; returns its URL."""
    name = f"fresh_{os.urandom(6).hex()}"
    _administer(url, f"CREATE DATABASE {name}")
    return url.rsplit("/", 1)[0] + f"/{name}"


def drop(url: str) -> None:
    """Removes a database of ``database``, even if it is in use, because each has some hundred files."""
    server, name = url.rsplit("/", 1)
    _administer(f"{server}/postgres", f"DROP DATABASE {name} WITH (FORCE)")


def _administer(url: str, command: str) -> None:
    with connected(url) as admin:
        admin.execute(command)
