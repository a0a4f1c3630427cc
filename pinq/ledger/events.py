# SPDX-License-Identifier: Apache-2.0
"""What the log holds: events, each with one record of what happened.

The records are in ``acts.py`` (what a provider does) and ``requests.py`` (what becomes of an
analyst's request). A record's meaning never changes; a new meaning is a new kind. A kind, or a
field, that this version does not know stops the ledger from opening: whoever skipped it might count
too little as spent. What the records mean together is in ``state.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pinq.ledger.acts import Created, Declared, Extended, Granted, Revoked, TermsSet, TokenSet
from pinq.ledger.body import Body, text_of, without
from pinq.ledger.requests import Answered, Charged, Refused, SessionLogged
from pinq.ledger.signature import Signature

__all__ = ["Event", "Record", "UnknownEvent", "body_of", "read"]


class UnknownEvent(ValueError):
    """An event that this version cannot read; the text says why."""


Record = (
    Created
    | Declared
    | Granted
    | Extended
    | TermsSet
    | TokenSet
    | Revoked
    | Charged
    | Answered
    | Refused
    | SessionLogged
)

_KINDS = (
    Created,
    Declared,
    Granted,
    Extended,
    TermsSet,
    TokenSet,
    Revoked,
    Charged,
    Answered,
    Refused,
    SessionLogged,
)
_READERS: dict[str, Callable[[Body], Record]] = {kind.kind: kind.from_body for kind in _KINDS}


# What a provider does is signed; the log keeps by whom, and why, beside the act.
_SIGNED = {kind.kind for kind in (Declared, Granted, Extended, TermsSet, TokenSet, Revoked)}


def body_of(at: str, analyst: str, request: str, text: str) -> Body:
    """Reads a body. ``UnknownEvent`` unless it is an object, at a moment, beside texts."""
    try:
        datetime.fromisoformat(at)
        text_of(analyst)
        text_of(request)
        return dict(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnknownEvent(f"is written otherwise ({error})") from None


def read(kind: str, body: Body) -> tuple[Record, Signature | None]:
    """Reads an event's record, and who signed it.

    Raises:
        UnknownEvent: A kind or field that this version lacks, or a field that is not what it was.
    """
    if kind not in _READERS:
        raise UnknownEvent(f"is of the kind {kind!r}")
    try:
        by = None
        if kind in _SIGNED and "by" in body:
            by = Signature(text_of(body["by"]), text_of(body.get("because", "")))
            body = without(body, "by", "because")
        return _READERS[kind](body), by
    except (LookupError, TypeError, ValueError) as error:
        raise UnknownEvent(f"of the kind {kind!r} has other fields ({error})") from None


@dataclass(frozen=True)
class Event:
    """One line of the log: a record, its place in the chain, and whom it concerns.

    Attributes:
        at: When, ISO 8601 in UTC, to the millisecond.
        analyst: Whom; empty where it concerns all.
        request: The request's id; empty where it is about none.
        hash: Of this line and the one before it.
        by: Who signed a provider's act; None for other events, and in logs from before acts were
            signed.
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
        """The record's kind, as the log spells it."""
        return self.record.kind
