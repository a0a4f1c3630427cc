# SPDX-License-Identifier: Apache-2.0
"""Consistent estimates equal generalized least squares by matrices; shrinkage keeps its laws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from miners.fitted.estimates import (
    class_probabilities,
    counted_probabilities,
    least_squares,
    noise_dominated,
    smoothed_probabilities,
)


def random_tree(random: Any, nodes: Any) -> Any:
    """Returns the children of each node; parents come before their children."""
    children: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(1, nodes):
        children[int(random.integers(max(0, node - 4), node))].append(node)
    return children


def gls(children: Any, answers: Any, variances: Any) -> Any:
    """Returns the oracle's estimates: unknowns are the leaves, answers are noisy sums of leaves."""
    leaves = [node for node, below in enumerate(children) if not below]
    sums = np.zeros((len(children), len(leaves)))
    for node in range(len(children) - 1, -1, -1):
        sums[node] = sums[children[node]].sum(axis=0) if children[node] else np.eye(len(leaves))[leaves.index(node)]
    weight = np.diag(np.where(np.isfinite(variances), 1 / variances, 0.0))
    covariance = np.linalg.inv(sums.T @ weight @ sums)
    return sums @ covariance @ sums.T @ weight @ answers, np.diag(sums @ covariance @ sums.T)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 25), width=st.integers(1, 3))
def test_it_is_generalized_least_squares(seed: Any, nodes: Any, width: Any) -> None:
    random = np.random.default_rng(seed)
    children = random_tree(random, nodes)
    variances = random.uniform(0.1, 9, nodes)
    inner = np.array([bool(below) for below in children])
    variances[inner & (random.random(nodes) < 0.3)] = np.inf
    answers = random.normal(0, 5, (nodes, width))
    best, spread = least_squares(children, answers, variances)
    expected, covariance = gls(children, np.where(np.isfinite(variances)[:, None], answers, 0), variances)
    assert np.allclose(best, expected, atol=1e-8)
    assert np.allclose(spread, covariance, atol=1e-8)
    for node, below in enumerate(children):
        assert not below or np.allclose(best[below].sum(axis=0), best[node])


def test_a_root_and_two_leaves_share_out_their_difference() -> None:
    best, spread = least_squares([[1, 2], [], []], np.array([[10.0], [4.0], [3.0]]), np.ones(3))
    assert np.allclose(best[:, 0], [9, 5, 4])
    assert np.allclose(spread, 2 / 3)


def test_a_leaf_that_nothing_was_asked_of_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was asked of leaf 1"):
        least_squares([[1, 2], [], []], np.ones((3, 1)), np.array([1.0, np.inf, 1.0]))


def test_the_noise_is_as_small_as_it_says() -> None:
    """The variance over 10,000 draws agrees with the variance that is returned, at each node.

    The tolerance is five standard errors of such a variance, each sqrt(2 / 10,000).
    """
    random = np.random.default_rng(7)
    children = [[1, 2, 3], [4, 5], [], [], [], []]
    variances = np.array([1.0, 2.0, 0.5, 4.0, 1.0, 3.0])
    noise = random.normal(0, 1, (6, 10_000)) * np.sqrt(variances)[:, None]
    best, spread = least_squares(children, noise, variances)
    assert np.allclose(best.var(axis=1) / spread, 1, atol=5 * np.sqrt(2 / 10_000))
    assert (spread <= variances + 1e-12).all()


@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 20), classes=st.integers(2, 4))
def test_shares_are_shares(seed: Any, nodes: Any, classes: Any) -> None:
    random = np.random.default_rng(seed)
    counts = random.normal(0, 50, (nodes, classes)) * random.choice([0, 1, 10.0**290], (nodes, 1))
    shares = class_probabilities(
        random_tree(random, nodes), counts, random.uniform(0, 60, nodes) * random.integers(0, 2, nodes)
    )
    assert np.isfinite(shares).all()
    assert (shares >= 0).all()
    assert np.allclose(shares.sum(axis=1), 1)


def test_a_leaf_drowned_in_noise_answers_like_its_parent_and_a_clear_one_for_itself() -> None:
    children, counts = [[1, 2, 3]], np.array([[8000.0, 2000.0], [6.0, 9.0], [20.0, 980.0], [7974.0, 1011.0]])
    shares = class_probabilities([*children, [], [], []], counts, np.array([5.0, 14.0, 14.0, 14.0]))
    assert shares[1] == pytest.approx(shares[0])
    assert shares[2] == pytest.approx([0.02, 0.98], abs=0.01)
    exact = class_probabilities([*children, [], [], []], counts, np.zeros(4))
    assert exact[1] == pytest.approx([0.4, 0.6])


def leaf_below(parent: Any, counts: Any, deviation: Any) -> Any:
    """Returns the shares of a parent and of a leaf below it with these counts."""
    rest = np.asarray(parent) - counts
    return class_probabilities(
        [[1, 2], [], []], np.array([parent, counts, rest]), np.array([deviation / 3, deviation, deviation])
    )[:2]


