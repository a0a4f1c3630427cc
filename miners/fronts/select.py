# SPDX-License-Identifier: Apache-2.0
"""A parsed SELECT: its rows, its groups, its numbers, and the form of its answer.

The parser knows a closed list of elements, and refuses every other one by name, with its place in the text and an
alternative.

A condition on one column is the set of its public codes that meet it; missing values meet neither a condition nor its
negation, as in SQL. AND, OR and NOT combine such sets, which become parts of a declared split.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import sqlglot
from sqlglot import expressions as x

from miners.tables.columns import MAX_BINS, is_categorical, missing_apart, narrowed, specs_of
from miners.tables.groups import ROUGH, Kind, drafted
from miners.tables.quantile_search import Quantile
from miners.tables.statistics import (
    CountStatistic,
    MeanStatistic,
    StandardDeviation,
    Statistic,
    SumStatistic,
    Variance,
)
from miners.tables.table import NUMBERS, Draft, Table
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError, printable
from pinq.language.specs import Axis, Calendar, Cuts, Groups, Interval, Ranges, Spec, Values, bind
from pinq.public.checks import closest
from pinq.public.dates import PERIODS
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Column, Schema, Value

PLAIN = "snowflake"
"""The grammar of sqlglot that reads TOP beside LIMIT, and all else as standard SQL."""
MAX_TEXT = 20_000  # characters; a longer statement is refused before it is read
MAX_DIGITS = 30  # more than any declared bound has
UNCHANGED: dict[type, set[Any]] = {
    str: x.DataType.TEXT_TYPES | x.DataType.TEMPORAL_TYPES,
    int: x.DataType.NUMERIC_TYPES,
    Decimal: x.DataType.FLOAT_TYPES,
    bool: {x.DataType.Type.BOOLEAN},
    type(None): set(x.DataType.Type),
}
"""The types to which a cast does not change a constant."""
SHOWN = 80  # characters of a statement that an error quotes
Constant = str | int | Decimal | bool | None
Split = tuple[Spec, tuple[Value | None, ...]]
"""A split, and the labels of its parts."""


class Text:
    """A statement, with the public schema against which it is read.

    Attributes:
        notes: Notes on phrases that were not read literally.
    """

    def __init__(self, written: object, schema: Schema) -> None:
        if not isinstance(written, str) or not 0 < len(written.strip()) <= MAX_TEXT:
            allowed = f"the text of one SELECT, of at most {MAX_TEXT:,} characters"
            raise QueryError(f"is {str(written)[:SHOWN]!r}", parameter="query", allowed=allowed)
        # Spaces in the place of EXPLAIN keep each place in the text.
        self.written, self.schema, self.notes = written, schema, list[str]()
        self.plain = re.sub(r"^\s*EXPLAIN\b", lambda match: " " * len(match[0]), written, flags=re.IGNORECASE)
        self.explains = self.plain != written
        self._names = {name.casefold(): name for name in reversed(schema.columns)}

    def parsed(self, dialect: str) -> x.Expr:
        """Reads the statement's grammar; raises ``QueryError`` if it is not one statement."""
        first = re.match(r"\s*(\w+)", self.plain)
        if first is not None and first[1].upper() not in ("SELECT", "WITH"):
            raise self.error(f"{first[1][:SHOWN].upper()}: write SELECT", first.start(1))
        if dialect not in [dialects.value for dialects in sqlglot.Dialects]:
            raise QueryError(
                f"is {dialect!r}", parameter="dialect", allowed="a dialect of sqlglot's, such as 'bigquery'"
            )
        try:
            statements = sqlglot.parse(self.plain, dialect=dialect or PLAIN)
        except RecursionError:
            raise
        except Exception as error:  # hostile text finds ways through any parser
            raise self.error("this cannot be read as SQL", self._offset(error)) from None
        if len(statements) != 1 or statements[0] is None:
            raise self.error("there must be one statement; ask several one by one", len(self.plain))
        return statements[0]

    def refuse(self, node: object, why: str) -> NoReturn:
        """Raises ``QueryError`` with the refused text, its place and an alternative."""
        refused = node if isinstance(node, list) else [node]
        nodes = [inner for each in refused if isinstance(each, x.Expr) for inner in each.walk()]
        starts = [inner.meta["start"] for inner in nodes if "start" in inner.meta]
        keyword = re.search(re.escape(why.split()[0].strip("`:,")), self.plain, re.IGNORECASE)
        raise self.error(why, min(starts) if starts else keyword.start() if keyword else 0)

    def instead(self, node: x.Expr, write: str) -> NoReturn:
        """Refuses an expression, and says what to write in its place."""
        self.refuse(node, f"`{self.sql(node)}`: {write}")

    def error(self, why: str, offset: int) -> QueryError:
        """Makes an error with the place of a character in the text."""
        before = self.plain[:offset]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        near = printable(self.plain[offset : offset + SHOWN // 2].split("\n")[0].strip())
        return QueryError(f"{why} (line {line}, column {column}{f': {near!r}' if near else ''}).")

    def column_of(self, node: x.Expr) -> str:
        """The declared column that an expression names, in any case."""
        columns = {column.name: column for column in node.find_all(x.Column)}
        quoted = next((column for column in node.find_all(x.Column) if column.this.quoted), None)
        if quoted is not None and quoted.name.casefold() not in self._names:
            self.refuse(quoted, f"`{self.sql(quoted)}` is no column: write a text as '{quoted.name}', in single quotes")
        if len(columns) != 1 or node.find(x.Subquery, x.Select):
            names = " and ".join(map(repr, columns)) or "none"
            self.refuse(node, f"`{self.sql(node)}` names {names} of the columns: write conditions on one column each")
        ((name, column),) = columns.items()
        if name.casefold() not in self._names:
            hint = closest(name, self.schema.columns)
            self.refuse(column, f"`{name}` is no column{hint}; there are {', '.join(self.schema.columns)}")
        return self._names[name.casefold()]

    def bare(self, node: x.Expr) -> str:
        """The column of a function call; refuses a call with a computed argument."""
        name = self.column_of(node)
        read = (*READ_IN_FUNCTIONS, type(node))
        other = next((inner for inner in node.walk() if not isinstance(inner, read)), None)
        if other is not None:
            alone = f"write `{name}` alone in the place of `{self.sql(other)}`; the policy can derive other columns"
            self.instead(node, alone)
        return name

    def constant(self, node: x.Expr) -> Constant:
        """Reads a constant: a number, a text, a date, a truth value or NULL."""
        if isinstance(node, x.Neg) and isinstance(value := self.constant(node.this), (int, Decimal)):
            return -value
        if isinstance(node, (x.Date, x.Paren)) and isinstance(node.this, x.Expr):
            return self.constant(node.this)
        if isinstance(node, x.Cast) and node.is_type(*UNCHANGED.get(type(value := self.constant(node.this)), ())):
            return value
        if isinstance(node, (x.Boolean, x.Null)):
            return None if isinstance(node, x.Null) else bool(node.this)
        if not isinstance(node, x.Literal):
            self.instead(node, "write a constant here")
        if node.is_string:
            return str(node.this)
        number = Decimal(node.this) if len(node.this) <= MAX_DIGITS else None
        if number is None or abs(number.adjusted()) > MAX_DIGITS:  # exact arithmetic with it would take for ever
            self.instead(node, f"write a number of at most {MAX_DIGITS} digits")
        return int(number) if node.is_int else number

    def number(self, node: x.Expr) -> Fraction:
        value = self.constant(node)
        if isinstance(value, (str, bool)) or value is None:
            self.instead(node, "write a number here")
        return Fraction(value)

    def sql(self, node: x.Expr) -> str:
        """Writes an expression for an error or a heading."""
        if isinstance(node, x.Filter):  # PLAIN would write it as another call
            return f"{self.sql(node.this)} FILTER (WHERE {self.sql(node.expression.this)})"
        text = printable(node.sql(dialect=PLAIN))
        return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"

    def _offset(self, error: Exception) -> int:
        """The place of the word at which the parser stopped."""
        facts: dict[str, Any] = next(iter(getattr(error, "errors", [])), {})
        lines = self.plain.split("\n")[: facts.get("line", 1) - 1]
        return sum(len(each) + 1 for each in lines) + max(facts.get("col", 0) - len(facts.get("highlight", "")), 0)


def _combined(sets: Sequence[np.ndarray], *, every: bool = True) -> np.ndarray:
    """The codes that are in every set, or, without ``every``, in at least one.

    A set of codes is a list of first codes and ends: (0, 3, 7, 8) are the codes 0 to 2 and 7. So its size depends on
    the condition, not on the column: a grid may have millions of cells.
    """
    points = np.unique(np.concatenate(sets))
    inside = [np.searchsorted(ends, points, side="right") % 2 == 1 for ends in sets]
    inside_all = (np.logical_and if every else np.logical_or).reduce(inside)
    return points[np.diff(inside_all, prepend=False)]


@dataclass(frozen=True)
class Condition:
    """Reads a condition on one column."""

    text: Text
    name: str

    @property
    def column(self) -> Column:
        """The declared column; its ``cells`` are its codes without that of missing values."""
        return self.text.schema.column(self.name)

    def read(self, node: x.Expr, negated: bool = False) -> np.ndarray:
        """The codes that meet the condition, or its negation; missing values may meet neither, as in SQL."""
        match node:
            case x.Paren():
                return self.read(node.this, negated)
            case x.Not():
                return self.read(node.this, not negated)
            case x.And() | x.Or():  # NOT (a AND b) is NOT a OR NOT b
                sides = [self.read(side, negated) for side in node.flatten()]
                return _combined(sides, every=isinstance(node, x.And) != negated)
            case x.Is(this=x.Column(), expression=x.Null()):
                cells, codes = self.column.cells, self.column.codes
                return self._between(0, cells) if negated else self._between(cells, codes)
            case x.In(this=x.Column()) if node.expressions:
                constants = [self.text.constant(each) for each in node.expressions]
                named: list[Constant] = [value for value in constants if value is not None] or [None]
                equal = _combined([self._compared(node, x.EQ, value) for value in named], every=False)
                # With NULL in the list no value is certainly outside it.
                return self._between(0, 0) if negated and None in constants else self._declared(equal, negated)
            case x.Between(this=x.Column()) if not node.args.get("symmetric"):
                low, high = (self.text.constant(node.args[end]) for end in ("low", "high"))
                ends = [self._compared(node, x.GTE, low), self._compared(node, x.LTE, high)]
                return self._declared(_combined(ends), negated)
            case x.EQ() | x.NEQ() | x.GT() | x.GTE() | x.LT() | x.LTE():
                flipped = not isinstance(node.this, x.Column)
                kind = FLIPPED.get(type(node), type(node)) if flipped else type(node)
                side, value = (node.right, node.left) if flipped else (node.left, node.right)
                if isinstance(side, x.Column):
                    return self._declared(self._compared(node, kind, self.text.constant(value)), negated)
        self.text.instead(node, "compare a column with constants by =, <, IN, BETWEEN or IS NULL")

    def _between(self, first: int, end: int) -> np.ndarray:
        first, end = max(first, 0), min(end, self.column.codes)
        return np.array([first, end] if first < end else [], dtype=np.int64)

    def _complement(self, codes: np.ndarray) -> np.ndarray:
        return np.setxor1d(codes, [0, self.column.codes])

    def _declared(self, met: np.ndarray, negated: bool) -> np.ndarray:
        """These codes, or all others, without that of missing values."""
        return _combined([self._complement(met) if negated else met, self._between(0, self.column.cells)])

    def _compared(self, node: x.Expr, kind: type[x.Expr], value: Constant) -> np.ndarray:
        """Compares all codes with a constant; the result for missing values has no meaning."""
        if value is None:
            self.text.refuse(node, f"`{self.text.sql(node)}` holds for no row: write IS NULL")
        if not is_categorical(self.text.schema, self.name):
            return self._on_grid(node, kind, value)
        column = self.text.schema.categorical(self.name)
        if kind not in (x.EQ, x.NEQ):
            instead = "write = or IN; its values are a list, which has no order"
            self.text.refuse(node, f"`{self.text.sql(node)}` compares `{self.name}` by order: {instead}")
        code = column.code_of(value, self.name)  # type: ignore[arg-type]
        equal = self._between(code, code + 1)
        return equal if kind is x.EQ else self._complement(equal)

    def _on_grid(self, node: x.Expr, kind: type[x.Expr], value: Any) -> np.ndarray:
        """Compares the cells of a grid with a number or a date.

        Ages from 17 in cells of width 1: `> 30.5` and `>= 31` both mean cell 14 and all later ones. Ages from 0 in
        cells of width 5: `< 20` means cells 0 to 3, and `<= 20` is refused, because it divides cell 4.
        """
        column = self.text.schema.numeric(self.name)
        place = (column.number_of(value, self.name) - column.low) / column.width
        first, after = math.ceil(place - Fraction(column.tolerance)), math.floor(place) + 1
        top = (column.high - column.low) / column.width
        if column.half_cell and place <= top:  # the upper bound lies in the last cell
            first = min(first, column.cells - 1)
        at_or_above = self._between(first, self.column.codes)
        if kind in (x.GTE, x.LT):
            if column.half_cell and 0 < place <= top and abs(place - first) > column.tolerance:
                edge = column.text(column.edge(first))
                self.text.notes.append(f"{self.text.sql(node)} is read at {edge}, where a grid cell begins")
            return at_or_above if kind is x.GTE else self._complement(at_or_above)
        if column.half_cell and 0 <= place <= top and (place < top or kind in (x.EQ, x.NEQ)):
            self.text.instead(node, "write >= and <: the column is read in grid cells, which hold their lower ends")
        beyond, equal = self._between(after, self.column.codes), self._between(first, after)
        by_kind: dict[type[x.Expr], np.ndarray] = {x.GT: beyond, x.LTE: self._complement(beyond), x.EQ: equal}
        return by_kind.get(kind, self._complement(equal))


FLIPPED: dict[type[x.Expr], type[x.Expr]] = {x.GT: x.LT, x.LT: x.GT, x.GTE: x.LTE, x.LTE: x.GTE}


def filters(text: Text, where: x.Expr) -> list[tuple[Spec, int]]:
    """Reads WHERE: for each named column a split, and the number of its part."""
    by_column: dict[str, list[x.Expr]] = {}
    for term in where.unnest().flatten() if isinstance(where.unnest(), x.And) else [where]:
        by_column.setdefault(text.column_of(term), []).append(term)
    parts = (_filter(text, name, terms) for name, terms in by_column.items())
    return [part for part in parts if part is not None]


def _filter(text: Text, name: str, terms: Sequence[x.Expr]) -> tuple[Spec, int] | None:
    """The part of a split that meets all conditions on a column; None for all rows."""
    codes_met = _combined([Condition(text, name).read(term) for term in terms])
    written, column = " AND ".join(map(text.sql, terms)), text.schema.column(name)
    if not len(codes_met):
        text.refuse(terms[0], f"`{written}` holds for no declared value of `{name}`")
    if codes_met.tolist() == [0, column.codes]:
        return None
    if is_categorical(text.schema, name):
        labels, codes = text.schema.categorical(name).labels, range(column.codes)
        values = {code for first, end in codes_met.reshape(-1, 2).tolist() for code in codes[first:end]}
        if len(values) == 1:
            return Values(name), values.pop()
        inside, outside = (
            tuple(labels[code] for code in codes if (code in values) == is_inside) for is_inside in (True, False)
        )
        return Groups(name, (inside, outside)), 0
    numeric, ends = text.schema.numeric(name), _combined([codes_met, np.array([0, column.cells])]).tolist()
    if not ends:
        return missing_apart(text.schema, name)
    points = [numeric.cut_before(cell) if 0 < cell < column.cells else None for cell in ends]
    intervals = [*zip(points[::2], points[1::2], strict=True), *[None] * (int(codes_met[-1]) > column.cells)]
    if len(intervals) > 1 or points == [None, None]:
        return Ranges(name, (tuple(intervals),)), 0
    return Cuts(name, tuple(point for point in points if point is not None)), int(ends[0] > 0)


@dataclass(frozen=True)
class Key:
    """A key of GROUP BY: a split, and the names of its parts in the answer."""

    written: x.Expr
    name: str
    spec: Spec
    labels: tuple[Value | None, ...] = ()

    @classmethod
    def read(cls, text: Text, node: x.Expr, name: str) -> Key:
        """Reads the keys of GROUP BY. Raises ``QueryError`` if one is no declared split."""
        named = name or text.sql(node)
        match node:
            case x.Column():
                column = text.column_of(node)
                try:
                    return cls(node, name or column, specs_of(text.schema, column)[0])
                except QueryError:
                    pass  # a numeric column without declared cuts
                instead = f"write CASE WHEN {column} < ... THEN ... END, or WIDTH_BUCKET({column}, low, high, bins)"
                text.refuse(node, f"`{column}` has numbers, and the policy declares no cuts of it: {instead}")
            case x.Case():
                return cls(node, named, *_cases(text, node))
            case x.WidthBucket():
                return cls(node, named, *_buckets(text, node))
            case x.Mul() if isinstance(node.find(x.Floor), x.Floor):
                return cls(node, named, *_floors(text, node))
            case x.DateTrunc() | x.TimestampTrunc() | x.Extract() | x.Year():
                return cls(node, named, _period(text, node))
        instead = "a column, CASE, WIDTH_BUCKET, FLOOR(x / w) * w or DATE_TRUNC; the policy can derive other columns"
        text.refuse(node, f"`{text.sql(node)}` in GROUP BY: write {instead}")


def _cases(text: Text, node: x.Case) -> Split:
    """Reads a CASE over one column: the split by its conditions, and the labels of the parts."""
    name = text.column_of(node)
    condition, column = Condition(text, name), text.schema.column(name)
    labels, taken_codes = [_label(text, node.args.get("default"))], list[np.ndarray]()
    for branch in reversed(node.args["ifs"]):  # the first true branch counts
        when = branch.this if node.this is None else x.EQ(this=node.this, expression=branch.this)
        labels.append(_label(text, branch.args["true"]))
        taken_codes.append(condition.read(when))
    points = np.unique(np.concatenate([*taken_codes, [0]]).astype(np.int64))
    numbers = np.zeros(len(points), dtype=np.int64)
    for number, ends in enumerate(taken_codes, 1):
        numbers[np.searchsorted(ends, points, side="right") % 2 == 1] = number
    if is_categorical(text.schema, name):
        values = text.schema.categorical(name).labels
        branches = numbers[np.searchsorted(points, np.arange(column.codes), side="right") - 1]
        merged: dict[Value | None, list[Value | None]] = {}
        for number in sorted(set(branches.tolist()), reverse=True):
            merged.setdefault(labels[number], []).extend(values[code] for code in np.flatnonzero(branches == number))
        return Groups(name, tuple(map(tuple, merged.values()))), tuple(merged)
    missing = labels[numbers[np.searchsorted(points, column.cells, side="right") - 1]]
    pieces = dict(zip(points.tolist(), numbers.tolist(), strict=True))
    return _ranges(text, node, name, pieces, labels.__getitem__, missing)


def _label(text: Text, node: x.Expr | None) -> Value | None:
    value = None if node is None else text.constant(node)
    return str(value) if isinstance(value, Decimal) else value


def _ranges(
    text: Text,
    node: x.Expr,
    name: str,
    pieces: Mapping[int, int],
    label: Callable[[int], Any],
    missing: Value | None = None,
) -> Split:
    """Makes a split of a grid whose runs of cells are numbered. Runs with the same label are one part.

    ``pieces`` maps the first cell of each run to the run's number; the first run begins at cell 0. ``label``
    gives the label of a number, and ``missing`` is the label of missing values.
    """
    column, starts, parts = text.schema.numeric(name), list[int](), [pieces[0]]
    for start in sorted(pieces):
        if 0 < start < column.cells and pieces[start] != parts[-1]:
            starts.append(start)
            parts.append(pieces[start])
    if not 1 - column.nullable <= len(starts) <= MAX_BINS:
        text.refuse(node, f"`{text.sql(node)}` makes {len(parts):,} groups of `{name}`: cut within its bounds")
    points = [None, *map(column.cut_before, starts), None]
    merged: dict[Any, list[Interval | None]] = {}
    for part, ends in zip(map(label, parts), pairwise(points), strict=True):
        merged.setdefault(part, []).append(ends)
    if column.nullable:
        if missing not in merged:
            text.notes.append(f"missing values of `{name}` are a group of their own")
        merged.setdefault(missing, []).append(None)
    if starts and len(merged) == len(parts) + column.nullable:  # any version of the server reads cuts
        return Cuts(name, tuple(map(column.cut_before, starts))), tuple(merged)
    return Ranges(name, tuple(map(tuple, merged.values()))), tuple(merged)


def _evenly(
    text: Text, node: x.Expr, name: str, low: Fraction, width: Fraction, bins: int, label: Callable[[int], Any]
) -> Split:
    """Cuts a column of numbers at ``low`` and every ``width`` from there on; range 0 is below ``low``."""
    column = text.schema.numeric(name)
    if column.unit:
        text.instead(node, f"`{name}` has dates; write DATE_TRUNC('month', {name})")
    if bins > MAX_BINS:
        text.refuse(node, f"`{text.sql(node)}` makes {bins:,} groups of `{name}`: at most {MAX_BINS:,} are possible")
    places = ((low + number * width - column.low) / column.width for number in range(bins + 1))
    ends = (math.ceil(place - Fraction(column.tolerance)) for place in places)
    # If two ranges begin at the same cell, the first is empty.
    return _ranges(text, node, name, {0: 0} | {max(end, 0): number for number, end in enumerate(ends, 1)}, label)


def _buckets(text: Text, node: x.WidthBucket) -> Split:
    """Reads WIDTH_BUCKET(column, low, high, bins): bin 0 is below low, bin ``bins + 1`` from high on."""
    name = text.column_of(node.this)
    low, high, bins = (text.number(node.args[part]) for part in ("min_value", "max_value", "num_buckets"))
    if not (isinstance(node.this, x.Column) and bins.denominator == 1 and 0 < bins <= MAX_BINS and low < high):
        text.instead(node, "write WIDTH_BUCKET(column, low, high, bins), low below high")
    return _evenly(text, node, name, low, (high - low) / bins, int(bins), int)


def _floors(text: Text, node: x.Mul) -> Split:
    """Reads FLOOR(column / w) * w: ranges of width w, named by their lower ends."""
    sides = sorted((node.left, node.right), key=lambda side: isinstance(side, x.Floor))
    quotient = sides[1].this.unnest() if isinstance(sides[1], x.Floor) else None
    whole = {name for name, argument in sides[1].args.items() if argument} == {"this"}  # FLOOR of no decimals
    if not (
        whole and isinstance(quotient, x.Div) and isinstance(quotient.left, x.Column) and quotient.right == sides[0]
    ):
        text.instead(node, "write FLOOR(column / 10) * 10, the same number twice")
    name, width = text.column_of(node), text.number(sides[0])
    if width <= 0:
        text.instead(node, "write a number greater than 0")
    column, step = text.schema.numeric(name), int(width) if width.denominator == 1 else float(width)
    first, last = (math.floor(end / width) for end in (column.low, column.low + column.cells * column.width))
    return _evenly(text, node, name, (first + 1) * width, width, last - first, lambda number: (first + number) * step)


def _period(text: Text, node: x.Expr) -> Calendar:
    """Reads DATE_TRUNC, and EXTRACT of a year or a weekday."""
    unit_node = node.args.get("unit") or node.this
    unit = "year" if isinstance(node, x.Year) else unit_node.name.lower()
    unit = {"dow": "weekday", "dayofweek": "weekday"}.get(unit, unit)
    truncates = isinstance(node, (x.DateTrunc, x.TimestampTrunc))
    possible = [period for period in PERIODS if (period != "weekday" if truncates else period in ("year", "weekday"))]
    if unit not in possible or node.args.get("zone"):
        text.instead(node, "write DATE_TRUNC('month', column), of year, quarter or month; EXTRACT of YEAR or DOW")
    return Calendar(text.bare(node), unit)


CHOSEN = (
    "groups were chosen or put in order by noisy numbers, so the intervals of those shown hold less often than they say"
)
TITLE = 100  # characters of a statement above its answer
CLAUSES = {
    "joins": "JOIN: one table is asked; the data provider can join before",
    "with_": "WITH: write one SELECT",
    "distinct": "DISTINCT: declared values are public, see h.schema; GROUP BY the column to count them",
    "qualify": "QUALIFY: write HAVING",
    "windows": "WINDOW: write GROUP BY",
    "offset": "OFFSET: write LIMIT alone, and leave out rows of the answer",
}
READ = {"expressions", "from_", "where", "group", "having", "order", "limit"}
STATISTICS: dict[type[x.Expr], type[Statistic]] = {
    x.Sum: SumStatistic,
    x.Avg: MeanStatistic,
    x.Stddev: StandardDeviation,
    x.StddevPop: StandardDeviation,
    x.StddevSamp: StandardDeviation,
    x.Variance: Variance,
    x.VariancePop: Variance,
}
QUANTILES = (x.Median, x.Quantile, x.ApproxQuantile, x.PercentileCont, x.PercentileDisc, x.WithinGroup)
# What may stand in a function of a column: sqlglot writes YEAR(d) of some dialects with a cast that changes no date.
READ_IN_FUNCTIONS = (x.Column, x.Identifier, x.Literal, x.Var, x.Order, x.Ordered, x.TsOrDsToDate, *QUANTILES)
NAMED_QUANTILES = ("QUANTILE_CONT", "QUANTILE_DISC", "PERCENTILE", "APPROX_PERCENTILE", "PERCENTILE_APPROX")
COMPARED: dict[type[x.Expr], np.ufunc] = {
    x.GT: np.greater,
    x.GTE: np.greater_equal,
    x.LT: np.less,
    x.LTE: np.less_equal,
}
INSTEAD: dict[type[x.Expr], str] = {
    x.Max: "one row decides it, so no noise hides the row; write QUANTILE({0}, 0.99)",
    x.Min: "one row decides it, so no noise hides the row; write QUANTILE({0}, 0.01)",
    x.Distinct: "one row decides whether a value occurs; declared values are public, GROUP BY them",
    x.Window: "write GROUP BY, and compute with the answer's rows",
    x.Star: "rows are never shown; write COUNT(*)",
    x.Subquery: "write one SELECT",
    x.Round: "answers have noise anyway; round the answer's frame",
}


@dataclass(frozen=True)
class Number:
    """A number for each group: a statistic of a column, perhaps of the rows in parts of splits.

    Attributes:
        share: The proportion of rows below a quantile; 0 for other statistics.
        where: Splits, and the numbers of their parts, that the rows must be in.
    """

    maker: type[Statistic]
    column: str = ""
    share: Fraction = Fraction(0)
    where: tuple[tuple[Spec, int], ...] = ()

    def kind(self, shares: Sequence[Fraction]) -> Kind:
        options: dict[str, Any] = {"shares": tuple(sorted(shares))} if self.maker is Quantile else {}
        return partial(self.maker, where=self.where, **options), self.column, 1


GroupValues = Mapping[Number, np.ndarray]
"""The values of each number, one for each group."""


class Select:
    """A statement, read against the public schema of a handle.

    Raises:
        QueryError: The statement cannot be answered.
    """

    def __init__(self, text: Text, handle: PrivateQueryable, dialect: str) -> None:
        self.text, self.handle = text, handle
        self.keys: list[Key] = []
        self.shown: list[tuple[str, Number]] = []
        self._aliases: dict[str, Number] = {}
        try:
            tree = text.parsed(dialect)
            self._require_select(tree)
            where, having = tree.args.get("where"), tree.args.get("having")
            for spec, index in filters(text, where.this) if where else ():
                self.handle = narrowed(self.handle, spec, index)
            self._read_items(tree)
            self._having = self._condition(having.this) if having else None
            ordered = tree.args["order"].expressions if tree.args.get("order") else []
            self._order = [(self._ordered(tree, each.this), bool(each.args.get("desc"))) for each in ordered]
            self._limit = self._count(tree.args["limit"]) if tree.args.get("limit") else None
            if not self.shown:
                text.refuse(tree, "SELECT without a number: rows are never shown, so write COUNT(*), AVG(column), ...")
        except RecursionError:
            raise QueryError("the statement is nested too deeply; write fewer brackets.") from None

    def _require_select(self, tree: x.Expr) -> None:
        if not isinstance(tree, x.Select):
            self.text.refuse(tree, f"{tree.key.upper()}: write SELECT ... FROM {self.handle.dataset}")
        for name, clause in tree.args.items():
            if clause and name not in READ:
                self.text.refuse(clause, CLAUSES.get(name, f"{name.strip('_').upper()}: leave it out"))
        table, dataset = tree.args.get("from_") and tree.args["from_"].this, self.handle.dataset
        if not isinstance(table, x.Table) or not isinstance(table.this, x.Identifier):
            self.text.refuse(table or tree, f"FROM something else than one table: write FROM {dataset}")
        if any(clause_ and name not in ("this", "db", "catalog", "alias") for name, clause_ in table.args.items()):
            self.text.instead(table, f"the whole table is asked; write FROM {dataset}")
        short = dataset.rpartition(".")[2] if self.handle.tables else dataset  # clinic.visits is `visits` too
        named = {table.name.casefold(), f"{table.db}.{table.name}".casefold()}
        if dataset != "simulated" and not named & {dataset.casefold(), short.casefold()}:
            self.text.refuse(table, f"`{table.name}` is another table: this handle is on `{dataset}`")

    # Groups and numbers

    def _read_items(self, tree: x.Expr) -> None:
        group = tree.args.get("group")
        for name, clause in (group.args if group else {}).items():
            if clause and name != "expressions":
                self.text.refuse(group, f"{name.upper()}: write columns, and take crosstab(..., margins=True) for sums")
        named, grouped = {item.alias.casefold(): item for item in tree.expressions if item.alias}, []
        for written in group.expressions if group else ():
            item = self._item(tree, written) or named.get(written.name.casefold(), written)
            grouped.append(item.unalias())
            self.keys.append(Key.read(self.text, item.unalias(), item.alias))
        for item in tree.expressions:
            if item.unalias() not in grouped:
                number = self._statistic(item.unalias())
                self._aliases[item.alias.casefold()] = number
                self.shown.append((item.alias or self.text.sql(item), number))

    def _item(self, tree: x.Expr, written: x.Expr) -> x.Expr | None:
        """The item of the SELECT at a position; None if it is no position."""
        if not (isinstance(written, x.Literal) and written.is_int):
            return None
        position = int(written.this)
        if not 1 <= position <= len(tree.expressions):
            self.text.refuse(written, f"position {position}: the SELECT has {len(tree.expressions)} items")
        return tree.expressions[position - 1]

    def _statistic(self, node: x.Expr) -> Number:
        """Reads a number of some or all rows: FILTER, COUNT_IF, and a CASE inside mean the same."""
        match node:
            case x.Filter():
                return self._among(self._statistic(node.this), node.expression.this)
            case x.CountIf():
                return self._among(Number(CountStatistic), node.this)
            case x.Count() | x.Sum() | x.Avg() if isinstance(node.this, (x.Case, x.If)):
                return self._of_case(node, node.this)
            case x.Count(expressions=[_, *_]):  # of several columns: dialects count them differently
                self._refuse_number(node)
            case x.Count(this=x.Distinct(expressions=[x.Column() as column])) if self._names_unit(column):
                return Number(CountStatistic)
            case x.Count() if isinstance(node.this, (x.Star, x.Literal)):
                return Number(CountStatistic)
            case x.Count() if isinstance(node.this, x.Column):
                return self._among(Number(CountStatistic), x.Not(this=x.Is(this=node.this, expression=x.Null())))
        return self._plain_statistic(node)

    def _among(self, number: Number, condition: x.Expr) -> Number:
        """The number for the rows that meet a condition."""
        return replace(number, where=tuple(filters(self.text, condition)) + number.where)

    def _names_unit(self, node: x.Column) -> bool:
        """Whether this is the column of the privacy unit; refused if a person may have several rows."""
        unit = self.text.schema.bounded_unit
        if unit is None or node.name.casefold() != unit.column.casefold():
            return False
        if unit.max_rows > 1:
            why = f"a value of `{unit.column}` has up to {unit.max_rows:,} rows here, and rows alone are counted"
            why += "; a provider can declare a table of persons (docs/sql.md)"
            self.text.refuse(node, f"COUNT(DISTINCT {unit.column}): {why}; write COUNT(*), which is that many at most")
        return True

    def _of_case(self, node: x.Expr, case: x.Case | x.If) -> Number:
        """Reads SUM(CASE WHEN condition THEN column ELSE 0 END) and similar calls: a number of some rows."""
        branch, *more = case.args.get("ifs") or [case]
        default = case.args.get("default") or case.args.get("false")
        left_out = default is None or isinstance(default, x.Null)
        left_out |= isinstance(node, x.Sum) and isinstance(default, x.Literal) and default.this == "0"
        value, counts = branch.args["true"], not isinstance(node, x.Avg)
        if left_out and not more and (branch is case or case.this is None):
            if counts and isinstance(value, x.Literal) and (isinstance(node, x.Count) or value.this == "1"):
                return self._among(Number(CountStatistic), branch.this)
            if isinstance(value, x.Column):
                return self._among(self._statistic(type(node)(this=value)), branch.this)
        self.text.instead(node, f"write {node.key.upper()}(column) FILTER (WHERE condition)")

    def _plain_statistic(self, node: x.Expr) -> Number:
        if isinstance(node, QUANTILES) or (isinstance(node, x.Anonymous) and node.name.upper() in NAMED_QUANTILES):
            shares = [self.text.number(share) for share in node.find_all(x.Literal)]
            share = shares[0] if len(shares) == 1 else Fraction(1, 2)
            if 0 < share < 1 and len(shares) == (not isinstance(node, x.Median)):
                down = any(each.args.get("desc") for each in node.find_all(x.Ordered))
                return Number(Quantile, self.text.bare(node), 1 - share if down else share)
            self.text.instead(node, "write QUANTILE(column, share), one share between 0 and 1")
        if type(node) in STATISTICS and isinstance(node.this, x.Column):
            return Number(STATISTICS[type(node)], self.text.column_of(node))
        self._refuse_number(node)

    def _refuse_number(self, node: x.Expr) -> NoReturn:
        if isinstance(node, x.Binary):
            self.text.instead(node, "ask for each number, and compute with the answers")
        inner = next((each for each in node.walk() if type(each) in INSTEAD), None)
        if inner is not None:
            column = next((each.name for each in node.find_all(x.Column)), "column")
            self.text.instead(node, f"{INSTEAD[type(inner)].format(column)}")
        if isinstance(node, x.Column) and not self.keys:
            self.text.instead(node, "rows are never shown; GROUP BY the column and write COUNT(*)")
        numbers = "COUNT, SUM, AVG, MEDIAN, QUANTILE(column, share), STDDEV or VARIANCE of a column"
        self.text.instead(node, f"write {numbers}, or a column of GROUP BY")

    # HAVING, ORDER BY and LIMIT

    def _number_of(self, node: x.Expr) -> Number:
        """The number that an alias or an expression of HAVING or ORDER BY names."""
        number = self._aliases.get(node.name.casefold() if isinstance(node, x.Column) else "-") or self._statistic(node)
        if number not in [shown for _, shown in self.shown]:
            self.shown.append((self.text.sql(node), number))
        return number

    def _ordered(self, tree: x.Expr, node: x.Expr) -> Number | int:
        """The number of an item of ORDER BY, or the position of its key."""
        node = (self._item(tree, node) or node).unalias()
        for position, key in enumerate(self.keys):
            if node == key.written or (isinstance(node, x.Column) and node.name.casefold() == key.name.casefold()):
                return position
        return self._number_of(node)

    def _condition(self, node: x.Expr) -> Callable[[GroupValues], np.ndarray]:
        """Reads HAVING as a function from the numbers of all groups to a truth value for each group."""
        node = node.unnest()
        if isinstance(node, (x.And, x.Or)):
            sides = [self._condition(side) for side in node.flatten()]
            join = np.logical_and.reduce if isinstance(node, x.And) else np.logical_or.reduce
            return lambda values: np.asarray(join([side(values) for side in sides]))
        compare = COMPARED.get(type(node))
        if compare is None:
            self.text.refuse(node, f"`{self.text.sql(node)}` in HAVING: compare a number with a constant by < or >")
        number, limit = self._number_of(node.this), float(self.text.number(node.expression))
        if number.column and self.text.schema.numeric(number.column).unit:
            self.text.refuse(node, f"`{self.text.sql(node)}` in HAVING: dates are compared in the answer's frame")
        return lambda values: np.asarray(compare(values[number].astype(float), limit))

    def _count(self, limit: x.Expr) -> int:
        options, written = limit.args.get("limit_options"), limit.args.get("expression") or limit.args.get("count")
        plain = options is None or not (options.args.get("percent") or options.args.get("with_ties"))
        count = self.text.constant(written) if written and plain else None
        if not isinstance(count, int) or count < 1:
            self.text.refuse(limit, "LIMIT: write a whole number from 1")
        return count

    # The answer

    def draft(self, epsilon: Epsilon, level: float, *, reuse: bool) -> Draft:
        """Drafts the queries: one for each statistic, and one for all quantiles of a column."""
        kinds: dict[Number, list[Number]] = {}  # all quantiles of a column have one query
        for number in dict.fromkeys(number for _, number in self.shown):
            kinds.setdefault(replace(number, share=Fraction(0)), []).append(number)
        statistics = [kind.kind([number.share for number in numbers]) for kind, numbers in kinds.items()]
        title = " ".join(self.text.plain.split())
        title = title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"
        rough = any(issubclass(number.maker, Variance) for _, number in self.shown)
        notes_of = {CHOSEN: bool(self._having or self._order), ROUGH: rough}
        notes = (*dict.fromkeys(self.text.notes), *(note for note, holds in notes_of.items() if holds))
        specs = [key.spec for key in self.keys] or None
        draft = drafted(self.handle, title, specs, statistics, epsilon, level, reuse, notes, "bars")
        return replace(draft, answer=lambda: self._arranged(draft.answer(), kinds))

    def _arranged(self, table: Table, kinds: Mapping[Number, Sequence[Number]]) -> Table:
        """Arranges the answer: the groups of the statement, their order and their names."""
        in_order = [number for kind in kinds for number in sorted(kinds[kind], key=lambda number: number.share)]
        places = {number: place for place, number in enumerate(in_order)}
        per_group, numbers = len(places), table.frame["value"].to_numpy()
        values = {number: numbers[place::per_group] for number, place in places.items()}
        axes = [bind(key.spec, self.text.schema).axes[0] for key in self.keys]
        groups = (
            np.indices([axis.size for axis in axes]).reshape(len(axes), -1) if axes else np.zeros((0, 1), dtype=int)
        )
        is_kept = self._possible(axes, groups)
        if self._having is not None:
            is_kept &= self._having(values)
        order = np.flatnonzero(is_kept).tolist()
        for by, down in reversed(self._order):  # stable sorts, so the first key comes last
            order.sort(key=(groups[by] if isinstance(by, int) else values[by]).__getitem__, reverse=down)
        order = order[: self._limit]
        rows = [group * per_group + places[number] for group in order for _, number in self.shown]
        frame = table.frame.iloc[rows].reset_index(drop=True)
        shown = dict[str, Any]()
        for position, key in enumerate(self.keys):
            labels = (
                [key.labels[groups[position][row // per_group]] for row in rows]
                if key.labels
                else frame.iloc[:, position]
            )
            name = f"{key.name}_" if key.name in (*shown, *NUMBERS, "answer") else key.name
            shown[name] = pd.Series(list(labels), dtype=object)
        shown["answer"] = [name for name, _ in self.shown] * len(order)
        answer = pd.DataFrame(shown | {name: frame[name] for name in NUMBERS})
        return replace(table, frame=answer, scale=table.scale.iloc[rows].reset_index(drop=True))

    def _possible(self, axes: Sequence[Axis], groups: np.ndarray) -> np.ndarray:
        """Whether WHERE leaves a value in each group; a public fact."""
        part = next(iter(self.handle.parts().part_set))
        possible = np.ones(groups.shape[1], dtype=bool)
        for axis, positions in zip(axes, groups, strict=True):
            name = str(axis.column)
            left = part.values_left(name, self.text.schema.column(name).codes)
            possible &= np.isin(positions, axis.parts_of(np.flatnonzero(left)))
        return possible
