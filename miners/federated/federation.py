# SPDX-License-Identifier: Apache-2.0
"""Several private handles as one: a query goes to all owners at once.

The owners' people are disjoint, and each owner has its own layer and ledger. The coordinator is an ordinary analyst of
each owner, so nobody has to trust this code.

Privacy:
    Claim: at each owner, the claim of its own policy, which its own ledger enforces. Why: a query to the federation is
    the same query to each handle, and everything here follows from the output of the handles: answers, errors, and
    their times (docs/known-limits.md). Held by: tests/unit/federated/test_federation.py.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import (
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    get_args,
    runtime_checkable,
)

import numpy as np

from miners.budget.plan import Pricing, count_scale, count_variance, loss_text, sum_variance, tell
from miners.estimator import schema_of
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import PinqError, QueryError, TooManyRequests, Unavailable
from pinq.language.derivatives import Derivatives
from pinq.language.queries import Act, Budget
from pinq.language.scores import Score
from pinq.language.specs import Cuts, Spec, Values
from pinq.public.checks import Shown, closest, first_of, is_listing, is_number, many
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Categorical, Numeric, Schema

Handles = Mapping[str, PrivateQueryable] | Iterable[PrivateQueryable]


MAX_ROWS = 2**33


def agreed_schema(schemas: Mapping[str, Schema]) -> Schema:
    """The columns that all owners declare equally, with the sum of their row caps.

    Raises:
        QueryError: Columns differ; names the first differences.
    """
    (first, schema), *others = schemas.items()
    differences = [text for name, other in others for text in _differences(first, schema, name, other)]
    if differences:
        raise QueryError(
            f"the owners' public schemas differ: {first_of(differences, 5, '; ')}. "
            "Their policies must declare the same columns alike."
        )
    rows = sum(declared.max_rows for declared in schemas.values())
    return schema.model_copy(update={"max_rows": min(MAX_ROWS, rows)})


def _differences(owner: str, ours: Schema, other: str, theirs: Schema) -> list[str]:
    texts = [f"{other!r} has no column `{name}`" for name in ours.columns if name not in theirs.columns]
    texts += [f"{owner!r} has no column `{name}`" for name in theirs.columns if name not in ours.columns]
    for name, column in ours.columns.items():
        if name in theirs.columns and theirs.columns[name].digest != column.digest:
            details = _column_differences(owner, column, other, theirs.columns[name])
            texts += [f"`{name}`: {detail}" for detail in details]
    return texts


def _column_differences(
    owner: str, ours: Categorical | Numeric, other: str, theirs: Categorical | Numeric
) -> list[str]:
    if ours.type != theirs.type:
        return [f"{ours.type} at {owner!r}, {theirs.type} at {other!r}"]
    left, right = (column.model_dump(exclude={"unreviewed", "cuts"}) for column in (ours, theirs))
    here, there = left.pop("values", ()), right.pop("values", ())  # none of a numeric column
    texts = [
        f"{field} is {left[field]} at {owner!r}, {right[field]} at {other!r}"
        for field in left
        if left[field] != right[field]
    ]
    if here != there:
        only_here = [value for value in here if value not in there]
        only_there = [value for value in there if value not in here]
        texts += [
            f"only {name!r} declares {', '.join(map(repr, values))}"
            for name, values in ((owner, only_here), (other, only_there))
            if values
        ] or [f"{owner!r} and {other!r} declare the same values in another order"]
    return texts


Ability = Literal["choices", "sums"]
"""An ability beside counts: owners choose by their own rows, or counts come as sums with one noise."""

Selection = slice | list[int] | np.ndarray
T = TypeVar("T")


@dataclass(frozen=True)
class Dropped:
    """An owner that was dropped.

    Attributes:
        after: The number of answered rounds until then.
        reason: Its error.
    """

    owner: str
    after: int
    reason: str

    def __str__(self) -> str:
        return f"{self.owner} was dropped after {self.after} rounds: {self.reason}"


class OwnerTally(NamedTuple):
    """Noisy numbers of one owner, or of several as one, and the variance of their noise."""

    counts: np.ndarray
    variance: float


def pooled(tallies: Sequence[OwnerTally]) -> OwnerTally:
    """Adds up counts of disjoint rows, and the variances of independent noises."""
    return OwnerTally(
        np.sum([tally.counts for tally in tallies], axis=0), math.fsum(tally.variance for tally in tallies)
    )


@runtime_checkable
class CountSource(Protocol):
    """One or several data owners of disjoint people, which answer queries for noisy counts.

    Attributes:
        abilities: The verbs of the source besides counts.
        schema: The public columns of all owners; ``max_rows`` is their sum over owners.
        rounds: The number of times that the coordinator waited for answers.
        requests: The number of requests to each owner.
        act: The act of the queries in owners' logs; None for none.
    """

    abilities: frozenset[Ability]
    schema: Schema
    dropped: list[Dropped]
    rounds: int
    requests: dict[str, int]
    act: Act | None = None

    @property
    def owners(self) -> list[str]:
        gone = {dropped.owner for dropped in self.dropped}
        return [name for name in self.requests if name not in gone]

    def require_owner(self, owner: str) -> None:
        """Raises ``QueryError`` if there is no owner of this name; dropped ones count."""
        if owner not in self.requests:
            raise QueryError(
                f"there is no owner {owner!r}{closest(str(owner), self.requests)}; the owners are "
                f"{', '.join(self.requests)}."
            )

    def distance(self, owner: str) -> int:
        """The number of rows by which two neighbouring tables of an owner may differ."""

    def parts(self) -> FederatedParts:
        """Returns the whole of each table as one part."""

    def ask(self, questions: Sequence[OwnerQuery]) -> list[dict[str, Any]]:
        """Sends several queries in one round; returns for each the answers by owner.

        Raises:
            QueryError: The source cannot answer one of them; nothing was spent.
        """

    def tally(self, questions: Sequence[OwnerQuery]) -> list[dict[str, OwnerTally]]:
        """Sends queries for numbers; returns the answers with the variance of their noise."""
        return [
            {
                name: OwnerTally(np.asarray(counts, dtype=np.float64), question.variance(self, name))
                for name, counts in answer.items()
            }
            for question, answer in zip(questions, self.ask(questions), strict=True)
        ]

    def living(self, tallies: Mapping[str, OwnerTally]) -> list[OwnerTally]:
        """Selects the tallies of owners that were not dropped."""
        gone = {dropped.owner for dropped in self.dropped}
        return [tally for name, tally in tallies.items() if name not in gone]

    def variance(self, owner: str, epsilon: EpsilonLike) -> float:
        """Returns the variance of the noise in one count of an owner."""

    def sum_variance(self, owner: str, loss: Derivatives, epsilon: EpsilonLike) -> float:
        """The variance of the noise in one sum of derivatives, in natural units."""

    def spent(self) -> dict[str, Fraction | None]:
        """Returns the charges of each owner so far; None if it does not report them."""

    def each(self, act: Callable[[Pricing], T]) -> dict[str, T]:
        """Applies a function to each owner's budget, all at once."""

    def each_handle(self, act: Callable[[PrivateQueryable], object]) -> object:
        """Applies a function to each owner's handle, all at once; here there are none."""
        return None

    def close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Sums:
    """The numbers that a query for sums adds up.

    Attributes:
        by: The spec of the cells; each cell gets a sum.
    """

    loss: Derivatives
    by: Spec


