# SPDX-License-Identifier: Apache-2.0
"""What an analyst sees of the log: the own charges and refusals, with the answers, page by page.

The cursor of a page is the number of lines before it. The log only grows, so a line keeps its
number for ever, and a page costs the same wherever it is: nothing before it is read or priced again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from pinq.curator.work import units
from pinq.errors import InternalError
from pinq.ledger.ledger import Ledger
from pinq.ledger.lines import Line
from pinq.ledger.requests import Charged, Refused
from pinq.ledger.terms import now
from pinq.public.queries import Answer, Asked
from pinq.public.wire import History

__all__ = ["PAGE_CHARACTERS", "PAGE_LINES", "history", "page"]

PAGE_LINES, PAGE_CHARACTERS = 1_000, 4_000_000
# Nanoseconds that a line counts as, and a character of its answer. A line takes a third of it: so
# a full page is a heavy request, and readers of whole histories wait for each other, not others for them.
LINE, CHARACTER = 150_000, 40


def history(ledger: Ledger, analyst: str, start: int = 0, bucket: float = 0.0) -> Iterator[Asked]:
    """Yields an analyst's charges and refusals, oldest first; arguments as for ``page``."""
    more = True
    while more:
        read = page(ledger, analyst, start, bucket=bucket)
        yield from read.lines
        start, more = start + len(read.lines), read.more


def page(
    ledger: Ledger,
    analyst: str,
    start: int = 0,
    *,
    bucket: float = 0.0,
    admit: Callable[[int], None] = lambda work: None,
    most: int = PAGE_LINES,
    characters: int = PAGE_CHARACTERS,
) -> History:
    """Reads a page of an analyst's history; ``spent`` of a line is the total after it.

    Args:
        ledger: Whose log.
        analyst: Whose lines.
        start: How many lines to leave out.
        bucket: Seconds of the padding. An answer shows only once the bucket ended in which it was
            found: how long it took follows the rows.
        admit: Called with units of work, of the lines before they are read, then of their answers.
        most: How many lines.
        characters: Once their answers are so long together, no further line is taken.
    """
    account = ledger.accounts().get(analyst)
    admit(units(LINE * min(most, max(0, (0 if account is None else len(account.lines)) - start))))
    # One line more than a page says whether another page follows.
    lines = [_shown(line, bucket) for line in ledger.lines(analyst, start, most + 1)]
    # Answers of 10, 900,000 and 50 letters and room for 500,000: two lines are taken, so one answer
    # of any length still comes.
    taken, length = 0, 0
    while taken < min(most, len(lines)) and length < characters:
        length += _length(lines[taken])
        taken += 1
    admit(units(CHARACTER * length))
    answers = ledger.answers(analyst, [line.event.request for line in lines[:taken] if line.answer is not None])
    listed = tuple(
        _asked(line, None if line.answer is None else answers[line.event.request].payload) for line in lines[:taken]
    )
    return History(lines=listed, more=taken < len(lines))


def _shown(line: Line, bucket: float) -> Line:
    """Leaves out an answer whose time bucket is not over: nothing may follow from it yet."""
    if line.answer is None or not bucket or _bucket_ended(line.event.at, line.answer.at, bucket):
        return line
    return line._replace(answer=None)


def _length(line: Line) -> int:
    return 0 if line.answer is None else line.answer.length


def _bucket_ended(charged: str, answered: str, bucket: float) -> bool:
    """Whether the time bucket of an answer is over.

    Buckets are counted from the charge; every server reads the same moment in the log.
    """
    begin, width = datetime.fromisoformat(charged), timedelta(seconds=bucket)
    # Charged at 10:00:00, answered at 10:00:03, buckets of 2 s: two of them, so it shows from
    # 10:00:04 on.
    buckets = max(1, -(-(datetime.fromisoformat(answered) - begin) // width))  # rounded up
    return now() >= begin + buckets * width


def _asked(line: Line, given: str | None) -> Asked:
    """Makes a line of the history."""
    at, spent = line.event.at, str(line.spent)
    match line.event.record:
        case Charged() as charge:
            return Asked(
                at=at,
                about=charge.question.about,
                epsilon=str(charge.epsilon),
                spent=spent,
                outcome=_outcome(charge, given),
                answer=None if given is None else Answer.from_json(given),
                classes=charge.question.classes or None,
            )
        case Refused() as refusal:
            outcome = f"refused ({refusal.reason})"
            return Asked(at=at, about=refusal.question.about, spent=spent, outcome=outcome)
    raise InternalError(f"An event of kind {line.event.kind} is no request. Please report it.")


def _outcome(charge: Charged, given: str | None) -> str:
    if given:
        return "answered"
    return "computed among several parties" if charge.question.session else "charged, not answered"
