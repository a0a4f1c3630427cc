# SPDX-License-Identifier: Apache-2.0
"""The possible splits and cells of attributes, by the public schema and the caller's parameters.

A new criterion is one ``Criterion`` in ``CRITERIA`` (classes) or ``REGRESSION_CRITERIA`` (a mean).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

import numpy as np

from miners.fitted.node import Ends, Split
from pinq.errors import QueryError
from pinq.language.parts import Part
from pinq.language.scores import ENTROPY_BITS, GINI_UNIT, AbsoluteError, Gini, InfoGain, MaxClass, Score, SquaredError
from pinq.language.specs import MAX_GROUPINGS, AnyCut, AnyGrouping, Cross, Cuts, Groups, Values, bind
from pinq.public.checks import closest, is_listing, is_whole
from pinq.public.columns import CutPoint
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Numeric, Schema

BINS = 10
MAX_BINS = 4096


MAX_LEVELS = 12  # unless the caller asks for more
# Candidates that all nodes of a tree score by default: so many take about half a second, and a quarter of the table's
# cells about a third of the time in which rows are read (docs/defaults.md).
MAX_SCORED, SCORED_SHARE = 2**23, 0.25
CutsByColumn = Mapping[str, Sequence[CutPoint] | int]
"""Of numeric columns: cut points, or a number of intervals of equal width."""
T = TypeVar("T")


def equal_width(schema: Schema, name: str, bins: int) -> tuple[CutPoint, ...]:
    """The inner edges of ``bins`` intervals of equal width over a column's declared range.

    Edges that fall into the same cell of the column's grid count once, so a coarse column gets fewer. Edges of whole
    numbers are rounded up to whole numbers, which changes no split.
    """
    column = schema.numeric(name)
    # From 0 to 10 in four: 2.5, 5 and 7.5, of whole numbers 3, 5 and 8.
    lower, upper = Fraction(column.lower), Fraction(column.upper)
    points: dict[int, CutPoint] = {}
    for number in range(1, bins if column.cells > 1 else 1):
        edge = lower + (upper - lower) * number / bins
        rounded = Fraction(math.ceil(edge)) if column.integer else edge
        if lower < rounded <= upper:
            point = column.point(rounded)
            points.setdefault(column.threshold(point, name), point)
    return tuple(points[threshold] for threshold in sorted(points))


def multiway_splits(
    schema: Schema,
    target: str | None,
    *,
    attributes: Sequence[str] | None,
    cuts: CutsByColumn | None,
    bins: int = BINS,
) -> tuple[Values | Cuts, ...]:
    """The candidate splits, one for each attribute.

    Args:
        schema: The public schema.
        target: The column to predict, which is no attribute; None if it is unknown.
        attributes: Names of columns; None for all but the target.
        cuts: For numeric attributes a list of cut points, or a number of intervals of equal width. Default: the cuts
            that the policy declares for the column, else ``bins`` intervals.
        bins: The number of intervals by default.

    Raises:
        QueryError: An unknown, repeated or unusable column; cuts of a column that has none.
    """
    own_cuts = by_column("cuts", cuts, "names of numeric columns to cut points", schema.numeric)
    names = attribute_names(schema, target, attributes)
    require_attributes("cuts", own_cuts, names)
    return tuple(_multiway(schema, name, own_cuts.get(name), bins) for name in names)


def _multiway(schema: Schema, name: str, cutting: Sequence[CutPoint] | int | None, bins: int) -> Values | Cuts:
    """A column's split into many parts; ``cutting`` is its entry of ``cuts``."""
    if name not in schema.numeric_columns:
        return Values(name)
    if cutting is None:
        cutting = schema.numeric(name).declared_cuts or bins
    if is_whole(cutting):
        if not 2 <= cutting <= MAX_BINS:
            raise QueryError(f"`cuts` asks for {cutting} intervals of `{name}`; it must be 2 to {MAX_BINS:,}.")
        points = equal_width(schema, name, int(cutting))
        # A nullable column of a single cell has no cut, but missing and present are two parts.
        return Cuts(name, points) if points else Values(name)
    if not is_listing(cutting):
        raise QueryError(
            f"`cuts` of `{name}` is {cutting!r}; it must be a list of cut points or a number of intervals."
        )
    return Cuts(name, tuple(cutting))