@dataclass(frozen=True)
class SumsNeeded:
    """The sums that a fit needs from parties that add up, by public facts.

    Attributes:
        cells: For each attribute, cells from which all its counts and sums can be added up.
        count: The smallest loss of a count.
        sums: The smallest loss of sums of derivatives; None without sums.
        width: The number of entries of a row's vector in these sums.
    """

    cells: tuple[Values | Cuts, ...]
    count: Epsilon
    sums: Epsilon | None = None
    width: int = 0


@dataclass(frozen=True)
class OwnerQuery:
    """One query before it is sent: a query method of the handles, and its receivers.

    Attributes:
        verb: ``noisy_count``, ``noisy_sum`` or ``exp_mech``.
        epsilon: The loss of each owner with this query.
        named: Further arguments of the verb.
        sums: The numbers that ``noisy_sum`` adds up.
    """

    parts: FederatedParts
    verb: str
    epsilon: Mapping[str, Epsilon]
    named: Mapping[str, object]
    sums: Sums | None = None

    def ask(self, owner: str, again: bool) -> Any:
        """Queries one owner's handle; ``again`` takes a paid answer."""
        named = {**self.named, "reuse": again or self.named.get("reuse", False)}
        if self.sums is not None:
            named |= {"column": self.sums.loss, "by": [self.sums.by]}
        return getattr(self.parts.of(owner), self.verb)(epsilon=self.epsilon[owner], **named)

    def variance(self, source: CountSource, owner: str) -> float:
        """The variance of the noise in each number of an owner's answer."""
        epsilon = self.epsilon[owner]
        if self.sums is None:
            return source.variance(owner, epsilon)
        return source.sum_variance(owner, self.sums.loss, epsilon)


