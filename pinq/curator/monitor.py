# SPDX-License-Identifier: Apache-2.0
"""The reference monitor: one request from end to end.

::

    validate ── rehearse ── charge ── tabulate ── noise ── persist ── answer
    (public)  (dummy rows)  (ledger)  (engine)  (mechanisms) (ledger)

The steps before the charge read the schema, the request and the ledger only. After the charge nothing can be refused,
and every failure gives one error with one text (``EngineError``). The random bits are tested before the charge and as
they are drawn (``pinq/public/noise.py``).

Privacy:
    Adjacency and unit: the policy's. Claim: all answers to an analyst together are spent-DP, spent
    <= limit; all answers to all analysts together are joint-DP, joint <= cap, for any adaptive and
    colluding analysts.
    Why: each answer is epsilon-DP for one row of each part (pinq/curator/mechanisms.py), composed
    by pinq/ledger/composition.py, charged before it is drawn. Neighbours differ by
    ``schema.distance`` rows, so noise is calibrated to epsilon / distance (group privacy,
    privacy.md 1.1).
    Held by: tests/privacy, tests/property/test_composition.py, tests/e2e/test_crash.py.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from pinq.curator.deadline import Deadline, Meter, Stopped, WorkMeter
from pinq.curator.prepared import Noise, PreparedQuery
from pinq.curator.price import MAX_WORK, checking_work, require_work
from pinq.curator.verbs import prepare
from pinq.engine.rehearsal import DummyEngine
from pinq.engine.tables import Engine, Measure, Moments, TableRequest
from pinq.errors import EngineError, InternalError, QueryError, Refusal, Unavailable, unspent
from pinq.language.queries import Answer, Preview, Query, Request
from pinq.language.specs import Partition, scale
from pinq.ledger.events import LoggedQuery
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.noise import WATCHED
from pinq.public.schema import Schema

KEPT_KINDS = 2**12  # remembered kinds of a schema: about 3 MB
ATTEMPT = "all its queries together, before the first"  # the log's text for an act that exceeds the budget
SAMPLED_DRAWS = 8  # numbers that get noise in a rehearsal, which stays short


class KeyLocks:
    """A lock for each key, which exists while a thread holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()

    def take(self, key: Hashable) -> threading.Lock:
        """The lock of this key, for ``with``."""
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


_log = logging.getLogger("pinq.curator.monitor")


class _Valid(NamedTuple):
    """A validated request.

    Attributes:
        prepared: The tables to count, and the release of them.
        columns: The columns that the request reads, with those of which they are made.
        epsilon: The loss of each part.
        per_row: The largest loss that a single row may cause.
        noise: The expected error of the answer.
        checking: Units of work so far.
        counting: Units of work of the answer.
    """

    query: Query
    prepared: PreparedQuery
    columns: set[str]
    epsilon: Epsilon
    per_row: Fraction
    noise: Noise
    checking: int
    counting: int


def identified(schema: str, table: str) -> str:
    """Identifies the table of a schema, by the schema's digest and the table's name among several."""
    return f"{schema} {table}" if table else schema


