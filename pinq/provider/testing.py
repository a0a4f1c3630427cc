# SPDX-License-Identifier: Apache-2.0
"""Ways to find a false privacy claim: a search of small tables, a statistical test, and a replay.

``search_sensitivity`` tries every small table and every row that can come, and reports how far a
score really moves. A provider's own score should pass it before it is used. ``epsilon_lower_bound``
draws from a mechanism on two neighbouring tables and reports a loss that the mechanism exceeds with
near certainty. ``first_difference`` runs a miner again on another table with the answers of the
first, so that all that it asks must be the same. None can prove a claim; each can refute one.

Example::

    found = search_sensitivity(Gini("income"), schema, cells=3, classes=2)
    assert found.span <= Gini("income").span(schema)

    bound = epsilon_lower_bound(lambda rows, runs: laplace(np.full(runs, rows), 1, Fraction(1)), 10, 11, runs=50_000)
    assert bound <= 1

    learn = lambda handle: SuLQID3(epsilon=1).fit(handle, "income").text()
    assert not first_difference(learn, pinq.simulate(schema, seed=1), pinq.simulate(schema, seed=2))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import PinqError
from pinq.language.queries import Request
from pinq.public.schema import Schema

MAX_BINS = 40

Rows = TypeVar("Rows")
"""Whatever a mechanism takes as its table."""


@dataclass(frozen=True)
class Movement:
    """The changes of a score by one more row, over all tried tables.

    Attributes:
        change: The largest change of one candidate's score, in the score's units.
        span: The largest change of the difference of two candidates' scores.
        monotone: Whether no two candidates ever moved in opposite directions.
        tables: The number of pairs of neighbouring tables that were tried.
    """

    change: int
    span: int
    monotone: bool
    tables: int


def search_sensitivity(
    score: Any, schema: Schema, *, cells: int = 2, classes: int = 2, rows: int | None = None
) -> Movement:
    """Tries every table of counts of at most ``rows`` rows, and every row that can be added.

    Two candidates see the same rows, so their tables agree in the numbers of rows of each class,
    and in nothing else: any two such tables belong to two columns of one dataset. Hence the span is
    the widest range of changes among tables that agree in the classes, for a row of one class.

    Args:
        score: One of ``pinq.language.scores``, or an object with ``measure`` ("classes", "rows",
            "moments" or "vectors") and ``of(table, schema)``; tables are as in
            ``pinq.language.scores``. A score without ``of`` is the counts themselves, one candidate
            for each class. Of a score of vectors all rows are in the first part
            of whatever its points look at.
        schema: Its ``max_rows`` bounds the larger of two neighbouring tables unless ``rows`` does.
        cells: Parts that a candidate has.
        classes: Classes of the target; for "moments" its levels 0, 1, ...
        rows: Rows of the larger table. The number of tables grows as its power ``cells * classes``.
    """
    most = schema.max_rows if rows is None else rows
    measure = getattr(score, "measure", "classes")
    kinds = 1 if measure == "rows" else classes
    counts = np.array(list(small_tables(cells * kinds, most - 1)), dtype=np.int64).reshape(-1, cells, kinds)
    # Cells (2, 0) and (0, 1) agree with cells (1, 1) and (1, 0): two rows of one class, one of
    # another.
    agree = np.unique(counts.sum(axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    before = _scores(score, counts, schema, measure)
    change = span = 0
    monotone, tried = True, 0
    for kind in range(kinds):
        low = np.full((agree.max() + 1, before.shape[1]), np.iinfo(np.int64).max)
        high = np.full((agree.max() + 1, before.shape[1]), np.iinfo(np.int64).min)
        for cell in range(cells):
            after = counts.copy()
            after[:, cell, kind] += 1
            moved = _scores(score, after, schema, measure) - before
            np.minimum.at(low, agree, moved)
            np.maximum.at(high, agree, moved)
            tried += len(moved)
        change = max(change, int(np.abs(low).max()), int(np.abs(high).max()))
        lowest, highest = low.min(axis=1), high.max(axis=1)
        span = max(span, int((highest - lowest).max()))
        monotone = monotone and not bool(((lowest < 0) & (highest > 0)).any())
    return Movement(change, span, monotone, tried)


def small_tables(cells: int, rows: int) -> Iterator[tuple[int, ...]]:
    """Every table of ``cells`` counts with at most ``rows`` rows."""
    if cells == 0:
        yield ()
        return
    for first in range(rows + 1):
        for rest in small_tables(cells - 1, rows - first):
            yield (first, *rest)


def epsilon_lower_bound(
    mechanism: Callable[[Rows, int], Iterable[Hashable]],
    table: Rows,
    neighbour: Rows,
    *,
    runs: int,
    error: float = 1e-7,
) -> float:
    """A loss that the mechanism has at least, unless an event of probability ``error`` happened.

    Half of the draws choose the event whose likelihoods differ most, the other half measure it: so
    the choice cannot flatter the measurement. The bound is ln(p / q) for the lower Clopper-Pearson
    bound p of the event on one table and the upper one q on the other.

    Args:
        mechanism: ``mechanism(table, runs)`` gives that many independent outcomes: numbers or other
            hashable things, shape (runs,).
        table: A table, passed on as it is.
        neighbour: The same, for a neighbouring table.
        runs: Draws from each table, at least 4.
        error: Probability that the bound is above the truth.

    Returns:
        The bound, at least 0. Above the claimed epsilon, it refutes the claim.

    References:
        Ding et al. 2018, "Detecting Violations of Differential Privacy"; Clopper & Pearson 1934.
    """
    drawn = [list(mechanism(rows, runs)) for rows in (table, neighbour)]
    positions = {outcome: position for position, outcome in enumerate(_ordered({*drawn[0], *drawn[1]}))}
    halves, size = runs // 2, len(positions)
    numbers = [np.array([positions[outcome] for outcome in outcomes]) for outcomes in drawn]
    choosing = [np.bincount(outcomes[:halves], minlength=size) for outcomes in numbers]
    measuring = [np.bincount(outcomes[halves:], minlength=size) for outcomes in numbers]
    bins = _bins(choosing[0] + choosing[1])
    best, event, direction = -np.inf, np.zeros(size, dtype=bool), 0
    for towards in (0, 1):
        here, there = choosing[towards], choosing[1 - towards]
        ratio = (np.bincount(bins, here) + 1) / (np.bincount(bins, there) + 1)
        # Half-lines, and unions of the bins of largest likelihood ratio: the best event is among
        # the latter but for noise.
        for order in (np.arange(size), np.arange(size)[::-1], np.argsort(-ratio[bins], kind="stable")):
            bounds = _log_ratio(np.cumsum(here[order]), np.cumsum(there[order]), halves, error)
            if bounds.max() > best:
                best, direction = float(bounds.max()), towards
                event = np.isin(np.arange(size), order[: int(bounds.argmax()) + 1])
    measured = [measuring[number][event].sum(keepdims=True) for number in (direction, 1 - direction)]
    return max(0.0, float(_log_ratio(measured[0], measured[1], runs - halves, error)[0]))


def _bins(drawn: np.ndarray) -> np.ndarray:
    """Puts neighbouring outcomes into bins with draws enough to tell likelihoods from chance.

    Args:
        drawn: The number of draws of each outcome, shape (outcomes,).

    Returns:
        Each outcome's bin, shape (outcomes,).
    """
    bins = (np.cumsum(drawn) - drawn) * MAX_BINS // max(1, drawn.sum())
    return np.unique(bins, return_inverse=True)[1]


def _log_ratio(here: np.ndarray, there: np.ndarray, draws: int, error: float) -> np.ndarray:
    """Returns ln of the least p over the largest q, each bound wrong with probability error / 2."""
    from scipy.stats import beta

    least = np.where(here > 0, beta.ppf(error / 2, np.maximum(here, 1), draws - here + 1), 0.0)
    most = np.where(there < draws, beta.ppf(1 - error / 2, there + 1, np.maximum(draws - there, 1)), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(least) - np.log(most))


def _ordered(outcomes: set[Hashable]) -> list[Hashable]:
    """Puts outcomes in their own order, where they have one: half-lines then mean something."""
    try:
        return sorted(outcomes)  # type: ignore[type-var]
    except TypeError:
        return sorted(outcomes, key=repr)


def _scores(score: Any, counts: np.ndarray, schema: Schema, measure: str) -> np.ndarray:
    """Scores tables of counts, shape (tables, candidates).

    There is one candidate, but for a score that is the counts themselves.
    """
    if not hasattr(score, "of"):
        return counts.sum(axis=1)
    if measure == "moments":
        # 2, 0 and 1 rows on levels 0 to 2: 3 rows, of sum 2 and sum of squares 4.
        levels = np.arange(counts.shape[2], dtype=np.int64)
        counts = np.stack([counts.sum(axis=2), counts @ levels, counts @ levels**2], axis=-1)
    if measure == "vectors":
        vectors = score.vectors(schema)
        first = [np.zeros(counts.shape[2], dtype=np.int64)] * (len(vectors.inputs) - 1)
        counts = counts @ vectors.of([*first, np.arange(counts.shape[2])]).T
    return np.asarray(score.of(counts, schema)).astype(np.int64)[:, None]


CALLS = ("ask", "preview", "budget", "history", "terms")
"""The methods of a session by which a miner learns anything."""


class AskedOtherwise(Exception):
    """A call of the second run that is not the one of the first run."""


def first_difference(
    learn: Callable[[PrivateQueryable], object], here: PrivateQueryable, there: PrivateQueryable
) -> str:
    """Tells where a miner's queries or result follow from anything else than answers.

    The miner learns from one table, and what it is told is kept. Then it learns from the other table,
    where each call gets the kept result. So a miner that sees answers only does the same: it asks the
    same in the same order (those of several threads in any order), and has the same result.

    Args:
        learn: A function that fits the miner to a handle and returns what it learned, in a form
            that can be compared, such as its text. Its own random numbers need a fixed seed.
        here: The first table.
        there: Another table of the same schema. Nothing is charged to it.

    Returns:
        The first difference, in words; empty where there is none.
    """
    first = _Calls(here._session)
    learned = learn(PrivateQueryable(first, here._parts.blocks[0].part))
    again = _Calls(there._session, list(first.made))
    try:
        result = learn(PrivateQueryable(again, there._parts.blocks[0].part))
    except AskedOtherwise as difference:
        return str(difference)
    if again.expected:
        return f"It never made the call {again.expected[0].call}."
    return "" if result == learned else "It asked the same, but what it learned differs."


class _Call(NamedTuple):
    """A call, the thread that made it, and its result or error."""

    call: object
    thread: int
    result: object


@dataclass
class _Calls:
    """A session whose calls are kept, or are answered by those that were kept before.

    Attributes:
        session: The session behind it.
        expected: The calls of an earlier run that did not come again yet; None in the first run.
        made: The calls of the first run.
    """

    session: Any
    expected: list[_Call] | None = None
    made: list[_Call] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in CALLS else getattr(self.session, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        # An id is drawn anew by each run; neither it nor the name of an act changes an answer.
        unnamed = {"id": "", "act": None}
        call = (name, *(one.model_copy(update=unnamed) if isinstance(one, Request) else one for one in arguments))
        result = self._first(name, arguments) if self.expected is None else self._again(call)
        if self.expected is None:
            self.made.append(_Call(call, threading.get_ident(), result))
        if isinstance(result, PinqError):
            raise result
        return result

    def _first(self, name: str, arguments: tuple[Any, ...]) -> object:
        try:
            return getattr(self.session, name)(*arguments)
        except PinqError as error:
            return error

    def _again(self, call: object) -> object:
        """The result of the same call; several threads make theirs in any order."""
        assert self.expected is not None
        with self.lock:
            in_order = len({earlier.thread for earlier in self.expected}) <= 1
            for position, earlier in enumerate(self.expected[:1] if in_order else self.expected):
                if earlier.call == call:
                    return self.expected.pop(position).result
            was = self.expected[0].call if self.expected else "nothing more"
        raise AskedOtherwise(f"It asks {call}, where it asked {was}.")
