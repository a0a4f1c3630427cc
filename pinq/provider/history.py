# SPDX-License-Identifier: Apache-2.0
"""What an analyst sees of the log: the own charges and refusals, with the answers, page by page.

The cursor of a page is the number of lines before it. The log only grows, so a line keeps its
number for ever, and a page costs the same wherever it is: nothing before it is read or priced again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from pinq.curator.work import units
from pinq.errors import InternalError
from pinq.ledger.events import Charged, LoggedQuestion, Refused, now
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import LogLine
from pinq.public.queries import Act, Answer, Asked
from pinq.public.wire import HistoryPage

__all__ = ["PAGE_CHARACTERS", "PAGE_LINES", "history", "page"]

PAGE_LINES, PAGE_CHARACTERS = 1_000, 500_000
# Nanoseconds that a line counts as, a character of it in the log, and one of its answer. A line takes a third of it:
# so a full page is a heavy request, and readers of whole histories wait for each other, not others for them.
LINE, LOGGED, CHARACTER = 150_000, 100, 40


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
    logged: int = PAGE_CHARACTERS,
) -> HistoryPage:
    """Reads a page of an analyst's history; ``spent`` of a line is the total after it.

    Args:
        ledger: Whose log.
        analyst: Whose lines.
        start: How many lines to leave out.
        bucket: Seconds of the padding. An answer shows only once the bucket ended in which it was
            found: how long it took follows the rows.
        admit: Called with units of work: of so many lines, of what they are in the log, of their
            answers; each before it is read.
        most: How many lines.
        characters: Once their answers are so long together, no further line is taken.
        logged: The same of the lines as they are in the log, where a question about 20,000 parts
            takes half a megabyte.
    """
    account = ledger.accounts().get(analyst)
    admit(units(LINE * min(most, max(0, (0 if account is None else len(account.lines)) - start))))
    # One line more than a page says whether another page follows.
    known = ledger.lengths(analyst, start, most + 1)
    fitting = _fitting(known[:most], logged)
    admit(units(LOGGED * sum(fitting)))
    lines = [_shown(line, bucket) for line in ledger.lines(analyst, start, len(fitting))]
    lengths = _fitting(map(_length, lines), characters)
    admit(units(CHARACTER * sum(lengths)))
    taken = lines[: len(lengths)]
    answers = ledger.answers(analyst, [line.event.request for line in taken if line.answer is not None])
    listed = tuple(_asked(line, None if line.answer is None else answers[line.event.request].payload) for line in taken)
    return HistoryPage(lines=listed, more=len(taken) < len(known))


def _fitting(lengths: Iterable[int], room: int) -> list[int]:
    """The first of some lengths, until there is no room."""
    # Of 10, 900,000 and 50 and room for 500,000 two are taken, so one of any length still comes.
    taken, length = list[int](), 0
    for own in lengths:
        if length >= room:
            break
        taken.append(own)
        length += own
    return taken


def _shown(line: LogLine, bucket: float) -> LogLine:
    """Leaves out an answer whose time bucket is not over: nothing may follow from it yet."""
    if line.answer is None or not bucket or _bucket_ended(line.event.at, line.answer.at, bucket):
        return line
    return line._replace(answer=None)


def _length(line: LogLine) -> int:
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


def _asked(line: LogLine, given: str | None) -> Asked:
    """Makes a line of the history."""
    at, spent = line.event.at, str(line.spent)
    match line.event.record:
        case Charged() as charge:
            return Asked(
                act=_act(charge.question),
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
            act = _act(refusal.question)
            return Asked(at=at, about=refusal.question.about, spent=spent, outcome=outcome, act=act)
    raise InternalError(f"An event of kind {line.event.kind} is no request. Please report it.")


def _act(question: LoggedQuestion) -> Act | None:
    return Act(name=question.act, run=question.run) if question.act else None


def _outcome(charge: Charged, given: str | None) -> str:
    if given:
        return "answered"
    return "computed among several parties" if charge.question.session else "charged, not answered"
