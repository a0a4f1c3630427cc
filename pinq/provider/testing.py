# SPDX-License-Identifier: Apache-2.0
"""Ways to find a false privacy claim: a statistical test, and a replay.

``epsilon_lower_bound`` is the test, ``first_difference`` the replay. Neither can prove a claim; each can refute one.

Example::

    bound = epsilon_lower_bound(lambda rows, runs: laplace(np.full(runs, rows), 1, Fraction(1)), 10, 11, runs=50_000)
    assert bound <= 1

    learn = lambda handle: SuLQID3(epsilon=1).fit(handle, "income").text()
    assert not first_difference(learn, pinq.simulate(schema, seed=1), pinq.simulate(schema, seed=2))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import PinqError
from pinq.language.queries import Request

MAX_BINS = 40

Rows = TypeVar("Rows")
"""The type of a mechanism's table."""


def epsilon_lower_bound(
    mechanism: Callable[[Rows, int], Iterable[Hashable]],
    table: Rows,
    neighbour: Rows,
    *,
    runs: int,
    error: float = 1e-7,
) -> float:
    """A lower bound of the mechanism's loss, wrong with probability at most ``error``.

    Half of the draws choose the event whose likelihoods differ most, the other half measure it, so the
    choice does not bias the measurement. The bound is ln(p / q) for the lower Clopper-Pearson bound p of
    the event on one table and the upper bound q on the other.

    Args:
        mechanism: A function: ``mechanism(table, runs)`` returns ``runs`` independent outcomes, numbers or
            other hashable objects.
        table: A table, as an argument of the mechanism.
        neighbour: A neighbouring table.
        runs: The number of draws from each table, at least 4.
        error: The probability that the bound is above the true loss.

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
        # Half-lines, and unions of the bins of largest likelihood ratio: up to noise, the best event is a union.
        for order in (np.arange(size), np.arange(size)[::-1], np.argsort(-ratio[bins], kind="stable")):
            bounds = _log_ratio(np.cumsum(here[order]), np.cumsum(there[order]), halves, error)
            if bounds.max() > best:
                best, direction = float(bounds.max()), towards
                event = np.isin(np.arange(size), order[: int(bounds.argmax()) + 1])
    measured = [measuring[number][event].sum(keepdims=True) for number in (direction, 1 - direction)]
    return max(0.0, float(_log_ratio(measured[0], measured[1], runs - halves, error)[0]))


def _bins(drawn: np.ndarray) -> np.ndarray:
    """Puts neighbouring outcomes into bins with enough draws to estimate likelihoods; shapes (outcomes,)."""
    bins = (np.cumsum(drawn) - drawn) * MAX_BINS // max(1, drawn.sum())
    return np.unique(bins, return_inverse=True)[1]


def _log_ratio(here: np.ndarray, there: np.ndarray, draws: int, error: float) -> np.ndarray:
    """Returns ln(p / q) for a lower bound p and an upper bound q, each wrong with probability error / 2."""
    from scipy.stats import beta

    lower = np.where(here > 0, beta.ppf(error / 2, np.maximum(here, 1), draws - here + 1), 0.0)
    upper = np.where(there < draws, beta.ppf(1 - error / 2, there + 1, np.maximum(draws - there, 1)), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(lower) - np.log(upper))


def _ordered(outcomes: set[Hashable]) -> list[Hashable]:
    """Sorts outcomes by value if possible, so that half-lines are meaningful."""
    try:
        return sorted(outcomes)  # type: ignore[type-var]
    except TypeError:
        return sorted(outcomes, key=repr)


CALLS = ("ask", "preview", "budget", "history", "terms")
"""The methods of a session that give a miner information."""


class AskedOtherwise(Exception):
    """A call of the second run that differs from the first run."""


def first_difference(
    learn: Callable[[PrivateQueryable], object], here: PrivateQueryable, there: PrivateQueryable
) -> str:
    """Finds a query or result of a miner that does not depend on answers alone.

    The miner learns from one table, and the results of its calls are kept. Then it learns from the other
    table, where each call gets the kept result. A miner that sees answers only makes the same calls in
    the same order (calls of several threads in any order), and has the same result.

    Args:
        learn: A function that fits the miner to a handle and returns its result in a comparable form,
            such as text. Its random numbers need a fixed seed.
        here: The first table.
        there: Another table of the same schema. Nothing is charged to it.

    Returns:
        The first difference, in words; empty for none.
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
    """A call with its thread, and its result or error."""

    call: object
    thread: int
    result: object


@dataclass
class _Calls:
    """A session that keeps its calls, or answers them with the calls of an earlier run.

    Attributes:
        expected: The remaining calls of the earlier run; None in the first run.
    """

    session: Any
    expected: list[_Call] | None = None
    made: list[_Call] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in CALLS else getattr(self.session, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        # Each run draws new ids. Neither an id nor the name of an act changes an answer.
        unnamed = {"id": "", "act": None}
        call = (name, *(each.model_copy(update=unnamed) if isinstance(each, Request) else each for each in arguments))
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
        """The result of the same earlier call; calls of several threads may come in any order."""
        assert self.expected is not None
        with self.lock:
            in_order = len({earlier.thread for earlier in self.expected}) <= 1
            for position, earlier in enumerate(self.expected[:1] if in_order else self.expected):
                if earlier.call == call:
                    return self.expected.pop(position).result
            was = self.expected[0].call if self.expected else "nothing more"
        raise AskedOtherwise(f"It asks {call}, where it asked {was}.")
