# SPDX-License-Identifier: Apache-2.0
"""``Purchase`` divides the epsilon of a synthesizer among tables, before the first query; its plan follows.

Privacy:
    Claim: the tables of columns, the rounds and the checks add up to ``total``, or with logged tables to ``needed``.
    Why: all queries concern the same rows, so losses add up. The shares are whole nano-epsilons, from the schema and
    earlier answers. Held by: tests/unit/synthesizer/test_synthesizer.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Self

import numpy as np

from miners.budget.plan import (
    PlanLine,
    count_line,
    count_scale,
    rows_text,
)
from miners.synthesizer.fine_numbers import HIDING, PIECES
from miners.synthesizer.graphical_model import Clique, tree_cells
from miners.synthesizer.matching import limit, reached
from miners.synthesizer.relations import limits, possible
from miners.synthesizer.synthetic_table import TENTHS, Bought
from pinq.analyst.queryable import PrivateQueryable
from pinq.language.products import MAX_ENTRIES
from pinq.language.specs import Cross, Cuts, Spec, Values, bind
from pinq.public.checks import many
from pinq.public.epsilon import ZERO, Epsilon, standard_deviation
from pinq.public.schema import Schema

# Percent of epsilon: tables of one column, the model's error, fine numbers, sums of numbers. Percent of a round: its
# choice.
SINGLES, CHECKS, FINES, SUMS, CHOICES = 3, 5, 10, 10, 10
SUMS_NOISE = 1 / 30  # the largest noise of a mean in half ranges: a tenth of a deviation of a third of half a range
CHECKED = 4  # pairs whose tables measure the model's error
# Rounds for each column are this times the cube root of rows times epsilon: on Adult 12 in all were best at epsilon
# 0.1, and 26 at 1.
ROUNDS = 0.054
# The least number of rounds for each column, so that pairs reach nearly all columns: with fewer the distance of pairs
# at 0.5 on Contraceptive Method is 0.127, and 0.105 with these (16 runs).
LEAST_ROUNDS = 2 / 3
# With fewer rounds than this times the columns, pairs of columns that are in no pair yet are chosen first, because a
# pair's table is worth more than a column's table. On Adult at 0.1 the distance of pairs fell from 0.083 to 0.080 (24
# runs).
FEW_ROUNDS = 4 / 3
# The part of a table's noise that a choice allows for, as a model keeps less of it: with all of it the
# pairs of Credit Card Default, which all have many cells, were off by .163 at .5, with this part by .094; Mushroom's by
# .133 and .121; Banknote's at 1 by .31 and .24; Adult's at .1, where small pairs tell most, by .075 and .080.
ALLOWED = 0.3
MAX_CELLS = 20_000  # the most cells of a pair's table
OFFERED = 50_000  # the most cells of all pairs among which a round chooses: less than a megabyte of a request
EACH = 100  # cells that take as much time as one more pair: with a hundred columns a round offers about 400 pairs
TREE_CELLS = 300_000  # the most cells of the junction tree, which limits memory and time of a fit
EXPECTED = 16  # parts of a row in which a model's expectations are sent
WIDTHS = 12  # cells of a numeric column without cuts
FEW_VALUES = 24  # the most values of a numeric column of which each has a cell: twice the usual cells
LEAST_NOISE = 0.01  # the least noise in rows: tables are weighted by noise, which at an epsilon of 700 rounds to 0


def divided(share: Epsilon) -> tuple[Epsilon, Epsilon]:
    """The costs of a round's choice and its table."""
    choice = share * CHOICES // 100
    return choice, share - choice


