# SPDX-License-Identifier: Apache-2.0
"""A graphical model is a distribution over cells that agrees with noisy tables of some of its columns.

Of all distributions it is the one that stays closest to independent columns while it fits the tables as
well as their noise allows. Columns that share a table are neighbours in a graph; a junction tree of
that graph gives each marginal by exact messages.

Privacy:
    Claim: free. Why: computed from released tables and public sizes; no row is looked at.

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

# How much the model resists to leave independence, beside a table with the usual noise: with less, cells whose noisy
# counts are negative pull without end; with more, real dependence is lost. Measured on Adult, Mushroom, Car and cmc.
RESISTANCE = 0.5
GOLDEN = (math.sqrt(5) - 1) / 2
# Walks through the tree to fit a model, and to fit one that only chooses the next table. From the same noisy tables of
# 20 columns at 1 the distance of pairs is .0258 after 15 walks and .0248 after 40; on Adult no more is gained after 12.
WALKS, FEW_WALKS = 60, 4
TINY = np.finfo(np.float64).tiny
ACCURACY = 0.1  # standard deviations of its noise that a fitted table may be off, root mean square
SWEEPS = 3  # through columns whose shares are given
# Steps for one table at most, those of its cells in each, and the step of a log after which no more are taken.
NEWTON, INNER, CLOSE = 60, 2, 1e-9


@dataclass(frozen=True, eq=False)
class Measurement:
    """A noisy table of some columns.

    Attributes:
        columns: The numbers of the columns.
        counts: The rows of each cell, in the columns' order, the last running fastest.
        deviation: The standard deviation of the noise in each count, in rows.
    """

    columns: Clique
    counts: np.ndarray
    deviation: float


def _cliques(sizes: Sequence[int], groups: Iterable[Clique]) -> list[Clique]:
    """The maximal cliques of a triangulated graph in which each group is connected.

    Columns are eliminated one after the other: next comes the column that connects the fewest
    neighbours anew, and among those the one of the smallest clique.
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
        for other in around:
            neighbours[other] |= around - {other}
            neighbours[other].discard(column)
        for other in around.union(*(neighbours[near] for near in around)):  # the others' efforts are as before
            efforts[other] = _effort(other, neighbours, sizes)
        if not any({column, *around} <= clique for clique in cliques):
            cliques.append({column, *around})
    return [tuple(sorted(clique)) for clique in cliques]


def _effort(column: int, neighbours: Mapping[int, set[int]], sizes: Sequence[int]) -> tuple[int, int]:
    """The number of unconnected neighbours, counted from both sides, and the cells of the clique."""
    around = neighbours[column]
    missing = sum(len(around - neighbours[other]) - 1 for other in around)
    return missing, math.prod(sizes[other] for other in around) * sizes[column]


def tree_cells(sizes: Sequence[int], groups: Iterable[Clique]) -> int:
    """The number of cells of the cliques of a junction tree that has each group in a clique."""
    return sum(math.prod(sizes[column] for column in clique) for clique in _cliques(sizes, groups))


