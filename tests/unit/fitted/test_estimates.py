# SPDX-License-Identifier: Apache-2.0
"""Consistent estimates against generalized least squares by matrices, shrinkage by its own properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miners.fitted.estimates import class_shares, least_squares


def random_tree(random, nodes):
    """Children lists; parents before their children."""
    children = [[] for _ in range(nodes)]
    for place in range(1, nodes):
        children[int(random.integers(max(0, place - 4), place))].append(place)
    return children


def gls(children, answers, variances):
    """The oracle: unknowns are the leaves, every answer is a noisy sum of leaves."""
    leaves = [place for place, below in enumerate(children) if not below]
    sums = np.zeros((len(children), len(leaves)))
    for place in range(len(children) - 1, -1, -1):
        sums[place] = sums[children[place]].sum(axis=0) if children[place] else np.eye(len(leaves))[leaves.index(place)]
    weight = np.diag(np.where(np.isfinite(variances), 1 / variances, 0.0))
    covariance = np.linalg.inv(sums.T @ weight @ sums)
    return sums @ covariance @ sums.T @ weight @ answers, np.diag(sums @ covariance @ sums.T)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 25), width=st.integers(1, 3))
def test_it_is_generalized_least_squares(seed, nodes, width):
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
    for place, below in enumerate(children):
        assert not below or np.allclose(best[below].sum(axis=0), best[place])


def test_a_leaf_that_nothing_was_asked_of_is_an_error():
    with pytest.raises(ValueError, match="nothing was asked of leaf 1"):
        least_squares([[1, 2], [], []], np.ones((3, 1)), np.array([1.0, np.inf, 1.0]))


def test_the_noise_is_as_small_as_it_says():
    """10,000 draws: the sample's variance of each node lies within five of its standard errors (sqrt(2/10,000)) of what is said."""
    random = np.random.default_rng(7)
    children = [[1, 2, 3], [4, 5], [], [], [], []]
    variances = np.array([1.0, 2.0, 0.5, 4.0, 1.0, 3.0])
    noise = random.normal(0, 1, (6, 10_000)) * np.sqrt(variances)[:, None]
    best, spread = least_squares(children, noise, variances)
    assert np.allclose(best.var(axis=1) / spread, 1, atol=5 * np.sqrt(2 / 10_000))
    assert (spread <= variances + 1e-12).all()


@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 20), classes=st.integers(2, 4))
def test_shares_are_shares(seed, nodes, classes):
    random = np.random.default_rng(seed)
    counts = random.normal(0, 50, (nodes, classes)) * random.choice([0, 1, 10.0**290], (nodes, 1))
    shares = class_shares(
        random_tree(random, nodes), counts, random.uniform(0, 60, nodes) * random.integers(0, 2, nodes)
    )
    assert np.isfinite(shares).all()
    assert (shares >= 0).all()
    assert np.allclose(shares.sum(axis=1), 1)


def test_a_leaf_drowned_in_noise_answers_like_its_parent_and_a_clear_one_for_itself():
    children, counts = [[1, 2, 3]], np.array([[8000.0, 2000.0], [6.0, 9.0], [20.0, 980.0], [7974.0, 1011.0]])
    shares = class_shares([*children, [], [], []], counts, np.array([5.0, 14.0, 14.0, 14.0]))
    assert shares[1] == pytest.approx(shares[0])
    assert shares[2] == pytest.approx([0.02, 0.98], abs=0.01)
    exact = class_shares([*children, [], [], []], counts, np.zeros(4))
    assert exact[1] == pytest.approx([0.4, 0.6])
