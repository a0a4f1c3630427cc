# SPDX-License-Identifier: Apache-2.0
"""Handles in the provider's own process: ``pinq.open``, the ledger of a policy, and ``pinq.simulate``.

Order: an analyst's history, page by page; the handle on a policy's rows, and its ledger; a free handle
on dummy rows, with the same methods, noise and refusals, and no log. The cursor of a page is the
number of lines before it. The log only grows, so a line keeps its number for ever. Each page costs
the same: no line before it is read or priced again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Closed
from pinq.curator.monitor import Curator
from pinq.curator.work import MAX_WORK, Meter, units
from pinq.engine import Engine, open_engine
from pinq.errors import InternalError, LedgerError, QueryError, unspent
from pinq.language.queries import Act, Answer, Asked, Budget, Preview, Request
from pinq.language.wire import HistoryPage
from pinq.ledger.database import NoLedger
from pinq.ledger.events import FREE, Charged, LoggedQuestion, Refused, Signature, Terms, here, now
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import LogLine
from pinq.policy.policy import Policy
from pinq.provider.claim import claims, ledger_url, masked
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import open_rows
from pinq.public.checks import first_of, whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema

PAGE_LINES, PAGE_CHARACTERS = 1_000, 500_000
# Nanoseconds that a line counts as, a character of it in the log, and one of its answer. A line takes a third of it:
# so a full page is a heavy request, and readers of whole histories wait for each other, not others for them.
LINE, LOGGED, CHARACTER = 150_000, 100, 40


def history(ledger: Ledger, analyst: str, start: int = 0, version: int = 1, bucket: float = 0.0) -> Iterator[Asked]:
    """Yields an analyst's charges and refusals, oldest first; arguments as for ``page``."""
    more = True
    while more:
        read = page(ledger, analyst, start, version, bucket=bucket)
        yield from read.lines
        start, more = start + len(read.lines), read.more


def page(
    ledger: Ledger,
    analyst: str,
    start: int = 0,
    version: int = 1,
    *,
    bucket: float = 0.0,
    admit: Callable[[int], None] = lambda work: None,
    most: int = PAGE_LINES,
    characters: int = PAGE_CHARACTERS,
    logged: int = PAGE_CHARACTERS,
) -> HistoryPage:
    """Reads a page of an analyst's history; ``spent`` of a line is the total after it.

    Args:
        ledger: The ledger to read.
        analyst: The analyst whose lines are read.
        start: The number of lines to leave out.
        version: The version of the rows that is asked now. A line about another one names its own.
        bucket: Seconds of the padding. An answer shows only after the end of the time bucket in
            which it was found: the time of its work depends on the rows.
        admit: A function that gets units of work before each reading: of the lines, of their text
            in the log, and of their answers.
        most: The largest number of lines.
        characters: The total length of answers after which no further line is taken.
        logged: The same for the text of the lines in the log: a query about 20,000 parts takes half
            a megabyte there.
    """
    account = ledger.accounts().get(analyst)
    admit(units(LINE * min(most, max(0, (0 if account is None else len(account.lines)) - start))))
    # One line more than a page says whether another page follows.
    known = ledger.lengths(analyst, start, most + 1)
    fitting = _fitting(known[:most], logged)
    admit(units(LOGGED * sum(fitting)))
    lines = [_shown(line, bucket) for line in ledger.lines(analyst, start, len(fitting))]
    lengths = _fitting((0 if line.answer is None else line.answer.length for line in lines), characters)
    admit(units(CHARACTER * sum(lengths)))
    taken = lines[: len(lengths)]
    answers = ledger.answers(analyst, [line.event.request for line in taken if line.answer is not None])
    since = ledger.run(lambda log: dict(log.state.since))
    given = (None if line.answer is None else answers[line.event.request] for line in taken)
    listed = tuple(_asked(line, own, since, version) for line, own in zip(taken, given, strict=True))
    return HistoryPage(lines=listed, more=len(taken) < len(known))


def _fitting(lengths: Iterable[int], room: int) -> list[int]:
    """The first of some lengths, until their sum fills the room."""
    # Of 10, 900,000 and 50 and room for 500,000 two are taken, so one of any length still comes.
    taken, length = list[int](), 0
    for own in lengths:
        if length >= room:
            break
        taken.append(own)
        length += own
    return taken


