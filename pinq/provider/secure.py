# SPDX-License-Identifier: Apache-2.0
"""``join`` takes a provider's rows into a computation among several parties.

::

    fit ── affordable? ── encode ── agree ── charge, share, open, keep: a round at a time ── result
    policy  ledger        engine    hash     ledger  shares only

The protocols themselves are a registered implementation's (``pinq.secure_computation``).

Privacy:
    With noise, what a session opens is epsilon-DP for the rows of every party together, in the
    session's adjacency and privacy unit, which must be the policy's. The implementation claims that
    (miners/secure/id3/public_tree.py). Each round is charged to the grant of ``analyst`` before anything of it
    leaves, by the rule that charges queries, and what it opened is its answer in the ledger. A run that
    broke off begins again from those answers. Without noise the exact result leaks, which no epsilon
    describes: the policy must say ``secure: exact``, and the log gets an event instead of a charge.
    Refusals follow from session, policy and ledger, never from rows that the policy admits: a table
    of more than its ``max_rows``, for which no claim is made and no field is sized, never takes
    part. One refusal follows from rows, and is this party's own to hear: a session that began with
    others does not go on with these, for a round that broke off would have a second noise.
    Held by: tests/e2e/test_secure_session.py, tests/integration/test_secure_provider.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pinq.analyst.tokens import require_private
from pinq.engine import Listed, TableRequest, open_engine
from pinq.engine.sources import state_folder
from pinq.errors import PinqError, PolicyError, QueryError, SessionError, TooManyRequests
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Axis, Values, bind
from pinq.ledger.composition import Demand
from pinq.ledger.events import Charged, LoggedQuestion
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import Earlier
from pinq.policy.policy import Policy
from pinq.provider.local import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema, Value
from pinq.secure_computation import (
    Holding,
    Identity,
    Joining,
    SecureComputation,
    SecureSession,
    Traffic,
    secure_computation,
)

NOTHING_LEFT = "Nothing left this party."
KEY_BYTES = 32
MANY = 2**31  # more lines than a log has
ROUND_BYTES, CELL_BYTES = 256, 24  # of the text that is kept of a round, at most
VERBS = {"topdown": "secure_topdown", "scorecard": "secure_scorecard"}  # in the log; all others are ID3


@dataclass(frozen=True)
class Result:
    """The result of this party.

    Attributes:
        run: The name of this run of the session in the ledger of each party.
        tree: The public tree as JSON (``miners.Tree.from_json``); None where it stays secret.
        scorecard: The fitted scorecard as JSON (``miners.FederatedScorecard.from_json``, of a numeric
            target ``FederatedScorecardRegressor``); None of trees.
        depths: SID3T: the lengths of paths.
        classes: The classes of the rows that this party looked up.
        traffic: What it sent, and how long the protocol took.
    """

    run: str
    tree: str | None
    scorecard: str | None
    depths: tuple[int, ...] | None
    classes: tuple[Value, ...]
    traffic: Traffic

    def to_dict(self) -> dict[str, object]:
        """Returns plain values, for JSON."""
        return {
            "run": self.run,
            "tree": None if self.tree is None else json.loads(self.tree),
            "scorecard": None if self.scorecard is None else json.loads(self.scorecard),
            "depths": self.depths,
            "classes": list(self.classes),
            "bytes_sent": self.traffic.bytes_sent,
            "seconds": round(self.traffic.seconds, 3),
        }


def join(
    session: str | os.PathLike[str] | SecureSession,
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
        session: A session file, or a loaded session.
        party: Which of its parties this is: its number or name.
        policy: The reviewed policy of the rows.
        agree: The session's hash (16 hexadecimal digits or more), as this party has checked it.
        analyst: With noise: whose grant is charged.
        identity: This party's certificate and key; needed where the session names certificates.
        lookups: SID3T and SID3S: a table of rows to classify.
        data: An Arrow table or pandas frame in place of the policy's source.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on; by default all, or without certificates the session's.
        progress: Called with a line of text for each step.

    Raises:
        SessionError: The hash is another one, or the parties could not agree or finish.
        PolicyError: The policy does not fit the session, or does not permit it.
        BudgetExceeded, NotAuthorised, NotAllowed: The ledger refused; nothing left this party.
    """
    computation = secure_computation()
    agreed = computation.load_session(Path(session)) if isinstance(session, (str, os.PathLike)) else session
    loaded, number = load_policy(policy), agreed.number(party)
    if len(agree) < 16 or not agreed.digest.startswith(agree.lower()):
        raise SessionError(
            f"the session's hash is {agreed.digest}, and not {agree!r}. "
            "Compare with the other parties which file is meant; give at least 16 digits."
        )
    require_fit(agreed, number, loaded)
    _require_identity(computation, agreed, number, identity)
    joining = Joining(number, identity, wait, listen, progress)
    codes = None if lookups is None else computation.lookup_codes(agreed, lookups)
    allowed = agreed.parties[number].lookups
    if codes is not None and len(codes) > allowed:
        raise QueryError(f"{len(codes)} rows are to be looked up; the session allows this party {allowed}.")
    with closing(open_ledger(loaded)) as ledger:
        booking = _Booking(ledger, agreed, number, analyst, loaded.schema_)
        booking.require_affordable()
        holding = _encoded_rows(agreed, loaded, ledger, data)
        booking.require_same_rows(holding)
        try:
            learned, traffic = computation.run(agreed, joining, holding, lookups=codes, booking=booking)
        except PinqError as error:
            error.charged = booking.charged.exact
            raise
    tree, scorecard = (None if model is None else model.to_json() for model in (learned.tree, learned.scorecard))
    # Rows are looked up in trees alone, whose target is categorical.
    values = agreed.schema_.categorical(agreed.target).values if len(learned.looked_up) else ()
    looked_up = tuple(values[number] for number in learned.looked_up)
    return Result(booking.run, tree, scorecard, learned.depths, looked_up, traffic)


