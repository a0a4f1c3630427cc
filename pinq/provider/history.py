# SPDX-License-Identifier: Apache-2.0
"""An analyst's budget and history, page by page, from the ledger.

A page begins after a number of lines; the log only grows, so a line keeps its number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate

from pinq.curator.price import units
from pinq.errors import InternalError
from pinq.language.queries import Act, Answer, Asked, Budget
from pinq.language.wire import HistoryPage
from pinq.ledger.events import Charged, LoggedQuery, Refused, now
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import LogLine
from pinq.ledger.state import LedgerState
from pinq.public.epsilon import ZERO

PAGE_LINES, PAGE_CHARACTERS = 1_000, 500_000
# The price, in nanoseconds, of a line, of its characters in the log, and of characters of its answer: three times the
# measured time. So a full page is a heavy request, and readers of whole histories wait for each other only.
LINE, LOGGED, CHARACTER = 150_000, 100, 40


def history(ledger: Ledger, analyst: str, start: int = 0, version: int = 1, bucket: float = 0.0) -> Iterator[Asked]:
    """Yields an analyst's charges and refusals, oldest first; arguments as for ``page``."""
    more = True
    while more:
        next_page = page(ledger, analyst, start, version, bucket=bucket)
        yield from next_page.lines
        start, more = start + len(next_page.lines), next_page.more


def page(
    ledger: Ledger,
    analyst: str,
    start: int = 0,
    version: int = 1,
    *,
    bucket: float = 0.0,
    admit: Callable[[int], None] = lambda work: None,
    limit: int = PAGE_LINES,
    characters: int = PAGE_CHARACTERS,
    logged: int = PAGE_CHARACTERS,
) -> HistoryPage:
    """Reads a page of an analyst's history; ``spent`` of a line is the total after it.

    Args:
        ledger: The ledger to read.
        analyst: The analyst whose lines are read.
        start: The number of lines to skip.
        version: The version of the rows that queries see now. A line about another version names it.
        bucket: Seconds of the padding. An answer shows only after the end of its time bucket,
            because the time of its work depends on the rows.
        admit: A function that is called with units of work before the lines, their text in the log,
            and their answers are read.
        limit: The largest number of lines.
        characters: The total length of answers after which no further line is taken.
        logged: The same for the text of the lines in the log: a query about 20,000 parts takes half
            a megabyte there.
    """
    account = ledger.accounts().get(analyst)
    admit(units(LINE * min(limit, max(0, (0 if account is None else len(account.lines)) - start))))
    # One line more than a page shows whether another page follows.
    text_lengths = ledger.log.lengths(analyst, start, limit + 1)
    fitting = _fitting(text_lengths[:limit], logged)
    admit(units(LOGGED * sum(fitting)))
    lines = [_shown(line, bucket) for line in ledger.log.lines(analyst, start, len(fitting))]
    lengths = _fitting([0 if line.answer is None else line.answer.length for line in lines], characters)
    admit(units(CHARACTER * sum(lengths)))
    shown = lines[: len(lengths)]
    answers = ledger.log.answers(analyst, [line.event.request for line in shown if line.answer is not None])
    since, table, present = ledger.log.run(lambda log: _versions(log.state, version))
    texts = (None if line.answer is None else answers[line.event.request] for line in shown)
    page_lines = tuple(_asked(line, text, since, table, present) for line, text in zip(shown, texts, strict=True))
    return HistoryPage(lines=page_lines, more=len(shown) < len(text_lengths))


def _fitting(lengths: Sequence[int], room: int) -> list[int]:
    # Of 10, 900,000 and 50 with room for 500,000, two are taken. So a line of any length fits once.
    before = accumulate(lengths, initial=0)
    return [length for length, total in zip(lengths, before, strict=False) if total < room]


def _shown(line: LogLine, bucket: float) -> LogLine:
    """Hides an answer until its time bucket is over.

    Buckets are counted from the charge, whose time every server reads in the log.
    """
    if line.answer is None or not bucket:
        return line
    begin, width = datetime.fromisoformat(line.event.at), timedelta(seconds=bucket)
    # Charged at 10:00:00 and answered at 10:00:03 with buckets of 2 s: it shows from 10:00:04 on.
    buckets = max(1, -(-(datetime.fromisoformat(line.answer.at) - begin) // width))  # rounded up
    return line if now() >= begin + buckets * width else line._replace(answer=None)


def _versions(state: LedgerState, version: int) -> tuple[dict[str, int], Collection[int], Collection[int]]:
    """The event of each column's present declaration, the versions of this table, and all present versions."""
    table = state.table_of(version)
    of_table = {number for number in (1, version, *state.begun) if state.table_of(number) == table}
    present = {rows.number for rows in state.rows.values() if rows.cohort or rows.table != table}
    start = f"{table}." if table else ""
    since = {name.removeprefix(start): seq for name, seq in state.since.items() if name.startswith(start)}
    return since, of_table, {version, *present}


def _asked(
    line: LogLine, answer: str | None, since: Mapping[str, int], table: Collection[int], present: Collection[int]
) -> Asked:
    """Makes a line of the history. Codes of another table, or of an earlier declaration, stay codes."""
    at, spent = line.event.at, str(line.spent)
    match line.event.record:
        case Charged() as charge:
            return Asked(
                act=_act(charge.query),
                at=at,
                about=charge.query.about,
                epsilon=str(charge.epsilon),
                spent=spent,
                outcome=_outcome(charge, answer),
                answer=None if answer is None else Answer.from_json(answer),
                classes=(
                    (charge.version in table and line.event.seq > since.get(charge.query.classes, 0))
                    and charge.query.classes
                )
                or None,
                version=None if charge.version in present else charge.version,
            )
        case Refused() as refusal:
            outcome = f"refused ({refusal.reason})"
            return Asked(act=_act(refusal.query), at=at, about=refusal.query.about, spent=spent, outcome=outcome)
    raise InternalError(f"An event of kind {line.event.kind} is no request. Please report it.")


def _act(query: LoggedQuery) -> Act | None:
    return Act(name=query.act, run=query.run) if query.act else None


def _outcome(charge: Charged, answer: str | None) -> str:
    if answer:
        return "answered"
    return "computed among several parties" if charge.query.session else "charged, not answered"


def budget(ledger: Ledger, analyst: str, version: int = 1) -> Budget:
    """Returns an analyst's budget in ``version``; for a closed cohort, the loss of its persons counts.

    The remaining part of the cap limits the remaining epsilon.
    """
    account, state = ledger.accounts()[analyst], ledger.log.state  # of the log as just read
    note, spent, remaining = state.replaced(analyst, version).strip(), account.spent, account.remaining
    if state.is_cohort(version):
        spent = account.costs.of_cohort(state.places[version], state.places)
        within = account.valid and account.spent <= account.limit and account.together.spent <= account.together.cap
        remaining = remaining + (account.spent - spent) if within else ZERO
    room = max(0, account.most_stored - account.stored)
    return Budget(account.limit.exact, spent.exact, remaining.exact, note, room)
