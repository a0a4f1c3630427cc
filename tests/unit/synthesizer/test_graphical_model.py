# SPDX-License-Identifier: Apache-2.0
"""A graphical model's messages are exact, its fit follows its tables, and its rows follow the model."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from miners.synthesizer import graphical_model
from miners.synthesizer.graphical_model import (
    Clique,
    GraphicalModel,
    JunctionTree,
    Measurement,
    total_rows,
    tree_cells,
)

SIZES = (2, 3, 4, 2, 3)
GROUPS: list[list[Clique]] = [
    [(0,), (1,), (2,), (3,), (4,)],
    [(0, 1), (1, 2), (2, 3), (3, 4)],
    [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)],
    [(0, 1), (1, 2), (2, 3), (0, 3), (4,)],  # a ring, which needs a chord
    [(0, 2, 4), (1, 3), (0, 1)],
]


def joint(potentials: dict[Clique, np.ndarray]) -> np.ndarray:
    """The whole distribution, cell by cell: what messages must give, without them."""
    table = np.zeros(SIZES)
    for cell in itertools.product(*map(range, SIZES)):
        table[cell] = math.exp(
            sum(potential[tuple(cell[c] for c in columns)] for columns, potential in potentials.items())
        )
    return table


@pytest.mark.parametrize("groups", GROUPS)
def test_messages_give_what_the_whole_table_gives(groups: list[Clique]) -> None:
    """Every pair's marginal, in a clique or not, and the normaliser."""
    random = np.random.default_rng(1)
    potentials = {columns: random.normal(0, 2, [SIZES[c] for c in columns]) for columns in groups}
    whole = joint(potentials)
    model = GraphicalModel(SIZES, 100.0, potentials)
    for pair, shares in model.pairs(itertools.combinations(range(5), 2)).items():
        expected = whole.sum(axis=tuple(set(range(5)) - set(pair))) / whole.sum()
        assert model.marginal(pair) == pytest.approx(expected)
        assert shares == pytest.approx(expected)


def test_far_potentials_do_not_underflow() -> None:
    """Where two cliques want opposite cells of a column that they share, each cell's product of shares is 0."""
    first, second = np.zeros((2, 2)), np.zeros((2, 2))
    first[:, 1], second[0] = -2000.0, -2001.0
    model = GraphicalModel((2, 2, 2), 10.0, {(0, 1): first, (1, 2): second})
    assert model.marginal((1,)) == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])


@pytest.mark.parametrize("groups", GROUPS)
def test_what_two_cliques_share_lies_on_the_way_between(groups: list[Clique]) -> None:
    """Else messages would count a column's evidence twice."""
    tree = JunctionTree(SIZES, groups)
    for column in range(5):
        holding = {place for place, clique in enumerate(tree.cliques) if column in clique}
        # Each owner but one has its parent among the owners: they are one piece of the tree.
        assert len([place for place in holding if tree.parents[place] not in holding]) == 1
    assert tree_cells(SIZES, groups) == sum(math.prod(SIZES[c] for c in clique) for clique in tree.cliques)


@pytest.mark.parametrize("groups", GROUPS)
def test_growth_bounds_what_a_further_pair_takes(groups: list[Clique]) -> None:
    """A pair in a clique takes nothing; others at least their own cells, and just these between parts of the graph."""
    tree, cells = JunctionTree(SIZES, groups), tree_cells(SIZES, groups)
    assert (tree.growth == tree.growth.T).all()
    for pair in itertools.combinations(range(5), 2):
        more = tree.growth[pair]
        held = tree.home(pair) >= 0
        assert (more == 0) == held
        if not held:
            assert more >= SIZES[pair[0]] * SIZES[pair[1]]
            assert tree_cells(SIZES, [*groups, pair]) <= cells + more


def test_growth_between_parts_of_a_graph_is_the_pairs_own_table() -> None:
    """However long a way through unconnected cliques is."""
    assert JunctionTree(SIZES, [(0, 1), (2, 3), (4,)]).growth[1, 3] == 3 * 2
    assert JunctionTree(SIZES, [(0, 1), (1, 2), (2, 3), (4,)]).growth[0, 3] == 3 * 4 * 2 + 2 * 3 * 2