class FederatedParts(Shown):
    """The same ordered collection of disjoint parts at every owner of a source."""

    def __init__(self, source: CountSource, parts: Mapping[str, Parts]) -> None:
        self._source, self._parts = source, dict(parts)

    def of(self, owner: str) -> Parts:
        return self._parts[owner]

    def partition(self, *specs: object) -> FederatedParts:
        return self._each(lambda parts: parts.partition(*specs))

    def noisy_count(
        self, *, epsilon: EpsilonLike | Mapping[str, EpsilonLike], reuse: bool = False
    ) -> dict[str, np.ndarray]:
        """Queries noisy numbers of rows, by owner.

        Args:
            epsilon: The cost at each owner; or a mapping from the queried owners to their losses.
            reuse: As in ``PrivateQueryable.noisy_count``.
        """
        return self._source.ask([self.question("noisy_count", epsilon=epsilon, reuse=reuse)])[0]

    def exp_mech(
        self, candidates: object, *, score: Score, epsilon: EpsilonLike | Mapping[str, EpsilonLike], reuse: bool = False
    ) -> dict[str, list[Any]]:
        """Lets each owner choose for each part, by its own rows.

        Arguments as of ``noisy_count`` and ``PrivateQueryable.exp_mech``.
        """
        question = self.question("exp_mech", epsilon=epsilon, candidates=candidates, score=score, reuse=reuse)
        return self._source.ask([question])[0]

    def question(self, verb: str, *, epsilon: EpsilonLike | Mapping[str, EpsilonLike], **named: object) -> OwnerQuery:
        """Makes a query for ``ask``."""
        losses = epsilon if isinstance(epsilon, Mapping) else dict.fromkeys(self._source.owners, epsilon)
        for name in losses:
            self._source.require_owner(name)
        return OwnerQuery(self, verb, {name: Epsilon.of(loss) for name, loss in losses.items()}, named)

    def sum_question(
        self, loss: Derivatives, by: Spec, *, epsilon: Mapping[str, Epsilon], reuse: bool = False
    ) -> OwnerQuery:
        """Makes a query for the sums of a loss's derivatives in each cell of a spec."""
        return OwnerQuery(self, "noisy_sum", epsilon, {"reuse": reuse}, Sums(loss, by))

    @staticmethod
    def union(collections: Sequence[FederatedParts]) -> FederatedParts:
        """Joins all parts of several collections, in order."""
        if len(collections) == 1:
            return collections[0]
        first = collections[0]
        joined = {
            name: parts.union(*(collection._parts[name] for collection in collections))
            for name, parts in first._living().items()
        }
        return FederatedParts(first._source, joined)

    def __getitem__(self, chosen: Selection) -> FederatedParts:
        return self._each(lambda parts: parts[chosen])

    def __len__(self) -> int:
        return len(next(iter(self._parts.values())))

    def __repr__(self) -> str:
        return f"FederatedParts({', '.join(self._parts)}: {next(iter(self._parts.values()))!r})"

    def _living(self) -> dict[str, Parts]:
        return {name: parts for name, parts in self._parts.items() if name in self._source.owners}

    def _each(self, act: Callable[[Parts], Parts]) -> FederatedParts:
        return FederatedParts(self._source, {name: act(parts) for name, parts in self._living().items()})


def progress_of(say: Callable[[str], object] | None) -> Callable[[str], object]:
    """The function that is called with a line of text after each round; raises ``QueryError`` for another object."""
    if say is None:
        return lambda text: None
    if not callable(say):
        raise QueryError(
            f"is {say!r}", parameter="say", allowed="a function of one line of text, print for example, or None"
        )
    return say


def spent_text(spent: Mapping[str, Fraction | None]) -> str:
    """Costs by owner as text: ``north: 0.25; south: 0``."""
    return "; ".join(
        f"{name}: {'unknown, it does not answer' if amount is None else loss_text(amount)}"
        for name, amount in spent.items()
    )


