# SPDX-License-Identifier: Apache-2.0
"""The contents of the log: events, each with one record; ``state.py`` has the meaning of all records together.

Five rules hold for all records:

1. A record's meaning never changes; a new meaning is a new kind.
2. An unknown kind or field stops the ledger from opening: if it were skipped, too little might
   count as spent.
3. A record says what happened, never a balance.
4. A record is written as the first release wrote it, byte for byte, because the chain covers its
   text.
5. A field that older logs lack has a default, which means what those logs meant.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from pinq.errors import BudgetExceeded, NotAllowed, NotAuthorised, PinqError, PolicyError, QueryError
from pinq.language.queries import Verb
from pinq.ledger.composition import Demand
from pinq.public.checks import first_of, is_whole
from pinq.public.epsilon import NANO, Epsilon

# The values of the log as JSON, by the types of fields

MOST_NANO = 2**60
Body = dict[str, Any]
"""JSON from outside; each class checks it field by field."""


def _loss(stored: object) -> Epsilon:
    if not is_whole(stored, 0, MOST_NANO):
        raise ValueError(f"{str(stored)[:40]!r} is no loss in nano-epsilons")
    return Epsilon(stored)


def _moment(stored: Any) -> datetime | None:
    moment = None if stored is None else datetime.fromisoformat(stored)
    if moment is not None and moment.tzinfo is None:
        raise ValueError(f"{stored!r} has no zone")
    return moment


Loss = Annotated[Epsilon, PlainValidator(_loss), PlainSerializer(lambda loss: loss.nano)]
"""A loss, stored as whole nano-epsilons."""
Moment = Annotated[
    datetime | None, PlainValidator(_moment), PlainSerializer(lambda moment: moment and moment.isoformat())
]
"""A time with its zone, ISO 8601, or none."""
Texts = tuple[str, ...]
"""A list of texts."""
Whole = Annotated[int, Field(ge=0, strict=True)]
"""A whole number from 0 on."""


class Stored:
    """A frozen dataclass that the log keeps.

    Fields are written in their order; a field with its default is left out, and an unknown field is refused.

    Attributes:
        flat: The field, if any, whose fields are written in its place.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    flat: ClassVar[str] = ""

    def to_body(self) -> Body:
        body: Body = {}
        adapter = _adapter(type(self))  # type: ignore[arg-type]
        for name, value in adapter.dump_python(self, mode="json", by_alias=True, exclude_defaults=True).items():
            body |= value if name == self.flat else {name: value}
        return body

    @classmethod
    def from_body(cls, body: Body) -> Self:
        """Reads it back; raises ``ValueError`` for an unknown or missing field, or one of another type."""
        if cls.flat:
            names = _own(cls)  # type: ignore[arg-type]
            rest = {name: value for name, value in body.items() if name not in names}
            body = {name: value for name, value in body.items() if name in names} | {cls.flat: rest}
        try:
            read: Self = _adapter(cls).validate_python(body)  # type: ignore[arg-type]
        except ValidationError as error:
            raise ValueError("; ".join(_explained(each["loc"], each) for each in error.errors())) from None
        return read


def digest_of(text: str) -> str:
    """SHA-256 of an answer's text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _own(kind: Any) -> frozenset[str]:
    """The names of the fields that keep their place."""
    return frozenset(field.name for field in fields(kind)) - {kind.flat}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _explained(path: tuple[object, ...], error: Any) -> str:
    field = path[-1] if path else ""
    return repr(field) if error["type"] == "missing" else f"{field!r}: {error['msg']}"


# The terms of a grant

EVENT_BYTES = 1024  # the least size of a line of the log
STORED_BYTES = 2 * 10**9
"""Bytes that the ledger keeps of a grant's requests if its terms name no other number."""

