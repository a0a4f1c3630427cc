# SPDX-License-Identifier: Apache-2.0
"""The reference monitor: one request from end to end. Read this file first.

::

    validate ── charge ── tabulate ── noise ── persist ── answer
    (public)   (ledger)   (engine)  (mechanisms)  (ledger)

Only here do exact numbers and noise meet. Everything before the charge looks at the schema, the request and the ledger; after
the charge nothing can be refused, and whatever goes wrong gives one error of one text (``EngineError``).

Privacy:
    Adjacency and unit: the policy's. Claim: all answers to an analyst together are spent-DP, spent <= limit; all answers to all
    analysts together are joint-DP, joint <= cap, for any adaptive and colluding analysts.
    Why: each answer is epsilon-DP for one row of each part (pinq/mechanisms.py), composed by pinq/composition.py, charged before it is
    drawn. Neighbours differ by ``schema.distance`` rows, so noise is calibrated to epsilon / distance (group privacy, privacy.md 1.1).
    Held by: tests/privacy, tests/property/test_composition.py, tests/e2e/test_crash.py.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from pinq.accuracy import laplace_interval
from pinq.composition import Demand
from pinq.engine import DuckDBEngine, ListRequest, Moments, TableRequest
from pinq.epsilon import exact, show, to_nano
from pinq.errors import EngineError, QueryError
from pinq.key_locks import KeyLocks
from pinq.ledger import Ledger
from pinq.mechanisms import laplace
from pinq.parts import PartSet
from pinq.queries import MAX_CANDIDATES, Answer, Preview, Request
from pinq.schema import Numeric, Schema
from pinq.scores import WAY, ClassCount, EnoughRows, require_score
from pinq.selection import Selection
from pinq.specs import Spec
from pinq.stopping import beginnings, penalty, splits_kept

__all__ = ["Curator"]

MAX_TABLE_CELLS = 2**26
MAX_SUM = 2**62
MAX_LEAVES = 2**19

_log = logging.getLogger("pinq.curator")


class _Released(NamedTuple):
    """What leaves: values in the parts' order, chosen specs, and for averages the noisy rows."""

    values: list[Any]
    chosen: tuple[Spec, ...] = ()
    rows: tuple[float, ...] | None = None


@dataclass(frozen=True)
class _Work:
    """A validated request: what to read, and what to release of it."""

    parts: PartSet
    nano: int
    tables: tuple[TableRequest | ListRequest, ...]
    moments: Moments | None
    release: Callable[[list[Any], Fraction], _Released]
    scale: float | None
    grid: float | None
    error: str
    about: str
    charged: PartSet | None = None  # unless it is the parts themselves

    @property
    def demand(self) -> Demand:
        """Where the request is charged."""
        return Demand.of(self.parts if self.charged is None else self.charged)