def _shown(line: LogLine, bucket: float) -> LogLine:
    """Leaves out an answer whose time bucket is not over: its time may not show yet.

    Buckets are counted from the charge; every server reads the same moment in the log.
    """
    if line.answer is None or not bucket:
        return line
    begin, width = datetime.fromisoformat(line.event.at), timedelta(seconds=bucket)
    # Charged at 10:00:00, answered at 10:00:03, buckets of 2 s: two of them, so it shows from
    # 10:00:04 on.
    buckets = max(1, -(-(datetime.fromisoformat(line.answer.at) - begin) // width))  # rounded up
    return line if now() >= begin + buckets * width else line._replace(answer=None)


def _asked(line: LogLine, given: str | None, since: Mapping[str, int], version: int) -> Asked:
    """Makes a line of the history. Codes of a column whose declaration has changed since stay codes."""
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
                classes=(line.event.seq > since.get(charge.question.classes, 0) and charge.question.classes) or None,
                version=None if charge.version == version else charge.version,
            )
        case Refused() as refusal:
            outcome = f"refused ({refusal.reason})"
            return Asked(act=_act(refusal.question), at=at, about=refusal.question.about, spent=spent, outcome=outcome)
    raise InternalError(f"An event of kind {line.event.kind} is no request. Please report it.")


def _act(question: LoggedQuestion) -> Act | None:
    return Act(name=question.act, run=question.run) if question.act else None


def _outcome(charge: Charged, given: str | None) -> str:
    if given:
        return "answered"
    return "computed among several parties" if charge.question.session else "charged, not answered"


LEDGER_RETRIES, RETRY_SECONDS = 10, 0.1  # for a ledger that another process is just making


class LocalSession:
    """A curator in this process, for one analyst.

    Schema and requests are passed as text, as between processes: the curator computes only with its
    own plain values, not with the analyst's objects.
    """

    def __init__(self, name: str, analyst: str, curator: Curator) -> None:
        self.name, self.schema = name, Schema.model_validate_json(curator.schema.model_dump_json(by_alias=True))
        self._analyst = analyst
        self._curator: Curator | Any = curator
        ledger = curator.ledger
        place = id(ledger) if ledger.url == "sqlite://" else ledger.url  # of those in memory each is another
        self.account = f"{place} {name} {analyst}"

    def ask(self, request: Request) -> Answer:
        """The answer of the curator."""
        with self._curator.refusing(self._analyst, str(request.id)):
            return self._curator.ask(self._analyst, Request.received(request.to_json()))

    @unspent()
    def preview(self, request: Request) -> Preview:
        """The cost and the expected error of a request."""
        return self._curator.preview(self._analyst, Request.received(request.to_json()))

    @unspent()
    def attempt(self, request: Request) -> None:
        """Refuses a request that exceeds the remaining budget, and logs the refusal; charges nothing."""
        self._curator.attempt(self._analyst, Request.received(request.to_json()))

    def budget(self) -> Budget:
        """The analyst's budget as the ledger has it now."""
        return budget(self._curator.ledger, self._analyst, self._curator.version)

    def history(self, start: int = 0) -> list[Asked]:
        """The analyst's own lines of the log, with the answers, without the first ``start``."""
        return list(history(self._curator.ledger, self._analyst, start, self._curator.version))

    def terms(self) -> str:
        """The terms of the analyst's grant, as the ledger has them now."""
        return str(self._curator.ledger.grants()[self._analyst].terms)

    def close(self) -> None:
        """Frees the encoded copy and the ledger's connections."""
        self._curator.close()
        self._curator = Closed()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A handle cannot be pickled: it would carry the way to the data, or its budget, elsewhere. Open "
            "it again where it is needed."
        )


MAX_NAME = 128  # characters of an analyst's name


def require_name(analyst: object) -> None:
    """Raises ``QueryError`` unless this can be an analyst's name."""
    name = analyst if isinstance(analyst, str) else ""
    if not name or name != name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise QueryError(
            f"is {repr(analyst)[:60]}",
            parameter="analyst",
            allowed=f"1 to {MAX_NAME} printable characters without blanks around them",
        )


