# SPDX-License-Identifier: Apache-2.0
"""Tests keep their level and intervals their coverage, with noise; seeded, so nothing here is chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import statistics
from miners.statistics import compare, independence, logistic, odds_ratio, survival
from miners.statistics.cells import Cells, CountDraft
from miners.statistics.comparisons import Means
from miners.statistics.laws import student_quantile
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE

YES_NO = pinq.Categorical(values=("no", "yes"))
COLUMNS: Any = {"week": pinq.Numeric(lower=1, upper=48, integer=True), "event": YES_NO, "arm": YES_NO}
ROUNDS = 200


@pytest.fixture(scope="module")
def handle() -> Any:
    return pinq.simulate(pinq.Schema(columns=COLUMNS, max_rows=1000), rows=10, epsilon=1)


def results(draft: CountDraft, shares: np.ndarray, rows: int, epsilon: float) -> list[Any]:
    """The results of a draft from rows drawn by shares, with noise as ``noisy_count`` draws it."""
    rng, stay = np.random.default_rng(5), 1 - np.exp(-epsilon)
    made = []
    for _ in range(ROUNDS):
        counts = rng.multinomial(rows, shares.ravel() / shares.sum()).reshape(shares.shape)
        noise = rng.geometric(stay, shares.shape) - rng.geometric(stay, shares.shape)
        made.append(draft.computed(counts + noise, 1 / epsilon))
    return made


def level(made: list[Any]) -> float:
    return float(np.mean([result.pvalue < 0.05 for result in made]))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_independence_and_odds_ratio(handle: Any, epsilon: float) -> None:
    """Within three standard deviations of a share of 200; and where there is an effect it is found."""
    none, some = np.array([[0.42, 0.28], [0.18, 0.12]]), np.array([[0.46, 0.24], [0.14, 0.16]])
    draft: Any = independence._draft(handle, "event", "arm", epsilon=epsilon)
    assert 0.005 <= level(results(draft, none, 400, epsilon)) <= 0.1
    assert level(results(draft, some, 400, epsilon)) > 0.8
    ratio: Any = odds_ratio._draft(handle, "event", "arm", epsilon=epsilon)
    made = results(ratio, some, 400, epsilon)
    exact = some[0, 0] * some[1, 1] / (some[0, 1] * some[1, 0])
    held = [result.interval[0] <= exact <= result.interval[1] for result in made]
    assert 0.9 <= np.mean(held) <= 0.995


def test_survival(handle: Any) -> None:
    """Half of the rows end by chance, at 1 / 6 of those at risk in each of 6 intervals."""
    epsilon, left = 1.0, np.cumprod([1, *[5 / 6] * 6])
    ends = np.stack([left[:-1] / 12 + np.eye(6)[5] * left[6], left[:-1] / 12], axis=1)
    shares = ends[:, :, None] * np.array([0.5, 0.5])
    draft: Any = survival._draft(handle, "week", "event", "arm", intervals=6, epsilon=epsilon)
    assert 0.005 <= level(results(draft, shares, 500, epsilon)) <= 0.1


ASKED: dict[str, tuple[Any, ...]] = {
    "compare": ("week", "arm"),
    "hazard_ratio": ("week", "event", "arm"),
    "kmeans": (["week"], 2),
    "poisson": ("week", "arm"),
    "standardised": ("event", "arm", pinq.Cuts("week", (24,))),
    "survival": ("week", "event"),
}


@pytest.mark.parametrize("name", sorted({*statistics.__all__} - {"Result"}))
def test_no_number_where_noise_hides_all(handle: Any, name: str) -> None:
    """All numbers are missing with a reason; what is left prints and draws."""
    draft: Any = getattr(statistics, name)._draft(handle, *ASKED.get(name, ("event", "arm")), epsilon=0.01)
    result = draft.computed(np.full(draft.parts.shape, 9), 100.0)
    assert result.frame["value"].isna().all()
    assert np.isnan(result.pvalue)
    assert "no power" in str(result)
    assert result.plot().get_title(loc="left") == result.title
    if name == "kmeans":
        with pytest.raises(QueryError, match="no centres"):
            result.predict(pd.DataFrame({"week": [1]}))


def test_a_quotient_by_few_rows_is_not_told(handle: Any) -> None:
    """Of 200 rows in 20 parts, with noise of deviation 14 in each, a mean has no normal law; of 400 it has one."""
    draft: Any = compare._draft(handle, "week", "arm", epsilon=0.1)
    few, enough = (draft.computed(np.full(draft.parts.shape, rows), 10.0) for rows in (10, 20))
    assert few.frame["value"].isna().all()
    assert enough.frame["value"].notna().all()


@pytest.mark.parametrize("epsilon", [0.5, 2.0] if ASSURANCE else [2.0])  # half a minute each
def test_means_and_regressions(handle: Any, epsilon: float) -> None:
    """Two arms of equal weeks, then of a difference; and odds ratios of two columns."""
    weeks = np.arange(1, 49)
    one, two = (np.exp(-(((weeks - middle) / 9) ** 2)) for middle in (20, 24))
    one, two = one / one.sum(), two / two.sum()
    for test in ("welch", "rank"):
        draft: Any = compare._draft(handle, "week", "arm", test=test, bins=48, epsilon=epsilon)
        assert 0.005 <= level(results(draft, np.stack([one, one]), 1000, epsilon)) <= 0.1
        assert level(results(draft, np.stack([one, two]), 1000, epsilon)) > 0.8
    difference: Any = compare._draft(handle, "week", "arm", bins=48, epsilon=epsilon)
    made = [result.interval for result in results(difference, np.stack([one, two]), 1000, epsilon)]
    assert 0.9 <= np.mean([low <= one @ weeks - two @ weeks <= high for low, high in made]) <= 0.995
    early = np.array([0.25, 0.25, 0.25, 0.25])
    odds = np.exp(-1 + 0.7 * np.array([0, 1])[:, None] + 0.4 * np.array([0, 1, 0, 0])[None, :])
    shares = np.stack([early / (1 + odds), early * odds / (1 + odds)])
    model: Any = logistic._draft(handle, "event", ["arm", "week"], epsilon=epsilon)
    made = [(result["low"][0], result["high"][0]) for result in results(model, shares, 1000, epsilon)]
    assert 0.9 <= np.mean([low <= np.exp(0.7) <= high for low, high in made]) <= 0.995


@pytest.mark.parametrize(("noise", "half", "t"), [(1e-12, 1.27, 3.14), (2.0, 2.65, 1.48)])
def test_noise_widens_means_as_the_example_says(noise: float, half: float, t: float) -> None:
    """40 rows of mean 10, 50 of mean 12, both with the variance 9, in 20 parts from 0 to 20."""
    middles = np.arange(20) + 0.5
    counts = np.zeros((2, 20))
    for group, (rows, mean) in enumerate([(40, 10), (50, 12)]):
        far = (9 * (rows - 1) - rows / 4) / 12  # rows at 3.5 from the mean; all others are at 0.5
        counts[group, [mean - 4, mean + 3]] = far / 2
        counts[group, [mean - 1, mean]] = (rows - far) / 2
    means = Means.of(Cells(counts, counts, noise, Epsilon.of(1), 0.95, ""), middles)
    statistic, _, below = means.welch()
    np.testing.assert_allclose(means.mean, [10, 12])
    np.testing.assert_allclose(student_quantile(0.95, below) * np.sqrt(means.variance.sum()), half, atol=0.005)
    np.testing.assert_allclose(np.sqrt(statistic), t, atol=0.005)
