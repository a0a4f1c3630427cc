# SPDX-License-Identifier: Apache-2.0
"""One party's part in a session, from its own rows to its result; ``run_simulation`` runs all in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, cast

import numpy as np

from miners.fitted.tree import Tree
from pinq.errors import PinqError, QueryError, SessionError
from pinq.public.epsilon import Epsilon
from pinq_secure.id3.public_tree import ExactRules, Progress, Rule, grow_public
from pinq_secure.id3.secret_tree import classify_all, classify_by_path, classify_by_tree, grow_paths, grow_secret
from pinq_secure.id3.task import Holding, LocalTables, Records, Task
from pinq_secure.mpc.arithmetic import ALONE, Arithmetic, Link, Sharing, run_to_end
from pinq_secure.mpc.rounds import TICK, Company, Opened, Rounds
from pinq_secure.session.network import Identity, Network
from pinq_secure.session.session import Session
from pinq_secure.sums import Miner, fit_jointly


@dataclass(frozen=True)
class Outcome:
    """The result of a party.

    Attributes:
        tree: The public tree; None if it stays secret.
        depths: The length of the path to each leaf of a secret tree (sid3t).
        looked_up: The class of each row that this party looked up, as its number.
        scorecard: The fitted miner of a scorecard.
        opened: All values that were opened to this party, in order.
    """

    tree: Tree | None = None
    depths: tuple[int, ...] | None = None
    looked_up: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scorecard: Miner | None = None
    opened: tuple[Opened, ...] = ()


async def take_part(
    session: Session,
    link: Link,
    holding: Holding,
    own_lookups: np.ndarray | None = None,
    *,
    rounds: Rounds | None = None,
    plays: int = 1,
    progress: Progress = lambda text: None,
) -> Outcome:
    """Runs one party's part of a protocol; returns its result.

    Args:
        session: The agreement.
        link: The link to the other parties.
        holding: This party's rows.
        own_lookups: The attribute values of the rows that it looks up, shape (rows, attributes).
        rounds: The rounds of queries with noise; by default those of a simulation.
        plays: The number of parties in this process: 1, or all.
        progress: A function that is called with a line of text for each step.
    """
    all_rounds, task, miner = rounds or Rounds(), session.task, session.miner()
    if miner is not None:
        sums = Sharing(link, session.bits + 1).sums
        pooling = session.colluding_parties
        fitted = await fit_jointly(
            miner, task, holding, sums, all_rounds, colluding=pooling, plays=plays, progress=progress
        )
        card = fitted if session.protocol == "scorecard" else None
        return Outcome(getattr(fitted, "tree_", None), scorecard=card, opened=tuple(all_rounds.opened))
    lookups = [member.lookups for member in session.parties]
    if plays > 1:  # one party stands for all: it has all rows, and looks up all rows
        task, lookups = replace(task, rows=(task.max_rows,)), [sum(lookups)]
    arithmetic = Arithmetic(link, session.bits, all_rounds, plays)
    return await grow(arithmetic, task, session.rule(), holding, session.protocol, lookups, own_lookups, progress)


async def grow(
    arithmetic: Arithmetic,
    task: Task,
    rule: Rule,
    holding: Holding,
    protocol: str,
    lookups: Sequence[int] = (),
    own_lookups: np.ndarray | None = None,
    progress: Progress = lambda text: None,
) -> Outcome:
    """Grows the tree of one of ID3's protocols; a secret tree only classifies rows."""
    opened = arithmetic.rounds.opened
    records = Records(arithmetic, task, holding)
    if protocol in ("sid3p", "sid3"):
        source = records if protocol == "sid3" else LocalTables(arithmetic, task, holding)
        return Outcome(await grow_public(arithmetic, task, source, rule, progress), opened=tuple(opened))
    await records.share()
    depths = None
    if protocol == "sid3t":
        levels = await grow_secret(arithmetic, task, records, cast(ExactRules, rule), progress)
        depths = tuple(depth for depth, (stops, _, _) in enumerate(levels) for _ in range(stops.sum()))
        classify = partial(classify_by_tree, arithmetic, task, levels)
    else:
        classify = partial(classify_by_path, arithmetic, task, await grow_paths(arithmetic, task, records))
    classes = await classify_all(arithmetic, task, classify, lookups, own_lookups)
    return Outcome(depths=depths, looked_up=classes, opened=tuple(opened))


@dataclass(frozen=True)
class Joining:
    """The parameters with which a party joins a session.

    Attributes:
        identity: Its certificate and key; None if the session names no certificates.
        wait: The seconds within which all parties must join.
        listen: The address on which it accepts other parties; None for all, or for the session's local host.
        progress: A function that gets a line of text for each step.
    """

    party: int
    identity: Identity | None
    wait: float
    listen: str | None
    progress: Callable[[str], None]