VERBS: tuple[str, ...] = get_args(Verb)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Terms(Stored):
    """The terms of a grant, in addition to its budget. None allows everything, except in ``stored_bytes``.

    Attributes:
        max_epsilon_per_query: The largest epsilon of one request for a part.
        columns: The columns that a request may name, as partition, measure, candidate or target.
        verbs: Some of ``noisy_count``, ``noisy_sum``, ``noisy_avg``, ``exp_mech``.
        queries_per_minute: Charges within any sixty seconds; previews are free and not logged, so they are not counted.
        work_per_minute: Units of work (see ``pinq/curator/price.py``) that requests, previews and histories may need
            within any sixty seconds. Each server counts its own work, and each of its workers has an equal share.
        stored_bytes: Bytes of the ledger for all charges, answers and refusals together, beyond which nothing is
            charged and refusals are not logged; None for ``STORED_BYTES``.
        tables: The tables of the policy that may be queried.
    """

    max_epsilon_per_query: Loss | None = None
    columns: Texts | None = None
    verbs: Texts | None = None
    queries_per_minute: Whole | None = None
    work_per_minute: Whole | None = None
    stored_bytes: Whole | None = None
    tables: Texts | None = None

    def __str__(self) -> str:
        limits = {
            "epsilon at most {} a query": self.max_epsilon_per_query,
            "columns {}": None if self.columns is None else ", ".join(self.columns) or "none",
            "verbs {}": None if self.verbs is None else ", ".join(self.verbs),
            "{} queries a minute": self.queries_per_minute,
            "{:,} units of work a minute": self.work_per_minute,
            "{:,} bytes stored": self.stored_bytes,
            "tables {}": None if self.tables is None else ", ".join(self.tables),
        }
        return "; ".join(form.format(limit) for form, limit in limits.items() if limit is not None) or "no terms"

    def require(self, verb: str, columns: Collection[str], epsilon: Epsilon, table: str = "") -> None:
        """Raises ``NotAllowed`` if the terms forbid a request, whatever the rows are."""
        if self.tables is not None and table not in self.tables:
            refused = f"the table {table}" if table else "a policy without tables"
            raise NotAllowed(f"this grant does not allow {refused}; it allows {', '.join(self.tables)}. {ASK}")
        if self.verbs is not None and verb not in self.verbs:
            raise NotAllowed(f"this grant does not allow {verb}; it allows {', '.join(self.verbs)}. {ASK}")
        wrong = sorted(set(columns) - set(self.columns)) if self.columns is not None else []
        if wrong:
            raise NotAllowed(
                f"this grant does not allow the column{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}; it "
                f"allows {', '.join(self.columns or ()) or 'none'}. {ASK}"
            )
        if self.max_epsilon_per_query is not None and epsilon > self.max_epsilon_per_query:
            raise NotAllowed(
                f"this grant allows epsilon of at most {self.max_epsilon_per_query} for one query; {epsilon} "
                f"was asked. {ASK}"
            )


ASK = "The data provider can change it (pinq terms)."


FREE = Terms()


def no_grant(analyst: str, names: list[str]) -> str:
    """The error for an analyst without a grant, with the names of the others."""
    verb = "have" if len(names) > 1 else "has"
    return f"{analyst!r} has no grant; {first_of(names, 12) or 'nobody'} {verb}. Use `pinq grant` first."


MAX_REASON = 500


class UnknownEvent(ValueError):
    """An event that this version cannot read; the text says why."""


# A provider's acts


@dataclass(frozen=True)
class Created(Stored):
    """The ledger was made, by version 1 of its form.

    Attributes:
        salt: The key of the rows' coins.
        coins: The way in which coins are made, 1 or 2; versions that know only the first refuse the second.
    """

    kind: ClassVar[str] = "created"
    version: int
    dataset: str
    salt: str
    coins: int = 1

    def __post_init__(self) -> None:
        bytes.fromhex(self.salt)


