# SPDX-License-Identifier: Apache-2.0
"""Derivatives of a public model's loss at each row, as vectors of whole numbers for noisy sums.

A model is a score of rows (``Points``); a row's vector is the best change of its score. ``noisy_sum`` adds the vectors
up; the score ``Gradient`` of ``exp_mech`` chooses by their sums.

Privacy:
    Adjacency: add or remove one row. A vector is a public function of its row, of whole numbers, of L1 norm at most
    ``bound``. ``bound`` is the largest norm in the public table of all vectors, or the norm to which each vector is
    clipped. All arithmetic on rows is in integers; only the public tables were computed in floating point. So a vector
    does not depend on the row's place in an array (privacy.md 8). Held by: tests/privacy/test_derivative_sums.py,
    exhaustively on small schemas.

To add a loss: its vectors, its class, and its entry of ``AnyDerivatives``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import ClassVar, Generic, Literal, Self, TypeVar, get_args

import numpy as np

from pinq.errors import QueryError
from pinq.language.points import POINTS, Points, RowScores
from pinq.language.specs import Axis, Expression, Values, bind
from pinq.public.checks import TupleOf
from pinq.public.schema import Schema, Value

WORD_BITS = 64
# The two possible numbers of words that are added up before they are unpacked. The one that gives a row fewer words is
# used, else the larger.
ROWS = (2**16, 2**15)


@dataclass(frozen=True)
class Field:
    """The place of a number in a word: its position among a row's numbers, and its bits.

    Attributes:
        signed: Whether it may be below 0.
    """

    number: int
    bits: int
    signed: bool

    @classmethod
    def of(cls, number: int, least: int, largest: int, rows: int) -> Field:
        """A field for sums of ``rows`` numbers from ``least`` to ``largest``."""
        signed = least < 0
        return cls(number, (max(-least, largest) * rows).bit_length() + signed, signed)


@dataclass(frozen=True)
class Packing:
    """The places of a row's numbers in its words.

    Sums are exact: a number has enough bits for its largest sum.

    Attributes:
        rows: The largest number of words that may be added up before they are unpacked.
        fields: The numbers in each word, from its lowest bits on.
    """

    pairs: ClassVar[None] = None

    rows: int
    fields: tuple[tuple[Field, ...], ...]

    @classmethod
    def of(cls, ranges: Sequence[tuple[int, int]]) -> Packing:
        """Packs numbers of these least and largest values, of sizes below 2^40."""
        return min((cls._first_fit(ranges, rows) for rows in ROWS), key=lambda packing: packing.words)

    @classmethod
    def _first_fit(cls, ranges: Sequence[tuple[int, int]], rows: int) -> Packing:
        # From -65,514 to 65,514 needs 33 bits of 65,536 rows, from 0 to 16,384 31: they share a
        # word. Signed numbers come first and go to the top of a word, which has the word's sign.
        fields = [Field.of(number, *ends, rows) for number, ends in enumerate(ranges)]
        words: list[list[Field]] = []
        for new in sorted(fields, key=lambda one: not one.signed):
            fits = (word for word in words if sum(one.bits for one in (new, *word)) < WORD_BITS + word[-1].signed)
            word = next(fits, None)
            if word is None:
                words.append([new])
            else:
                word.insert(0, new)
        return cls(rows, tuple(map(tuple, words)))

    @property
    def words(self) -> int:
        return len(self.fields)

    @property
    def numbers(self) -> int:
        return sum(map(len, self.fields))

    def packed(self, numbers: np.ndarray | Sequence[np.ndarray | int]) -> np.ndarray:
        """Numbers, broadcast to the shape of the last, as int64 words of shape (words, ...)."""
        words = np.empty((self.words, *np.shape(numbers[-1])), dtype=np.int64)
        for word, (*lower, top) in zip(words, self.fields, strict=True):
            # Of 5 below 2 in 8 bits, 2 comes first: shifted it is 512, and with 5 it is 517.
            word[...] = numbers[top.number]
            for place in reversed(lower):
                word <<= place.bits
                word += numbers[place.number]
        return words

    def unpacked(self, words: np.ndarray) -> np.ndarray:
        """The numbers in words, or in sums of at most ``rows`` words; inverse to ``packed``."""
        numbers = np.empty((self.numbers, *words.shape[1:]), dtype=np.int64)
        for number, column in self.numbers_of_words(words):
            numbers[number] = column
        return numbers

    def numbers_of_words(self, words: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the position and the values of each number; ``unpacked`` has them in one array."""
        for word, fields in zip(words, self.fields, strict=True):
            # Low bits of 255 may mean -1. A word of 2 above -1 in 8 bits is 2 * 256 - 1 = 511,
            # whose upper bits are 1: with the signed number subtracted first, they are 2.
            rest = word
            for place in fields[:-1]:
                unused = WORD_BITS - place.bits
                values = (rest << unused) >> unused if place.signed else rest & (2**place.bits - 1)
                rest = (rest - values if place.signed else rest) >> place.bits
                yield place.number, values
            yield fields[-1].number, rest


