# SPDX-License-Identifier: Apache-2.0
"""The analyst's handles: five verbs on one part (``PrivateQueryable``) or many (``Parts``).

Every call is one request, one pass and one charge, for any number of parts.

A method with ``reuse=True`` finds the last answer to the same query. A fit may send a query twice, and needs two
answers with separate noise; a repeated fit needs the same two answers. So each query gets an id from its content and
the number of its earlier occurrences. The ledger gives a charged id the same answer again.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, cast, get_args, overload

import numpy as np
from numpy.typing import ArrayLike

from pinq.analyst.answers import NoisyArray, NoisyFloat, NoisyInt, noisy
from pinq.analyst.lessons import (
    called_by_name,
    lesson_of_arrays,
    lesson_of_columns,
    lesson_of_length,
    lesson_of_name,
    lesson_of_setting,
)
from pinq.analyst.session import Named, Session, Through, Way
from pinq.errors import InternalError, PinqError, QueryError, unspent
from pinq.language.derivatives import RowFunction
from pinq.language.parts import Block, Part, PartSet, closed_parts, no_cohort
from pinq.language.queries import (
    Act,
    Answer,
    Asked,
    Budget,
    Certificate,
    ChoiceQuery,
    Preview,
    Request,
    Verb,
    WireParts,
    candidate,
    candidate_lists,
    new_id,
)
from pinq.language.scores import ClassCount, EnoughRows, Score, require_score
from pinq.language.specs import Cross, Shards, Spec, bind, two_ends
from pinq.public.checks import brief, is_whole, many, whole_number
from pinq.public.columns import CutPoint
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Numeric, Schema, Value

if TYPE_CHECKING:
    import pandas as pd


# The types of answers: for one part a number or a choice, for many an array or a list.
Count = TypeVar("Count", NoisyInt, NoisyArray)
Number = TypeVar("Number", NoisyFloat, NoisyArray)
Label = TypeVar("Label")
Splits = TypeVar("Splits")
Choice = TypeVar("Choice")
Choices = TypeVar("Choices")


class Verbs(Generic[Count, Number, Label, Splits, Choice, Choices]):
    """The five verbs; the parts' shape decides whether answers are arrays or single values."""

    def __init__(self, session: Session, parts: PartSet) -> None:
        self._session, self._parts = session, parts

    if not TYPE_CHECKING:  # hidden from type checkers, for which a missing attribute stays an error

        def __getattr__(self, name: str) -> Any:
            """Raises a lesson for the methods of data frames, and an ``AttributeError`` for other names."""
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            names = [public for public in dir(self) if not public.startswith("_")]
            if name in names:  # a property that failed inside: Python comes here for that too
                return object.__getattribute__(self, name)  # raises the true error
            lesson = lesson_of_name(self.schema, name, of_parts=self._parts.shape != (), names=names)
            raise lesson.within(self._session.budget)

        def __setattr__(self, name: str, value: object) -> None:
            """Sets a handle's own attributes, and refuses others, because a mistyped name would change nothing."""
            if not name.startswith("_"):
                raise lesson_of_setting(name)
            object.__setattr__(self, name, value)

    @property
    def schema(self) -> Schema:
        return self._session.schema

    @property
    def depth(self) -> int:
        """The number of splits above these parts; the smallest number if they differ."""
        return min((block.part.depth + (block.partition is not None) for block in self._parts.blocks), default=0)

    @called_by_name
    def noisy_count(self, *, epsilon: EpsilonLike, reuse: bool = False) -> Count:
        """Counts the rows of each part, plus discrete Laplace noise of scale 1/epsilon.

        The answer can be negative.

        Args:
            epsilon: The cost. Parts are disjoint, so all of them together cost it once.
            reuse: Whether the stored answer of an identical earlier query is returned, at no cost.

        Returns:
            An int, or an int64 array of the parts' shape; with ``epsilon``, ``scale`` and
            ``interval(0.95)``, whose ends are whole numbers too.

        Raises:
            QueryError: The request is malformed.
            BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.
            EngineError: The engine failed after the charge, which stands.
        """
        return self._numbers(self._request("noisy_count", epsilon, reuse=reuse), np.int64)

    @overload
    def noisy_sum(self, column: str, *, epsilon: EpsilonLike, reuse: bool = False) -> Number: ...

    @overload
    def noisy_sum(
        self, column: RowFunction[Any], *, by: Sequence[Spec] | None = None, epsilon: EpsilonLike, reuse: bool = False
    ) -> NoisyArray: ...

    @called_by_name
    def noisy_sum(
        self,
        column: str | RowFunction[Any],
        *,
        by: Sequence[Spec] | None = None,
        epsilon: EpsilonLike,
        reuse: bool = False,
    ) -> Number | NoisyArray:
        """Adds up a numeric column over each part.

        Values are clamped to the declared bounds, missing ones left out.

        Args:
            column: A numeric column. Or a public loss (``Logistic``, ``Softmax``, ``Residuals``),
                whose vectors of derivatives are added up. Or ``Products`` of columns.
            by: The specs, with a loss or products. Each cell of each spec gets a separate sum. The
                specs overlap, so they divide epsilon.
            epsilon: The cost. Parts are disjoint, so all of them together cost it once.
            reuse: As in ``noisy_count``.

        Returns:
            A float, or a float64 array of the parts' shape, in the column's units; with
            ``epsilon``, ``scale`` and ``interval(0.95)``. For a loss or products: an array whose
            last axis has the entries of the vectors, in rows (``Residuals``: in grid cells). With
            ``by`` the axis before it has the cells of all specs, one spec after the other. Errors
            are those of ``noisy_count``.
        """
        return self._numbers(self._request("noisy_sum", epsilon, column=column, by=by, reuse=reuse), np.float64)

    @called_by_name
    def noisy_avg(
        self, column: str, *, within: tuple[CutPoint, CutPoint] | None = None, epsilon: EpsilonLike, reuse: bool = False
    ) -> Number:
        """Averages a column of numbers or dates over each part, within its declared bounds.

        The average of an empty part is near the middle of the bounds.

        Args:
            column: A numeric column.
            within: A public range inside the bounds. Values outside count as its ends, and the
                noise is proportional to its width.
            epsilon: The cost. Parts are disjoint, so all of them together cost it once.
            reuse: As in ``noisy_count``.

        Returns:
            A float, or a float64 array of the parts' shape, in the column's units; with
            ``epsilon``, ``scale`` and ``interval(0.95)``. For a column of dates: a date, or an
            array of datetime64, with the same attributes. Errors are those of ``noisy_count``.
        """
        request = self._request("noisy_avg", epsilon, column=column, within=within, reuse=reuse)
        return self._numbers(request, np.float64, self.schema.numeric(column))

    @overload
    def exp_mech(
        self,
        candidates: tuple[()] = ...,
        *,
        score: ClassCount,
        epsilon: EpsilonLike,
        textbook: bool = ...,
        reuse: bool = ...,
    ) -> Label: ...

    @overload
    def exp_mech(
        self,
        candidates: tuple[()] = ...,
        *,
        score: EnoughRows,
        epsilon: EpsilonLike,
        textbook: bool = ...,
        reuse: bool = ...,
    ) -> Splits: ...

    @overload
    def exp_mech(
        self, candidates: object, *, score: Score, epsilon: EpsilonLike, textbook: bool = ..., reuse: bool = ...
    ) -> Choice: ...

    @overload
    def exp_mech(
        self,
        candidates: object,
        *,
        score: Score,
        epsilon: EpsilonLike,
        textbook: bool = ...,
        reuse: bool = ...,
        each: Literal[True],
    ) -> Choices: ...

    @called_by_name
    def exp_mech(
        self,
        candidates: object = (),
        *,
        score: object,
        epsilon: EpsilonLike,
        textbook: bool = False,
        each: bool = False,
        reuse: bool = False,
    ) -> object:
        """Chooses a candidate for each part at random; a better score makes it more likely.

        Args:
            candidates: Specs (``Values``, ``Cuts``, ``Groups``, a tuple for their joint parts) and
                families (``AnyCut``, ``AnyGrouping``, ``AnyCross``), in any mixture; or a list of
                such lists, one for each part. None with ``ClassCount`` and ``EnoughRows``.
            score: ``InfoGain``, ``Gini``, ``MaxClass``, ``Balance``, ``ClassCount``,
                ``SquaredError``, ``AbsoluteError``, ``MutualInformation``, ``Gradient`` or
                ``EnoughRows``.
            epsilon: The cost of all choices together.
            textbook: Whether it selects by the exponential mechanism with its general factor 2, to
                reproduce papers. It costs the same and is never more accurate.
            each: Whether a member of every candidate is chosen instead of one candidate, for
                example the median of each of several columns. The choices of a part divide epsilon
                evenly.
            reuse: As in ``noisy_count``.

        Returns:
            The chosen spec (with ``ClassCount`` the chosen value), or a list of them in the parts'
            flat order. None for a part whose splits leave no candidate. With ``each`` every choice
            is a list, in the order of the candidates and as long as the longest list of candidates.
            With ``EnoughRows`` the parts are the leaves of trees, and the answer is the number of
            splits that remain above each leaf. Errors are those of ``noisy_count``.
        """
        request = self._request(
            "exp_mech", epsilon, candidates=candidates, score=score, textbook=textbook, each=each, reuse=reuse
        )
        if not self._parts.size:
            return []
        query = cast(ChoiceQuery, request.query)
        answer = self._session.ask(request)
        with reading():
            chosen: list[object] = list(query.read(answer.values, answer.chosen, self.schema))
        if each:
            # Two parts, three candidates: the choices 0 to 2 are the first part's, 3 to 5 the
            # second's.
            choices = len(chosen) // self._parts.size
            chosen = [chosen[first : first + choices] for first in range(0, len(chosen), choices)]
        return chosen[0] if self._parts.shape == () else chosen

    @unspent()
    @called_by_name
    def preview(self, verb: str, *args: Any, **kwargs: Any) -> Preview:
        """The cost and the expected error of a call, for free.

        With ``reuse=True`` a paid query costs 0.

        Example: ``h.preview("noisy_sum", "age", epsilon=0.1)``.
        """
        verbs = get_args(Verb)
        if not isinstance(verb, str) or verb not in verbs:
            raise QueryError(f"there is no verb {brief(verb)}; the verbs are {', '.join(verbs)}.")
        try:
            named = inspect.signature(getattr(self, verb)).bind(*args, **kwargs).arguments
        except TypeError as error:
            raise QueryError(f"{verb}: {error}; write preview({verb!r}, ..., epsilon=0.1).") from None
        request = self._request(verb, named.pop("epsilon"), **named)
        return replace(self._session.preview(request), stored=request.stored(self.schema))

    @unspent()
    def _request(
        self,
        verb: str,
        epsilon: EpsilonLike,
        *,
        column: str | RowFunction[Any] | None = None,
        by: Sequence[Spec] | None = None,
        within: tuple[CutPoint, CutPoint] | None = None,
        candidates: object = (),
        score: object = None,
        textbook: bool = False,
        each: bool = False,
        reuse: bool = False,
    ) -> Request:
        loss, schema = Epsilon.of(epsilon), self.schema
        lists, which = candidate_lists(candidates, self._parts.size)
        if verb == "exp_mech":
            require_score(score, schema)
        request = Request.model_construct(
            id=new_id(),
            verb=verb,
            epsilon=str(loss),
            parts=WireParts.of(self._parts),
            column=column,
            by=None if by is None else tuple(joined((spec,)) for spec in by),
            within=two_ends(within),
            score=score,
            candidates=lists,
            which=which,
            textbook=bool(textbook),
            each=True if each else None,
            reuse=True if reuse else None,
        )
        # Refused here, rather than by the other side.
        request.query.check(schema)
        _ = request.query.shape(schema)
        return request

    def _numbers(self, request: Request, kind: type[np.int64 | np.float64], averaged: Numeric | None = None) -> Any:
        shape = self._parts.shape + request.query.shape(self.schema)
        if not self._parts.size:  # a query of no part costs nothing
            empty = np.zeros(shape, dtype=kind)
            return empty if averaged is None else averaged.shown(empty)
        answer = self._session.ask(request)
        with reading():
            return noisy(answer, shape, kind, averaged, self._parts, request.within)


