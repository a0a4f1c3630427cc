# SPDX-License-Identifier: Apache-2.0
"""All parties on this machine: in one process for trying, or in a process each that talk over the loopback interface."""

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

from miners.secure.mpyc_runtime import simulate
from miners.secure.network import Traffic
from miners.secure.protocols import Outcome, Part
from miners.secure.session import Session
from miners.secure.task import Holding
from pinq.errors import SessionError

__all__ = ["Assignment", "free_ports", "run_processes", "run_simulation"]

FIRST_PORT, PORTS = 20_000, 12_000


@dataclass(frozen=True)
class Assignment:
    """What one process on this machine is told to do."""

    session: Session
    party: int
    holding: Holding
    mine: np.ndarray | None = None


def run_simulation(
    session: Session, holdings: Sequence[Holding], mine: Sequence[np.ndarray | None] = ()
) -> list[Outcome]:
    """What each party would learn, computed in this process alone: the same steps, protecting nothing.

    All rows count as one party's, and rows that are looked up are looked up by it; noise is drawn
    once for each party.
    """
    rows = [
        np.zeros((0, len(session.task.sizes)), dtype=np.int64) if one is None else one
        for one in (mine or [None] * len(holdings))
    ]
    together = Part(
        session.protocol,
        session.task.merged(),
        session.rule(),
        Holding.joined(holdings),
        0,
        lookups=[sum(len(one) for one in rows)],
        mine=np.concatenate(rows),
        plays=len(holdings),
    )
    found: Outcome = simulate(together.run, together.rule.bits)
    answers = (
        np.split(found.looked_up, np.cumsum([len(one) for one in rows])[:-1])
        if len(found.looked_up)
        else [found.looked_up] * len(rows)
    )
    return [replace(found, looked_up=answer) for answer in answers]


def run_processes(
    session: Session,
    holdings: Sequence[Holding],
    mine: Sequence[np.ndarray | None] = (),
    *,
    timeout: float | None = None,
) -> list[tuple[Outcome, Traffic]]:
    """Runs each party in a process of its own, over the loopback interface without TLS.

    Raises:
        SessionError: A process failed; the text is what it said.
    """
    looked = list(mine) or [None] * len(holdings)
    jobs = [
        Assignment(session, party, holding, rows)
        for party, (holding, rows) in enumerate(zip(holdings, looked, strict=True))
    ]
    command = [sys.executable, "-m", "miners.secure.member"]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in jobs
    ]
    try:
        for process, job in zip(running, jobs, strict=True):
            assert process.stdin is not None
            process.stdin.write(pickle.dumps(job))
            process.stdin.close()
            process.stdin = None
        ended = [process.communicate(timeout=timeout) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process, (_, said) in zip(running, ended, strict=True):
        if process.returncode:
            raise SessionError(
                said.decode(errors="replace").strip().rpartition("\n")[2]
                or f"a party ended with status {process.returncode}."
            )
    return [pickle.loads(out) for out, _ in ended]  # our own processes wrote it


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses; each process looks in another place first, below those that systems give to outgoing connections."""
    found: list[int] = []
    for offset in range(PORTS):
        port = FIRST_PORT + (10 * os.getpid() + offset) % PORTS
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise SessionError(f"{count} free ports are needed between {FIRST_PORT} and {FIRST_PORT + PORTS}.")