class JunctionTree:
    """Cliques of columns in a tree: where two of them share columns, so do all on the way between.

    Args:
        sizes: The cells of each column.
        groups: Columns that must stand in one clique.

    Attributes:
        cliques: Each clique after its parent.
        parents: The position of each clique's parent; the first has none.
        near: The positions of each clique's parent and children.
    """

    def __init__(self, sizes: Sequence[int], groups: Iterable[Clique]) -> None:
        self.sizes = tuple(sizes)
        *left, first = _cliques(sizes, groups)
        self.cliques, self.parents = [first], [-1]
        while left:  # a spanning tree whose neighbours share as much as they can
            pairs = (
                (len({*clique} & {*other}), parent, clique)
                for clique in left
                for parent, other in enumerate(self.cliques)
            )
            _, parent, clique = max(pairs, key=lambda pair: pair[0])
            left.remove(clique)
            self.cliques.append(clique)
            self.parents.append(parent)
        places = range(len(self.cliques))
        self.near = [
            [other for other in places if self.parents[other] == place or self.parents[place] == other]
            for place in places
        ]
        self._homes: dict[Clique, int] = {}

    def home(self, columns: Clique) -> int:
        """The position of the smallest clique that holds some columns; -1 where none does."""
        if columns not in self._homes:
            holding = [place for place, clique in enumerate(self.cliques) if {*columns} <= {*clique}]
            self._homes[columns] = min(holding, key=lambda place: self._cells(self.cliques[place]), default=-1)
        return self._homes[columns]

    def _cells(self, columns: Iterable[int]) -> int:
        return math.prod(self.sizes[column] for column in {*columns})

    @cached_property
    def growth(self) -> dict[Clique, int]:
        """The largest number of further cells of a tree with one more pair in a clique.

        It is 0 for a pair that this tree has.
        """
        more: dict[Clique, int] = {}
        for column in range(len(self.sizes)):
            for other, cells in self._growth(column):
                pair = min(column, other), max(column, other)
                more[pair] = min(cells, more.get(pair, cells))
        return more

    def _growth(self, column: int) -> Iterator[tuple[int, int]]:
        """The cells of further cliques that lead from a column to each other one.

        Let a be in the first of the cliques ab, bc, cd, de. Then abc and acd lead from it to d, and ade to e.
        """
        home = self.home((column,))
        walk: list[tuple[int, int, int, Clique]] = [(home, home, 0, ())]
        while walk:
            place, before, cells, shared = walk.pop()
            inside = column in self.cliques[place]
            for other in {*self.cliques[place]} - {column}:
                yield other, 0 if inside else cells + self._cells((column, other, *shared))
            for after in {*self.near[place]} - {before}:
                parting = self.separator(max(place, after))  # of two neighbours the later is the child
                further = cells + self._cells((column, *shared, *parting))
                if inside:
                    further = 0
                elif not shared:  # no table connects these parts of the tree: a clique of the pair alone will do
                    further, parting = 0, ()
                walk.append((after, place, further, parting))

    def calibrated(self, potentials: Mapping[Clique, np.ndarray]) -> list[np.ndarray]:
        """The marginal of each clique under a sum of log potentials."""
        logs = [np.zeros([self.sizes[column] for column in clique]) for clique in self.cliques]
        for columns, potential in potentials.items():
            place = self.home(columns)
            logs[place] += self.spread(potential, columns, place)
        tables: list[np.ndarray] = []
        for place, log in reversed([*enumerate(logs)]):  # up to the first: each clique given what its parent shares
            shared = self.separator(place)
            away = tuple(axis for axis, column in enumerate(self.cliques[place]) if column not in shared)
            largest = log.max(axis=away, keepdims=True)
            table = np.exp(log - largest)
            totals = table.sum(axis=away, keepdims=True)
            tables.append(table / totals)
            if place:
                message = (largest + np.log(totals)).reshape([self.sizes[column] for column in shared])
                logs[self.parents[place]] += self.spread(message, shared, self.parents[place])
        tables.reverse()
        for place in range(1, len(tables)):  # and down again
            known = _summed(tables[self.parents[place]], self.cliques[self.parents[place]], self.separator(place))
            tables[place] *= self.spread(known, self.separator(place), place)
        return tables

    def marginal(self, tables: Sequence[np.ndarray], columns: Clique) -> np.ndarray:
        """The marginal of columns that stand in one clique, an axis for each."""
        return _summed(tables[self.home(columns)], self.cliques[self.home(columns)], columns)

    def separator(self, place: int) -> Clique:
        """The columns that a clique shares with its parent; none for the first."""
        parent = self.cliques[self.parents[place]] if place else ()
        return tuple(column for column in self.cliques[place] if column in parent)

    def spread(self, table: np.ndarray, columns: Clique, place: int) -> np.ndarray:
        """A table of some columns with an axis for each column of a clique."""
        return table.reshape([self.sizes[column] if column in columns else 1 for column in self.cliques[place]])


def _summed(table: np.ndarray, clique: Clique, columns: Clique) -> np.ndarray:
    shape = [size for size, column in zip(table.shape, clique, strict=True) if column in columns]
    for axis, column in enumerate(clique):  # the first axes first: long runs of numbers are added
        if column not in columns:
            table = table.sum(axis=axis, keepdims=True)
    return table.reshape(shape)


