# SPDX-License-Identifier: Apache-2.0
"""The analyst's face: five verbs on one part (``PrivateQueryable``) or many (``Parts``).

It holds no data and no secrets. The verbs themselves are in ``verbs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, NoReturn, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from pinq.analyst.answers import NoisyArray, NoisyFloat, NoisyInt
from pinq.analyst.frames import keys_of
from pinq.analyst.lessons import lesson_of_columns, lesson_of_length
from pinq.analyst.session import Session
from pinq.analyst.verbs import Verbs, divided, joined
from pinq.errors import PinqError, QueryError, unspent
from pinq.public.checks import is_whole
from pinq.public.parts import Block, Part, PartSet
from pinq.public.queries import Asked, Budget
from pinq.public.schema import Value
from pinq.public.specs import Shards, Spec, bind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Parts", "PrivateQueryable"]

MOST_LINES = 10**12


class PrivateQueryable(Verbs[NoisyInt, NoisyFloat]):
    """One part of a sensitive table: all of it, as ``pinq.open`` returns it, or less."""

    def __init__(self, session: Session, part: Part | None = None) -> None:
        super().__init__(session, PartSet([Block(part or Part())], shape=()))

    @property
    def dataset(self) -> str:
        """What the provider calls the table."""
        return self._session.name

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
        return Parts(self._session, self._parts.split(bind(joined(specs), self.schema)))

    def shards(self, count: int, key: int = 0) -> Parts:
        """``count`` random disjoint parts; short for ``partition(Shards(count, key))``."""
        return self.partition(Shards(count, key))

    def history(self, start: int = 0) -> pd.DataFrame:
        """Lists what was asked, what it cost and what came back, oldest first.

        There is one row for each charge and refusal.

        Args:
            start: How many rows to leave out, where the first ones are known: what was row n is row
                n for ever.

        Returns:
            Columns ``at`` (datetime64, UTC), ``asked``, ``epsilon`` (float64, missing for a
            refusal), ``spent`` (float64, the total after it), ``outcome`` and ``answer``.
            ``budget`` has the total as an exact fraction.
        """
        from pinq.analyst.history import History

        if not is_whole(start, 0, MOST_LINES):
            raise QueryError(f"is {start!r}", parameter="start", allowed=f"a whole number from 0 to {MOST_LINES:,}")
        return History.of((line, self._answered(line)) for line in self._session.history(start))

    def _answered(self, asked: Asked) -> object:
        """Reads a stored answer in the schema's values, by what the log keeps of its question."""
        if asked.answer is None:
            return None
        # Answers are kept as numbers: 1 is the second class, or the second of the specs that could
        # be chosen, and -1 is None.
        values: list[object] = list(asked.answer.values)
        if asked.classes in self.schema.categorical_columns:
            labels = self.schema.categorical(asked.classes).labels
            values = [labels[int(code)] if code < len(labels) else code for code in asked.answer.values]
        elif asked.answer.chosen or (-1 in asked.answer.values and asked.answer.verb == "exp_mech"):
            chosen = asked.answer.chosen
            values = [None if number < 0 else chosen[int(number)] for number in asked.answer.values]
        return values[0] if len(values) == 1 else values

    def __getitem__(self, item: object) -> NoReturn:
        """Raises a ``QueryError`` that shows what to write instead; so does ``for row in h``."""
        raise lesson_of_columns(self.schema, item)

    def __len__(self) -> int:
        """Raises a ``QueryError`` that shows what to write instead."""
        raise lesson_of_length()

    def __bool__(self) -> bool:
        return True

    def through(self, change: Callable[[Session], Session]) -> PrivateQueryable:
        """Returns a handle on this part whose requests go through a changed session."""
        return PrivateQueryable(change(self._session), self._parts.at(0))

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
        try:
            left = repr(self.budget)
        except PinqError as error:  # closed, or its server is gone
            left = str(error)
        return f"PrivateQueryable({self._session.name}{where}; {len(self.schema.columns)} columns, {left})"

    def _repr_html_(self) -> str:
        head = f"<p><b>{escape(self._session.name)}</b>, {escape(str(self._parts.at(0)))}</p>"
        return f"{head}{self.budget._repr_html_()}{self.schema._repr_html_()}"


class Parts(Verbs[NoisyArray, NoisyArray]):
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
        """Cuts each part: all by the same spec(s), or, given one list, each by its own.

        None in the list leaves a part as it is.
        """
        return Parts(self._session, divided(self._parts, specs, self.schema))

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
        kept = values.dtype if isinstance(values, np.ndarray) else object
        return keys_of(self._parts).assign(value=np.asarray(values, dtype=kept).reshape(-1))

    def _positions(self, item: slice | ArrayLike) -> np.ndarray:
        if isinstance(item, slice):
            return np.arange(len(self))[item]
        # A mask of as many truths as parts, or positions, which may count from the end: of five
        # parts, -1 is part 4.
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