@contextmanager
def reading() -> Iterator[None]:
    """Reads a charged answer: an error inside says that epsilon was spent."""
    try:
        yield
    except (QueryError, ValueError, LookupError, ArithmeticError) as error:
        raise InternalError(
            "The answer came, was charged, and cannot be read here: both sides understand the schema differently. "
            f"The ledger keeps it. Please report this: {error}"
        ) from error


def joined(specs: Sequence[object]) -> Spec:
    """One spec of several; a tuple counts as its members."""
    flat = [member for spec in specs for member in (spec if isinstance(spec, tuple) else (spec,))]
    if not flat:
        raise QueryError("partition needs at least one spec.")
    if len(flat) == 1:
        if isinstance(flat[0], str):
            name = brief(flat[0])
            raise QueryError(f"{name} is a name, not a spec; did you mean Values({name}) or Cuts({name}, [...])?")
        if isinstance(flat[0], list):
            raise QueryError(
                "specs are given one by one, partition(Values('a'), Values('b')); a list is for Parts, one "
                "spec for each part."
            )
        single = candidate(flat[0])
        if single.as_spec is None:
            raise QueryError(f"{brief(single)} is a family of candidates; let exp_mech choose a member first.")
        return cast(Spec, single)
    return Cross(tuple(factor for spec in flat for factor in getattr(spec, "factors", (spec,))))


