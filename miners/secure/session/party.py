# SPDX-License-Identifier: Apache-2.0
"""``Role`` runs one party's part in a session, from its own rows to what it learns.

``run_party`` does so among processes, from the first connection to the end; ``run_simulation`` runs
all parties in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from miners.fitted.tree import Tree
from miners.secure.id3.public_tree import Progress, grow_public
from miners.secure.id3.rules import ExactRules, Rule
from miners.secure.id3.secret_tree import classify_all, grow_paths, grow_secret
from miners.secure.id3.sources import LocalTables, Records, Source
from miners.secure.id3.task import Branch, Task, to_tree
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.mpyc_runtime import MPyC, alone, mpyc, run_to_end, simulate, threshold_of
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.session.network import AGAIN, Network
from miners.secure.session.session import Session
from miners.secure.sums.joint import fit_jointly
from miners.secure.sums.shares import SharedSums
from pinq.errors import PinqError, QueryError, SessionError
from pinq.public.epsilon import Epsilon
from pinq.secure_computation import Booking, Holding, Joining, Traffic

if TYPE_CHECKING:
    from miners.federated.scorecard import HoldersCardMiner
    from miners.federated.topdown import FederatedTopDown

__all__ = ["Growth", "Outcome", "Role", "run_party", "run_simulation"]


@dataclass(frozen=True)
class Outcome:
    """What a party learned.

    Attributes:
        tree: The public tree; None where it stays secret.
        branches: The same over numbered attributes, of ID3.
        depths: SID3T: the length of the path to each leaf.
        looked_up: The classes of the rows that this party looked up, by number.
        scorecard: The fitted miner of a scorecard.
        opened: Everything that was opened to this party, in order.
        sharing_seconds: Of the run, the time that sharing the records took.
    """

    tree: Tree | None = None
    branches: tuple[Branch, ...] | None = None
    depths: tuple[int, ...] | None = None
    looked_up: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scorecard: HoldersCardMiner | None = None
    opened: tuple[Opened, ...] = ()
    sharing_seconds: float = 0.0


@dataclass(frozen=True)
class Role:
    """A party's part; new for each run.

    Attributes:
        session: What was agreed.
        holding: This party's rows.
        party: Its number.
        own_lookups: The rows that it looks up, the value of each attribute; shape (rows,
            attributes).
        plays: How many parties this process is: 1, or all in a simulation.
        progress: Called with a line of text for each step.
    """

    session: Session
    holding: Holding
    party: int = 0
    own_lookups: np.ndarray | None = None
    plays: int = 1
    progress: Progress = lambda text: None

    async def run(self, side: MPyC, rounds: Rounds | None = None) -> Outcome:
        """Takes part, to the end.

        Args:
            side: Adds up, for a miner of sums; else this party's side of MPyC.
            rounds: Asks what has noise; by default those of a simulation.
        """
        session, asked = self.session, rounds or Rounds()
        miner, task = session.miner(), session.task
        if miner is not None:
            fitted = await fit_jointly(
                miner,
                task,
                self.holding,
                side,
                asked,
                colluding=session.colluding_parties,
                plays=self.plays,
                progress=self.progress,
            )
            if session.protocol == "topdown":
                return Outcome(cast("FederatedTopDown", fitted).tree_, opened=tuple(asked.opened))
            return Outcome(scorecard=cast("HoldersCardMiner", fitted), opened=tuple(asked.opened))
        lookups = [member.lookups for member in session.parties]
        if self.plays > 1:  # all rows are one party's, and so is all that is looked up
            task, lookups = task.merged(), [sum(lookups)]
        arithmetic = Arithmetic(side, session.bits, asked, self.plays)
        own = np.zeros((0, len(task.sizes)), dtype=np.int64) if self.own_lookups is None else self.own_lookups
        growth = Growth(arithmetic, task, session.rule(), self.holding, self.party, self.progress)
        return await growth.learned(session.protocol, lookups, own)


@dataclass(frozen=True)
class Growth:
    """One party's side of ID3, in each of its forms."""

    arithmetic: Arithmetic
    task: Task
    rule: Rule
    holding: Holding
    party: int = 0
    progress: Progress = lambda text: None

    async def learned(self, protocol: str, lookups: Sequence[int], own_lookups: np.ndarray) -> Outcome:
        """Grows the tree; a secret one is used to look rows up."""
        arithmetic, task, opened = self.arithmetic, self.task, self.arithmetic.opened
        if protocol == "sid3p":
            branches = await self._public(LocalTables(arithmetic, task, self.holding))
            return Outcome(to_tree(task, branches), branches, opened=tuple(opened))
        records = Records(arithmetic, task, self.holding, self.party)
        if protocol == "sid3":
            branches = await self._public(records)
            return Outcome(to_tree(task, branches), branches, opened=tuple(opened), sharing_seconds=records.seconds)
        await records.share()
        if protocol == "sid3t":
            tree = await grow_secret(arithmetic, task, records, cast(ExactRules, self.rule), self.progress)
        else:
            tree = await grow_paths(arithmetic, task, records)
        classes = await classify_all(arithmetic, task, tree, lookups, own_lookups, self.party)
        return Outcome(depths=tree.depths, looked_up=classes, opened=tuple(opened), sharing_seconds=records.seconds)

    async def _public(self, source: Source) -> tuple[Branch, ...]:
        return tuple(await grow_public(self.arithmetic, self.task, source, self.rule, self.progress))


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
            paid, whole = str(Epsilon(self._paid)), str(Epsilon(self._session.nano))
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

    Raises:
        QueryError: A party has more rows than the session admits.
    """
    for member, holding in zip(session.parties, holdings, strict=True):
        if holding.rows > member.rows:
            raise QueryError(
                f"the table of party {member.name} has more rows than `rows` says, {member.rows:,}. "
                "Declare as many as any party may have."
            )
    none = np.zeros((0, len(session.task.sizes)), dtype=np.int64)
    looked_up = [none if rows is None else rows for rows in (lookups or [None] * len(holdings))]
    together = Role(session, Holding.joined(holdings), own_lookups=np.concatenate(looked_up), plays=len(holdings))
    if session.miner() is None:
        outcome = simulate(together.run, session.bits)
    else:
        outcome = run_to_end(together.run(_alone))
    if not len(outcome.looked_up):
        return [outcome] * len(holdings)
    # Parties that look up 2, 0 and 1 rows: cuts at 2 and at 2 leave the second with none.
    by_party = np.split(outcome.looked_up, np.cumsum([len(rows) for rows in looked_up])[:-1])
    return [replace(outcome, looked_up=classes) for classes in by_party]


async def _alone(numbers: np.ndarray) -> np.ndarray:
    """Adds up at the one party there is."""
    return numbers
