# SPDX-License-Identifier: Apache-2.0
"""``exp_mech``: which tables a list of candidates needs, their exact scores, and the noisy choice.

Every listed candidate has prior mass one; a family has mass one too, spread evenly over its members
(privacy.md 2.7). Lists of plain candidates, one ``AnyCross``, and one family of at most 4,096
groupings or 256 cuts are chosen by permute-and-flip; mixed lists and larger families by the
exponential mechanism over runs of equal score. Which of the two, public facts decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from pinq.curator.mechanisms import Weighted, choose, choose_weighted
from pinq.engine import Listed, ListRequest, Moments, Sparse, TableRequest
from pinq.errors import QueryError
from pinq.public.crosses import AnyCross, member_scores
from pinq.public.parts import Part, PartSet
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.scores import Balance, ClassCount, Score, SquaredError
from pinq.public.specs import (
    MAX_GROUPINGS,
    MAX_PARTS,
    AnyCut,
    AnyGrouping,
    Axis,
    Cuts,
    Groups,
    Partition,
    Spec,
    Values,
    bind,
)

__all__ = ["Selection"]

DENSE_CODES = 1024
FEW_SPLITS = 8  # of one column in a request: each gets a table of its own, more share a table of the column's codes
FLIP_CANDIDATES = 4096
FLIP_CUTS = 256  # among more cuts of one column many score alike, and the two mechanisms have nearly the same law


@dataclass(frozen=True, eq=False)
class _Runs:
    """One candidate or family as it stands for one part: runs of members with equal scores, and how to name a member."""

    scores: np.ndarray
    members: np.ndarray
    first: np.ndarray
    family: Any

    @property
    def size(self) -> int:
        return int(self.members.sum())

    def spec(self, run: int, member: int) -> Spec:
        return self.family(int(self.first[run]) + member)


class Selection:
    """A checked ``exp_mech`` request: what to tabulate, and how to choose from the tables.

    Raises:
        QueryError: An unknown score, target or candidate, or one that the score is not defined for.
    """

    def __init__(
        self,
        schema: Schema,
        parts: PartSet,
        score: Score,
        lists: Sequence[Sequence[Any]],
        which: Sequence[int],
        *,
        textbook: bool = False,
        each: bool = False,
    ) -> None:
        self.schema, self.parts, self.score, self.textbook, self.each = schema, parts, score, textbook, each
        self.lists = [tuple(candidates) for candidates in lists]
        self.which = list(which) * len(parts) if len(which) == 1 else list(which)
        if len(self.which) != len(parts) or any(not 0 <= number < max(1, len(self.lists)) for number in self.which):
            raise QueryError("the request's lists of candidates do not fit its parts.")
        self.moments: Moments | None = None
        self._last: tuple[Axis, ...] = ()
        if isinstance(score, SquaredError):
            self.moments = Moments(score.target, score.shift(schema), squares=True)
        elif not isinstance(score, Balance):
            self._last = bind(score.classes(schema), schema).axes
        if isinstance(score, ClassCount):
            if each:
                raise QueryError("ClassCount takes no candidates, so there is nothing to choose from each.")
            if any(self.lists):
                raise QueryError("ClassCount chooses among the values of its own column; it takes no candidates.")
            self.tables: list[TableRequest | ListRequest] = [TableRequest(self._last)]
            return
        if not self.lists or not all(self.lists):
            raise QueryError("`candidates` is empty; name at least one spec or family for each part.")
        if len(parts) * self.choices > MAX_PARTS:
            raise QueryError(f"this makes {len(parts) * self.choices:,} choices; at most {MAX_PARTS:,} are possible.")
        # By their text: Python takes the value 1 for True, and a column can have both.
        distinct = {repr(one): one for candidates in self.lists for one in candidates}
        splits = Counter(one.column for one in distinct.values() if isinstance(one, (Cuts, Groups)))
        self._crowded = {column for column, count in splits.items() if count > FEW_SPLITS}
        self._shared: dict[str, int] = {}
        self.tables = []
        self._needed = {text: (one, *self._table(one)) for text, one in distinct.items()}

    def cells(self) -> int:
        """Cells of the largest array that choosing makes: of the tables, and of the members of a grouping."""
        if not any(self.lists):
            return 0
        widest = max(
            (
                min(2 ** (bound.codes - 1), MAX_GROUPINGS)
                for one, _, bound in self._needed.values()
                if isinstance(one, AnyGrouping)
            ),
            default=0,
        )
        return len(self.parts) * widest * 2 * math.prod(axis.size for axis in self._last)

    @property
    def span(self) -> int:
        """What the mechanism's exponent divides by: the width of changes, or in the textbook form twice the sensitivity, which is never less."""
        return 2 * self.score.sensitivity(self.schema) if self.textbook else self.score.span(self.schema)

    @property
    def most(self) -> int:
        """The most candidates that a part has, each member of an ``AnyCross`` being one."""
        return max(sum(len(one) if isinstance(one, AnyCross) else 1 for one in candidates) for candidates in self.lists)

    @cached_property
    def _parts_list(self) -> list[Part]:
        return list(self.parts)

    @property
    def choices(self) -> int:
        """How many choices each part's epsilon is spread over: as many as its list is long, the longest list deciding for all."""
        return max(map(len, self.lists)) if self.each else 1

    def choose(self, tables: list[Any], epsilon: Fraction) -> list[Any]:
        """The choice for each part, None where a part has nothing to choose from; with ``each`` so many ``choices`` for each part.

        Privacy:
            Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
            Why: the parts are disjoint, each part's choice is epsilon-DP by its mechanism, and
            scores follow pinq/public/scores.py. With ``each`` a part gets at most k = ``choices``
            choices of epsilon / k (sequential composition); k follows from the request.
        """
        span = self.span
        if isinstance(self.score, ClassCount):
            return [self._flip(counts, span, epsilon) for counts in tables[0]]
        users: dict[str, list[int]] = {}
        for place, number in enumerate(self.which):
            for one in self.lists[number]:
                users.setdefault(repr(one), []).append(place)
        runs = {}
        for text, places in users.items():
            one, table, bound = self._needed[text]
            runs[text] = dict(zip(places, self._runs(one, tables[table], bound, np.array(places)), strict=True))
        chosen: list[Any] = []
        for place, number in enumerate(self.which):
            listed = self.lists[number]
            if not self.each:
                chosen.append(self._choose_one([runs[repr(one)][place] for one in listed], listed, span, epsilon))
                continue
            chosen += [
                self._choose_one([runs[repr(one)][place]], [one], span, epsilon / self.choices) for one in listed
            ]
            chosen += [None] * (self.choices - len(listed))
        return chosen

    def _choose_one(self, runs: list[_Runs], listed: Sequence[Any], span: int, epsilon: Fraction) -> Spec | None:
        offered = [one for one in runs if one.size]
        if not offered:
            return None
        families = sum(isinstance(one, (AnyCut, AnyGrouping, AnyCross)) for one in listed)
        sizes = [one.size for one in offered]
        if not families or (len(listed) == 1 and _flips(listed[0], sizes[0])):
            scores = np.concatenate([np.repeat(one.scores, one.members) for one in offered])
            winner = self._flip(scores, span, epsilon)
            family = int(np.searchsorted(np.cumsum(sizes), winner, side="right"))
            winner -= sum(sizes[:family])
            run = int(np.searchsorted(np.cumsum(offered[family].members), winner, side="right"))
            return offered[family].spec(run, winner - int(offered[family].members[:run].sum()))
        joined = Weighted(
            np.concatenate([one.scores for one in offered]),
            np.concatenate([one.members for one in offered]),
            np.concatenate(
                [np.full(len(one.scores), size, dtype=np.int64) for one, size in zip(offered, sizes, strict=True)]
            ),
        )
        run, member = choose_weighted(joined, span, epsilon)
        lengths = np.cumsum([len(one.scores) for one in offered])
        family = int(np.searchsorted(lengths, run, side="right"))
        return offered[family].spec(run - int(lengths[family] - len(offered[family].scores)), member)

    def _flip(self, scores: np.ndarray, span: int, epsilon: Fraction) -> int:
        """Which of equally likely candidates; by the exponential mechanism where the textbook's form is asked for."""
        if not self.textbook:
            return choose(scores, span, epsilon)
        single = np.ones(len(scores), dtype=np.int64)
        return choose_weighted(Weighted(np.asarray(scores).astype(np.int64), single, single), span, epsilon)[0]

    def _table(self, one: Any) -> tuple[int, Any]:
        """Checks a candidate and sees to the table that it needs: which of ``tables`` that is, and what binds the candidate."""
        score, schema = self.score, self.schema
        target = self._last[0].column if self._last else getattr(score, "target", None)
        axes: tuple[Axis, ...]
        bound: Any
        if isinstance(one, AnyCross):
            if not self._last:
                raise QueryError(f"{one!r} goes with scores of a table of classes, and {score.kind} is not one.")
            axes, bound = tuple(bind(spec, schema).axes[0] for spec in one.specs), one
            one.require_room([axis.size for axis in axes], self._last[0].size)
        elif isinstance(one, AnyCut):
            bound = schema.numeric(one.column)
            axes = (_codes_axis(schema, one.column),)
        elif isinstance(one, AnyGrouping):
            axes, bound = (_codes_axis(schema, one.column),), schema.categorical(one.column)
            if bound.codes < 2:
                raise QueryError(f"`{one.column}` has a single value, so it cannot be grouped.")
        else:
            bound = bind(one, schema)
            axes = bound.axes
            if isinstance(score, Balance) and (
                len(axes) != 1 or sum(label is not None for label in axes[0].labels) != 2
            ):
                raise QueryError(f"Balance compares two parts, and {one!r} does not have two.")
        if target is not None and any(axis.column == target for axis in axes):
            raise QueryError(f"{one!r} splits by the target `{target}` itself.")
        by_codes = isinstance(one, (AnyCut, AnyGrouping)) or getattr(one, "column", None) in self._crowded
        if by_codes and one.column in self._shared:
            return self._shared[one.column], bound
        if by_codes:
            axes = (_codes_axis(schema, one.column),)
            self._shared[one.column] = len(self.tables)
        sparse = by_codes and axes[0].size > DENSE_CODES and isinstance(schema.columns[one.column], Numeric)
        self.tables.append(
            ListRequest((*axes, *self._last))
            if isinstance(one, AnyCross)
            else TableRequest((*axes, *self._last), sparse)
        )
        return len(self.tables) - 1, bound

    def _runs(self, one: Any, table: Any, bound: Any, places: np.ndarray) -> list[_Runs]:
        """The runs of a candidate or family for the parts at these places."""
        if isinstance(table, Listed):
            return self._crosses(one, table, places)
        if isinstance(table, Sparse):
            return (
                self._sparse_cuts(one, table, bound, places)
                if isinstance(one, AnyCut)
                else self._single(bound, self._sparse_cells(table, bound, places))
            )
        table = table[places]
        if isinstance(self.score, Balance):
            table = table[..., None]
        if isinstance(one, AnyCut):
            return self._dense_cuts(one, table, bound, places)
        if isinstance(one, AnyGrouping):
            return self._groupings(one, table, bound, places)
        if getattr(one, "column", None) in self._crowded:
            return self._single(
                bound, np.stack([_gathered(bound.axes[0], np.arange(len(rows)), rows) for rows in table])
            )
        return self._single(bound, table.reshape(table.shape[0], bound.size, table.shape[-1]))

    def _single(self, bound: Partition, cells: np.ndarray) -> list[_Runs]:
        """One candidate by its cells, shape (parts, cells, measure)."""
        scores = np.asarray(self.score.of(cells, self.schema)).astype(np.int64)  # type: ignore[union-attr]
        single = np.ones(1, dtype=np.int64)
        return [
            _Runs(score.reshape(1), single, single, lambda _, partition=bound: _spec_of(partition)) for score in scores
        ]

    def _dense_cuts(self, one: AnyCut, table: np.ndarray, column: Numeric, places: np.ndarray) -> list[_Runs]:
        """Every cut as a member; table (parts, codes, measure)."""
        below = np.cumsum(table[:, : column.cells], axis=1)
        left, total = below[:, :-1], below[:, -1:]
        sides = [left, total - left]
        if column.nullable:
            sides.append(np.broadcast_to(table[:, column.cells :], left.shape))
        scores = np.asarray(self.score.of(np.stack(sides, axis=2), self.schema)).astype(np.int64)  # type: ignore[union-attr]
        found = []
        for place, row in zip(places, scores, strict=True):
            low, high = self._parts_list[place].interval(one.column, column)
            first = np.arange(low + 1, max(low + 1, high), dtype=np.int64)
            found.append(
                _Runs(row[first - 1], np.ones(len(first), dtype=np.int64), first, _cut_namer(one.column, column))
            )
        return found

    def _occupied(self, table: Sparse, codes: int, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each of these parts the occupied codes of a column, in order, and what is there, shape (codes, measure)."""
        classes = self._last[0].size if self._last else 1
        part_of, rest = np.divmod(table.places, codes * classes)
        code, label = np.divmod(rest, classes)
        starts = np.searchsorted(part_of, np.arange(len(self.parts) + 1))
        for place in places:
            mine = slice(starts[place], starts[place + 1])
            occupied, inverse = np.unique(code[mine], return_inverse=True)
            if self.moments is not None:
                counts = table.values[mine]
            else:
                counts = np.zeros((len(occupied), classes), dtype=np.int64)
                np.add.at(counts, (inverse, label[mine]), table.values[mine])
            yield occupied, counts

    def _sparse_cells(self, table: Sparse, bound: Partition, places: np.ndarray) -> np.ndarray:
        """The cells of a split of a column by what is at its codes, shape (parts, cells, measure)."""
        codes = self.schema.columns[str(bound.axes[0].column)].codes
        return np.stack(
            [_gathered(bound.axes[0], occupied, counts) for occupied, counts in self._occupied(table, codes, places)]
        )

    def _sparse_cuts(self, one: AnyCut, table: Sparse, column: Numeric, places: np.ndarray) -> list[_Runs]:
        """Cuts between neighbouring occupied cells score alike: one run for each gap."""
        found = []
        for place, (occupied, counts) in zip(places, self._occupied(table, column.codes, places), strict=True):
            missing = occupied >= column.cells
            edges = occupied[~missing]
            below = np.concatenate(
                [np.zeros((1, counts.shape[1]), dtype=np.int64), np.cumsum(counts[~missing], axis=0)]
            )
            sides = [below, below[-1:] - below]
            if column.nullable:
                sides.append(np.broadcast_to(counts[missing].sum(axis=0), below.shape))
            scores = np.asarray(self.score.of(np.stack(sides, axis=1), self.schema)).astype(np.int64)  # type: ignore[union-attr]
            low, high = self._parts_list[place].interval(one.column, column)
            first = np.maximum(np.concatenate([[low], edges]) + 1, low + 1)
            last = np.minimum(np.concatenate([edges, [high - 1]]), high - 1)
            found.append(_Runs(scores, np.maximum(0, last - first + 1), first, _cut_namer(one.column, column)))
        return found

    def _groupings(self, one: AnyGrouping, table: np.ndarray, column: Categorical, places: np.ndarray) -> list[_Runs]:
        """Every bipartition of the values that a part has left as a member; table (parts, codes, measure)."""
        lefts = np.array([self._parts_list[place].values_left(one.column, column.codes) for place in places]).reshape(
            len(places), column.codes
        )
        found: list[_Runs] = [_NONE] * len(places)
        for left in np.unique(lefts, axis=0):
            alike = np.flatnonzero((lefts == left).all(axis=1))
            codes = np.flatnonzero(left)
            sides = one.sides(len(codes))
            if not len(sides):
                continue
            here = table[np.ix_(alike, codes)]
            first = _sums(sides, here)
            scores = self.score.of(np.stack([first, here.sum(axis=1, keepdims=True) - first], axis=2), self.schema)  # type: ignore[union-attr]
            numbers, single = np.arange(len(sides), dtype=np.int64), np.ones(len(sides), dtype=np.int64)
            labels = [column.labels[code] for code in codes]
            for place, row in zip(alike, np.asarray(scores).astype(np.int64), strict=True):
                found[place] = _Runs(
                    row, single, numbers, lambda number, labels=labels, sides=sides: one.member(labels, sides[number])
                )
        return found

    def _crosses(self, one: AnyCross, table: Listed, places: np.ndarray) -> list[_Runs]:
        """Every member, each scored by its own small table."""
        sizes = [bind(spec, self.schema).size for spec in one.specs]
        numbers, single = np.arange(len(one), dtype=np.int64), np.ones(len(one), dtype=np.int64)
        found = []
        for part in places:
            mine = slice(None) if len(self.parts) == 1 else table.parts == part
            codes, counts = table.codes[:, mine], table.counts[mine]
            scores = member_scores(
                codes[:-1], codes[-1], counts, sizes, self._last[0].size, one.size, self.score, self.schema
            )
            found.append(_Runs(scores, single, numbers, one.member))
        return found


_NOTHING = np.zeros(0, dtype=np.int64)
_NONE = _Runs(_NOTHING, _NOTHING, _NOTHING, None)


def _sums(sides: np.ndarray, table: np.ndarray) -> np.ndarray:
    """What each side's values add up to: sides (members, values), table (parts, values, measure); exact, shape (parts, members, measure)."""
    # Doubles are exact below 2^53, and their matrix product is many times as fast as that of
    # integers.
    exact = table.dtype == object or int(np.abs(table).sum(dtype=np.float64)) >= 2**53
    kind = table.dtype if exact else np.dtype(np.float64)
    result: np.ndarray = (sides.astype(kind) @ table.astype(kind)).astype(table.dtype)
    return result


def _flips(family: Any, size: int) -> bool:
    """Whether a member of this family, which has so many of them for a part, is chosen by permute-and-flip."""
    return isinstance(family, AnyCross) or size <= (FLIP_CUTS if isinstance(family, AnyCut) else FLIP_CANDIDATES)


def _codes_axis(schema: Schema, name: str) -> Axis:
    """A part for each code of a column."""
    codes = schema.column(name).codes
    return (
        bind(Values(name), schema).axes[0]
        if codes <= DENSE_CODES or isinstance(schema.columns[name], Categorical)
        else Axis(name, codes, ())
    )


def _gathered(axis: Axis, codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What is in each part of a split, shape (parts, measure), by what is at the codes of its column, shape (codes, measure)."""
    parts, cells = axis.parts_of(codes), np.zeros((axis.size, counts.shape[1]), dtype=counts.dtype)
    np.add.at(cells, parts[parts >= 0], counts[parts >= 0])
    return cells


def _spec_of(partition: Partition) -> Spec:
    return partition.spec


def _cut_namer(name: str, column: Numeric) -> Any:
    return lambda threshold: Cuts(name, (column.edge(threshold),))
