# SPDX-License-Identifier: Apache-2.0
"""The meaning of the log: grants, accounts and budgets, computed from its records one by one.

A snapshot is the state after some event as text, so that a ledger opens without a replay of its log. The log has the
digest of a snapshot as an event, so a forged snapshot needs a forged chain. It lacks the numbers of charges and
answers by request, which the tables have; each event found there is verified.

Privacy:
    A state from a snapshot is the state of a replay: ``dump`` writes each field that a price reads,
    and ``load`` reads it back unchanged. So no cost is smaller than in a replay. A lookup that
    finds too little makes a request cost again, never less.
    Held by: tests/property/test_snapshots.py.
"""

from __future__ import annotations

import json
import sys
from array import array
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, assert_never

from pinq.errors import BudgetExceeded, LedgerError, NotAllowed, NotAuthorised, TooManyRequests
from pinq.ledger.composition import COUNTED, Cap, Costs, Demand
from pinq.ledger.events import (
    ASK,
    EVENT_BYTES,
    FREE,
    STORED_BYTES,
    Answered,
    Begun,
    Body,
    Charged,
    Created,
    Event,
    Extended,
    Granted,
    PolicyDeclared,
    Refused,
    Retired,
    Revoked,
    SessionLogged,
    Snapshot,
    Terms,
    TermsSet,
    TokenSet,
    digest_of,
    now,
)
from pinq.public.epsilon import ZERO, Epsilon

MINUTE = timedelta(minutes=1)
Wanted = tuple[int, str]
"""A query whose earlier answer may be used again: the version of the rows, and the query's digest."""