class Curator:
    """Answers requests on one dataset."""

    def __init__(
        self,
        schema: Schema,
        ledger: Ledger,
        engine: Engine,
        *,
        max_work: int = MAX_WORK,
        meter: Meter | None = None,
        version: int = 1,
        table: str = "",
        closed: Mapping[bytes, int] = MappingProxyType({}),
    ) -> None:
        self.schema, self.ledger, self.max_work, self._engine = schema, ledger, max_work, engine
        self.version, self.table, self.closed = version, table, closed
        self._rehearsals = Rehearsals(schema)
        self._working = KeyLocks()
        self._previewed: dict[str, _Valid] = {}  # the last preview, by its identity; the same query asked next is valid
        self._meter: Meter = meter or WorkMeter()

    def ask(self, analyst: str, request: Request, deadline: Deadline | None = None) -> Answer:
        """Answers a request, once: the same id gets the same answer and is charged once.

        A request that arrives again before its answer waits for it. (Two processes may both compute one; the ledger
        keeps the first.)

        Raises:
            Stopped, TooHeavy: The deadline does not allow it; nothing was charged.
            QueryError: Malformed, or more work than one request may need.
            NotAuthorised, NotAllowed, TooManyRequests, BudgetExceeded: Refused; logged.
            InternalError: It failed on dummy rows; nothing was charged.
            Unavailable: The random bits failed a test; nothing was charged.
            EngineError: It failed, or the deadline ended, after the charge; the charge stands.
        """
        deadline = deadline or Deadline()
        identity = self._identity(request, self.schema.digest)
        work = self._previewed.pop(identity, None) or self._validate(request, deadline)
        deadline.admit(work.checking + work.counting)
        self.meter(analyst, work.checking + work.counting)
        query = LoggedQuery(
            verb=request.verb,
            about=f"{self.table}: {work.prepared.about}" if self.table else work.prepared.about,
            identity=identity,
            classes=work.query.facts().get("classes", ""),
            act="" if request.act is None else request.act.name,
            run="" if request.act is None else request.act.run,
        )
        with self._working.take((analyst, request.id)):
            deadline.check()
            WATCHED.require()
            self._rehearse(analyst, request, work, deadline)
            return self._once(analyst, request, work, query, deadline)

    def stored_answer(self, analyst: str, request: Request, schema: str) -> Answer | None:
        """The earlier answer of this request under the schema with this digest; None for none."""
        earlier, payload = self.ledger.answer_of(analyst, request.id)
        if earlier is None or payload is None or earlier.query.identity != self._identity(request, schema):
            return None
        return Answer.from_json(payload)

    def _identity(self, request: Request, schema: str) -> str:
        return request.identity(identified(schema, self.table))

    def version_below(self, part: str) -> int:
        """The version of the rows below a part of the whole table, by its key in hexadecimal."""
        return next((number for key, number in self.closed.items() if key.hex() == part), self.version)

    def _version_of(self, work: _Valid) -> int:
        """The version of the queried rows: a closed cohort's if all parts lie in it, else the table's."""
        return self.closed.get(work.prepared.demand.top, self.version)

    def meter(self, analyst: str, units: int) -> None:
        """Counts an analyst's work; errors as in ``WorkMeter.take``, but never without a grant."""
        self._meter.take(analyst, units, self.ledger.work_per_minute(analyst))

    @contextmanager
    def refusing(self, analyst: str, request: str) -> Iterator[None]:
        """Notes in a refusal inside that nothing was spent, unless this request was charged."""
        try:
            yield
        except (Refusal, InternalError) as error:
            earlier, _ = self.ledger.answer_of(analyst, request)
            error.charged = Fraction(0) if earlier is None else None
            raise

    def _rehearse(self, analyst: str, request: Request, work: _Valid, deadline: Deadline) -> None:
        """Refuses a request that fails on dummy rows, unless its answer exists already."""
        try:
            self._rehearsals.require(work.query, work.prepared, work.per_row, deadline)
        except (Stopped, Unavailable):
            raise
        except Exception:
            _log.exception("request %s (%s) failed on dummy rows and was not charged", request.id, work.prepared.about)
            if self.stored_answer(analyst, request, self.schema.digest) is None:
                raise InternalError(
                    f"This cannot be answered: it failed on dummy rows, before it was charged. Please report it: "
                    f"{work.prepared.about}."
                ) from None

    def _once(self, analyst: str, request: Request, work: _Valid, query: LoggedQuery, deadline: Deadline) -> Answer:
        """Charges and answers a request, or finds its earlier answer."""
        earlier, stored = self.ledger.charge(
            analyst,
            request.id,
            work.prepared.demand,
            work.epsilon,
            query,
            columns=work.columns,
            reuse=bool(request.reuse),
            answer_bytes=request.answer_bytes(self.schema),
            token=deadline.token,
            version=self._version_of(work),
        )
        if earlier is not None and earlier.query.identity != query.identity:
            raise QueryError(f"the request id {request.id!r} was used for another question, which was charged.")
        if stored is None:
            if earlier is not None and earlier.version != self._version_of(work):
                # An answer would be computed from the new rows, but the charge was for the old
                # ones.
                raise QueryError(
                    f"the request id {request.id!r} was charged for rows that were replaced since, and never "
                    "answered. Ask again under another id."
                )
            if earlier is not None:  # paid for, perhaps under an earlier id, and never answered
                request = request.model_copy(update={"id": earlier.request})
            answer, payload = self._answer(request, work, deadline)
            stored = self.ledger.answer(analyst, request.id, payload)
            if stored == payload:
                return answer
        return Answer.from_json(stored)  # another asker of the same request was first: there is one answer

    @unspent()
    def preview(self, analyst: str, request: Request, deadline: Deadline | None = None) -> Preview:
        """The cost and the expected error of ``ask``. Too much work is refused, as in ``ask``."""
        work = self._validate(request, deadline or Deadline())
        self.meter(analyst, work.checking)
        identity, version = self._identity(request, self.schema.digest), self._version_of(work)
        self._previewed = {identity: work}
        is_paid = request.reuse and self.ledger.is_paid(analyst, request.id, identity, version)
        epsilon = ZERO if is_paid else work.epsilon
        cost, left = self.ledger.price(
            analyst, work.prepared.demand, epsilon, verb=request.verb, columns=work.columns, version=version
        )
        note = self.ledger.log.state.replaced(analyst, version)  # by the log as it was just read
        error = f"{work.noise.error}.{note}" if note and cost else work.noise.error
        return Preview(cost.exact, left.exact, error, work.noise.scale if work.noise.uniform else None)

    def attempt(self, analyst: str, request: Request, deadline: Deadline | None = None) -> None:
        """Refuses an act that exceeds the remaining budget, before its first query; charges nothing.

        Privacy:
            The refusal depends on the ledger and the request only, like the refusal of a query. It
            is logged, so an audit sees each exhausted budget.

        Raises:
            BudgetExceeded: More than the grant or the cap leaves; logged.
        """
        deadline = deadline or Deadline()
        work = self._validate(request, deadline)
        self.meter(analyst, work.checking)
        name, run = ("", "") if request.act is None else (request.act.name, request.act.run)
        query = LoggedQuery(about=ATTEMPT, act=name, run=run)
        self.ledger.attempt(
            analyst,
            request.id,
            work.prepared.demand,
            work.epsilon,
            query,
            token=deadline.token,
            version=self._version_of(work),
        )

    def close(self) -> None:
        self._engine.close()
        self.ledger.close()

    def _answer(self, request: Request, work: _Valid, deadline: Deadline) -> tuple[Answer, str]:
        """The answer of a charged request, and its text; one guard covers all work on rows."""
        prepared = work.prepared
        try:
            released = prepared.release(prepared.count(self._engine, deadline), work.per_row)
            answer = Answer(
                id=request.id,
                verb=request.verb,
                epsilon=str(work.epsilon),
                values=tuple(released.values),
                chosen=released.chosen,
                scale=work.noise.scale,
                grid=work.noise.grid,
                rows=released.rows,
            )
            return answer, answer.text
        except Stopped:
            _log.warning("request %s (%s) was stopped after its charge", request.id, prepared.about)
            raise EngineError() from None
        except Exception:
            # Every failure has one text; the provider's own log has the cause.
            _log.exception("request %s (%s) failed after its charge", request.id, prepared.about)
            raise EngineError() from None

    def _validate(self, request: Request, deadline: Deadline) -> _Valid:
        epsilon = Epsilon.of(request.epsilon)
        query = request.query
        checking = checking_work(request, self.schema)
        require_work(checking, self.max_work)
        deadline.admit(checking)
        deadline.check()
        parts = request.parts.bind(self.schema)
        if not parts.size:
            raise QueryError("there are no parts to ask.")
        prepared = prepare(query, parts, self.schema)
        per_row = epsilon.per_row(self.schema.distance)
        counting = prepared.work(self.schema.max_rows, per_row)
        require_work(checking + counting, self.max_work)
        columns = self.schema.with_sources(request.columns())
        return _Valid(query, prepared, columns, epsilon, per_row, prepared.noise(per_row), checking, counting)