class _Walks:
    """Walks through a tree from one column after the other; a sum over a clique serves all that come the same way."""

    def __init__(self, tree: JunctionTree, tables: Sequence[np.ndarray]) -> None:
        self.tree, self.tables = tree, tables
        self.sums: dict[tuple[int, Clique, Clique], np.ndarray] = {}

    def beside(self, column: int, missing: set[int]) -> Iterator[tuple[int, np.ndarray]]:
        """The marginal of a column with each of some others, exact; the column's own axis is the first.

        It walks through the tree from a clique that holds the column. Of each clique that it meets it knows
        the column's shares given those columns that part the clique from the cliques before.
        """
        tree, home = self.tree, self.tree.home((column,))
        walk: list[tuple[int, int, Clique, np.ndarray]] = [(home, home, (column,), np.eye(tree.sizes[column]))]
        while walk and missing:
            place, before, given, shares = walk.pop()
            for other in missing & {*tree.cliques[place]}:
                yield other, self._joined(place, given, shares, (other,))
            missing = missing - {*tree.cliques[place]}
            for after in {*tree.near[place]} - {before}:
                parting = tree.separator(max(place, after))
                joint = self._joined(place, given, shares, parting)
                known = joint.sum(axis=0)
                walk.append((after, place, parting, np.divide(joint, known, out=joint * 0, where=known > 0)))

    def _joined(self, place: int, given: Clique, shares: np.ndarray, wanted: Clique) -> np.ndarray:
        """The joint marginal of a column, whose shares given some columns of a clique are known, with wanted ones."""
        both = [column for column in given if column in wanted]
        lost = [column for column in given if column not in both]
        order = [*both, *lost, *(column for column in wanted if column not in both)]
        rows = [math.prod(self.tree.sizes[column] for column in columns) for columns in (both, lost)]
        if (place, given, wanted) not in self.sums:
            axes = tuple(sorted(order))
            table = _summed(self.tables[place], self.tree.cliques[place], axes)
            self.sums[place, given, wanted] = table.transpose(list(map(axes.index, order))).reshape(*rows, -1)
        known = shares.transpose(list(map((-1, *given).index, (*both, -1, *lost))))
        joint = known.reshape(rows[0], -1, rows[1]) @ self.sums[place, given, wanted]
        names = [*both, -1, *order[len(given) :]]
        shape = [len(shares) if name < 0 else self.tree.sizes[name] for name in names]
        return joint.reshape(shape).transpose(list(map(names.index, (-1, *wanted))))


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A distribution over cells: log potentials of groups of columns.

    Attributes:
        sizes: The cells of each column.
        rows: The number of rows of the table, estimated from the measured tables.
        potentials: A log potential for each group, an axis for each column.
    """

    sizes: tuple[int, ...]
    rows: float
    potentials: Mapping[Clique, np.ndarray]

    @cached_property
    def tree(self) -> JunctionTree:
        """Cliques that hold the columns of each group."""
        return JunctionTree(self.sizes, self.potentials)

    @cached_property
    def tables(self) -> list[np.ndarray]:
        """The marginals of the cliques."""
        return self.tree.calibrated(self.potentials)

    @classmethod
    def fitted(
        cls,
        sizes: Sequence[int],
        measured: Sequence[Measurement],
        usual: float,
        most: float = math.inf,
        before: GraphicalModel | None = None,
        walks: int = WALKS,
    ) -> GraphicalModel:
        """Fits a model to noisy tables.

        Args:
            sizes: The cells of each column.
            measured: The tables; each column must have one of its own.
            usual: The deviation, in rows, of a usual table's noise; it says how much the model resists.
            most: The largest number of rows that there can be.
            before: A model of fewer tables to start from.
            walks: The largest number of walks through the tree.
        """
        rows = min(total_rows(measured), most)
        independent = {margin.columns: _log_probabilities(margin) for margin in _margins(sizes, measured)}
        tables = {columns: _told(table, sizes) for columns, table in _combined(measured).items()}
        known = {} if before is None else before.potentials
        potentials = {
            columns: known.get(columns, independent.get(columns, np.zeros([sizes[column] for column in columns])))
            for columns in tables
        }
        model = cls(tuple(sizes), rows, potentials)
        if before is not None and all(before.tree.home(columns) >= 0 for columns in tables):
            vars(model).update(tree=before.tree, tables=[table.copy() for table in before.tables])
        _Fit(model.tree, model.tables, potentials, independent).solve(tables, rows, usual, walks)
        return model

    def brought(self, asked: Mapping[Clique, np.ndarray]) -> GraphicalModel:
        """The closest model that has about the given shares of columns: one after the other, as each moves others."""
        model = replace(self, potentials=(potentials := dict(self.potentials)))
        vars(model).update(tree=self.tree, tables=[table.copy() for table in self.tables])
        _Fit(model.tree, model.tables, potentials, {}).bring(asked)
        return model

    def marginal(self, columns: Clique) -> np.ndarray:
        """The share of rows in each cell of some columns, an axis for each in increasing order."""
        if self.tree.home(columns) >= 0:
            return self.tree.marginal(self.tables, columns)
        tree = JunctionTree(self.sizes, [*self.potentials, columns])
        return tree.marginal(tree.calibrated(self.potentials), columns)

    def pairs(self, wanted: Iterable[Clique]) -> dict[Clique, np.ndarray]:
        """The marginals of pairs of columns, in one walk for each column that is the smaller of a pair."""
        found: dict[Clique, np.ndarray] = {}
        larger: dict[int, set[int]] = {}
        for pair in wanted:
            small, large = sorted(pair, key=self.sizes.__getitem__)
            larger.setdefault(small, set()).add(large)
        walks = _Walks(self.tree, self.tables)
        for small, others in larger.items():
            for other, table in walks.beside(small, others):
                found[min(small, other), max(small, other)] = table if small < other else table.T
        return found

    def sampled(self, rows: int, random: np.random.Generator) -> np.ndarray:
        """Draws rows of codes, shape (rows, columns).

        Within each clique the cells' expected numbers of rows are rounded at random (systematic sampling),
        which leaves less sampling noise than rows drawn one by one.
        """
        codes = np.zeros((rows, len(self.sizes)), dtype=np.int64)
        for place, clique in enumerate(self.tree.cliques):
            known = self.tree.separator(place)
            new = tuple(column for column in clique if column not in known)
            order = [clique.index(column) for column in (*known, *new)]
            shares = self.tables[place].transpose(order).reshape(math.prod(self.sizes[column] for column in known), -1)
            cells = np.zeros(rows, dtype=np.int64)  # of the joint table of the known columns
            for column in known:
                cells = cells * self.sizes[column] + codes[:, column]
            drawn = np.unravel_index(_rounded_draw(shares, cells, random), [self.sizes[column] for column in new])
            codes[:, new] = np.column_stack(drawn)
        return codes


def multiplied(
    potentials: Mapping[Clique, np.ndarray], factors: Mapping[Clique, np.ndarray]
) -> dict[Clique, np.ndarray]:
    """Returns log potentials of a distribution that is multiplied by some factors, each from 0 to 1."""
    logs = {columns: np.log(np.maximum(factor, TINY)) for columns, factor in factors.items()}
    return {columns: potentials.get(columns, 0.0) + logs.get(columns, 0.0) for columns in {**potentials, **logs}}


def _rounded_draw(shares: np.ndarray, groups: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Gives each row a cell: within each group of rows in proportion to the group's shares.

    The rows of a group, in random order, stand at even distances on a line that is cut by its shares. Where
    the first stands goes on by the golden ratio from group to group, so that roundings cancel.
    """
    order = np.lexsort((random.random(len(groups)), groups))
    own, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    # 5 rows in proportion to .5, .3 and .2, the first at .04: they stand at .04, .24, .44, .64 and .84, so 3, 1 and 1.
    first = (random.random() + GOLDEN * np.arange(len(own))) % 1
    within = np.arange(len(order)) - np.repeat(starts, sizes)
    places = (within + np.repeat(first, sizes)) / np.repeat(sizes, sizes)
    ends = np.cumsum(shares[own], axis=1)
    ends /= np.maximum(ends[:, -1:], TINY)
    line = np.repeat(np.arange(len(own)), sizes)  # line g runs from g to g + 1, so that one search serves all
    numbers = np.searchsorted((ends + np.arange(len(own))[:, None]).ravel(), line + places, side="right")
    return np.minimum(numbers - line * shares.shape[1], shares.shape[1] - 1)[np.argsort(order)]


