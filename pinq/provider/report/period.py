# SPDX-License-Identifier: Apache-2.0
"""The time of which a report shows the events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from pinq.provider.arguments import parse_expiry
from pinq.provider.report.text import when

__all__ = ["Period"]


@dataclass(frozen=True)
class Period:
    """From a moment to another, both included; None is open."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, since: str | date | None, until: str | date | None) -> Period:
        """Reads a period; a day begins at midnight UTC and is included to its end.

        ``QueryError`` for what is no date.
        """
        return cls(_begin(since), parse_expiry(until, parameter="until"))

    def holds(self, at: str) -> bool:
        """Whether a moment, as the log writes it, lies within."""
        moment = datetime.fromisoformat(at)
        return (self.since is None or self.since <= moment) and (self.until is None or moment <= self.until)

    def __str__(self) -> str:
        since = f"since {when(self.since)}" if self.since else ""
        until = f"until {when(self.until)}" if self.until else ""
        return f"{since} {until}".strip()


def _begin(day: str | date | None) -> datetime | None:
    """Reads where a period begins: a day's first moment, not its last."""
    moment = parse_expiry(day, parameter="since")
    if moment is not None and len(str(day).strip()) == len("2030-01-31"):
        return datetime.combine(moment.date(), time(), UTC)
    return moment
