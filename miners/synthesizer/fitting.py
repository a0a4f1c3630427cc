# SPDX-License-Identifier: Apache-2.0
"""``Fitting`` buys the tables of a purchase: all columns, then the pair that the model misses most.

Privacy:
    Claim: a fit costs ``Purchase.needed``. Why: each table is bought at its price in the purchase.
    Earlier answers and public random numbers alone determine the next pair, and the cells to which numbers
    move (sequential composition of adaptively chosen queries). Public facts determine which columns move, and
    they have no more cells than before. Held by: tests/unit/synthesizer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from miners.synthesizer import matching
from miners.synthesizer.fine_numbers import FineNumbers, pieces
from miners.synthesizer.graphical_model import (
    ACCURACY,
    FEW_WALKS,
    ROUGH,
    TINY,
    WALKS,
    Clique,
    GraphicalModel,
    multiplied,
)
from miners.synthesizer.purchase import ALLOWED, CHECKED, EACH, EXPECTED, LEAST_NOISE, OFFERED, Purchase, divided
from miners.synthesizer.relations import detected, grid_edges, limits, margin_noise, occupied
from miners.synthesizer.synthetic_table import Bought, SyntheticTable
from pinq.analyst.queryable import PrivateQueryable
from pinq.language.products import Products
from pinq.language.scores import Misfit
from pinq.public.epsilon import Epsilon

HIDEABLE = 0.25  # of a column's rows, where no sums bring hidden rows back
EXCLUDED = math.sqrt(TINY)  # the largest share of a value without possible cells
HIDDEN = 1.0  # the rows of all cells of a column together whose rows noise hides


class Fitting:
    """One fit: the tables so far, and the model of them."""

    def __init__(self, purchase: Purchase, handle: PrivateQueryable, random: np.random.Generator) -> None:
        self.purchase, self.handle, self.random = purchase, handle, random
        self.bought: list[Bought] = []
        self.fine: dict[int, FineNumbers] = {}  # of columns with moved cells
        self.seen: dict[int, np.ndarray] = {}  # whether each cell of a numeric column clearly has rows

    def learned(self) -> SyntheticTable:
        purchase = self.purchase
        for earlier in purchase.logged:  # queried again, for the certificate
            self.bought.append(purchase.table(self.handle, earlier.before, earlier.epsilon, reuse=True))
        for column in purchase.singles:
            self._buy(column, purchase.single)
        model = self._moved(self._model(None))
        purchase = self.purchase
        remaining, declared = purchase.rounds, purchase.ordered
        while purchase.pairs and remaining:
            share = remaining if remaining < purchase.round + purchase.round else purchase.round
            if declared:  # declared pairs need no choice
                self._buy(declared.pop(), share)
            else:
                self._buy(self._chosen(model, share, remaining), divided(share)[1])
            model = self._model(model)
            remaining -= share
        unknown = sorted(set(purchase.pairs) - {bought.columns for bought in self.bought})
        if purchase.checks and len(unknown) < CHECKED:
            for pair in purchase.pairs[:CHECKED]:
                self._buy(pair, purchase.checks)
        last = self._related(self._model(model, WALKS, ACCURACY))
        last = GraphicalModel(purchase.sizes, last.rows, multiplied(last.potentials, self._masks(last)))
        fine = {
            purchase.specs[number].column: self.fine.get(number) or self._fine(number, last)
            for number in (purchase.fines if purchase.fine else ())
        }
        last = self._matched(last, fine) if purchase.sums else last
        facts = purchase.target, fine, purchase.order
        table = SyntheticTable(purchase.schema, purchase.specs, last, tuple(self.bought), None, *facts)
        return replace(table, error=self._checked_error(table, unknown)) if purchase.checks else table

    def _moved(self, model: GraphicalModel) -> GraphicalModel:
        """Moves cells of numbers to where fine histograms show rows; returns the model of columns.

        Half of the weight is even over the cells before, so tails keep cells, in which tables of pairs count rows.
        """
        specs, moved = [*self.purchase.specs], dict[Clique, Bought]()
        before = {table.columns: table.counts for table in self.bought}
        for number in self.purchase.moved:
            fine = self.fine[number] = self._fine(number, model)
            firsts, name = grid_edges(self.purchase.schema, specs[number])[:-1], specs[number].column
            homes = np.searchsorted(firsts, fine.starts, side="right") - 1
            weights = fine.shares(firsts, model.marginal((number,))) + 1 / len(firsts) / np.bincount(homes)[homes]
            # A piece that has as much as a cell counts as one.
            starts = fine.tenths(np.minimum(weights, 2 / len(firsts)), len(firsts))
            specs[number] = replace(fine, starts=starts).spec(self.purchase.schema.numeric(name), name)
            places, missing = np.searchsorted(fine.starts, starts), before[(number,)][len(firsts) :]
            deviation = fine.deviation * math.sqrt(np.diff(places, append=len(fine.starts)).max())
            counts = np.append(np.add.reduceat(fine.counts, places), missing)
            moved[(number,)] = Bought((number,), counts, deviation, self.purchase.fine)
        self.bought = [moved.get(table.columns, table) for table in self.bought]
        self.purchase = replace(self.purchase, specs=tuple(specs))
        return self._model(None)

    def _related(self, model: GraphicalModel) -> GraphicalModel:
        """The model without the cells that declared orders and detected relations exclude.

        The shares of their columns stay: noise puts rows in excluded cells, as many for a rare value as for another.
        """
        masks = detected(self.bought, self.purchase.sizes) | self.purchase.masks
        related = GraphicalModel(model.sizes, model.rows, multiplied(model.potentials, masks))
        shares = {(number,): model.marginal((number,)) for number in sorted({*itertools.chain(*masks)})}
        return related.brought(
            {column: np.where(related.marginal(column) > EXCLUDED, before, 0.0) for column, before in shares.items()}
        )

    def _masks(self, model: GraphicalModel) -> dict[Clique, np.ndarray]:
        """The weights of cells of numbers far out.

        If sums are queried, the hidden cells of a column get one row together, which sums can increase.
        """
        purchase, masks = self.purchase, dict[Clique, np.ndarray]()
        hidden_share = 1.0 if purchase.sums else HIDEABLE
        for number, spec in enumerate(purchase.specs):
            if spec.column in purchase.schema.numeric_columns and not purchase.schema.numeric(spec.column).cuts:
                cells = len(grid_edges(purchase.schema, spec)) - 1
                rows = model.marginal((number,)) * model.rows
                self.seen[number] = clear = occupied(rows, self.bought, number, cells, hidden_share)
                weight = HIDDEN / np.maximum(rows * (~clear).sum(), HIDDEN) if number in purchase.summed else 0.0
                masks[(number,)] = np.where(clear, 1.0, weight if purchase.sums else 0.0)
        return masks

    def _fine(self, number: int, model: GraphicalModel) -> FineNumbers:
        purchase, spec = self.purchase, self.purchase.specs[number]
        column = purchase.schema.numeric(spec.column)
        edges = grid_edges(purchase.schema, spec)
        starts = pieces(edges, model.marginal((number,))[: len(edges) - 1], column)
        fine = FineNumbers(starts, np.zeros(len(starts)), purchase.deviation(purchase.fine))
        counts = self.handle.partition(fine.spec(column, spec.column)).noisy_count(epsilon=purchase.fine)
        fine = replace(fine, counts=np.asarray(counts, dtype=np.float64)[: len(starts)])
        middles, shares = fine.ends(column).mean(axis=0), fine.shares(edges[:-1], model.marginal((number,)))
        far = middles[shares > 0] - shares @ middles / max(float(shares.sum()), TINY)
        return replace(fine, unsure=fine.deviation * float(np.linalg.norm(far)) / model.rows)

    def _sums(self, ranges: tuple[tuple[float, float], ...] = ()) -> np.ndarray:
        names = tuple(self.purchase.specs[number].column for number in self.purchase.summed)
        products = Products(names, ranges, pairs="squares", limit=matching.limit(len(names), self.purchase.reach))
        return np.asarray(self.handle.noisy_sum(products, epsilon=self.purchase.sums), dtype=np.float64)

    def _matched(self, model: GraphicalModel, fine: dict[str, FineNumbers]) -> GraphicalModel:
        """Buys sums of numbers and squares; adjusts fine numbers and the model to them."""
        purchase, shares, ends, homes, spans = self.purchase, {}, {}, {}, {}
        for number in purchase.summed:
            spec, cells = purchase.specs[number], model.marginal((number,))
            name, column = spec.column, purchase.schema.numeric(spec.column)
            firsts = grid_edges(purchase.schema, spec)[:-1]
            homes[name] = np.searchsorted(firsts, fine[name].starts, side="right") - 1
            shares[name], ends[name] = fine[name].shares(firsts, cells), fine[name].ends(column)
            low, high = spans[name] = matching.spread(shares[name], ends[name].mean(axis=0), purchase.reach)
            # Sums do not show where numbers beyond the range are, so hidden cells there stay empty.
            shares[name] *= self.seen[number][homes[name]] | ((ends[name][1] > low) & (ends[name][0] < high))
        sums = self._sums(tuple(spans.values()))
        noise = purchase.deviation(purchase.sums) * matching.limit(len(spans), purchase.reach) / model.rows
        numbers = sums[1:].reshape(2, -1).T / model.rows
        features = {name: matching.features(ends[name], span) for name, span in spans.items()}
        worth = matching.worth([*shares.values()], [*features.values()], numbers, noise)
        marginals: dict[Clique, np.ndarray] = {}
        for number, means in zip(purchase.summed, numbers, strict=True):
            name = purchase.specs[number].column
            cells = matching.features(limits(purchase.schema, purchase.specs[number]), spans[name])
            of_cell = margin_noise(self.bought, number, purchase.sizes[number]) / model.rows
            least = matching.least_worth(shares[name], features[name], cells, of_cell)
            tilted = matching.tilt(shares[name], features[name], means, noise, np.maximum(worth, least))
            after = np.bincount(homes[name], tilted, purchase.sizes[number])
            after[homes[name][-1] + 1 :] = max(0.0, 1 - float(tilted.sum()))  # of the cell of missing values
            marginals[(number,)] = after
            half = (spans[name][1] - spans[name][0]) / 2
            # A row beyond the range counts as at its end, and may lie at the column's bound.
            farthest = max(half, float(np.abs(ends[name][[0, 1], [0, -1]] - sum(spans[name]) / 2).max()))
            hidden = purchase.hidden / model.rows * farthest**2
            fine[name] = replace(
                fine[name], counts=tilted * model.rows, deviation=LEAST_NOISE, unsure=noise * half, hidden=hidden
            )
        return model.brought(marginals)

    def rehearse(self) -> None:
        """Queries everything before the first round, the round's choice, and the sums of numbers."""
        self.bought += self.purchase.logged
        for column in self.purchase.singles:
            self._buy(column, self.purchase.single)
        self._chosen(self._model(None), self.purchase.round, self.purchase.worth)
        if self.purchase.sums:
            self._sums()

    def _offered(self, model: GraphicalModel, price: Epsilon, remaining: Epsilon) -> list[Clique]:
        """The pairs that keep the junction tree small, those of uncovered columns first; else all pairs inside it."""
        room = self.purchase.room(remaining) - sum(table.size for table in model.tables)
        # A table queried twice at one price is one query, whose answer a repeated fit would take twice.
        dear = {bought.columns for bought in self.bought if bought.epsilon == price}
        growth = model.tree.growth
        contained = [pair for pair in self.purchase.pairs if not growth[pair]]
        bare = self.purchase.uncovered([columns for columns in model.potentials if len(columns) > 1])
        for pairs in ([pair for pair in self.purchase.pairs if bare & {*pair}], self.purchase.pairs):
            fitting = [pair for pair in pairs if pair not in dear and (not growth[pair] or growth[pair] <= room)]
            if fitting:
                return self._drawn(fitting)
        return self._drawn(contained)

    def _drawn(self, pairs: Sequence[Clique]) -> list[Clique]:
        """Some pairs by public coins, if the tables of all are too much for a request."""
        order = self.random.permutation(len(pairs))
        cells = np.cumsum([EACH + self.purchase.cells(pairs[number]) for number in order])
        return [pairs[number] for number in sorted(order[: np.count_nonzero(cells <= OFFERED)])]

    def _chosen(self, model: GraphicalModel, share: Epsilon, remaining: Epsilon) -> Clique:
        """The pair whose table the model misses most, by ``exp_mech``."""
        epsilon, price = divided(share)
        offered = self._offered(model, price, remaining)
        specs, expected = [self.purchase.crosses[pair] for pair in offered], model.pairs(offered)
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

    def _checked_error(self, table: SyntheticTable, unknown: Sequence[Clique]) -> float | None:
        """A bound, with 90 % confidence, of the error of the tables of unbought pairs, on tenths of numbers.

        Each noisy table y of k cells with noise of variance v gives d = Σ (y - m)² - k v, which estimates Σ (n - m)²
        without bias. Half of Σ |n - m| is at most half the root of k Σ (n - m)², so the mean of k d / 4 estimates a
        bound of the mean square of that distance. Its deviation comes from the drawn pairs and from the noise; 1.28
        deviations are added.
        """
        if len(unknown) < CHECKED:
            return None
        variance, rows, squares, noises = self.purchase.deviation(self.purchase.checks) ** 2, table.model.rows, [], []
        for number in sorted(self.random.choice(len(unknown), CHECKED, replace=False).tolist()):
            specs, parts = zip(*(table.tenths(column) for column in unknown[number]), strict=True)
            expected = (parts[0].T @ table.model.marginal(unknown[number]) @ parts[1]).ravel() * rows
            counts = self.handle.partition(*specs).noisy_count(epsilon=self.purchase.checks)
            cells = expected.size
            square = float(((np.asarray(counts, dtype=np.float64).ravel() - expected) ** 2).sum()) - cells * variance
            weight = cells / (2 * rows) ** 2
            squares.append(weight * square)
            # The square of Laplace noise of variance v has the variance 5 v², and noise times a miss d 4 v d².
            noises.append(weight**2 * (5 * cells * variance**2 + 4 * variance * max(square, 0.0)))
        spread = np.var(squares, ddof=1) * (1 - CHECKED / len(unknown)) / CHECKED
        deviation = math.sqrt(spread + float(np.sum(noises)) / CHECKED**2)
        # A mean below 0 is noise, and must not reduce the bound.
        return min(1.0, math.sqrt(max(0.0, float(np.mean(squares))) + 1.28 * deviation))

    def _buy(self, columns: Clique, epsilon: Epsilon) -> Bought:
        self.bought.append(self.purchase.table(self.handle, columns, epsilon))
        return self.bought[-1]

    def _model(self, before: GraphicalModel | None, walks: int = FEW_WALKS, accuracy: float = ROUGH) -> GraphicalModel:
        sizes, usual, max_rows = self.purchase.sizes, self.purchase.usual, self.purchase.schema.max_rows
        return GraphicalModel.fitted(sizes, self.bought, usual, max_rows, before, walks, accuracy)