@dataclass(frozen=True)
class PolicyDeclared(Stored):
    """The policy changed.

    Attributes:
        schema: The facts of the policy in the log, without defaults.
        cap_rule: The rule by which the cap counted then; today it counts the sum, also in logs that say ``union``.
    """

    kind: ClassVar[str] = "policy"
    digest: str
    cap: Loss
    schema: Body
    cap_rule: Literal["sum", "union"]

    def __post_init__(self) -> None:
        {} | self.schema.get("columns", {}) | self.schema.get("reviewed", {})  # a TypeError unless both are objects

    @classmethod
    def from_body(cls, body: Body) -> PolicyDeclared:
        """Reads it back; older logs counted the union and have no field for it."""
        return super().from_body({"cap_rule": "union"} | body)


@dataclass(frozen=True)
class Granted(Stored):
    """An analyst got a budget.

    Attributes:
        token: Digest of the bearer token; empty for none.
    """

    kind: ClassVar[str] = "grant"
    flat: ClassVar[str] = "terms"
    limit: Loss
    expires: Moment
    terms: Terms = FREE
    token: str = ""


@dataclass(frozen=True)
class Extended(Stored):
    """A grant got a higher limit, a new end (``expires``), or both."""

    kind: ClassVar[str] = "extend"
    more: Loss
    expires: Moment


@dataclass(frozen=True)
class TermsSet(Stored):
    """A grant got new terms."""

    kind: ClassVar[str] = "terms"
    flat: ClassVar[str] = "terms"
    terms: Terms


@dataclass(frozen=True)
class TokenSet(Stored):
    """A grant got a new token (its digest); the old token ended."""

    kind: ClassVar[str] = "token"
    token: str


@dataclass(frozen=True)
class Revoked(Stored):
    """A grant ended."""

    kind: ClassVar[str] = "revoke"


@dataclass(frozen=True)
class Retired(Stored):
    """The ledger so far was closed: all grants ended, and later budgets count from 0, under any policy.

    Attributes:
        means: The meaning of epsilon until then: adjacency and privacy unit.
        spent: The spending of all analysts together until then; no later budget counts it.
    """

    kind: ClassVar[str] = "retire"
    means: str
    spent: Loss


@dataclass(frozen=True)
class Begun(Stored):
    """A version of the rows began, or the facts that identify the last version changed.

    Declared facts and facts of files decide this, never the contents of rows, because a price depends on the version.

    Attributes:
        number: The version, from 1 on. Before the first event of this kind all rows are of version 1. The versions of
            all tables are counted together, so a number identifies a table and its version.
        why: The facts in words.
        reading: Digest of the other settings in the policy that decide how rows are read.
        source: Digest of the facts of the source's files; empty for a source without such facts.
        declared: The policy's ``rows_version``; empty where it has none.
        columns: For a declared version: digest of the columns that were encoded.
        contents: For a declared version: keyed digest of the encoded rows, for the provider alone.
        table: The table of the policy; empty for a policy that is one table.
        cohort: The name of the closed cohort whose rows they are; empty for those of the whole table.
        partition: For a cohort: the key of the partition whose part it is.
    """

    kind: ClassVar[str] = "version"
    number: Whole
    why: str
    reading: str
    source: str = ""
    declared: str = ""
    columns: str = ""
    contents: str = ""
    table: str = ""
    cohort: str = ""
    partition: str = ""

    @property
    def place(self) -> str:
        """The name of the rows with these versions: a table's, or a cohort's of a table."""
        return f"{self.table} {self.partition} {self.cohort}" if self.cohort else self.table

    def after(self, before: Begun | None, last: int, contents: Callable[[], str]) -> Begun:
        """Finds the version of rows that were read, the last one or a new one.

        ``contents`` makes the digest of rows, if needed.

        Returns:
            The event to log, or ``before`` if nothing is new.

        Raises:
            PolicyError: The policy declares the rows of the last version, but the rows differ.
        """
        if before is None:
            # Version 1 may have answers from before events of this kind; it is the version of no named table.
            number = last + 1 if self.place or last > 1 else 1
            return replace(self, number=number, contents=contents() if self.declared else "")
        # Files that were not written again have the same rows, also where the rows got a name meanwhile.
        alike = self.source == before.source != "" and "" in (self.declared, before.declared)
        named = self.declared == before.declared != ""
        same = self.reading == before.reading and (alike or named)
        unchanged = all(getattr(self, name) == getattr(before, name) for name in ("source", "declared", "columns"))
        if same and unchanged and self.source:
            return before
        now = replace(self, number=before.number if same else last + 1, contents=contents() if self.declared else "")
        if same and named and self.columns == before.columns:
            if now.contents != before.contents:
                if self.cohort:
                    raise PolicyError(
                        f"The rows of the closed cohort {self.cohort} are not those that it had when it was closed. "
                        "Nothing is answered from them. Put these back, or say that they were corrected: "
                        f"pinq correct POLICY {self.cohort} --because TEXT"
                    )
                raise PolicyError(
                    f"The rows are not those of {self.declared!r}, the `rows_version` that the policy declares: they "
                    "changed, and this name stayed. Nothing is answered from them. Declare another `rows_version` "
                    "for them, or put the rows of this one back."
                )
            return before
        return now