@dataclass
class Account:
    """The account of one analyst: its limit, its spending and its terms, as the log has them.

    Attributes:
        granted: Whether there is, or was, a grant; the next fields are of the last one.
        expires: The time after which nothing is answered; None for never.
        token: SHA-256 of the bearer token, in hexadecimal; empty where none was issued.
        stored: Bytes reserved by its charges and taken by its refusals.
        recent: Times of the last charge and of the charges up to a minute before it, for the pace.
        charges, answers: For each request id since the last snapshot, the number of the event that charged or answered
            it; an id counts once.
        answered: The number of charges with an answer.
        waiting: Ids of charges without an answer: still at work, or lost in a crash or a failure of the engine.
        refused: Refusals by reason.
        lines: The history: numbers of the events that charged or refused, in order.
        totals: The spent epsilon after each of these lines, in nano-epsilons.
        first, last: Times of the analyst's first and last request; empty for never.
    """

    analyst: str
    together: Cap = field(repr=False)
    places: Mapping[int, str] = field(default_factory=dict, repr=False)
    granted: bool = False
    limit: Epsilon = ZERO
    expires: datetime | None = None
    terms: Terms = FREE
    token: str = ""
    revoked: bool = False
    stored: int = 0
    recent: deque[datetime] = field(default_factory=deque, repr=False)
    costs: Costs = field(default_factory=Costs, repr=False)
    charges: dict[str, int] = field(default_factory=dict, repr=False)
    answers: dict[str, int] = field(default_factory=dict, repr=False)
    answered: int = 0
    waiting: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    lines: array[int] = field(default_factory=lambda: array("q"), repr=False)
    totals: array[int] = field(default_factory=lambda: array("q"), repr=False)
    first: str = ""
    last: str = ""

    @property
    def spent(self) -> Epsilon:
        return Epsilon(self.costs.total)

    @property
    def valid(self) -> bool:
        """Whether there is a grant, neither revoked nor expired."""
        return self.granted and not self.revoked and (self.expires is None or now() < self.expires)

    @property
    def unanswered(self) -> int:
        return len(self.waiting)

    @property
    def state(self) -> str:
        """``active``, ``spent``, ``cap reached``, ``expired``, ``revoked`` or ``no grant``."""
        if not self.granted:
            return "no grant"
        if self.revoked:
            return "revoked"
        if not self.valid:
            return "expired"
        if self.spent >= self.limit:
            return "spent"
        return "active" if self.together.remaining else "cap reached"

    @property
    def remaining(self) -> Epsilon:
        return min(max(ZERO, self.limit - self.spent), self.together.remaining) if self.valid else ZERO

    def require_pace(self) -> None:
        """Raises ``TooManyRequests`` while the last minute is full."""
        limit = self.terms.queries_per_minute
        if limit is None or len(self.recent) < limit:
            return
        # Two a minute, the last two at 10:00:00 and 10:00:50: at 10:00:55 there are 5 s to wait.
        wait = (self.recent[-limit] + MINUTE - now()).total_seconds()
        if 0 < wait <= MINUTE.total_seconds():  # more: the clock was set back, which must lock nobody out
            raise TooManyRequests(
                f"this grant allows {limit} queries a minute, and the last minute had as many. Try again in "
                f"{max(1, round(wait))} s.",
                wait,
            )

    @property
    def most_stored(self) -> int:
        """The largest number of bytes of its requests in the ledger."""
        return STORED_BYTES if self.terms.stored_bytes is None else self.terms.stored_bytes

    def require_room(self, size: int) -> None:
        """Raises ``NotAllowed`` if a charge and its answer would take more bytes than are left."""
        if self.stored + size > self.most_stored:
            raise NotAllowed(
                f"the ledger would have to keep {size:,} bytes of this; this grant allows "
                f"{self.most_stored:,} in all, and {self.stored:,} are taken. Ask fewer parts. {ASK}"
            )

    def apply(self, event: Event) -> Epsilon:
        """Adds one event of this analyst's; returns the growth of ``spent``.

        Raises ``LedgerError`` for a second charge or answer of a request.
        """
        grown = ZERO
        match record := event.record:
            case Granted():
                self.granted, self.revoked, self.stored = True, False, 0
                self.limit, self.expires = record.limit, record.expires
                self.terms, self.token = record.terms, record.token
                self.recent.clear()
            case Extended() | TermsSet() | TokenSet() | Revoked():
                self._change(record)
            case Charged():
                _once(self.charges, event)
                grown = self.costs.charge(record.demand, record.epsilon, record.version, self.places)
                self.waiting.add(event.request)
                self._asked(event)
                moment = datetime.fromisoformat(event.at)
                self.recent.append(moment)
                # Charges at 10:00:00, 10:00:30 and 10:01:00: the first is a minute old and goes.
                while self.recent[0] <= moment - MINUTE:
                    self.recent.popleft()
                self.stored += max(EVENT_BYTES, record.query.stored)
            case Refused():
                self._asked(event)
                self.refused[record.reason] += 1
                self.stored += EVENT_BYTES
            case Answered():
                _once(self.answers, event)
                self._settle(event.request)
            case SessionLogged():
                self._settle(event.request)
            case Created() | PolicyDeclared() | Retired() | Begun() | Snapshot():
                pass  # these concern all
            case _:
                assert_never(record)
        return grown

    def _settle(self, request: str) -> None:
        self.answered += request in self.waiting
        self.waiting.discard(request)

    def _asked(self, event: Event) -> None:
        self.first, self.last = self.first or event.at, event.at
        self.lines.append(event.seq)
        self.totals.append(self.spent.nano)

    def retire(self) -> None:
        """Ends the grant for good, and resets what was spent; lines of the history stay."""
        self.granted, self.revoked, self.costs = False, True, Costs()

    def _change(self, record: Extended | TermsSet | TokenSet | Revoked) -> None:
        if not self.granted:
            raise LedgerError(
                f"The ledger is damaged: it changes a grant of {self.analyst!r}, who was granted nothing before. "
                "The dataset stays closed; restore the ledger from a backup."
            )
        match record:
            case Extended():
                self.limit += record.more
                self.expires = record.expires or self.expires
            case TermsSet():
                self.terms = record.terms
            case TokenSet():
                self.token = record.token
            case Revoked():
                self.revoked = True


def _once(numbers: dict[str, int], event: Event) -> None:
    first = numbers.setdefault(event.request, event.seq)
    if first != event.seq:
        raise LedgerError(
            f"The ledger is damaged: event {event.seq} is a second {event.kind} of the request {event.request!r} of "
            f"{event.analyst!r}, after event {first}, and one id counts once. The dataset stays closed; restore the "
            "ledger from a backup."
        )


