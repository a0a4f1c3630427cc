# SPDX-License-Identifier: Apache-2.0
"""``pinq.open``: an analyst's handle in the provider's own process; ``pinq.simulate``: one on dummy rows.

An analyst's budget and history come from the ledger. A page of the history begins after a number of lines; the log
only grows, so a line keeps its number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Closed
from pinq.curator.monitor import Curator
from pinq.curator.price import units
from pinq.engine import open_engine
from pinq.errors import InternalError, unspent
from pinq.language.queries import Act, Answer, Asked, Budget, Preview, Request
from pinq.language.wire import HistoryPage
from pinq.ledger.events import FREE, Charged, LoggedQuery, Refused, Terms, now
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import LogLine
from pinq.ledger.state import LedgerState
from pinq.policy.policy import Policy
from pinq.provider.opening import curator_of, open_ledger, require_name
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import open_rows
from pinq.public.checks import whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike
from pinq.public.schema import Schema

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
    lengths = _fitting((0 if line.answer is None else line.answer.length for line in lines), characters)
    admit(units(CHARACTER * sum(lengths)))
    shown = lines[: len(lengths)]
    answers = ledger.log.answers(analyst, [line.event.request for line in shown if line.answer is not None])
    since, table, present = ledger.log.run(lambda log: _versions(log.state, version))
    texts = (None if line.answer is None else answers[line.event.request] for line in shown)
    page_lines = tuple(_asked(line, text, since, table, present) for line, text in zip(shown, texts, strict=True))
    return HistoryPage(lines=page_lines, more=len(shown) < len(text_lengths))


def _fitting(lengths: Iterable[int], room: int) -> list[int]:
    # Of 10, 900,000 and 50 with room for 500,000, two are taken. So a line of any length fits once.
    fitting, total = list[int](), 0
    for length in lengths:
        if total >= room:
            break
        fitting.append(length)
        total += length
    return fitting


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
    return Budget(account.limit.exact, spent.exact, remaining.exact, note)


class LocalSession:
    """A curator in this process, for one analyst; requests are passed as text, as between processes."""

    def __init__(self, name: str, analyst: str, curator: Curator, policy: Policy | None = None) -> None:
        self.name, self.tables = name, () if policy is None else tuple(policy.tables)
        self.cohorts = None if policy is None else policy.cohorts
        self.schema = Schema.model_validate_json(curator.schema.model_dump_json(by_alias=True))
        self._analyst = analyst
        self._curator: Curator | Any = curator
        ledger = curator.ledger
        log = id(ledger) if ledger.url == "sqlite://" else ledger.url  # ledgers in memory have one URL
        self.account = f"{log} {ledger.dataset if self.tables else name} {analyst}"

    def ask(self, request: Request) -> Answer:
        with self._curator.refusing(self._analyst, str(request.id)):
            return self._curator.ask(self._analyst, Request.received(request.to_json()))

    @unspent()
    def preview(self, request: Request) -> Preview:
        return self._curator.preview(self._analyst, Request.received(request.to_json()))

    @unspent()
    def attempt(self, request: Request) -> None:
        """Refuses a request that exceeds the remaining budget, and logs the refusal; charges nothing."""
        self._curator.attempt(self._analyst, Request.received(request.to_json()))

    def budget(self, part: str = "") -> Budget:
        return budget(self._curator.ledger, self._analyst, self._curator.version_below(part))

    def history(self, start: int = 0) -> list[Asked]:
        return list(history(self._curator.ledger, self._analyst, start, self._curator.version))

    def terms(self) -> str:
        return str(self._curator.ledger.grants()[self._analyst].terms)

    def close(self) -> None:
        self._curator.close()
        self._curator = Closed()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A handle cannot be pickled: it would carry the way to the data, or its budget, elsewhere. Open "
            "it again where it is needed."
        )


def open(
    policy: str | os.PathLike[str] | Policy, *, analyst: str, data: Any = None, table: str | None = None
) -> PrivateQueryable:
    """Opens a dataset for an analyst, in this process.

    Code in the same process can reach everything. So this handle is for honest analysts: it protects
    from mistakes.

    Args:
        policy: A policy file, or a loaded policy; reviewed.
        analyst: The analyst's name; needs a grant (``pinq grant``).
        data: A table instead of the policy's source: of Arrow, pandas, polars or DuckDB, or an object
            with ``__arrow_c_stream__``. Its rows are read once and not kept.
        table: The table's name, if the policy has several.

    Raises:
        PolicyError: Wrong or unreviewed policy, or a source that does not fit it.
        NotAuthorised: No valid grant.
        LedgerError: A ledger that cannot be trusted.
    """
    import pandas  # noqa: F401 - imported before the first query, as in ``pinq.connect``

    require_name(analyst)
    loaded = load_policy(policy).at(table)
    ledger = open_ledger(loaded, provider=False)
    ledger.authorise(analyst)
    rows = open_rows(loaded, ledger, data)
    curator = curator_of(loaded, ledger, rows.engine, rows.version, rows.closed)
    return PrivateQueryable(LocalSession(loaded.name, analyst, curator, loaded))


MAX_ROWS = 10**8
UNLIMITED = 2**63


def simulate(
    schema: Schema | Policy | str | os.PathLike[str],
    *,
    rows: int = 10_000,
    epsilon: EpsilonLike = 1.0,
    data: Any = None,
    seed: int = 0,
) -> PrivateQueryable:
    """Opens a handle on dummy rows, for the trial of a script before it spends anything.

    Args:
        schema: A handle's ``schema``, a policy, or a policy file.
        rows: The number of dummy rows.
        epsilon: The budget, enforced like a real one.
        data: Rows that fit the schema, for example public rows, instead of dummy rows.
        seed: Seed of the dummy rows. It never affects the noise.

    Returns:
        A handle named ``simulated``. Its answers say nothing about any real table.

    Examples:
        >>> import pinq
        >>> pinq.simulate("policies/adult.yaml", rows=1000, epsilon=2)
        PrivateQueryable(simulated; 13 columns, Budget(epsilon=2, spent=0, remaining=2))
    """
    if not isinstance(schema, Schema):
        schema = load_policy(schema).at().schema_
    rows = whole_number("rows", rows, 0, MAX_ROWS)
    budget = Epsilon.of(epsilon)
    ledger = Ledger("sqlite://", "simulated")
    ledger.declare(schema.digest, budget, {})
    ledger.grant("simulated", budget, terms=Terms(stored_bytes=UNLIMITED))  # the ledger ends with the handle
    # Dummy rows have no persons. Epsilon keeps its meaning: the schema decides the distance of neighbours.
    columns = {name: column.as_given for name, column in schema.columns.items()}
    policy = Policy(dataset="simulated", cap=Decimal(10**6), max_rows=schema.max_rows, columns=columns, folder=Path())
    table = dummy_rows(schema, rows, seed) if data is None else data
    engine, _ = open_engine(policy, data=table, salt=ledger.salt)
    return PrivateQueryable(_Simulated("simulated", "simulated", Curator(schema, ledger, engine)))


class _Simulated(LocalSession):
    def terms(self) -> str:
        """No terms: the limit of stored bytes does not matter for a temporary ledger."""
        _ = self.budget()  # raises if the session is closed
        return str(FREE)


def dummy_rows(schema: Schema, rows: int, seed: int = 0) -> pa.Table:
    """Makes random dummy rows.

    Each column has a random skew and depends on one hidden number, so miners find a pattern.

    Returns:
        An Arrow table of ``rows`` rows. With a privacy unit it has the unit's column too, and each
        unit has ``max_rows`` rows.
    """
    random = np.random.default_rng(seed)
    hidden = random.random(rows)
    columns: dict[str, pa.Array] = {}
    for name, column in schema.columns.items():
        leaning = np.clip(hidden + random.normal(0, random.uniform(0.1, 0.6), rows), 0, 1 - 1e-9)
        codes = (leaning ** random.uniform(0.7, 2.5) * column.cells).astype(np.int64)
        missing = random.random(rows) < 0.05 if column.nullable else np.zeros(rows, dtype=bool)
        if column.type != "categorical":
            within = 0 if column.integer else random.random(rows)  # the place of a number in its cell
            lower, upper = float(column.lower), float(column.upper)
            values = np.clip(lower + (codes + within) * float(column.width), lower, upper)
            columns[name] = pa.array(column.shown(values), mask=missing)
        else:
            texts = np.array(list(column.texts), dtype=object)
            columns[name] = pa.array(texts[codes], pa.string(), mask=missing)
    if schema.bounded_unit is not None:
        # With at most three rows each, rows 0 to 2 are unit 0, and rows 3 to 5 unit 1.
        columns[schema.bounded_unit.column] = pa.array(np.arange(rows) // schema.bounded_unit.max_rows)
    return pa.table(columns)
