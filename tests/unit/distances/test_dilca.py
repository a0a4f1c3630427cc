# SPDX-License-Identifier: Apache-2.0
"""DPDilca costs what it claims, learns DILCA's distances without noise, and names what is wrong."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.papers.dilca.oracle import Oracle, object_distances
from miners import DPDilca
from miners.distances.arithmetic import conditionals, embedding, symmetric_uncertainty, value_distances
from miners.distances.dilca import METHODS, NoisyTable, mean_context, predominant_context
from pinq.errors import QueryError
from pinq.language.specs import Values, bind
from pinq.provider.local import dummy_rows
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=17, upper=90, integer=True, cuts=(25, 35, 45, 60)),
        "rate": Numeric(lower=0, upper=1, nullable=True),
        "job": Categorical(values=("private", "self", "state", "none"), nullable=True),
        "sex": Categorical(values=("F", "M")),
        "town": Categorical(values=("A", "B", "C", "D", "E", "never")),
        "only": Categorical(values=("one",)),
        "income": Categorical(values=("<=50K", ">50K"), nullable=True),
    },
    max_rows=5000,
)
ATTRIBUTES = ["age", "rate", "job", "sex", "town", "income"]
SURE = 10**8


def table(rows: Any = 3000, seed: Any = 5) -> Any:
    """Returns dummy rows in which nobody lives in the town ``never``."""
    frame = dummy_rows(SCHEMA, rows, seed=seed).to_pandas()
    return frame.assign(town=frame["town"].where(frame["town"] != "never", "A"))


def handle(epsilon: Any = 1, data: Any = None, schema: Any = SCHEMA) -> Any:
    return simulated(schema, data=table() if data is None else data, epsilon=epsilon)


def oracle(frame: Any, miner: Any) -> Any:
    """Returns DILCA without privacy on the same values."""
    names = list(miner.splits_)
    bound = [bind(miner.splits_[name], SCHEMA) for name in names]
    codes = [
        partition.axes[0].parts_of(SCHEMA.columns[name].encode(frame[name]))
        for name, partition in zip(names, bound, strict=True)
    ]
    return names, Oracle(np.array(codes), [partition.size for partition in bound])


@settings(max_examples=40)
@given(
    st.sampled_from(METHODS),
    st.integers(1, 7),
    st.integers(1, 999),
    st.integers(10**6, 10**10),
    st.sampled_from(["add-remove", "substitute"]),
    st.sampled_from([1, 3]),
    st.data(),
)
def test_the_ledger_has_what_was_claimed(
    method: Any, k: Any, h: Any, nano: Any, adjacency: Any, unit: Any, data: Any
) -> None:
    """A fit costs its epsilon to the nano, for every method, adjacency, privacy unit and target."""
    names = data.draw(st.lists(st.sampled_from(ATTRIBUTES), min_size=2, max_size=6, unique=True))
    target = data.draw(
        st.one_of(st.none(), st.sampled_from(names), st.lists(st.sampled_from(names), min_size=1, unique=True))
    )
    privacy_unit = "row" if unit == 1 else {"column": "person", "max_rows": unit}
    schema = Schema(**{**SCHEMA.model_dump(), "adjacency": adjacency, "privacy_unit": privacy_unit})
    h_ = simulated(schema, rows=60, epsilon=1000)
    miner = DPDilca(method=method, k=k, h=Fraction(h, 1000), epsilon=Fraction(nano, 10**9), attributes=names)
    plan = miner.plan(schema, target)
    miner.fit(h_, target)
    assert plan.total == miner.cost_ == h_.budget.spent == Fraction(nano, 10**9)
    assert sum(line.epsilon for line in plan.lines) == plan.total
    assert len(h_.history()) <= sum(line.parts for line in plan.lines)
    targets = {target} if isinstance(target, str) else set(target or names)
    assert set(miner.distances_) == set(miner.context_) == targets
    for name, frame in miner.distances_.items():
        matrix = frame.to_numpy()
        assert name not in miner.context_[name]
        assert len(miner.context_[name]) >= 1
        assert np.isfinite(matrix).all()
        assert matrix.min() >= 0
        assert matrix.max() <= 1
        assert (matrix == matrix.T).all()
        assert (np.diag(matrix) == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_it_is_dilca(method: Any) -> None:
    """With an enormous budget contexts and distances are those of the oracle.

    That holds for a value that nobody has, and for missing values too.
    """
    frame = table()
    for target in (None, "town"):
        miner = DPDilca(method=method, k=2, epsilon=10**6).fit(handle(10**6, frame), target)
        names, truth = oracle(frame, miner)
        assert names == ATTRIBUTES
        for name in [target] if target else names:
            index = names.index(name)
            context = truth.context(method, index, 2)
            assert miner.context_[name] == tuple(names[member] for member in context)
            np.testing.assert_allclose(miner.distances_[name].to_numpy(), truth.distances(index, context), atol=1e-3)


def test_frames_are_labelled_by_values() -> None:
    miner = DPDilca(epsilon=10).fit(handle(10))
    assert list(miner.distances_["job"].columns) == ["private", "self", "state", "none", "missing"]
    assert list(miner.distances_["age"].index) == ["< 25", "25 to < 35", "35 to < 45", "45 to < 60", ">= 60"]
    assert len(miner.distances_["rate"]) == 5 + 1
    assert "only" not in miner.distances_
    assert miner.left_out_ == ("only",)
    assert "only" in miner._repr_html_()


def test_a_part_of_a_table_can_be_learned_from() -> None:
    h = handle(3)
    miner = DPDilca(epsilon=1, attributes=["age", "job", "town"]).fit(h.partition(Values("sex"))["F"])
    assert miner.cost_ == h.budget.spent == 1
    assert (
        DPDilca(epsilon=1, attributes=["age", "job", "town"]).fit(h.partition(Values("sex"))["M"]).cost_ == 0
    )  # the parts are disjoint


def test_a_table_of_two_serves_both() -> None:
    """All six attributes as targets by all pairs: 15 tables, not 30."""
    h = handle(10)
    DPDilca(method="baseline", epsilon=1).fit(h)
    assert len(h.history()) == 15
    h = handle(10)
    DPDilca(method="max_relevance", k=5, epsilon=1).fit(h)  # nothing to choose, so nothing is spent on choosing
    assert len(h.history()) == 15
    h = handle(10)
    miner = DPDilca(method="max_relevance", k=2, epsilon=1).fit(h)
    pairs = {frozenset([target, name]) for target, context in miner.context_.items() for name in context}
    assert len(h.history()) == 12 + len(pairs)


def test_records_are_compared_by_their_values() -> None:
    frame = table(200)
    miner = DPDilca(method="max_dependency", epsilon=5).fit(handle(5, frame))
    names, truth = oracle(frame, miner)
    matrices = [miner.distances_[name].to_numpy() for name in names]
    near = miner.pairwise(frame)
    np.testing.assert_allclose(near, object_distances(matrices, truth.codes, truth.codes), atol=1e-9)
    np.testing.assert_allclose(near, near.T, rtol=0, atol=1e-12)  # sums in any order
    np.testing.assert_allclose(miner.pairwise(frame.head(7), pa.Table.from_pandas(frame.tail(5))), near[:7, -5:])
    points = miner.transform(frame)
    assert points.shape == (200, len(miner.get_feature_names_out()))
    np.testing.assert_allclose(np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)), near, atol=1e-7)
    assert miner.transform(frame.iloc[[1, 1]]).std(axis=0).max() == 0


def test_values_that_are_not_declared_are_named() -> None:
    miner = DPDilca(epsilon=5).fit(handle(5), ["town", "sex"])
    assert miner.pairwise(pd.DataFrame({"town": ["A"], "sex": ["M"], "else": [1]})).shape == (1, 1)
    with pytest.raises(QueryError, match="row 1 has a value of `town`"):
        miner.pairwise(pd.DataFrame({"town": ["A", "Z"], "sex": ["F", "M"]}))
    with pytest.raises(QueryError, match="no column 'sex'"):
        miner.transform(pd.DataFrame({"town": ["A"]}))
    with pytest.raises(QueryError, match="named columns is needed, not ndarray"):
        miner.transform(np.array([["A", "F"]]))


def test_values_are_grouped() -> None:
    miner = DPDilca(epsilon=100).fit(handle(100), "town")
    groups = miner.clusters("town", 3)
    assert sorted(set(groups)) == [0, 1, 2]
    assert list(groups.index) == list(SCHEMA.categorical("town").values)
    with pytest.raises(QueryError, match="n_clusters"):
        miner.clusters("town", 7)
    with pytest.raises(QueryError, match="no distances were learned for 'job'"):
        miner.clusters("job", 2)


@pytest.mark.parametrize(
    ("params", "target", "match"),
    [
        ({"epsilon": "0.000000003"}, None, "too small"),
        ({"method": "max_relevence"}, None, "did you mean 'max_relevance'"),
        ({"method": None}, None, "method"),
        ({"k": 0}, None, "`k`"),
        ({"k": 2.0}, None, "`k`"),
        ({"h": 0}, None, "`h`"),
        ({"h": 1}, None, "less than 1"),
        ({"h": 1.5}, None, "less than 1"),
        ({}, "twon", "did you mean 'town'"),
        ({}, "only", "not among the attributes"),
        ({}, [], "`target`"),
        ({}, 5, "no column 5"),
        ({"attributes": 5}, None, "list of names"),
        ({}, ["sex", "sex"], "`target`"),
        ({"attributes": ["sex"]}, None, "2 to 60"),
        ({"attributes": ["sex", "job"]}, "town", "not among the attributes"),
        ({"cuts": {"age": [1000]}}, None, "out of bounds"),
        ({"cuts": [30]}, None, "cuts"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_spent(params: Any, target: Any, match: Any) -> None:
    h = handle()
    with pytest.raises(QueryError, match=match):
        DPDilca(**params).fit(h, target)
    assert h.budget.spent == 0


def test_attributes_too_wide_for_a_table_are_refused() -> None:
    wide = Schema(columns={name: {"type": "categorical", "values": list(range(2000))} for name in "ab"}, max_rows=10)
    with pytest.raises(QueryError, match="4,000,000 pairs of values"):
        DPDilca().fit(simulated(wide, rows=5))


def test_it_shows_itself_before_and_after() -> None:
    miner = DPDilca(epsilon=1)
    assert "not fitted" in miner._repr_html_()
    assert "<table" in miner.fit(handle())._repr_html_()


def test_json_keeps_contexts_and_frames() -> None:
    miner = DPDilca(epsilon=1, k=2, cuts={"age": np.array([30, 45])}).fit(handle(), ["town", "age"])  # type: ignore[dict-item]
    text = miner.to_json()
    again = DPDilca.from_json(text)
    assert again.context_ == miner.context_
    pd.testing.assert_frame_equal(again.distances_["town"], miner.distances_["town"])
    for wrong in (
        text.replace('"town": {"context"', '"towns": {"context"'),
        text.replace('"distances": [[', '"distances": [[0.5, '),
    ):
        with pytest.raises(QueryError):
            DPDilca.from_json(wrong)


def test_the_plan_says_what_comes() -> None:
    plan = DPDilca(method="max_relevance", k=2, epsilon=1).plan(SCHEMA, ["town", "sex"])
    assert [(line.verb, line.parts, line.epsilon) for line in plan.lines] == [
        ("exp_mech", 4, Fraction("0.3")),
        ("noisy_count", 4, Fraction("0.7")),
    ]
    assert "among 6 attributes" in plan.title
    plan = DPDilca(method="baseline", epsilon=1).plan(SCHEMA)
    assert [(line.verb, line.parts, line.epsilon) for line in plan.lines] == [("noisy_count", 15, Fraction(1))]
    assert "are unreliable" in DPDilca(epsilon="0.01").plan(SCHEMA).warnings[0]
    assert not DPDilca(epsilon="0.01").plan(SCHEMA, rows=10**8).warnings
    assert "-- " not in repr(plan)


def test_pictures_are_drawn() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    miner = DPDilca(epsilon=10).fit(handle(10))
    figure = miner.plot("town").figure
    assert {text.get_text() for text in figure.axes[1].get_xticklabels()} == set(SCHEMA.categorical("town").values)
    _, axes = plt.subplots(1, 2)
    assert miner.plot("sex", axes) is axes[1]
    graph = miner.plot_context()
    assert {text.get_text() for text in graph.texts if text.get_text()} >= set(ATTRIBUTES)
    with pytest.raises(QueryError, match="name the attribute"):
        miner.plot()
    DPDilca(epsilon=1).fit(handle(), "town").plot()
    plt.close("all")


def test_without_noise_estimates_are_plain() -> None:
    counts = np.array([[3.0, 0, 5, 0], [1, 2, 5, 0]])
    (law,) = conditionals([counts], [0.0])
    np.testing.assert_allclose(law, [[0.75, 0, 0.5, 0], [0.25, 1, 0.5, 0]])
    assert value_distances([law])[0, 1] == pytest.approx(np.sqrt((0.25 + 1) / 4))


def test_noise_shrinks_what_it_dominates() -> None:
    """A column of few rows moves towards the marginal law, and one of many rows stays."""
    few, many = np.array([[2.0, 1000], [0, 3000]]), np.array([[700.0, 300], [2100, 900]])
    law, _ = conditionals([few, many], [40.0, 40.0])
    assert law[0, 0] < 0.6
    assert law[0, 1] == pytest.approx(0.25, abs=0.01)
    np.testing.assert_allclose(law.sum(axis=0), 1)


def test_uncertainty_is_corrected_for_noise() -> None:
    """On average the corrected uncertainty of independent attributes is about 0."""
    random = np.random.default_rng(1)
    independent = np.full((6, 8), 50.0)
    raw = [symmetric_uncertainty(independent + random.laplace(0, 30, (6, 8))) for _ in range(60)]
    corrected = [symmetric_uncertainty(independent + random.laplace(0, 30, (6, 8)), 30.0) for _ in range(60)]
    assert np.mean(raw) > 0.02
    assert abs(np.mean(corrected)) < np.mean(raw) / 4
    assert symmetric_uncertainty(np.diag([5.0, 5, 5])) == pytest.approx(1)
    assert (
        symmetric_uncertainty(np.zeros((2, 2)), 3.0) == symmetric_uncertainty(np.array([[4.0, 0], [-4, 0]]), 1.0) == 0
    )


def test_two_releases_of_a_table_weigh_by_precision() -> None:
    joined = NoisyTable(np.array([[10.0]]), 1.0).joined(NoisyTable(np.array([[20.0]]), 2.0))
    assert joined.counts.item() == pytest.approx(12)
    assert joined.scale == pytest.approx(0.8**0.5)


@pytest.mark.parametrize(
    ("params", "selection"),
    [
        ({"method": "max_relevance", "k": 2}, Fraction("0.3")),
        ({"method": "max_relevance", "k": 3}, 0),
        ({"method": "max_dependency", "k": 9}, 0),
        ({"method": "mean_su", "k": 9}, Fraction("0.3")),
        ({"method": "baseline"}, 1),
    ],
)
def test_nothing_is_spent_on_a_context_without_alternatives(params: Any, selection: Any) -> None:
    """Of four attributes each has three others: with three in a context there is one context."""
    task = DPDilca(epsilon=1, attributes=["age", "job", "sex", "town"], **params)._checked(SCHEMA, None)
    assert task.selection_epsilon.nano == selection * 10**9
    assert task.total == Epsilon.of(1)


def test_mean_su_of_two_attributes_has_nothing_to_select() -> None:
    task = DPDilca(method="mean_su", epsilon=1, attributes=["sex", "town"])._checked(SCHEMA, None)
    assert (task.selection_epsilon.nano, task.max_pairs) == (0, 1)


def test_a_pair_of_attributes_needs_one_table() -> None:
    task = DPDilca(attributes=["age", "job", "sex"])._checked(SCHEMA, None)
    assert task.pairs({"job": ["age"], "age": ["job"]}) == (("age", "job"),)
    assert task.pairs({"sex": ["age", "job"]}) == (("age", "sex"), ("job", "sex"))


def test_contexts_from_uncertainties() -> None:
    names = ["x", "y", "z"]
    uncertainty = {("t", "x"): 0.5, ("t", "y"): 0.4, ("t", "z"): 0.0, ("x", "y"): 0.6, ("x", "z"): 0.0, ("y", "z"): 0.0}
    uncertainty |= {(b, a): value for (a, b), value in uncertainty.items()}
    assert mean_context(uncertainty, "t", names) == ("x", "y")
    assert predominant_context(uncertainty, "t", names) == ("x",)
    alike = dict.fromkeys(itertools.permutations(["t", *names], 2), 0.1)
    assert mean_context(alike, "t", names) == ("x", "y", "z")


def test_embedding_keeps_distances() -> None:
    random = np.random.default_rng(2)
    points = random.random((7, 3))
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    embedded = embedding(distances)
    assert embedded.shape == (7, 3)
    gaps = embedded[:, None] - embedded[None]
    np.testing.assert_allclose(np.sqrt((gaps**2).sum(axis=2)), distances, atol=1e-9)
    assert embedding(np.zeros((3, 3))).shape == (3, 0)