def test_in_law_an_empty_leaf_predicts_what_its_parent_predicts() -> None:
    """Noise alone never turns the vote of an empty leaf, and mostly leaves its share as it is.

    The leaf is drawn 2,000 times; its parent has 17,181 rows, 94 % of them of one class.
    """
    random = np.random.default_rng(11)
    drawn = [leaf_below([16_150.0, 1031.0], random.normal(0, 92, 2), 92.0) for _ in range(2000)]
    leaves, parents = np.array([leaf[1] for _, leaf in drawn]), np.array([parent[1] for parent, _ in drawn])
    assert (leaves < 0.5).all()
    assert (leaves == parents).mean() > 0.8  # a sum of noise is below its own deviation in 84 % of all draws
    assert leaves.mean() == pytest.approx(0.06, abs=0.02)
    # A clear leaf answers for itself all the same.
    assert leaf_below([16_150.0, 1031.0], np.array([20.0, 980.0]), 92.0)[1, 1] > 0.8


def test_below_a_drowned_node_all_is_drowned_and_the_root_never_is() -> None:
    children = [[1, 2], [3, 4], [], [], []]
    counts = np.array([[5.0, -4.0], [9.0, 0.0], [900.0, 60.0], [800.0, 0.0], [-1.0, 0.0]])
    deviations = np.array([50.0, 50.0, 50.0, 50.0, 0.0])
    assert noise_dominated(children, counts, deviations).tolist() == [False, True, False, True, True]
    assert noise_dominated([[]], np.array([[-1.0, -2.0]]), np.array([0.0])).tolist() == [False]
    shares = class_probabilities(children, counts, deviations)
    assert shares[1].tolist() == shares[3].tolist() == shares[4].tolist() == shares[0].tolist()
    # Taken as they are, counts say nothing only where none is above 0.
    assert noise_dominated(
        [[1, 2], [], []], np.array([[2.0, 1.0], [-4.0, 1.0], [-1.0, 0.0]]), np.zeros(3)
    ).tolist() == [
        False,
        False,
        True,
    ]


@given(seed=st.integers(0, 2**31), classes=st.integers(2, 5))
def test_a_root_votes_for_its_largest_count_however_noisy(seed: Any, classes: Any) -> None:
    random = np.random.default_rng(seed)
    counts = random.normal(20, 60, (1, classes))
    assert class_probabilities([[]], counts, np.array([80.0]))[0].argmax() == counts[0].argmax()


@pytest.mark.parametrize(
    ("counts", "parent", "deviation"),
    [([40.0, 25.0, -5.0], [0.5, 0.3, 0.2], 20.0), ([10.0, 90.0, 30.0], [0.7, 0.2, 0.1], 30.0)],
)
def test_shares_are_the_posterior_mean(counts: Any, parent: Any, deviation: Any) -> None:
    """Shares agree with an oracle that weighs draws from the prior by the counts' likelihood.

    It draws rows, distance and direction 400,000 times, so the two agree within 0.02.
    """
    random, counts, parent = np.random.default_rng(5), np.array(counts), np.array(parent)
    draws, classes = 400_000, len(counts)
    rows = random.uniform(0, counts.sum() + 6 * deviation * classes**0.5, draws)
    spread = random.uniform(0, 1, draws) * np.sqrt((1 - parent @ parent) / (classes - 1))
    apart = random.normal(0, 1, (draws, classes)) * spread[:, None]
    shares = parent + apart - apart.mean(axis=1, keepdims=True)
    weight = np.exp(-np.square(counts - rows[:, None] * shares).sum(axis=1) / (2 * deviation**2))
    expected = np.maximum(weight @ shares / weight.sum(), 0)
    leaf = class_probabilities([[1], []], np.array([parent * 1e7, counts]), np.array([1.0, deviation]))[1]
    assert leaf == pytest.approx(expected / expected.sum(), abs=0.02)


def test_no_class_of_a_noisy_node_has_a_share_of_nothing() -> None:
    """A leaf of 19 rows of one class promises little; one of many rows promises more; without noise counts count."""
    counts, children = np.array([[600.0, 400.0], [19.0, 0.0], [581.0, 400.0]]), [[1, 2], [], []]
    leaf = smoothed_probabilities(children, counts, np.full(3, 1e-6))[1]
    assert leaf == pytest.approx([1 - 0.4 / 20, 0.4 / 20], rel=1e-3)
    noisier = smoothed_probabilities(children, counts, np.full(3, 4.0))[1]
    assert 0.4 / 20 < noisier[1] < 0.2
    assert class_probabilities(children, counts, np.full(3, 4.0))[1][1] < noisier[1]
    assert smoothed_probabilities(children, counts, np.zeros(3))[1].tolist() == [1, 0]
    assert (smoothed_probabilities([[]], np.array([[50.0, -3.0, -8.0]]), np.array([2.0])) > 0).all()


def test_trees_of_a_forest_tell_together_more_than_each_dares_to() -> None:
    """Ten leaves of 4 rows and 1 beside noise of deviation 4, each below a root of 300 of either class."""
    random, children, deviations = np.random.default_rng(2), [[1, 2], [], []], np.array([4.0, 4.0, 4.0])
    exact = np.array([[300.0, 300.0], [4.0, 1.0], [296.0, 299.0]])
    right = {counted_probabilities: 0, smoothed_probabilities: 0}
    for _ in range(100):
        trees = exact + random.normal(0, 4, (10, 3, 2))
        for rule in right:
            mean = np.mean([rule(children, tree, deviations)[1] for tree in trees], axis=0)
            right[rule] += int(mean[0] > mean[1])
    assert right[counted_probabilities] > right[smoothed_probabilities] + 5
    none = counted_probabilities(children, np.array([[2.0, 1.0], [-4.0, 0.0], [6.0, 1.0]]), deviations)
    assert none[1].tolist() == none[0].tolist()  # nothing was counted: as above
    assert none[2, 0] == pytest.approx((6 + none[0, 0]) / 8)