def by_column(
    parameter: str, mapping: Mapping[str, T] | None, meaning: str, column: Callable[[str], object]
) -> dict[str, T]:
    """A parameter that maps columns to something, empty for None; ``column`` looks up a name, or raises.

    Raises:
        QueryError: It is no mapping, or has an unknown column.
    """
    if mapping is not None and not isinstance(mapping, Mapping):
        raise QueryError(f"`{parameter}` is {mapping!r}; it must map {meaning}.")
    for name in mapping or {}:
        column(name)
    return dict(mapping or {})


def require_attributes(parameter: str, named: Iterable[str], attributes: Sequence[str]) -> None:
    """Raises ``QueryError`` if a parameter names a column that is not an attribute."""
    for name in named:
        if name not in attributes:
            raise QueryError(
                f"`{parameter}` names {name!r}, which is not an attribute; the attributes are {', '.join(attributes)}."
            )


def attribute_names(schema: Schema, target: str | None, attributes: Sequence[str] | None) -> list[str]:
    """The columns to split by: ``attributes``, else all columns with more than one value but the target.

    Raises:
        QueryError: An unknown, repeated or unusable column.
    """
    if attributes is not None and not is_listing(attributes):
        raise QueryError(
            f"is {attributes!r}", parameter="attributes", allowed="a list of names of columns, or None for all"
        )
    names = [name for name in schema.columns if name != target] if attributes is None else list(attributes)
    for name in attributes or ():
        schema.column(name)
    if target in names:
        raise QueryError(f"the target `{target}` is among `attributes`.")
    if len(set(names)) != len(names):
        raise QueryError(f"{next(n for n in names if names.count(n) > 1)!r} is named twice; name each column once.")
    usable = [name for name in names if schema.columns[name].codes > 1]
    if attributes is not None and len(usable) < len(names):
        left_out = next(name for name in names if name not in usable)
        raise QueryError(f"the attribute `{left_out}` has a single value, so nothing can be split by it.")
    if not usable:
        raise QueryError("there is no attribute to learn from.")
    return usable


def families(schema: Schema, names: Sequence[str]) -> tuple[AnyCut | AnyGrouping, ...]:
    """All splits in two of each attribute, for the mechanism to choose from: cuts, or groups of values."""
    return tuple(AnyCut(name) if name in schema.numeric_columns else AnyGrouping(name) for name in names)


GROUPING_SECONDS = 1e-5  # for each value of a node's column, to draw, score and name groupings; measured


def grouping_warnings(schema: Schema, splits: Iterable[object], depth: int, trees: int = 1) -> tuple[str, ...]:
    """Warns if choices among groupings of these columns in so many trees take over a minute."""
    # 4,095 nodes that split a column of 65,000 values: 2,700 seconds. A deep tree has at most a node for each row.
    nodes = trees * min(2**depth - 1, schema.max_rows)
    codes = {split.column: schema.columns[split.column].codes for split in splits if isinstance(split, AnyGrouping)}
    # 13 values have 4,095 groupings.
    values = {column: count for column, count in codes.items() if count > MAX_GROUPINGS.bit_length()}
    minutes = nodes * sum(values.values()) * GROUPING_SECONDS / 60
    if minutes < 1:
        return ()
    largest = max(values, key=lambda name: values[name])
    return (
        f"groupings of values take about {minutes:,.0f} minutes of the provider's time for {nodes:,} nodes, or are "
        f"refused as too much work: `{largest}` has {values[largest]:,} values, and few of the {MAX_GROUPINGS:,} "
        "groupings that a node draws of them separate anything. Leave it out with `attributes`, or declare fewer.",
    )


