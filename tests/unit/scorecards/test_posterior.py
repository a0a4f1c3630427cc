# SPDX-License-Identifier: Apache-2.0
"""Points from noisy sums: the posterior is that of the model that its module states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from miners.scorecards.card import Card
from miners.scorecards.objectives import (
    ManyClasses,
    TwoClasses,
    from_probability,
    log_probabilities,
    newton,
    reliable_probabilities,
)
from pinq.language.specs import Values
from pinq.public.schema import Categorical, Schema


def test_a_newton_step_is_the_posterior_mean_and_its_deviation() -> None:
    """By simulation: true points from the prior, gradients from the points, noise on both."""
    random = np.random.default_rng(1)
    width, rows, scale, cells = 0.7, 40.0, 6.0, 200_000
    truth = random.normal(0, width, (cells, 1))
    noise = 2 * scale**2
    gradients = rows * truth + random.normal(0, np.sqrt(rows), truth.shape) + random.laplace(0, scale, truth.shape)
    estimate = newton(gradients, np.full_like(truth, rows), spread=1.0, noise=noise, width=width, limit=10.0)
    errors = estimate.points - truth
    assert abs(errors.mean()) < 0.01
    assert errors.std() == pytest.approx(float(estimate.deviations[0, 0]), rel=0.01)
    assert np.mean(np.abs(errors) < 2 * estimate.deviations) == pytest.approx(0.95, abs=0.01)
    for factor in (0.7, 1.4):  # any other factor is further off
        assert np.std(factor * estimate.points - truth) > errors.std()


def test_cells_without_rows_get_no_points() -> None:
    """Whatever the noise in their gradient: curvature at or below 0 is no rows."""
    estimate = newton(np.array([[50.0], [-50.0]]), np.array([[-3.0], [0.0]]), spread=1, noise=100, width=1, limit=3)
    assert (estimate.points == 0).all()
    assert np.allclose(estimate.deviations, 1)
    assert (estimate.weights == 0).all()


def test_points_are_clipped() -> None:
    """One step moves a cell only so far."""
    estimate = newton(np.array([[9e5]]), np.array([[1e4]]), spread=1, noise=1, width=9, limit=3)
    assert estimate.points.tolist() == [[3.0]]


def test_tables_agree_on_the_classes_before_their_shares_count() -> None:
    """A table whose total of a class is off by its noise gives that class nothing."""
    table = np.array([[30.0, 70.0], [30.0, 70.0]])
    off = table + np.array([[40.0, 0.0], [40.0, 0.0]])
    plain, moved = log_probabilities([table, off], np.array([60.0, 140.0]), 1.0)
    assert np.allclose(plain.points, 0)
    assert np.allclose(moved.points, plain.points)


def test_points_from_tables_are_naive_bayes() -> None:
    """Without noise to speak of: the logs of P(value | class), up to what all classes share."""
    table = np.array([[300.0, 100.0, 50.0], [100.0, 100.0, 150.0]])
    (estimate,) = log_probabilities([table], table.sum(axis=0), 1e-3)
    logs = np.log(table / table.sum(axis=0))
    assert np.allclose(estimate.points, logs - logs.mean(axis=1, keepdims=True))


def test_a_card_from_tables_answers_as_naive_bayes() -> None:
    """With twenty-four attributes points and start are halved alike, so the likeliest class stays the same."""
    names = [f"a{number}" for number in range(24)]
    values = Categorical(values=("u", "v", "w"))
    target = Categorical(values=("p", "q", "r", "s"))
    schema = Schema(columns={**dict.fromkeys(names, values), "y": target}, max_rows=1000)
    random = np.random.default_rng(3)
    tables = [random.multinomial(1000, random.dirichlet(np.ones(12))).reshape(3, 4) + 1.0 for _ in names]
    objective = ManyClasses(schema=schema, target="y")
    card = objective.tabulated(Card(schema, "y", (0,) * 4), [Values(name) for name in names], tables, 1.0)
    totals = np.mean([table.sum(axis=0) for table in tables], axis=0)
    rows = random.integers(0, 3, (200, len(names)))
    estimates = log_probabilities(tables, totals, 1.0)
    bayes = np.log(totals / totals.sum()) + sum(each.points[rows[:, n]] for n, each in enumerate(estimates))
    scored = np.array(card.base) + sum(
        np.array([card.score_of(k).tables[n] for k in range(4)]).T[rows[:, n]] for n in range(len(names))
    )
    gaps = np.sort(bayes, axis=1)
    clear = gaps[:, -1] - gaps[:, -2] > 0.2  # points are whole 256ths
    assert clear.sum() > 150
    assert (scored.argmax(axis=1) == bayes.argmax(axis=1))[clear].all()


def tables_of(scale: float, tells: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Noisy tables of two classes in four cells each, whose classes differ by so much."""
    random = np.random.default_rng(4)
    lean = tells * np.array([1, 1, -1, -1])
    exact = 250 * np.column_stack([0.5 - lean, 0.5 + lean])
    return [exact + random.laplace(0, scale, exact.shape) for _ in range(20)], exact.sum(axis=0)