def total_rows(measured: Sequence[Measurement]) -> float:
    """The number of rows of all tables together, the unbiased estimate of least variance; at least 1."""
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
    """The logs of a column's shares, no cell below half a deviation of its noise.

    Noise makes shares more uneven than they are: k cells of deviation s add (k - 1) s² to the squares of their
    distances from the mean. The distances shrink by that part of their squares (James & Stein 1961).
    """
    even = margin.counts.mean()
    squares = ((margin.counts - even) ** 2).sum()
    noise = (margin.counts.size - 1) * margin.deviation**2
    kept = 1 - noise / max(squares, noise) if noise else 1.0
    counts = np.maximum(even + kept * (margin.counts - even), margin.deviation / 2)
    return np.asarray(np.log(counts / counts.sum()))


def _combined(measured: Iterable[Measurement]) -> dict[Clique, Measurement]:
    """One table for each group of columns: several are averaged, each by the inverse of its variance."""
    sums: dict[Clique, tuple[np.ndarray | float, float]] = {}
    for table in measured:
        counts, weights = sums.get(table.columns, (0.0, 0.0))
        weight = table.deviation**-2
        sums[table.columns] = counts + weight * table.counts, weights + weight
    return {
        own: Measurement(own, np.asarray(counts / weights), weights**-0.5) for own, (counts, weights) in sums.items()
    }


