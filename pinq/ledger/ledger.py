# SPDX-License-Identifier: Apache-2.0
"""The durable record of one dataset: grants, charges and answers, each in one transaction of a log."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from pinq.errors import BudgetExceeded, LedgerError, NotAllowed, NotAuthorised, PinqError, TooManyRequests
from pinq.language.specs import SALT_BYTES
from pinq.ledger.composition import Cap, Demand
from pinq.ledger.events import (
    EVENT_BYTES,
    FREE,
    NOTHING,
    Begun,
    Body,
    Charged,
    Created,
    Event,
    Extended,
    Granted,
    LoggedQuery,
    PolicyDeclared,
    Record,
    Refused,
    Retired,
    Revoked,
    SessionLogged,
    Signature,
    Terms,
    TermsSet,
    TokenSet,
    no_grant,
)
from pinq.ledger.log import Earlier, Log, open_database
from pinq.ledger.state import Account, Wanted, meaning
from pinq.public.epsilon import ZERO, Epsilon

Found = tuple[Earlier | None, str | None]


class Ledger:
    """The record of one dataset: each act on its log of events, in one transaction.

    Args:
        url: A file, or a URL of SQLite or PostgreSQL.
        dataset: Its name; a ledger belongs to one dataset.
        create: Whether a missing ledger is made.
        read_only: Whether the ledger is only read; possible for an archived copy, a read-only medium or one in use.
        heads: A folder for another head, where restoring a backup does not overwrite it.

    Attributes:
        log: The events, and the state that follows from them.
        where: A file's path, or a URL without its password.
        salt: The key of the coins of the dataset's rows; made once with the ledger.

    Raises:
        LedgerError: Damaged, cut, rolled back, another dataset's, another version's, or out of
            reach.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        dataset: str | None = None,
        *,
        create: bool = True,
        read_only: bool = False,
        heads: Path | None = None,
    ) -> None:
        self.log = Log(open_database(url, create=create, read_only=read_only))
        self.url, self.address = self.log.database.url, self.log.database.address
        self.log.run(lambda _: None)  # outside the writers' lock: the opening of a long log blocks no writer
        self.log.check_head()  # before the first write, which replaces the head
        self.log.database.settle()
        if self.log.seq == 0 and read_only:
            raise LedgerError(f"There is no ledger {self.address}: it has no events.")

        def beginning(log: Log) -> None:
            if log.seq == 0:
                log.append(Created(1, dataset or "", secrets.token_hex(SALT_BYTES), coins=2))

        if self.log.seq == 0:
            self.log.run(beginning, write=True)
        # Kept here: after a commit that failed the state is empty until the log is read again.
        self.dataset, self.salt = self.log.state.dataset, self.log.state.salt
        if dataset not in (None, self.dataset):
            raise LedgerError(
                f"The ledger {self.address} belongs to the dataset {self.dataset!r}, not to {dataset!r}. "
                "One table has one ledger, whatever the policies over it are called: "
                f"use `dataset: {self.dataset}`, or another ledger for other data."
            )
        if heads is not None:
            self.log.keep_head(heads)

    # Reading

    def accounts(self) -> dict[str, Account]:
        return self.log.run(lambda log: dict(log.state.accounts))

    def grants(self) -> dict[str, Account]:
        return self.log.run(lambda log: log.state.grants)

    def grant_of_token(self, token: str) -> Account | None:
        """The valid grant to which the token with this digest belongs."""
        return self.log.run(lambda log: log.state.grant_of_token(token))

    def known_grant_of_token(self, token: str) -> Account | None:
        """The same, by the state of the last reading; the log is not read again."""
        return self.log.state.grant_of_token(token)

    def knows(self, token: str) -> bool:
        """Whether a grant had this token (its digest) when the log was last read."""
        return token in self.log.state.analyst_of_token

    def work_per_minute(self, analyst: str) -> int | None:
        """An analyst's quota of work, as of the last reading of the log; reads it again for an unknown analyst."""
        # After a failed commit the state is empty until the log is read again: an empty state must not mean an
        # unlimited quota.
        grant = self.log.state.grant_of(analyst) or self.log.run(lambda log: log.state.grant_of(analyst))
        return None if grant is None else grant.terms.work_per_minute

    def together(self) -> Cap:
        return self.log.run(lambda log: log.state.together)

    def grant_of(self, analyst: str) -> Account:
        """The analyst's valid grant; raises ``NotAuthorised`` for none."""
        return self.log.run(lambda log: log.state.valid(analyst))

    def answer_of(self, analyst: str, request: str) -> Found:
        """The charge of a request id and its answer, each None if there is none."""
        return self.log.run(lambda log: log.charge_of(analyst, request))

    def verify(self, each: Callable[[Event], object] = lambda _: None) -> int:
        """Replays the whole log from its beginning; returns the number of events.

        Each event is passed to ``each``, after the state has it. Raises ``LedgerError`` for a damaged database, a
        broken chain, an answer that is not the logged one, or an id with two charges or answers.
        """
        self.log.database.check()
        self.log.replay(each)
        self.log.check_head()
        return self.log.seq

    def writable(self) -> None:
        """Raises ``LedgerError``, with the reason, if a charge could not be written now.

        It commits a meaningless value, which takes as long as a charge.
        """
        self.log.run(lambda log: log.database.probe(), write=True)

    # Writing

    def declare(
        self,
        digest: str,
        cap: Epsilon,
        schema: Body,
        *,
        may_raise: bool = True,
        by: Signature | None = None,
    ) -> None:
        """Logs the policy if it differs from the last logged one.

        A lower cap counts at once, a higher one if ``may_raise``. A changed column gives its partitions new identities,
        so a change never makes an old charge cheaper. After the first grant the meaning of epsilon (adjacency, privacy
        unit) stays: otherwise spent and new epsilon would not be the same quantity.

        Raises:
            LedgerError: The adjacency or privacy unit differs from the one of the granted budgets.
        """
        policy = PolicyDeclared(digest, cap, schema, "sum")

        def declaring(log: Log) -> None:
            due = log.state.due(policy, self.address, may_raise)
            if due is not None:
                log.append(due, by=by)

        if self.log.run(lambda log: log.state.due(policy, self.address, may_raise)) is not None:
            self.log.run(declaring, write=True)

    def begin(
        self, rows: Begun, contents: Callable[[], str], *, by: Signature | None = None, anew: bool = False
    ) -> int:
        """Finds the version of rows that were read; logs it if it is new, or if the provider says so (``anew``).

        Returns its number.

        Raises:
            PolicyError: The policy declares the rows of the last version, but the rows differ.
        """
        while True:
            state = self.log.run(lambda log: (log.state.rows.get(rows.place), log.state.last))
            before = state[0]
            due = replace(rows, number=state[1] + 1, contents=contents()) if anew else rows.after(*state, contents)

            def beginning(log: Log, state: tuple[Begun | None, int] = state, due: Begun = due) -> bool:
                if (log.state.rows.get(rows.place), log.state.last) == state:
                    log.append(due, by=by)
                    return True
                return False  # another process was first

            if due is before or self.log.run(beginning, write=True):
                return due.number

    def preview_cap(self, cap: Epsilon) -> None:
        """Applies a cap to this process's budgets, for a preview without a log entry.

        Only a lower cap counts, as when an analyst opens the dataset.
        """
        together = self.together()
        together.cap = min(cap, together.cap)

    def grant(
        self,
        analyst: str,
        limit: Epsilon,
        expires: datetime | None = None,
        *,
        terms: Terms = FREE,
        token: str = "",
        by: Signature | None = None,
        again: bool = True,
    ) -> Account:
        """Grants a budget to a new analyst, or with ``again`` to a name whose grant was revoked.

        Raises:
            LedgerError: There is a grant already, or without ``again`` the log names the analyst.
        """

        def granting(log: Log) -> None:
            if not again and analyst in log.state.accounts:
                raise LedgerError(f"the log names {analyst!r} already, so only the data provider can grant it.")
            earlier = log.state.grant_of(analyst)
            if earlier is not None and not earlier.revoked:
                raise LedgerError(
                    f"{analyst!r} already has a grant of epsilon {earlier.limit}. Use `pinq extend` to raise it."
                )
            log.append(Granted(limit, expires, terms, token), analyst, by=by)

        self.log.run(granting, write=True)
        return self.log.state.grants[analyst]

    def extend(
        self,
        analyst: str,
        more: Epsilon = ZERO,
        expires: datetime | None = None,
        *,
        by: Signature | None = None,
    ) -> Account:
        """Raises the limit of a grant by ``more``, and moves its end if ``expires`` is given."""
        return self._change(analyst, Extended(more, expires), by)

    def set_terms(self, analyst: str, terms: Terms, *, by: Signature | None = None) -> Account:
        return self._change(analyst, TermsSet(terms), by)

    def set_token(self, analyst: str, token: str, *, by: Signature | None = None) -> Account:
        return self._change(analyst, TokenSet(token), by)

    def revoke(self, analyst: str, *, by: Signature | None = None) -> None:
        """Ends a grant at once; its spent epsilon stays spent, also for a later grant of the name."""
        self._change(analyst, Revoked(), by)

    def retire(self, *, by: Signature) -> Retired:
        """Closes the ledger so far: all grants end, and budgets count anew from the next policy on.

        Raises ``LedgerError`` if no policy was declared since the last closing.
        """

        def retiring(log: Log) -> Retired:
            if log.state.policy is None:
                raise LedgerError(f"The ledger {self.address} has nothing to close: no policy was declared.")
            closed = Retired(meaning(log.state.policy.schema), log.state.together.spent)
            log.append(closed, by=by)
            return closed

        return self.log.run(retiring, write=True)

    def charge(
        self,
        analyst: str,
        request: str,
        demand: Demand,
        epsilon: Epsilon,
        query: LoggedQuery = NOTHING,
        *,
        columns: Collection[str] = (),
        reuse: bool = False,
        answer_bytes: int = 0,
        token: str = "",
        version: int = 1,
    ) -> Found:
        """Charges a request, or logs its refusal, in one transaction, before any row is read.

        Args:
            analyst: The analyst.
            request: The request's id, chosen by the analyst.
            demand: The parts that the request is about.
            epsilon: The loss of each part.
            query: The record of the request in the log.
            columns: The columns that the request names, for the terms of the grant.
            reuse: Whether an earlier charge for the same query of this version counts for this request.
            answer_bytes: The largest length of the answer's text.
            token: Digest of the analyst's token, which must still be valid; empty for none.
            version: The version of the rows.

        Returns:
            The earlier charge and answer of the id (with ``reuse``, of the query); None each if it is new.

        Raises:
            NotAuthorised, NotAllowed, TooManyRequests, BudgetExceeded: Refused.
        """
        reusable = (version, query.identity) if reuse else None
        if self.log.state.charged_as(analyst, request, reusable)[1]:
            earlier = self.log.run(lambda log: self._found(log, analyst, request, reusable, token))
            if earlier[0] is not None:
                return earlier
        # Room for the answer is reserved with the charge: a request that was charged can be answered.
        # The charge is written as text here, because others wait while a transaction lasts.
        charged, text = Charged(epsilon, demand, query, version=version).reserving(answer_bytes + 2 * EVENT_BYTES)

        def work(log: Log) -> tuple[Found, PinqError | None]:
            log.state.require_token(token, analyst)  # a wrong one is not logged
            try:
                grant = log.state.valid(analyst)
                earlier = log.charge_of(analyst, request, reusable)
                if earlier[0] is None:
                    log.state.require(grant, query.verb, columns, demand, epsilon, version)
                    grant.require_room(charged.query.stored)
                    log.append(charged, analyst, request, text=text)
                return earlier, None
            except (NotAuthorised, NotAllowed, TooManyRequests, BudgetExceeded) as error:
                log.refuse(error, analyst, request, query)
                return (None, None), error  # Raised here, it would undo the event just written.

        try:
            earlier, refusal = self.log.run(work, write=True)
        except LedgerError:  # another process may have answered the request before the failure
            earlier = self.log.run(lambda log: self._found(log, analyst, request, reusable, token))
            if earlier[1] is None:
                raise
            return earlier
        if refusal is not None:
            raise refusal
        return earlier

    def _found(self, log: Log, analyst: str, request: str, query: Wanted | None, token: str) -> Found:
        log.state.require_token(token, analyst)
        grant = log.state.grant_of(analyst)
        valid = grant is not None and grant.valid
        return log.charge_of(analyst, request, query) if valid else (None, None)

    def answer(self, analyst: str, request: str, payload: str) -> str:
        """Persists the answer of a charged request before it is sent.

        Returns:
            The answer to send: always the first one.
        """
        return self.log.run(lambda log: log.add_answer(analyst, request, payload), write=True)

    def log_session(self, analyst: str, request: str, query: LoggedQuery, opens: Collection[str]) -> None:
        """Logs a computation among several parties: an exact one before it, a charged one after it."""
        self.log.run(lambda log: log.append(SessionLogged(query, tuple(opens)), analyst, request), write=True)

    def authorise(self, analyst: str) -> Account:
        """The analyst's valid grant; logs a refusal and raises ``NotAuthorised`` for none."""
        try:
            return self.grant_of(analyst)
        except NotAuthorised as error:
            refused = Refused.of(error, LoggedQuery(about="open"))
            self.log.run(lambda log: log.append(refused, analyst), write=True)
            raise

    def attempt(
        self,
        analyst: str,
        request: str,
        demand: Demand,
        epsilon: Epsilon,
        query: LoggedQuery,
        *,
        token: str = "",
        version: int = 1,
    ) -> None:
        """Refuses an act that exceeds the remaining budget, and logs the refusal; charges nothing.

        The terms of the grant limit each single query, so they are not compared here.

        Raises:
            NotAuthorised: No valid grant.
            BudgetExceeded: More than the grant or the cap leaves.
        """

        def refusal_of(log: Log, logs: bool) -> BudgetExceeded | None:
            log.state.require_token(token, analyst)
            try:
                log.state.require_budget(log.state.valid(analyst), demand, epsilon, version)
                return None
            except BudgetExceeded as error:
                if logs:
                    log.refuse(error, analyst, request, query)
                return error

        # An act that the budget covers is only read. Another is checked again in the transaction that logs it.
        if self.log.run(partial(refusal_of, logs=False)) is not None:
            refusal = self.log.run(partial(refusal_of, logs=True), write=True)
            if refusal is not None:
                raise refusal

    def is_paid(self, analyst: str, request: str, query: str, version: int = 1) -> bool:
        """Returns whether ``charge`` with ``reuse`` would find an earlier charge."""
        charge, _ = self.log.run(lambda log: log.charge_of(analyst, request, (version, query)))
        return charge is not None

    def price(
        self,
        analyst: str,
        demand: Demand,
        epsilon: Epsilon,
        *,
        verb: str = "",
        columns: Collection[str] = (),
        version: int = 1,
    ) -> tuple[Epsilon, Epsilon]:
        """The cost of a request now, and the smaller rest of the grant and the cap after it; below 0 for a refusal.

        Raises:
            NotAuthorised: No valid grant.
            NotAllowed: The grant's terms forbid it.
        """

        def pricing(log: Log) -> tuple[Epsilon, Epsilon]:
            grant = log.state.valid(analyst)
            grant.terms.require(verb, columns, epsilon, log.state.table_of(version))
            return log.state.price(grant, demand, epsilon, version)

        return self.log.run(pricing)

    def require(
        self, analyst: str, demand: Demand, epsilon: Epsilon, *, verb: str = "", columns: Collection[str] = ()
    ) -> None:
        """Raises the error with which ``charge`` would refuse now; logs and spends nothing."""
        self.log.run(lambda log: log.state.require(log.state.valid(analyst), verb, columns, demand, epsilon))

    def close(self) -> None:
        if self.log.database.is_own:  # in a fork, a thread that no longer exists may hold a lock
            self.log.close()

    def __repr__(self) -> str:
        return f"Ledger({self.log.database.address}, dataset {self.log.state.dataset!r}, {self.log.seq} events)"

    def _change(self, analyst: str, record: Record, by: Signature | None) -> Account:
        def changing(log: Log) -> None:
            grants = log.state.grants
            if analyst not in grants or grants[analyst].revoked:
                raise LedgerError(no_grant(analyst, [name for name, grant in grants.items() if not grant.revoked]))
            log.append(record, analyst, by=by)

        self.log.run(changing, write=True)
        return self.log.state.grants[analyst]