def divided(parts: PartSet, specs: Sequence[object], schema: Schema) -> PartSet:
    """Splits parts as ``Parts.partition`` does."""
    if len(specs) != 1 or not isinstance(specs[0], (list, np.ndarray)):
        return parts.split(bind(joined(specs), schema))
    return parts.split_each([None if spec is None else bind(joined((spec,)), schema) for spec in specs[0]])


MOST_LINES = 10**12


class PrivateQueryable(Verbs[NoisyInt, NoisyFloat, Value | None, int, Spec | None, list[Spec | None]]):
    """A handle on one part of a sensitive table; ``pinq.open`` returns one on the whole table.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h
        PrivateQueryable(simulated; 13 columns, Budget(epsilon=10, spent=0, remaining=10))
        >>> h.noisy_count(epsilon=0.1).scale
        10.0
    """

    def __init__(self, session: Session, part: Part | None = None) -> None:
        super().__init__(session, PartSet([Block(part or Part())], shape=()))

    @property
    def dataset(self) -> str:
        """The provider's name of the table."""
        return self._session.name

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables under the same grant; empty for a dataset of one table."""
        return self._session.tables

    @property
    def cohorts(self) -> tuple[str, ...]:
        """The names of the closed cohorts, oldest first: queries below them cost the maximum over cohorts."""
        declared = self._session.cohorts
        return () if declared is None else tuple(closed_parts(declared, self.schema))

    def cohort(self, name: str) -> PrivateQueryable:
        """The part of the table that is one closed cohort."""
        if not isinstance(name, str) or name not in self.cohorts or self._session.cohorts is None:
            raise no_cohort(name, self.cohorts)
        return PrivateQueryable(self._session, closed_parts(self._session.cohorts, self.schema)[name])

    @property
    def account(self) -> str:
        """The grant that pays; equal for two handles of one analyst on one dataset."""
        return self._session.account

    @property
    def budget(self) -> Budget:
        """The granted, spent and remaining epsilon, as the ledger has them now; of a closed cohort, its own."""
        above = next(iter(self._parts.ancestors), b"").hex()
        return self._session.budget(above) if above and self._session.cohorts else self._session.budget()

    @property
    def terms(self) -> str:
        """The terms of the grant in addition to the budget, in words."""
        return self._session.terms()

    def parts(self) -> Parts:
        """This part as a collection of one part, from which a tree grows."""
        return Parts(self._session, PartSet(self._parts.blocks))

    @unspent()
    def partition(self, *specs: Spec | tuple[Spec, ...]) -> Parts:
        """Splits this part by one spec, or by every combination of several.

        Answers get one axis for each.
        """
        return Parts(self._session, self._parts.split(bind(joined(specs), self.schema)))

    def shards(self, count: int, key: int = 0) -> Parts:
        """``count`` random disjoint parts; short for ``partition(Shards(count, key))``."""
        return self.partition(Shards(count, key))

    def history(self, start: int = 0) -> pd.DataFrame:
        """Lists all queries with their costs and answers, oldest first.

        Args:
            start: The number of first rows to omit. A row never changes its number.

        Returns:
            Columns ``at`` (datetime64, UTC), ``asked``, ``epsilon`` (float64, missing for a
            refusal), ``spent`` (float64, the total after it), ``outcome``, ``answer``, ``act`` and
            ``run``. It prints a row for each act, as ``history().acts()`` has it. ``budget`` has
            the total as an exact fraction.
        """
        from pinq.analyst.frames import History

        start = whole_number("start", start, 0, MOST_LINES)
        return History.of((line, self._answered(line)) for line in self._session.history(start))

    def _answered(self, entry: Asked) -> object:
        """Reads a stored answer in the schema's values, by the log's facts of its query."""
        if entry.answer is None:
            return None
        # Answers are kept as numbers: 1 is the second class, or the second of the specs that could
        # be chosen, and -1 is None.
        classes = self.schema.categorical_columns.get(entry.classes or "")
        chosen = entry.answer.chosen if classes is None else classes.labels
        names: Mapping[float, object] = {-1: None} | dict(enumerate(chosen)) if entry.answer.verb == "exp_mech" else {}
        values = [names.get(number, number) for number in entry.answer.values]
        return values[0] if len(values) == 1 else values

    def __getitem__(self, item: object) -> NoReturn:
        """Raises a ``QueryError`` that shows what to write instead; so does ``for row in h``."""
        raise lesson_of_columns(self.schema, item).within(self._session.budget)

    def __len__(self) -> int:
        raise lesson_of_length().within(self._session.budget)

    def __iter__(self) -> NoReturn:
        raise lesson_of_columns(self.schema, None).within(self._session.budget)

    def __contains__(self, _: object) -> NoReturn:
        raise lesson_of_columns(self.schema, None).within(self._session.budget)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise lesson_of_arrays()

    def __bool__(self) -> bool:
        return True

    def through(self, way: Way) -> PrivateQueryable:
        """A handle on this part that sends its queries this way."""
        return PrivateQueryable(cast(Session, Through(self._session, way)), self._parts.at(0))

    @unspent()
    def named(self, act: str | Act) -> PrivateQueryable:
        """A handle on this part whose queries the log shows together, under a name.

        Tables, fits and SQL have names of their own, which this name precedes; it changes no answer, cost or refusal.

        Args:
            act: Any text, for people: ``"report of March"``. The log keeps its first 200 characters.
        """
        return PrivateQueryable(
            cast(Session, Named(self._session, act if isinstance(act, Act) else Act.begun(act))), self._parts.at(0)
        )

    @unspent()
    def attempt(self, *, epsilon: EpsilonLike, act: str = "") -> None:
        """Refuses an act of several queries that needs more than remains, before its first query.

        A count of the whole part stands for the queries of the act.

        Args:
            epsilon: The cost of all its queries together.
            act: The name of the act for the log, within that of a ``named`` handle.

        Raises:
            BudgetExceeded: More than the grant or the cap leaves. The refusal is in the log.
        """
        handle = self.named(act) if act else self
        handle._session.attempt(self._request("noisy_count", epsilon))

    def close(self) -> None:
        """Closes the dataset behind the handle; the end of a ``with`` block does so, too."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        part = self._parts.at(0)
        where = "" if part.depth == 0 else f", {part}"
        try:
            left = repr(self.budget)
        except PinqError as error:  # closed, or its server is gone
            left = str(error)
        return f"PrivateQueryable({self._session.name}{where}; {many(len(self.schema.columns), 'column')}, {left})"

    def _repr_html_(self) -> str:
        head = f"<p><b>{escape(self._session.name)}</b>, {escape(str(self._parts.at(0)))}</p>"
        return f"{head}{self.budget._repr_html_()}{self.schema._repr_html_()}"


