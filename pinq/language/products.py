# SPDX-License-Identifier: Apache-2.0
"""``Products``: sums of the products of all pairs of columns, for the price of one sum.

A row is a vector x: a constant, a number for each numeric column, an indicator for each value of a categorical one but
the first. ``noisy_sum`` adds up the upper triangle of x x', or a part of it: second moments.

Privacy:
    Adjacency: add or remove one row. x is whole numbers in units of 2^-12, from public tables. The
    L1 norm of the triangle is n(x) = Σ_{i<=j} |x_i x_j| = (|x|_1² + |x|_2²) / 2, about half of
    |x|_1² where there are many columns. A row with n(x) above ``bound`` is shortened: with k the
    largest whole number for which k² n(x) <= 2^20 bound, each x_i becomes sign(x_i) floor(|x_i| k /
    2^10). No entry is larger than x_i k / 2^10, and n grows with the size of each entry and with
    the square of all, so n(shortened) <= (k / 2^10)² n(x) <= bound: exactly, rounding included. The
    same holds for the parts of the triangle (``pairs``), whose n has fewer terms. In n, a ``fixed``
    column counts with its largest possible size, which is at least its actual size. So all sums
    together have an L1 sensitivity of ``bound`` (privacy.md 8.6).
    Exact: k follows from whole numbers alone. Products are below 2^24 and are added up as doubles,
    where whole numbers below 2^53 have no rounding in any order, in blocks of fewer than 2^29 rows;
    then as int64. Held by: tests/privacy/test_products.py, exhaustively on a small schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np

from pinq.errors import QueryError
from pinq.language.derivatives import LOSSES, AnyDerivatives, PairPacking, RowFunction, RowMeasure
from pinq.language.specs import Axis, Values, bind
from pinq.public.checks import Switch, TupleOf, is_number, require_bool
from pinq.public.schema import Numeric, Schema, Value

ENTRY = 2**12  # units of an entry: 1 is 4,096
UNIT = ENTRY**2  # of a product
SHORTER = 2**10  # steps of the factor by which a row is shortened
MAX_ENTRIES = 256
FAR = 1e101  # ten times the largest possible bound: a range of deviations may end beyond bounds
N = TypeVar("N", np.ndarray, np.int64)
Pairs = Literal["all", "squares", "sums"]


@dataclass(frozen=True)
class Entry:
    """The meaning of an entry of x.

    Attributes:
        column: The column; None for the constant.
        value: The value that it indicates; None for a number. A missing value is the text "missing", or "(missing)" if
            that is a value; of a numeric column "missing".
    """

    column: str | None = None
    value: Value | None = None


@dataclass(frozen=True, eq=False)
class _ColumnFactor:
    """The entries of one column.

    Attributes:
        axis: The axis along which a row's code is looked up.
        table: The entries of each place along the axis, whole, float64, shape (entries, places).
        left_out: The places of rows without any vector.
        fixed: The largest size of its entries, for a column that counts with it; else 0.
    """

    axis: Axis
    table: np.ndarray
    left_out: np.ndarray
    fixed: int

    @cached_property
    def norms(self) -> tuple[np.ndarray, np.ndarray]:
        """The L1 norm and the squared L2 norm of each place's entries, as they count in n."""
        sizes = np.abs(self.table).astype(np.int64)
        if self.fixed:
            sizes = np.full_like(sizes, self.fixed)
        return sizes.sum(axis=0).astype(np.int32), (sizes**2).sum(axis=0).astype(np.int32)


