# SPDX-License-Identifier: Apache-2.0
"""All parties of a session on one machine, a process each, over the loopback interface without TLS; no ledger."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from unittest import mock

import numpy as np

from pinq_secure.id3.task import Holding, Records
from pinq_secure.session.party import Joining, Outcome, Traffic, run_party
from pinq_secure.session.session import Session

__all__ = ["Timed", "Unpaid", "free_ports", "run_processes"]

FIRST_PORT, PORTS = 20_000, 12_000


@dataclass(frozen=True)
class Timed(Outcome):
    """The result of a party, and how many seconds it took to share the records."""

    sharing_seconds: float = 0.0


class Unpaid:
    """A booking that keeps nothing, for rows that anybody may see."""

    def kept(self) -> list[str]:
        return []

    def noise_key(self, rounds: int) -> bytes:
        return secrets.token_bytes(32)

    def pace(self) -> float:
        return 0.0

    def begin(self, run: str) -> None: ...

    def pay(self, number: int, place: str, nano: int, cells: int) -> None: ...

    def keep(self, number: int, opened: str) -> None: ...

    def finish(self) -> None: ...


def run_processes(
    session: Session,
    holdings: Sequence[Holding],
    lookups: Sequence[np.ndarray | None] = (),
    *,
    timeout: float | None = None,
) -> list[tuple[Timed, Traffic]]:
    """Runs each party in a process of its own; arguments as in ``run_simulation``."""
    rows_of_parties = list(lookups) or [None] * len(holdings)
    with ProcessPoolExecutor(len(holdings), mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(_party, session, party, holding, rows)
            for party, (holding, rows) in enumerate(zip(holdings, rows_of_parties, strict=True))
        ]
        return [party.result(timeout) for party in running]


def _party(session: Session, party: int, holding: Holding, lookups: np.ndarray | None) -> tuple[Timed, Traffic]:
    joining = Joining(party, None, wait=120, listen="127.0.0.1", progress=lambda text: None)
    share, seconds = Records.share, [0.0]

    async def timed(records: Records) -> None:
        began = time.perf_counter()
        await share(records)
        seconds.append(time.perf_counter() - began)

    # This process runs one party and nothing else.
    with mock.patch.object(Records, "share", timed):
        outcome, traffic = run_party(session, joining, holding, Unpaid(), lookups)
    return Timed(**vars(outcome), sharing_seconds=sum(seconds)), traffic


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
    raise OSError(f"{count} free ports are needed between {FIRST_PORT} and {FIRST_PORT + PORTS}.")