class LedgerState:
    """Every account, and the spending of all analysts together, from the events so far.

    Example: the log says created, declared with a cap of 2, eve granted 1, charged .4, answered, charged .4, refused.
    Then eve has spent .8 of 1, all together .8 of 2; one of her charges waits for its answer.

    Attributes:
        policy: The last declared policy.
        since: The number of the event that declared each column as it is now, by column.
        queries: The id of an analyst's last charge for a query of a version of the rows, since the last snapshot.
        rows: The last version of the rows of each place (``Begun.place``).
        begun: The time at which each version of the rows began, by its number; for the first, the time of its event.
        places: The place of each version, except for a table without a name.
        follows: The last closing of the ledger, before today's budgets; None for none.
        analyst_of_token: The analyst of each token, also of a revoked grant, by the token's digest.
    """

    def __init__(self) -> None:
        self.dataset, self.salt = "", b""
        self.policy: PolicyDeclared | None = None
        self.since: dict[str, int] = {}
        self.together = Cap()
        self.accounts: dict[str, Account] = {}
        self.queries: dict[tuple[str, Wanted], str] = {}
        self.rows: dict[str, Begun] = {}
        self.begun: dict[int, str] = {}
        self.places: dict[int, str] = {}
        self.follows: Retired | None = None
        self.analyst_of_token: dict[str, str] = {}

    @property
    def grants(self) -> dict[str, Account]:
        return {name: account for name, account in self.accounts.items() if account.granted}

    def grant_of_token(self, token: str) -> Account | None:
        """The valid grant to which the token with a digest belongs."""
        grant = self.grant_of(self.analyst_of_token.get(token, ""))
        return grant if grant is not None and grant.valid else None

    def require_token(self, token: str, analyst: str) -> None:
        """Raises ``NotAuthorised`` unless a token's digest is empty or belongs to a valid grant of the analyst."""
        grant = self.grant_of_token(token) if token else None
        if token and (grant is None or grant.analyst != analyst):
            raise NotAuthorised()

    def grant_of(self, analyst: str) -> Account | None:
        """The analyst's grant, if there ever was one."""
        account = self.accounts.get(analyst)
        return account if account is not None and account.granted else None

    def valid(self, analyst: str) -> Account:
        """The analyst's valid grant; raises ``NotAuthorised`` for none."""
        grant = self.grant_of(analyst)
        if grant is None or not grant.valid:
            raise NotAuthorised()
        return grant

    def charged_as(self, analyst: str, request: str, query: Wanted | None) -> tuple[str, int]:
        """The id under which a request was charged, and the number of that event; 0 for none.

        With a query, its last charge is found too, unless the request's own id was charged.
        """
        account = self.accounts.get(analyst)
        charges = {} if account is None else account.charges
        if query is not None and request not in charges:
            request = self.queries.get((analyst, query), request)
        return request, charges.get(request, 0)

    def price(self, grant: Account, demand: Demand, epsilon: Epsilon, version: int = 1) -> tuple[Epsilon, Epsilon]:
        """The cost of a request to its analyst, and the budget after it.

        The budget is the smaller rest of the grant and the cap; below 0 for a refusal.
        """
        # Granted 1, .6 of it spent, .3 left under the cap: a query of .2 would leave .2 of the
        # grant and .1 under the cap, so .1.
        cost, together = grant.costs.price(demand, epsilon, version, self.places), self.together
        return cost, min(grant.limit - grant.spent, together.cap - together.spent) - cost

    @property
    def last(self) -> int:
        """The last version of any table's rows; 1 before any was logged."""
        return max(self.begun, default=1)

    def table_of(self, version: int) -> str:
        """The name of the table of a version; empty for a policy of one table."""
        return self.places.get(version, "").partition(" ")[0]

    def is_cohort(self, version: int) -> bool:
        """Whether a version is a closed cohort's."""
        return " " in self.places.get(version, "")

    def replaced(self, analyst: str, version: int) -> str:
        """A sentence, after a blank, for an analyst who also queried other versions of the rows; else empty."""
        account, place = self.accounts.get(analyst), self.places.get(version, "")
        others = [number for number in {1, *self.begun} if number != version and self.places.get(number, "") == place]
        if account is None or not any(map(account.costs.spent_on, others)):
            return ""
        when = f" on {self.begun[version][:10]}" if version in self.begun else ""
        return (
            f" The rows were replaced, or read otherwise,{when}: what was asked of the earlier rows stays spent, and "
            "does not count as paid for these."
        )

    def require(
        self,
        grant: Account,
        verb: str,
        columns: Collection[str],
        demand: Demand,
        epsilon: Epsilon,
        version: int = 1,
    ) -> None:
        """Raises the error that refuses a request, if any.

        Raises:
            NotAllowed, TooManyRequests: The grant's terms forbid it.
            BudgetExceeded: More than the grant or the cap leaves.
        """
        grant.terms.require(verb, columns, epsilon, self.table_of(version))
        grant.require_pace()
        self.require_budget(grant, demand, epsilon, version)

    def require_budget(self, grant: Account, demand: Demand, epsilon: Epsilon, version: int = 1) -> None:
        """Raises ``BudgetExceeded`` if a request would cost more than the grant or the cap leaves."""
        cost, together = grant.costs.price(demand, epsilon, version, self.places), self.together
        limits = (
            ("analyst", grant.limit, grant.limit - grant.spent),
            ("cap", together.cap, together.cap - together.spent),
        )
        # Past a limit (the cap was lowered, or counted less in earlier versions) a request without a further cost is
        # refused too. Example: two analysts counted one half of the table each. The other half costs either of them
        # nothing, but all answers together cost more. The error names the smaller of the two remaining budgets, because
        # a request for the larger one would be refused again.
        scope, limit, rest = min(limits, key=itemgetter(2))
        if cost > rest:
            left = max(ZERO, rest)
            under_cap = f"under the cap over all analysts, which counts {COUNTED}"
            account = under_cap if scope == "cap" else f"for {grant.analyst!r}"
            raise BudgetExceeded(
                f"This would cost epsilon {cost}; {left} of {limit} remains {account}. "
                "Ask for less, or ask the data provider to extend the grant." + self.replaced(grant.analyst, version),
                asked=cost.exact,
                remaining=left.exact,
                scope=scope,
            )

    def due(self, policy: PolicyDeclared, ledger: str, may_raise: bool) -> PolicyDeclared | None:
        """The record of a policy that must be logged; None if the log has it already.

        Raises ``LedgerError``, with the ledger's name, if the meaning of epsilon would change.
        """
        means, before = meaning(policy.schema), self.policy
        units = [{} if declared is None else _units(declared.schema) for declared in (before, policy)]
        moved = any(units[0][name] != units[1][name] for name in units[0].keys() & units[1].keys())
        if before is not None and self.grants and (moved or meaning(before.schema) != means):
            raise LedgerError(
                f"The ledger {ledger} holds budgets for adjacency and privacy unit {meaning(before.schema)}; "
                f"the policy now says {means}, and an epsilon of one is not an epsilon of the other. "
                "Keep them; or, if they were begun wrongly, close them for good: `pinq retire POLICY --because TEXT`."
            )
        if before is not None and not may_raise:
            # An open dataset tightens only: a cap of 2 after one of 1 stays 1.
            policy = PolicyDeclared(policy.digest, min(policy.cap, before.cap), policy.schema, policy.cap_rule)
        return None if policy == before else policy

    def apply(self, event: Event) -> None:
        grown, old = ZERO, ""
        if event.analyst:
            account = self.account(event.analyst)
            # The old token is read before the event changes it.
            old, grown = account.token, account.apply(event)
        match record := event.record:
            case Granted() | TokenSet():
                self.analyst_of_token.pop(old, None)
                if record.token:
                    self.analyst_of_token[record.token] = event.analyst
            case Created():
                self.dataset, self.salt = record.dataset, bytes.fromhex(record.salt)
            case PolicyDeclared():
                before, after = (
                    {} if declared is None else _columns(declared.schema) for declared in (self.policy, record)
                )
                self.since |= {name: event.seq for name in after if after[name] != before.get(name)}
                self.policy, self.together.cap = record, record.cap
            case Charged():
                self.together.spent += grown
                if record.query.identity:
                    self.queries[event.analyst, (record.version, record.query.identity)] = event.request
            case Retired():
                self.policy, self.together.spent, self.follows = None, ZERO, record
                self.queries.clear()
                for account in self.accounts.values():
                    account.retire()
            case Begun():
                self.rows[record.place] = record
                if record.place:
                    self.places[record.number] = record.place
                self.begun.setdefault(record.number, event.at)

    def forget(self) -> None:
        """Forgets the numbers of events by request, which are in the tables too."""
        self.queries.clear()
        for account in self.accounts.values():
            account.charges.clear()
            account.answers.clear()

    def account(self, analyst: str) -> Account:
        """The analyst's account: a new, empty account for an unknown name."""
        if analyst not in self.accounts:
            self.accounts[analyst] = Account(analyst, self.together, self.places)
        return self.accounts[analyst]