class ProductVectors(RowMeasure):
    """The products of a row's entries under a schema: each column's are looked up along its axis alone.

    Attributes:
        bound: The largest L1 norm of a row's products, in whole units.
    """

    def __init__(self, columns: Sequence[_ColumnFactor], constant: int, pairs: Pairs, limit: float | None) -> None:
        self.columns, self.constant, self._pairs = tuple(columns), constant, pairs
        entries = 1 + sum(len(column.table) for column in columns)
        self.inputs = tuple(column.axis for column in columns)
        self.cells = tuple((axis,) for axis in self.inputs)
        self.packing = PairPacking(entries, _pairs_of(entries, pairs))
        self.width, self.steps = self.packing.pairs.shape[1], entries + 4 * len(self.columns)
        sizes, squares = (sum(int(column.norms[power].max()) for column in columns) for power in (0, 1))
        largest = int(self.norm(np.int64(sizes), np.int64(squares)))
        self.bound = max(1, largest if limit is None else min(largest, int(limit * UNIT)))

    @property
    def nbytes(self) -> int:
        return sum(column.table.nbytes for column in self.columns)

    def norm(self, sizes: N, squares: N) -> N:
        """The L1 norm of products, from the L1 and the squared L2 norms of entries without the constant."""
        # Of (2, 1, 3) the triangle is 4, 2, 6, 1, 3, 9: 25. From norms of 1 + 3 and 1 + 9: (6² + 14) / 2.
        whole = self.constant
        if self._pairs == "all":
            return ((whole + sizes) ** 2 + whole * whole + squares) // 2
        sums = whole * whole + whole * sizes
        return sums if self._pairs == "sums" else sums + squares

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """The products of rows, int64, shape (width, rows), from their places along ``inputs``."""
        return self.packing.unpacked(self.words(places))

    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        """The entries of rows, shortened: whole numbers, float64, shape (entries, rows)."""
        rows = len(cells[0])
        entries = np.empty((self.packing.words, rows))
        entries[0] = self.constant
        sizes, squares = np.zeros((2, rows), dtype=np.int64)
        included, start = np.ones(rows, dtype=bool), 1
        for column, places in zip(self.columns, cells, strict=True):
            size, square = column.norms
            sizes += size.take(places)
            squares += square.take(places)
            column.table.take(places, axis=1, out=entries[start : start + len(column.table)], mode="clip")
            start += len(column.table)
            if column.left_out.any():
                included &= ~column.left_out.take(places)
        steps = np.where(included, _steps(self.norm(sizes, squares), self.bound), 0)
        if steps.min(initial=SHORTER) < SHORTER:
            # 1,000 in 700 of 1,024 steps is 683.6: 683. Whole numbers of 22 bits over 2^10 are exact.
            entries *= steps / SHORTER
            np.trunc(entries, out=entries)
        return entries


def _steps(norms: np.ndarray, bound: int) -> np.ndarray:
    """The largest k <= 2^10 for which k² norm <= 2^20 bound, shape like ``norms``."""
    # Doubles give k to within one; whole numbers, below 2^62, decide.
    limit = bound * SHORTER**2
    steps = np.minimum(np.sqrt(limit / np.maximum(norms, 1)), SHORTER).astype(np.int64)
    steps += (steps + 1) ** 2 * norms <= limit
    steps -= steps**2 * norms > limit
    return np.minimum(steps, SHORTER)


def _pairs_of(entries: int, pairs: Pairs) -> np.ndarray:
    """The pairs of multiplied entries, shape (2, products)."""
    if pairs == "all":
        return np.stack(np.triu_indices(entries))
    numbers = np.arange(entries)
    sums = np.stack([np.zeros_like(numbers), numbers])
    return sums if pairs == "sums" else np.concatenate([sums, np.stack([numbers[1:], numbers[1:]])], axis=1)


