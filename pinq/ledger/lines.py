# SPDX-License-Identifier: Apache-2.0
"""An analyst's lines of the log, by their place among them: what a history shows.

The fold keeps each line's event and the total after it, so to read some lines costs what these
lines cost, however many there are before them.
"""

from __future__ import annotations

from typing import NamedTuple

from pinq.ledger.events import Event
from pinq.ledger.log import Log
from pinq.ledger.state import Account
from pinq.ledger.tables import AnswerSize
from pinq.ledger.writing import Writing
from pinq.public.epsilon import Epsilon

__all__ = ["Line", "lengths", "lines"]


class Line(NamedTuple):
    """A charge or a refusal.

    Attributes:
        event: What happened.
        spent: The analyst's total after it.
        answer: When it was answered, and how long the text is; None where it was not.
    """

    event: Event
    spent: Epsilon
    answer: AnswerSize | None


class _Numbered(NamedTuple):
    """What the fold knows of some lines: the numbers of their events and the totals after them."""

    account: Account
    events: list[int]
    totals: list[int]


def lengths(log: Log, analyst: str, start: int, most: int) -> list[int]:
    """Tells how long an analyst's lines are in the log, in characters, without reading them."""
    known = _numbered(log, analyst, start, most)
    if known is None:
        return []
    with log.reading() as connection:
        length = log.store.lengths(connection, known.events)
    return [length.get(number, 0) for number in known.events]


def lines(log: Log, analyst: str, start: int, most: int) -> list[Line]:
    """Reads an analyst's lines from a place on; ``LedgerError`` where one is gone."""
    known = _numbered(log, analyst, start, most)
    if known is None:
        return []
    account, numbers, totals = known
    # Each reading is short: while one lasts, SQLite keeps every page that was written since.
    with log.reading() as connection:
        rows = log.store.numbered(connection, numbers)
    events = [log.event(row) for row in rows]
    answers = [account.answers.get(event.request, 0) if account.is_charge(event) else 0 for event in events]
    with log.reading() as connection:
        sizes = {size.seq: size for size in log.store.sizes(connection, [number for number in answers if number])}
    return [
        Line(event, Epsilon(total), sizes.get(answer))
        for event, total, answer in zip(events, totals, answers, strict=True)
    ]


def _numbered(log: Log, analyst: str, start: int, most: int) -> _Numbered | None:
    """Takes only numbers from the fold while others wait; what they name never changes.

    None for an analyst whom the log does not know.
    """
    # Lines 200 to 299 of a million: two slices of a hundred numbers are copied while others wait;
    # the hundred events behind them are read afterwards.
    wanted = slice(start, start + most)

    def numbered(reading: Writing) -> _Numbered | None:
        account = reading.state.accounts.get(analyst)
        if account is None:
            return None
        return _Numbered(account, account.lines[wanted].tolist(), account.totals[wanted].tolist())

    return log.run(numbered)
