# SPDX-License-Identifier: Apache-2.0
"""Several private handles behind one face: a question goes to all holders at once.

Each answers for itself. The holders hold disjoint people, each behind a layer and a ledger of its
own. Whoever asks them (the coordinator) is an analyst of each, no more: nothing here is trusted
with anything.

Privacy:
    Claim: at each holder, what that holder's own policy says and its own ledger enforces.
    Why: a question to the federation is the same question to each handle, and all that is done here
    follows from what the handles let out: answers, errors, and how long they took. Time is outside
    the layer's guarantee (docs/known-limits.md), and so is which holder was too slow. Held by:
    tests/unit/federated/test_federation.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, get_args

from miners.budget.plan import count_scale, count_variance, sum_variance
from miners.estimator import schema_of
from miners.federated.columns import agreed_schema
from miners.federated.source import (
    Ability,
    Dropped,
    FederatedParts,
    HolderQuestion,
    Tally,
    progress_of,
    spent_text,
    tallies,
    unknown_holder,
)
from pinq.errors import PinqError, QueryError, TooManyRequests, Unavailable
from pinq.public.checks import closest, is_listing, is_number
from pinq.public.derivatives import Derivatives
from pinq.public.epsilon import Epsilon, Loss

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.public.queries import Budget

    Handles = Mapping[str, PrivateQueryable] | Iterable[PrivateQueryable]

__all__ = ["Federation", "HolderFailed", "Rule"]

Rule = Literal["fail", "wait", "drop"]
AT_ONCE = 4  # requests in flight at one holder: as many as a server works on for one token
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

T = TypeVar("T")


class HolderFailed(PinqError):
    """A holder did not answer, and the rule is not to go on without it.

    Attributes:
        causes: For each holder that failed, its error.
        spent: What each holder's ledger has charged since the federation was made; None where the
            holder does not say.
    """

    code = "holder-failed"

    def __init__(self, message: str, causes: Mapping[str, PinqError], spent: Mapping[str, Fraction | None]) -> None:
        super().__init__(message)
        self.causes, self.spent = dict(causes), dict(spent)


class Federation:
    """Private handles of several data holders, asked together.

    Args:
        handles: The handles, by the names of their holders; or a list, whose holders are called
            ``"holder 1"`` and so on.
        on_failure: What to do when a holder cannot answer. ``"fail"`` gives up and says what was
            spent where. ``"wait"`` asks again for ``patience`` seconds, then gives up. ``"drop"``
            goes on without it. A request that is malformed is an error in any case. How slow a
            holder may be before it has failed, its handle says: ``timeout`` of ``pinq.connect``.
        patience: Seconds to wait for a holder that is out of reach.
        say: Called with a line of text after each round, and when a holder is waited for or
            dropped; ``print``, for example.

    Attributes:
        schema: The public columns that all of them declare; ``max_rows`` is the sum, adjacency and
            privacy unit are the first holder's.
        dropped: Who was left behind, when and why; they stay so in this federation.
        rounds: How often the coordinator has waited for answers.
        requests: How many requests each holder was sent.

    Raises:
        QueryError: No handle, the same handle twice, or schemas that differ; says where.

    Examples:
        >>> import pinq
        >>> schema = pinq.Schema(columns={"sex": pinq.Categorical(values=("F", "M"))}, max_rows=100)
        >>> north, south = (pinq.simulate(schema, rows=50, epsilon=1) for _ in range(2))
        >>> both = Federation({"north": north, "south": south})
        >>> sorted(both.parts().partition(pinq.Values("sex")).noisy_count(epsilon=0.5))
        ['north', 'south']
        >>> {name: float(spent) for name, spent in both.spent().items()}
        {'north': 0.5, 'south': 0.5}
    """

    abilities: frozenset[Ability] = frozenset({"choices"})

    def __init__(
        self,
        handles: Handles,
        *,
        on_failure: Rule = "fail",
        patience: float = 300.0,
        say: Callable[[str], object] | None = None,
    ) -> None:
        if on_failure not in get_args(Rule):
            raise QueryError(
                f"`on_failure` is {on_failure!r}{closest(str(on_failure), get_args(Rule))}; it must be "
                "'fail', 'wait' or 'drop'."
            )
        if not is_number(patience, 0, 10**9):
            raise QueryError(f"is {patience!r}", parameter="patience", allowed="a number of seconds of at least 0")
        self._say = progress_of(say)
        self._handles = _named(handles)
        self.schema = agreed_schema({name: handle.schema for name, handle in self._handles.items()})
        self.on_failure, self.patience = on_failure, float(patience)
        self.dropped: list[Dropped] = []
        self.rounds, self.requests = 0, dict.fromkeys(self._handles, 0)
        self._before: dict[str, Fraction | None] = dict.fromkeys(self._handles, Fraction(0))
        self._before = self.spent()

    @property
    def holders(self) -> list[str]:
        """The names of the holders that were not dropped, in order."""
        gone = {dropped.holder for dropped in self.dropped}
        return [name for name in self._handles if name not in gone]

    def handle(self, holder: str) -> PrivateQueryable:
        """Returns a holder's handle, also a dropped one's. ``QueryError`` where there is none."""
        self.require_holder(holder)
        return self._handles[holder]

    def require_holder(self, holder: str) -> None:
        """Raises ``QueryError`` where there is no holder of this name; dropped ones count."""
        if holder not in self._handles:
            raise unknown_holder(holder, list(self._handles))

    def distance(self, holder: str) -> int:
        """Returns by how many rows two neighbouring tables of a holder may differ."""
        return self._handles[holder].schema.distance

    def parts(self) -> FederatedParts:
        """Returns the whole of each table, as a collection of one part.

        ``QueryError`` where all holders were dropped.
        """
        if not self.holders:
            raise QueryError("all holders of this federation were dropped; make a new one with handles that answer.")
        return FederatedParts(self, {name: self._handles[name].parts() for name in self.holders})

    def budgets(self) -> dict[str, Budget | None]:
        """Each holder's budget, dropped ones included; None where the holder does not say."""

        def look(handle: PrivateQueryable) -> Budget | None:
            try:
                return handle.budget
            except PinqError:
                return None

        budgets = _at_once([(name, partial(look, handle)) for name, handle in self._handles.items()])
        return dict(zip(self._handles, budgets, strict=True))

    def spent(self) -> dict[str, Fraction | None]:
        """Returns what each ledger charged since the federation was made; None of a silent one."""
        spent: dict[str, Fraction | None] = {}
        for name, budget in self.budgets().items():
            before = self._before[name]
            spent[name] = None if budget is None or before is None else budget.spent - before
        return spent

    def each(self, act: Callable[[PrivateQueryable], T]) -> dict[str, T]:
        """Does the same with each handle, all at once; failures by the rule."""
        asked = self.holders
        outcomes = self._together([(name, partial(_ignoring, act, self._handles[name])) for name in asked])
        living = self.holders  # those who failed are not among them
        return {name: outcome.answer() for name, outcome in zip(asked, outcomes, strict=True) if name in living}

    each_handle = each

    def ask(self, questions: Sequence[HolderQuestion]) -> list[dict[str, Any]]:
        """Asks several questions of several holders, all at once: one round.

        Returns:
            For each question the answers by holder; of a holder that was dropped meanwhile there is
            none.
        """
        began = time.monotonic()
        jobs = [
            (number, name)
            for number, question in enumerate(questions)
            for name in self.holders
            if name in question.epsilon
        ]
        for _, name in jobs:
            self.requests[name] += 1
        outcomes = self._together([(name, partial(questions[number].ask, name)) for number, name in jobs])
        self.rounds += 1
        self._say(
            f"round {self.rounds}: {len(jobs):,} {'request' if len(jobs) == 1 else 'requests'} answered in "
            f"{time.monotonic() - began:.1f} s"
        )
        by_question: list[dict[str, Any]] = [{} for _ in questions]
        for (number, name), outcome in zip(jobs, outcomes, strict=True):
            if name in self.holders:
                by_question[number][name] = outcome.answer()
        return by_question

    def tally(self, questions: Sequence[HolderQuestion]) -> list[dict[str, Tally]]:
        """Asks questions for numbers; returns the answers with the variance of their noise.

        Each holder adds its own noise, so a sum over k holders has that of k.
        """
        return tallies(self, questions)

    def living(self, tallies: Mapping[str, Tally]) -> list[Tally]:
        """Those of whoever was not dropped."""
        gone = {dropped.holder for dropped in self.dropped}
        return [tally for name, tally in tallies.items() if name not in gone]

    def variance(self, holder: str, epsilon: Loss) -> float:
        """Variance of the noise in one count of a holder."""
        return count_variance(count_scale(self._handles[holder].schema, Epsilon.of(epsilon)))

    def sum_variance(self, holder: str, loss: Derivatives, epsilon: Loss) -> float:
        """Variance of the noise in one sum of derivatives of a holder, in natural units."""
        return sum_variance(self._handles[holder].schema, loss, Epsilon.of(epsilon))

    def close(self) -> None:
        """Closes all handles; also at the end of a ``with`` block."""
        for handle in self._handles.values():
            handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        lines = [
            f"Federation of {len(self._handles)} holders, on_failure={self.on_failure!r}, {self.rounds} rounds so far"
        ]
        for name, budget in self.budgets().items():
            lines.append(
                f"  {name}: {'does not answer' if budget is None else repr(budget)}, {self.requests[name]} requests"
            )
        return "\n".join([*lines, *(f"  {dropped}" for dropped in self.dropped)])

    # Failure

    def _together(self, calls: Sequence[tuple[str, Callable[[bool], T]]]) -> list[_Outcome[T]]:
        """Makes all calls at once.

        Returns:
            How they went, in order; where one failed, its holder is dropped.
        """
        stop = threading.Event()
        outcomes = _at_once([(name, partial(self._persist, name, call, stop)) for name, call in calls], stop)
        causes = {
            name: outcome.error for (name, _), outcome in zip(calls, outcomes, strict=True) if outcome.error is not None
        }
        if causes:
            if all(outcome.is_refused for outcome in outcomes):
                raise next(iter(causes.values()))  # nobody could answer any of that, and nobody charged it
            self._give_up(causes)
        return outcomes

    def _persist(self, name: str, call: Callable[[bool], T], stop: threading.Event) -> _Outcome[T]:
        """Returns how one holder's call went, after waiting where the rule says so."""
        end, pause, again = time.monotonic() + self.patience, FIRST_PAUSE, False
        while True:
            try:
                return _Outcome([call(again)])
            except (Unavailable, TooManyRequests) as error:
                if self.on_failure != "wait" or time.monotonic() + pause > end or stop.is_set():
                    return _Outcome(error=error)
                # What did not come back may have been charged: the same question is not paid for
                # twice.
                again = True
                self._say(f"waiting for {name}, {end - time.monotonic():.0f} s more at most: {error}")
                stop.wait(pause)
                # After .1 s, .2 s, .4 s, ... and at last every 5 s.
                pause = min(2 * pause, LONGEST_PAUSE)
            except QueryError as error:
                return _Outcome(error=error, is_refused=True)
            except PinqError as error:
                return _Outcome(error=error)

    def _give_up(self, causes: Mapping[str, PinqError]) -> None:
        """Drops the holders that failed, or raises."""
        for cause in causes.values():
            cause.charged = None  # other questions of the same round may have been charged
        if len(self._handles) == 1:
            raise next(iter(causes.values()))
        if self.on_failure == "drop":
            gone = [Dropped(name, self.rounds, str(cause)) for name, cause in causes.items()]
            self.dropped += gone
            for dropped in gone:
                self._say(str(dropped))
            if self.holders:
                return
        spent = self.spent()
        why = " ".join(f"{name!r} failed: {cause}" for name, cause in causes.items())
        raise HolderFailed(f"{why} Spent since the federation was made: {spent_text(spent)}.", causes, spent)


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """How one call of a holder went: its answer alone in a list, or its error.

    Attributes:
        given: The answer; empty where there is none.
        error: Why there is none.
        is_refused: Whether the question itself was wrong, so that nobody charged it.
    """

    given: Sequence[T] = ()
    error: PinqError | None = None
    is_refused: bool = False

    def answer(self) -> T:
        """The answer. Only where there is no error."""
        return self.given[0]


