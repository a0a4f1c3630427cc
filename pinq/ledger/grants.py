# SPDX-License-Identifier: Apache-2.0
"""What the log means: grants, their terms, and what was spent, replayed event by event. Pure; ``ledger.py`` keeps the log itself."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from pinq.errors import BudgetExceeded, NotAllowed, PinqError, TooManyRequests
from pinq.ledger.composition import Costs, Demand
from pinq.public.epsilon import exact, show

__all__ = ["FREE", "VERBS", "Book", "Grant", "Terms", "load_demand", "now"]

VERBS = ("noisy_count", "noisy_sum", "noisy_avg", "exp_mech")
MINUTE = timedelta(minutes=1)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Terms:
    """What a grant allows beyond its budget; None allows everything.

    Attributes:
        max_epsilon_per_query: The most that one request may ask of a part, nano-epsilons.
        columns: Those that a request may name, as partition, measure, candidate or target.
        verbs: Of ``noisy_count``, ``noisy_sum``, ``noisy_avg``, ``exp_mech``.
        queries_per_minute: Charges within any sixty seconds. Previews are free, read no row and are
            not in the log, so they are not counted.
    """

    max_epsilon_per_query: int | None = None
    columns: tuple[str, ...] | None = None
    verbs: tuple[str, ...] | None = None
    queries_per_minute: int | None = None

    @classmethod
    def of(cls, body: dict[str, Any]) -> Terms:
        """From an event's body."""
        found = {one.name: body.get(one.name) for one in fields(cls)}
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        return cls(**plain)

    def to_body(self) -> dict[str, Any]:
        """As an event keeps them: only what limits."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    def __str__(self) -> str:
        said = []
        if self.max_epsilon_per_query is not None:
            said.append(f"epsilon at most {show(self.max_epsilon_per_query)} a query")
        if self.columns is not None:
            said.append(f"columns {', '.join(self.columns) or 'none'}")
        if self.verbs is not None:
            said.append(f"verbs {', '.join(self.verbs)}")
        if self.queries_per_minute is not None:
            said.append(f"{self.queries_per_minute} queries a minute")
        return "; ".join(said) or "no terms"

    def require(self, verb: str, columns: Collection[str], epsilon: int) -> None:
        """``NotAllowed`` where the terms forbid a request. Follows the request alone, never the rows."""
        if self.verbs is not None and verb not in self.verbs:
            raise NotAllowed(f"this grant does not allow {verb}; it allows {', '.join(self.verbs)}. {_ASK}")
        wrong = sorted(set(columns) - set(self.columns)) if self.columns is not None else []
        if wrong:
            raise NotAllowed(
                f"this grant does not allow the column{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}; it allows {', '.join(self.columns or ()) or 'none'}. {_ASK}"
            )
        if self.max_epsilon_per_query is not None and epsilon > self.max_epsilon_per_query:
            raise NotAllowed(
                f"this grant allows epsilon of at most {show(self.max_epsilon_per_query)} for one query; {show(epsilon)} was asked. {_ASK}"
            )


_ASK = "Nothing was spent. The data provider can change it (pinq terms)."


FREE = Terms()


@dataclass
class Grant:
    """What an analyst may spend.

    Attributes:
        limit, spent: nano-epsilons.
        expires: No answer from this moment on; None for never.
        token: SHA-256 of the bearer token, in hexadecimal; empty where none was issued.
        recent: When the charges of the last minute before the last charge were made.
    """

    analyst: str
    limit: int
    expires: datetime | None = None
    revoked: bool = False
    costs: Costs = field(default_factory=Costs)
    terms: Terms = FREE
    token: str = ""
    recent: deque[datetime] = field(default_factory=deque)

    @property
    def spent(self) -> int:
        return self.costs.spent

    @property
    def remaining(self) -> int:
        """What is left, 0 once revoked or expired."""
        return max(0, self.limit - self.spent) if self.valid else 0

    @property
    def valid(self) -> bool:
        """Neither revoked nor expired."""
        return not self.revoked and (self.expires is None or now() < self.expires)

    def require_pace(self) -> None:
        """``TooManyRequests`` while the last minute is full."""
        most = self.terms.queries_per_minute
        if most is None or len(self.recent) < most:  # what is older than the last charge by a minute does not count
            return
        wait = (self.recent[-most] + MINUTE - now()).total_seconds()
        if wait > 0:
            raise TooManyRequests(
                f"this grant allows {most} queries a minute, and the last minute had as many. Nothing was spent. Try again in {max(1, round(wait))} s.",
                wait,
            )


class Book:
    """Every grant and what was spent, as the events so far say.

    Attributes:
        policy: Digest of the schema and the cap, as last declared.
        meaning: What an epsilon means: adjacency and privacy unit.
        joint: The recursion over the union of all analysts' trees.
    """

    def __init__(self) -> None:
        self.dataset, self.salt, self.meaning = "", b"", ""
        self.policy: tuple[str, int] | None = None
        self.cap = 0
        self.grants: dict[str, Grant] = {}
        self.joint = Costs()
        self._questions: dict[tuple[str, str], str] = {}

    def asked(self, analyst: str, question: str) -> str | None:
        """The id under which an analyst was charged for this very question, the last time."""
        return self._questions.get((analyst, question))

    def require(self, grant: Grant, verb: str, columns: Collection[str], demand: Demand, epsilon: int) -> None:
        """Raises what refuses a request: ``NotAllowed``, ``TooManyRequests`` or ``BudgetExceeded``."""
        grant.terms.require(verb, columns, epsilon)
        grant.require_pace()
        for scope, costs, limit in (("analyst", grant.costs, grant.limit), ("cap", self.joint, self.cap)):
            price = costs.price(demand, epsilon)
            left = max(0, limit - costs.spent)
            if price > left:
                whose = f"for {grant.analyst!r}" if scope == "analyst" else "under the cap over all analysts"
                raise BudgetExceeded(
                    f"This would cost epsilon {show(price)}; {show(left)} of {show(limit)} remains {whose}. Nothing was spent. "
                    "Ask for less, or ask the data provider to extend the grant.",
                    asked=exact(price),
                    remaining=exact(left),
                    scope=scope,
                )

    def apply(
        self, at: str, kind: str, analyst: str, request: str, body: dict[str, Any], demand: Demand | None = None
    ) -> None:
        """The meaning of each kind of event. It never changes; a new meaning is a new kind."""
        if kind == "created":
            self.dataset, self.salt = body["dataset"], bytes.fromhex(body["salt"])
        elif kind == "policy":
            self.policy, self.cap = (body["digest"], body["cap"]), body["cap"]
            self.meaning = meaning(body["schema"])
        elif kind == "grant":
            spent = self.grants[analyst].costs if analyst in self.grants else Costs()
            self.grants[analyst] = Grant(
                analyst,
                body["limit"],
                _moment(body["expires"]),
                costs=spent,
                terms=Terms.of(body),
                token=body.get("token", ""),
            )
        elif kind == "extend":
            self.grants[analyst].limit += body["more"]
            self.grants[analyst].expires = _moment(body["expires"]) or self.grants[analyst].expires
        elif kind == "terms":
            self.grants[analyst].terms = Terms.of(body)
        elif kind == "token":
            self.grants[analyst].token = body["token"]
        elif kind == "revoke":
            self.grants[analyst].revoked = True
        elif kind == "charge":
            self._charge(at, self.grants[analyst], request, body, demand or load_demand(body["demand"]))

    def _charge(self, at: str, grant: Grant, request: str, body: dict[str, Any], demand: Demand) -> None:
        grant.costs.charge(demand, body["epsilon"])
        self.joint.charge(demand, body["epsilon"])
        if "question" in body:
            self._questions[grant.analyst, body["question"]] = request
        grant.recent.append(datetime.fromisoformat(at))
        while grant.recent[0] <= grant.recent[-1] - MINUTE:
            grant.recent.popleft()


def refusal_body(error: PinqError) -> dict[str, Any]:
    """What the log keeps of a refusal, beside the question."""
    if isinstance(error, BudgetExceeded):
        return {
            "reason": error.code,
            "asked": int(error.asked * 10**9),
            "remaining": int(error.remaining * 10**9),
            "scope": error.scope,
        }
    return {"reason": error.code}


def meaning(schema: dict[str, Any]) -> str:
    """What an epsilon means under a logged schema: adjacency and privacy unit."""
    return json.dumps([schema.get("adjacency", "add-remove"), schema.get("privacy_unit", "row")], sort_keys=True)


def dump_demand(demand: Demand) -> list[Any]:
    """A demand as JSON: keys in hexadecimal, each partition's key once."""
    partitions: dict[bytes, int] = {}
    nodes = [[parent, partitions.setdefault(split, len(partitions)), key.hex()] for parent, split, key in demand.nodes]
    asked = [
        [node, -1 if split is None else partitions.setdefault(split, len(partitions))] for node, split in demand.asked
    ]
    return [[key.hex() for key in partitions], nodes, asked]


def load_demand(dumped: list[Any]) -> Demand:
    """A demand as a charge event holds it."""
    partitions = [bytes.fromhex(key) for key in dumped[0]]
    return Demand(
        tuple((parent, partitions[split], bytes.fromhex(key)) for parent, split, key in dumped[1]),
        tuple((node, None if split < 0 else partitions[split]) for node, split in dumped[2]),
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
