# SPDX-License-Identifier: Apache-2.0
"""A graphical model: the distribution closest to independent columns that fits noisy tables.

Columns that share a table are neighbours in a graph; a junction tree of that graph gives each marginal by
exact messages.

Privacy:
    Claim: free. Why: it is computed from released tables and public sizes, without rows.

References:
    McKenna, Sheldon & Miklau 2019, "Graphical-model based estimation and inference for differential
    privacy" (the problem; here its dual is solved table by table); Lauritzen & Spiegelhalter 1988 (messages).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

Clique = tuple[int, ...]
"""The numbers of some columns, increasing."""

# The weight of independence, compared with a table with the usual noise. With less, cells with negative noisy counts
# become ever smaller; with more, real dependence is lost. Measured on Adult, Mushroom, Car and cmc.
RESISTANCE = 0.5
GOLDEN = (math.sqrt(5) - 1) / 2
# The most walks through the tree for the final model, and for a model that only chooses the next table. For the same
# noisy tables of 20 columns at epsilon 1, the distance of pairs is 0.0258 after 15 walks and 0.0248 after 40; on Adult
# nothing is gained after 12.
WALKS, FEW_WALKS = 60, 4
TINY = np.finfo(np.float64).tiny
# The largest error of a fitted table, root mean square, in standard deviations of its noise: in the final model, and in
# one that only chooses the next table, as a choice allows for so much of a table's noise (``ALLOWED``).
ACCURACY, ROUGH = 0.1, 0.3
SWEEPS = 3  # walks that set the given shares of columns
# The most steps for one table, the steps for its cells in each, and the size of a last step.
NEWTON, INNER, CLOSE = 60, 2, 1e-9


@dataclass(frozen=True, eq=False)
class Measurement:
    """A noisy table of some columns.

    Attributes:
        columns: The numbers of the columns.
        counts: The rows of each cell, in the columns' order; the last column varies fastest.
        deviation: The standard deviation of the noise in each count, in rows.
    """

    columns: Clique
    counts: np.ndarray
    deviation: float


def _cliques(sizes: Sequence[int], groups: Iterable[Clique]) -> list[Clique]:
    """The maximal cliques of a triangulated graph in which each group is connected.

    Columns are eliminated one after the other: first the column that adds the fewest edges between
    neighbours, and among equals the column of the smallest clique.
    """
    neighbours: dict[int, set[int]] = {column: set() for column in range(len(sizes))}
    for group in groups:
        for column in group:
            neighbours[column] |= set(group) - {column}
    efforts = {column: _effort(column, neighbours, sizes) for column in neighbours}
    cliques: list[set[int]] = []
    while neighbours:
        column = min(neighbours, key=efforts.__getitem__)
        around = neighbours.pop(column)
        for neighbour in around:
            neighbours[neighbour] |= around - {neighbour}
            neighbours[neighbour].discard(column)
        for changed in around.union(*(neighbours[near] for near in around)):  # other efforts stay the same
            efforts[changed] = _effort(changed, neighbours, sizes)
        if not any({column, *around} <= clique for clique in cliques):
            cliques.append({column, *around})
    return [tuple(sorted(clique)) for clique in cliques]


def _effort(column: int, neighbours: Mapping[int, set[int]], sizes: Sequence[int]) -> tuple[int, int]:
    """The number of unconnected neighbours, counted from both sides, and the cells of the clique."""
    around = neighbours[column]
    missing = sum(len(around - neighbours[neighbour]) - 1 for neighbour in around)
    return missing, math.prod(sizes[neighbour] for neighbour in around) * sizes[column]


def tree_cells(sizes: Sequence[int], groups: Iterable[Clique]) -> int:
    """The number of cells of the cliques of a junction tree that has each group in a clique."""
    return sum(math.prod(sizes[column] for column in clique) for clique in _cliques(sizes, groups))


class JunctionTree:
    """Cliques of columns in a tree; columns that two cliques share are in all cliques between them.

    Attributes:
        cliques: Each clique after its parent.
        parents: The position of each clique's parent; the first has none.
        near: The positions of each clique's parent and children.
        separators: The columns that each clique shares with its parent; none for the first.
    """

    def __init__(self, sizes: Sequence[int], groups: Iterable[Clique]) -> None:
        self.sizes = tuple(sizes)
        *remaining, first = _cliques(sizes, groups)
        self.cliques, self.parents = [first], [-1]
        # For each remaining clique: the largest number of columns that a clique of the tree shares with it, and where.
        best = [(-1, 0)] * len(remaining)
        while remaining:  # a spanning tree whose neighbours share as many columns as possible
            newest, position = {*self.cliques[-1]}, len(self.cliques) - 1
            shared = [len(newest.intersection(clique)) for clique in remaining]
            best = [(more, position) if more > most[0] else most for more, most in zip(shared, best, strict=True)]
            number = max(range(len(remaining)), key=lambda number: best[number][0])
            self.cliques.append(remaining.pop(number))
            self.parents.append(best.pop(number)[1])
        positions = range(len(self.cliques))
        self.near = [
            [other for other in positions if self.parents[other] == position or self.parents[position] == other]
            for position in positions
        ]
        self.separators = [
            tuple(column for column in clique if parent >= 0 and column in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        ]
        self._homes: dict[Clique, int] = {}

    def home(self, columns: Clique) -> int:
        """The position of the smallest clique that contains some columns; -1 for none."""
        if columns not in self._homes:
            holding = [position for position, clique in enumerate(self.cliques) if {*columns} <= {*clique}]
            self._homes[columns] = min(holding, key=lambda position: self._cells(self.cliques[position]), default=-1)
        return self._homes[columns]

    def _cells(self, columns: Iterable[int]) -> int:
        return math.prod(self.sizes[column] for column in {*columns})

    @cached_property
    def growth(self) -> np.ndarray:
        """The largest number of cells that a clique with one more pair adds; shape (columns, columns).

        It is 0 for a pair in a clique. Example: in the cliques ab, bc, cd and de, the pair ad needs the cliques abc
        and acd, and the pair ae also ade.
        """
        sizes = np.array(self.sizes, dtype=np.float64)
        added = np.full((len(sizes), len(sizes)), np.inf)
        for (before, position), cells in self._ways().items():
            for column in {*self.cliques[before]}.difference(self.cliques[position]):
                added[column] = np.minimum(added[column], sizes[column] * cells)
        for clique in self.cliques:
            added[np.ix_(clique, clique)] = 0
        added = np.minimum(added, added.T)
        # Where no table connects two parts of the tree, a clique of the pair suffices.
        return np.where(np.isinf(added), np.outer(sizes, sizes), added)

    def _ways(self) -> dict[tuple[int, int], np.ndarray]:
        """For each clique and neighbour: the cells that a pair adds, by its column beyond their edge.

        They are divided by the size of its column in the clique.

        In the example the way from ab to bc adds b c cells for the column c, and b c + c d for d.
        """
        ways: dict[tuple[int, int], np.ndarray] = {}
        edges = [(parent, position) for position, parent in enumerate(self.parents)][1:]
        for before, position in [*reversed(edges), *((child, parent) for parent, child in edges)]:
            parting = self.separators[max(before, position)]  # of two neighbours the later is the child
            if parting:
                ways[before, position] = way = np.full(len(self.sizes), np.inf)
                for column in {*self.cliques[position]}.difference(parting):
                    way[column] = self._cells((*parting, column))
                for other in self.near[position]:
                    if other != before and (position, other) in ways:
                        further = self._cells((*parting, *self.separators[max(position, other)]))
                        np.minimum(way, further + ways[position, other], out=way)
        return ways

    def calibrated(self, potentials: Mapping[Clique, np.ndarray]) -> list[np.ndarray]:
        """The marginal of each clique under a sum of log potentials."""
        logs = [np.zeros([self.sizes[column] for column in clique]) for clique in self.cliques]
        for columns, potential in potentials.items():
            position = self.home(columns)
            logs[position] += self.spread(potential, columns, position)
        tables: list[np.ndarray] = []
        for position, log in reversed([*enumerate(logs)]):  # up to the first: each clique given its separator
            shared = self.separators[position]
            away = tuple(axis for axis, column in enumerate(self.cliques[position]) if column not in shared)
            largest = log.max(axis=away, keepdims=True)
            table = np.exp(log - largest)
            totals = table.sum(axis=away, keepdims=True)
            tables.append(table / totals)
            if position:
                message = (largest + np.log(totals)).reshape([self.sizes[column] for column in shared])
                logs[self.parents[position]] += self.spread(message, shared, self.parents[position])
        tables.reverse()
        for position in range(1, len(tables)):  # and down again
            marginal = _summed(
                tables[self.parents[position]], self.cliques[self.parents[position]], self.separators[position]
            )
            tables[position] *= self.spread(marginal, self.separators[position], position)
        return tables

    def marginal(self, tables: Sequence[np.ndarray], columns: Clique) -> np.ndarray:
        """The marginal of columns in one clique, an axis for each."""
        return _summed(tables[self.home(columns)], self.cliques[self.home(columns)], columns)

    @cached_property
    def beyond(self) -> dict[tuple[int, int], set[int]]:
        """The columns of all cliques beyond an edge, for each clique and neighbour: the neighbour's side."""
        columns: dict[tuple[int, int], set[int]] = {}
        for position in reversed(range(1, len(self.cliques))):
            parent = self.parents[position]
            below = (columns[position, child] for child in self.near[position] if child > position)
            columns[parent, position] = {*self.cliques[position]}.union(*below)
            others = {*range(len(self.sizes))} - columns[parent, position]
            columns[position, parent] = others.union(self.separators[position])
        return columns

    def spread(self, table: np.ndarray, columns: Clique, position: int) -> np.ndarray:
        """A table of some columns with an axis for each column of a clique."""
        return table.reshape([self.sizes[column] if column in columns else 1 for column in self.cliques[position]])