def test_exact_tables_are_met() -> None:
    """With next to no noise the fitted marginals are the tables."""
    random = np.random.default_rng(2)
    rows = random.integers(0, SIZES, (3000, 5))
    rows[:, 1] = np.where(random.random(3000) < 0.7, rows[:, 0], rows[:, 1])
    measured = [table_of(rows, (c,), 0.1) for c in range(5)] + [
        table_of(rows, (0, 1), 0.1),
        table_of(rows, (1, 2), 0.1),
    ]
    model = GraphicalModel.fitted(SIZES, measured, 0.1)
    assert model.rows == pytest.approx(3000)
    for table in measured:
        assert np.abs(model.marginal(table.columns).ravel() * 3000 - table.counts).max() < 3


@pytest.mark.parametrize("accuracy", [0.1, 0.3, 1.0])
def test_a_fit_ends_at_its_accuracy(accuracy: float) -> None:
    """The measured tables are together so near to those of a far longer fit, in deviations of their noise."""
    random = np.random.default_rng(4)
    rows = random.integers(0, SIZES, (3000, 5))
    for column in range(1, 5):
        rows[:, column] = np.where(random.random(3000) < 0.7, rows[:, column - 1] % SIZES[column], rows[:, column])
    groups: list[Clique] = [*((column,) for column in range(5)), (0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (3, 4)]
    measured = [table_of(rows, columns, 5.0) for columns in groups]
    noisy = [replace(table, counts=table.counts + random.normal(0, 5, table.counts.size)) for table in measured]
    short, long = (GraphicalModel.fitted(SIZES, noisy, 5.0, accuracy=each) for each in (accuracy, 1e-4))
    off = [(short.marginal(columns) - long.marginal(columns)).ravel() * 3000 / 5 for columns in groups]
    assert accuracy / 100 <= np.sqrt((np.concatenate(off) ** 2).mean()) <= accuracy


def test_a_noisy_table_weighs_little_beside_an_exact_one() -> None:
    """Of two tables of a column the fit follows the one with less noise."""
    good, bad = np.array([900.0, 100.0]), np.array([100.0, 900.0])
    model = GraphicalModel.fitted((2,), [Measurement((0,), good, 1.0), Measurement((0,), bad, 50.0)], 1.0)
    assert model.marginal((0,))[0] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("exact", [10.0, 0.001])
def test_a_very_exact_table_leaves_the_others_their_weight(exact: float) -> None:
    """However exact one table is, a dependence that another shows well stays in the model."""
    pair = Measurement((0, 1), np.array([400.0, 100, 100, 400]), 10.0)
    singles = [Measurement((column,), np.array([500.0, 500.0]), 10.0) for column in (0, 1)]
    other = Measurement((2,), np.array([300.0, 700.0]), exact)
    model = GraphicalModel.fitted((2, 2, 2), [*singles, pair, other], 10.0)
    assert model.marginal((0, 1)).ravel() * 1000 == pytest.approx(pair.counts, abs=15)


def test_what_noise_alone_explains_is_not_learned() -> None:
    """Counts as uneven as their noise makes even ones are even; counts far more uneven stay as they are."""
    counts = np.array([60.0, 140.0, 80.0, 120.0])
    for deviation, expected in ((40.0, [0.25] * 4), (1.0, counts / 400)):
        model = GraphicalModel.fitted((4,), [Measurement((0,), counts, deviation)], 4.0)
        assert model.marginal((0,)) == pytest.approx(expected, abs=0.04)


def test_a_column_learns_from_all_its_tables() -> None:
    """An exact table of a pair corrects the noisy tables of both columns, also in pairs with a third one."""
    singles = [Measurement((column,), np.array([900.0, 100.0]), 500.0) for column in range(3)]
    pair = Measurement((0, 1), np.array([100.0, 200.0, 300.0, 400.0]), 1.0)
    model = GraphicalModel.fitted((2, 2, 2), [*singles, pair], 500.0)
    assert model.marginal((0, 1)).ravel() == pytest.approx(pair.counts / 1000, abs=0.01)
    assert model.marginal((0, 2)).sum(axis=1) == pytest.approx([0.3, 0.7], abs=0.01)


def test_there_are_no_more_rows_than_there_can_be() -> None:
    """Noise adds no rows beyond the public bound."""
    table = Measurement((0,), np.array([900.0, 500.0]), 100.0)
    assert GraphicalModel.fitted((2,), [table], 100.0, 1000).rows == 1000
    assert GraphicalModel.fitted((2,), [table], 100.0, 2000).rows == 1400


def test_negative_counts_are_fitted_by_few_rows() -> None:
    """Noise takes cells below zero; the model stays finite and its shares above zero."""
    measured = [
        Measurement((0,), np.array([-30.0, 1030.0]), 20.0),
        Measurement((1,), np.array([500.0, 520.0, -20.0]), 20.0),
    ]
    both = Measurement((0, 1), np.array([-9.0, 3, -2, 498, 515, -12]), 20.0)
    model = GraphicalModel.fitted((2, 3), [*measured, both], 20.0)
    shares = model.marginal((0, 1))
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)
    assert shares[0].sum() < 0.03


