# SPDX-License-Identifier: Apache-2.0
"""``Body`` is a record as the log writes it down: an object of JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

__all__ = ["Body", "moment_of", "text_of_moment", "without"]

Body = dict[str, Any]
"""JSON, read from outside: each record checks it field by field when it is read."""


def without(body: Body, *names: str) -> Body:
    """Returns the fields that have other names."""
    return {name: value for name, value in body.items() if name not in names}


def text_of_moment(moment: datetime | None) -> str | None:
    """Writes a moment down, ISO 8601."""
    return moment.isoformat() if moment else None


def moment_of(text: str | None) -> datetime | None:
    """Reads a moment back."""
    return datetime.fromisoformat(text) if text else None
