# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL: the same log, shared by processes on any machine. Skipped where no server is installed."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinq.composition import Demand
from pinq.errors import BudgetExceeded
from pinq.ledger import Ledger
from pinq.parts import Block, Part, PartSet

BIN = next((path for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
DEMAND = Demand.of(PartSet([Block(Part())]))

pytestmark = pytest.mark.skipif(BIN is None and shutil.which("initdb") is None, reason="NO POSTGRESQL: apt-get install postgresql to test the shared ledger")


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fresh server on a free port of this machine; as root it runs as the user postgres, for it refuses root."""
    where = (BIN or Path(shutil.which("initdb") or "").parent).resolve()
    root = os.geteuid() == 0
    home = Path("/tmp") / f"pinq-postgresql-{os.getpid()}"
    home.mkdir()
    if root:
        shutil.chown(home, "postgres")
    user = pwd.getpwnam("postgres").pw_uid if root else None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(*command: str) -> None:
        subprocess.run([str(where / command[0]), "-D", str(home / "data"), *command[1:]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, cwd=home)

    try:
        run("initdb", "-A", "trust", "-U", "postgres")
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", f"-p {port} -k {home} -c listen_addresses=127.0.0.1", "start")
        yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    finally:
        if (home / "data" / "postmaster.pid").exists():
            run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)


def ask(url: str) -> int:
    ledger, answered = Ledger(url, "shared"), 0
    while True:
        try:
            ledger.charge("ana", f"{os.getpid()}-{answered}", DEMAND, 10**7, {})
        except BudgetExceeded:
            ledger.close()
            return answered
        answered += 1


def test_four_processes_share_one_grant(url: str) -> None:
    """Exactly what was granted is answered, the chain verifies, and an answer is kept."""
    ledger = Ledger(url, "shared")
    ledger.declare("policy", 10**10, {})
    ledger.grant("ana", 10**9)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert sum(pool.map(ask, [url] * 4, chunksize=1)) == 100
    assert ledger.grants()["ana"].spent == 10**9
    ledger.extend("ana", 10**7)
    ledger.charge("ana", "last", DEMAND, 10**7, {})
    assert ledger.answer("ana", "last", "[1]") == "[1]"
    assert ledger.answer("ana", "last", "[2]") == "[1]"
    assert ledger.verify() == 3 + 100 + 4 + 3  # created, policy, grant; charges; each process refused once; extend, charge, answer
    assert "postgres" in repr(ledger)
    ledger.close()
    again = Ledger(url, "shared")
    assert again.grants()["ana"].spent == 10**9 + 10**7
    again.close()
