# SPDX-License-Identifier: Apache-2.0
"""C4.5's pessimistic errors against the exact binomial limit, Algorithm 3 by hand, and which splits are kept."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import beta

from miners.growth.fitted_nodes import BEST_OF_MANY, calibrate, pessimistic_errors, worth_keeping


def upper_limit(rows: Any, errors: Any, certainty: Any) -> Any:
    """Clopper & Pearson's one-sided upper limit of the number of errors."""
    return rows * (1 - certainty ** (1 / rows) if errors == 0 else beta.ppf(1 - certainty, errors + 1, rows - errors))


@given(rows=st.integers(2, 5000), share=st.floats(0, 0.5), certainty=st.just(0.25))
def test_it_is_about_the_binomial_limit(rows: Any, share: Any, certainty: Any) -> None:
    errors = int(rows * share)
    if errors + 0.5 < rows:
        assert pessimistic_errors(rows, errors, certainty) == pytest.approx(
            upper_limit(rows, errors, certainty), rel=0.07 if errors else 1e-9
        )


@given(rows=st.floats(0.01, 1e6), first=st.floats(0, 1), other=st.floats(0, 1))
def test_more_errors_are_never_less(rows: Any, first: Any, other: Any) -> None:
    low, high = sorted([first, other])
    assert pessimistic_errors(rows, rows * low, 0.25) <= pessimistic_errors(rows, rows * high, 0.25) + 1e-9
    assert rows * low - 1e-9 <= pessimistic_errors(rows, rows * low, 0.25) <= rows + 1e-9


def test_the_edges() -> None:
    assert pessimistic_errors(0, 0, 0.25) == pessimistic_errors(-3, 1, 0.25) == 0
    assert pessimistic_errors(6, 0, 0.25) == pytest.approx(6 * (1 - 0.25 ** (1 / 6)))  # Quinlan 1993, ch. 4: 6 x 0.206
    assert pessimistic_errors(9, 0, 0.25) == pytest.approx(9 * 0.143, abs=0.005)
    assert pessimistic_errors(5, 7, 0.25) == 5


def test_algorithm_3_by_hand() -> None:
    children = [[1, 2], [3, 4], [], [], []]
    sizes = [100.0, 90.0, 30.0, -5.0, 20.0]
    cells = [None, None, np.array([10.0, -2.0]), np.array([3.0, 3.0]), np.array([-1.0, -1.0])]
    table = calibrate(children, sizes, cells)
    # 100 rows go 3 : 1; the 75 all to the second grandchild, for the first has a negative size; its classes are both below 0, so alike.
    assert table.tolist() == [[62.5, 37.5], [37.5, 37.5], [25.0, 0.0], [0.0, 0.0], [37.5, 37.5]]
    assert calibrate([[]], [-4.0], [np.array([1.0, 2.0])]).tolist() == [[0.0, 0.0]]
    nobody = calibrate([[1, 2], [], []], [10.0, -1.0, -2.0], [None, np.array([1.0, 0.0]), np.array([0.0, 1.0])])
    assert nobody.tolist() == [[5.0, 5.0], [5.0, 0.0], [0.0, 5.0]]


def test_what_pays_is_kept_and_what_does_not_is_not() -> None:
    children = [[1, 2], [3, 4], [], [], []]
    pays = np.array([[110.0, 90.0], [100.0, 10.0], [10.0, 80.0], [51.0, 4.0], [49.0, 6.0]])
    assert worth_keeping(children, pays, 0.25).tolist() == [True, False, False, False, False]
    alike = np.array([[200.0, 10.0], [110.0, 5.0], [90.0, 5.0], [55.0, 2.0], [55.0, 3.0]])
    assert not worth_keeping(children, alike, 0.25).any()
    # A split that does not pay is kept where one below it does.
    deep = np.array([[100.0, 100.0], [50.0, 50.0], [50.0, 50.0], [50.0, 0.0], [0.0, 50.0]])
    assert worth_keeping(children, deep, 0.25).tolist() == [True, True, False, False, False]
    assert not worth_keeping(children, -deep, 0.25).any()


def test_a_split_that_tells_shares_apart_is_kept_although_both_sides_vote_alike() -> None:
    children, cells = [[1, 2], [], []], np.array([[850.0, 150.0], [390.0, 10.0], [460.0, 140.0]])
    assert not worth_keeping(children, cells, 0.25).any()
    assert worth_keeping(children, cells, 0.25, probabilities=cells / cells.sum(axis=1, keepdims=True)).tolist() == [
        True,
        False,
        False,
    ]
    alike = np.array([[850.0, 150.0], [338.0, 62.0], [512.0, 88.0]])
    assert not worth_keeping(children, alike, 0.25, probabilities=alike / alike.sum(axis=1, keepdims=True)).any()


def test_a_pure_node_loses_its_split_with_and_without_noise() -> None:
    cells = np.array([[100.0, 0.0], [60.0, 0.0], [40.0, 0.0]])
    for noise in (0.0, 1.0, np.inf):
        kept = worth_keeping(
            [[1, 2], [], []], cells, 0.25, probabilities=cells / cells.sum(axis=1, keepdims=True), noise=noise
        )
        assert not kept.any()


def test_chance_puts_leaves_as_far_apart_as_it_says() -> None:
    """20,000 deals of rows with the same shares among three leaves: their distance from the whole
    is (3 - 1)(1 - |p|^2) on average, to a thirtieth.
    """
    random, shares = np.random.default_rng(3), np.array([0.7, 0.2, 0.1])
    counts = random.multinomial([50, 100, 350], shares, (20_000, 3))
    rows = counts.sum(axis=2, keepdims=True)
    whole = counts.sum(axis=1, keepdims=True) / 500
    distance = (rows * np.square(counts / rows - whole)).sum(axis=(1, 2))
    assert distance.mean() == pytest.approx(2 * (1 - shares @ shares), rel=1 / 30)


def test_what_choice_alone_puts_apart_is_not_kept_where_noise_is_small() -> None:
    """65 rows of (45, 20) beside 11 of (5, 6): thrice what chance does, and less than the best of many splits does."""
    children, cells = [[1, 2], [], []], np.array([[50.0, 26.0], [45.0, 20.0], [5.0, 6.0]])
    shares = cells / cells.sum(axis=1, keepdims=True)
    assert not worth_keeping(children, cells, 0.25).any()
    for noise, kept in ((np.inf, True), (5.0, True), (0.5, False), (0.0, False)):
        assert worth_keeping(children, cells, 0.25, probabilities=shares, noise=noise)[0] == kept
    clear = np.array([[850.0, 150.0], [390.0, 10.0], [460.0, 140.0]])
    shares = clear / clear.sum(axis=1, keepdims=True)
    assert worth_keeping(children, clear, 0.25, probabilities=shares, noise=0.0)[0]


def test_a_choice_puts_leaves_as_far_apart_as_it_says() -> None:
    """Distances of a million splits by chance, 0.4 on average, weighed as a choice of noise 2 does: a quarter more."""
    distances = 0.4 * np.random.default_rng(5).normal(size=10**6) ** 2
    weights = np.exp(distances / (2 * 2.0))
    assert (weights @ distances) / weights.sum() == pytest.approx(0.4 / (1 - 0.4 / 2.0), rel=0.01)
    assert 2 * np.log(3000) == pytest.approx(BEST_OF_MANY, abs=0.05)
