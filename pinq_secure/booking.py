# SPDX-License-Identifier: Apache-2.0
"""``LedgerBooking`` pays for one run of a session from the ledger of a policy."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from pinq.errors import QueryError, SessionError, TooManyRequests
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.events import Charged, LoggedQuery
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import Earlier
from pinq.policy.files import state_folder
from pinq.public.epsilon import Epsilon
from pinq.public.noise import SYSTEM
from pinq.public.schema import Schema
from pinq_secure.id3.task import Holding
from pinq_secure.session.session import Session

KEY_BYTES = 32
MANY = 2**31  # more lines than a log has
ROUND_BYTES, CELL_BYTES = 256, 24  # the largest size of a round's text, and of each value in it
VERBS = {"topdown": "secure_topdown", "scorecard": "secure_scorecard"}  # in the log; all others are ID3


class LedgerBooking:
    """This party's log of one run: a charge and an answer for each round, or an exact release's event.

    A charge's id is the session's hash and the round's number, so a round is charged once, however
    often a run begins again.

    Attributes:
        run: The name of the run, once all parties agree.
        charged: The charges of this process so far.
        version: The version of the participating rows.
    """

    def __init__(self, ledger: Ledger, session: Session, party: int, analyst: str | None, schema: Schema) -> None:
        if session.nano and not analyst:
            raise QueryError(
                "with noise an analyst is needed whose grant is charged: "
                "`pinq grant POLICY NAME --epsilon ...`, then name it."
            )
        self._ledger, self._session, self._analyst = ledger, session, analyst or ""
        self._demand = Demand.of(PartSet([Block(Part())]))
        # By the policy, which may declare the derivation of a column where the session does not.
        self._columns = schema.with_sources([session.target, *(split.column for split in session.task.splits)])
        self._about = f"{session.protocol} {session.session!r} as party {party} of {len(session.parties)}"
        self._verb = VERBS.get(session.protocol, "secure_id3")
        place = hashlib.sha256(f"{ledger.url} {self._analyst} {session.digest}".encode()).hexdigest()
        self._key = state_folder() / f"{place}.noise"
        self._rows = b""
        self.run, self.charged, self.version = "", Epsilon(0), 1

    def require_affordable(self) -> None:
        """Raises the ledger's refusal of the unpaid rounds, if any, before any contact with other parties."""
        if not self._session.nano:
            return
        self._ledger.authorise(self._analyst)
        owed = Epsilon(self._session.nano - sum(self._paid().values()))
        if owed.nano > 0:
            self._ledger.require(self._analyst, self._demand, owed, verb=self._verb, columns=self._columns)

    def require_same_rows(self, holding: Holding) -> None:
        """Refuses to continue with other rows than those whose noise other parties may have seen.

        This party alone sees the reason, because its rows decide. If nothing was paid yet, the session begins again.
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
        """A noise key with a digest of its rows, which only the key can compute."""
        return key + hashlib.blake2b(self._rows, key=key, digest_size=KEY_BYTES).digest()

    def _paid(self) -> dict[str, int]:
        """The cost of each round of earlier attempts, by its id."""
        charges = ((line.event.request, line.event.record) for line in self._ledger.log.lines(self._analyst, 0, MANY))
        prefix = self._id("")
        return {
            id_: record.epsilon.nano
            for id_, record in charges
            if isinstance(record, Charged) and id_.startswith(prefix) and record.query.session == self._session.digest
        }

    def kept(self) -> list[str]:
        """The opened values of the rounds of earlier attempts."""
        answers: list[str] = []
        while self._session.nano:
            earlier, opened = self._ledger.answer_of(self._analyst, self._id(len(answers)))
            self._is_charged(len(answers), earlier)
            if opened is None:
                break
            answers.append(opened)
        return answers

    def noise_key(self, rounds: int) -> bytes:
        """Reads the key of this run's noise, or draws a missing one.

        Raises ``SessionError`` if the round after ``rounds`` was charged with another key, because other parties may
        have seen that noise.
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
            with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                file.write(self._marked(SYSTEM.take(KEY_BYTES)))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._key)  # whole or not at all
        return self._key.read_bytes()[:KEY_BYTES]

    def pace(self) -> float:
        """The seconds until the grant allows a further query; raises any other refusal."""
        if self._session.nano:
            try:
                self._ledger.require(self._analyst, self._demand, Epsilon(0), verb=self._verb, columns=self._columns)
            except TooManyRequests as error:
                return error.retry_after
        return 0.0

    def begin(self, run: str) -> None:
        """Sets the name of the run that all parties agreed on; logs an exact one."""
        self.run = run[:32]
        if not self._session.nano:
            self._ledger.log_session("", self.run, self._question("exact"), self._session.opened)

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        """Charges a round once, for the query at this place."""
        if self._session.nano:
            query = self._question(f"round {number + 1}, epsilon {Epsilon(nano)}", place)
            earlier = self._ledger.answer_of(self._analyst, self._id(number))[0]
            if earlier is None:
                earlier, _ = self._ledger.charge(
                    self._analyst,
                    self._id(number),
                    self._demand,
                    Epsilon(nano),
                    query,
                    columns=self._columns,
                    answer_bytes=ROUND_BYTES + CELL_BYTES * cells,
                    version=self.version,
                )
            if not self._is_charged(number, earlier):
                self.charged += Epsilon(nano)
            elif earlier is not None and earlier.query.identity != place:
                raise SessionError(
                    f"round {number + 1} was another question when it was charged: this party runs another version. "
                    "Nothing of this round left this party. Go on with the version that began, or give the session "
                    "another name."
                )

    def keep(self, number: int, opened: str) -> None:
        if self._session.nano:
            self._ledger.answer(self._analyst, self._id(number), opened)

    def finish(self) -> None:
        """Deletes the key of the noise, because no round is opened again."""
        self._key.unlink(missing_ok=True)

    def _is_charged(self, number: int, earlier: Earlier | None) -> bool:
        """Whether a round has a charge; raises ``SessionError`` if its id paid for something else.

        Analysts choose the ids of their queries, and a cheap query must not count as a round.
        """
        if earlier is not None and earlier.query.session != self._session.digest:
            raise SessionError(
                f"{self._analyst!r} used the id of round {number + 1}, {self._id(number)}, for another question. "
                "Nothing of this round left this party. Give the session another name to begin anew."
            )
        return earlier is not None

    def _id(self, number: int | str) -> str:
        return f"{self._session.digest[:32]}-{number}"

    def _question(self, loss: str, place: str = "") -> LoggedQuery:
        about = f"{self._about}: {loss}"[:200]
        return LoggedQuery(verb=self._verb, session=self._session.digest, about=about, identity=place)
