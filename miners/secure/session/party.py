# SPDX-License-Identifier: Apache-2.0
"""``run_party`` runs one party's side of a session, from the first connection to the end."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from miners.secure.mpc.mpyc_runtime import alone, mpyc, run_to_end, threshold_of
from miners.secure.mpc.rounds import Rounds
from miners.secure.session.network import AGAIN, Network
from miners.secure.session.protocols import Outcome, Role
from miners.secure.session.session import Session
from miners.secure.sums.shares import SharedSums
from pinq.errors import PinqError, SessionError
from pinq.public.epsilon import show
from pinq.secure_computation import Booking, Holding, Joining, Traffic

__all__ = ["run_party"]

REASONS = {"budget": "its budget does not allow it", "not-authorised": "it has no valid grant"}


def run_party(
    session: Session, joining: Joining, holding: Holding, booking: Booking, lookups: np.ndarray | None = None
) -> tuple[Outcome, Traffic]:
    """Runs this party's side of a session to its end.

    Args:
        session: What was agreed.
        joining: Which of its parties this is, and how it joins.
        holding: Its rows.
        booking: Its ledger.
        lookups: The rows that it looks up; None for none.

    Returns:
        What it learned, and what was sent.

    Raises:
        SessionError: A party could not be reached, has another session or version, refused, or
            broke off. Errors of ``booking`` pass through.
    """
    role = Role(session, holding, joining.party, lookups, progress=joining.progress)
    if session.miner() is None:
        mpyc()
    try:
        return run_to_end(_Run(session, joining, role, booking).to_end())
    except RuntimeError:  # MPyC stops the event loop where a message does not fit its step
        raise SessionError(
            f"the computation broke off: a message does not fit its step. Do all parties run the same version? {AGAIN}."
        ) from None


class _Run:
    """One run of a session: what ``Rounds`` needs of the network and of the ledger."""

    def __init__(self, session: Session, joining: Joining, role: Role, booking: Booking) -> None:
        self._session, self._joining, self._role, self._booking = session, joining, role, booking
        self.keep, self._paid = booking.keep, 0

    async def to_end(self) -> tuple[Outcome, Traffic]:
        """Goes through all stages, or breaks off when the network fails; tells the others why."""
        joining, kept = self._joining, self._booking.kept()
        self._network = network = Network(self._session, joining.party, joining.identity, kept)
        reason: str | None = "it was interrupted"
        try:
            result = await self._stages()
            reason = None
            return result
        except asyncio.CancelledError:
            if network.failure is None:
                raise
            reason = str(network.failure)
            raise network.failure from None
        except PinqError as error:
            reason = str(error) if isinstance(error, SessionError) else REASONS.get(error.code, "it refused")
            raise
        finally:
            await network.close(reason)

    async def meet(self, number: int, place: str) -> None:
        while wait := self._booking.pace():  # before the others hear of the round, so nobody has paid for it
            self._joining.progress(f"the grant allows no more questions this minute: waiting {wait:.0f} s")
            await self._network.pause(wait)
        await self._network.meet(number, place)

    def pay(self, number: int, nano: int, cells: int) -> None:
        self._booking.pay(number, nano, cells)
        self._paid += nano
        if nano:
            paid, whole = show(self._paid), show(self._session.nano)
            self._joining.progress(f"round {number + 1}: {cells:,} values, epsilon {paid} of {whole} paid so far")

    async def _stages(self) -> tuple[Outcome, Traffic]:
        network, joining, session = self._network, self._joining, self._session
        run, kept = await network.join(joining.wait, joining.listen, joining.progress)
        self._booking.begin(run)
        joining.progress(f"all {len(session.parties)} parties agree on session {session.digest[:16]}")
        if kept:
            joining.progress(f"{len(kept)} rounds were opened before, and are not paid again")
        # From here on a session where nobody moves ends for all.
        watching = network.loop.create_task(network.watch(session.timeout))
        try:
            await network.ready()
            began, busy = time.perf_counter(), time.process_time()
            rounds = Rounds(self, kept, self._booking.noise_key(len(kept)))
            if session.miner() is None:
                with alone():
                    outcome = await self._role.run(await network.computing(session.bits), rounds)
            else:
                threshold = threshold_of(len(session.parties))
                sums = SharedSums(joining.party, network.peers, threshold, session.bits)
                outcome = await self._role.run(sums.add, rounds)
            seconds, processor = time.perf_counter() - began, time.process_time() - busy
            traffic = Traffic(sum(peer.nbytes_sent for peer in network.peers.values()), seconds, processor)
            self._booking.finish()
            await network.finish(joining.progress)
        finally:
            watching.cancel()
        return outcome, traffic