def levels_carried(schema: Schema, names: Sequence[str], rows: float, epsilon: Epsilon, *, fewer: float = 0.0) -> int:
    """The number of levels of two-way splits that a budget supports.

    Each node's split is one choice from all ``families``.

    A rule of thumb (docs/defaults.md), less ``fewer``.
    """
    return min(max(0, round(_levels(schema, names, rows, epsilon) - fewer)), MAX_LEVELS)


def default_levels(schema: Schema, names: Sequence[str], rows: float, epsilon: Epsilon) -> int:
    """The default number of levels of a tree of classes: the supported number, or one if nearly one.

    There are fewer levels if choosing would take longer than reading (docs/defaults.md).
    """
    # 1,000,000 rows of 14 attributes with 12,600 candidates: 2^23 / 12,600 = 664 nodes, so nine levels.
    nodes = max(MAX_SCORED, SCORED_SHARE * rows * len(names)) / _all_candidates(schema, names)
    # With 2.5 levels too few, or more, the first split is noise.
    supported = levels_carried(schema, names, rows, epsilon) or int(_levels(schema, names, rows, epsilon) >= -2.5)
    return min(supported, max(1, int(math.log2(nodes))))


def default_depth_note(depth: int) -> str:
    """Explains a default depth."""
    return f"max_depth is not given; {depth} follows from epsilon, max_rows and the attributes."


def _levels(schema: Schema, names: Sequence[str], rows: float, epsilon: Epsilon) -> float:
    # 100,000 rows at epsilon 1, 50 candidates: lg 100,000 = 16.6, less 2.4 lg ln 51 = 4.7, less
    # 1.4, so 10.5 levels.
    loss = float(epsilon.per_row(schema.distance))
    log_candidates = math.log(_all_candidates(schema, names) + 1)
    return math.log2(max(1.0, rows * loss)) - 2.4 * math.log2(max(1.0, log_candidates)) - 1.4


def _all_candidates(schema: Schema, names: Iterable[str]) -> int:
    return max(1, sum(_candidates(schema, name) for name in names))


def _candidates(schema: Schema, name: str) -> int:
    """The approximate number of different splits of a column in two."""
    if name in schema.numeric_columns:
        # One grid point in 20 is about as good a cut as the best.
        return min(20, schema.numeric(name).cells - 1)
    return min(2 ** (schema.columns[name].codes - 1) - 1, MAX_GROUPINGS)


def random_split(schema: Schema, names: Sequence[str], part: Part, random: np.random.Generator) -> Split | None:
    """A split by one of the attributes that can still split this part, at random; None for none.

    A numeric attribute is cut in two at a random point of its remaining grid; a categorical one, once on each path, is
    split into two random groups of its values.
    """
    for number in random.permutation(len(names)).tolist():
        name = names[number]
        if name in schema.numeric_columns:
            column = schema.numeric(name)
            low, high = part.interval(name, column)
            if high - low > 1:
                return Cuts(name, (column.cut_before(int(random.integers(low + 1, high))),))
        elif not part.splits_by(name):
            values = schema.categorical(name)
            order = random.permutation(values.codes)
            # A coin for each value, but two random values are put on different sides: none is empty.
            first = random.random(values.codes) < 0.5
            first[order[0]], first[order[1]] = True, False
            sides = [tuple(values.labels[code] for code in np.flatnonzero(first == side)) for side in (True, False)]
            return Groups(name, (sides[0], sides[1]))
    return None


WIDTHS = (2, 4, 6, 8, 12, 16, 24, 32)
PAIR_BINS, PAIR_CELLS = 6, 64  # intervals of a number in a pair of attributes, and its cells at most
FEW_WIDTHS = 4  # up to so many widths, round numbers are powers of ten alone
FINE = 100  # 2 and 5 times powers of ten are cuts only where the power is at least the range divided by this


