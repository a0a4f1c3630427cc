# SPDX-License-Identifier: Apache-2.0
"""``run_simulation`` and ``run_processes`` run all parties on this machine."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from miners.secure.mpc.mpyc_runtime import simulate
from miners.secure.session.protocols import Outcome, Role
from miners.secure.session.session import Session
from pinq.errors import SessionError
from pinq.public.secure_computation import Holding, Traffic

__all__ = ["Assignment", "free_ports", "run_processes", "run_simulation"]

FIRST_PORT, PORTS = 20_000, 12_000


@dataclass(frozen=True)
class Assignment:
    """What one process on this machine is told to do; the fields are ``role_of``'s arguments."""

    session: Session
    party: int
    holding: Holding
    lookups: np.ndarray | None = None


def run_simulation(
    session: Session, holdings: Sequence[Holding], lookups: Sequence[np.ndarray | None] = ()
) -> list[Outcome]:
    """Computes what each party would learn, in this process alone. Protects nothing.

    All rows count as one party's, and rows that are looked up are looked up by it; noise is drawn
    once for each party.

    Args:
        session: What all agree on.
        holdings: The rows of each party.
        lookups: The codes of the rows that each party looks up, or None.
    """
    none = np.zeros((0, len(session.task.sizes)), dtype=np.int64)
    looked_up = [none if rows is None else rows for rows in (lookups or [None] * len(holdings))]
    together = Role(
        session.growth(),
        session.task.merged(),
        Holding.joined(holdings),
        0,
        lookups=[sum(len(rows) for rows in looked_up)],
        own_lookups=np.concatenate(looked_up),
        plays=len(holdings),
    )
    outcome = simulate(together.run, together.growth.bits)
    if not len(outcome.looked_up):
        return [outcome] * len(holdings)
    # Parties that look up 2, 0 and 1 rows: cuts at 2 and at 2 leave the second with none.
    by_party = np.split(outcome.looked_up, np.cumsum([len(rows) for rows in looked_up])[:-1])
    return [replace(outcome, looked_up=classes) for classes in by_party]


def run_processes(
    session: Session,
    holdings: Sequence[Holding],
    lookups: Sequence[np.ndarray | None] = (),
    *,
    timeout: float | None = None,
) -> list[tuple[Outcome, Traffic]]:
    """Runs each party in a process of its own, over the loopback interface without TLS.

    Arguments as in ``run_simulation``.

    Raises:
        SessionError: A process failed; the text is what it said.
    """
    rows_of_parties = list(lookups) or [None] * len(holdings)
    jobs = [
        Assignment(session, party, holding, rows)
        for party, (holding, rows) in enumerate(zip(holdings, rows_of_parties, strict=True))
    ]
    results = _run_all([pickle.dumps(job) for job in jobs], timeout)
    return [pickle.loads(written) for written in results]  # our own processes wrote it


def _run_all(assignments: Sequence[bytes], timeout: float | None) -> list[bytes]:
    """Starts ``miners.secure.session.member`` for each assignment; returns what each wrote."""
    command = [sys.executable, "-m", "miners.secure.session.member"]
    pipe = subprocess.PIPE
    # All start before any is waited for: none can join alone.
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) for _ in assignments]
    try:
        for process, assignment in zip(running, assignments, strict=True):
            assert process.stdin is not None
            process.stdin.write(assignment)
            process.stdin.close()
            process.stdin = None
        results = [process.communicate(timeout=timeout) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(running, results, strict=True):
        if process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise SessionError(last or f"a party results with status {process.returncode}.")
    return [written for written, _ in results]


def free_ports(count: int) -> list[int]:
    """Finds ports of this machine that nobody uses.

    Each process begins to look elsewhere, below the ports that systems give to outgoing
    connections.
    """
    ports: list[int] = []
    for offset in range(PORTS):
        # Neighbouring processes begin ten ports apart, and each counts upwards from there.
        port = FIRST_PORT + (10 * os.getpid() + offset) % PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise SessionError(f"{count} free ports are needed between {FIRST_PORT} and {FIRST_PORT + PORTS}.")