Rule = Literal["fail", "wait", "drop"]
AT_ONCE = 4  # requests in flight at one owner: a server's limit for one token
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class OwnerFailed(PinqError):
    """A data owner did not answer, and the rule forbids a fit without it.

    Attributes:
        causes: The error of each owner that failed.
        spent: The charges of each owner's ledger since the federation was made; None if the owner
            does not report them.
    """

    code = "owner-failed"

    def __init__(self, message: str, causes: Mapping[str, PinqError], spent: Mapping[str, Fraction | None]) -> None:
        super().__init__(message)
        self.causes, self.spent = dict(causes), dict(spent)


class Federation(Shown, CountSource):
    """The private handles of several data owners, queried together.

    Args:
        handles: The handles by the names of their owners; or a list, whose owners are called
            ``"owner 1"`` and so on.
        on_failure: The reaction if an owner does not answer. ``"fail"`` gives up and reports the
            costs at each owner. ``"wait"`` repeats the request for ``patience`` seconds, then gives
            up. ``"drop"`` continues without the owner. A malformed request is always an error.
            ``timeout`` of ``pinq.connect`` limits the time of an answer.
        patience: Seconds to wait for an owner without connection.
        say: A function of a line of text, such as ``print``. It is called after each round, and if
            an owner is late or dropped.

    Attributes:
        schema: The public columns that all owners declare; ``max_rows`` is the sum, adjacency and
            privacy unit are the first owner's.
        dropped: The dropped owners, with time and reason; they stay dropped in this federation.
        rounds: The number of times that the coordinator has waited for answers.
        requests: The number of requests to each owner.

    Raises:
        QueryError: There is no handle, a handle is there twice, or schemas differ; names the
            differences.

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

    def handle(self, owner: str) -> PrivateQueryable:
        """An owner's handle, also a dropped one's; raises ``QueryError`` if there is none."""
        self.require_owner(owner)
        return self._handles[owner]

    def distance(self, owner: str) -> int:
        return self._handles[owner].schema.distance

    def parts(self) -> FederatedParts:
        """The whole of each table, as a collection of one part; raises ``QueryError`` if all owners were dropped."""
        if not self.owners:
            raise QueryError("all owners of this federation were dropped; make a new one with handles that answer.")
        handles = {name: self._handles[name] for name in self.owners}
        if self.act is not None:
            handles = {name: handle.named(self.act) for name, handle in handles.items()}
        return FederatedParts(self, {name: handle.parts() for name, handle in handles.items()})

    def budgets(self) -> dict[str, Budget | None]:
        """The budget of each owner, also of dropped ones; None if an owner does not report it."""

        def look(handle: PrivateQueryable) -> Budget | None:
            try:
                return handle.budget
            except PinqError:
                return None

        budgets = _at_once([(name, partial(look, handle)) for name, handle in self._handles.items()])
        return dict(zip(self._handles, budgets, strict=True))

    def spent(self) -> dict[str, Fraction | None]:
        pairs = ((name, budget, self._before[name]) for name, budget in self.budgets().items())
        return {
            name: None if budget is None or before is None else budget.spent - before for name, budget, before in pairs
        }

    def each(self, act: Callable[[PrivateQueryable], T]) -> dict[str, T]:
        owners = self.owners
        calls = [(name, partial(lambda handle, _: act(handle), self._handles[name])) for name in owners]
        outcomes = self._together(calls)
        return {name: outcome for name, outcome in zip(owners, outcomes, strict=True) if name in self.owners}

    each_handle = each

    def ask(self, questions: Sequence[OwnerQuery]) -> list[dict[str, Any]]:
        """Sends several queries to several owners, all at once: one round.

        Returns:
            For each query the answers by owner, without owners that were dropped in the meantime.
        """
        began = time.monotonic()
        jobs = [
            (number, name)
            for number, question in enumerate(questions)
            for name in self.owners
            if name in question.epsilon
        ]
        for _, name in jobs:
            self.requests[name] += 1
        outcomes = self._together([(name, partial(questions[number].ask, name)) for number, name in jobs])
        self.rounds += 1
        self._say(f"round {self.rounds}: {many(len(jobs), 'request')} answered in {time.monotonic() - began:.1f} s")
        by_query: list[dict[str, Any]] = [{} for _ in questions]
        for (number, name), outcome in zip(jobs, outcomes, strict=True):
            if name in self.owners:
                by_query[number][name] = outcome
        return by_query

    def variance(self, owner: str, epsilon: EpsilonLike) -> float:
        return count_variance(count_scale(self._handles[owner].schema, Epsilon.of(epsilon)))

    def sum_variance(self, owner: str, loss: Derivatives, epsilon: EpsilonLike) -> float:
        return sum_variance(self._handles[owner].schema, loss, Epsilon.of(epsilon))

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()

    def __repr__(self) -> str:
        lines = [
            f"Federation of {many(len(self._handles), 'owner')}, on_failure={self.on_failure!r}, "
            f"{many(self.rounds, 'round')} so far"
        ]
        for name, budget in self.budgets().items():
            left = "does not answer" if budget is None else repr(budget)
            lines.append(f"  {name}: {left}, {many(self.requests[name], 'request')}")
        return "\n".join([*lines, *(f"  {dropped}" for dropped in self.dropped)])

    # Failure

    def _together(self, calls: Sequence[tuple[str, Callable[[bool], T]]]) -> list[Any]:
        """Makes all calls at once; returns the answers, or for a failed call its error, whose owner is dropped."""
        stop = threading.Event()
        outcomes = _at_once([(name, partial(self._persist, name, call, stop)) for name, call in calls], stop)
        causes = {
            name: outcome for (name, _), outcome in zip(calls, outcomes, strict=True) if isinstance(outcome, PinqError)
        }
        if causes:
            if all(isinstance(outcome, QueryError) for outcome in outcomes):
                raise next(iter(causes.values()))  # no owner could answer, so none charged
            self._give_up(causes)
        return outcomes

    def _persist(self, name: str, call: Callable[[bool], T], stop: threading.Event) -> T | PinqError:
        """One owner's answer, or its error, after waits if the rule is "wait"."""
        end, pause, again = time.monotonic() + self.patience, FIRST_PAUSE, False
        while True:
            try:
                return call(again)
            except PinqError as error:
                may_pass = self.on_failure == "wait" and isinstance(error, (Unavailable, TooManyRequests))
                if not may_pass or time.monotonic() + pause > end or stop.is_set():
                    return error
                # The lost answer may have been charged: the same query is not paid for twice.
                again = True
                self._say(f"waiting for {name}, {end - time.monotonic():.0f} s more at most: {error}")
                stop.wait(pause)
                # After .1 s, .2 s, .4 s, ... and at last every 5 s.
                pause = min(2 * pause, LONGEST_PAUSE)

    def _give_up(self, causes: Mapping[str, PinqError]) -> None:
        """Drops the owners that failed, or raises."""
        for cause in causes.values():
            cause.charged = None  # other questions of the same round may have been charged
        if len(self._handles) == 1:
            raise next(iter(causes.values()))
        if self.on_failure == "drop":
            gone = [Dropped(name, self.rounds, str(cause)) for name, cause in causes.items()]
            self.dropped += gone
            for dropped in gone:
                self._say(str(dropped))
            if self.owners:
                return
        spent = self.spent()
        why = " ".join(f"{name!r} failed: {cause}" for name, cause in causes.items())
        raise OwnerFailed(f"{why} Spent since the federation was made: {spent_text(spent)}.", causes, spent)


