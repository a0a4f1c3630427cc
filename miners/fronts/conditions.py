# SPDX-License-Identifier: Apache-2.0
"""Conditions and groups of an SQL statement, read as declared splits of the schema's columns.

A condition on one column is the set of its public codes that meet it, and the set that do not;
missing values are in neither, as in SQL. Sets of codes are joined by AND, OR and NOT. One that is
an interval of a grid, or any of a column with listed values, is a part of a split, and a CASE is a
split by several of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import numpy as np
import sqlglot
from sqlglot import expressions as x

from miners.tables.columns import is_categorical, missing_apart, specs_of
from pinq.errors import QueryError, printable
from pinq.public.checks import closest
from pinq.public.dates import PERIODS
from pinq.public.schema import Schema, Value
from pinq.public.specs import Calendar, Cuts, Groups, Spec, Values

__all__ = ["Key", "Text", "filters"]

PLAIN = "snowflake"
"""The grammar of sqlglot that reads TOP beside LIMIT, and all else as standard SQL."""
MAX_TEXT = 20_000  # characters: a statement is read before anything is known of it
MAX_DIGITS = 30  # more than any declared bound has
SHOWN = 80  # characters of a statement that an error quotes
MAX_BINS = 10_000
Constant = str | int | Decimal | bool | None
Split = tuple[Spec, tuple[Value | None, ...]]
"""A split, and what its parts are called."""


class Text:
    """A statement as it was written, with the public schema that it is read against.

    Attributes:
        explains: Whether it begins with EXPLAIN.
        notes: What was read otherwise than written.
    """

    def __init__(self, written: object, schema: Schema) -> None:
        if not isinstance(written, str) or not 0 < len(written.strip()) <= MAX_TEXT:
            allowed = f"the text of one SELECT, of at most {MAX_TEXT:,} characters"
            raise QueryError(f"is {str(written)[:SHOWN]!r}", parameter="query", allowed=allowed)
        # Spaces in the place of EXPLAIN keep each place in the text.
        self.written, self.schema, self.notes = written, schema, list[str]()
        self.plain = re.sub(r"^\s*EXPLAIN\b", lambda found: " " * len(found[0]), written, flags=re.IGNORECASE)
        self.explains = self.plain != written
        self._names = {name.casefold(): name for name in reversed(schema.columns)}

    def parsed(self, dialect: str) -> x.Expr:
        """Reads the statement's grammar. ``QueryError`` where it is not one statement."""
        first = re.match(r"\s*(\w+)", self.plain)
        if first is not None and first[1].upper() not in ("SELECT", "WITH"):
            raise self.error(f"{first[1][:SHOWN].upper()}: write SELECT", first.start(1))
        if dialect not in [known.value for known in sqlglot.Dialects]:
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
        """Raises ``QueryError``: what is refused, where it stands, and what to write instead."""
        listed = node if isinstance(node, list) else [node]
        nodes = [inner for each in listed if isinstance(each, x.Expr) for inner in each.walk()]
        starts = [inner.meta["start"] for inner in nodes if "start" in inner.meta]
        keyword = re.search(re.escape(why.split()[0].strip("`:,")), self.plain, re.IGNORECASE)
        raise self.error(why, min(starts) if starts else keyword.start() if keyword else 0)

    def error(self, why: str, offset: int) -> QueryError:
        """Makes an error with the place of a character in the text."""
        before = self.plain[:offset]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        near = printable(self.plain[offset : offset + SHOWN // 2].split("\n")[0].strip())
        return QueryError(f"{why} (line {line}, column {column}{f': {near!r}' if near else ''}).")

    def column_of(self, node: x.Expr) -> str:
        """Returns the one declared column that an expression names, whatever its case."""
        found = {column.name: column for column in node.find_all(x.Column)}
        if len(found) != 1 or node.find(x.Subquery, x.Select):
            names = " and ".join(map(repr, found)) or "none"
            self.refuse(node, f"`{self.sql(node)}` names {names} of the columns: write conditions on one column each")
        (name, column), known = *found.items(), self._names
        if name.casefold() not in known:
            hint = closest(name, self.schema.columns)
            self.refuse(column, f"`{name}` is no column{hint}; there are {', '.join(self.schema.columns)}")
        return known[name.casefold()]

    def constant(self, node: x.Expr) -> Constant:
        """Reads a constant: a number, a text, a date, a truth value or NULL."""
        if isinstance(node, x.Neg) and isinstance(value := self.constant(node.this), (int, Decimal)):
            return -value
        if isinstance(node, (x.Cast, x.Date, x.Paren)) and isinstance(node.this, x.Expr):
            return self.constant(node.this)
        if isinstance(node, (x.Boolean, x.Null)):
            return None if isinstance(node, x.Null) else bool(node.this)
        if not isinstance(node, x.Literal):
            self.refuse(node, f"`{self.sql(node)}`: write a constant here")
        if node.is_string:
            return str(node.this)
        number = Decimal(node.this) if len(node.this) <= MAX_DIGITS else None
        if number is None or abs(number.adjusted()) > MAX_DIGITS:  # exact arithmetic with it would take for ever
            self.refuse(node, f"`{self.sql(node)}`: write a number of at most {MAX_DIGITS} digits")
        return int(number) if node.is_int else number

    def number(self, node: x.Expr) -> Fraction:
        """Reads a number."""
        value = self.constant(node)
        if isinstance(value, (str, bool)) or value is None:
            self.refuse(node, f"`{self.sql(node)}`: write a number here")
        return Fraction(value)

    def sql(self, node: x.Expr) -> str:
        """Writes an expression for an error or a heading."""
        text = printable(node.sql(dialect=PLAIN))
        return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"

    def _offset(self, error: Exception) -> int:
        """Where the word stands at which the parser stopped."""
        found: dict[str, Any] = next(iter(getattr(error, "errors", [])), {})
        lines = self.plain.split("\n")[: found.get("line", 1) - 1]
        return sum(len(each) + 1 for each in lines) + max(found.get("col", 0) - len(found.get("highlight", "")), 0)


class Codes(NamedTuple):
    """Which codes of a column meet a condition, and which do not; missing values may be in neither."""

    met: np.ndarray
    unmet: np.ndarray


@dataclass(frozen=True)
class Condition:
    """Reads a condition on one column."""

    text: Text
    name: str

    @property
    def codes(self) -> int:
        return self.text.schema.column(self.name).codes

    @property
    def missing(self) -> np.ndarray:
        return np.arange(self.codes) >= self.text.schema.column(self.name).cells

    def read(self, node: x.Expr) -> Codes:
        """Returns the codes that meet the condition, and those that do not."""
        match node:
            case x.Paren():
                return self.read(node.this)
            case x.Not():
                return Codes(*reversed(self.read(node.this)))
            case x.And() | x.Or():
                sides = [self.read(side) for side in node.flatten()]
                every, some = (np.logical_and.reduce, np.logical_or.reduce)
                if isinstance(node, x.Or):
                    every, some = some, every
                return Codes(every([side.met for side in sides]), some([side.unmet for side in sides]))
            case x.Is() if isinstance(node.expression, x.Null):
                return Codes(self.missing, ~self.missing)
            case x.In() if node.expressions:
                met = [self._compared(node, x.EQ, self.text.constant(each)) for each in node.expressions]
                return self._known(np.logical_or.reduce(met))
            case x.Between():
                low, high = (self.text.constant(node.args[end]) for end in ("low", "high"))
                return self._known(self._compared(node, x.GTE, low) & self._compared(node, x.LTE, high))
            case x.EQ() | x.NEQ() | x.GT() | x.GTE() | x.LT() | x.LTE():
                flipped = not isinstance(node.this, x.Column)
                kind = FLIPPED.get(type(node), type(node)) if flipped else type(node)
                side, value = (node.right, node.left) if flipped else (node.left, node.right)
                if isinstance(side, x.Column):
                    return self._known(self._compared(node, kind, self.text.constant(value)))
        self.text.refuse(
            node, f"`{self.text.sql(node)}`: compare a column with constants by =, <, IN, BETWEEN or IS NULL"
        )

    def _known(self, met: np.ndarray) -> Codes:
        return Codes(met & ~self.missing, ~met & ~self.missing)

    def _compared(self, node: x.Expr, kind: type[x.Expr], value: Constant) -> np.ndarray:
        """Compares all codes with a constant; missing values as it comes."""
        if value is None:
            self.text.refuse(node, f"`{self.text.sql(node)}` holds for no row: write IS NULL")
        codes = np.arange(self.codes)
        if not is_categorical(self.text.schema, self.name):
            return self._on_grid(node, kind, value, codes)
        column = self.text.schema.categorical(self.name)
        if kind not in (x.EQ, x.NEQ):
            listed = "write = or IN; its values are a list, which has no order"
            self.text.refuse(node, f"`{self.text.sql(node)}` compares `{self.name}` by order: {listed}")
        equal = np.equal(codes, column.code_of(value, self.name))  # type: ignore[arg-type]
        return equal if kind is x.EQ else ~equal

    def _on_grid(self, node: x.Expr, kind: type[x.Expr], value: Any, codes: np.ndarray) -> np.ndarray:
        """Compares the cells of a grid with a number or a date.

        Ages of 17 to 90 in cells of ones: `> 30.5` and `>= 31` are the cells from 14 on. In cells of
        5 from 0 on, `< 20` are cells 0 to 3; nothing says which rows of cell 4 are `<= 20`.
        """
        column = self.text.schema.numeric(self.name)
        place = (column.number_of(value, self.name) - column.low) / column.width
        first = math.ceil(place - Fraction(column.tolerance))
        from_there = codes >= first
        if kind in (x.GTE, x.LT):
            if column.half_cell and 0 < place < column.cells and abs(place - first) > column.tolerance:
                edge = column.text(column.edge(first))
                self.text.notes.append(f"{self.text.sql(node)} is read at {edge}, where the next grid cell begins")
            return from_there if kind is x.GTE else ~from_there
        if column.half_cell and 0 <= place < column.cells:
            instead = "write >= and <: the column is read in grid cells, which hold their lower ends"
            self.text.refuse(node, f"`{self.text.sql(node)}`: {instead}")
        beyond = codes > math.floor(place)
        met: dict[type[x.Expr], np.ndarray] = {x.GT: beyond, x.LTE: ~beyond, x.EQ: from_there & ~beyond}
        return met.get(kind, ~from_there | beyond)


FLIPPED: dict[type[x.Expr], type[x.Expr]] = {x.GT: x.LT, x.LT: x.GT, x.GTE: x.LTE, x.LTE: x.GTE}


def filters(text: Text, where: x.Expr) -> list[tuple[Spec, int]]:
    """Reads WHERE: for each column that it names, a split and which part of it is meant."""
    by_column: dict[str, list[x.Expr]] = {}
    for term in where.unnest().flatten() if isinstance(where.unnest(), x.And) else [where]:
        by_column.setdefault(text.column_of(term), []).append(term)
    found = (_filter(text, name, terms) for name, terms in by_column.items())
    return [part for part in found if part is not None]


def _filter(text: Text, name: str, terms: Sequence[x.Expr]) -> tuple[Spec, int] | None:
    """Returns the part of a split that meets all conditions on a column; None where every row does."""
    met = np.logical_and.reduce([Condition(text, name).read(term).met for term in terms])
    written, column = " AND ".join(map(text.sql, terms)), text.schema.column(name)
    if not met.any():
        text.refuse(terms[0], f"`{written}` holds for no declared value of `{name}`")
    if met.all():
        return None
    if is_categorical(text.schema, name):
        labels = text.schema.categorical(name).labels
        if met.sum() == 1:
            return Values(name), int(met.argmax())
        inside = tuple(label for label, holds in zip(labels, met, strict=True) if holds)
        return Groups(name, (inside, tuple(label for label in labels if label not in inside))), 0
    cells, numeric = met[: column.cells], text.schema.numeric(name)
    if met.sum() > cells.sum() == 0:
        return missing_apart(text.schema, name)
    starts = np.flatnonzero(np.diff(cells, prepend=False, append=False))
    if met.sum() > cells.sum() or len(starts) > 2:
        instead = "GROUP BY a CASE of the column, and add up its rows"
        text.refuse(terms[0], f"`{written}` holds for rows that lie apart: {instead}")
    first, end = starts.tolist()
    if end - first == column.cells:
        bounds = " to ".join(numeric.bounds)
        text.refuse(
            terms[0],
            f"`{written}` holds for every number of `{name}`, which are {bounds}: leave it out",
        )
    points = [numeric.cut_before(cell) for cell in (first, end) if 0 < cell < column.cells]
    return Cuts(name, tuple(points)), int(first > 0)


@dataclass(frozen=True)
class Key:
    """What GROUP BY groups by: a split, and what its parts are called in the answer.

    Attributes:
        written: The expression.
        name: Of the answer's column.
        spec: The split.
        labels: What its parts are called; those of the split itself where there are none.
    """

    written: x.Expr
    name: str
    spec: Spec
    labels: tuple[Value | None, ...] = ()

    @classmethod
    def read(cls, text: Text, node: x.Expr, name: str) -> Key:
        """Reads what stands in GROUP BY. ``QueryError`` where it is no declared split."""
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
    """Reads a CASE over one column: the split that its conditions make, and what each part is called."""
    name = text.column_of(node)
    condition, column = Condition(text, name), text.schema.column(name)
    branches, labels = np.zeros(column.codes, dtype=np.int64), [_label(text, node.args.get("default"))]
    for branch in reversed(node.args["ifs"]):  # the first that holds counts
        when = branch.this if node.this is None else x.EQ(this=node.this, expression=branch.this)
        labels.append(_label(text, branch.args["true"]))
        branches[condition.read(when).met] = len(labels) - 1
    if is_categorical(text.schema, name):
        listed = text.schema.categorical(name).labels
        present = [number for number in range(len(labels) - 1, -1, -1) if (branches == number).any()]
        merged: dict[Value | None, list[Value | None]] = {}
        for number in present:
            merged.setdefault(labels[number], []).extend(listed[code] for code in np.flatnonzero(branches == number))
        return Groups(name, tuple(map(tuple, merged.values()))), tuple(merged)
    return _ranges(text, node, name, branches[: column.cells], labels.__getitem__)


def _label(text: Text, node: x.Expr | None) -> Value | None:
    value = None if node is None else text.constant(node)
    return str(value) if isinstance(value, Decimal) else value


def _ranges(text: Text, node: x.Expr, name: str, numbers: np.ndarray, label: Callable[[int], Any]) -> Split:
    """Cuts a grid wherever the number of its cells changes, which says what a part is called."""
    column, starts = text.schema.numeric(name), np.flatnonzero(np.diff(numbers)) + 1
    if not 0 < len(starts) <= MAX_BINS:
        text.refuse(node, f"`{text.sql(node)}` makes {len(starts) + 1:,} groups of `{name}`: cut within its bounds")
    parts = [label(int(numbers[start])) for start in (0, *starts)]
    if len(set(parts)) < len(parts):
        text.refuse(node, f"`{text.sql(node)}` gives one name to ranges that lie apart: give each its own")
    if column.nullable:
        text.notes.append(f"missing values of `{name}` are a group of their own")
    return Cuts(name, tuple(map(column.cut_before, starts.tolist()))), (*parts, *(None,) * column.nullable)


def _edges(text: Text, node: x.Expr, name: str) -> np.ndarray:
    """Returns where each cell of a column of numbers begins, by a little more."""
    column = text.schema.numeric(name)
    if column.unit:
        text.refuse(node, f"`{text.sql(node)}`: `{name}` has dates; write DATE_TRUNC('month', {name})")
    return float(column.low) + float(column.width) * (np.arange(column.cells) + column.tolerance)


def _buckets(text: Text, node: x.WidthBucket) -> Split:
    """Reads WIDTH_BUCKET(column, low, high, bins): bin 0 is below low, bin ``bins + 1`` from high on."""
    name = text.column_of(node.this)
    low, high, bins = (text.number(node.args[part]) for part in ("min_value", "max_value", "num_buckets"))
    if not (bins.denominator == 1 and 0 < bins <= MAX_BINS and low < high):
        text.refuse(node, f"`{text.sql(node)}`: write WIDTH_BUCKET(column, low, high, bins), low below high")
    numbers = np.floor((_edges(text, node, name) - float(low)) / float((high - low) / bins))
    return _ranges(text, node, name, np.clip(numbers, -1, int(bins)) + 1, int)


def _floors(text: Text, node: x.Mul) -> Split:
    """Reads FLOOR(column / w) * w: ranges of width w, called by their lower ends."""
    sides = sorted((node.left, node.right), key=lambda side: isinstance(side, x.Floor))
    quotient = sides[1].this.unnest() if isinstance(sides[1], x.Floor) else None
    if not (isinstance(quotient, x.Div) and isinstance(quotient.left, x.Column) and quotient.right == sides[0]):
        text.refuse(node, f"`{text.sql(node)}`: write FLOOR(column / 10) * 10, the same number twice")
    name, width = text.column_of(node), text.number(sides[0])
    if width <= 0:
        text.refuse(node, f"`{text.sql(node)}`: write a number greater than 0")
    numbers = np.floor(_edges(text, node, name) / float(width))
    step = int(width) if width.denominator == 1 else float(width)
    return _ranges(text, node, name, numbers, lambda number: number * step)


def _period(text: Text, node: x.Expr) -> Calendar:
    """Reads DATE_TRUNC, and EXTRACT of a year or a weekday."""
    asked = node.args.get("unit") or node.this
    unit = "year" if isinstance(node, x.Year) else asked.name.lower()
    unit = {"dow": "weekday", "dayofweek": "weekday"}.get(unit, unit)
    truncates = isinstance(node, (x.DateTrunc, x.TimestampTrunc))
    possible = [period for period in PERIODS if (period != "weekday" if truncates else period in ("year", "weekday"))]
    if unit not in possible:
        instead = "DATE_TRUNC('month', column), of year, quarter or month; EXTRACT of YEAR or DOW"
        text.refuse(node, f"`{text.sql(node)}`: write {instead}")
    return Calendar(text.column_of(node), unit)
