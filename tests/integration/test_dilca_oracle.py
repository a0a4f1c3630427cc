# SPDX-License-Identifier: Apache-2.0
"""The oracle and the published mechanism of benchmarks/papers/dilca against values worked out by hand and against those printed in the paper.

The paper's Figure 1 (the running example's tables) is a picture that is not in its text, so ``PEOPLE`` is a table of the same attributes, small
enough to be worked out on paper; the values that the text does print are tested where they do not need the tables.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.harness.datasets import why_missing
from benchmarks.papers.dilca import peer
from benchmarks.papers.dilca.data import BINS, NAMES, load, synthetic
from benchmarks.papers.dilca.oracle import Oracle, f_score, object_distances, pearson
from benchmarks.papers.dilca.runs import WHO, Setting, chance, synthetic_context
from benchmarks.papers.dilca.significance import beyond_chance, trends

CITY, CAR, SEX, INCOME, WEALTH = range(5)
# Four people in each of the cities A, B, C. Income is 0 in A, 1 in B, and 0, 1, 2, 2 in C. Wealth is income, but for one person of B who has 2.
# Each sex is evenly spread; cars follow the city a little: 3, 2, 1 of 4.
PEOPLE = np.array(
    [
        [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
        [1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 2, 2],
        [0, 0, 0, 0, 1, 1, 1, 2, 0, 1, 2, 2],
    ]
)
LG3 = math.log2(3)


@pytest.fixture
def example() -> Oracle:
    return Oracle(PEOPLE, [3, 2, 2, 3, 3])


def test_entropies_by_hand(example: Oracle) -> None:
    """Cities are even; income is 5, 5, 2 of 12; city and income are 4, 4, 1, 1, 2 of 12."""
    assert example.entropy(frozenset([CITY])) == pytest.approx(LG3)
    income = -(10 / 12 * math.log2(5 / 12) + 2 / 12 * math.log2(2 / 12))
    both = -(8 / 12 * math.log2(4 / 12) + 2 / 12 * math.log2(1 / 12) + 2 / 12 * math.log2(2 / 12))
    assert example.entropy(frozenset([INCOME])) == pytest.approx(income)
    assert example.entropy(frozenset([CITY, INCOME])) == pytest.approx(both)
    assert example.relevance(CITY, [INCOME]) == pytest.approx(income - both)
    assert example.uncertainty(CITY, INCOME) == pytest.approx(2 * (LG3 + income - both) / (LG3 + income))
    assert example.uncertainty(CITY, SEX) == pytest.approx(0, abs=1e-12)
    # 3, 2, 1 of 4 have a car: H(car) = 1, H(city, car) = lg 3 + (h(1/4) + 1 + h(1/4)) / 3.
    quarter = 2 - 0.75 * LG3
    assert example.uncertainty(CITY, CAR) == pytest.approx(2 * (1 - (2 * quarter + 1) / 3) / (LG3 + 1))


def test_contexts_by_hand(example: Oracle) -> None:
    """Income and wealth say most; DILCA_RR drops wealth, which shares more with income than with the city."""
    assert example.mean_su(CITY) == (INCOME, WEALTH)
    assert example.max_relevance(CITY, 1) == (INCOME,)
    assert example.max_relevance(CITY, 2) == (INCOME, WEALTH)
    assert INCOME in example.baseline(CITY)
    assert WEALTH not in example.baseline(CITY)
    # Sex alone says nothing, but beside income most: only those of sex 0 stay mixed, A A C and B B C, so H(city | both) = 6/12 h(1/3).
    assert example.max_dependency(CITY, 2) == (SEX, INCOME)
    third = LG3 - 2 / 3
    assert example.relevance(CITY, [SEX, INCOME]) == pytest.approx(-third / 2)
    # With a car they are A A A C, A, B B, B B C: H = 4/12 h(1/4) + 3/12 h(1/3).
    assert example.relevance(CITY, [CAR, INCOME]) == pytest.approx(-((2 - 0.75 * LG3) / 3 + third / 4))


def test_distances_by_hand(example: Oracle) -> None:
    """P(city | income): 4/5, 0, 1/5; 0, 4/5, 1/5; 0, 0, 1. So d(A, B)^2 = (16/25 + 16/25 + 0) / 3, d(A, C)^2 = (9/25 + 1/25 + 1) / 3."""
    found = example.distances(CITY, [INCOME])
    assert found[0, 1] ** 2 == pytest.approx(32 / 75)
    assert found[0, 2] ** 2 == pytest.approx(35 / 75)
    assert found[1, 2] ** 2 == pytest.approx(35 / 75)
    assert (found == found.T).all()
    # With cars: P(city | car) = 3/6, 2/6, 1/6 and 1/6, 2/6, 3/6: two more columns in the mean.
    assert example.distances(CITY, [INCOME, CAR])[0, 2] ** 2 == pytest.approx((35 / 25 + 2 * (2 / 6) ** 2) / 5)


def test_the_published_law_has_the_printed_probabilities() -> None:
    """Section 3.2.2 prints I' of -1.58, -1.49, -0.93, -0.96 and at epsilon 1 the probabilities .08, .10, .43, .39.

    Those follow at 160 rows or, with the factor 1/2 counted once, at 80: the text leaves the number of rows out.
    """
    relevances = [-1.58, -1.49, -0.93, -0.96]
    fits = [
        rows
        for rows in range(20, 500)
        if np.abs(peer.choice_law(relevances, rows, 1) - [0.08, 0.10, 0.43, 0.39]).max() < 0.012
    ]
    assert fits, "no number of rows gives the printed law"
    assert peer.entropy_sensitivity(1024) == pytest.approx((1 / math.log(2) + 10) / 1024)


def test_the_published_mechanism_without_noise_is_dilca(example: Oracle) -> None:
    random = np.random.default_rng(0)
    for method in ("mean_su", "max_relevance", "max_dependency", "baseline"):
        context, found = peer.fit(example, CITY, method, 10**7, 1, 0.3, random)
        wanted = example.context(method, CITY, 1)
        assert context == wanted
        np.testing.assert_allclose(found, example.distances(CITY, wanted), atol=1e-3)


def test_measures() -> None:
    near = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], dtype=float)
    assert pearson(near, 2 * near + 1 - np.eye(3)) == pytest.approx(1)
    assert pearson(near, near.max() - near) == pytest.approx(-1)
    assert pearson(near, np.zeros((3, 3))) == 0
    assert pearson(near, near, diagonal=True) == pytest.approx(1)
    assert f_score([1, 2, 3], [2, 3, 4, 5]) == pytest.approx(2 * 2 / 7)
    assert f_score([1], []) == 0
    objects = object_distances([near, near], np.array([[0, 1], [0, 2]]), np.array([[1], [0]]))
    np.testing.assert_allclose(objects, [[1], [2]])


def test_chance_is_what_random_contexts_score() -> None:
    """The expected F-score of an even draw, against 20,000 draws (standard error below 0.003; ten of them are allowed)."""
    random = np.random.default_rng(3)
    drawn: list[float] = []
    while len(drawn) < 20_000:
        members = np.flatnonzero(random.integers(0, 2, 7))
        if len(members):
            drawn.append(f_score([0, 1, 2], list(members)))
    assert chance("mean_su", 7, 3) == pytest.approx(np.mean(drawn), abs=0.03)
    assert chance("max_relevance", 12, 3) == 0.25


@pytest.mark.parametrize("kind", "ABCD")
def test_synthetic_tables_are_as_described(kind: str) -> None:
    data, target, context = synthetic(kind, 0.2)
    assert data.frame.shape == (10_000, 11)
    ones = (data.frame[target] == "yes").mean()
    assert ones == pytest.approx({"A": 0.5, "B": 0.2, "C": 0.2, "D": 0.32}[kind], abs=0.02 if kind == "D" else 1e-9)
    assert len(context) == (4 if kind == "D" else 3)
    if kind != "D":
        agree = [(data.frame[target] == data.frame[name]).mean() for name in data.frame.columns[1:]]
        assert agree[:3] == pytest.approx([0.8] * 3)
    assert synthetic(kind, 0.2)[0].frame.equals(data.frame)


def test_missing_data_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINQ_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="PINQ_DATA"):
        load("adult")


@pytest.mark.skipif(any(map(why_missing, NAMES)), reason="the data sets are not there")
def test_declared_bins_fit_their_columns() -> None:
    data = [load(name) for name in NAMES]
    for one in data:
        numeric = [name for name, column in one.schema.columns.items() if column.type == "numeric"]
        assert all(name in BINS for name in numeric)
        assert (one.codes >= 0).all()
        assert (one.codes.max(axis=1) < one.sizes).all()


@pytest.mark.parametrize("who", sorted(WHO))
@pytest.mark.parametrize("method", ["mean_su", "max_relevance", "max_dependency"])
def test_both_sides_find_a_plain_context_when_noise_is_small(method: Any, who: str) -> None:
    """Synth-A of the paper's appendix, as `make reproduce-dilca` measures it, at an epsilon that leaves next to no noise."""
    setting = Setting("A", method, who, epsilon=1000.0, noise=0.1)
    assert synthetic_context(setting, run=0) == {"right": 1.0}