@dataclass(frozen=True)
class Traffic:
    """The bytes that a party sent during the protocol, and its time, including the sharing of inputs.

    Attributes:
        processor_seconds: The processor seconds of this party's process.
    """

    bytes_sent: int
    seconds: float
    processor_seconds: float


class Booking(Protocol):
    """This party's ledger, from which one run of a session is paid.

    With noise, a session is one run: after an interruption it continues.
    """

    def kept(self) -> list[str]:
        """The opened values of all rounds so far, in order; see ``keep``."""

    def noise_key(self, rounds: int) -> bytes:
        """The key of this party's noise, constant until the run is finished.

        Args:
            rounds: The number of rounds that some party has stored.
        """

    def pace(self) -> float:
        """The seconds until a further round may be charged."""

    def begin(self, run: str) -> None:
        """Records that all parties agree on this run; a run without charges is logged too."""

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        """Charges a round, numbered from 0, unless it was charged before."""

    def keep(self, number: int, opened: str) -> None:
        """Stores the opened values of a charged round, unless they were stored before."""

    def finish(self) -> None:
        """Records that the last round was opened."""


REASONS = {"budget": "its budget does not allow it", "not-authorised": "it has no valid grant"}


def run_party(
    session: Session, joining: Joining, holding: Holding, booking: Booking, lookups: np.ndarray | None = None
) -> tuple[Outcome, Traffic]:
    """Runs this party's side of a session to its end; returns the result and the traffic.

    Raises:
        SessionError: A party could not be reached, has another session or version, refused, or
            broke off. Errors of ``booking`` pass through.
    """
    return run_to_end(_Run(session, joining, holding, booking, lookups).to_end())


class _Run(Company):
    """One run of a session: the network and the ledger for ``Rounds``."""

    def __init__(
        self, session: Session, joining: Joining, holding: Holding, booking: Booking, lookups: np.ndarray | None
    ) -> None:
        self._session, self._joining, self._booking = session, joining, booking
        self._holding, self._lookups = holding, lookups
        self.tick, self._paid = TICK, 0

    async def to_end(self) -> tuple[Outcome, Traffic]:
        """Runs all stages; after a failure it sends the reason to the other parties."""
        joining, session = self._joining, self._session
        self._network = network = Network(session, joining.party, joining.identity, self._booking.kept())
        reason: str | None = "it was interrupted"
        try:
            run, earlier = await network.join(joining.wait, joining.listen, joining.progress)
            self._booking.begin(run)
            joining.progress(f"all {len(session.parties)} parties agree on session {session.digest[:16]}")
            if earlier:
                joining.progress(f"{len(earlier)} rounds were opened before, and are not paid again")
            await network.ready()
            began, busy = time.perf_counter(), time.process_time()
            outcome = await take_part(
                session,
                network,
                self._holding,
                self._lookups,
                rounds=Rounds(self, earlier, self._booking.noise_key(len(earlier))),
                progress=joining.progress,
            )
            traffic = Traffic(network.sent, time.perf_counter() - began, time.process_time() - busy)
            self._booking.finish()
            await network.finish(joining.progress)
            reason = None
            return outcome, traffic
        except PinqError as error:
            reason = str(error) if isinstance(error, SessionError) else REASONS.get(error.code, "it refused")
            raise
        finally:
            await network.close(reason)

    async def meet(self, number: int, place: str) -> None:
        while wait := self._booking.pace():  # before the round is announced, so no other party has paid for it
            self._joining.progress(f"the grant allows no more questions this minute: waiting {wait:.0f} s")
            await self._network.pause(wait)
        await self._network.meet(number, place)

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        self._booking.pay(number, place, nano, cells)
        self._paid += nano
        if nano:
            paid, whole = str(Epsilon(self._paid)), str(Epsilon(self._session.nano))
            self._joining.progress(f"round {number + 1}: {cells:,} opened, epsilon {paid} of {whole} paid so far")

    def keep(self, number: int, opened: str) -> None:
        self._booking.keep(number, opened)


def run_simulation(
    session: Session, holdings: Sequence[Holding], lookups: Sequence[np.ndarray | None] = ()
) -> list[Outcome]:
    """Computes the results of all parties in this process alone, without protection.

    One party has all rows and all lookups; noise is drawn once for each party.

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
    together, all_lookups = Holding.joined(holdings), np.concatenate(looked_up)
    outcome = run_to_end(take_part(session, ALONE, together, all_lookups, plays=len(holdings)))
    if not len(outcome.looked_up):
        return [outcome] * len(holdings)
    # Parties that look up 2, 0 and 1 rows: cuts at 2 and at 2 leave the second with none.
    by_party = np.split(outcome.looked_up, np.cumsum([len(rows) for rows in looked_up])[:-1])
    return [replace(outcome, looked_up=classes) for classes in by_party]
