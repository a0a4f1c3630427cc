# SPDX-License-Identifier: Apache-2.0
"""The provider's side of a computation among several parties: what its policy allows, its own rows, its own ledger.

::

    session and policy fit ── affordable? ── encode ── all agree ── charge or log ── take part ── result
    (public facts)            (ledger)      (engine)  (hash)       (ledger)          (shares only)

Privacy:
    With noise, what a session opens is epsilon-DP for the rows of every party together
    (miners/secure/rules.py) in the session's adjacency and privacy unit, which must be the
    policy's; it is charged to the grant of ``analyst`` before anything leaves, by the rule that
    charges queries. Without noise the exact result leaks, which no epsilon describes: the policy
    must say ``secure: exact``, and the log gets an event instead of a charge. Refusals follow from
    session, policy and ledger, never from rows that the policy admits: a table of more than its
    ``max_rows``, for which no claim is made and no field is sized, never takes part.
    Held by: tests/e2e/test_secure_session.py, tests/integration/test_secure_provider.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miners.secure.network import Identity, Traffic, run_party
from miners.secure.protocols import Part
from miners.secure.session import Member, Session, first_certificate, load_session
from miners.secure.task import Holding, Task
from pinq.engine import ListRequest, open_engine
from pinq.errors import BudgetExceeded, PolicyError, QueryError, SessionError
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.provider.local import open_ledger
from pinq.public.epsilon import exact, show
from pinq.public.parts import Block, PartSet
from pinq.public.parts import Part as Rows
from pinq.public.policy import Policy, load_policy
from pinq.public.specs import Axis, Values, bind

__all__ = ["Result", "join", "require_fit"]


@dataclass(frozen=True)
class Result:
    """What this party learned.

    Attributes:
        run: Names this run of the session in the ledger of each party.
        tree: The public tree as JSON (``miners.Tree.from_json``); None where it stays secret.
        depths: SID3T: the lengths of paths.
        classes: The classes of the rows that this party looked up.
        traffic: What it sent, and how long the protocol took.
    """

    run: str
    tree: str | None
    depths: tuple[int, ...] | None
    classes: tuple[Any, ...]
    traffic: Traffic

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "run": self.run,
            "tree": None if self.tree is None else json.loads(self.tree),
            "depths": self.depths,
            "classes": list(self.classes),
            "bytes_sent": self.traffic.bytes_sent,
            "seconds": round(self.traffic.seconds, 3),
        }


def join(
    session: str | os.PathLike[str] | Session,
    party: str,
    policy: str | os.PathLike[str] | Policy,
    *,
    agree: str,
    analyst: str | None = None,
    identity: Identity | None = None,
    lookups: Any = None,
    data: Any = None,
    wait: float = 600,
    listen: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """Takes part in a session with a policy's rows.

    Args:
        session: A session file, or a loaded one.
        party: Which of its parties this is: its number or name.
        policy: Whose rows; reviewed.
        agree: The session's hash (16 hexadecimal digits or more) as this party was told and has
            checked it.
        analyst: With noise: whose grant is charged.
        identity: This party's certificate and key; needed where the session names certificates.
        lookups: SID3T and SID3S: a table of rows to classify.
        data: An Arrow table or pandas frame in place of the policy's source.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on; by default all, or without certificates the one of this
            machine that the session names.
        progress: Told what happens.

    Raises:
        SessionError: The hash is another one, or the parties could not agree or finish.
        PolicyError: The policy does not fit the session, or does not permit it.
        BudgetExceeded, NotAuthorised, NotAllowed: The ledger refused; nothing left this party.
    """
    agreed_to = session if isinstance(session, Session) else load_session(Path(session))
    loaded, number = load_policy(policy), agreed_to.number(party)
    if len(agree) < 16 or not agreed_to.digest.startswith(agree.lower()):
        raise SessionError(
            f"the session's hash is {agreed_to.digest}, and not {agree!r}. Compare with the other parties which file is meant; give at least 16 digits."
        )
    require_fit(agreed_to, number, loaded)
    if (agreed_to.parties[number].certificate is None) != (identity is None):
        asked = (
            "names certificates: give this party's certificate and key"
            if identity is None
            else "names no certificates, so TLS cannot be used"
        )
        raise SessionError(f"the session {asked}.")
    if identity is not None:
        _require_own(identity, agreed_to.parties[number])
    mine = None if lookups is None else agreed_to.task.places(lookups)
    if mine is not None and len(mine) > agreed_to.parties[number].lookups:
        raise QueryError(
            f"{len(mine)} rows are to be looked up; the session allows this party {agreed_to.parties[number].lookups}."
        )
    with closing(open_ledger(loaded)) as ledger:
        booking = _Booking(ledger, agreed_to, number, analyst)
        booking.require_affordable()
        engine, _ = open_engine(loaded, data=data, salt=ledger.salt)
        with closing(engine):
            holding = _holding(engine, agreed_to.task)
        if holding.rows > loaded.max_rows:
            raise PolicyError(
                f"The table of {loaded.dataset!r} has more rows than its policy's `max_rows`. Correct one of them (see `pinq check`). Nothing left this party."
            )
        part = Part(
            agreed_to.protocol,
            agreed_to.task,
            agreed_to.rule(),
            holding,
            number,
            [one.lookups for one in agreed_to.parties],
            mine,
            progress=progress,
        )
        outcome, traffic = run_party(
            agreed_to,
            number,
            identity,
            part.run,
            bits=part.rule.bits,
            agreed=booking.book,
            wait=wait,
            listen=listen,
            progress=progress,
        )
        booking.finish()
    classes = agreed_to.schema_.categorical(agreed_to.target).values
    tree = None if outcome.tree is None else outcome.tree.to_json()
    return Result(booking.run, tree, outcome.depths, tuple(classes[one] for one in outcome.looked_up), traffic)


def require_fit(session: Session, party: int, policy: Policy) -> None:
    """``PolicyError`` unless the policy's public facts are the session's and it permits what will be opened."""
    policy.require_reviewed()
    schema, member = session.schema_, session.parties[party]
    problems = []
    for name, column in schema.columns.items():
        own = policy.columns.get(name)
        if own is None:
            problems.append(f"the policy has no column `{name}`")
        elif own.digest != column.digest:
            problems.append(f"`{name}` has another domain in the policy")
    if (policy.adjacency, policy.privacy_unit) != (schema.adjacency, schema.privacy_unit):
        problems.append("adjacency or privacy unit differ, so an epsilon of one is not an epsilon of the other")
    if policy.max_rows > member.rows:
        problems.append(
            f"the policy admits {policy.max_rows:,} rows, the session only {member.rows:,} of {member.name}"
        )
    if session.noise == "none" and policy.secure != "exact":
        problems.append(
            "the session opens exact results, which leak; the policy does not permit that (`secure: exact`). Or use `noise: discrete-laplace`"
        )
    if problems:
        raise PolicyError(
            f"The policy of {policy.dataset!r} and the session do not fit: {'; '.join(problems)}. Nothing left this party."
        )


def _require_own(identity: Identity, member: Member) -> None:
    """``SessionError`` where the others would turn this party away."""
    try:
        shown = first_certificate(Path(identity.certificate).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise SessionError(f"the certificate {identity.certificate} cannot be read: {error}.") from None
    if shown != member.certificate_der:
        raise SessionError(
            f"the certificate {identity.certificate} is not the one that the session names for {member.name}, so the others would turn it away. "
            "Name your party and its certificate, or agree on a session with the new one."
        )


class _Booking:
    """This party's log of one run: the charge, or the event of an exact release, before anything leaves; its end afterwards."""

    def __init__(self, ledger: Ledger, session: Session, party: int, analyst: str | None) -> None:
        if session.nano and not analyst:
            raise QueryError(
                "with noise an analyst is needed whose grant is charged: `pinq grant POLICY NAME --epsilon ...`, then name it."
            )
        self._ledger, self._session = ledger, session
        self._analyst = analyst or ""
        self._demand = Demand.of(PartSet([Block(Rows())]))
        self._columns = [session.target, *(split.column for split in session.task.splits)]
        loss = f"epsilon {show(session.nano)}" if session.nano else "exact"
        self._verb = "secure_topdown" if session.protocol == "topdown" else "secure_id3"
        self._body = {
            "verb": self._verb,
            "session": session.digest,
            "about": f"{session.protocol} {session.session!r} as party {party} of {len(session.parties)}: {loss}"[:200],
        }
        self.run = ""

    def require_affordable(self) -> None:
        """Refuses before any other party is bothered; the charge itself is made in ``book``."""
        if not self._session.nano:
            return
        self._ledger.authorise(self._analyst)
        price, left = self._ledger.price(
            self._analyst, self._demand, self._session.nano, verb=self._verb, columns=self._columns
        )
        if left < 0:
            raise BudgetExceeded(
                f"This session would cost epsilon {show(price)}; {show(max(0, price + left))} remains for {self._analyst!r}. Nothing was spent, nothing left this party.",
                asked=exact(price),
                remaining=exact(max(0, price + left)),
                scope="analyst",
            )

    def book(self, run: str) -> None:
        """Charges, or logs, the run that all parties agreed on."""
        self.run = run[:32]
        if self._session.nano:
            self._ledger.charge(
                self._analyst, self.run, self._demand, self._session.nano, self._body, columns=self._columns
            )
        else:
            self._ledger.log_session("", self.run, self._body | {"opens": list(self._session.opened)})

    def finish(self) -> None:
        """Logs that a charged run came to its end."""
        if self._session.nano:
            self._ledger.log_session(self._analyst, self.run, self._body | {"opens": list(self._session.opened)})


def _holding(engine: Any, task: Task) -> Holding:
    """This party's distinct rows and how often each occurs, in one pass; rows without a class teach nothing."""
    axes: list[Axis] = [bind(split, engine.schema).axes[0] for split in (*task.splits, Values(task.target))]
    (listed,) = engine.tabulate(PartSet([Block(Rows())]), [ListRequest(tuple(axes))])
    places = listed.codes.astype(np.int64)
    known = places[-1] < task.classes
    return Holding(places[:, known], listed.counts[known].astype(np.int64))