@dataclass(frozen=True)
class PairPacking:
    """Numbers that are products of two of a row's words.

    Attributes:
        words: The number of words of a row.
        pairs: The words of each product, shape (2, numbers).
    """

    words: int
    pairs: np.ndarray

    def unpacked(self, words: np.ndarray) -> np.ndarray:
        """The products of words of shape (words, rows): int64, shape (numbers, rows)."""
        first, second = words.astype(np.int64)[self.pairs]
        return first * second


UNIT = 2**16  # of derivatives of a probability
STEEPEST = 8 * POINTS  # beyond 8 logits a probability is below 0.0004: scores stop there
ODDS_BITS = 30
AT_ONCE = 2**16  # numbers that are computed together: they fit into a core's cache


class RowMeasure(ABC):
    """The numbers that are added up for each row, looked up in its cells of joint tables.

    Attributes:
        inputs: The axes along which a row's places are read.
        cells: The axes of each joint table in which a row's cell is looked up, the last axis running
            fastest; the place of a row that is in no part of an axis is ``axis.size``.
        width: The number of numbers that are added up.
        steps: The number of look-ups and additions for a row.
        packing: The layout of these numbers, each at most 2^24 in size, in a row's words.
    """

    inputs: tuple[Axis, ...]
    cells: tuple[tuple[Axis, ...], ...]
    width: int
    steps: int
    packing: Packing | PairPacking

    @property
    def nbytes(self) -> int:
        return 0

    def bound_to(self, schema: Schema) -> RowMeasure:
        return self

    def over(self, joint: Sequence[tuple[Axis, ...]]) -> RowMeasure:
        """The same measure, looked up in a row's cells of these joint tables if they have all axes."""
        return self

    def counted_rows(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        """Whether each row counts, shape (rows,), by its place along an axis; None if all rows count."""
        return None

    @abstractmethod
    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        """The words of some rows, int64, shape (words, rows); float64, whole, where they are multiplied.

        Args:
            cells: Each row's cell in each of ``cells``, shape (rows,) each.
        """

    def finished(self, sums: np.ndarray) -> np.ndarray:
        """The answer from all sums, shape (numbers, ...): int64, shape (..., width)."""
        # Numbers are below 2^24, so 2^33 rows, the most that a policy admits, sum to less than 2^57.
        return np.moveaxis(sums, 0, -1)


class RowVectors(RowMeasure):
    """The vectors of derivatives under a schema: a function of a row's parts along some axes.

    Args:
        scores: The model's scores.
        target: The axis of the predicted column.
        ranges: The least and the largest value of each entry of a vector.

    Attributes:
        bound: The largest L1 norm of a vector, in whole units.
        gradient_bound: The largest L1 norm of a gradient, in the units of ``Derivatives.gradients``.
    """

    packing: Packing
    bound: int
    gradient_bound: int

    def __init__(self, scores: RowScores, target: Axis, ranges: Sequence[tuple[int, int]]) -> None:
        self.scores, self.target = scores, target
        self.inputs, self.width = (*scores.axes, target), len(ranges)
        self.steps, self.packing = scores.steps + 2 * self.width, Packing.of(ranges)

    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]:  # type: ignore[override]
        return (*(term.axes for term in self.scores.terms), (self.target,))

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes

    @abstractmethod
    def packed(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The vectors of rows in words, int64, shape (words, rows).

        Args:
            scores: Each row's scores, int64, shape (scores, rows). They may be changed.
            target: Its place along the axis of the target, shape (rows,).
        """

    def over(self, joint: Sequence[tuple[Axis, ...]]) -> Self:
        """The same vectors, looked up in the cells of joint tables that have the axes."""
        joined = copy(self)
        joined.scores = self.scores.over(joint)
        return joined

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of rows, int64, shape (width, rows).

        Args:
            places: Each row's place along each of ``inputs``, shape (rows,) each; the last of ``axis.slots`` is for
                rows in no part.
        """
        alone, (*inner, target) = self.over(()), places
        return self.packing.unpacked(alone.words([*alone.scores.cells(inner), target]))

    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        rows, step = len(cells[-1]), AT_ONCE // self.width
        words = np.empty((self.packing.words, rows), dtype=np.int64)
        for start in range(0, rows, step):
            *inner, target = (cell[start : start + step] for cell in cells)
            words[:, start : start + step] = self.packed(self.scores.added(inner, len(target)), target)
        return words


class LogisticVectors(RowVectors):
    """Looks the vectors up in a table of shape (2, classes, scores)."""

    def __init__(self, scores: RowScores, target: Axis, positive: np.ndarray, limit: int) -> None:
        table = _logistic_table(limit)
        sizes = np.abs(table)
        super().__init__(scores, target, [(int(line.min()), int(line.max())) for line in table])
        self.bound, self.gradient_bound = int(sizes.sum(axis=0).max()), int(sizes[0].max())
        # The table's lines of both classes are end to end: score 0 is in the middle of each.
        self._table = self.packing.packed(table.reshape(self.width, -1))
        self._middle = positive * table.shape[-1] + STEEPEST

    def packed(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        entry = np.clip(scores[0], -STEEPEST, STEEPEST, out=scores[0])
        entry += self._middle.take(target)
        return self._table.take(entry, axis=1)


@lru_cache(maxsize=8)
def _logistic_table(limit: int) -> np.ndarray:
    """Tabulates ``Logistic``: (gradient, hessian) by class and score, shape (2, 2, scores)."""
    # At score 0, p is .5: a row of the class adds (.5, .25), another one (-.5, .25), both of norm
    # .75.
    p = 1 / (1 + np.exp(-np.arange(-STEEPEST, STEEPEST + 1) / POINTS))
    vectors = np.stack([np.stack([-p, 1 - p]), np.stack([p * (1 - p)] * 2)])
    table = clipped(np.rint(vectors * UNIT).astype(np.int64).reshape(2, -1), limit).reshape(vectors.shape)
    table.flags.writeable = False
    return table


class SoftmaxVectors(RowVectors):
    """Computes the vectors in whole numbers, from a table of odds, and clips them."""

    def __init__(self, scores: RowScores, target: Axis, hessian: bool, limit: int) -> None:
        classes = len(scores.base)
        super().__init__(scores, target, [(-UNIT, UNIT)] * classes + [(0, UNIT // 4)] * classes * hessian)
        self._hessian = hessian
        self.bound = self.gradient_bound = limit

    def packed(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        table = _odds_table()
        # Only gaps to the largest score count, so no exponential is above 1.
        odds = table.take(np.clip(scores.max(axis=0) - scores, 0, len(table) - 1))
        total = odds.sum(axis=0)
        # Scores 0 and -256 are odds of 2^30 and 2^30 / e: shares of 47,911 and 17,625 of 2^16.
        share = (2 * UNIT * odds + total) // (2 * total)
        vectors = -share
        vectors[target, np.arange(len(target))] += UNIT
        if self._hessian:
            vectors = np.concatenate([vectors, (share * (UNIT - share) + UNIT // 2) // UNIT])
        return self.packing.packed(clipped(vectors, self.bound))


@lru_cache(maxsize=1)
def _odds_table() -> np.ndarray:
    """exp(-gap / 256) in units of 2^-30, for each gap to the largest score; 0 from the last on."""
    gaps = np.arange(math.ceil((ODDS_BITS + 1) * math.log(2) * POINTS) + 1)
    table = np.rint(2**ODDS_BITS * np.exp(-gaps / POINTS)).astype(np.int64)
    table.flags.writeable = False
    return table


class ResidualVectors(RowVectors):
    """Clamps and bins in integers: a residual r of 1/256 cells is 2 r, or limit + r and limit - r, of 1/512."""

    def __init__(self, scores: RowScores, target: Axis, cells: int, limit: int, rows: bool) -> None:
        super().__init__(scores, target, [(0, 2 * limit)] * 2 if rows else [(-2 * limit, 2 * limit)])
        self._cells, self._rows, self._limit = cells, rows, limit
        self.bound = self.gradient_bound = 2 * limit

    def packed(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        # A row in cell 12 with a score of 10 cells: 2 cells, 512 of 1/256. Clamped at 256, its
        # entries are 512 and 0 of 1/512; at 1,024 they are 1,536 and 512.
        residual = target.astype(np.int64) * POINTS - scores[0]
        residual = np.clip(residual, -self._limit, self._limit)
        entries = [self._limit + residual, self._limit - residual] if self._rows else [2 * residual]
        return self.packing.packed(np.stack(entries) * (target < self._cells))


def clipped(vectors: np.ndarray, limit: int) -> np.ndarray:
    """Shortens vectors whose L1 norm exceeds a limit, in proportion and in whole numbers.

    Example:
        With limit 10, (9, -6) of norm 15 becomes (9 * 10 // 15, -(6 * 10 // 15)) = (6, -4).

    Args:
        vectors: int64, shape (width, vectors); entries below 2^31 in size.
        limit: At most 2^31.

    Returns:
        Vectors of norm at most ``limit``: each entry is rounded towards 0, so they add up to no
        more than limit * norm / norm.
    """
    # A vector that is no longer than the limit is multiplied by it and divided by it: it stays.
    sizes = np.abs(vectors)
    longest = np.maximum(sizes.sum(axis=0), limit)
    sizes *= limit
    sizes //= longest
    sizes *= np.sign(vectors)
    return sizes


LARGEST_RESIDUAL = (2**24 - 1) / (2 * POINTS)  # grid cells: the largest limit of ``Residuals``
MAX_WIDTH = 128


V = TypeVar("V", bound=RowMeasure)


class RowFunction(Expression, Generic[V]):
    """A public vector of a row, which can be summed.

    Attributes:
        unit: The number of a vector's whole units in a row or in a grid cell.
    """

    unit: int

    @property
    @abstractmethod
    def about(self) -> str:
        """The name of the sum, for a line of the log."""

    @abstractmethod
    def width(self, schema: Schema) -> int:
        """Entries of a row's vector."""

    @abstractmethod
    def bind(self, schema: Schema) -> V:
        """Binds the function to a schema, or raises ``QueryError``."""

    def vectors(self, schema: Schema) -> V:
        """Binds as ``bind`` does; a schema remembers the vectors of its last requests."""
        return schema.kept.recalled(self.identity, partial(self.bind, schema), lambda vectors: 2**17 + vectors.nbytes)

    def check(self, schema: Schema) -> None:
        """Raises ``QueryError`` unless it fits the schema."""
        self.vectors(schema)


class Derivatives(RowFunction[RowVectors]):
    """A loss whose derivatives can be summed.

    Attributes:
        target: The column that the model predicts.
    """

    target: str
    points: Points | tuple[Points, ...]

    @property
    def about(self) -> str:
        return f"{self.kind} of {self.target}"

    @property
    def scores(self) -> tuple[Points, ...]:
        return (self.points,) if isinstance(self.points, Points) else self.points

    def columns(self) -> set[str]:
        return {self.target}.union(*(points.columns() for points in self.scores))

    def inner(self) -> tuple[Expression, ...]:
        return tuple(spec for points in self.scores for spec in points.specs)

    @abstractmethod
    def gradients(self, sums: np.ndarray) -> np.ndarray:
        """The gradients of sums (..., width): shape (..., 1), or (..., classes)."""

    @abstractmethod
    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        """The second derivatives of sums (..., width), shaped as the gradients; None if they are not summed."""


@dataclass(frozen=True)
class Logistic(Derivatives):
    """The derivatives of the logistic loss of one class against the rest.

    They are (y - p, p (1 - p)), p = 1 / (1 + exp(-F / 256)).

    y is 1 if the target is one of ``positive``. F is clamped to 8 logits.

    Privacy:
        For y = 1 the norm is 1 - p + p (1 - p) = 1 - p², for y = 0 it is 1 - (1 - p)²: at most 1
        row, the price of a count (privacy.md 8.1). In units of 2^-16 rows it is the largest norm in
        the rounded table of all (F, y).

    Attributes:
        positive: The values of the positive class; None is the missing value.
        points: The score.
        limit: Vectors of a larger L1 norm, in rows, are shortened to it: less noise, and a bias
            towards 0.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> loss = pinq.Logistic("income", ">50K", pinq.Points(base=-300))
        >>> sums = h.noisy_sum(loss, by=[pinq.Values("sex")], epsilon=1)
        >>> sums.shape, loss.gradients(sums).shape  # cells, and the two derivatives
        ((2, 2), (2, 1))
    """

    target: str
    positive: TupleOf[Value | None]
    points: Points
    limit: float = 1.0
    kind: Literal["logistic"] = field(default="logistic", repr=False)

    unit = UNIT

    def __post_init__(self) -> None:
        positive = self.positive
        single = positive is None or isinstance(positive, (str, int))
        object.__setattr__(self, "positive", (positive,) if single else tuple(positive))
        object.__setattr__(self, "limit", _limit(self.limit, 1.0))

    def width(self, schema: Schema) -> int:
        return 2

    def bind(self, schema: Schema) -> RowVectors:
        column = schema.categorical(self.target)
        positive = np.zeros(column.codes, dtype=np.int64)
        positive[[column.code_of(value, self.target) for value in self.positive]] = 1
        if not 0 < positive.sum() < column.codes:
            allowed = f"some values of `{self.target}`, and not all of them"
            raise QueryError(f"is {self.positive!r}", parameter="positive", allowed=allowed)
        scores = RowScores.bind(self.scores, schema)
        return LogisticVectors(scores, bind(Values(self.target), schema).axes[0], positive, int(self.limit * UNIT))

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        return sums[..., :1]

    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        return sums[..., 1:]


@dataclass(frozen=True)
class Softmax(Derivatives):
    """The derivatives of the cross-entropy of all classes: e_y - p, with p = softmax(F / 256).

    With ``hessian`` also each p_c (1 - p_c).

    Privacy:
        The gradient's norm is 2 (1 - p_y), at most 2 rows; the second derivatives add at most 1 - Σ p_c². Each vector
        is clipped to ``limit`` in whole numbers. Vectors follow from scores by whole numbers and a table of odds, so
        they do not depend on a row's place in the table (privacy.md 8.2).

    Attributes:
        points: A score for each value of the target, in their order, the missing one last.
        hessian: Whether the second derivatives are summed too.
        limit: Vectors of a larger L1 norm, in rows, are shortened to it; without second derivatives
            to at most 2, which no vector exceeds.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> loss = pinq.Softmax("income", (pinq.Points(), pinq.Points()))
        >>> h.noisy_sum(loss, by=[pinq.Values("sex")], epsilon=1).shape  # cells, classes
        (2, 2)
    """

    target: str
    points: TupleOf[Points]
    hessian: bool = False
    limit: float = 2.0
    kind: Literal["softmax"] = field(default="softmax", repr=False)

    unit = UNIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.points))
        object.__setattr__(self, "limit", _limit(self.limit, 3.0))

    def width(self, schema: Schema) -> int:
        return len(self.points) * (1 + self.hessian)

    def bind(self, schema: Schema) -> RowVectors:
        codes = schema.categorical(self.target).codes
        if len(self.points) != codes:
            raise QueryError(
                f"Softmax of `{self.target}` needs a score for each of its {codes} values, not {len(self.points)}."
            )
        if self.width(schema) > MAX_WIDTH:
            raise QueryError(
                f"Softmax of `{self.target}` makes {self.width(schema):,} numbers to a row; at most {MAX_WIDTH} are "
                "possible. Use Logistic."
            )
        scores = RowScores.bind(self.scores, schema)
        target = bind(Values(self.target), schema).axes[0]
        # Without second derivatives no vector is longer than 2: more would only be more noise.
        largest = self.limit if self.hessian else min(self.limit, 2.0)
        return SoftmaxVectors(scores, target, self.hessian, int(largest * UNIT))

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        return sums[..., : len(self.points)]

    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        return sums[..., len(self.points) :] if self.hessian else None


@dataclass(frozen=True)
class Residuals(Derivatives):
    """The derivatives of the squared error of a numeric target: its residual.

    It is a row's grid cell minus F / 256, clamped to ``limit``.

    Rows whose target is missing add nothing. The second derivative is 1, so its sum is the number of rows: with
    ``rows`` two bins are summed, (limit + residual) / 2 and (limit - residual) / 2. Their difference is the residuals'
    sum, and their sum is ``limit`` times the rows.

    Privacy:
        Adjacency: add or remove one row. A residual is at most ``limit`` in size; the two bins of a row are at least 0
        and add up to ``limit`` exactly, so both together cost the same as the residual alone (privacy.md 8.4, 2.3). All
        numbers are whole, in units of 1/512 cell.

    Attributes:
        points: The score.
        limit: Largest residual, in grid cells of the target.
        rows: Whether the answer also has the number of rows.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> loss = pinq.Residuals("hours_per_week", pinq.Points(base=256 * 40), limit=20)
        >>> h.noisy_sum(loss, epsilon=1).shape  # two bins
        (2,)
    """

    target: str
    points: Points
    limit: float
    rows: bool = True
    kind: Literal["residuals"] = field(default="residuals", repr=False)

    unit = 2 * POINTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", int(_limit(self.limit, LARGEST_RESIDUAL) * POINTS) / POINTS)

    def width(self, schema: Schema) -> int:
        return 1 + self.rows

    def bind(self, schema: Schema) -> RowVectors:
        column = schema.numeric(self.target)
        # A fine grid has too many cells to be split by each; here they are only read.
        target = Axis(self.target, column.codes, ())
        return ResidualVectors(
            RowScores.bind(self.scores, schema), target, column.cells, int(self.limit * POINTS), self.rows
        )

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        # A residual of 1.5 cells under a limit of 4 makes bins of 2.75 and 1.25: their difference
        # is 1.5, their sum 4.
        return sums[..., :1] - sums[..., 1:] if self.rows else sums

    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        return (sums[..., :1] + sums[..., 1:]) / self.limit if self.rows else None


AnyDerivatives = Logistic | Softmax | Residuals
"""The losses whose derivatives ``noisy_sum`` can add up."""

LOSSES: Mapping[str, type[AnyDerivatives]] = {kind.kind: kind for kind in get_args(AnyDerivatives)}
"""The one catalogue of losses, by kind."""


def _limit(limit: float, largest: float) -> float:
    """Raises ``QueryError`` unless a norm's limit is above 0 and at most ``largest``."""
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 1 / POINTS <= limit <= largest:
        allowed = f"a number from {1 / POINTS:.4f} to {largest:,.10g}"
        raise QueryError(f"is {limit!r}", parameter="limit", allowed=allowed)
    return float(limit)
