# SPDX-License-Identifier: Apache-2.0
"""The analyst's face: five verbs on one part (``PrivateQueryable``) or many (``Parts``).

It holds no data and no secrets.

Every call of a verb is one request, one pass and one charge, over however many parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from pinq.analyst.answers import NoisyArray, NoisyFloat, NoisyInt, noisy
from pinq.analyst.session import Session
from pinq.errors import InternalError, QueryError, unspent
from pinq.public.derivatives import Derivatives
from pinq.public.epsilon import Epsilon, Loss
from pinq.public.parts import Block, Part, PartSet
from pinq.public.queries import Asked, Budget, Preview, Request, WireParts, candidate, candidate_lists, new_id
from pinq.public.questions import ChoiceQuestion
from pinq.public.schema import Categorical, Schema
from pinq.public.scores import require_score
from pinq.public.specs import Cross, Shards, Spec, Splitting, bind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Parts", "PrivateQueryable"]

# What the verbs answer: of one part a number, of many an array.
Count = TypeVar("Count", NoisyInt, NoisyArray)
Number = TypeVar("Number", NoisyFloat, NoisyArray)


class _Verbs(Generic[Count, Number]):
    """The five verbs; the parts' shape says whether answers are arrays or single values."""

    def __init__(self, session: Session, parts: PartSet) -> None:
        self._session, self._parts = session, parts

    @property
    def schema(self) -> Schema:
        """The public columns."""
        return self._session.schema

    @property
    def depth(self) -> int:
        """Splits above these parts; of parts at different depths the least."""
        return min((block.part.depth + (block.partition is not None) for block in self._parts.blocks), default=0)

    def noisy_count(self, *, epsilon: Loss, reuse: bool = False) -> Count:
        """Counts the rows of each part, plus discrete Laplace noise of scale 1/epsilon.

        The answer can be negative.

        Args:
            epsilon: Loss; parts are disjoint, so all of them together cost this once.
            reuse: Return the stored answer where you asked this very question before, at no cost.

        Returns:
            An int, or an int64 array of the parts' shape; with ``epsilon``, ``scale`` and
            ``interval(0.95)``, whose ends are whole numbers too.

        Raises:
            QueryError: Malformed.
            BudgetExceeded: More than what remains.
            EngineError: The charge stands.
        """
        return self._numbers(self._request("noisy_count", epsilon, reuse=reuse), np.int64)

    @overload
    def noisy_sum(self, column: str, *, epsilon: Loss, reuse: bool = False) -> Number: ...

    @overload
    def noisy_sum(
        self, column: Derivatives, *, by: Sequence[Spec] | None = None, epsilon: Loss, reuse: bool = False
    ) -> NoisyArray: ...

    def noisy_sum(
        self, column: str | Derivatives, *, by: Sequence[Spec] | None = None, epsilon: Loss, reuse: bool = False
    ) -> Number | NoisyArray:
        """Adds up a numeric column over each part.

        Values are clamped to the declared bounds, missing ones left out.

        Args:
            column: A numeric column. Or a public loss (``Logistic``, ``Softmax``, ``Residuals``):
                then the vectors of its derivatives are added up.
            by: With a loss: specs, each of whose cells gets a sum of its own. They overlap, so
                epsilon is shared among the specs.
            epsilon: Loss; parts are disjoint, so all of them together cost this once.
            reuse: Return the stored answer where you asked this very question before, at no cost.

        Returns:
            A float, or a float64 array of the parts' shape, in the column's units; with
            ``epsilon``, ``scale`` and ``interval(0.95)``. Of a loss an array whose last axis are
            the vectors' entries, in rows (``Residuals``: in grid cells), and with ``by`` the axis
            before it the cells of the first spec, of the second, ... Errors as in ``noisy_count``.
        """
        return self._numbers(self._request("noisy_sum", epsilon, column=column, by=by, reuse=reuse), np.float64)

    def noisy_avg(self, column: str, *, epsilon: Loss, reuse: bool = False) -> Number:
        """Averages a numeric column over each part, within its declared bounds.

        Of an empty part it is about their middle.

        Args:
            column: A numeric column.
            epsilon: Loss; parts are disjoint, so all of them together cost this once.
            reuse: Return the stored answer where you asked this very question before, at no cost.

        Returns:
            A float, or a float64 array of the parts' shape, in the column's units; with
            ``epsilon``, ``scale`` and ``interval(0.95)``. Errors as in ``noisy_count``.
        """
        request = self._request("noisy_avg", epsilon, column=column, reuse=reuse)
        numeric = self.schema.numeric(column)
        return self._numbers(request, np.float64, (numeric.number(0), numeric.number(numeric.cells - 1)))

    def exp_mech(
        self,
        candidates: Any = (),
        *,
        score: Any,
        epsilon: Loss,
        textbook: bool = False,
        each: bool = False,
        reuse: bool = False,
    ) -> Any:
        """Chooses a candidate for each part, better ones more likely.

        Args:
            candidates: Specs (``Values``, ``Cuts``, ``Groups``, a tuple for their joint parts) and
                families (``AnyCut``, ``AnyGrouping``, ``AnyCross``), in any mixture; or a list of
                such lists, one for each part. None with ``ClassCount`` and ``EnoughRows``.
            score: ``InfoGain``, ``Gini``, ``MaxClass``, ``Balance``, ``ClassCount``,
                ``SquaredError``, ``AbsoluteError``, ``MutualInformation``, ``Gradient`` or
                ``EnoughRows``.
            epsilon: Loss of all choices together.
            textbook: Select by the exponential mechanism with its general factor 2, as papers do;
                for reproducing them. Costs the same and is never better.
            each: Choose a member of every candidate (the median of each of several columns, say)
                instead of one candidate. All these choices of a part share epsilon evenly.
            reuse: As in ``noisy_count``.

        Returns:
            The chosen spec (the chosen value, with ``ClassCount``), or a list of them in the parts'
            flat order; None for a part that its own splits leave nothing to choose from. With
            ``each`` a list of choices where there would be one: in the order of the candidates, and
            as long as the longest list of candidates. With ``EnoughRows`` the parts are leaves of
            trees, and the answer is how many splits of its way are left above each. Errors as in
            ``noisy_count``.
        """
        request = self._request(
            "exp_mech", epsilon, candidates=candidates, score=score, textbook=textbook, each=each, reuse=reuse
        )
        if not len(self._parts):
            return []
        question = cast(ChoiceQuestion, request.question)
        answer = self._session.ask(request)
        with _reading():
            chosen = question.read(answer.values, answer.chosen, self.schema)
        if each:
            choices = len(chosen) // len(self._parts)
            chosen = [chosen[first : first + choices] for first in range(0, len(chosen), choices)]
        return chosen[0] if self._parts.shape == () else chosen

    @unspent()
    def preview(self, verb: str, *args: Any, **kwargs: Any) -> Preview:
        """Says what a call would cost and how exact it would be. Costs nothing.

        Example: ``h.preview("noisy_sum", "age", epsilon=0.1)``.
        """
        build = {
            "noisy_count": ("epsilon",),
            "noisy_sum": ("column", "epsilon", "by"),
            "noisy_avg": ("column", "epsilon"),
            "exp_mech": ("candidates", "epsilon", "score", "textbook", "each"),
        }
        if verb not in build:
            raise QueryError(f"there is no verb {verb!r}; the verbs are {', '.join(build)}.")
        if len(args) > 1 or (len(args) == 1 and verb == "noisy_count"):
            raise TypeError(f"preview({verb!r}) takes {build[verb][0]} and keywords")
        named = dict(zip(build[verb][:1], args, strict=False)) | kwargs
        wrong = set(named) - set(build[verb])
        if wrong or "epsilon" not in named:
            raise TypeError(f"preview({verb!r}) takes {', '.join(build[verb])}")
        return self._session.preview(self._request(verb, named.pop("epsilon"), **named))

    @unspent()
    def _request(
        self,
        verb: str,
        epsilon: Loss,
        *,
        column: Any = None,
        by: Sequence[Spec] | None = None,
        candidates: Any = (),
        score: Any = None,
        textbook: bool = False,
        each: bool = False,
        reuse: bool = False,
    ) -> Request:
        loss = Epsilon.of(epsilon)
        if verb == "noisy_sum" and isinstance(column, Derivatives):
            column.check(self.schema)
        elif column is not None or verb in ("noisy_sum", "noisy_avg"):
            self.schema.numeric(column)
        lists, which = candidate_lists(candidates, len(self._parts))
        if verb == "exp_mech":
            require_score(score, self.schema)
        request = Request.model_construct(
            id=new_id(),
            verb=verb,
            epsilon=str(loss),
            parts=WireParts.of(self._parts),
            column=column,
            by=None if by is None else tuple(_joined((spec,)) for spec in by),
            score=score,
            candidates=lists,
            which=which,
            textbook=bool(textbook),
            each=True if each else None,
            reuse=True if reuse else None,
        )
        # Refused here, where it is written, rather than after a way over the wire.
        _ = request.question.shape(self.schema)
        return request

    def _numbers(self, request: Request, kind: Any, bounds: tuple[float, float] | None = None) -> Any:
        shape = self._parts.shape + request.question.shape(self.schema)
        if not len(self._parts):  # nobody is asked: a frontier that has become empty costs nothing
            return np.zeros(shape, dtype=kind)
        answer = self._session.ask(request)
        with _reading():
            return noisy(answer, shape, kind, bounds)