@dataclass(frozen=True)
class Purchase:
    """The decisions before the first query.

    Attributes:
        target: The column whose tables weigh more; None for none.
        logged: Tables that the log had before.
        order: Pairs of numeric columns; the first is never the larger.
        kept: The columns whose cells the caller chose.
    """

    schema: Schema
    specs: tuple[Values | Cuts, ...]
    epsilon: Epsilon
    target: str | None
    logged: tuple[Bought, ...] = ()
    order: tuple[tuple[str, str], ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def total(self) -> Epsilon:
        return self.epsilon

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(bind(spec, self.schema).size for spec in self.specs)

    @cached_property
    def pairs(self) -> list[Clique]:
        pairs = itertools.combinations(range(len(self.specs)), 2)
        return [pair for pair in pairs if self.cells(pair) <= MAX_CELLS]

    @cached_property
    def crosses(self) -> dict[Clique, Spec]:
        """The spec of each pair, made once for all rounds."""
        return {pair: self.spec(pair) for pair in self.pairs}

    @cached_property
    def masks(self) -> dict[Clique, np.ndarray]:
        """The possible cells of each declared pair."""
        numbers = {spec.column: number for number, spec in enumerate(self.specs)}
        masks: dict[Clique, np.ndarray] = {}
        for low, high in self.order:
            first, second = numbers[low], numbers[high]
            lows, highs = (limits(self.schema, self.specs[number]) for number in (first, second))
            fits = possible(lows, highs, (self.sizes[first], self.sizes[second]))
            masks[min(first, second), max(first, second)] = fits if first < second else fits.T
        return masks

    @property
    def ordered(self) -> list[Clique]:
        """The declared pairs whose tables may be queried and are not in the log, as many as there are rounds."""
        logged = {table.columns for table in self.logged}
        return [pair for pair in self.masks if pair in self.pairs and pair not in logged][: self.turns]

    @property
    def single(self) -> Epsilon:
        """The cost of the table of one column."""
        return self.total * (SINGLES if self.pairs else 100) // (100 * len(self.specs))

    @property
    def singles(self) -> list[Clique]:
        """The columns whose tables are queried: all without a logged table that is as exact."""
        exact = {table.columns for table in self.logged if table.epsilon >= self.single}
        return [(column,) for column in range(len(self.specs)) if (column,) not in exact]

    @cached_property
    def fines(self) -> list[int]:
        """The numeric columns with several numbers in a cell."""
        numeric = self.schema.numeric_columns
        return [
            number
            for number, spec in enumerate(self.specs)
            if spec.column in numeric and numeric[spec.column].codes > self.sizes[number]
        ]

    @property
    def fine(self) -> Epsilon:
        """The cost of the fine numbers of a column; 0 if the log has the tables of all columns."""
        return self.total * FINES // (100 * len(self.fines)) if self.fines and self.pairs and self.singles else ZERO

    @property
    def summed(self) -> list[int]:
        """The columns whose sums are queried: those without cuts in the policy."""
        return [number for number in self.fines if not self.schema.numeric(self.specs[number].column).cuts]

    @property
    def moved(self) -> list[int]:
        """The columns whose cells move to where rows are: all whose cells nobody chose; none if noise hides a cell.

        Tables in the log keep their cells.
        """
        # Counts with a known sum: their noise up to any piece is at most half the root of their number.
        if not self.fine or self.deviation(self.fine) * math.sqrt(PIECES * WIDTHS / 2) > self.schema.max_rows / WIDTHS:
            return []
        chosen = {*self.kept, *(self.specs[number].column for table in self.logged for number in table.columns)}
        return [number for number in self.summed if self.specs[number].column not in chosen]

    @cached_property
    def reach(self) -> float:
        """The deviations from the mean at which the ranges of sums end."""
        return reached(len(self.summed), self.schema.max_rows / self.deviation(self.total * SUMS // 100))

    @property
    def sums(self) -> Epsilon:
        """The cost of the sums of numbers and squares; 0 if noise hides the means."""
        cost = self.total * SUMS // 100
        if not self.fine or not 0 < len(self.summed) < MAX_ENTRIES:
            return ZERO
        hidden = self.deviation(cost) * limit(len(self.summed), self.reach) > SUMS_NOISE * self.schema.max_rows
        return ZERO if hidden else cost

    @property
    def hidden(self) -> float:
        """The rows at the end of a number's range that noise can hide in its sums, or else in a cell (``HIDING``)."""
        sums = self.deviation(self.sums) * limit(len(self.summed), self.reach) if self.sums else 0.0
        return HIDING * (sums or self.deviation(self.single))

    @property
    def checks(self) -> Epsilon:
        """The cost of the table of a checked pair; 0 if rounds measure most pairs."""
        unknown = set(self.pairs) - {table.columns for table in self.logged}
        return self.total * CHECKS // (100 * CHECKED) if len(unknown) > 2 * CHECKED else ZERO

    @property
    def worth(self) -> Epsilon:
        return (
            self.total - self.single * len(self.specs) - self.checks * CHECKED - self.fine * len(self.fines) - self.sums
        )

    @property
    def turns(self) -> int:
        """The number of rounds without earlier counts."""
        each = max(LEAST_ROUNDS, ROUNDS * (self.schema.max_rows * float(self.total)) ** (1 / 3))
        return max(1, min(len(self.pairs), round(each * len(self.specs))))

    @property
    def round(self) -> Epsilon:
        """The first cost of a round."""
        return self.worth // self.turns

    def uncovered(self, groups: Sequence[Clique]) -> set[int]:
        """The columns that are in none of some tables, if rounds are few; else none."""
        few = self.turns < FEW_ROUNDS * len(self.specs)
        return set(range(len(self.specs))).difference(*groups) if few else set()

    @property
    def usual(self) -> float:
        """The deviation of the noise in the table of a round, or of a column if there are no rounds."""
        return self.deviation(divided(self.round)[1] if self.pairs else self.single)

    @property
    def rounds(self) -> Epsilon:
        """The cost of all rounds: each logged table of several columns replaces at most one round."""
        standing = [min(table.epsilon, self.round).nano for table in self.logged if len(table.columns) > 1]
        remaining = self.worth - Epsilon(sum(standing))
        return remaining if remaining >= self.round or not standing else ZERO

    @property
    def needed(self) -> Epsilon:
        numbers = self.fine * len(self.fines) + self.sums
        return self.single * len(self.singles) + self.rounds + self.checks * CHECKED + numbers

    def room(self, remaining: Epsilon) -> float:
        """The largest number of cells of the junction tree, given the remaining cost of rounds."""
        # Early choices leave room for later ones, and a first pair fits with any number of cells.
        return sum(self.sizes) + TREE_CELLS * (1 - 0.7 * remaining.nano / max(1, self.worth.nano))

    def table(self, handle: PrivateQueryable, queried: Clique, epsilon: Epsilon, *, reuse: bool = False) -> Bought:
        """Buys the table of some columns, in any order; with ``reuse`` reads it from the log."""
        answer = handle.partition(self.spec(queried)).noisy_count(epsilon=epsilon, reuse=reuse)
        counts = np.asarray(answer, dtype=np.float64).reshape([self.sizes[column] for column in queried])
        flat = counts.transpose(np.argsort(queried)).ravel()
        return Bought(tuple(sorted(queried)), flat, self.deviation(epsilon), epsilon, queried if reuse else ())

    @property
    def before(self) -> Epsilon:
        return Epsilon(sum(table.epsilon.nano for table in self.logged))

    def with_history(self, handle: PrivateQueryable, history: bool | Sequence[Bought]) -> Self:
        """Uses the tables in the log that fit into the model, in descending order of dependence.

        With the tables of another fit instead of True, uses those that this ledger has.
        """
        if not isinstance(history, bool):
            paid = [table for table in history if table.before and self._paid(handle, table.before, table.epsilon)]
            return replace(self, logged=tuple(paid))
        purchase = self
        tables = [self.table(handle, columns, epsilon, reuse=True) for columns, epsilon in self._logged(handle)]
        for table in sorted(tables, key=lambda table: (len(table.columns) == 1, self._dependence(table)), reverse=True):
            more = replace(purchase, logged=(*purchase.logged, table))
            if tree_cells(self.sizes, [each.columns for each in more.logged]) <= more.room(more.rounds):
                purchase = more
        return purchase

    def _logged(self, handle: PrivateQueryable) -> list[tuple[Clique, Epsilon]]:
        """The logged counts that are tables of the model: their columns, in the queried order, and costs."""
        numbers = {spec.column: number for number, spec in enumerate(self.specs)}
        tables: dict[tuple[Clique, Epsilon], None] = {}
        log = handle.history()
        for words, price, answer in zip(log["asked"], log["epsilon"], log["answer"], strict=True):
            verb, _, names = str(words).partition(" parts by ")
            columns = tuple(numbers.get(name, -1) for name in names.split(" of ")[0].split(" x "))
            fits = -1 not in columns and isinstance(answer, list) and self.cells(columns) == len(answer)
            if fits and verb.startswith("noisy_count"):
                tables[columns, Epsilon.of(price)] = None
        return [each for each in tables if self._paid(handle, *each)]

    def _paid(self, handle: PrivateQueryable, columns: Clique, epsilon: Epsilon) -> bool:
        """Whether the ledger has an answer to this query; the log names a query's columns, and not its cells."""
        return not handle.partition(self.spec(columns)).preview("noisy_count", epsilon=epsilon, reuse=True).cost

    def _dependence(self, table: Bought) -> float:
        """The distance of a table from independence in rows, beyond its noise."""
        counts = table.counts.reshape([self.sizes[column] for column in table.columns])
        axes = range(counts.ndim)
        margins = [counts.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
        even = reduce(np.multiply.outer, margins) / max(counts.sum(), 1.0) ** (counts.ndim - 1)
        apart = np.abs(counts - even).sum() - counts.size * table.deviation / math.sqrt(2)
        return float(apart) * self.weight(table.columns)

    def cells(self, columns: Clique) -> int:
        return math.prod(self.sizes[column] for column in columns)

    def spec(self, columns: Clique) -> Spec:
        return Cross(tuple(self.specs[column] for column in columns)) if len(columns) > 1 else self.specs[columns[0]]

    def deviation(self, epsilon: Epsilon) -> float:
        """The deviation of the noise in each count of a table; at least ``LEAST_NOISE``."""
        return max(LEAST_NOISE, standard_deviation(count_scale(self.schema, epsilon)))

    def weight(self, pair: Clique) -> int:
        """The weight of a pair's misfit, in percent."""
        return 100 if self.target in {None, *(self.specs[column].column for column in pair)} else 50

    # In words

    @property
    def title(self) -> str:
        return f"Synthesizer of {many(len(self.specs), 'column')} and of their {many(len(self.pairs), 'pair')}"

    def lines(self) -> Iterator[PlanLine]:
        schema, singles = self.schema, self.single * len(self.sizes)
        yield count_line(schema, "rows in the cells of each column", sum(self.sizes), singles, self.single)
        if not self.pairs:
            return
        choice, table = divided(self.round)
        rounds = self.rounds.nano // self.round.nano
        largest = max(map(self.cells, self.pairs))
        pairs = f"pair that the model fits worst, of {len(self.pairs):,}, {many(rounds, 'time')}"
        yield PlanLine(1, pairs, "exp_mech", 1, (choice * rounds).exact, None, "")
        yield count_line(schema, "rows in its cells", largest, self.rounds - choice * rounds, table)
        if self.fine:
            cells = 2 * PIECES * sum(self.sizes[number] for number in self.fines)
            yield count_line(
                schema, "rows in the finer cells of numbers", cells, self.fine * len(self.fines), self.fine
            )
        if self.sums:
            noise = self.deviation(self.sums) * limit(len(self.summed), self.reach)
            text = "sums and squares of numbers, in halves of their ranges"
            yield PlanLine(0, text, "noisy_sum", 1, self.sums.exact, noise)
        if self.checks:
            text = f"rows of {CHECKED} pairs drawn at random, in tenths of numbers"
            wide = sorted(
                max(size, TENTHS + 1 if number in self.fines else 0) for number, size in enumerate(self.sizes)
            )
            cells = CHECKED * wide[-1] * wide[-2]
            yield count_line(schema, text, cells, self.checks * CHECKED, self.checks)

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        """Returns warnings: noise hides a table of ``rows`` rows (None for ``max_rows``); dates have no order."""
        noise, cells = self.usual, max(self.sizes)
        expected = self.schema.max_rows if rows is None else rows
        dates = [
            spec.column
            for spec in self.specs
            if spec.column in self.schema.numeric_columns and self.schema.numeric(spec.column).unit
        ]
        order = (
            f"synthetic `{'`, `'.join(dates)}` are drawn within cells, so a date that always follows another can lie "
            f"before it; declare that by `order=[({dates[0]!r}, {dates[1]!r})]`."
            if len(dates) > 1
            else ""
        )
        warnings = (order,) if order and not self.order else ()
        if noise * cells <= expected:
            return warnings
        return (
            *warnings,
            f"noise of {rows_text(noise)} rows in each of {cells:,} cells hides a table of {expected:,} rows; take "
            "fewer `columns` or a larger `epsilon`.",
        )