def open(policy: str | os.PathLike[str] | Policy, *, analyst: str, data: Any = None) -> PrivateQueryable:
    """Opens a dataset for an analyst, in this process.

    In one process, code can reach everything. So this handle is for honest analysts: it protects
    them from mistakes.

    Args:
        policy: A policy file, or a loaded policy; reviewed.
        analyst: The analyst's name; needs a grant (``pinq grant``).
        data: A table instead of the policy's source: of Arrow, pandas, polars or DuckDB, or another
            with ``__arrow_c_stream__``. Its rows are read once and not kept.

    Raises:
        PolicyError: Wrong or unreviewed policy, or a source that does not fit it.
        NotAuthorised: No valid grant.
        LedgerError: A ledger that cannot be trusted.
    """
    require_name(analyst)
    loaded = load_policy(policy)
    ledger = open_ledger(loaded, provider=False)
    ledger.authorise(analyst)
    rows = open_rows(loaded, ledger, data)
    return PrivateQueryable(
        LocalSession(loaded.dataset, analyst, curator_of(loaded, ledger, rows.engine, rows.version))
    )


def curator_of(policy: Policy, ledger: Ledger, engine: Engine, version: int, meter: Meter | None = None) -> Curator:
    """Makes the curator of a policy's dataset, under the policy's limit of work.

    Args:
        policy: The reviewed policy.
        ledger: The ledger of the dataset.
        engine: The engine over the dataset's codes.
        version: The version of the engine's rows.
        meter: The counter of analysts' work; None for a new one.
    """
    return Curator(policy.schema_, ledger, engine, max_work=policy.max_work or MAX_WORK, meter=meter, version=version)


def open_ledger(
    policy: Policy,
    *,
    create: bool = True,
    provider: bool = True,
    by: Signature | None = None,
    heads: Path | None = None,
) -> Ledger:
    """Opens the ledger of a reviewed policy; logs the policy if it changed.

    Args:
        policy: The policy of the ledger.
        create: Make the ledger if there is none.
        provider: Whether this is the provider's own act. An analyst's opening makes no ledger and
            never raises the cap.
        by: The author of the act; by default the user of this process.
        heads: A folder for another head of the ledger.

    Raises:
        PolicyError: Unreviewed, or the source is guarded by another ledger.
        LedgerError: It cannot be trusted.
    """
    policy.require_reviewed()
    ledger = guarding_ledger(policy, create=create and provider, heads=heads)
    declare(policy, ledger, may_raise=provider, by=by)
    return ledger


def read_ledger(policy: Policy | None, file: str | os.PathLike[str] | None = None) -> Ledger:
    """Opens a ledger for reading only: a policy's ledger, or the one in a file.

    Raises:
        QueryError: Neither is given.
        PolicyError: The source is guarded by another ledger.
        LedgerError: There is none, it is another dataset's, or it cannot be trusted.
    """
    if policy is None and file is None:
        raise QueryError("name a policy, or a ledger (--ledger FILE).")
    if policy is None or file is not None:
        return Ledger(str(file), None if policy is None else policy.dataset, read_only=True)
    return guarding_ledger(policy, read_only=True)


def guarding_ledger(
    policy: Policy, *, create: bool = False, read_only: bool = False, heads: Path | None = None
) -> Ledger:
    """Opens the ledger that guards a policy's source; logs nothing of the policy.

    Args:
        policy: The policy of the ledger.
        create: Make the ledger, unless the source has a claim: then there was a ledger, and a new
            one would return the spent budget.
        read_only: Change nothing.
        heads: A folder for another head of the ledger.

    Raises:
        PolicyError: The source is guarded by another ledger.
        LedgerError: It is not there, or cannot be trusted.
    """
    before = claims(policy)
    url = ledger_url(policy, create=create, read_only=read_only)
    # A ledger that is gone with its head beside is told by the head.
    fresh = create and (not before or Path(f"{url}.head").exists())
    for _ in range(LEDGER_RETRIES):
        try:
            return Ledger(url, policy.dataset, create=fresh, read_only=read_only, heads=heads)
        except NoLedger:
            if not before:
                raise
            time.sleep(RETRY_SECONDS)  # the process that made the claim may be about to make the ledger
    raise LedgerError(
        f"There is no ledger {masked(url)}, though the source of {policy.dataset!r} has a claim that names it: it was "
        "moved or deleted. Put it back, or restore a backup (`pinq restore`). Or delete the claim "
        f"({first_of(before, 3)}) and accept that what was spent before no longer counts."
    )