class PrivateQueryable(_Verbs[NoisyInt, NoisyFloat]):
    """One part of a sensitive table: all of it, as ``pinq.open`` returns it, or less."""

    def __init__(self, session: Session, part: Part | None = None) -> None:
        super().__init__(session, PartSet([Block(part or Part())], shape=()))

    @property
    def budget(self) -> Budget:
        """What was granted, spent, and remains. Follows the ledger."""
        return self._session.budget()

    @property
    def terms(self) -> str:
        """What the grant allows beside the budget, in words."""
        return self._session.terms()

    def parts(self) -> Parts:
        """This part as a collection of one: where a frontier starts."""
        return Parts(self._session, PartSet(self._parts.blocks))

    @unspent()
    def partition(self, *specs: Spec | tuple[Spec, ...]) -> Parts:
        """Cuts this part by one spec, or by every combination of several.

        Answers get one axis for each.
        """
        return Parts(self._session, self._parts.split(bind(_joined(specs), self.schema)))

    def shards(self, count: int, key: int = 0) -> Parts:
        """``count`` random disjoint parts; short for ``partition(Shards(count, key))``."""
        return self.partition(Shards(count, key))

    def history(self) -> pd.DataFrame:
        """Lists what was asked, what it cost and what came back, oldest first.

        There is one row for each charge and refusal.

        Returns:
            Columns ``at`` (datetime64, UTC), ``asked``, ``epsilon`` (float64, missing for a
            refusal), ``spent`` (float64, the total after it), ``outcome`` and ``answer``.
            ``budget`` has the total as an exact fraction.
        """
        from pinq.analyst.history import History

        return History.of((line, self._answered(line)) for line in self._session.history())

    def _answered(self, asked: Asked) -> object:
        """Reads a stored answer in the schema's values, by what the log keeps of its question."""
        if asked.answer is None:
            return None
        values: list[object] = list(asked.answer.values)
        if isinstance(self.schema.columns.get(asked.classes or ""), Categorical):
            labels = self.schema.categorical(asked.classes).labels
            values = [labels[int(code)] if code < len(labels) else code for code in asked.answer.values]
        elif asked.answer.chosen or (-1 in asked.answer.values and asked.answer.verb == "exp_mech"):
            chosen = asked.answer.chosen
            values = [None if number < 0 else chosen[int(number)] for number in asked.answer.values]
        return values[0] if len(values) == 1 else values

    def close(self) -> None:
        """Lets go of what stands behind the handle; also at the end of a ``with`` block."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        part = self._parts.at(0)
        where = "" if part.depth == 0 else f", {part}"
        return f"PrivateQueryable({self._session.name}{where}; {len(self.schema.columns)} columns, {self.budget!r})"

    def _repr_html_(self) -> str:
        head = f"<p><b>{escape(self._session.name)}</b>, {escape(str(self._parts.at(0)))}</p>"
        return f"{head}{self.budget._repr_html_()}{self.schema._repr_html_()}"


class Parts(_Verbs[NoisyArray, NoisyArray]):
    """An ordered collection of disjoint parts of one table; answers are arrays of its shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How answers are arranged: an axis for each spec, or flat."""
        return self._parts.shape

    @property
    def part_set(self) -> PartSet:
        """The parts themselves: where they are in the tree of partitions, public."""
        return self._parts

    @property
    def labels(self) -> list[str]:
        """What each part is, in flat order."""
        return [str(part) for part in self._parts]

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[PrivateQueryable]:
        return (PrivateQueryable(self._session, part) for part in self._parts)

    @unspent()
    def __getitem__(self, item: Any) -> Any:
        """Picks one part by its label, or a collection by a mask, list or slice.

        A label is a value, or a tuple for several specs. Where no label is a number, a position
        picks a part too.
        """
        single = self._parts.blocks[0] if len(self._parts.blocks) == 1 else None
        if isinstance(item, (list, slice)) or (hasattr(item, "__array__") and np.ndim(item)):
            return Parts(self._session, self._parts.take(self._positions(item)))
        if single is not None and single.partition is not None:
            return PrivateQueryable(self._session, single.at(single.partition.find(item)))
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            return PrivateQueryable(self._session, self._parts.at(int(self._positions(np.array([item]))[0])))
        raise QueryError(
            f"{item!r} is not a part; these parts do not come from one partition, so use positions 0 to "
            f"{len(self) - 1}."
        )

    @unspent()
    def partition(self, *specs: object) -> Parts:
        """Cuts each part: all by the same spec(s), or, given one list, each by its own.

        None in the list leaves a part as it is.
        """
        if len(specs) == 1 and isinstance(specs[0], (list, np.ndarray)):
            own = list(specs[0])
            if len(own) != len(self):
                raise QueryError(f"{len(own)} specs were given for {len(self)} parts.")
            blocks = [
                Block(part, None if spec is None else bind(_joined((spec,)), self.schema))
                for part, spec in zip(self._parts, own, strict=True)
            ]
            return Parts(self._session, PartSet(blocks))
        return Parts(self._session, self._parts.split(bind(_joined(specs), self.schema)))

    @staticmethod
    @unspent()
    def union(*collections: Parts) -> Parts:
        """Joins several collections, in order, flat.

        ``QueryError`` where a row could be in two of them.
        """
        if not collections:
            raise QueryError("union needs at least one collection.")
        session = collections[0]._session
        if any(parts._session is not session for parts in collections):
            raise QueryError("parts of different handles cannot be joined.")
        return Parts(session, PartSet.union([parts._parts for parts in collections]))

    def frame(self, values: ArrayLike) -> pd.DataFrame:
        """An answer as a labelled table: a row for each part, a column for each spec and ``value``.

        The label of missing values is None.
        """
        import pandas as pd

        block = self._parts.blocks[0] if len(self._parts.blocks) == 1 else None
        kept = values.dtype if isinstance(values, np.ndarray) else object
        flat = np.asarray(values, dtype=kept).reshape(-1)
        if block is None or block.partition is None:
            return pd.DataFrame({"part": self.labels, "value": flat})
        names = [axis.column or "shard" for axis in block.partition.axes]
        labels = [block.partition.label(i) for i in range(len(block))]
        rows = labels if len(names) > 1 else [[label] for label in labels]
        # Of a column that it types by itself pandas makes a missing label nan, and whole numbers
        # beside it floats.
        kind = object if any(None in row for row in rows) else None
        return pd.DataFrame(rows, columns=names, dtype=kind).assign(value=flat)

    def _positions(self, item: slice | ArrayLike) -> np.ndarray:
        if isinstance(item, slice):
            return np.arange(len(self))[item]
        wanted = np.asarray(item)
        if wanted.dtype == bool:
            if wanted.size != len(self):
                raise QueryError(f"a mask of {wanted.size} was given for {len(self)} parts.")
            return np.flatnonzero(wanted.reshape(-1))
        wanted = wanted.reshape(-1)
        if wanted.size == 0:
            return np.zeros(0, dtype=np.int64)
        if wanted.dtype.kind not in "iu" or wanted.min() < -len(self) or wanted.max() >= len(self):
            raise QueryError(f"positions must be whole numbers from 0 to {len(self) - 1}.")
        return np.where(wanted < 0, wanted + len(self), wanted)

    def __repr__(self) -> str:
        shown = [str(part) for part, _ in zip(self._parts, range(4), strict=False)]
        listed = "; ".join(shown) + ("; ..." if len(self) > 4 else "")
        return f"Parts({len(self)} of {self._session.name}, shape {self.shape}: {listed})"

    def _repr_html_(self) -> str:
        shown = [str(part) for part, _ in zip(self._parts, range(20), strict=False)]
        more = f"<li>... and {len(self) - 20} more</li>" if len(self) > 20 else ""
        listed = "".join(f"<li>{escape(text)}</li>" for text in shown)
        return f"<p>{len(self)} disjoint parts, shape {self.shape}</p><ol start='0'>{listed}{more}</ol>"


@contextmanager
def _reading() -> Iterator[None]:
    """Reads an answer that was charged: whatever goes wrong inside, it was spent."""
    try:
        yield
    except (QueryError, ValueError, LookupError, ArithmeticError) as error:
        raise InternalError(
            "The answer came, was charged, and cannot be read here: both sides understand the schema differently. "
            f"The ledger keeps it. Please report this: {error}"
        ) from error


def _joined(specs: Sequence[Any]) -> Spec:
    """One spec of several; a tuple counts as its members."""
    flat = [member for spec in specs for member in (spec if isinstance(spec, tuple) else (spec,))]
    if not flat:
        raise QueryError("partition needs at least one spec.")
    if len(flat) == 1:
        if isinstance(flat[0], str):
            raise QueryError(
                f"{flat[0]!r} is a name, not a spec; did you mean Values({flat[0]!r}) or Cuts({flat[0]!r}, [...])?"
            )
        if isinstance(flat[0], list):
            raise QueryError(
                "specs are given one by one, partition(Values('a'), Values('b')); a list is for Parts, one "
                "spec for each part."
            )
        single = candidate(flat[0])
        if not isinstance(single, Splitting):
            raise QueryError(f"{single!r} is a family of candidates; let exp_mech choose a member first.")
        return single
    factors: list[Any] = [
        factor for spec in flat for factor in (spec.factors if isinstance(spec, Splitting) else (spec,))
    ]
    return Cross(tuple(factors))