@pytest.mark.skipif(bool(why_missing("adult")), reason="needs Adult with its test rows, in PINQ_DATA")
def test_the_contexts_of_tables_7_and_8_come() -> None:
    """Those that the paper prints for `age` and `race` of Adult, by each method without privacy, k = 3."""
    adult = load("adult")
    names, exact = adult.attributes, Oracle(adult.codes, adult.sizes)
    printed = {
        ("age", "mean_su"): {"marital_status", "relationship", "hours_per_week"},
        ("age", "max_relevance"): {"marital_status", "relationship", "hours_per_week"},
        ("age", "max_dependency"): {"marital_status", "education", "occupation"},
        ("race", "mean_su"): {"native_country"},
        ("race", "max_relevance"): {"native_country", "marital_status", "relationship"},
        ("race", "max_dependency"): {"native_country", "relationship", "occupation"},
    }
    for (target, method), context in printed.items():
        assert {names[other] for other in exact.context(method, names.index(target), 3)} == context


def test_attributes_beyond_chance_and_trends_are_found() -> None:
    """Ten runs of two attributes: one far better than chance and better with epsilon, one that is chance; by hand."""
    random = np.random.default_rng(1)
    rows = [
        ("cmc", method, "ours", epsilon, run, f"{measure}{kind}", attribute, value)
        for method, gain in (("mean_su", 0.0), ("max_relevance", 0.05), ("max_dependency", 0.1))
        for epsilon in (0.5, 1.0, 2.0)
        for run in range(10)
        for measure in ("f", "pearson")
        for attribute, kind, value in (
            ("a", "", 0.6 + 0.1 * epsilon + gain + 0.01 * random.random()),
            ("a", " by chance", 0.3 * random.random()),
            ("b", "", random.random()),
            ("b", " by chance", 1 + random.random()),
        )
    ]
    cells = pd.DataFrame(rows, columns=["dataset", "method", "who", "epsilon", "run", "kind", "attribute", "value"])
    table = beyond_chance(cells)
    assert set(table["beyond"]) == {0.5}
    assert set(table["attributes"]) == {2}
    assert table["p"].min() > 0.99
    found = trends(cells[cells["attribute"] == "a"].assign(dataset=cells["run"].astype(str)))
    assert found.loc[found["test"] == "Page", "p"].max() < 1e-4
    friedman = found[found["test"] == "Friedman"]
    assert friedman["statistic"].item() == pytest.approx(2 * 30)  # 30 blocks of three that all are ranked alike
    nemenyi = found[found["test"] == "Nemenyi"].set_index("of")["statistic"]
    assert nemenyi["max_dependency - mean_su"] == pytest.approx(2)