def _units(schema: Body) -> Body:
    """The columns of the privacy unit in the tables of a logged schema, by the tables' names."""
    return {name: table["privacy_unit"]["column"] for name, table in schema.get("tables", {}).items()}


def _columns(schema: Body) -> Body:
    """The columns of a logged schema; those of tables with the table's name before them."""
    tables = schema.get("tables", {}).items()
    return schema.get("columns", {}) | {
        f"{name}.{column}": body for name, t in tables for column, body in t["columns"].items()
    }


def meaning(schema: Body) -> str:
    """The meaning of epsilon under a logged schema: adjacency and privacy unit."""
    return json.dumps([schema.get("adjacency", "add-remove"), schema.get("privacy_unit", "row")], sort_keys=True)


# The state as text


FORMAT = 1
"""The format of a log without tables; that of a log with tables is the next."""


def dump(state: LedgerState, first: str) -> str:
    """Writes a state and the hash of the log's first event as text."""
    # Orders are those of the events, as in a replay.
    return json.dumps(
        {
            "format": FORMAT + bool(state.places),
            "first": first,
            "dataset": state.dataset,
            "salt": state.salt.hex(),
            "policy": None if state.policy is None else state.policy.to_body(),
            "since": state.since,
            "spent": state.together.spent.nano,
            "rows": state.rows[""].to_body() if "" in state.rows else None,
            **({"places": [record.to_body() for name, record in state.rows.items() if name]} if state.places else {}),
            "begun": [*state.begun.items()],
            **({} if state.follows is None else {"follows": state.follows.to_body()}),
            **({"named": [*state.places.items()]} if state.places else {}),
            "accounts": [[name, _dumped(account)] for name, account in state.accounts.items()],
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def load(text: str) -> tuple[LedgerState, str] | None:
    """Reads a state, and the hash of the log's first event; None for another version's text."""
    read = json.loads(text)
    if read["format"] not in (FORMAT, FORMAT + 1):
        return None
    state = LedgerState()
    state.dataset, state.salt, state.since = read["dataset"], bytes.fromhex(read["salt"]), read["since"]
    state.begun = dict(map(tuple, read["begun"]))
    state.places = dict(map(tuple, read.get("named", ())))
    versions = [Begun.from_body(body) for body in (read["rows"], *read.get("places", ())) if body is not None]
    state.rows = {record.place: record for record in versions}
    state.together.spent = Epsilon(read["spent"])
    state.follows = Retired.from_body(read["follows"]) if "follows" in read else None
    if read["policy"] is not None:
        state.policy = PolicyDeclared.from_body(read["policy"])
        state.together.cap = state.policy.cap
    for name, fields in read["accounts"]:
        account = state.accounts[name] = _loaded(Account(name, state.together, state.places), fields)
        if account.token:
            state.analyst_of_token[account.token] = name
    return state, read["first"]


def query_key(analyst: str, query: Wanted) -> str:
    """The key of an analyst's query of a version of the rows, in the table of queries."""
    return digest_of(json.dumps([analyst, *query]))


_PLAIN = ("granted", "token", "revoked", "stored", "answered", "first", "last")
"""The fields of an account that are JSON as they are."""


def _dumped(account: Account) -> dict[str, Any]:
    return {name: getattr(account, name) for name in _PLAIN} | {
        "limit": account.limit.nano,
        "expires": account.expires and account.expires.isoformat(),
        "terms": account.terms.to_body(),
        "recent": [moment.isoformat() for moment in account.recent],
        "total": account.costs.total,
        "part": [(key.hex(), cost) for key, cost in account.costs.part.items()],
        "largest": [(key.hex(), split.hex(), cost) for (key, split), cost in account.costs.largest.items()],
        "waiting": sorted(account.waiting),
        "refused": account.refused,
        "lines": _packed(account.lines),
        "totals": _packed(account.totals),
    }


def _loaded(account: Account, read: dict[str, Any]) -> Account:
    for name in _PLAIN:
        setattr(account, name, read[name])
    account.limit, account.terms = Epsilon(read["limit"]), Terms.from_body(read["terms"])
    account.expires = None if read["expires"] is None else datetime.fromisoformat(read["expires"])
    account.recent = deque(map(datetime.fromisoformat, read["recent"]))
    account.costs = Costs(
        {bytes.fromhex(key): cost for key, cost in read["part"]},
        {(bytes.fromhex(key), bytes.fromhex(split)): cost for key, split, cost in read["largest"]},
        read["total"],
    )
    account.waiting, account.refused = set(read["waiting"]), Counter(read["refused"])
    account.lines, account.totals = _unpacked(read["lines"]), _unpacked(read["totals"])
    return account


def _packed(numbers: array[int]) -> str:
    """Writes whole numbers of 8 bytes, the lowest byte first, in base 64."""
    return b64encode(_lowest_first(numbers[:]).tobytes()).decode()


def _unpacked(text: str) -> array[int]:
    return _lowest_first(array("q", b64decode(text)))


def _lowest_first(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