# An analyst's requests


@dataclass(frozen=True)
class LoggedQuery(Stored):
    """The record of a request in the log, by public facts; empty if it does not apply.

    Attributes:
        session: For a computation among several parties: the session's digest.
        identity: Digest that identifies the query, without the id of the request; the log calls it ``query``.
        classes: For ``ClassCount``: the column whose values are the classes.
        act: The name of its act, from the analyst's program; empty in older logs.
        run: The identifier of the act among others of the same name.
        stored: The largest number of bytes of the charge and its answer; 0 in older logs.
        notes: Further facts by name, which decide no cost and no limit; a reader keeps unknown ones, so that a later
            version may write them.
    """

    verb: str = ""
    session: str = ""
    about: str = ""
    identity: Annotated[str, Field(alias="question")] = ""
    classes: str = ""
    act: str = ""
    run: str = ""
    stored: Whole = 0
    notes: dict[str, Any] = field(default_factory=dict, hash=False)


NOTHING = LoggedQuery()


@dataclass(frozen=True)
class Charged(Stored):
    """A request was charged, before anything was read: ``epsilon`` for each part of the demand.

    Attributes:
        version: The version of the queried rows; 1 in logs that had no versions.
    """

    kind: ClassVar[str] = "charge"
    flat: ClassVar[str] = "query"
    epsilon: Loss
    demand: Annotated[Demand, PlainValidator(Demand.load), PlainSerializer(Demand.dump)]
    version: Whole = field(default=1, kw_only=True)
    query: LoggedQuery = NOTHING

    def reserving(self, more: int) -> tuple[Charged, str]:
        """The charge with its size plus ``more`` bytes noted in it, and its text."""
        body = self.to_body()  # once: a demand can have a hundred thousand parts
        # ``more`` has room for any name of an act, so that no name causes a refusal.
        stored = len(json.dumps({name: value for name, value in body.items() if name not in ("act", "run")})) + more
        return replace(self, query=replace(self.query, stored=stored)), _as_text(body | {"stored": stored})


@dataclass(frozen=True)
class Answered(Stored):
    """A charged request got its answer: ``payload`` is its SHA-256, the text is beside the log."""

    kind: ClassVar[str] = "answer"
    payload: str


@dataclass(frozen=True)
class Refused(Stored):
    """A request was refused: no grant, too little budget, or against the terms of the grant.

    Errors that are found earlier (``QueryError``) are not logged.

    Attributes:
        reason: The error's code.
        asked, remaining, scope: For a lack of budget: the cost, the rest, and the exceeded limit, the analyst's or that
            of all.
        query: The query; empty if the analyst had no grant.
    """

    kind: ClassVar[str] = "refusal"
    flat: ClassVar[str] = "query"
    reason: str
    asked: Loss | None = None
    remaining: Loss | None = None
    scope: str = ""
    query: LoggedQuery = NOTHING

    @classmethod
    def of(cls, error: PinqError, query: LoggedQuery) -> Refused:
        """The record of an error, without the query if the analyst has no grant."""
        match error:
            case BudgetExceeded():
                return cls(error.code, _nano(error.asked), _nano(error.remaining), error.scope, query)
            case NotAuthorised():
                return cls(error.code)
        return cls(error.code, query=query)