@lru_cache(maxsize=64)
def passed_under(digest: str) -> set[Hashable]:
    """The kinds that passed in this process under the schema of this digest, for all its handles."""
    return set()


class Rehearsals:
    """Runs each kind of request on dummy rows, under one schema, before the first charge of that kind.

    An error after a charge is a release too: an error that only some rows raise reveals these rows, at any epsilon. So
    reading a row is indexing that cannot fail. Here counting, scores, choices and noise run once on dummy rows before
    the charge: on no row, and on rows inside and outside of queried parts (``pinq/engine/rehearsal.py``). A request
    that fails there is refused, uncharged, with an ``InternalError`` that asks for a report.

    The rehearsal covers, once for each new *kind*, how rows reach their parts, and the answer of a part, with one
    candidate of each form. Requests are of one kind if their partitions have the same form (cuts, groups or codes, in
    numbers of one size class), if both have one partition or several side by side, and if they are the same query at
    losses of one size class.

    Privacy:
        Adjacency: any two tables. Claim: a rehearsal and its decision are the same for both. Why: it sees the schema,
        the request and rows made of these two. The rehearsal adds this to the argument: an uncharged request finds a
        fault in code that reads rows, before the fault can tell rows apart. It does not prove that there is none.
        Deadlines and allocations depend on rows, too, and stay outside the guarantee (docs/threat-model.md). Held by:
        tests/unit/curator/test_rehearsal.py.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._passed = passed_under(schema.digest)

    def require(self, query: Query, prepared: PreparedQuery, epsilon: Fraction, deadline: Deadline) -> None:
        """Runs a request on dummy rows unless one of its kind has passed; errors are those of its code."""
        ways, answers = _ways(prepared) - self._passed, _answers(query, prepared, epsilon) - self._passed
        if answers:
            # The first part, and parts with other kinds of candidates.
            numbers = sorted({0, *query.examples(self._schema)})
            parts = prepared.parts.take(np.array(numbers))
            some = prepare(query.sample(numbers, self._schema), parts, self._schema)
            for filled in (False, True):
                some.release(some.count(DummyEngine(self._schema, filled=filled), deadline, SAMPLED_DRAWS), epsilon)
        if ways:
            # If all parts have the same last split, it is an axis of dense tables, and one more step down to listed
            # tables.
            for table in (TableRequest(), TableRequest((), "listed")):
                DummyEngine(self._schema, filled=True).tabulate(prepared.parts, [table], check=deadline.check)
        if len(self._passed) >= KEPT_KINDS:
            self._passed.clear()
        self._passed |= ways | answers


def _ways(prepared: PreparedQuery) -> set[Hashable]:
    """All kinds of splits on the paths of rows to their parts: the upper and the last ones."""
    levels = defaultdict[int, set[Partition | None]](set)
    for part in prepared.parts.ancestors.values():
        levels[part.depth].add(part.partition)
    last = levels[0] = {block.partition for block in prepared.parts.blocks}
    # Other code looks up several partitions of a level than one, and partitions of several columns than of one.
    beside = {_columns(partitions) for partitions in levels.values() if len(partitions) > 1}
    depths = {block.part.depth for block in prepared.parts.blocks}
    several = scale(len(prepared.parts))[1], len(depths) > 1, *sorted(beside)
    return {
        *((several, "down", partition.form) for partition in prepared.parts.partitions),
        *((several, "last", partition.form) for partition in last if partition is not None),
    }


def _columns(partitions: Iterable[Partition | None]) -> int:
    """The number of distinct sources of partitions, at most two; a column's cuts are one, its other uses another."""
    axes = (axis for partition in partitions if partition is not None for axis in partition.axes)
    return min(2, len({(axis.source, axis.thresholds is None) for axis in axes}))


def _answers(query: Query, prepared: PreparedQuery, epsilon: Fraction) -> set[Hashable]:
    """All kinds of tables of a part's answer, and all kinds of sums."""
    common = query.form(), _summed(prepared.measure), scale(len(prepared.tables)), scale(int(1 / epsilon))
    return {
        *((common, "table", table.form, *(axis.form for axis in table.axes)) for table in prepared.tables),
        *((common, "sum", axis.form) for axis in (() if prepared.measure is None else prepared.measure.inputs)),
    }


def _summed(measure: Measure | None) -> tuple[object, ...]:
    if isinstance(measure, Moments):
        return measure.column, measure.shift, measure.squares, measure.last - measure.first
    return type(measure), 0 if measure is None else measure.width  # a loss with second derivatives has wider vectors