def _named(handles: Handles) -> dict[str, PrivateQueryable]:
    """The handles by the names of their holders."""
    if isinstance(handles, Mapping):
        named = dict(handles)
    elif is_listing(handles):
        named = {f"holder {number}": handle for number, handle in enumerate(handles, start=1)}
    else:
        raise QueryError(
            f"a federation is made of handles, in a list or by the names of their holders, not of "
            f"{type(handles).__name__}."
        )
    if not named:
        raise QueryError("a federation needs at least one handle.")
    for name, handle in named.items():
        if not isinstance(name, str) or not name:
            raise QueryError(f"the holder {name!r} must have a text for a name.")
        if schema_of(handle) is None:
            raise QueryError(
                f"what stands for {name!r} is no handle but {type(handle).__name__}; open one with pinq.open "
                f"or pinq.connect."
            )
    if len({id(handle) for handle in named.values()}) < len(named):
        raise QueryError("the same handle stands for two holders; their people must be disjoint.")
    return named


def _ignoring(act: Callable[[PrivateQueryable], T], handle: PrivateQueryable, _: bool) -> T:
    """An act that is the same the second time."""
    return act(handle)


def _at_once(calls: Sequence[tuple[str, Callable[[], T]]], stop: threading.Event | None = None) -> list[T]:
    """Makes all calls at the same time, so that a slow holder keeps no other one waiting.

    Args:
        calls: Each with the holder that it goes to.
        stop: Set where all is broken off, for those that are waiting.

    Returns:
        The results, in order.
    """
    if len(calls) < 2:
        return [call() for _, call in calls]
    with ExitStack() as stack:
        lanes = {
            name: stack.enter_context(ThreadPoolExecutor(AT_ONCE, thread_name_prefix=name)) for name in dict(calls)
        }
        futures = [lanes[name].submit(call) for name, call in calls]
        try:
            return [future.result() for future in futures]
        except BaseException:
            if stop is not None:
                stop.set()
            for lane in lanes.values():
                lane.shutdown(wait=False, cancel_futures=True)
            raise
