# SPDX-License-Identifier: Apache-2.0
"""All parties of a session on one machine, a process each, over the loopback interface without TLS; no ledger."""

from __future__ import annotations

import multiprocessing
import secrets
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from miners.secure.session.party import run_party
from miners.secure.session.protocols import Outcome
from miners.secure.session.session import Session
from pinq.secure_computation import Holding, Joining, Traffic

__all__ = ["Unpaid", "run_processes"]


class Unpaid:
    """A booking that keeps nothing, for rows that anybody may see."""

    def kept(self) -> list[str]:
        return []

    def noise_key(self, rounds: int) -> bytes:
        return secrets.token_bytes(32)

    def begin(self, run: str) -> None: ...

    def pay(self, number: int, nano: int, cells: int) -> None: ...

    def keep(self, number: int, opened: str) -> None: ...

    def finish(self) -> None: ...


def run_processes(
    session: Session,
    holdings: Sequence[Holding],
    lookups: Sequence[np.ndarray | None] = (),
    *,
    timeout: float | None = None,
) -> list[tuple[Outcome, Traffic]]:
    """Runs each party in a process of its own; arguments as in ``run_simulation``."""
    rows_of_parties = list(lookups) or [None] * len(holdings)
    with ProcessPoolExecutor(len(holdings), mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(_party, session, party, holding, rows)
            for party, (holding, rows) in enumerate(zip(holdings, rows_of_parties, strict=True))
        ]
        return [party.result(timeout) for party in running]


def _party(session: Session, party: int, holding: Holding, lookups: np.ndarray | None) -> tuple[Outcome, Traffic]:
    joining = Joining(party, None, wait=120, listen="127.0.0.1", progress=lambda text: None)
    return run_party(session, joining, holding, Unpaid(), lookups)