def require_fit(session: SecureSession, party: int, policy: Policy) -> None:
    """Raises ``PolicyError`` unless the policy fits the session and permits what will be opened."""
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
        admitted = f"the policy admits {policy.max_rows:,} rows"
        problems.append(f"{admitted}, the session only {member.rows:,} of {member.name}")
    if session.noise == "none" and policy.secure != "exact":
        problems.append(
            "the session opens exact results, which leak; the policy does not permit that (`secure: exact`). "
            "Or use `noise: discrete-laplace`"
        )
    if problems:
        listed = "; ".join(problems)
        raise PolicyError(f"The policy of {policy.dataset!r} and the session do not fit: {listed}. {NOTHING_LEFT}")


def _require_identity(
    computation: SecureComputation[SecureSession], session: SecureSession, party: int, identity: Identity | None
) -> None:
    """Raises ``SessionError`` where the others would turn this party away."""
    member = session.parties[party]
    if identity is None:
        if member.certificate_der is not None:
            raise SessionError("the session names certificates: give this party's certificate and key.")
        return
    if member.certificate_der is None:
        raise SessionError("the session names no certificates, so TLS cannot be used; join without --cert and --key.")
    try:
        with open(identity.key, encoding="ascii") as key:
            require_private(key, Path(identity.key), "the key")
        shown = computation.certificate(Path(identity.certificate).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise SessionError(f"the certificate {identity.certificate} or its key cannot be read: {error}.") from None
    if shown != member.certificate_der:
        raise SessionError(
            f"the certificate {identity.certificate} is not the one that the session names for {member.name}, "
            "so the others would turn it away. "
            "Name your party and its certificate, or agree on a session with the new one."
        )


class _Booking:
    """This party's log of one run: a charge and an answer for each round, or an exact release's event.

    A charge's id is the session's hash and the round's number, so a round is charged once, however
    often a run begins again.

    Attributes:
        run: The name of the run, once all parties agree.
        charged: What this process was charged so far.
    """

    def __init__(self, ledger: Ledger, session: SecureSession, party: int, analyst: str | None, schema: Schema) -> None:
        if session.nano and not analyst:
            raise QueryError(
                "with noise an analyst is needed whose grant is charged: "
                "`pinq grant POLICY NAME --epsilon ...`, then name it."
            )
        self._ledger, self._session, self._analyst = ledger, session, analyst or ""
        self._demand = Demand.of(PartSet([Block(Part())]))
        # By the policy, which may declare what a column is derived from where the session does not.
        self._columns = schema.with_sources([session.target, *(split.column for split in session.splits)])
        self._about = f"{session.protocol} {session.session!r} as party {party} of {len(session.parties)}"
        self._verb = VERBS.get(session.protocol, "secure_id3")
        place = hashlib.sha256(f"{ledger.url} {self._analyst} {session.digest}".encode()).hexdigest()
        self._key = state_folder() / f"{place}.noise"
        self._rows = b""
        self.run, self.charged = "", Epsilon(0)

    def require_affordable(self) -> None:
        """Refuses, before any other party is bothered, where the ledger would refuse what is not paid yet."""
        if not self._session.nano:
            return
        self._ledger.authorise(self._analyst)
        owed = Epsilon(self._session.nano - sum(self._paid().values()))
        if owed.nano > 0:
            self._ledger.require(self._analyst, self._demand, owed, verb=self._verb, columns=self._columns)

    def require_same_rows(self, holding: Holding) -> None:
        """Refuses to go on with other rows than those whose noise others may have seen.

        This party alone hears why: it is its own rows that decide. Where nothing was paid yet, other rows
        begin anew.
        """
        order = np.lexsort(holding.codes)  # an engine lists rows in any order
        self._rows = holding.codes[:, order].tobytes() + holding.counts[order].tobytes()
        if not self._key.exists() or self._key.read_bytes() == self._marked(self._key.read_bytes()[:KEY_BYTES]):
            return
        if self._paid():
            raise SessionError(
                "the rows of this party are not those with which it began this session: a round that broke off would "
                "be opened again with another noise, at one charge. Go on with the rows as they were, or give the "
                "session another name to begin anew. Nothing left this party."
            )
        self._key.unlink()

    def _marked(self, key: bytes) -> bytes:
        """Returns a noise key with a digest of the rows that it belongs to, which only the key makes."""
        return key + hashlib.blake2b(self._rows, key=key, digest_size=KEY_BYTES).digest()

    def _paid(self) -> dict[str, int]:
        """Returns what each round of earlier attempts cost, by its id."""
        lines = self._ledger.lines(self._analyst, 0, MANY)
        charges = ((line.event.request, line.event.record) for line in lines)
        prefix = self._id("")
        return {
            id_: record.epsilon.nano
            for id_, record in charges
            if isinstance(record, Charged)
            and id_.startswith(prefix)
            and record.question.session == self._session.digest
        }

    def kept(self) -> list[str]:
        """Returns what the rounds of earlier attempts opened."""
        kept: list[str] = []
        while self._session.nano:
            earlier, opened = self._ledger.answer_of(self._analyst, self._id(len(kept)))
            self._is_charged(len(kept), earlier)
            if opened is None:
                break
            kept.append(opened)
        return kept

    def noise_key(self, rounds: int) -> bytes:
        """Reads what the noise of this run follows from; draws it where there is none.

        Raises ``SessionError`` if the round after so many was charged with another one: others may have seen it.
        """
        if not self._session.nano:
            return b""
        if not self._key.exists() and self._ledger.answer_of(self._analyst, self._id(rounds))[0] is not None:
            raise SessionError(
                f"round {rounds + 1} was charged, and what its noise followed from is not in {self._key.parent} any "
                "more: opened again, it would have a second noise for one charge. Go on where the session began, or "
                "give it another name to begin anew."
            )
        self._key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._key.exists():
            fresh = self._key.with_suffix(f".{os.getpid()}")
            with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as made:
                made.write(self._marked(secrets.token_bytes(KEY_BYTES)))
                made.flush()
                os.fsync(made.fileno())
            fresh.replace(self._key)  # whole or not at all
        return self._key.read_bytes()[:KEY_BYTES]

    def pace(self) -> float:
        """Returns for how many seconds the grant allows no further question. Raises what else refuses one."""
        if self._session.nano:
            try:
                self._ledger.require(self._analyst, self._demand, Epsilon(0), verb=self._verb, columns=self._columns)
            except TooManyRequests as error:
                return error.retry_after
        return 0.0

    def begin(self, run: str) -> None:
        """Takes the name of the run that all parties agreed on; logs an exact one."""
        self.run = run[:32]
        if not self._session.nano:
            self._ledger.log_session("", self.run, self._question("exact"), self._session.opened)

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        """Charges a round, once, and for the question that it asks at this place."""
        if self._session.nano:
            question = self._question(f"round {number + 1}, epsilon {Epsilon(nano)}", place)
            earlier = self._ledger.answer_of(self._analyst, self._id(number))[0]
            if earlier is None:
                earlier, _ = self._ledger.charge(
                    self._analyst,
                    self._id(number),
                    self._demand,
                    Epsilon(nano),
                    question,
                    columns=self._columns,
                    answer_bytes=ROUND_BYTES + CELL_BYTES * cells,
                )
            if not self._is_charged(number, earlier):
                self.charged += Epsilon(nano)
            elif earlier is not None and earlier.question.question != place:
                raise SessionError(
                    f"round {number + 1} was another question when it was charged: this party runs another version. "
                    "Nothing of this round left this party. Go on with the version that began, or give the session "
                    "another name."
                )

    def keep(self, number: int, opened: str) -> None:
        """Keeps what a round opened, once."""
        if self._session.nano:
            self._ledger.answer(self._analyst, self._id(number), opened)

    def finish(self) -> None:
        """Forgets what the noise followed from: no round is opened again."""
        self._key.unlink(missing_ok=True)

    def _is_charged(self, number: int, earlier: Earlier | None) -> bool:
        """Whether a round has a charge; ``SessionError`` where its id paid for something else.

        Analysts choose the ids of their questions, and a cheap one must not stand for a round.
        """
        if earlier is not None and earlier.question.session != self._session.digest:
            raise SessionError(
                f"{self._analyst!r} used the id of round {number + 1}, {self._id(number)}, for another question. "
                "Nothing of this round left this party. Give the session another name to begin anew."
            )
        return earlier is not None

    def _id(self, number: int | str) -> str:
        return f"{self._session.digest[:32]}-{number}"

    def _question(self, loss: str, place: str = "") -> LoggedQuestion:
        about = f"{self._about}: {loss}"[:200]
        return LoggedQuestion(verb=self._verb, session=self._session.digest, about=about, question=place)


def _encoded_rows(session: SecureSession, policy: Policy, ledger: Ledger, data: Any) -> Holding:
    """Reads this party's distinct rows with a known target, and how often each occurs, in one pass.

    Raises ``PolicyError`` if there are more than the policy admits.
    """
    axes: list[Axis] = [bind(split, policy.schema_).axes[0] for split in session.splits]
    axes.append(Values(session.target).axis(policy.schema_)[0])  # numeric ones may have more cells than a partition
    engine, _ = open_engine(policy, data=data, salt=ledger.salt)
    with closing(engine):
        tables = engine.tabulate(PartSet([Block(Part())]), [TableRequest(tuple(axes), "listed")], None)
    listed = cast(Listed, tables[0])  # what a list request gets
    codes = listed.codes.astype(np.int64)
    # The code after those of values stands for a missing one.
    known = codes[-1] < session.schema_.column(session.target).cells
    holding = Holding(codes[:, known], listed.counts[known].astype(np.int64))
    if holding.rows > policy.max_rows:
        raise PolicyError(
            f"The table of {policy.dataset!r} has more rows than its policy's `max_rows`. "
            f"Correct one of them (see `pinq check`). {NOTHING_LEFT}"
        )
    return holding