class Parts(Verbs[NoisyArray, NoisyArray, list[Value | None], list[int], list[Spec | None], list[list[Spec | None]]]):
    """An ordered collection of disjoint parts of one table; answers are arrays of its shape.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> parts = h.partition(pinq.Values("sex"), pinq.Cuts("age", [30, 45]))
        >>> parts.shape, len(parts)
        ((2, 3), 6)
        >>> counts = parts.noisy_count(epsilon=1)
        >>> counts.shape, list(counts.to_frame())
        ((2, 3), ['sex', 'age', 'value', 'low', 'high', 'scale', 'epsilon'])
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of answers: an axis for each spec, or flat."""
        return self._parts.shape

    @property
    def part_set(self) -> PartSet:
        """The positions of the parts in the tree of partitions; public."""
        return self._parts

    @property
    def labels(self) -> list[str]:
        """The label of each part, in flat order."""
        return [str(part) for part in self._parts]

    def __len__(self) -> int:
        return self._parts.size

    def __iter__(self) -> Iterator[PrivateQueryable]:
        return (PrivateQueryable(self._session, part) for part in self._parts)

    @overload
    def __getitem__(self, item: Value | tuple[Value | None, ...] | None) -> PrivateQueryable: ...

    @overload
    def __getitem__(self, item: slice | list[int] | list[bool] | np.ndarray) -> Parts: ...

    @unspent()
    def __getitem__(self, item: object) -> PrivateQueryable | Parts:
        """Picks one part by its label, or a collection by a mask, list or slice.

        A label is a value, or a tuple for several specs. Where no label is a number, a position
        picks a part too.
        """
        single = self._parts.blocks[0] if len(self._parts.blocks) == 1 else None
        if isinstance(item, (list, slice)) or (hasattr(item, "__array__") and np.ndim(item)):
            return Parts(self._session, self._parts.take(self._positions(item)))
        if single is not None and single.partition is not None:
            return PrivateQueryable(self._session, single.at(single.partition.find(item)))
        if is_whole(item, -(2**63), 2**63):
            return PrivateQueryable(self._session, self._parts.at(int(self._positions(np.array([item]))[0])))
        raise QueryError(
            f"{item!r} is not a part; these parts do not come from one partition, so use positions 0 to "
            f"{len(self) - 1}."
        )

    @unspent()
    def partition(self, *specs: object) -> Parts:
        """Splits each part: all by the same specs, or each by its entry of a list, None for no split."""
        return Parts(self._session, divided(self._parts, specs, self.schema))

    @staticmethod
    @unspent()
    def union(*collections: Parts) -> Parts:
        """Joins several collections, in order, flat; raises ``QueryError`` if a row could be in two of them."""
        if not collections:
            raise QueryError("union needs at least one collection.")
        session = collections[0]._session
        if any(parts._session is not session for parts in collections):
            raise QueryError("parts of different handles cannot be joined.")
        return Parts(session, PartSet.union([parts._parts for parts in collections]))

    def frame(self, values: ArrayLike) -> pd.DataFrame:
        """An answer as a labelled table: a row for each part, a column for each spec and ``value``.

        None for missing values.
        """
        from pinq.analyst.frames import keys_of

        dtype = values.dtype if isinstance(values, np.ndarray) else object
        return keys_of(self._parts).assign(value=np.asarray(values, dtype=dtype).reshape(-1))

    def _positions(self, item: slice | ArrayLike) -> np.ndarray:
        if isinstance(item, slice):
            return np.arange(len(self))[item]
        # A mask of as many truths as parts, or positions, which may count from the end: of five
        # parts, -1 is part 4.
        positions = np.asarray(item)
        if positions.dtype == bool:
            if positions.size != len(self):
                raise QueryError(f"a mask of {positions.size} was given for {len(self)} parts.")
            return np.flatnonzero(positions.reshape(-1))
        positions = positions.reshape(-1)
        if positions.size == 0:
            return np.zeros(0, dtype=np.int64)
        if positions.dtype.kind not in "iu" or positions.min() < -len(self) or positions.max() >= len(self):
            raise QueryError(f"positions must be whole numbers from 0 to {len(self) - 1}.")
        return np.where(positions < 0, positions + len(self), positions)

    def __repr__(self) -> str:
        shown = [str(part) for part, _ in zip(self._parts, range(4), strict=False)]
        labels = "; ".join(shown) + ("; ..." if len(self) > 4 else "")
        return f"Parts({len(self)} of {self._session.name}, shape {self.shape}: {labels})"

    def _repr_html_(self) -> str:
        shown = [str(part) for part, _ in zip(self._parts, range(20), strict=False)]
        more = f"<li>... and {len(self) - 20} more</li>" if len(self) > 20 else ""
        items = "".join(f"<li>{escape(text)}</li>" for text in shown)
        return f"<p>{len(self)} disjoint parts, shape {self.shape}</p><ol start='0'>{items}{more}</ol>"


