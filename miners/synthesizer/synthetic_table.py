# SPDX-License-Identifier: Apache-2.0
"""``SyntheticTable`` is a synthesizer's fitted state: it draws rows and estimates tables.

Privacy:
    Claim: free (post-processing of released tables).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from html import escape
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from miners.budget.plan import (
    loss_text,
)
from miners.fitted.node import split_in, split_out
from miners.pictures import RED, Axes, axes_of
from miners.synthesizer.fine_numbers import HIDING, FineNumbers, Interval, fine_of
from miners.synthesizer.graphical_model import TINY, Clique, GraphicalModel, Measurement, multiplied
from miners.synthesizer.relations import grid_edges, in_order, limits, ordered
from miners.tables.columns import Condition
from miners.tables.table import NUMBERS, Table
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Spec, Values, bind
from pinq.public.checks import is_whole, many, whole_number
from pinq.public.epsilon import Epsilon, laplace_interval
from pinq.public.schema import Numeric, Schema

FORMAT, VERSION = "pinq-synthetic", 1
MAX_ROWS = 10**8
SURE = 0.95
TENTHS = 10  # parts of a number's rows, by which the error of tables is measured
FINITE = partial(np.asarray_chkfinite, dtype=np.float64)
ALIKE = 1e-6  # grid cells: with a smaller deviation all rows have one number
INSIDE = 0.02  # the least distance of a number that is not whole from its grid cell's ends, in cells


@dataclass(frozen=True, eq=False)
class Bought(Measurement):
    """A bought noisy table.

    Attributes:
        epsilon: The cost.
        before: The columns in the queried order, if it was bought before the fit; else empty.
    """

    epsilon: Epsilon
    before: Clique = ()


def _table_in(sizes: Sequence[int], columns: Any, cells: Any) -> tuple[Clique, np.ndarray]:
    """Reads a table of the columns at some positions. Raises ``ValueError`` unless each cell has a number."""
    if not all(is_whole(number, 0, len(sizes) - 1) for number in columns) or len({*columns}) < len(columns):
        raise ValueError(f"{columns!r} are not positions of different columns")
    return tuple(columns), FINITE(cells).reshape([sizes[number] for number in columns])


@dataclass(frozen=True, eq=False)
class SyntheticTable:
    """A public model of a private table.

    Attributes:
        model: The distribution over cells.
        error: A bound, with 90 % confidence, of the quadratic mean of the share of rows in wrong cells, over the
            tables of two columns that were not bought; cells are values, and tenths of the rows of a number. None
            if all were bought.
        target: The column whose pairs weighed more; None for none.
        fine: The fine histograms of numeric columns.
        order: Pairs of numeric columns; the first is never the larger.
    """

    schema: Schema
    specs: tuple[Values | Cuts, ...]
    model: GraphicalModel
    bought: tuple[Bought, ...]
    error: float | None
    target: str | None = None
    fine: Mapping[str, FineNumbers] = field(default_factory=dict)
    order: tuple[tuple[str, str], ...] = ()

    kept_as: ClassVar[str] = "model"

    @property
    def columns(self) -> list[str]:
        return [spec.column for spec in self.specs]

    @property
    def rows(self) -> int:
        """The approximate number of rows of the private table."""
        return round(self.model.rows)

    def sample(
        self,
        rows: int | None = None,
        *,
        where: Mapping[str, Condition] | None = None,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Draws synthetic rows, in values of the schema.

        Numbers in a cell follow the column's finer histogram, on the column's grid.

        Args:
            rows: The number of rows; None for the estimated number in the private table that meets the conditions.
            where: Conditions that all rows meet, as for ``estimate``: ``{"sex": "F", "age": (30, 45)}``.
            random_state: A seed; the same seed gives the same rows.

        Returns:
            A frame with the columns of ``columns``; missing values are None or NaN.

        Raises:
            QueryError: A condition is wrong, or no value meets it.
        """
        conditions, model = dict(where or {}), self.model
        rows = whole_number("rows", round(self.estimate(**conditions)) if rows is None else rows, 0, MAX_ROWS)
        random = np.random.default_rng(random_state)
        evidence = self._evidence(conditions)
        if evidence:
            model = GraphicalModel(model.sizes, model.rows, multiplied(model.potentials, evidence))
        codes = model.sampled(rows, random)[random.permutation(rows)]
        numbers = {
            spec.column: self._drawn(spec, codes[:, number], conditions.get(spec.column), random)
            for number, spec in enumerate(self.specs)
            if spec.column in self.schema.numeric_columns
        }
        for low, high in self.order * len(self.order):  # repeated, because pairs of a chain move each other
            both = np.flatnonzero(~np.isnan(numbers[low]) & ~np.isnan(numbers[high]))
            column, condition = self.schema.numeric(high), conditions.get(high)
            end = self._within(column, high, condition)[1] if isinstance(condition, tuple) else column.cells
            largest = float(column.lower) + (end - (1 if column.integer else INSIDE)) * float(column.width)
            cells = codes[both, self.columns.index(high)]
            numbers[high][both] = in_order(numbers[low][both], numbers[high][both], cells, largest, random)
        values = {spec.column: self._shown(spec, codes[:, number], numbers) for number, spec in enumerate(self.specs)}
        lone = [name for name, column in self.schema.columns.items() if column.codes == 1]  # columns of one value
        for name in lone:
            zeros = np.zeros(rows, dtype=np.int64)
            if name in self.schema.numeric_columns:
                numbers[name] = self._drawn(Values(name), zeros, None, random)
            values[name] = self._shown(Values(name), zeros, numbers)
        return pd.DataFrame({name: values[name] for name in self.schema.columns if name in values})

    def _evidence(self, conditions: Mapping[str, Condition]) -> dict[Clique, np.ndarray]:
        """The share of each cell that meets the conditions."""
        evidence: dict[Clique, np.ndarray] = {}
        for name, condition in conditions.items():
            (number,) = self._numbered((name,))
            evidence[(number,)] = self._weights(self.specs[number], condition)
            if not evidence[(number,)].any():
                raise QueryError(f"is {condition!r}", parameter=name, allowed="a condition that some value meets")
        return evidence

    def table(self, *columns: str) -> Table:
        """Estimates the rows in each cell of some columns; free.

        A bought table has the interval of its noise; the note of another table has the error of tables of
        two columns.
        """
        chosen = self._numbered(columns)
        expected = self.model.marginal(chosen) * self.model.rows
        # The model's tables have the schema's order of columns; the answer has the caller's.
        turned = [chosen.index(self.columns.index(column)) for column in columns]
        labels = [bind(self.specs[self.columns.index(column)], self.schema).axes[0].labels for column in columns]
        keys = [f"{column}_" if column in NUMBERS else column for column in columns]  # as in other tables
        frame = pd.DataFrame([*itertools.product(*labels)], columns=keys, dtype=object)
        frame["value"] = expected.transpose(turned).ravel()
        measured = min(
            (bought for bought in self.bought if bought.columns == chosen),
            key=lambda table: table.deviation,
            default=None,
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
        """Estimates the number of rows that meet all conditions; free.

        Args:
            conditions: As for ``miners.tables.where``: a value or a list of values of a categorical column,
                a pair ``(low, high)`` of a numeric one, None for missing values.

        Returns:
            The estimated number of rows; ``table`` of the columns has its accuracy.
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

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """The mean and the standard deviation of each numeric column in synthetic rows: a row for each column.

        Columns: ``column``, ``mean``, ``deviation`` and ``most`` (in units of the column; days for dates), and
        ``noise`` (the standard deviation of the noise in the mean, in deviations of the column; NaN if all rows have
        one number). With 95 % confidence, the deviation of the private rows is at most ``most``, its value if all rows
        that noise can hide lie at the column's farther bound. If ``most`` is much larger than ``deviation``, do not
        trust ``deviation``.
        """
        lines = []
        for number, spec in enumerate(self.specs):
            if spec.column not in self.schema.numeric_columns:
                continue
            column, cells = self.schema.numeric(spec.column), self.model.marginal((number,))
            starts = grid_edges(self.schema, spec)[:-1]
            fine = self._fine(spec.column, starts)
            ends, shares = fine.ends(column), fine.shares(starts, cells)
            shares = shares / max(float(shares.sum()), TINY)
            middles = ends.mean(axis=0)
            mean = float(shares @ middles)
            deviation = math.sqrt(float(shares @ ((middles - mean) ** 2 + (ends[1] - ends[0]) ** 2 / 12)))
            far = np.abs(limits(self.schema, spec) - mean).max(axis=0)
            alone = min((each.deviation for each in self.bought if each.columns == (number,)), default=math.nan)
            of_cells = alone / self.model.rows
            unsure = of_cells * float(np.linalg.norm(far)) if fine.unsure is None else fine.unsure
            hidden = HIDING * of_cells * float(np.linalg.norm(far**2)) if fine.hidden is None else fine.hidden
            shown = column.shown(np.array([round(mean)]))[0] if column.unit else mean
            most = math.hypot(deviation, math.sqrt(hidden))
            noise = unsure / deviation if deviation > ALIKE * float(column.width) else math.nan
            lines.append((spec.column, shown, deviation, most, noise))
        return pd.DataFrame(lines, columns=["column", "mean", "deviation", "most", "noise"])

    def tenths(self, number: int) -> tuple[Spec, np.ndarray]:
        """The partition of a column into tenths of its rows, and the share of each cell of the model in each part.

        A column without a finer histogram, or with single values as cells, keeps its cells.
        """
        spec = self.specs[number]
        axis, fine = bind(spec, self.schema).axes[0], self.fine.get(spec.column)
        if fine is None:
            return spec, np.eye(axis.size)
        column = self.schema.numeric(spec.column)
        starts = grid_edges(self.schema, spec)[:-1]
        cuts = fine.tenths(fine.shares(starts, self.model.marginal((number,))), TENTHS)
        if len(cuts) < 2:
            return spec, np.eye(axis.size)
        spec_of_tenths = replace(fine, starts=cuts).spec(column, spec.column)
        parts = np.zeros((axis.size, bind(spec_of_tenths, self.schema).size))
        for tenth, within in enumerate(zip(cuts, [*cuts[1:], column.cells], strict=True)):
            parts[: len(starts), tenth] = fine.weights(starts, column.cells, within)
        parts[len(starts) :, len(cuts) :] = np.eye(axis.size - len(starts))
        return spec_of_tenths, parts

    def dependence(self) -> pd.DataFrame:
        """The dependence of each pair of columns: the distance of its table from independence, from 0 to 1."""
        names = self.columns
        distances = np.zeros((len(names), len(names)))
        for (first, second), joint in self.model.pairs(itertools.combinations(range(len(names)), 2)).items():
            even = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            distances[first, second] = distances[second, first] = np.abs(joint - even).sum() / 2
        return pd.DataFrame(distances, index=names, columns=names)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the dependence of pairs as a heat map; dots mark bought tables. Needs matplotlib."""
        names = self.columns
        ax = axes_of("dependence", ax, (1.8 + 0.42 * len(names), 1.4 + 0.38 * len(names)))
        image = ax.imshow(self.dependence().to_numpy(), cmap="Blues", vmin=0)
        pairs = [bought.columns for bought in self.bought if len(bought.columns) == 2]
        points = np.array([*pairs, *(pair[::-1] for pair in pairs)]).reshape(-1, 2)
        ax.plot(points[:, 0], points[:, 1], "o", color=RED, markersize=4, linestyle="")
        ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=8)
        ax.set_title("Distance of pairs from independence\n(a dot: measured)", fontsize=10, loc="left")
        ax.figure.colorbar(image, ax=ax, label="share of rows")
        return ax

    def export_text(self) -> str:
        """Returns the measured tables, and the model's distance from them, as text."""
        numbers = f"{self.numbers.to_string(index=False)}\n" if len(self.numbers) else ""
        return f"{self!r}\n{self.quality.to_string(index=False)}\n{numbers}{self._inferred(2)}"

    def to_dict(self) -> dict[str, Any]:
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
            "fine": {name: fine.to_list() for name, fine in self.fine.items()},
            "order": [list(pair) for pair in self.order],
        }

    @classmethod
    def from_dict(cls, stored: Any) -> SyntheticTable:
        """Reads a result of ``to_dict``; raises ``QueryError`` unless it is whole and valid."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT or stored.get("version") != VERSION:
            raise QueryError(
                f"this is no stored synthesizer: its `format` must be {FORMAT!r}, its `version` {VERSION}."
            )
        try:
            schema = Schema.model_validate(stored["schema"])
            stored_specs = [split_in("a column of the stored model", cells) for cells in stored["cells"]]
            specs = tuple(spec for spec in stored_specs if isinstance(spec, Values | Cuts))
            if len(specs) != len(stored_specs) or stored["target"] not in (None, *schema.columns):
                raise ValueError("a column has no cells, or its target is no column")
            sizes = tuple(bind(spec, schema).size for spec in specs)
            potentials = dict(_table_in(sizes, columns, table) for columns, table in stored["potentials"])
            tables = [_table_in(sizes, columns, counts) for columns, _, counts, *_ in stored["bought"]]
            bought = tuple(
                Bought(numbers, table.ravel(), FINITE(deviation).item(), Epsilon.of(epsilon), *map(tuple, before))
                for (numbers, table), (_, epsilon, _, deviation, *before) in zip(tables, stored["bought"], strict=True)
            )
            model = GraphicalModel(sizes, FINITE(stored["rows"]).item(), potentials)
            if min([model.rows, *(each.deviation for each in bought)]) <= 0:
                raise ValueError("its number of rows, or the noise of a table, is not positive")
            error = None if stored["error"] is None else FINITE(stored["error"]).item()
            numeric = {spec.column: spec for spec in specs if spec.column in schema.numeric_columns}
            edges = {name: grid_edges(schema, spec) for name, spec in numeric.items()}
            fine = fine_of(stored.get("fine", {}), edges)
            order = ordered(schema, [spec.column for spec in specs], stored.get("order", []))
            return cls(schema, specs, model, bought, error, stored["target"], fine, order)
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise QueryError(f"this is no stored synthesizer: {problem}") from None

    def __repr__(self) -> str:
        pairs = sum(len(bought.columns) == 2 for bought in self.bought)
        columns = many(len(self.specs), "column")
        return f"SyntheticTable of about {self.rows:,} rows: {columns}, {many(pairs, 'pair')} measured"

    def _repr_html_(self) -> str:
        tables = self.quality.to_html(index=False) + self.numbers.to_html(index=False)
        return f"<p>{escape(repr(self))}</p>{tables}<p>{escape(self._inferred(2))}</p>"

    def _numbered(self, columns: Sequence[str]) -> Clique:
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
            "cell, by tenths of numbers (quadratic mean, 90 % confidence)."
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

    def _drawn(
        self, spec: Values | Cuts, cells: np.ndarray, condition: Condition, random: np.random.Generator
    ) -> np.ndarray:
        """Numbers for the cells of a column, NaN for missing values."""
        column = self.schema.numeric(spec.column)
        starts = grid_edges(self.schema, spec)[:-1]
        missing = cells >= len(starts)
        filled, within = np.where(missing, 0, cells), (0, column.cells)
        if isinstance(condition, tuple):
            within = self._within(column, spec.column, condition)
        codes = self._fine(spec.column, starts).drawn(starts, filled, column.cells, random, within)
        inside = 0.0 if column.integer else random.uniform(INSIDE, 1 - INSIDE, len(codes))
        numbers = np.minimum(float(column.lower) + (codes + inside) * float(column.width), float(column.upper))
        return np.where(missing, np.nan, numbers)

    def _shown(self, spec: Values | Cuts, cells: np.ndarray, numbers: Mapping[str, np.ndarray]) -> pd.Series:
        """Values of the schema: the numbers of a numeric column, or the values of cells."""
        column = self.schema.column(spec.column)
        if not isinstance(column, Numeric):
            # Text gets the type that pandas gives text when it reads a file.
            return pd.Series([*bind(spec, self.schema).axes[0].labels]).take(cells).reset_index(drop=True)
        drawn = numbers[spec.column]
        missing = np.isnan(drawn)
        filled = np.where(missing, float(column.lower), drawn)
        shown = pd.Series(column.shown(np.rint(filled).astype(np.int64) if column.integer else filled))
        return shown.mask(missing) if missing.any() else shown

    def _fine(self, name: str, starts: np.ndarray) -> FineNumbers:
        return self.fine.get(name) or FineNumbers(starts, np.zeros(len(starts)), 1.0)

    def _within(self, column: Numeric, name: str, condition: tuple[Any, ...]) -> Interval:
        """The grid cells between two limits, each of which may be None."""
        low, high = (None if end is None else column.threshold(end, name) for end in condition)
        return 0 if low is None else low, column.cells if high is None else high

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
        starts = grid_edges(self.schema, spec)[:-1]
        within = self._within(column, spec.column, condition)
        weights = self._fine(spec.column, starts).weights(starts, column.cells, within)
        return np.concatenate([weights, np.zeros(axis.size - len(weights))])