def declare(policy: Policy, ledger: Ledger, *, may_raise: bool, by: Signature | None = None) -> None:
    """Logs a reviewed policy if it changed; a higher cap only if ``may_raise``.

    Raises ``LedgerError`` as ``Ledger.declare`` does.
    """
    digest, cap = policy.schema_.digest, Epsilon(policy.cap_nano)
    ledger.declare(digest, cap, policy.logged, may_raise=may_raise, by=by or here())


def budget(ledger: Ledger, analyst: str, version: int = 1) -> Budget:
    """Returns an analyst's budget. The rest of the cap over all analysts limits the remaining epsilon.

    Args:
        ledger: The ledger of the dataset.
        analyst: The owner of the grant.
        version: The version of the rows that is asked now.
    """
    account = ledger.accounts()[analyst]
    said = ledger.state.replaced(analyst, version).strip()  # by the log as it was just read
    return Budget(account.limit.exact, account.spent.exact, account.remaining.exact, said)


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
        schema = load_policy(schema).schema_
    rows = whole_number("rows", rows, 0, MAX_ROWS)
    budget = Epsilon.of(epsilon)
    ledger = Ledger("sqlite://", "simulated")
    ledger.declare(schema.digest, budget, {})
    ledger.grant("simulated", budget, terms=Terms(stored_bytes=UNLIMITED))  # it is gone with the handle
    # Dummy rows have no persons; epsilon keeps its meaning, for neighbours stay as far apart as
    # the schema says.
    given = {name: column.as_given for name, column in schema.columns.items()}
    policy = Policy(dataset="simulated", cap=Decimal(10**6), max_rows=schema.max_rows, columns=given, folder=Path())
    table = dummy_rows(schema, rows, seed) if data is None else data
    engine, _ = open_engine(policy, data=table, salt=ledger.salt)
    return PrivateQueryable(_Simulated("simulated", "simulated", Curator(schema, ledger, engine)))


class _Simulated(LocalSession):
    def terms(self) -> str:
        """No terms: the limit of stored bytes does not matter for a ledger that is gone soon."""
        _ = self.budget()  # a closed one refuses
        return str(FREE)


def dummy_rows(schema: Schema, rows: int, seed: int = 0) -> pa.Table:
    """Makes random dummy rows.

    Each column has its own skew and depends on one hidden number, so miners find a pattern in the
    rows.

    Returns:
        An Arrow table of ``rows`` rows. With a privacy unit it has the unit's column too, and each
        unit has the largest number of rows that it may have.
    """
    random = np.random.default_rng(seed)
    hidden = random.random(rows)
    columns: dict[str, pa.Array] = {}
    for name, column in schema.columns.items():
        leaning = np.clip(hidden + random.normal(0, random.uniform(0.1, 0.6), rows), 0, 1 - 1e-9)
        codes = (leaning ** random.uniform(0.7, 2.5) * column.cells).astype(np.int64)
        missing = random.random(rows) < 0.05 if column.nullable else np.zeros(rows, dtype=bool)
        if column.type != "categorical":
            within = 0 if column.integer else random.random(rows)  # where in its cell a number lies
            lower, upper = float(column.lower), float(column.upper)
            values = np.clip(lower + (codes + within) * float(column.width), lower, upper)
            columns[name] = pa.array(column.shown(values), mask=missing)
        else:
            texts = np.array(list(column.texts), dtype=object)
            columns[name] = pa.array(texts[codes], pa.string(), mask=missing)
    if schema.bounded_unit is not None:
        # Of at most three rows each: rows 0 to 2 are unit 0, rows 3 to 5 unit 1.
        columns[schema.bounded_unit.column] = pa.array(np.arange(rows) // schema.bounded_unit.max_rows)
    return pa.table(columns)