def _summed(table: np.ndarray, clique: Clique, columns: Clique) -> np.ndarray:
    shape = [size for size, column in zip(table.shape, clique, strict=True) if column in columns]
    for axis, column in enumerate(clique):  # the first axes first: long runs of numbers are added
        if column not in columns:
            table = table.sum(axis=axis, keepdims=True)
    return table.reshape(shape)


class _Walks:
    """Walks through a tree, one for each column; walks with the same path share sums over cliques."""

    def __init__(self, tree: JunctionTree, tables: Sequence[np.ndarray]) -> None:
        self.tree, self.tables = tree, tables
        self.steps: dict[tuple[int, Clique, Clique], _Step] = {}

    def beside(self, column: int, missing: set[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the exact marginal of a column with each of some others; the column's axis is the first.

        For each clique on the way, the walk has the marginal of the column with the separator towards the earlier
        cliques.
        """
        tree, home = self.tree, self.tree.home((column,))
        own = tree.marginal(self.tables, (column,))
        walk: list[tuple[int, int, Clique, np.ndarray]] = [(home, home, (column,), np.diag(own))]
        while walk:
            position, before, given, joint = walk.pop()
            for other in missing.intersection(tree.cliques[position]):
                yield other, self._joined(position, given, joint, (other,))
            missing = missing.difference(tree.cliques[position])
            for after in tree.near[position]:
                if after == before or missing.isdisjoint(tree.beyond[position, after]):
                    continue
                parting = tree.separators[max(position, after)]
                if parting:
                    walk.append((after, position, parting, self._joined(position, given, joint, parting)))
                    continue
                for other in missing & tree.beyond[position, after]:  # no table connects them, so they are independent
                    yield other, np.outer(own, tree.marginal(self.tables, (other,)))
                missing = missing - tree.beyond[position, after]

    def _joined(self, position: int, given: Clique, joint: np.ndarray, wanted: Clique) -> np.ndarray:
        """The marginal of a column with wanted columns of a clique, from that with given columns of the clique."""
        key = position, given, wanted
        if key not in self.steps:
            self.steps[key] = _Step(self.tables[position], self.tree.cliques[position], given, wanted)
        return self.steps[key].taken(joint)


class _Step:
    """A step of a walk in a clique, from the marginal with given columns to that with wanted columns.

    Args:
        table: The marginal of the clique.
        clique: The columns of the clique.
        given: The columns whose joint marginal with the first column is known.
        wanted: The columns whose joint marginal with it is wanted.
    """

    def __init__(self, table: np.ndarray, clique: Clique, given: Clique, wanted: Clique) -> None:
        both = [column for column in given if column in wanted]
        lost = [column for column in given if column not in both]
        new = [column for column in wanted if column not in both]
        sizes = dict(zip(clique, table.shape, strict=True))
        axes = tuple(sorted((*both, *lost, *new)))
        self.rows = [math.prod(sizes[column] for column in columns) for columns in (both, lost)]
        sums = _summed(table, clique, axes).transpose(list(map(axes.index, (*both, *lost, *new))))
        sums = sums.reshape(*self.rows, -1)
        known = sums.sum(axis=2, keepdims=True)
        self.shares = np.divide(sums, known, out=sums * 0, where=known > 0)  # of the new columns, given the others
        self.before = list(map((-1, *given).index, (*both, -1, *lost)))
        self.after = list(map((*both, -1, *new).index, (-1, *wanted)))
        self.shape = [sizes[column] for column in both], [sizes[column] for column in new]

    def taken(self, joint: np.ndarray) -> np.ndarray:
        """The joint marginal of a column with the wanted columns, from that with the given ones."""
        known = joint.transpose(self.before).reshape(self.rows[0], -1, self.rows[1])
        both, new = self.shape
        return (known @ self.shares).reshape(*both, len(joint), *new).transpose(self.after)


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A distribution over cells: log potentials of groups of columns.

    Attributes:
        rows: The number of rows of the table, estimated from the measured tables.
        potentials: A log potential for each group, an axis for each column.
    """

    sizes: tuple[int, ...]
    rows: float
    potentials: Mapping[Clique, np.ndarray]

    @cached_property
    def tree(self) -> JunctionTree:
        return JunctionTree(self.sizes, self.potentials)

    @cached_property
    def tables(self) -> list[np.ndarray]:
        return self.tree.calibrated(self.potentials)

    @classmethod
    def fitted(
        cls,
        sizes: Sequence[int],
        measured: Sequence[Measurement],
        usual: float,
        max_rows: float = math.inf,
        before: GraphicalModel | None = None,
        walks: int = WALKS,
        accuracy: float = ACCURACY,
    ) -> GraphicalModel:
        """Fits a model to noisy tables.

        Args:
            sizes: The cells of each column.
            measured: The tables; each column must be in one.
            usual: The deviation, in rows, of a usual table's noise; it scales the weight of independence.
            max_rows: The largest possible number of rows.
            before: A model of fewer tables to start from.
            walks: The largest number of walks through the tree.
            accuracy: The largest error of a table that ends the fit, root mean square, in deviations of its noise.
        """
        rows = min(total_rows(measured), max_rows)
        independent = {margin.columns: _log_probabilities(margin) for margin in _margins(sizes, measured)}
        tables = {columns: _shrunk(table, sizes) for columns, table in _combined(measured).items()}
        earlier = {} if before is None else before.potentials
        potentials = {
            columns: earlier.get(columns, independent.get(columns, np.zeros([sizes[column] for column in columns])))
            for columns in tables
        }
        model = cls(tuple(sizes), rows, potentials)
        if before is not None and all(before.tree.home(columns) >= 0 for columns in tables):
            vars(model).update(tree=before.tree, tables=[table.copy() for table in before.tables])
        _Fit(model.tree, model.tables, potentials, independent).solve(tables, rows, usual, walks, accuracy)
        return model

    def brought(self, shares: Mapping[Clique, np.ndarray]) -> GraphicalModel:
        """The closest model with about the given shares of columns."""
        model = replace(self, potentials=(potentials := dict(self.potentials)))
        vars(model).update(tree=self.tree, tables=[table.copy() for table in self.tables])
        _Fit(model.tree, model.tables, potentials, {}).bring(shares)
        return model

    def marginal(self, columns: Clique) -> np.ndarray:
        """The share of rows in each cell of some columns, an axis for each in increasing order."""
        if self.tree.home(columns) >= 0:
            return self.tree.marginal(self.tables, columns)
        tree = JunctionTree(self.sizes, [*self.potentials, columns])
        return tree.marginal(tree.calibrated(self.potentials), columns)

    def pairs(self, wanted: Iterable[Clique]) -> dict[Clique, np.ndarray]:
        """The marginals of pairs of columns, in one walk for each column that is the smaller of a pair."""
        marginals: dict[Clique, np.ndarray] = {}
        larger: dict[int, set[int]] = {}
        for pair in wanted:
            small, large = sorted(pair, key=self.sizes.__getitem__)
            larger.setdefault(small, set()).add(large)
        walks = _Walks(self.tree, self.tables)
        for small, others in larger.items():
            for other, table in walks.beside(small, others):
                marginals[min(small, other), max(small, other)] = table if small < other else table.T
        return marginals

    def sampled(self, rows: int, random: np.random.Generator) -> np.ndarray:
        """Draws rows of codes, shape (rows, columns).

        Within each clique the expected rows of cells are rounded at random (systematic sampling).
        """
        codes = np.zeros((rows, len(self.sizes)), dtype=np.int64)
        for position, clique in enumerate(self.tree.cliques):
            separator = self.tree.separators[position]
            new = tuple(column for column in clique if column not in separator)
            order = [clique.index(column) for column in (*separator, *new)]
            shares = (
                self.tables[position]
                .transpose(order)
                .reshape(math.prod(self.sizes[column] for column in separator), -1)
            )
            cells = np.zeros(rows, dtype=np.int64)  # of the joint table of the known columns
            for column in separator:
                cells = cells * self.sizes[column] + codes[:, column]
            drawn = np.unravel_index(_rounded_draw(shares, cells, random), [self.sizes[column] for column in new])
            codes[:, new] = np.column_stack(drawn)
        return codes


def multiplied(
    potentials: Mapping[Clique, np.ndarray], factors: Mapping[Clique, np.ndarray]
) -> dict[Clique, np.ndarray]:
    """Returns the log potentials of a distribution that is multiplied by factors between 0 and 1."""
    logs = {columns: np.log(np.maximum(factor, TINY)) for columns, factor in factors.items()}
    return {columns: potentials.get(columns, 0.0) + logs.get(columns, 0.0) for columns in {**potentials, **logs}}


def _rounded_draw(shares: np.ndarray, groups: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws a cell for each row, within each group of rows in proportion to the group's shares.

    The rows of a group, in random order, are at even distances on a line that is cut by its shares. The place
    of the first row advances by the golden ratio from group to group, so that roundings cancel.
    """
    order = np.lexsort((random.random(len(groups)), groups))
    present, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    # 5 rows with shares 0.5, 0.3 and 0.2, the first at 0.04: at 0.04, 0.24, 0.44, 0.64 and 0.84, so 3, 1 and 1.
    first = (random.random() + GOLDEN * np.arange(len(present))) % 1
    within = np.arange(len(order)) - np.repeat(starts, sizes)
    places = (within + np.repeat(first, sizes)) / np.repeat(sizes, sizes)
    ends = np.cumsum(shares[present], axis=1)
    ends /= np.maximum(ends[:, -1:], TINY)
    line = np.repeat(np.arange(len(present)), sizes)  # line g runs from g to g + 1, so that one search serves all
    numbers = np.searchsorted((ends + np.arange(len(present))[:, None]).ravel(), line + places, side="right")
    return np.minimum(numbers - line * shares.shape[1], shares.shape[1] - 1)[np.argsort(order)]


def total_rows(measured: Sequence[Measurement]) -> float:
    """The unbiased estimate of least variance of the number of rows, from all tables; at least 1."""
    weights = np.array([1 / (table.counts.size * table.deviation**2) for table in measured])
    totals = np.array([table.counts.sum() for table in measured])
    return max(1.0, float((weights * totals).sum() / weights.sum()))


def _margins(sizes: Sequence[int], measured: Iterable[Measurement]) -> Iterable[Measurement]:
    """One table for each column: the averaged margins of all tables that have it."""
    margins = []
    for table in measured:
        cells = table.counts.reshape([sizes[column] for column in table.columns])
        for column in table.columns:
            counts = _summed(cells, table.columns, (column,))
            margins.append(Measurement((column,), counts, table.deviation * math.sqrt(cells.size / counts.size)))
    return _combined(margins).values()


def _log_probabilities(margin: Measurement) -> np.ndarray:
    """The logs of a column's shares; each cell has at least half a deviation of its noise.

    Noise makes shares more uneven: k cells with noise of deviation s add (k - 1) s² to the squared distances from
    the mean. So the distances are shrunk by that part of their squares (James & Stein 1961).
    """
    even = margin.counts.mean()
    squares = ((margin.counts - even) ** 2).sum()
    noise = (margin.counts.size - 1) * margin.deviation**2
    remaining = 1 - noise / max(squares, noise) if noise else 1.0
    counts = np.maximum(even + remaining * (margin.counts - even), margin.deviation / 2)
    return np.asarray(np.log(counts / counts.sum()))


def _combined(measured: Iterable[Measurement]) -> dict[Clique, Measurement]:
    """One table for each group of columns: several tables are averaged with weights 1 / variance."""
    sums: dict[Clique, tuple[np.ndarray | float, float]] = {}
    for table in measured:
        counts, weights = sums.get(table.columns, (0.0, 0.0))
        weight = table.deviation**-2
        sums[table.columns] = counts + weight * table.counts, weights + weight
    return {
        columns: Measurement(columns, np.asarray(counts / weights), weights**-0.5)
        for columns, (counts, weights) in sums.items()
    }


def _shrunk(table: Measurement, sizes: Sequence[int]) -> Measurement:
    """A table of a pair whose distance from independence is shrunk by the part that noise may explain.

    With r x c cells and noise of variance v, noise adds (r - 1) (c - 1) v to the squared distance from independent
    columns with the same margins (James & Stein 1961), with a deviation of the root of 5 (r - 1) (c - 1) times v for
    Laplace noise. So independent columns stay independent.
    """
    if len(table.columns) != 2:
        return table
    counts = table.counts.reshape([sizes[column] for column in table.columns])
    plain = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(float(counts.sum()), table.deviation)
    squares, cells = float(((counts - plain) ** 2).sum()), math.prod(size - 1 for size in counts.shape)
    noise = (cells + math.sqrt(5 * cells)) * table.deviation**2
    remaining = 1 - noise / max(squares, noise)
    return Measurement(table.columns, (plain + remaining * (counts - plain)).ravel(), table.deviation)


_Change = Callable[[int, Clique], float]


class _Fit:
    """Solves the dual problem: stay close to independence and fit the tables, weighted by their noise.

    With shares y of deviation s, and r the ``RESISTANCE``, it minimises over corrections x of the log
    potentials  log Z(x) - x·y + (r/2) Σ s²/u x²,  whose gradient is  marginal(x) - y + r s²/u x.
    The solution is the most likely distribution if the distance from independence counts like r/u rows. u is
    the deviation of a usual table, which is public, so one very exact table does not change other weights.

    A walk visits one clique after the other and returns. Each clique sets the corrections of its tables to the minimum,
    with all others fixed.
    """

    def __init__(
        self,
        tree: JunctionTree,
        tables: list[np.ndarray],
        potentials: dict[Clique, np.ndarray],
        base: Mapping[Clique, np.ndarray],
    ) -> None:
        self.tree, self.tables, self.potentials, self.base = tree, tables, potentials, base
        self.shared = [_summed(table, tree.cliques[at], tree.separators[at]) for at, table in enumerate(tables)]
        self.stale: set[tuple[int, int]] = set()

    def solve(
        self, measured: Mapping[Clique, Measurement], rows: float, usual: float, walks: int, accuracy: float
    ) -> None:
        """Walks at most ``walks`` times, until the errors of tables are below ``accuracy``."""
        self.rows, self.usual, self.accuracy = rows, usual / rows, accuracy
        enough = accuracy**2 * sum(table.counts.size for table in measured.values())
        self._walk(measured, lambda position, columns: self._improve(position, measured[columns]), walks, enough)

    def bring(self, shares: Mapping[Clique, np.ndarray]) -> None:
        """Walks ``SWEEPS`` times, and sets the shares of each column on the way."""
        self._walk(shares, lambda position, columns: self._give(position, columns, shares[columns]), SWEEPS, -math.inf)

    def _walk(self, groups: Iterable[Clique], change: _Change, walks: int, enough: float) -> None:
        """Walks at most ``walks`` times, until the sum of changes is below ``enough``; then sends all messages."""
        groups_at: list[list[Clique]] = [[] for _ in self.tables]
        for columns in groups:
            groups_at[self.tree.home(columns)].append(columns)
        for _ in range(walks):
            if self._visit(0, groups_at, change) < enough:
                break
        for position in range(1, len(self.tables)):
            self._send(self.tree.parents[position], position)

    def _visit(self, position: int, groups_at: Sequence[Sequence[Clique]], change: _Change) -> float:
        """Changes a clique and all cliques beyond it; returns the sum of the results."""
        total = sum(change(position, columns) for columns in groups_at[position])
        for child in self.tree.near[position]:
            if self.tree.parents[child] == position:
                self._send(position, child)
                total += self._visit(child, groups_at, change)
                self._send(child, position)
        return total

    def _send(self, position: int, other: int) -> None:
        """Sends the marginal of a separator to a neighbour, unless the neighbour has it."""
        if (position, other) in self.stale:
            self.stale.remove((position, other))
            edge = max(position, other)  # of two neighbours the later is the child
            parting = self.tree.separators[edge]
            marginal = _summed(self.tables[position], self.tree.cliques[position], parting)
            self._multiply(other, parting, marginal / np.maximum(self.shared[edge], TINY), position)
            self.shared[edge] = marginal

    def _multiply(self, position: int, columns: Clique, factor: np.ndarray, source: int = -1) -> None:
        self.tables[position] *= self.tree.spread(factor, columns, position)
        self.stale |= {(position, other) for other in self.tree.near[position] if other != source}

    def _give(self, position: int, columns: Clique, shares: np.ndarray) -> float:
        """Sets the shares of columns, in cells that are not empty; returns 0."""
        now = _summed(self.tables[position], self.tree.cliques[position], columns)
        after = np.where(now > 0, shares, 0.0)
        factor = after / np.maximum(now * after.sum(), TINY)
        self.potentials |= multiplied({columns: self.potentials.get(columns, np.zeros_like(now))}, {columns: factor})
        self._multiply(position, columns, factor)
        return 0.0

    def _improve(self, position: int, table: Measurement) -> float:
        """Corrects the potential of one table if its error is large; returns the squared error before."""
        columns, deviation = table.columns, table.deviation / self.rows
        shares = table.counts.reshape([self.tree.sizes[column] for column in columns]) / self.rows
        pull = RESISTANCE * deviation**2 / self.usual
        marginal = np.maximum(_summed(self.tables[position], self.tree.cliques[position], columns), TINY)
        wanted = shares - pull * (self.potentials[columns] - self.base.get(columns, 0.0))
        squares = float(((marginal - wanted) ** 2).sum()) / deviation**2
        if squares > self.accuracy**2 * marginal.size:
            after, step = _least(marginal, wanted, pull)
            self.potentials[columns] = self.potentials[columns] + step
            self._multiply(position, columns, after / marginal)
        return squares


def _least(marginal: np.ndarray, wanted: np.ndarray, pull: float) -> tuple[np.ndarray, np.ndarray]:
    """The marginal u and the step d of one table's log potential at the minimum, with all others fixed.

    With the marginal p before, u = p e^d / Z = wanted - pull d. So x = u / pull solves x + log x = z, with
    z = log p + wanted / pull - log pull - log Z, and log Z is where all u add up to 1. Newton's method finds both:
    the sum is convex in log Z, so it falls from above 1 after one step from Z = 1, which stops at the Z where the
    largest u alone is 1; and log x falls from above after one step, which stops at z or, above 1, at log z.
    """
    logs = np.log(marginal)
    right = logs + wanted / pull - math.log(pull)
    least = float(right.max()) + math.log(pull) - 1 / pull
    scale = max(least, 0.0)
    x_log = logs - math.log(pull)  # of the marginal before
    for _ in range(NEWTON):
        z = right - scale
        above = np.where(z > 1, np.log(np.maximum(z, 1)), z)
        for _ in range(INNER):
            x_log = np.minimum(x_log, above)
            x = np.exp(x_log)
            step = (z - x_log - x) / (1 + x)
            x_log = x_log + step
        x = np.exp(x_log)
        up = (pull * float(x.sum()) - 1) / max(pull * float((x / (1 + x)).sum()), TINY)
        if max(abs(up), float(np.abs(step).max())) < CLOSE:
            break
        scale = max(least, scale + up)
    share = np.maximum(x, TINY)
    return share / share.sum(), x_log + math.log(pull) - logs + scale
