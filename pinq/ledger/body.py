# SPDX-License-Identifier: Apache-2.0
"""``Body`` is a record as the log writes it down: an object of JSON."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from pinq.public.checks import is_whole
from pinq.public.epsilon import Epsilon

__all__ = ["Body", "digest_of", "loss_of", "moment_of", "text_of", "text_of_moment", "texts_of", "whole_of", "without"]

MOST_NANO = 2**60
Body = dict[str, Any]
"""JSON, read from outside: each record checks it field by field when it is read."""


def digest_of(text: str) -> str:
    """SHA-256 of an answer's text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def without(body: Body, *names: str) -> Body:
    """Returns the fields that have other names."""
    return {name: value for name, value in body.items() if name not in names}


def text_of_moment(moment: datetime | None) -> str | None:
    """Writes a moment down, ISO 8601."""
    return moment.isoformat() if moment else None


def moment_of(text: str | None) -> datetime | None:
    """Reads a moment back. ``ValueError`` for one without a zone."""
    moment = datetime.fromisoformat(text) if text else None
    if moment is not None and moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return moment


def text_of(stored: object) -> str:
    """Returns a text. ``TypeError`` for anything else."""
    if not isinstance(stored, str):
        raise TypeError(f"{str(stored)[:40]!r} is no text")
    return stored


def texts_of(stored: object) -> tuple[str, ...]:
    """Returns a list of texts. ``TypeError`` for anything else."""
    if not isinstance(stored, list):
        raise TypeError(f"{str(stored)[:40]!r} is no list")
    return tuple(map(text_of, stored))


def whole_of(stored: object) -> int:
    """Returns a whole number from 0 on. ``TypeError`` for anything else."""
    if not is_whole(stored, 0):
        raise TypeError(f"{str(stored)[:40]!r} is no whole number from 0 on")
    return stored


def loss_of(stored: object) -> Epsilon:
    """Reads a loss back, whole nano-epsilons. ``TypeError`` for anything else."""
    if not is_whole(stored, 0, MOST_NANO):
        raise TypeError(f"{str(stored)[:40]!r} is no loss in nano-epsilons")
    return Epsilon(stored)
