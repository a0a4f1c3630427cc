# SPDX-License-Identifier: Apache-2.0
"""``run_party`` runs one party's side of a session, from the first connection to the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from miners.secure.mpc.mpyc_runtime import collecting_less, mpyc, run_to_end
from miners.secure.mpc.runtime import Runtime
from miners.secure.session.network import NOTHING_MORE, Network
from miners.secure.session.protocols import Role
from miners.secure.session.session import Session
from pinq.errors import PinqError, SessionError
from pinq.public.secure_computation import Holding, Identity, Traffic

__all__ = ["role_of", "run_party"]

T = TypeVar("T")
REASONS = {"budget": "its budget does not allow it", "not-authorised": "it has no valid grant"}


def role_of(
    session: Session,
    party: int,
    holding: Holding,
    lookups: np.ndarray | None,
    progress: Callable[[str], None] = lambda text: None,
) -> Role:
    """Makes a party's part in a session; new for each run.

    Args:
        session: What was agreed.
        party: The party's number.
        holding: Its rows.
        lookups: The rows that it looks up, shape (rows, attributes); None for none.
        progress: Called with a line of text for each step.
    """
    counts = [member.lookups for member in session.parties]
    return Role(session.growth(), session.task, holding, party, counts, lookups, progress=progress)


def run_party(
    session: Session,
    party: int,
    identity: Identity | None,
    protocol: Callable[[Runtime], Awaitable[T]],
    *,
    bits: int,
    agreed: Callable[[str], None] = lambda run: None,
    wait: float = 600,
    listen: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[T, Traffic]:
    """Runs this party's side of a session to its end.

    Args:
        session: What was agreed.
        party: Which of its parties this is.
        identity: This party's certificate and key; None only where the session has no certificates
            (all parties on one machine).
        protocol: What to compute, from a runtime.
        bits: The largest bit length that is compared.
        agreed: Called with the name of this run when all parties have the same session, and before
            anything leaves: the moment to charge.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on; by default all, or without certificates the one of this
            machine that the session names.
        progress: Called with a line of text for each step.

    Returns:
        What the protocol returned, and what was sent.

    Raises:
        SessionError: A party could not be reached, has another session, refused, or broke off.
            Other errors of ``agreed`` pass through.
    """
    mpyc()
    run = _Run(session, protocol, bits, agreed, wait, listen, progress)
    with collecting_less():
        try:
            return run_to_end(run.to_end(party, identity))
        except RuntimeError as error:
            # MPyC stops the event loop where a step fails, on a message that is none, say.
            raise SessionError(f"the computation broke off ({error}). {NOTHING_MORE}") from None


@dataclass(frozen=True)
class _Run(Generic[T]):
    """One run of a session; the fields are ``run_party``'s arguments."""

    session: Session
    protocol: Callable[[Runtime], Awaitable[T]]
    bits: int
    agreed: Callable[[str], None]
    wait: float
    listen: str | None
    progress: Callable[[str], None]

    async def to_end(self, party: int, identity: Identity | None) -> tuple[T, Traffic]:
        """Goes through all stages, or breaks off when the network fails; tells the others why."""
        network = Network(self.session, party, identity)
        work = network.loop.create_task(self._stages(network))
        reason: str | None = "it was interrupted"
        try:
            ends: set[asyncio.Future[object]] = {work, network.failure}  # type: ignore[arg-type]  # of two kinds
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                network.failure.result()
            result = work.result()
            reason = None
            return result
        except SessionError as error:
            reason = str(error)
            raise
        except PinqError as error:
            reason = REASONS.get(error.code, "it refused")
            raise
        finally:
            work.cancel()
            network.failure.cancel()
            await network.close(reason)

    async def _stages(self, network: Network) -> tuple[T, Traffic]:
        self.agreed(await network.join(self.wait, self.listen, self.progress))
        self.progress(f"all {len(self.session.parties)} parties agree on session {self.session.digest[:16]}")
        # From here on whoever is silent for too long ends the session for all.
        watching = network.loop.create_task(network.watch(self.session.timeout))
        try:
            runtime = await network.start(self.bits)
            began, busy = time.perf_counter(), time.process_time()
            result = await self.protocol(runtime)
            seconds, processor = time.perf_counter() - began, time.process_time() - busy
            traffic = Traffic(sum(peer.nbytes_sent for peer in network.peers.values()), seconds, processor)
            await network.finish()
        finally:
            watching.cancel()
        return result, traffic
