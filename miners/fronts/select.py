# SPDX-License-Identifier: Apache-2.0
"""A SELECT that was read: which rows, which groups, which numbers of each, and how the answer looks.

The reader is a closed list. Whatever stands in a statement and is not read here is refused by its
name, with its place in the text and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd
from sqlglot import expressions as x

from miners.fronts.conditions import Key, Text, filters
from miners.tables.columns import narrowed
from miners.tables.groups import ROUGH, Kind, drafted
from miners.tables.quantile_search import Quantile
from miners.tables.statistics import CountStatistic, MeanStatistic, StandardDeviation, Statistic, SumStatistic, Variance
from miners.tables.table import NUMBERS
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from pinq.public.specs import bind

if TYPE_CHECKING:
    from miners.tables.table import Draft, Table
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.public.specs import Axis

__all__ = ["Select"]

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
HALF = Fraction(1, 2)
QUANTILES = (x.Median, x.Quantile, x.ApproxQuantile, x.PercentileCont, x.PercentileDisc, x.WithinGroup)
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
    x.Filter: "write the condition in WHERE, or GROUP BY the column",
    x.Star: "rows are never shown; write COUNT(*)",
    x.Subquery: "write one SELECT",
    x.Round: "answers have noise anyway; round the answer's frame",
}


@dataclass(frozen=True)
class Number:
    """A number that is asked of each group: a statistic of a column, of a quantile its share."""

    maker: type[Statistic]
    column: str = ""
    share: Fraction = Fraction(0)

    def kind(self, shares: Sequence[Fraction]) -> Kind:
        """What is asked: one statistic, for quantiles of all shares of the column."""
        maker = partial(Quantile, shares=tuple(sorted(shares))) if self.maker is Quantile else self.maker
        return maker, self.column, 1


Values = Mapping[Number, np.ndarray]
"""Of each number the value in every group."""


class Select:
    """A statement, read against the public schema of a handle.

    Args:
        text: As it was written.
        handle: On a table, or on a part of it.
        dialect: Whose SQL it is.

    Raises:
        QueryError: What cannot be asked.
    """

    def __init__(self, text: Text, handle: PrivateQueryable, dialect: str) -> None:
        self.text, self.handle = text, handle
        self.keys: list[Key] = []
        self.shown: dict[Number, str] = {}
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
        table, own = tree.args.get("from_") and tree.args["from_"].this, self.handle.dataset
        if not isinstance(table, x.Table) or not isinstance(table.this, x.Identifier):
            self.text.refuse(table or tree, f"FROM something else than one table: write FROM {own}")
        if own != "simulated" and table.name.casefold() != own.casefold():
            self.text.refuse(table, f"`{table.name}` is another table: this handle is on `{own}`")

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
                number = self._number(item.unalias())
                self._aliases[item.alias.casefold()] = number
                self.shown[number] = item.alias or self.shown[number]

    def _item(self, tree: x.Expr, written: x.Expr) -> x.Expr | None:
        """Returns the item of the SELECT that a position names; None where it is no position."""
        if not (isinstance(written, x.Literal) and written.is_int):
            return None
        position = int(written.this)
        if not 1 <= position <= len(tree.expressions):
            self.text.refuse(written, f"position {position}: the SELECT has {len(tree.expressions)} items")
        item: x.Expr = tree.expressions[position - 1]
        return item

    def _number(self, node: x.Expr) -> Number:
        """Notes a number that is asked, once."""
        number = self._statistic(node)
        self.shown.setdefault(number, self.text.sql(node))
        return number

    def _statistic(self, node: x.Expr) -> Number:
        if isinstance(node, x.Count) and isinstance(node.this, (x.Star, x.Literal)):
            return Number(CountStatistic)
        if isinstance(node, x.Count) and isinstance(node.this, x.Column):
            name = self.text.column_of(node)
            if self.text.schema.column(name).nullable:
                instead = f"COUNT(*), less COUNT(*) with WHERE {name} IS NULL"
                self.text.refuse(node, f"`{self.text.sql(node)}`: `{name}` may be missing, so write {instead}")
            return Number(CountStatistic)
        if isinstance(node, QUANTILES) or (isinstance(node, x.Anonymous) and node.name.upper() in NAMED_QUANTILES):
            shares = [self.text.number(share) for share in node.find_all(x.Literal)]
            share = shares[0] if len(shares) == 1 else HALF
            if 0 < share < 1 and len(shares) == (not isinstance(node, x.Median)):
                down = any(each.args.get("desc") for each in node.find_all(x.Ordered))
                return Number(Quantile, self.text.column_of(node), 1 - share if down else share)
            self.text.refuse(node, f"`{self.text.sql(node)}`: write QUANTILE(column, share), one share between 0 and 1")
        if type(node) in STATISTICS and isinstance(node.this, x.Column):
            return Number(STATISTICS[type(node)], self.text.column_of(node))
        self._refuse_number(node)

    def _refuse_number(self, node: x.Expr) -> NoReturn:
        if isinstance(node, x.Binary):
            self.text.refuse(node, f"`{self.text.sql(node)}`: ask for each number, and compute with the answers")
        inner = next((each for each in node.walk() if type(each) in INSTEAD), None)
        if inner is not None:
            column = next((each.name for each in node.find_all(x.Column)), "column")
            self.text.refuse(node, f"`{self.text.sql(node)}`: {INSTEAD[type(inner)].format(column)}")
        if isinstance(node, x.Column) and not self.keys:
            self.text.refuse(
                node, f"`{self.text.sql(node)}`: rows are never shown; GROUP BY the column and write COUNT(*)"
            )
        known = "COUNT, SUM, AVG, MEDIAN, QUANTILE(column, share), STDDEV or VARIANCE of a column"
        self.text.refuse(node, f"`{self.text.sql(node)}`: write {known}, or a column of GROUP BY")

    # What answers decide

    def _answered(self, node: x.Expr) -> Number:
        """Returns the number that an alias or an expression of HAVING or ORDER BY names."""
        return self._aliases.get(node.name.casefold() if isinstance(node, x.Column) else "-") or self._number(node)

    def _ordered(self, tree: x.Expr, node: x.Expr) -> Number | int:
        """Returns what ORDER BY names: a number, or the position of a key."""
        node = (self._item(tree, node) or node).unalias()
        for position, key in enumerate(self.keys):
            if node == key.written or (isinstance(node, x.Column) and node.name.casefold() == key.name.casefold()):
                return position
        return self._answered(node)

    def _condition(self, node: x.Expr) -> Callable[[Values], np.ndarray]:
        """Reads HAVING: from the numbers of all groups to one truth for each."""
        node = node.unnest()
        if isinstance(node, (x.And, x.Or)):
            sides = [self._condition(side) for side in node.flatten()]
            join = np.logical_and.reduce if isinstance(node, x.And) else np.logical_or.reduce
            return lambda values: np.asarray(join([side(values) for side in sides]))
        compare = COMPARED.get(type(node))
        if compare is None:
            self.text.refuse(node, f"`{self.text.sql(node)}` in HAVING: compare a number with a constant by < or >")
        number, limit = self._answered(node.this), float(self.text.number(node.expression))
        if number.column and self.text.schema.numeric(number.column).unit:
            self.text.refuse(node, f"`{self.text.sql(node)}` in HAVING: dates are compared in the answer's frame")
        return lambda values: np.asarray(compare(values[number].astype(float), limit))

    def _count(self, limit: x.Expr) -> int:
        count = self.text.constant(limit.expression)
        if not isinstance(count, int) or count < 1:
            self.text.refuse(limit, "LIMIT: write a whole number from 1")
        return count

    # The answer

    def draft(self, epsilon: Epsilon, level: float, *, reuse: bool) -> Draft:
        """Says what is going to be asked, each statistic once and quantiles of a column together."""
        kinds: dict[tuple[object, str], list[Number]] = {}
        for number in self.shown:
            kinds.setdefault((number.maker, number.column), []).append(number)
        asked = [numbers[0].kind([number.share for number in numbers]) for numbers in kinds.values()]
        title = " ".join(self.text.plain.split())
        title = title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"
        rough = any(issubclass(number.maker, Variance) for number in self.shown)
        told = {CHOSEN: bool(self._having or self._order), ROUGH: rough}
        notes = (*dict.fromkeys(self.text.notes), *(note for note, holds in told.items() if holds))
        specs = [key.spec for key in self.keys] or None
        draft = drafted(self.handle, title, specs, asked, epsilon, level, reuse, notes, "bars")
        return replace(draft, answer=lambda: self._arranged(draft.answer(), kinds))

    def _arranged(self, table: Table, kinds: Mapping[tuple[object, str], Sequence[Number]]) -> Table:
        """Writes the answer as the statement wants it: which groups, in which order, and what they are called."""
        asked = [number for kind in kinds for number in sorted(kinds[kind], key=lambda number: number.share)]
        places = {number: place for place, number in enumerate(asked)}
        each, numbers = len(places), table.frame["value"].to_numpy()
        values = {number: numbers[place::each] for number, place in places.items()}
        axes = [bind(key.spec, self.text.schema).axes[0] for key in self.keys]
        groups = (
            np.indices([axis.size for axis in axes]).reshape(len(axes), -1) if axes else np.zeros((0, 1), dtype=int)
        )
        kept = self._possible(axes, groups)
        if self._having is not None:
            kept &= self._having(values)
        order = np.flatnonzero(kept).tolist()
        for by, down in reversed(self._order):  # sorts keep the order of equal ones
            order.sort(key=(groups[by] if isinstance(by, int) else values[by]).__getitem__, reverse=down)
        order = order[: self._limit]
        rows = [group * each + places[number] for group in order for number in self.shown]
        frame = table.frame.iloc[rows].reset_index(drop=True)
        shown = dict[str, Any]()
        for position, key in enumerate(self.keys):
            labels = (
                [key.labels[groups[position][row // each]] for row in rows] if key.labels else frame.iloc[:, position]
            )
            name = f"{key.name}_" if key.name in (*shown, *NUMBERS, "answer") else key.name
            shown[name] = pd.Series(list(labels), dtype=object)
        shown["answer"] = list(self.shown.values()) * len(order)
        answer = pd.DataFrame(shown | {name: frame[name] for name in NUMBERS})
        return replace(table, frame=answer, scale=table.scale.iloc[rows].reset_index(drop=True))

    def _possible(self, axes: Sequence[Axis], groups: np.ndarray) -> np.ndarray:
        """Which groups WHERE leaves a value to; public."""
        part = next(iter(self.handle.parts().part_set))
        possible = np.ones(groups.shape[1], dtype=bool)
        for axis, positions in zip(axes, groups, strict=True):
            name = str(axis.column)
            left = part.values_left(name, self.text.schema.column(name).codes)
            possible &= np.isin(positions, axis.parts_of(np.flatnonzero(left)))
        return possible