class Curator:
    """Answers requests on one dataset.

    Args:
        schema: What requests are checked against.
        ledger: Where they are charged.
        engine: What they are computed from.
    """

    def __init__(self, schema: Schema, ledger: Ledger, engine: DuckDBEngine) -> None:
        self.schema, self.ledger, self._engine = schema, ledger, engine
        self._working = KeyLocks()

    def ask(self, analyst: str, request: Request) -> Answer:
        """Answers a request, once: the same id gets the same answer and is charged once.

        A request that arrives again while it is worked on waits for that answer. (Between processes both may compute one; the ledger keeps the first.)

        Raises:
            QueryError: Malformed; nothing was spent.
            NotAuthorised, NotAllowed, TooManyRequests, BudgetExceeded: Refused; logged; nothing was spent.
            EngineError: The charge stands.
        """
        work = self._validate(request)
        # The schema belongs to the question: a charge for one meaning of "part 1" must not pay for another.
        text = self.schema.digest + request.model_copy(update={"id": "-", "epsilon": show(work.nano), "reuse": None}).to_json()
        body = {"verb": request.verb, "about": work.about, "question": hashlib.sha256(text.encode()).hexdigest()[:32]}
        if isinstance(request.score, ClassCount):
            body["classes"] = request.score.target
        with self._working.take((analyst, request.id)):
            return self._once(analyst, request, work, body)

    def _once(self, analyst: str, request: Request, work: _Work, body: dict[str, Any]) -> Answer:
        """Charges and answers, or finds the answer that was given."""
        charge, given = self.ledger.charge(
            analyst, request.id, work.demand, work.nano, body, columns=request.columns(), reuse=bool(request.reuse)
        )
        if charge is not None and charge.body.get("question") != body["question"]:
            raise QueryError(f"the request id {request.id!r} was used for another question. Nothing was spent.")
        if given is None:
            if charge is not None:  # paid for, perhaps under an earlier id, and never answered
                request = request.model_copy(update={"id": charge.request})
            answer = self._answer(request, work)
            payload = answer.to_json()
            given = self.ledger.answer(analyst, request.id, payload)
            if given == payload:
                return answer
        return Answer.from_json(given)  # another asker of the same request was first: there is one answer

    def preview(self, analyst: str, request: Request) -> Preview:
        """What ``ask`` would cost and how exact it would be."""
        work = self._validate(request)
        cost, left = self.ledger.price(analyst, work.demand, work.nano, verb=request.verb, columns=request.columns())
        return Preview(exact(cost), exact(left), work.error, None if request.verb == "noisy_avg" else work.scale)

    def close(self) -> None:
        """Closes engine and ledger."""
        self._engine.close()
        self.ledger.close()

    def _answer(self, request: Request, work: _Work) -> Answer:
        try:
            tables = self._engine.tabulate(work.parts, work.tables, work.moments)
            values, chosen, rows = work.release(tables, self._epsilon(work.nano))
        except Exception:
            # One text whatever happened; the provider's own log has the cause.
            _log.exception("request %s (%s) failed after its charge", request.id, work.about)
            raise EngineError() from None
        return Answer(id=request.id, verb=request.verb, epsilon=show(work.nano), values=tuple(values), chosen=chosen, scale=work.scale, grid=work.grid, rows=rows)

    def _epsilon(self, nano: int) -> Fraction:
        """Loss that each single row may cause."""
        return exact(nano) / self.schema.distance

    def _validate(self, request: Request) -> _Work:
        nano = to_nano(request.epsilon)
        parts = request.parts.bind(self.schema)
        if len(parts) == 0:
            raise QueryError("there are no parts to ask. Nothing was spent.")
        if len(request.which) > len(parts):
            raise QueryError(f"`which` names {len(request.which):,} lists of candidates for {len(parts):,} parts. Nothing was spent.")
        work = {"noisy_count": self._count, "noisy_sum": self._sum, "noisy_avg": self._avg, "exp_mech": self._exp_mech}[request.verb](request, parts, nano)
        # The engine keeps one more place along each axis, for rows in no part of it.
        cells = sum((len(parts) + 1) * math.prod(axis.size + 1 for axis in table.axes) for table in work.tables if isinstance(table, TableRequest) and not table.sparse)
        _require_room(cells)
        return work

    def _count(self, request: Request, parts: PartSet, nano: int) -> _Work:
        """Rows of each part + DLap(1/epsilon); one row changes one part's count by 1 (privacy.md 2.1)."""
        scale = float(1 / self._epsilon(nano))

        def release(tables: list[Any], epsilon: Fraction) -> _Released:
            return _Released(laplace(tables[0], 1, epsilon).tolist())

        error = f"each count is within ±{laplace_interval(scale, 0.95):,} of the truth in 95 % of cases"
        return _Work(parts, nano, (TableRequest(),), None, release, scale, 1.0, error, _about("noisy_count", parts))

    def _sum(self, request: Request, parts: PartSet, nano: int) -> _Work:
        """Sum of whole numbers of units + DLap(largest / epsilon); a row adds at most ``largest`` units to one part (privacy.md 2.2).

        Cell k of the grid counts as ``factor * k + offset`` units, the largest unit of which the numbers of all cells are whole multiples.
        """
        name, column = self._numeric(request)
        unit = Fraction(
            math.gcd(column.origin.numerator * column.width.denominator, column.width.numerator * column.origin.denominator),
            column.origin.denominator * column.width.denominator,
        )
        factor, offset = int(column.width / unit), int(column.origin / unit)
        largest = max(abs(offset), abs(factor * (column.cells - 1) + offset))
        if largest * self.schema.max_rows >= MAX_SUM:
            raise QueryError(f"sums of `{name}` could pass 2^62 units of {float(unit):g}; the provider must declare rounder bounds or a larger step. Nothing was spent.")
        scale = float(largest / self._epsilon(nano))

        def release(tables: list[Any], epsilon: Fraction) -> _Released:
            rows, codes = tables[0][..., 0], tables[0][..., 1]
            noisy = laplace(factor * codes + offset * rows, largest, epsilon)
            return _Released([float(value * unit) for value in noisy.tolist()])

        error = f"each sum is within ±{laplace_interval(scale, 0.95) * float(unit):,.6g} of the truth in 95 % of cases, {_grid_error(column)}"
        about = _about(f"noisy_sum of {name}", parts)
        return _Work(parts, nano, (TableRequest(),), Moments(name), release, scale * float(unit), float(unit), error, about)

    def _avg(self, request: Request, parts: PartSet, nano: int) -> _Work:
        """Two bins: a row in cell k adds k to U and G - k to L, G the last cell; U + DLap(G/epsilon), L + DLap(G/epsilon).

        Privacy: the pair's L1 sensitivity is exactly G, so both together cost epsilon; the ratio is post-processing. (A mean with
        noise scaled by the private number of rows would not be private; privacy.md 2.3.) So is the number of rows, (U + L) / G.
        """
        name, column = self._numeric(request)
        last = column.cells - 1
        scale = float(1 / self._epsilon(nano))

        def release(tables: list[Any], epsilon: Fraction) -> _Released:
            rows, upper = tables[0][..., 0], tables[0][..., 1]
            noisy = laplace(np.stack([upper, last * rows - upper]), last, epsilon).tolist()
            shares = [Fraction(1, 2) if up + low <= 0 else min(Fraction(1), max(Fraction(0), Fraction(up, up + low))) for up, low in zip(*noisy, strict=True)]
            rows = tuple((up + low) / max(1, last) for up, low in zip(*noisy, strict=True))
            return _Released([column.number(last * share) for share in shares], rows=rows)

        spread = float(column.width * last) * scale
        error = f"an average over n rows has a standard error of about {spread:,.4g} / n to {spread * math.sqrt(2):,.4g} / n, {_grid_error(column)}"
        return _Work(parts, nano, (TableRequest(),), Moments(name), release, spread, float(column.width), error, _about(f"noisy_avg of {name}", parts))

    def _exp_mech(self, request: Request, parts: PartSet, nano: int) -> _Work:
        score = require_score(request.score, self.schema)
        if isinstance(score, EnoughRows):
            return self._stop(request, score, parts, nano)
        if sum(len(candidates) for candidates in request.candidates) > MAX_CANDIDATES:
            raise QueryError(f"at most {MAX_CANDIDATES:,} candidates are possible. Nothing was spent.")
        lists = () if isinstance(score, ClassCount) and not any(request.candidates) else request.candidates
        selection = Selection(self.schema, parts, score, lists, request.which, textbook=request.textbook, each=bool(request.each))
        _require_room(selection.cells())

        def release(tables: list[Any], epsilon: Fraction) -> _Released:
            picked = selection.choose(tables, epsilon)
            if isinstance(score, ClassCount):
                return _Released(picked)
            distinct = {repr(one): one for one in picked if one is not None}
            place = {text: number for number, text in enumerate(distinct)}
            return _Released([-1 if one is None else place[repr(one)] for one in picked], tuple(distinct.values()))

        options = max(2, self.schema.categorical(score.target).codes if isinstance(score, ClassCount) else selection.most)
        # P[score of the choice < best - t] <= m exp(-eta t): a bound for both mechanisms.
        loss = float(selection.span * selection.choices / self._epsilon(nano)) * math.log(options / 0.05) / float(_unit(score))
        error = f"the choice's {score.kind} is within {loss:,.4g} of the best in 95 % of cases"
        about = _about(f"exp_mech{' from each' if selection.each else ''} by {score.kind}" + (f" of {score.target}" if getattr(score, "target", None) else ""), parts)
        return _Work(parts, nano, tuple(selection.tables), selection.moments, release, None, None, error, about)

    def _stop(self, request: Request, score: EnoughRows, parts: PartSet, nano: int) -> _Work:
        """How far down each way of a tree goes on; charged where the trees begin, for it depends on all of their rows (pinq/stopping.py)."""
        if any(request.candidates) or request.each or request.textbook:
            raise QueryError("EnoughRows takes the leaves of trees; no candidates, and neither `each` nor `textbook`. Nothing was spent.")
        if len(parts) > MAX_LEAVES:
            raise QueryError(f"trees of {len(parts):,} leaves are too large; at most {MAX_LEAVES:,} are possible. Nothing was spent.")
        if any(block.part.depth + (block.partition is not None) < score.above for block in parts.blocks):
            raise QueryError(f"the trees are said to begin {score.above} splits below the whole table, and a part lies above that. Nothing was spent.")

        def release(tables: list[Any], epsilon: Fraction) -> _Released:
            return _Released(splits_kept(parts, tables[0].tolist(), score, epsilon))

        epsilon = self._epsilon(nano)
        error = (
            f"a part stays split from about {score.least:,} rows on, ±{math.ceil(WAY / epsilon * Fraction(math.log(20))):,} in 95 % of cases, "
            f"and {penalty(epsilon):,} more for each split of its tree above it"
        )
        return _Work(parts, nano, (TableRequest(),), None, release, None, None, error, _about("exp_mech by enough_rows", parts), beginnings(parts, score.above))

    def _numeric(self, request: Request) -> tuple[str, Numeric]:
        return str(request.column), self.schema.numeric(request.column)


