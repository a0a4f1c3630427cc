# SPDX-License-Identifier: Apache-2.0
"""``run_simulation`` runs all parties in this process."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from miners.secure.mpc.mpyc_runtime import run_to_end, simulate
from miners.secure.session.protocols import Outcome, Role
from miners.secure.session.session import Session
from pinq.errors import SessionError
from pinq.secure_computation import Holding

__all__ = ["free_ports", "run_simulation"]

FIRST_PORT, PORTS = 20_000, 12_000


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
    if together.growth.summed:
        outcome = run_to_end(together.run(_Alone()))
    else:
        outcome = simulate(together.run, together.growth.bits)
    if not len(outcome.looked_up):
        return [outcome] * len(holdings)
    # Parties that look up 2, 0 and 1 rows: cuts at 2 and at 2 leave the second with none.
    by_party = np.split(outcome.looked_up, np.cumsum([len(rows) for rows in looked_up])[:-1])
    return [replace(outcome, looked_up=classes) for classes in by_party]


class _Alone:
    """Adds up at the one party there is."""

    async def add(self, numbers: np.ndarray) -> np.ndarray:
        return numbers


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
