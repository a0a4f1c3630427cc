# SPDX-License-Identifier: Apache-2.0
"""Reads the arguments of a provider's acts: an analyst's name, an expiry, the terms of a grant."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time

from pinq.errors import QueryError
from pinq.ledger.events import VERBS, Terms, now
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.policy import Policy

__all__ = ["future", "make_terms", "parse_expiry", "require_name"]

MAX_NAME = 128
MAX_PER_MINUTE = 10**6
MAX_QUOTA = 10**15
SHORT_VERBS = {"count": "noisy_count", "sum": "noisy_sum", "avg": "noisy_avg", "choose": "exp_mech"}
END_OF_DAY = time(23, 59, 59, 999_999)


def require_name(analyst: object) -> None:
    """Raises ``QueryError`` unless this can be an analyst's name."""
    name = analyst if isinstance(analyst, str) else ""
    if not name or name != name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise QueryError(
            f"is {repr(analyst)[:60]}",
            parameter="analyst",
            allowed=f"1 to {MAX_NAME} printable characters without blanks around them",
        )


def parse_expiry(expires: str | date | None, *, parameter: str = "expires") -> datetime | None:
    """Reads the moment from which a grant no longer counts.

    Args:
        expires: An ISO date, which means until the end of that day in UTC, or an ISO date and time,
            in UTC unless it says otherwise; or a ``date`` or ``datetime``. None for never.
        parameter: What errors call it.

    Raises:
        QueryError: Neither of these.
    """
    if expires is None:
        return None
    text = str(expires).strip()
    readers: tuple[Callable[[str], datetime], ...] = (_end_of_day, datetime.fromisoformat)
    for read in readers:
        try:
            moment = read(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except OverflowError:
            raise QueryError(f"is {text[:40]!r}, which no calendar in UTC has.", parameter=parameter) from None
        except ValueError:
            continue
    raise QueryError(
        f"is {text[:40]!r}; write 2030-01-31 for all of that day (UTC), or a time, 2030-01-31T18:00Z.",
        parameter=parameter,
    )


def future(expires: str | date | None) -> datetime | None:
    """Reads an expiry as ``parse_expiry`` does. ``QueryError`` for a moment that is past."""
    moment = parse_expiry(expires)
    if moment is not None and moment <= now():
        shown = moment.isoformat(sep=" ", timespec="seconds")
        raise QueryError(
            f"is {shown}, which is past; name a moment to come. To end a grant now, use `pinq revoke`.",
            parameter="expires",
        )
    return moment


def make_terms(
    policy: str | os.PathLike[str] | Policy,
    *,
    max_epsilon_per_query: EpsilonLike | None = None,
    columns: Sequence[str] | None = None,
    verbs: Sequence[str] | None = None,
    queries_per_minute: int | str | None = None,
    work_per_minute: int | str | None = None,
    stored_bytes: int | str | None = None,
) -> Terms:
    """Makes checked terms for a grant; None allows everything.

    Args:
        policy: Whose columns.
        max_epsilon_per_query: The most that one request may ask.
        columns: Columns that requests may name.
        verbs: ``count``, ``sum``, ``avg``, ``choose``, or the verbs' own names.
        queries_per_minute: Charges within any sixty seconds.
        work_per_minute: Units of work, about a millisecond of one core each, within any sixty
            seconds.
        stored_bytes: What the ledger may keep of the analyst's requests in all.

    Raises:
        QueryError: A column or verb that does not exist, or a number out of range.
    """
    schema = load_policy(policy).schema_
    for name in columns or ():
        schema.column(name)
    most = max_epsilon_per_query
    return Terms(
        None if most is None else Epsilon.exactly(most, name="max_epsilon_per_query"),
        None if columns is None else tuple(dict.fromkeys(columns)),
        None if verbs is None else tuple(dict.fromkeys(_verbs(verbs))),
        None
        if queries_per_minute is None
        else _whole(queries_per_minute, MAX_PER_MINUTE, parameter="queries_per_minute"),
        None if work_per_minute is None else _whole(work_per_minute, MAX_QUOTA, parameter="work_per_minute"),
        None if stored_bytes is None else _whole(stored_bytes, MAX_QUOTA, parameter="stored_bytes"),
    )


def _end_of_day(text: str) -> datetime:
    return datetime.combine(date.fromisoformat(text), END_OF_DAY)


def _verbs(names: Iterable[str]) -> list[str]:
    """Returns verbs by their own names. ``QueryError`` where there is no such verb."""
    verbs = [SHORT_VERBS.get(name, name) for name in names]
    for verb in verbs:
        if verb not in VERBS:
            listed = f"{', '.join(SHORT_VERBS)}, or {', '.join(VERBS)}, which are the same"
            raise QueryError(f"there is no verb {verb!r}; the verbs are {listed}.")
    return verbs


def _whole(given: int | str, most: int, *, parameter: str) -> int:
    """Reads a whole number from 1 to ``most``."""
    text = str(given)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else 0
    if not 1 <= number <= most:
        raise QueryError(f"is {repr(given)[:42]}", parameter=parameter, allowed=f"a whole number from 1 to {most:,}")
    return number