@dataclass(frozen=True)
class SessionLogged(Stored):
    """A computation among several parties was logged.

    An exact computation is logged before anything is shared, a charged one at its end.
    """

    kind: ClassVar[str] = "secure"
    flat: ClassVar[str] = "query"
    query: LoggedQuery
    opens: Texts


@dataclass(frozen=True)
class Snapshot(Stored):
    """A snapshot of the state before this event was kept: ``digest`` is its SHA-256, the text is beside the log."""

    kind: ClassVar[str] = "snapshot"
    digest: str


Record = (
    Created
    | PolicyDeclared
    | Granted
    | Extended
    | TermsSet
    | TokenSet
    | Revoked
    | Retired
    | Begun
    | Charged
    | Answered
    | Refused
    | SessionLogged
    | Snapshot
)
_KINDS: dict[str, type[Record]] = {kind.kind: kind for kind in get_args(Record)}
_SIGNED = {kind.kind for kind in (PolicyDeclared, Granted, Extended, TermsSet, TokenSet, Revoked, Retired, Begun)}


@dataclass(frozen=True)
class Signature(Stored):
    """The author of a provider's act and the reason; the log keeps both with the act.

    The log belongs to the provider, so this shows which of the provider's people acted, but proves nothing against the
    administrator of the machine.

    Attributes:
        by: ``user@host``; in logs of earlier versions also ``provider page, ADDRESS``.
        because: The reason, if one is given.

    Raises:
        QueryError: A reason that is too long, or has characters that do not print.
    """

    by: str
    because: str = ""

    def __post_init__(self) -> None:
        if len(self.because) > MAX_REASON or not self.because.isprintable():
            raise QueryError(
                f"must be at most {MAX_REASON} printable characters on one line. Nothing was changed.",
                parameter="because",
            )


def here(because: str = "") -> Signature:
    """The user who runs this process, on this machine."""
    return Signature(f"{_user()}@{socket.gethostname()}", because.strip())


@dataclass(frozen=True)
class Event:
    """One line of the log: a record, its place in the chain, and its analyst.

    Attributes:
        at: Time of the event, ISO 8601 in UTC, to the millisecond.
        analyst: The analyst; empty for events that concern everyone.
        request: The request's id; empty for events without a request.
        hash: The hash of this line and the one before it.
        by: The signature of a provider's act; None for other events, and in logs without signatures.
    """

    seq: int
    at: str
    analyst: str
    request: str
    record: Record
    hash: str
    by: Signature | None = None

    @property
    def kind(self) -> str:
        return self.record.kind


def text_of(record: Record, by: Signature | None = None) -> str:
    """Writes a record and its signature as text."""
    return _as_text(record.to_body() | ({} if by is None else by.to_body()))


_as_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def read(kind: str, body: Body) -> tuple[Record, Signature | None]:
    """Reads the record of an event, and its signature.

    Raises:
        UnknownEvent: A kind or field that this version lacks, or a field of another type.
    """
    if kind not in _KINDS:
        raise UnknownEvent(f"is of the kind {kind!r}")
    try:
        by = None
        if kind in _SIGNED and "by" in body:
            by = Signature.from_body({name: body[name] for name in ("by", "because") if name in body})
            body = {name: value for name, value in body.items() if name not in ("by", "because")}
        return _KINDS[kind].from_body(body), by
    except (LookupError, TypeError, ValueError) as error:
        raise UnknownEvent(f"of the kind {kind!r} has other fields ({error})") from None


def _nano(loss: Fraction) -> Epsilon:
    return Epsilon(int(loss * NANO))  # exact: the loss was one


def _user() -> str:
    """The real user, whatever the environment says; in a container the number may have no name."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except ModuleNotFoundError:  # not a POSIX system
        return getpass.getuser()
    except KeyError:
        return str(os.getuid())