def _require_room(cells: int) -> None:
    if cells > MAX_TABLE_CELLS:
        raise QueryError(f"the request needs tables of {cells:,} cells; at most {MAX_TABLE_CELLS:,} are possible. Ask fewer parts or coarser ones. Nothing was spent.")


def _unit(score: Any) -> int:
    from pinq.scores import ENTROPY_BITS, GINI_UNIT

    return {"gini": GINI_UNIT, "info_gain": 2**ENTROPY_BITS, "mutual_information": 2**ENTROPY_BITS}.get(score.kind, 1)


def _grid_error(column: Numeric) -> str:
    if column.integer and column.width == 1:
        return "and the grid is exact"
    return f"and the grid moves a value by at most {float(column.width - int(column.integer)) / 2:.3g}"


def _about(what: str, parts: PartSet) -> str:
    """One line for the log: the question, by public facts."""
    where = str(parts.at(0)) if len(parts) == 1 else f"{len(parts):,} parts"
    splits = [block.partition for block in parts.blocks if block.partition is not None]
    if len(parts.blocks) == 1 and splits:
        names = [axis.column if axis.column is not None else "shards" for axis in splits[0].axes]
        above = parts.blocks[0].part
        where = f"{len(parts):,} parts by {' x '.join(names)}" + (f" of {above}" if above.depth else "")
    return f"{what} on {where}"[:200]