def shares_of(tables: list[np.ndarray], totals: np.ndarray, scale: float) -> np.ndarray:
    """The reliable shares of tables."""
    return reliable_probabilities(tables, log_probabilities(tables, totals, scale), totals, scale)


def test_noise_is_no_reliable_part_of_points() -> None:
    """Attributes that say nothing under much noise have next to none, those that say much next to all."""
    assert shares_of(*tables_of(60.0, 0.0), 60.0).mean() < 0.3
    assert shares_of(*tables_of(1.0, 0.0), 1.0).mean() < 0.1
    assert shares_of(*tables_of(1.0, 0.3), 1.0).min() > 0.95
    weak, strong = (shares_of(*tables_of(60.0, tells), 60.0).mean() for tells in (0.1, 0.4))
    assert weak < strong < 1


def test_each_table_has_a_reliable_share_of_its_own() -> None:
    """One table in twenty says much: its share is large, and noise leaves little of the others."""
    tables, totals = tables_of(20.0, 0.0)
    tables[3] = tables_of(20.0, 0.4)[0][3]
    shares = shares_of(tables, totals, 20.0)
    assert shares[3] > 0.9
    assert np.delete(shares, 3).max() < shares[3]


def test_shares_of_two_and_of_many_classes_are_alike() -> None:
    """A third class without rows, whose noise is counted too, changes little."""
    tables, totals = tables_of(1.0, 0.1)
    wider = [np.column_stack([table, np.zeros(len(table))]) for table in tables]
    assert shares_of(wider, np.append(totals, 1.0), 1.0) == pytest.approx(shares_of(tables, totals, 1.0), abs=0.05)


def test_cells_that_are_moved_to_known_totals_have_one_noise_less() -> None:
    """Two cells are off by one noise, not two: of tables four times as far apart as noise a quarter is its own."""
    random = np.random.default_rng(9)
    scale, rows = 100.0, 1000.0
    # A cell of 1,000 rows, half of each class, is off by the root of 250 / 2 + 2 * 100^2 / 4.
    apart = (3 * (250 / 2 + scale**2 / 2)) ** 0.5
    exact = np.array([[rows / 2 + apart, rows / 2 - apart], [rows / 2 - apart, rows / 2 + apart]])
    tables = [exact + random.laplace(0, scale, exact.shape) for _ in range(2000)]
    shares = [float(shares_of([table], exact.sum(axis=0), scale)[0]) for table in tables]
    assert 0.48 < np.mean(shares) < 0.6  # two noises would leave .34


def test_a_first_step_of_a_known_share_is_the_log_odds() -> None:
    """Without noise: of 20 % of all rows, a cell has 44 %, one none and one all."""
    share = 0.2
    gradients = np.array([[0.44 - share], [-share], [1 - share]]) * 1e6
    curvatures = np.full((3, 1), share * (1 - share)) * 1e6
    step = newton(gradients, curvatures, spread=1.0, noise=1.0, width=1.0, limit=9.0)
    points = from_probability(step, share, 3.0).points[:, 0]
    assert points == pytest.approx([math.log(0.44 / 0.56) - math.log(0.25), -3, 3], abs=1e-3)
    unknown = newton(np.zeros((1, 1)), np.zeros((1, 1)), spread=1.0, noise=1.0, width=1.0, limit=9.0)
    assert from_probability(unknown, share, 3.0).deviations == pytest.approx(1.0)


def test_points_from_tables_are_scaled_by_what_is_reliable_in_them() -> None:
    """By the root of its share, times the damping of twenty attributes."""
    names = [f"a{number}" for number in range(20)]
    columns = dict.fromkeys(names, Categorical(values=("u", "v", "w", "x")))
    schema = Schema(columns={**columns, "y": Categorical(values=("p", "q"))}, max_rows=1000)
    tables, _ = tables_of(60.0, 0.3)
    totals = np.maximum(np.mean([table.sum(axis=0) for table in tables], axis=0), 60.0)
    card = TwoClasses(schema=schema, target="y").tabulated(
        Card(schema, "y", (0,)), [Values(name) for name in names], tables, 60.0
    )
    plain = np.array([each.points @ [-1, 1] for each in log_probabilities(tables, totals, 60.0)])
    scales = (6 / 20) ** 0.5 * np.sqrt(shares_of(tables, totals, 60.0))
    assert np.allclose(np.array(card.score_of(0).tables) / 256, scales[:, None] * plain, atol=0.5 / 256)
    assert (scales < 0.5).all()


def test_a_card_of_noise_starts_where_classes_do() -> None:
    """Of four attributes that are noise, with 900 rows of one class and 100 of the other, a row's log-odds are about those."""
    columns = {name: Categorical(values=("u", "v", "w", "x")) for name in "abcd"}
    schema = Schema(columns={**columns, "y": Categorical(values=("p", "q"))}, max_rows=1000)
    random = np.random.default_rng(6)
    tables = [np.array([225.0, 25.0]) + random.laplace(0, 40, (4, 2)) for _ in columns]
    specs = [Values(name) for name in columns]
    card = TwoClasses(schema=schema, target="y").tabulated(Card(schema, "y", (0,)), specs, tables, 40.0)
    assert card.base[0] / 256 == pytest.approx(np.log(100 / 900), abs=0.5)