def _told(table: Measurement, sizes: Sequence[int]) -> Measurement:
    """A table of a pair whose distance from independence is shrunk by the part of its square that noise may explain.

    Of r x c cells with noise of variance v, the distance from independent columns with the same margins has
    (r - 1) (c - 1) v from noise (James & Stein 1961), and Laplace noise varies by the root of 5 (r - 1) (c - 1) v
    about it. Columns that do not depend on each other stay so.
    """
    if len(table.columns) != 2:
        return table
    counts = table.counts.reshape([sizes[column] for column in table.columns])
    plain = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(float(counts.sum()), table.deviation)
    squares, cells = float(((counts - plain) ** 2).sum()), math.prod(size - 1 for size in counts.shape)
    noise = (cells + math.sqrt(5 * cells)) * table.deviation**2
    kept = 1 - noise / max(squares, noise)
    return Measurement(table.columns, (plain + kept * (counts - plain)).ravel(), table.deviation)


_Change = Callable[[int, Clique], float]


class _Fit:
    """The dual of: stay close to independence and fit the tables, weighted by their noise.

    With shares y of deviation s, and r the ``RESISTANCE``, it minimises over corrections x of the log
    potentials  log Z(x) - x·y + (r/2) Σ s²/u x²,  whose gradient is  marginal(x) - y + r s²/u x.
    That is the most likely distribution where the distance from independence counts as much as r/u rows
    would. u is the deviation of a usual table, which is public: one very exact table changes no other's weight.

    A walk through the tree comes to one clique after the other and back. Each clique sets the corrections of its
    own tables to the minimum, the others held. Only messages of changed cliques are sent anew.

    Args:
        tree: Cliques that hold the columns of each table.
        tables: The marginals of the cliques under the potentials; the fit changes them.
        potentials: A log potential for each group of columns; the fit changes them.
        base: Log probabilities of independent columns.
    """

    def __init__(
        self,
        tree: JunctionTree,
        tables: list[np.ndarray],
        potentials: dict[Clique, np.ndarray],
        base: Mapping[Clique, np.ndarray],
    ) -> None:
        self.tree, self.tables, self.potentials, self.base = tree, tables, potentials, base
        self.shared = [_summed(table, tree.cliques[at], tree.separator(at)) for at, table in enumerate(tables)]
        self.stale: set[tuple[int, int]] = set()

    def solve(self, measured: Mapping[Clique, Measurement], rows: float, usual: float, walks: int) -> None:
        """Walks so many times at most, until tables are off by less than ``ACCURACY``."""
        self.rows, self.usual = rows, usual / rows
        enough = ACCURACY**2 * sum(table.counts.size for table in measured.values())
        self._walk(measured, lambda place, columns: self._improve(place, measured[columns]), walks, enough)

    def bring(self, asked: Mapping[Clique, np.ndarray]) -> None:
        """Walks ``SWEEPS`` times, and gives each column its shares where it comes to it."""
        self._walk(asked, lambda place, columns: self._give(place, columns, asked[columns]), SWEEPS, -math.inf)

    def _walk(self, groups: Iterable[Clique], change: _Change, walks: int, enough: float) -> None:
        """Walks so many times at most, until changes found less than enough; then all messages are sent."""
        own: list[list[Clique]] = [[] for _ in self.tables]
        for columns in groups:
            own[self.tree.home(columns)].append(columns)
        for _ in range(walks):
            if self._visit(0, own, change) < enough:
                break
        for place in range(1, len(self.tables)):
            self._send(self.tree.parents[place], place)

    def _visit(self, place: int, own: Sequence[Sequence[Clique]], change: _Change) -> float:
        """Changes a clique and all beyond it; returns the sum of what the changes found."""
        found = sum(change(place, columns) for columns in own[place])
        for child in self.tree.near[place]:
            if self.tree.parents[child] == place:
                self._send(place, child)
                found += self._visit(child, own, change)
                self._send(child, place)
        return found

    def _send(self, place: int, other: int) -> None:
        """Sends a clique's marginal of what it shares with a neighbour, unless the neighbour knows it."""
        if (place, other) in self.stale:
            self.stale.remove((place, other))
            edge = max(place, other)  # of two neighbours the later is the child
            parting = self.tree.separator(edge)
            marginal = _summed(self.tables[place], self.tree.cliques[place], parting)
            self._multiply(other, parting, marginal / np.maximum(self.shared[edge], TINY), place)
            self.shared[edge] = marginal

    def _multiply(self, place: int, columns: Clique, factor: np.ndarray, source: int = -1) -> None:
        self.tables[place] *= self.tree.spread(factor, columns, place)
        self.stale |= {(place, other) for other in self.tree.near[place] if other != source}

    def _give(self, place: int, columns: Clique, shares: np.ndarray) -> float:
        """Gives columns their shares, in cells that have any; returns 0."""
        now = _summed(self.tables[place], self.tree.cliques[place], columns)
        after = np.where(now > 0, shares, 0.0)
        factor = after / np.maximum(now * after.sum(), TINY)
        self.potentials |= multiplied({columns: self.potentials.get(columns, np.zeros_like(now))}, {columns: factor})
        self._multiply(place, columns, factor)
        return 0.0

    def _improve(self, place: int, table: Measurement) -> float:
        """Corrects the potential of one table if it is off; returns the sum of squared distances before."""
        columns, deviation = table.columns, table.deviation / self.rows
        shares = table.counts.reshape([self.tree.sizes[column] for column in columns]) / self.rows
        pull = RESISTANCE * deviation**2 / self.usual
        marginal = np.maximum(_summed(self.tables[place], self.tree.cliques[place], columns), TINY)
        wanted = shares - pull * (self.potentials[columns] - self.base.get(columns, 0.0))
        squares = float(((marginal - wanted) ** 2).sum()) / deviation**2
        if squares > ACCURACY**2 * marginal.size:
            after, step = _least(marginal, wanted, pull)
            self.potentials[columns] = self.potentials[columns] + step
            self._multiply(place, columns, after / marginal)
        return squares


def _least(marginal: np.ndarray, wanted: np.ndarray, pull: float) -> tuple[np.ndarray, np.ndarray]:
    """The marginal u and the step d of one table's log potential at the minimum, all others held.

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