@dataclass(frozen=True)
class Grid:
    """The default cuts of numeric attributes.

    Attributes:
        widths: Intervals of equal width.
        fine: Whether 2 and 5 times powers of ten are cuts beside the powers.
    """

    widths: int
    fine: bool = True

    @classmethod
    def of_steps(cls, size: float) -> Grid:
        """The grid of a card that is learned in steps.

        A cell's error falls with its width and rises with its noise: the best number of cells grows
        with a root of ``size``, rows times epsilon; 10 at 5,000 (docs/defaults.md).
        """
        return cls(_widths(10 * (size / 5000) ** 0.3))

    @classmethod
    def of_tables(cls, size: float, *, many: bool) -> Grid:
        """The coarse grid of a card that queries tables of all attributes first.

        ``size`` is rows times epsilon for each attribute and class.
        """
        widths = _widths(4 * (size / 20) ** (0.25 if many else 0.2))
        return cls(widths, fine=many and widths > FEW_WIDTHS)


def public_cuts(schema: Schema, name: str, grid: Grid) -> tuple[CutPoint, ...]:
    """The default cuts of a column: equal widths, and round numbers.

    Sums of money and counts crowd near zero. So the powers of ten down to the column's grid are cuts too (and their
    negatives, and zero), and in the upper two decades 2 and 5 times those: on 0 to 100,000 also 1, 10, 100, 1,000,
    2,000, 5,000, ...
    """
    column = schema.numeric(name)
    points = [*equal_width(schema, name, grid.widths)]
    if not column.unit:  # the thousandth day since 1970 is no round date
        points += _round_numbers(column, grid.fine)
    distinct = {column.threshold(point, name): point for point in points if column.cells > 1}
    return tuple(distinct[threshold] for threshold in sorted(distinct))


def attribute_cells(
    schema: Schema, target: str | None, attributes: Sequence[str] | None, cuts: CutsByColumn | None, grid: Grid
) -> tuple[Values | Cuts, ...]:
    """The cells of each attribute: declared or given cuts, else ``public_cuts``.

    Raises:
        QueryError: An unknown, repeated or unusable column; cuts of a column that has none.
    """
    if cuts is not None and not isinstance(cuts, Mapping):
        raise QueryError(f"`cuts` is {cuts!r}; it must map names of numeric columns to cut points.")
    uncut = {name for name, column in schema.numeric_columns.items() if not column.cuts}
    points = {
        name: public_cuts(schema, name, grid) for name in attribute_names(schema, target, attributes) if name in uncut
    }
    chosen = {name: own_points for name, own_points in points.items() if own_points} | dict(cuts or {})
    return multiway_splits(schema, target, attributes=attributes, cuts=chosen)


def attribute_pairs(
    schema: Schema, target: str | None, attributes: Sequence[str], cuts: CutsByColumn | None
) -> tuple[Cross, ...]:
    """The joint cells of each two attributes, at most ``PAIR_CELLS``, cut coarsely."""
    coarse = multiway_splits(schema, target, attributes=attributes, cuts=cuts, bins=PAIR_BINS)
    # Six intervals of a number and the 7 values of another attribute: 42 cells.
    sizes = {spec: bind(spec, schema).size for spec in coarse}
    pairs = itertools.combinations(coarse, 2)
    return tuple(Cross(pair) for pair in pairs if sizes[pair[0]] * sizes[pair[1]] <= PAIR_CELLS)


def _round_numbers(column: Numeric, fine: bool) -> Iterator[float]:
    """Yields the round numbers within a column's range, and zero."""
    # From 0 to 1,000 by ones: 1, 10 and 100, from 10 on with 2 and 5 times those (10 * 100 reaches
    # the range), and 1,000 itself.
    largest = max(abs(column.lower), abs(column.upper))
    span, width = column.upper - column.lower, Decimal(float(column.width))
    sizes = {Decimal(0)}
    power = Decimal(1).scaleb(width.adjusted())
    while power <= largest:
        digits = (1, 2, 5) if fine and power * FINE >= span else (1,)
        sizes |= {digit * power for digit in digits if digit * power >= width}
        power *= 10
    for number in sorted({sign * size for size in sizes for sign in (-1, 1)}):
        if column.lower < number <= column.upper:
            yield float(number)