@pytest.mark.parametrize("rows", [0, 1, 7, 5000])
def test_rows_follow_the_model(rows: int) -> None:
    """Rounding costs about a row a cell, so a table of the rows is the model's to less than random rows were."""
    random = np.random.default_rng(3)
    potentials = {columns: random.normal(0, 1, [SIZES[c] for c in columns]) for columns in GROUPS[2]}
    model = GraphicalModel(SIZES, 5000.0, potentials)
    codes = model.sampled(rows, random)
    assert codes.shape == (rows, 5)
    assert (codes >= 0).all()
    assert (codes < SIZES).all()
    for columns in [(0,), (1,), (2, 3)]:
        counts = table_of(codes, columns, 1.0).counts
        expected = model.marginal(columns).ravel() * rows
        assert np.abs(counts - expected).max() <= 3 + 2 * math.sqrt(rows) / 10


def test_rows_are_counted_by_all_tables_together() -> None:
    """The table of fewer cells tells more of their number."""
    tables = [Measurement((0,), np.array([60.0, 50.0]), 1.0), Measurement((1,), np.full(8, 11.25), 1.0)]
    assert total_rows(tables) == pytest.approx((110 / 2 + 90 / 8) / (1 / 2 + 1 / 8))


def table_of(rows: np.ndarray, columns: Clique, deviation: float) -> Measurement:
    sizes = [SIZES[column] for column in columns]
    numbers = (
        np.ravel_multi_index(tuple(rows[:, column] for column in columns), sizes) if len(rows) else np.zeros(0, int)
    )
    return Measurement(columns, np.bincount(numbers, minlength=math.prod(sizes)).astype(float), deviation)


@pytest.mark.parametrize("seed", range(40))
def test_a_table_of_any_noise_is_fitted(seed: int) -> None:
    """Shares far below 0 or above 1, probabilities of next to nothing, and any weight: no overflow, and the minimum."""
    random = np.random.default_rng(seed)
    cells = int(random.integers(2, 500))
    marginal = np.maximum(random.dirichlet(np.full(cells, 10 ** random.uniform(-2, 1))), graphical_model.TINY)
    pull = 10 ** random.uniform(-9, 3)
    wanted = random.normal(0, 10 ** random.uniform(-6, 1), cells)
    after, step = graphical_model._least(marginal / marginal.sum(), wanted, pull)
    assert after.sum() == pytest.approx(1)
    np.testing.assert_allclose(after, wanted - pull * step, atol=1e-7 * max(1.0, np.abs(wanted).max()))


def test_two_cells_without_rows_and_much_noise_are_fitted() -> None:
    """Steps of all unknowns at once ran away here."""
    after, _ = graphical_model._least(np.array([0.506, 0.494]), np.array([0.001, 0.001]), 21.2)
    assert after == pytest.approx([0.506, 0.494], abs=1e-3)