@dataclass(frozen=True)
class Products(RowFunction[ProductVectors]):
    """The products of pairs of columns: sums, squares, or the whole upper triangle of x x'.

    x begins with 1. A numeric column is a number from -1 to 1, by its declared bounds or a range; 0, the middle, if it
    is missing. A categorical column is an indicator for each value but the first, the missing one last.
    With ``missing``, a numeric column has a second entry where its numbers may be missing: 1/2 for a missing number. So
    its square and itself have a norm of 3/4.

    Privacy:
        One row changes all sums together by at most ``limit`` (see the module).

    Attributes:
        names: The columns.
        ranges: For each column, the numbers that become -1 and 1; numbers outside count as these ends. None for the
            column's bounds, and for a categorical column; empty if all columns use their bounds.
        sizes: The largest entry of each column, above 0 and at most 1; empty for 1. A column with
            large entries gets a larger part of the norm, so its sums have less noise.
        constant: The entry of the constant, likewise.
        fixed: The target of a regression: a numeric column that enters the norm with its full size, so it does not
            influence the shortening factor. A row without its value adds nothing.
        pairs: "all" for the upper triangle, row by row; "squares" for the products with the
            constant, followed by the squares; "sums" for the products with the constant.
        limit: Rows whose products have a larger L1 norm are shortened to it; None for the largest
            possible norm.
        missing: Whether missing numbers have entries.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> squares = pinq.Products(("age", "sex"), limit=2)
        >>> [(entry.column, entry.value) for entry in squares.entries(h.schema)]
        [(None, None), ('age', None), ('sex', 'Male')]
        >>> h.noisy_sum(squares, epsilon=1).shape  # the upper triangle, with the constant
        (6,)
    """

    names: TupleOf[str]
    ranges: TupleOf[tuple[float, float] | None] = ()
    sizes: TupleOf[float] = ()
    constant: float = 1.0
    fixed: str | None = None
    pairs: Pairs = "all"
    limit: float | None = None
    missing: Switch = False
    kind: Literal["products"] = field(default="products", repr=False)

    unit = UNIT

    def __post_init__(self) -> None:
        names = (self.names,) if isinstance(self.names, str) else tuple(self.names)
        object.__setattr__(self, "names", names)
        try:
            ranges = tuple(None if ends is None else (float(ends[0]), float(ends[1])) for ends in self.ranges)
        except (TypeError, ValueError, IndexError):
            raise QueryError(f"is {self.ranges!r}", parameter="ranges", allowed="pairs of numbers") from None
        object.__setattr__(self, "ranges", ranges)
        require_bool("missing", self.missing)
        if not names or len(set(names)) < len(names):
            raise QueryError(f"is {names!r}", parameter="names", allowed="one column or more, each once")
        for parameter, members in (("ranges", ranges), ("sizes", self.sizes)):
            if len(members) not in (0, len(names)):
                allowed = f"empty, or one for each of {len(names)} columns"
                raise QueryError(f"has {len(members)} members", parameter=parameter, allowed=allowed)
        if any(ends is not None and not -FAR <= ends[0] < ends[1] <= FAR for ends in ranges):
            raise QueryError(f"is {ranges!r}", parameter="ranges", allowed="the lower number first, both within 1e101")
        object.__setattr__(self, "sizes", tuple(_size(size, parameter="sizes") for size in self.sizes))
        object.__setattr__(self, "constant", _size(self.constant, parameter="constant"))
        if self.pairs not in get_args(Pairs):
            raise QueryError(f"is {self.pairs!r}", parameter="pairs", allowed="'all', 'squares' or 'sums'")
        if self.fixed is not None and self.fixed not in names:
            raise QueryError(f"is {self.fixed!r}", parameter="fixed", allowed=f"one of {', '.join(names)}")
        if self.limit is not None:
            if not is_number(self.limit, 1 / ENTRY, MAX_ENTRIES**2):
                raise QueryError(f"is {self.limit!r}", parameter="limit", allowed=f"a number from {1 / ENTRY:.4f} on")
            object.__setattr__(self, "limit", float(self.limit))

    @property
    def about(self) -> str:
        return f"{self.kind} of {', '.join(self.names)}"

    def columns(self) -> set[str]:
        return set(self.names)

    def entries(self, schema: Schema) -> tuple[Entry, ...]:
        """The entries of x: the constant first, then the entries of each column."""
        entries = [Entry()]
        for name in self.names:
            if name in schema.numeric_columns:
                entries.append(Entry(name))
                if self._has_missing(schema, name):
                    entries.append(Entry(name, "missing"))
            else:
                labels = schema.categorical(name).labels
                missing = "(missing)" if "missing" in labels else "missing"
                entries += [Entry(name, missing if label is None else label) for label in labels[1:]]
        return tuple(entries)

    def _has_missing(self, schema: Schema, name: str) -> bool:
        """Whether a numeric column has an entry for missing numbers."""
        return self.missing and name != self.fixed and schema.numeric_columns[name].nullable

    def width(self, schema: Schema) -> int:
        entries = len(self.entries(schema))
        return {"all": entries * (entries + 1) // 2, "squares": 2 * entries - 1, "sums": entries}[self.pairs]

    def bind(self, schema: Schema) -> ProductVectors:
        entries = len(self.entries(schema))
        if entries > MAX_ENTRIES:
            raise QueryError(f"the columns make {entries:,} numbers to a row; at most {MAX_ENTRIES} are possible.")
        sizes = self.sizes or (1.0,) * len(self.names)
        ranges = self.ranges or (None,) * len(self.names)
        bound = [self._bound(schema, *column) for column in zip(self.names, ranges, sizes, strict=True)]
        return ProductVectors(bound, _units(self.constant), self.pairs, self.limit)

    def _bound(self, schema: Schema, name: str, span: tuple[float, float] | None, size: float) -> _ColumnFactor:
        fixed = _units(size) if name == self.fixed else 0
        if name in schema.numeric_columns:
            numbers = _numbers(name, schema.numeric_columns[name], span, _units(size), fixed)
            if not self._has_missing(schema, name):
                return numbers
            missing = np.zeros_like(numbers.table)
            missing[:, -1] = _units(size / 2)
            return replace(numbers, table=np.concatenate([numbers.table, missing]))
        column = schema.categorical(name)
        if span is not None or fixed:
            raise QueryError(f"`{name}` is categorical: it has no range, and it cannot be `fixed`.")
        indicators = np.eye(column.codes)[1:] * _units(size)
        return _ColumnFactor(bind(Values(name), schema).axes[0], indicators, np.zeros(column.codes, dtype=bool), 0)


def _numbers(name: str, column: Numeric, span: tuple[float, float] | None, size: int, fixed: int) -> _ColumnFactor:
    """The entries of a numeric column: ``-size`` to ``size``, and 0 where it is missing."""
    low, high = (float(column.low), float(column.high)) if span is None else span
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-300)

    def entries(codes: np.ndarray) -> np.ndarray:
        numbers = float(column.origin) + float(column.width) * codes
        return np.rint(np.clip((numbers - middle) / half, -1, 1) * size)

    codes, axis = np.arange(column.cells), Axis(name, column.codes, ())
    # In a column with more codes, neighbouring codes of one number share a place.
    if column.codes > 2**16:
        # Entries rise with codes. A place begins about where the next whole entry does, so entries differ by one at
        # least, and there are at most 8,193 places.
        steps = ((np.arange(-size, size) + 0.5) / size * half + middle - float(column.origin)) / float(column.width)
        edges = sorted({0, *np.ceil(np.clip(steps, 0, column.cells - 1)).astype(np.int64).tolist()})
        thresholds = (*edges[1:], *([column.cells] if column.nullable else []))
        codes = np.array(edges, dtype=np.int64)
        axis = Axis(name, len(codes) + column.nullable, (), thresholds)
    table = np.concatenate([entries(codes), np.zeros(int(column.nullable))])
    left_out = np.zeros(len(table), dtype=bool)
    left_out[len(codes) :] = bool(fixed)
    return _ColumnFactor(axis, table[None], left_out, fixed)


def _units(size: float) -> int:
    return max(1, round(size * ENTRY))


def _size(size: object, *, parameter: str) -> float:
    if not is_number(size, 1e-9, 1):
        raise QueryError(f"is {size!r}", parameter=parameter, allowed="above 0 and at most 1")
    return float(size)


AnyVector = AnyDerivatives | Products
"""The vectors that ``noisy_sum`` can add up beside a column."""

VECTORS: dict[str, type[AnyVector]] = {**LOSSES, Products.kind: Products}
"""The one catalogue of vectors, by kind."""