def _widths(number: float) -> int:
    """The number of ``WIDTHS`` whose ratio to this number is nearest to 1."""
    # 50,000 rows at epsilon 1 are 10 times 5,000: 10 * 10^.3 = 20 intervals, and 24 are nearest.
    return min(WIDTHS, key=lambda widths: max(widths / number, number / widths))


@dataclass(frozen=True)
class Criterion:
    """A measure of splits.

    Attributes:
        score: The score of a selection; None if no selection may use it.
        unit: The number of the score's units in one natural unit; None for the largest possible
            error of a row.
        uncertainty: Rows times impurity over the last axis, from noisy class counts and the noisy rows of their parts;
            None for a criterion for means.
        whole: The impurity of class counts before a split; the gain is this less that of the parts.
    """

    name: str
    score: Callable[..., Score] | None
    unit: int | None
    called: str
    uncertainty: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    whole: Callable[[np.ndarray], float] = lambda counts: 1.0


def _entropy_uncertainty(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # The terms of Algorithm 1; a part that seems smaller than one of its classes has no entropy to
    # speak of.
    inside = np.where(rows > 0, rows, 1)[..., None]
    terms: np.ndarray = counts * np.minimum(np.log2(np.where(counts > 0, counts, 1) / inside), 0.0)
    return -terms.sum(axis=-1)


def _entropy(counts: np.ndarray) -> float:
    """The entropy of counts, in bits; 0 for none."""
    rows = counts.sum()
    return float(_entropy_uncertainty(counts, rows) / rows) if rows > 0 else 0.0


_ENTROPY = (_entropy_uncertainty, _entropy)
CRITERIA = {
    each.name: each
    for each in (
        Criterion("max", MaxClass, 1, "rows", lambda counts, rows: rows - counts.max(axis=-1)),
        Criterion(
            "gini",
            Gini,
            GINI_UNIT,
            "rows",
            lambda counts, rows: rows - np.square(counts).sum(axis=-1) / np.where(rows > 0, rows, 1),
        ),
        Criterion("info_gain", InfoGain, 2**ENTROPY_BITS, "bits", *_ENTROPY),
    )
}
REGRESSION_CRITERIA = {
    each.name: each
    for each in (
        Criterion("squared_error", SquaredError, None, "rows of the largest error"),
        Criterion("absolute_error", AbsoluteError, None, "rows of the largest error"),
    )
}
# The information gain over the split's own entropy. Nothing may be chosen by it (privacy.md 2.5).
GAIN_RATIO = Criterion("gain_ratio", None, None, "bits a bit", *_ENTROPY)
_EVERY = {**CRITERIA, **REGRESSION_CRITERIA, GAIN_RATIO.name: GAIN_RATIO}


def score_of(criterion: str, target: str, *within: Ends) -> Score:
    """The score of a criterion; for a numeric target within a range."""
    score = _EVERY[criterion].score
    assert score is not None, criterion
    return score(target, *within)


def choice_noise_scale(
    schema: Schema, criterion: str, epsilon: Epsilon, *, textbook: bool, target: str = ""
) -> tuple[float, str]:
    """The scale of the noise in a choice, and its unit (for a regression the largest possible error of a row).

    A worse candidate may win if its score is lower by about this much.
    """
    score, record = score_of(criterion, target), _EVERY[criterion]
    unit = score.sensitivity(schema) if record.unit is None else record.unit
    width = 2 * score.sensitivity(schema) if textbook else score.span(schema)
    return float(width / (unit * epsilon.per_row(schema.distance))), record.called


def require_criterion(criterion: object, criteria: Iterable[str] = CRITERIA) -> str:
    """The criterion's name; raises ``QueryError`` for an unknown one."""
    names = list(criteria)
    if isinstance(criterion, str) and criterion in names:
        return criterion
    reason = (
        ". Gain ratio cannot steer a noisy selection: one row can move it over its full range, however large the "
        "table, so noise that hides a row hides everything (privacy.md 2.5). SuLQID3 computes it from "
        "counts that are noisy already"
    )
    allowed = f"one of {', '.join(map(repr, names))}{reason if criterion == GAIN_RATIO.name else ''}"
    raise QueryError(f"is {criterion!r}{closest(str(criterion), names)}", parameter="criterion", allowed=allowed)


def gain(criterion: str, table: np.ndarray) -> float:
    """The quality of a split by its table of noisy counts, shape (parts, classes); higher is better.

    Counts below 0 count as 0. The quantities of Friedman & Schuster 2010, sec. 4.1 and 4.2, per row; for
    ``"gain_ratio"`` the information gain over the split's own entropy.
    """
    record = _EVERY[criterion]
    assert record.uncertainty is not None, criterion
    counts = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    sums = counts.sum(axis=1)
    rows = sums.sum()
    if rows <= 0:
        return 0.0
    # Parts of 8 + 2 and 0 + 10 rows of two classes: max (8 + 10) / 20 = .9, gini ((64 + 4) / 10 +
    # 100 / 10) / 20 = .84, and an information gain of .971 - .361 = .61 bits.
    gained = record.whole(counts.sum(axis=0)) - float(record.uncertainty(counts, sums).sum() / rows)
    if record is not GAIN_RATIO:
        return gained
    entropy = _entropy(sums)
    return gained / entropy if entropy > 0 else 0.0


def printed_gain(criterion: str, table: np.ndarray, parts: np.ndarray) -> float:
    """The quality of a split by Algorithm 1 of Friedman & Schuster 2010.

    For the information gain it is V_A = sum of N_jc lg(N_jc / N_j), where N_j is a noisy count too. Exact counts would
    make the divisor n and H(C) equal for all attributes, so they are left out. N_jc may exceed N_j, and then its term
    is positive. Counts of 0 and below have the term 0.

    Args:
        criterion: One of ``CRITERIA``; ``"gain_ratio"``, for which the paper has no form with counts,
            is that of ``gain``.
        table: Noisy rows of each part and class, shape (parts, classes).
        parts: Noisy rows of each part, shape (parts,).
    """
    if criterion == GAIN_RATIO.name:
        return gain(criterion, table)
    uncertainty = _EVERY[criterion].uncertainty
    assert uncertainty is not None, criterion
    counts, rows = np.maximum(table, 0.0), np.maximum(parts, 0.0)
    if criterion != "info_gain":
        return -float(uncertainty(counts, rows).sum())
    there = (counts > 0) & (rows[:, None] > 0)
    return float((counts * np.log2(np.where(there, counts, 1) / np.where(there, rows[:, None], 1)))[there].sum())


def impurity_reduction(criterion: str, tables: np.ndarray) -> np.ndarray:
    """The part of a node's uncertainty that splits remove, for each row of it.

    It is J of Wang, Dick & Balcan 2020, sec. 2.1, for any number of classes.

    Returns:
        From 0 to 1, shape (...,), for noisy counts of shape (..., parts, classes): 1 if evenly mixed classes become
        pure parts, 0 for empty tables.
    """
    uncertainty = CRITERIA[criterion].uncertainty
    assert uncertainty is not None, criterion
    counts = np.maximum(tables, 0.0)
    parts, classes = counts.sum(axis=-1), counts.sum(axis=-2)
    rows = parts.sum(axis=-1)
    # Of 8 + 12 rows cut to 8 + 2 and 0 + 10, by "max": 8 rows were not of the larger class and 2
    # are left, so 6 are taken, of at most 20 / 2 for evenly mixed classes: .6.
    taken = uncertainty(classes, rows) - uncertainty(counts, parts).sum(axis=-1)
    even = np.ones(counts.shape[-1])
    worst = uncertainty(even, even.sum()) / even.sum()
    return taken / np.where(rows > 0, rows * worst, 1.0)