def _named(handles: Handles) -> dict[str, PrivateQueryable]:
    if isinstance(handles, Mapping):
        by_name = dict(handles)
    elif is_listing(handles):
        by_name = {f"owner {number}": handle for number, handle in enumerate(handles, start=1)}
    else:
        raise QueryError(
            f"a federation is made of handles, in a list or by the names of their owners, not of "
            f"{type(handles).__name__}."
        )
    if not by_name:
        raise QueryError("a federation needs at least one handle.")
    for name, handle in by_name.items():
        if not isinstance(name, str) or not name:
            raise QueryError(f"the owner {name!r} must have a text for a name.")
        if schema_of(handle) is None:
            raise QueryError(
                f"what stands for {name!r} is no handle but {type(handle).__name__}; open one with pinq.open "
                f"or pinq.connect."
            )
    if len({id(handle) for handle in by_name.values()}) < len(by_name):
        raise QueryError("the same handle stands for two owners; their people must be disjoint.")
    accounts: dict[str, str] = {}
    for name, handle in by_name.items():
        other = accounts.setdefault(handle.account, name)
        if other != name:
            tell(
                [
                    f"{other!r} and {name!r} are one analyst's handles of the same dataset, {handle.dataset!r}: its "
                    "people would count twice, and pay twice. Name each owner once."
                ]
            )
    return by_name


def _at_once(calls: Sequence[tuple[str, Callable[[], T]]], stop: threading.Event | None = None) -> list[T]:
    """Makes all calls at the same time, until the event ``stop``, so that no owner waits for a slow one."""
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
