# SPDX-License-Identifier: Apache-2.0
"""``Synthesizer`` queries the tables that a model of the rows needs most, one after the other.

``SyntheticTable`` is its model: it draws rows, estimates tables, and distinguishes measured from
inferred tables.

Privacy:
    Claim: free. Why: all of it is computed from released tables (post-processing).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial, reduce
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
import pandas as pd

from miners.budget.plan import (
    Bill,
    Plan,
    PlanLine,
    begin_fit,
    count_line,
    count_scale,
    loss_text,
    patient,
    remember_fit,
    rows_text,
    tell,
)
from miners.estimator import Kept, planned, public_schema
from miners.fitted.node import split_in, split_out
from miners.fitted.theme import RED, axes_of
from miners.growth.candidates import Grid, attribute_cells, attribute_names
from miners.growth.frontier import foreseeing
from miners.synthesizer.graphical_model import ACCURACY, ROUGH, Columns, GraphicalModel, Measured, tree_cells
from miners.tables.columns import Condition
from miners.tables.table import NUMBERS, Table
from pinq.errors import QueryError, unspent
from pinq.language.scores import Misfit
from pinq.language.specs import Axis, Cross, Cuts, Spec, Values, bind
from pinq.public.checks import is_whole, many, whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, laplace_interval, standard_deviation
from pinq.public.schema import Numeric, Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pinq.analyst.queryable import PrivateQueryable


FORMAT, VERSION = "pinq-synthetic", 1
MAX_ROWS = 10**8
SURE = 0.95
FINITE = partial(np.asarray_chkfinite, dtype=np.float64)
INSIDE = 0.02  # of a grid cell: how far a number that is not whole stays from the cell's ends


@dataclass(frozen=True, eq=False)
class Bought(Measured):
    """A noisy table that was paid for.

    Attributes:
        epsilon: Its cost.
        before: The columns as they were asked, where it was bought before the fit.
    """

    epsilon: Epsilon
    before: Columns = ()


def _table_in(sizes: Sequence[int], columns: Any, cells: Any) -> tuple[Columns, np.ndarray]:
    """Reads a table of the columns at some positions. Raises ``ValueError`` unless each cell has a number."""
    if not all(is_whole(number, 0, len(sizes) - 1) for number in columns) or len({*columns}) < len(columns):
        raise ValueError(f"{columns!r} are not positions of different columns")
    return tuple(columns), FINITE(cells).reshape([sizes[number] for number in columns])


@dataclass(frozen=True, eq=False)
class SyntheticTable:
    """A public model of a private table.

    Attributes:
        schema: The public schema.
        specs: The cells of each column.
        model: The distribution over cells.
        bought: The noisy tables that it was made from.
        error: A bound, with 90 % confidence, of the share of rows that a table of two columns that was
            not bought has in a wrong cell, in the quadratic mean; None where all were bought.
        target: The column whose pairs weighed more, if one did.
    """

    schema: Schema
    specs: tuple[Values | Cuts, ...]
    model: GraphicalModel
    bought: tuple[Bought, ...]
    error: float | None
    target: str | None = None

    kept_as: ClassVar[str] = "model"

    @property
    def columns(self) -> list[str]:
        """The columns, in the schema's order."""
        return [spec.column for spec in self.specs]

    @property
    def rows(self) -> int:
        """About how many rows the private table has."""
        return round(self.model.rows)

    def sample(self, rows: int | None = None, *, random_state: int | None = None) -> pd.DataFrame:
        """Draws synthetic rows, in the schema's own values.

        A number lies anywhere in its cell, on the column's grid.

        Args:
            rows: How many; None for about as many as the private table has.
            random_state: The same number, the same rows.

        Returns:
            A frame with the columns of ``columns``; missing values are None or NaN.
        """
        rows = whole_number("rows", self.rows if rows is None else rows, 0, MAX_ROWS)
        random = np.random.default_rng(random_state)
        codes = self.model.sampled(rows, random)[random.permutation(rows)]
        values = {spec.column: self._values(spec, codes[:, number], random) for number, spec in enumerate(self.specs)}
        lone = [name for name, column in self.schema.columns.items() if column.codes == 1]  # columns of one value
        values |= {name: self._values(Values(name), np.zeros(rows, dtype=np.int64), random) for name in lone}
        return pd.DataFrame({name: values[name] for name in self.schema.columns if name in values})

    def table(self, *columns: str) -> Table:
        """Estimates the rows in each cell of some columns; free.

        A table that was bought has the interval of its noise; of others the note says how far tables of
        two columns are off.
        """
        chosen = self._numbered(columns)
        expected = self.model.marginal(chosen) * self.model.rows
        # Tables lie in the schema's order of columns, answers in the caller's: age by sex is sex by age turned.
        turned = [chosen.index(self.columns.index(column)) for column in columns]
        labels = [bind(self.specs[self.columns.index(column)], self.schema).axes[0].labels for column in columns]
        keys = [f"{column}_" if column in NUMBERS else column for column in columns]  # as in other tables
        frame = pd.DataFrame([*itertools.product(*labels)], columns=keys, dtype=object)
        frame["value"] = expected.transpose(turned).ravel()
        measured = min(
            (bought for bought in self.bought if bought.columns == chosen), key=lambda own: own.deviation, default=None
        )  # the most exact
        scale, notes = math.nan, (self._inferred(len(columns)),)
        frame["low"] = frame["high"] = math.nan
        if measured is not None:
            counts = measured.counts.reshape(expected.shape).transpose(turned).ravel()
            scale = measured.deviation / math.sqrt(2)
            half = laplace_interval(scale, SURE)
            frame["low"], frame["high"] = np.maximum(counts - half, 0), np.maximum(counts + half, 0)
            frame["value"] = frame["value"].clip(frame["low"], frame["high"])
            notes = (f"measured at an epsilon of {measured.epsilon}: the interval is that of its noise.",)
        spent = Fraction(sum(bought.epsilon.exact for bought in self.bought))
        picture: Literal["heat", "bars"] = "heat" if len(columns) == 2 else "bars"
        return Table(
            f"Rows by {', '.join(columns)}, of a synthesizer's model",
            frame,
            pd.Series(scale, frame.index),
            spent,
            SURE,
            notes,
            picture,
        )

    def estimate(self, **conditions: Condition) -> float:
        """Estimates how many rows meet all conditions; free.

        Args:
            conditions: As for ``miners.tables.where``: a value or a list of values of a categorical column,
                a pair ``(low, high)`` of a numeric one, None for missing values.

        Returns:
            About so many rows; ``table`` of the columns says how far it may be off.
        """
        if not conditions:
            return self.model.rows
        chosen = self._numbered(tuple(conditions))
        shares = self.model.marginal(chosen)
        for axis, number in enumerate(chosen):
            weights = self._weights(self.specs[number], conditions[self.columns[number]])
            shares = shares * weights.reshape([-1 if other == axis else 1 for other in range(len(chosen))])
        return float(shares.sum() * self.model.rows)

    @cached_property
    def quality(self) -> pd.DataFrame:
        """The measured tables and their accuracy: a row for each table, in the order of the queries.

        Columns: ``table``, ``cells``, ``epsilon``, ``noise`` (standard deviation of each count, rows) and
        ``off`` (the share of rows that the model puts into other cells than the noisy table does).
        """
        return pd.DataFrame([self._line(bought) for bought in self.bought])

    def dependence(self) -> pd.DataFrame:
        """The dependence of each pair of columns: the distance of its table from independence.

        0 is independent, 1 the largest distance there is.
        """
        names = self.columns
        distances = np.zeros((len(names), len(names)))
        for (first, second), joint in self.model.pairs(itertools.combinations(range(len(names)), 2)).items():
            even = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            distances[first, second] = distances[second, first] = np.abs(joint - even).sum() / 2
        return pd.DataFrame(distances, index=names, columns=names)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws how pairs depend on each other as a heat map; a dot marks what was bought. Needs matplotlib."""
        names = self.columns
        ax = axes_of("dependence", ax, (1.8 + 0.42 * len(names), 1.4 + 0.38 * len(names)))
        image = ax.imshow(self.dependence().to_numpy(), cmap="Blues", vmin=0)
        pairs = [bought.columns for bought in self.bought if len(bought.columns) == 2]
        points = np.array([*pairs, *(pair[::-1] for pair in pairs)]).reshape(-1, 2)
        ax.plot(points[:, 0], points[:, 1], "o", color=RED, markersize=4, linestyle="")
        ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=8)
        ax.set_title("Distance of pairs from independence; a dot: measured", fontsize=10, loc="left")
        ax.figure.colorbar(image, ax=ax, label="share of rows")
        return ax

    def export_text(self) -> str:
        """Returns the measured tables, and the model's distance from them, as text."""
        return f"{self!r}\n{self.quality.to_string(index=False)}\n{self._inferred(2)}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the model as plain lists, dicts, texts and numbers."""
        potentials = [[list(columns), table.ravel().tolist()] for columns, table in self.model.potentials.items()]
        bought = [
            [list(each.columns), str(each.epsilon), each.counts.tolist(), each.deviation]
            + ([list(each.before)] if each.before else [])
            for each in self.bought
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "schema": self.schema.model_dump(mode="json"),
            "cells": [split_out(spec) for spec in self.specs],
            "rows": self.model.rows,
            "potentials": potentials,
            "bought": bought,
            "error": self.error,
            "target": self.target,
        }

    @classmethod
    def from_dict(cls, stored: Any) -> SyntheticTable:
        """Reads what ``to_dict`` wrote. Raises ``QueryError`` unless it is whole and valid."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT or stored.get("version") != VERSION:
            raise QueryError(
                f"this is no stored synthesizer: its `format` must be {FORMAT!r}, its `version` {VERSION}."
            )
        try:
            schema = Schema.model_validate(stored["schema"])
            read = [split_in("a column of the stored model", cells) for cells in stored["cells"]]
            specs = tuple(spec for spec in read if isinstance(spec, Values | Cuts))
            if len(specs) != len(read) or stored["target"] not in (None, *schema.columns):
                raise ValueError("a column has no cells, or its target is no column")
            sizes = tuple(bind(spec, schema).size for spec in specs)
            potentials = dict(_table_in(sizes, columns, table) for columns, table in stored["potentials"])
            tables = [_table_in(sizes, columns, counts) for columns, _, counts, *_ in stored["bought"]]
            bought = tuple(
                Bought(numbers, table.ravel(), FINITE(deviation).item(), Epsilon.of(epsilon), *map(tuple, before))
                for (numbers, table), (_, epsilon, _, deviation, *before) in zip(tables, stored["bought"], strict=True)
            )
            model = GraphicalModel(sizes, FINITE(stored["rows"]).item(), potentials)
            error = None if stored["error"] is None else FINITE(stored["error"]).item()
            return cls(schema, specs, model, bought, error, stored["target"])
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise QueryError(f"this is no stored synthesizer: {problem}") from None

    def __repr__(self) -> str:
        pairs = sum(len(bought.columns) == 2 for bought in self.bought)
        columns = many(len(self.specs), "column")
        return f"SyntheticTable of about {self.rows:,} rows: {columns}, {many(pairs, 'pair')} measured"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.quality.to_html(index=False)}<p>{escape(self._inferred(2))}</p>"

    def _numbered(self, columns: Sequence[str]) -> Columns:
        """The numbers of some columns, increasing."""
        for column in columns:
            if column not in self.columns:
                raise QueryError(f"is {column!r}", parameter="columns", allowed=f"one of {', '.join(self.columns)}")
        if not columns or len(set(columns)) < len(columns):
            raise QueryError("is empty or names a column twice", parameter="columns", allowed="different columns")
        return tuple(sorted(self.columns.index(column) for column in columns))

    def _inferred(self, columns: int) -> str:
        if columns > 2:
            return "inferred; relations that exist only among this many columns together are not in the model."
        if self.error is None:
            return "inferred; its error was not measured."
        return (
            f"tables of two columns that were not measured have at most about {self.error:.1%} of rows in a wrong "
            "cell (quadratic mean, 90 % confidence)."
        )

    def _line(self, bought: Bought) -> dict[str, object]:
        shares = self.model.marginal(bought.columns).ravel()
        return {
            "table": " x ".join(self.columns[number] for number in bought.columns),
            "cells": len(bought.counts),
            "epsilon": loss_text(bought.epsilon.exact),
            "noise": round(bought.deviation, 1),
            "off": float(np.abs(bought.counts / self.model.rows - shares).sum() / 2),
        }

    def _values(self, spec: Values | Cuts, cells: np.ndarray, random: np.random.Generator) -> pd.Series:
        """Values of the schema for the cells of a column."""
        column = self.schema.column(spec.column)
        axis = bind(spec, self.schema).axes[0]
        if not isinstance(column, Numeric):
            return pd.Series(np.array([*axis.labels], dtype=object)[cells], dtype=object)
        starts, ends = self._stretches(axis, column)
        missing = cells >= len(starts)
        own = np.where(missing, 0, cells)
        codes = random.integers(starts[own], ends[own])
        inside = 0.0 if column.integer else random.uniform(INSIDE, 1 - INSIDE, len(codes))
        numbers = np.minimum(float(column.lower) + (codes + inside) * float(column.width), float(column.upper))
        shown = pd.Series(column.shown(np.rint(numbers).astype(np.int64) if column.integer else numbers))
        return shown.mask(missing) if missing.any() else shown

    def _stretches(self, axis: Axis, column: Numeric) -> tuple[np.ndarray, np.ndarray]:
        """The first grid cell of each part of a numeric column, and the first of the next; not of missing values."""
        edges = np.unique(axis.edges(column.cells))
        return edges[:-1], edges[1:]

    def _weights(self, spec: Values | Cuts, condition: Condition) -> np.ndarray:
        """The share of each part of a column that meets a condition."""
        column = self.schema.column(spec.column)
        axis = bind(spec, self.schema).axes[0]
        if not isinstance(column, Numeric) or condition is None:
            wanted = condition if isinstance(condition, list | tuple | set) else [condition]
            unknown = [value for value in wanted if value not in axis.labels]
            if unknown:
                raise QueryError(f"is {unknown[0]!r}", parameter=spec.column, allowed="one of the declared values")
            return np.array([float(label in wanted) for label in axis.labels])
        if not isinstance(condition, tuple) or len(condition) != 2:
            raise QueryError(f"is {condition!r}", parameter=spec.column, allowed="a pair (low, high), or None")
        low, high = (None if end is None else column.threshold(end, spec.column) for end in condition)
        starts, ends = self._stretches(axis, column)
        inside = np.minimum(ends, column.cells if high is None else high) - np.maximum(
            starts, 0 if low is None else low
        )
        weights = np.clip(inside, 0, None) / (ends - starts)
        return np.concatenate([weights, np.zeros(axis.size - len(weights))])


SINGLES, CHECKS, CHOICES = 3, 5, 10  # percent: tables of one column, the model's own error; and of a round, its choice
CHECKED = 4  # pairs whose tables tell how far the model is off
# Rounds for each column are this times the cube root of rows times epsilon: on Adult 12 in all were best at .1, and 26
# at 1.
ROUNDS = 0.054
# Rounds for each column are at least so many, so that pairs reach nearly all columns: with fewer the distance of pairs
# at .5 on Contraceptive Method is .127, and .105 with these (16 runs).
LEAST_ROUNDS = 2 / 3
# With fewer rounds than this times the columns, pairs of columns that are in no pair yet are chosen first: their tables
# tell more of a column than its own does. On Adult at .1 the distance of pairs fell from .083 to .080 (24 runs).
FEW_ROUNDS = 4 / 3
# The part of a table's noise that a choice allows for, as a model keeps less of it: with all of it the
# pairs of Credit Card Default, which all have many cells, were off by .163 at .5, with this part by .094; Mushroom's by
# .133 and .121; Banknote's at 1 by .31 and .24; Adult's at .1, where small pairs tell most, by .075 and .080.
ALLOWED = 0.3
MAX_CELLS = 20_000  # of a pair that may be bought
OFFERED = 50_000  # cells of all pairs among which a round chooses: less than a megabyte of a request
EACH = 100  # cells that take the time which a further pair takes: of a hundred columns a round offers some 400 pairs
TREE_CELLS = 300_000  # of the junction tree: what a fit may take in memory and time
EXPECTED = 16  # parts of a row, in which a model's expectations are sent
WIDTHS = 12  # cells of a numeric column about which nobody said anything
LEAST_NOISE = 0.01  # of a row: tables are weighed by their noise, and at an epsilon of 700 it rounds to none


@dataclass(frozen=True)
class Purchase:
    """The decisions before the first query.

    Attributes:
        schema: The public schema.
        specs: The cells of each column.
        total: The cost of all queries.
        target: The column whose tables weigh more, if one does.
        known: Tables that the log had before.
    """

    schema: Schema
    specs: tuple[Values | Cuts, ...]
    total: Epsilon
    target: str | None
    known: tuple[Bought, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The cells of each column."""
        return tuple(bind(spec, self.schema).size for spec in self.specs)

    @cached_property
    def pairs(self) -> list[Columns]:
        """The pairs of columns whose tables may be bought."""
        pairs = itertools.combinations(range(len(self.specs)), 2)
        return [pair for pair in pairs if self.cells(pair) <= MAX_CELLS]

    @property
    def single(self) -> Epsilon:
        """The cost of the table of one column."""
        return self.total * (SINGLES if self.pairs else 100) // (100 * len(self.specs))

    @property
    def singles(self) -> list[Columns]:
        """The columns whose tables are queried: all but those that are known as exactly."""
        exact = {table.columns for table in self.known if table.epsilon >= self.single}
        return [(column,) for column in range(len(self.specs)) if (column,) not in exact]

    @property
    def checks(self) -> Epsilon:
        """The cost of the table of a checked pair; nothing if rounds measure all pairs."""
        unknown = set(self.pairs) - {table.columns for table in self.known}
        return self.total * CHECKS // (100 * CHECKED) if len(unknown) > 2 * CHECKED else ZERO

    @property
    def worth(self) -> Epsilon:
        """The cost of all rounds without earlier counts."""
        return self.total - self.single * len(self.specs) - self.checks * CHECKED

    @property
    def turns(self) -> int:
        """The number of rounds without earlier counts."""
        each = max(LEAST_ROUNDS, ROUNDS * (self.schema.max_rows * float(self.total)) ** (1 / 3))
        return max(1, min(len(self.pairs), round(each * len(self.specs))))

    @property
    def round(self) -> Epsilon:
        """The first cost of a round."""
        return self.worth // self.turns

    def uncovered(self, known: Sequence[Columns]) -> set[int]:
        """The columns that are in none of some tables, where rounds are so few that these come first."""
        few = self.turns < FEW_ROUNDS * len(self.specs)
        return set(range(len(self.specs))).difference(*known) if few else set()

    @property
    def usual(self) -> float:
        """The deviation of the noise in the table of a round, or of a column where there are no rounds."""
        return self.deviation(_divided(self.round)[1] if self.pairs else self.single)

    @property
    def rounds(self) -> Epsilon:
        """The cost of all rounds: each known table of several columns replaces one, at most at its price."""
        standing = [min(table.epsilon, self.round).nano for table in self.known if len(table.columns) > 1]
        left = self.worth - Epsilon(sum(standing))
        return left if left >= self.round or not standing else ZERO

    @property
    def needed(self) -> Epsilon:
        """The cost of the remaining queries."""
        return self.single * len(self.singles) + self.rounds + self.checks * CHECKED

    def room(self, left: Epsilon) -> float:
        """The largest number of cells of the junction tree, by the rest of the rounds' price."""
        # So no early choice takes all the room of later ones; a first pair fits, however many cells columns have.
        return sum(self.sizes) + TREE_CELLS * (1 - 0.7 * left.nano / max(1, self.worth.nano))

    def table(self, handle: PrivateQueryable, asked: Columns, epsilon: Epsilon, *, reuse: bool = False) -> Bought:
        """Buys the table of some columns, in any order; with ``reuse`` takes it from the log."""
        answer = handle.partition(self.spec(asked)).noisy_count(epsilon=epsilon, reuse=reuse)
        counts = np.asarray(answer, dtype=np.float64).reshape([self.sizes[column] for column in asked])
        flat = counts.transpose(np.argsort(asked)).ravel()
        return Bought(tuple(sorted(asked)), flat, self.deviation(epsilon), epsilon, asked if reuse else ())

    @property
    def before(self) -> Epsilon:
        """The cost of the known tables."""
        return Epsilon(sum(table.epsilon.nano for table in self.known))

    def with_history(self, handle: PrivateQueryable, history: bool | Sequence[Bought]) -> Purchase:
        """Takes the tables that the log has, those of much dependence first, as far as the model has room for them.

        Or those that another fit took, where this ledger has them.
        """
        if not isinstance(history, bool):
            known = [table for table in history if table.before and self._paid(handle, table.before, table.epsilon)]
            return replace(self, known=tuple(known))
        purchase = self
        found = [self.table(handle, asked, epsilon, reuse=True) for asked, epsilon in self._logged(handle)]
        for table in sorted(found, key=lambda table: (len(table.columns) == 1, self._dependence(table)), reverse=True):
            more = replace(purchase, known=(*purchase.known, table))
            if tree_cells(self.sizes, [known.columns for known in more.known]) <= more.room(more.rounds):
                purchase = more
        return purchase

    def _logged(self, handle: PrivateQueryable) -> list[tuple[Columns, Epsilon]]:
        """The counts in the log that are tables of the model: their columns, in the queried order, and prices."""
        numbers = {spec.column: number for number, spec in enumerate(self.specs)}
        found: dict[tuple[Columns, Epsilon], None] = {}
        log = handle.history()
        for words, price, answer in zip(log["asked"], log["epsilon"], log["answer"], strict=True):
            what, _, names = str(words).partition(" parts by ")
            asked = tuple(numbers.get(name, -1) for name in names.split(" of ")[0].split(" x "))
            fits = -1 not in asked and isinstance(answer, list) and self.cells(asked) == len(answer)
            if fits and what.startswith("noisy_count"):
                found[asked, Epsilon.of(price)] = None
        return [each for each in found if self._paid(handle, *each)]

    def _paid(self, handle: PrivateQueryable, asked: Columns, epsilon: Epsilon) -> bool:
        """Whether the ledger has an answer to just this question.

        The log tells a question's columns in words, and not its cells.
        """
        return not handle.partition(self.spec(asked)).preview("noisy_count", epsilon=epsilon, reuse=True).cost

    def _dependence(self, table: Bought) -> float:
        """The number of rows of a table apart from independence, beyond its noise."""
        counts = table.counts.reshape([self.sizes[column] for column in table.columns])
        axes = range(counts.ndim)
        margins = [counts.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
        even = reduce(np.multiply.outer, margins) / max(counts.sum(), 1.0) ** (counts.ndim - 1)
        apart = np.abs(counts - even).sum() - counts.size * table.deviation / math.sqrt(2)
        return float(apart) * self.weight(table.columns)

    def cells(self, columns: Columns) -> int:
        """The number of cells of the table of some columns."""
        return math.prod(self.sizes[column] for column in columns)

    def spec(self, columns: Columns) -> Spec:
        """The partition into the cells of some columns."""
        return Cross(tuple(self.specs[column] for column in columns)) if len(columns) > 1 else self.specs[columns[0]]

    def deviation(self, epsilon: Epsilon) -> float:
        """The deviation of the noise in each count of a table; at least ``LEAST_NOISE``."""
        return max(LEAST_NOISE, standard_deviation(count_scale(self.schema, epsilon)))

    def weight(self, pair: Columns) -> int:
        """The weight of a pair's misfit, in percent."""
        return 100 if self.target in {None, *(self.specs[column].column for column in pair)} else 50


@dataclass(kw_only=True, repr=False, eq=False)
class Synthesizer(Kept):
    """A model of the whole table that draws synthetic rows and estimates tables of any columns.

    It queries the noisy table of each column, and then works in rounds. ``exp_mech`` selects the pair of
    columns whose table the model fits worst, relative to the noise, and ``noisy_count`` queries this table.
    A graphical model is fitted to all tables. With few rounds for many columns, pairs of columns that are in
    no pair yet are chosen first. Five percent of epsilon query tables of random unmeasured pairs, which
    estimate the model's error.

    Synthetic rows have the relations between pairs of columns, and of more columns as far as pairs
    determine them. Relations that exist only among three or more columns are lost.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        columns: The columns of the model. None for all.
        cuts: Cut points for numeric columns, ``{"age": [30, 45]}``, or a number of intervals. Without:
            the cuts that the policy declares, else intervals of equal width and round numbers.
        random_state: Seed of the public randomness, which draws the pairs for the error, and of very many pairs those
            among which a round chooses.

    Attributes:
        model_: The fitted ``SyntheticTable``: ``sample``, ``table``, ``estimate``, ``quality``.
        schema_: The public schema.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: all queries concern the same rows, and their costs, whole nano-epsilons, add up to it
        (sequential composition). The queries follow from answers and from public randomness.
        Exact: nano-epsilons. Held by: tests/unit/synthesizer, tests/contract/test_every_miner.py.

    References:
        McKenna et al. 2022, "AIM: An adaptive and iterative mechanism for differentially private
        synthetic data" (the loop; here at pure epsilon, on pairs); privacy.md 8.7 (the score).

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Synthesizer
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> columns = ["sex", "education", "income"]
        >>> model = Synthesizer(epsilon=1, columns=columns, random_state=0).fit(handle)
        >>> model.sample(5, random_state=1).columns.tolist()
        ['education', 'sex', 'income']
    """

    epsilon: EpsilonLike = 1.0
    columns: Sequence[str] | None = None
    cuts: Mapping[str, Sequence[float] | int] | None = None
    random_state: int | None = None

    _state = SyntheticTable
    _limits = (
        "Relations that exist only among three or more columns together are not in the model.",
        "Numbers are uniform within their cell.",
    )

    def fit(
        self,
        handle: PrivateQueryable,
        target: str | None = None,
        *,
        reuse: bool = False,
        history: bool | Sequence[Bought] = False,
    ) -> Self:
        """Learns a model of the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: A column whose pairs weigh twice as much as others; None for none.
            reuse: Use the stored answers of an identical earlier fit, at no cost; needs a
                ``random_state``.
            history: Use every noisy count in ``handle.history()`` that is a table in the model's
                cells. A known table of one column is not queried again. A table of several columns
                replaces a round, and counts as at most the round's epsilon. Tables too large for
                the model are left out. With a model's ``bought`` instead of True, the fit uses the
                tables that this model used.

        Raises:
            QueryError: A parameter is wrong.
            BudgetExceeded: The budget is less than ``epsilon``, or than its part that ``history``
                leaves.
        """
        with unspent():
            purchase = self._checked(public_schema(handle), target)
            if history and reuse:
                raise QueryError("are both given", parameter="reuse and history", allowed="one of them")
            if history:
                purchase = purchase.with_history(handle.through(patient), history)
            warnings, before = self._warnings(purchase, None), purchase.before
            if purchase.pairs and purchase.rounds and not reuse:
                with foreseeing(handle) as made_up:
                    _Fitting(purchase, made_up, np.random.default_rng(self.random_state)).rehearse()
            asked, certificate = begin_fit(self, handle, target, purchase.needed, warnings, reuse=reuse, before=before)
        with Bill(handle) as bill:
            model = _Fitting(purchase, asked, np.random.default_rng(self.random_state)).learned()
        tell(() if warnings else self._warnings(purchase, model.rows))
        remember_fit(self, handle, certificate())
        return self._fitted(model, bill.total)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        """Fits a copy with the same parameters and the same target."""
        return type(self)(**self._fit_params).fit(handle, self._model.target, history=self._model.bought)

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` and their costs, for free: it reads the schema only."""
        work = self._checked(planned(schema), target)
        title = f"Synthesizer of {many(len(work.specs), 'column')} and of their {many(len(work.pairs), 'pair')}"
        return Plan(title, tuple(self._lines(work)), work.total.exact, warnings=self._warnings(work, rows))

    def sample(self, rows: int | None = None, *, random_state: int | None = None) -> pd.DataFrame:
        """Draws synthetic rows; see ``SyntheticTable.sample``."""
        return self._model.sample(rows, random_state=random_state)

    def to_frame(self) -> pd.DataFrame:
        """Returns the measured tables and their accuracy, a row for each table."""
        return self._model.quality.copy()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the dependence of pairs of columns; see ``SyntheticTable.plot``."""
        return self._model.plot(ax)

    def export_text(self) -> str:
        """Returns the measured tables, and the model's distance from them, as text."""
        return self._model.export_text()

    def _checked(self, schema: Schema, target: str | None) -> Purchase:
        total = Epsilon.of(self.epsilon)
        names = attribute_names(schema, target, self.columns)
        if target is not None:
            schema.column(target)
            names = [name for name in schema.columns if name in names or name == target]
        if self.random_state is not None and not is_whole(self.random_state, 0):
            raise QueryError(
                f"is {self.random_state!r}", parameter="random_state", allowed="None or a whole number from 0"
            )
        specs = attribute_cells(schema, None, names, self.cuts, Grid(WIDTHS))
        purchase = Purchase(schema, tuple(specs), total, target)
        if not purchase.single or (purchase.pairs and not purchase.round):
            raise QueryError(f"is {total}, too little for {many(len(specs), 'column')}", parameter="epsilon")
        return purchase

    def _warnings(self, work: Purchase, rows: int | None) -> tuple[str, ...]:
        noise, cells = work.usual, max(work.sizes)
        expected = work.schema.max_rows if rows is None else rows
        if noise * cells <= expected:
            return ()
        return (
            f"noise of {rows_text(noise)} rows in each of {cells:,} cells hides a table of {expected:,} rows; take "
            "fewer `columns` or a larger `epsilon`.",
        )

    def _lines(self, purchase: Purchase) -> Iterator[PlanLine]:
        schema, singles = purchase.schema, purchase.single * len(purchase.sizes)
        yield count_line(schema, "rows in the cells of each column", sum(purchase.sizes), singles, purchase.single)
        if not purchase.pairs:
            return
        choice, table = _divided(purchase.round)
        rounds = purchase.rounds.nano // purchase.round.nano
        largest = max(map(purchase.cells, purchase.pairs))
        pairs = f"pair that the model fits worst, of {len(purchase.pairs):,}, {many(rounds, 'time')}"
        yield PlanLine(1, pairs, "exp_mech", 1, (choice * rounds).exact, None, "")
        yield count_line(schema, "rows in its cells", largest, purchase.rounds - choice * rounds, table)
        if purchase.checks:
            asked = f"rows in the cells of {CHECKED} pairs drawn at random"
            yield count_line(schema, asked, CHECKED * largest, purchase.checks * CHECKED, purchase.checks)

    @property
    def _model(self) -> SyntheticTable:
        return cast(SyntheticTable, super()._model)

    def _fitted(self, model: SyntheticTable, cost: Fraction) -> Self:
        self.model_ = model
        self._note(model.schema, (name for name in model.columns if name != model.target), cost)
        return self


def _divided(share: Epsilon) -> tuple[Epsilon, Epsilon]:
    """The costs of a round's choice and its table."""
    choice = share * CHOICES // 100
    return choice, share - choice


class _Fitting:
    """One fit: what was bought, and the model so far."""

    def __init__(self, purchase: Purchase, handle: PrivateQueryable, random: np.random.Generator) -> None:
        self.purchase, self.handle, self.random = purchase, handle, random
        self.bought: list[Bought] = []

    def learned(self) -> SyntheticTable:
        """Buys all tables; returns the last model."""
        purchase = self.purchase
        for known in purchase.known:  # asked once more, for the certificate
            self.bought.append(purchase.table(self.handle, known.before, known.epsilon, reuse=True))
        for column in purchase.singles:
            self._buy(column, purchase.single)
        model = self._model(None)
        left = purchase.rounds
        while purchase.pairs and left:
            share = left if left < purchase.round + purchase.round else purchase.round
            self._buy(self._chosen(model, share, left), _divided(share)[1])
            model = self._model(model)
            left -= share
        error = self._checked_error(model) if purchase.checks else None
        last = self._model(model, ACCURACY)
        return SyntheticTable(purchase.schema, purchase.specs, last, tuple(self.bought), error, purchase.target)

    def rehearse(self) -> None:
        """Asks what comes before the first round, and the round's choice."""
        self.bought += self.purchase.known
        for column in self.purchase.singles:
            self._buy(column, self.purchase.single)
        self._chosen(self._model(None), self.purchase.round, self.purchase.worth)

    def _offered(self, model: GraphicalModel, price: Epsilon, left: Epsilon) -> list[Columns]:
        """The pairs that keep the junction tree small, those of uncovered columns first; if none, all that it holds."""
        room = self.purchase.room(left) - sum(table.size for table in model.tables)
        # A table bought twice at one price would be one question, whose answer a fit that runs again takes twice.
        dear = {bought.columns for bought in self.bought if bought.epsilon == price}
        growth = model.tree.growth()
        held = [pair for pair in self.purchase.pairs if not growth[pair]]
        bare = self.purchase.uncovered([columns for columns in model.potentials if len(columns) > 1])
        for pairs in ([pair for pair in self.purchase.pairs if bare & {*pair}], self.purchase.pairs):
            fitting = [pair for pair in pairs if pair not in dear and (not growth[pair] or growth[pair] <= room)]
            if fitting:
                return self._drawn(fitting)
        return self._drawn(held)

    def _drawn(self, pairs: Sequence[Columns]) -> list[Columns]:
        """Some pairs by public coins, where the tables of all are too much for a request."""
        order = self.random.permutation(len(pairs))
        cells = np.cumsum([EACH + self.purchase.cells(pairs[number]) for number in order])
        return [pairs[number] for number in sorted(order[: np.count_nonzero(cells <= OFFERED)])]

    def _chosen(self, model: GraphicalModel, share: Epsilon, left: Epsilon) -> Columns:
        """The pair whose table the model misses most, by ``exp_mech``."""
        epsilon, price = _divided(share)
        offered = self._offered(model, price, left)
        specs, expected = [self.purchase.spec(pair) for pair in offered], model.pairs(offered)
        tables = [np.rint(expected[pair].ravel() * (EXPECTED * model.rows)).astype(np.int64) for pair in offered]
        score = Misfit(
            tuple(specs),
            tuple(tuple(table.tolist()) for table in tables),
            round(ALLOWED * EXPECTED * self.purchase.deviation(price) / math.sqrt(2)),  # the mean size of Laplace noise
            tuple(map(self.purchase.weight, offered)),
        )
        chosen = self.handle.exp_mech(specs, score=score, epsilon=epsilon)
        assert chosen is not None  # plain candidates always have a member
        return offered[specs.index(chosen)]

    def _checked_error(self, model: GraphicalModel) -> float | None:
        """Bounds how far the model's tables of pairs that it did not buy are off, with 90 % confidence.

        Each noisy table y of k cells with noise of variance v gives d = Σ (y - m)² - k v, which estimates
        Σ (n - m)² without bias. Half of Σ |n - m| is at most half the root of k Σ (n - m)², so the mean of
        k d / 4 estimates a bound of the mean square of that distance. Its deviation is that of the pairs
        drawn and of the noise, and 1.28 deviations are added.
        """
        unknown = sorted(set(self.purchase.pairs) - {bought.columns for bought in self.bought})
        if len(unknown) < CHECKED:
            for pair in self.purchase.pairs[:CHECKED]:
                self._buy(pair, self.purchase.checks)
            return None
        squares, noises = [], []
        for number in sorted(self.random.choice(len(unknown), CHECKED, replace=False).tolist()):
            pair = unknown[number]
            expected = model.marginal(pair).ravel() * model.rows
            table = self._buy(pair, self.purchase.checks)
            cells, variance = expected.size, table.deviation**2
            square = float(((table.counts - expected) ** 2).sum()) - cells * variance
            weight = cells / (2 * model.rows) ** 2
            squares.append(weight * square)
            # The square of Laplace noise of variance v has the variance 5 v², and noise times a miss d 4 v d².
            noises.append(weight**2 * (5 * cells * variance**2 + 4 * variance * max(square, 0.0)))
        spread = np.var(squares, ddof=1) * (1 - CHECKED / len(unknown)) / CHECKED
        deviation = math.sqrt(spread + float(np.sum(noises)) / CHECKED**2)
        # A mean below 0 is noise: were it let stand, it would hide what the noise can hide.
        return min(1.0, math.sqrt(max(0.0, float(np.mean(squares))) + 1.28 * deviation))

    def _buy(self, columns: Columns, epsilon: Epsilon) -> Bought:
        self.bought.append(self.purchase.table(self.handle, columns, epsilon))
        return self.bought[-1]

    def _model(self, before: GraphicalModel | None, accuracy: float = ROUGH) -> GraphicalModel:
        sizes, usual, most = self.purchase.sizes, self.purchase.usual, self.purchase.schema.max_rows
        return GraphicalModel.fitted(sizes, self.bought, usual, most, before, accuracy)