class Reusing:
    """Sends earlier queries to one session again under the same ids, counting each query.

    Args:
        before_first: A function that is called before the first query, unless that is paid.

    Privacy:
        Nothing changes at the curator: an id is charged once.
    """

    def __init__(self, before_first: Callable[[], None]) -> None:
        self._before_first, self._begun = before_first, False
        self._times: Counter[str] = Counter()
        self._answer_ids: defaultdict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def ask(self, session: Session, request: Request) -> Answer:
        """Returns the paid answer to this query, or a new one.

        The first occurrence of a query may be answered by its last answer of another session. A
        later occurrence is a new query. If that last answer belongs to a later occurrence in this
        session, the next number is taken.
        """
        identity = request.identity(session.schema.digest)
        with self._lock:  # queries asked side by side wait until the first may be asked at all
            number = self._times[identity]
            request = request.model_copy(update={"id": _key(identity, number), "reuse": True if number == 0 else None})
            if not self._begun and session.preview(request).cost > 0:
                self._before_first()
            self._begun = True
            self._times[identity] += 1
        answer = session.ask(request)
        while answer.id in self._answer_ids[identity]:
            number += 1
            answer = session.ask(request.model_copy(update={"id": _key(identity, number)}))
        self._answer_ids[identity].add(answer.id)
        return answer


def reusing(handle: PrivateQueryable, before_first: Callable[[], None]) -> PrivateQueryable:
    """Returns a handle on the same part, for one fit; see ``Reusing``."""
    return handle.through(Reusing(before_first).ask)


def _key(identity: str, number: int) -> str:
    return hashlib.sha256(f"reuse {identity} {number}".encode()).hexdigest()[:32]


def recording(handle: PrivateQueryable) -> tuple[PrivateQueryable, Callable[[], Certificate]]:
    """Returns a handle on the same part that notes the ids of answers, and a function that gives their certificate."""
    ids: list[str] = []
    part = WireParts.of(handle.parts().part_set)

    def noting(session: Session, request: Request) -> Answer:
        answer = session.ask(request)
        ids.append(answer.id)
        return answer

    return handle.through(noting), lambda: Certificate(part=part, requests=tuple(ids))
