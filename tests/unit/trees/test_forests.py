# SPDX-License-Identifier: Apache-2.0
"""What the miners that grow forests promise beyond the contract of all miners: DiPriMe's four, and the baselines."""

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier, is_regressor

from benchmarks.papers.diprime.baselines import DPDecisionForest, DPExtraTrees, DPExtraTreesRegressor
from miners import (
    DiPriMeForestClassifier,
    DiPriMeForestRegressor,
    DiPriMeTreeClassifier,
    DiPriMeTreeRegressor,
    Forest,
    PublicRows,
    Tree,
)
from pinq.errors import QueryError
from pinq.language.specs import Cuts
from pinq.provider.local import dummy_rows
from pinq.public.schema import Categorical, Column, Numeric, Schema
from tests.support.laws.fixed_noise import COINS
from tests.support.requests.handles import simulated
from tests.support.tables.mixed_schema import SCHEMA

SURE = 10**5
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "tree": (DiPriMeTreeClassifier, {}),
    "tree as published": (DiPriMeTreeClassifier, {"variant": "paper", "max_depth": 3}),
    "regression tree": (DiPriMeTreeRegressor, {}),
    "regression tree, squared": (DiPriMeTreeRegressor, {"criterion": "squared_error", "max_depth": 2}),
    "regression tree as published": (DiPriMeTreeRegressor, {"variant": "paper", "max_depth": 3}),
    "forest": (DiPriMeForestClassifier, {"n_estimators": 3, "max_depth": 2, "max_features": 2}),
    "forest as published": (DiPriMeForestClassifier, {"n_estimators": 3, "variant": "paper", "max_depth": 2}),
    "forest on all rows": (DiPriMeForestClassifier, {"n_estimators": 3, "rows": "all", "max_depth": 2}),
    "regression forest": (DiPriMeForestRegressor, {"n_estimators": 3, "max_depth": 2}),
    "regression forest on all rows": (
        DiPriMeForestRegressor,
        {"n_estimators": 3, "rows": "all", "variant": "paper", "max_depth": 2},
    ),
    "extra trees": (DPExtraTrees, {"n_estimators": 3, "max_depth": 3}),
    "extra trees on all rows": (DPExtraTreesRegressor, {"n_estimators": 3, "max_depth": 3, "rows": "all"}),
    "extra trees that stop": (DPExtraTrees, {"n_estimators": 3, "max_depth": 3, "stopping": 0.4}),
    "extra trees on all rows that stop": (
        DPExtraTreesRegressor,
        {"n_estimators": 3, "max_depth": 3, "rows": "all", "stopping": 0.4},
    ),
    "regression tree that stops": (DiPriMeTreeRegressor, {"max_depth": 3, "stopping": 0.2}),
    "forest that stops, as published": (
        DiPriMeForestClassifier,
        {"n_estimators": 3, "variant": "paper", "max_depth": 2, "stopping": 0.2},
    ),
    "decision forest": (DPDecisionForest, {"n_estimators": 3, "max_depth": 2}),
    "decision forest on all rows": (DPDecisionForest, {"n_estimators": 3, "max_depth": 2, "rows": "all"}),
}
every_form = pytest.mark.parametrize("form", list(FORMS))


def built(form: Any, **more: Any) -> Any:
    miner, params = FORMS[form]
    return miner(**{"epsilon": 1, "random_state": 1, **params, **more})


def target_of(miner: Any) -> str:
    return "wage" if is_regressor(miner) else "income"


def trees_of(one: Any) -> Any:
    return [one.tree_] if hasattr(one, "tree_") else list(one.forest_.trees)


def handle(rows: Any = 2000, epsilon: Any = 1, **more: Any) -> Any:
    return simulated(SCHEMA, rows=rows, epsilon=epsilon, **more)


@cache
def fitted(form: str) -> tuple[Any, Any, Any]:
    """A handle, a miner that was fitted on it, and the plan made before: the same ones for all tests, which only look."""
    with COINS.apart(form):
        h, one = handle(), built(form, epsilon=0.7)
        plan = one.plan(h.schema, target_of(one))
        assert one.fit(h, target_of(one)) is one
        return h, one, plan


@every_form
def test_fit_spends_what_was_planned(form: Any) -> None:
    h, one, plan = fitted(form)
    assert plan.total == sum(line.epsilon for line in plan.lines) == one.cost_ == h.budget.spent == Fraction("0.7")
    assert one.unspent_ == 0
    assert one.schema_ == SCHEMA
    assert plan.title.startswith(f"{type(one).__name__} for `{target_of(one)}`")


@every_form
def test_with_hardly_any_noise_the_leaves_say_what_the_rows_say(form: Any) -> None:
    """On all rows each leaf counts (or averages) the rows that predict sends there; shards hold each row once."""
    table = dummy_rows(SCHEMA, 3000, seed=5)
    frame, one = table.to_pandas(), built(form, epsilon=SURE, max_depth=3)
    target = target_of(one)
    one.fit(handle(epsilon=SURE, data=table), target)
    known = frame[frame[target].notna()]
    sharded = len(trees_of(one)) > 1 and one.rows == "shards"
    if sharded:
        total = sum(tree.nodes[0].rows for tree in trees_of(one))
        assert total == pytest.approx(len(known), abs=0.5)
        assert all(
            abs(tree.nodes[0].rows - len(known) / 3) < 200 for tree in trees_of(one)
        )  # 200 is 7.7 deviations of a fair coin
        return
    for tree in trees_of(one):
        reached = tree.apply(known)
        for place, node in enumerate(tree.nodes):
            here = known[target][reached == place]
            if not node.is_leaf or here.empty:
                continue
            assert node.rows == pytest.approx(len(here), abs=0.5)
            if target == "income":
                assert node.counts == pytest.approx([(here == value).sum() for value in tree.classes], abs=0.5)
            elif len(here) > 20:
                assert tree.values[place] == pytest.approx(here.mean(), abs=0.02)


@every_form
def test_it_learns(form: Any) -> None:
    table = dummy_rows(SCHEMA, 4000, seed=1).to_pandas()
    table["income"] = np.where(table["age"] >= 45, ">50K", "<=50K")
    table["wage"] = np.where(table["age"] >= 45, 40.0, 10.0)
    alone = (
        {"attributes": ["age", "sex"], "max_features": 2}
        if "variant" in FORMS[form][1] or "max_features" in FORMS[form][1]
        else {}
    )
    one = built(form, epsilon=30, max_depth=3, **alone)
    one.fit(handle(epsilon=30, data=table), target_of(one))
    floor = (
        0.5
        if isinstance(one, (DPExtraTrees, DPDecisionForest))
        else 0.05
        if isinstance(one, DPExtraTreesRegressor)
        else 0.8
    )
    assert one.score(table) > floor
    assert one.score(table) == pytest.approx(one.score(table, table[target_of(one)]))
    assert one.predict(table.head(3)).shape == (3,)
    with pytest.raises(QueryError, match="values for"):
        one.score(table, table[target_of(one)].head(3))


@every_form
def test_columns_of_nothing_but_missing_values_are_borne(form: Any) -> None:
    table = dummy_rows(SCHEMA, 500, seed=2).to_pandas()
    table["rate"], table["job"] = np.nan, None
    one = built(form)
    one.fit(handle(data=table), target_of(one))
    assert one.cost_ == 1
    assert len(one.predict(table)) == 500


def test_a_target_out_of_its_bounds_is_clamped() -> None:
    """As behind every question of the layer; the provider is told how many."""
    table = dummy_rows(SCHEMA, 1000, seed=3).to_pandas()
    table["wage"] = 10.0**6
    one = DiPriMeTreeRegressor(epsilon=SURE, max_depth=1).fit(handle(epsilon=SURE, data=table), "wage")
    assert one.tree_.values.max() == pytest.approx(50, abs=0.1)
    table["wage"] = None
    one = DiPriMeTreeRegressor(epsilon=1, max_depth=1).fit(handle(data=table), "wage")
    assert ((one.tree_.values >= 0) & (one.tree_.values <= 50)).all()


WRONG = [
    ("tree", {"epsilon": "0.000000001", "max_depth": 2}, "income", "too small"),
    ("forest", {"max_depth": -1}, "income", "max_depth"),
    ("forest", {"n_estimators": 0}, "income", "n_estimators"),
    ("forest", {"n_estimators": 10**6}, "income", "n_estimators"),
    ("forest", {"max_features": 6}, "income", "from 1 to 5"),
    ("forest", {"rows": "shard"}, "income", "did you mean 'shards'"),
    ("forest", {"variant": "bets"}, "income", "did you mean 'best'"),
    ("forest", {"random_state": -1}, "income", "random_state"),
    ("forest", {"random_state": 1.5}, "income", "random_state"),
    ("forest", {"rho": 1}, "income", "between 0 and 1"),
    ("forest", {"rho": "half"}, "income", "between 0 and 1"),
    ("forest", {"criterion": "info_gain"}, "income", "criterion"),
    ("regression tree", {"criterion": "gini"}, "wage", "squared_error"),
    ("tree", {}, "wage", "predicts the values of a categorical"),
    ("regression tree", {}, "income", "predicts the mean of a numeric"),
    ("extra trees", {"rows": None}, "income", "'shards' or 'all'"),
    ("decision forest", {"bins": 1}, "income", "`bins` is 1"),
    ("decision forest", {"bins": {"sex": 2}}, "income", "sex"),
    ("decision forest", {}, "wage", "categorical"),
]


@pytest.mark.parametrize(
    ("form", "params", "target", "match"),
    WRONG,
    ids=[f"{form}: {params} {target}" for form, params, target, _ in WRONG],
)
def test_what_is_wrong_is_said_before_anything_is_spent(form: Any, params: Any, target: Any, match: Any) -> None:
    h = handle(rows=10)
    with pytest.raises(QueryError, match=match) as refused:
        built(form, **params).fit(h, target)
    assert "Nothing was spent" in str(refused.value)
    assert h.budget.spent == 0
    assert not h.history().size


@every_form
def test_faces(form: Any) -> None:
    _, one, _ = fitted(form)
    text = one.export_text(max_depth=1)
    assert f"`{target_of(one)}`" in text
    assert one.export_graphviz(max_depth=1).startswith("digraph")
    axes = one.plot(max_depth=1)
    assert axes.texts
    axes.figure.clear()
    if isinstance(getattr(one, "forest_", None), Forest):
        assert text.count("all rows") == len(one.forest_)
        assert "first tree" in one.forest_._repr_html_()
        with pytest.raises(QueryError, match="from 0 to 2"):
            one.plot(tree=3)


# Forests


def test_a_forest_averages_its_trees() -> None:
    _, one, _ = fitted("forest")
    frame = dummy_rows(SCHEMA, 200, seed=8).to_pandas()
    each = np.mean([tree.predict_proba(frame) for tree in one.forest_.trees], axis=0)
    assert np.allclose(one.forest_.predict_proba(frame), each)
    assert one.predict(frame).tolist() == np.array(one.forest_.classes)[each.argmax(axis=1)].tolist()
    _, means, _ = fitted("regression forest")
    assert np.allclose(means.predict(frame), np.mean([tree.predict(frame) for tree in means.forest_.trees], axis=0))
    assert sum(one.forest_.usage.values()) == pytest.approx(1)
    assert repr(one.forest_).startswith("Forest for `income` (>50K, <=50K): depth 2, 3 trees, ")


def test_trees_of_a_forest_belong_together() -> None:
    (_, one, _), (_, other, _) = fitted("tree"), fitted("regression tree")
    with pytest.raises(QueryError, match="one schema and one target"):
        Forest([one.tree_, other.tree_])
    with pytest.raises(QueryError, match="at least one tree"):
        Forest([])
    assert Forest([one.tree_]) == Forest([Tree.from_json(one.tree_.to_json())]) != Forest([other.tree_])
    for wrong in (
        "[]",
        "{}",
        '{"format": "pinq-forest", "version": 1}',
        '{"format": "pinq-forest", "version": 1, "trees": []}',
    ):
        with pytest.raises(QueryError):
            Forest.from_json(wrong)


@pytest.mark.parametrize("variant", ["best", "paper"])
def test_a_level_of_a_forest_is_two_requests(variant: Any) -> None:
    """For the medians, which the name promises, and for the choice among them."""
    h = handle(rows=5000, epsilon=SURE)
    one = DiPriMeForestClassifier(
        epsilon=SURE, n_estimators=4, max_depth=3, max_features=2, variant=variant, random_state=0
    ).fit(h, "income")
    assert one.forest_.depth == 3
    early = {
        depth
        for tree in one.forest_.trees
        for node, depth in zip(tree.nodes, tree.depths, strict=True)
        if node.is_leaf and depth < 3
    }
    assert len(h.history()) == 3 * 2 + len(early) + 1


def test_a_level_too_large_for_memory_is_still_one_request(monkeypatch: Any) -> None:
    monkeypatch.setattr("pinq.curator.prepared.SLICE_CELLS", 1500)
    for variant in ("best", "paper"):
        h = handle(rows=5000, epsilon=100)
        one = DiPriMeForestClassifier(epsilon=100, n_estimators=4, max_depth=2, variant=variant, random_state=0).fit(
            h, "income"
        )
        assert one.cost_ == 100
        assert len(h.history()) == 5


@pytest.mark.parametrize(
    "form", ["tree as published", "forest that stops, as published", "regression forest on all rows", "tree"]
)
def test_ways_that_run_out_of_splits_spend_all_that_they_have(form: Any) -> None:
    """A column of three values cannot be split four times: what its last choices would have cost goes into the leaves."""
    target = Numeric(lower=0, upper=1) if is_regressor(built(form)) else Categorical(values=("n", "p"))
    schema = Schema(columns={"x": Numeric(lower=0, upper=2, integer=True), "y": target}, max_rows=100)
    with simulated(schema, rows=50, epsilon=1) as h:
        narrow = {"max_features": None} if "max_features" in FORMS[form][1] else {}
        assert built(form, max_depth=4, **narrow).fit(h, "y").cost_ == h.budget.spent == 1


def test_ways_end_where_rows_are_few_by_one_request_for_all_trees() -> None:
    """With hardly any noise: three trees on random splits, told which stay split by one question, before one more describes the leaves."""
    table = dummy_rows(SCHEMA, 3000, seed=4).to_pandas()
    table.loc[table.index[:2990], "age"] = 20
    h = handle(epsilon=SURE, data=table)
    full, one = (
        DPExtraTrees(epsilon=200, n_estimators=3, max_depth=6, attributes=["age"], random_state=0, stopping=stopping)
        for stopping in (None, 0.9)
    )
    full.fit(h, "sex")
    asked = len(h.history())
    one.fit(h, "sex")
    assert len(h.history()) == asked + 2
    assert one.forest_.n_leaves < full.forest_.n_leaves
    assert one.forest_.depth >= 2
    for tree in one.forest_.trees:
        # Each split above asks for one row more; the least is one.
        assert all(
            round(node.rows) >= 1 + depth
            for node, depth in zip(tree.nodes, tree.depths, strict=True)
            if not node.is_leaf
        )
    assert sum(tree.nodes[0].rows for tree in one.forest_.trees) == pytest.approx(3000, abs=1)
    line = one.plan(SCHEMA, "sex").lines[0]
    assert (line.verb, line.epsilon) == ("exp_mech", Fraction(180))
    assert "enough rows" in line.query


@pytest.mark.parametrize("params", [{"stopping": 0}, {"stopping": 1.0}, {"stopping": "some"}, {"rho": 0.0001}], ids=str)
def test_shares_are_between_0_and_1(params: Any) -> None:
    with pytest.raises(QueryError, match="between 0 and 1"):
        DiPriMeForestClassifier(**params).plan(SCHEMA, "income")


def test_public_randomness_is_steered_and_noise_is_not() -> None:
    trees = [
        DPExtraTrees(epsilon=1, n_estimators=2, max_depth=3, random_state=seed).fit(handle(), "income").forest_
        for seed in (1, 1, 2)
    ]
    splits = [[node.split for tree in forest.trees for node in tree.nodes] for forest in trees]
    assert splits[0] == splits[1] != splits[2]
    assert trees[0] != trees[1]


def test_medians_halve_and_random_cuts_do_not() -> None:
    """Figure 1 of the paper: shares of rows in the left child of numeric splits."""
    random = np.random.default_rng(4)
    schema = Schema(
        columns={name: Numeric(lower=-100, upper=100) for name in "abc"} | {"y": Categorical(values=("n", "p"))},
        max_rows=10_000,
    )
    table = pd.DataFrame(
        {name: random.normal(20, 4, 8000) for name in "abc"} | {"y": random.permutation(["n", "p"] * 4000)}
    )

    def lefts(miner: Any) -> Any:
        with simulated(schema, data=table, epsilon=20) as h:
            trees = (
                miner(
                    epsilon=20,
                    n_estimators=4,
                    max_depth=3,
                    random_state=0,
                    **({"variant": "paper"} if miner is DiPriMeForestClassifier else {}),
                )
                .fit(h, "y")
                .forest_.trees
            )
        return np.array(
            [
                tree.nodes[node.children[0]].rows / max(1.0, node.rows)
                for tree in trees
                for node in tree.nodes
                if isinstance(node.split, Cuts)
            ]
        )

    medians, drawn = lefts(DiPriMeForestClassifier), lefts(DPExtraTrees)
    assert np.abs(medians - 0.5).mean() < 0.1
    assert np.abs(drawn - 0.5).mean() > 0.35


@pytest.mark.parametrize("form", ["forest", "regression forest"])
def test_the_default_depth_follows_public_facts(form: Any) -> None:
    def depth(max_rows: Any, **params: Any) -> Any:
        return max(
            line.level
            for line in built(form, **{"max_depth": None, **params})
            .plan(Schema(columns=SCHEMA.columns, max_rows=max_rows), target_of(built(form)))
            .lines
        )

    depths = [depth(1000, epsilon=0.1), depth(10**5, epsilon=0.1), depth(10**5, epsilon=10), depth(10**8, epsilon=10)]
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]
    assert any(
        "max_depth is not given" in note
        for note in built(form, max_depth=None).plan(SCHEMA, target_of(built(form))).notes
    )
    assert depth(10**5, n_estimators=1) > depth(10**5, n_estimators=16) == depth(10**5, n_estimators=16, rows="all")


def test_plan_says_what_comes_and_warns() -> None:
    plan = DiPriMeForestClassifier(epsilon=1, n_estimators=20, max_depth=4, variant="paper").plan(SCHEMA, "income")
    assert plan.title == "DiPriMeForestClassifier for `income`: 20 trees of 4 levels of splits by 5 attributes"
    assert [line.query for line in plan.lines[:2]] == ["median of each of 5 attributes", "best of 5 medians"]
    assert "20 random shards" in plan.notes[0]
    assert not plan.warnings
    assert "fewer or shallower" in DPExtraTrees(epsilon=0.01, n_estimators=50).plan(SCHEMA, "income").warnings[0]
    assert "fewer or shallower" in DPExtraTrees(epsilon=1).plan(SCHEMA, "income", rows=100).warnings[0]
    with pytest.raises(QueryError, match="rows"):
        DPExtraTrees().plan(SCHEMA, "income", rows=-1)
    for miner in (DiPriMeTreeRegressor, DiPriMeForestRegressor):  # the range of their target costs a part of it
        assert (
            miner(epsilon="0.05").plan(SCHEMA, "wage").warnings[0].startswith("at epsilon 0.05 and at most 5,000 rows")
        )


def test_a_values_split_uses_its_column_up() -> None:
    trees = (
        DPDecisionForest(epsilon=100, n_estimators=2, max_depth=4, random_state=0)
        .fit(handle(rows=5000, epsilon=100), "income")
        .forest_.trees
    )
    for tree in trees:
        used: dict[int, tuple[str, ...]] = {0: ()}
        nodes: list[Any] = list(tree.nodes)
        for place, node in enumerate(nodes):
            for child in node.children:
                assert node.split.column not in used[place]
                used[child] = (*used[place], node.split.column)


def test_regressors_learn_from_public_rows_too() -> None:
    rows = dummy_rows(SCHEMA, 800, seed=6).to_pandas().dropna(subset=["wage"])
    one = PublicRows(DiPriMeTreeRegressor(epsilon=10), SCHEMA, "wage")
    assert is_regressor(one)
    one.fit(rows.drop(columns="wage"), rows["wage"])
    assert one.predict(rows).shape == (len(rows),)
    assert one.score(rows.drop(columns="wage"), rows["wage"]) == one.estimator_.score(rows)
    assert is_classifier(PublicRows(DiPriMeTreeClassifier(), SCHEMA, "income"))


def test_where_no_level_is_carried_all_of_the_budget_goes_into_the_mean() -> None:
    """A split of so few rows would leave its sides a fifth of the budget, and they would be noise."""
    numeric = Numeric(lower=0, upper=1)
    columns: dict[str, Column] = {"x": numeric, "y": numeric, "c": Categorical(values=(0, 1))}
    cases: list[tuple[Any, str, int, str]] = [
        (DiPriMeTreeRegressor, "y", 300, "noisy_avg"),
        (DiPriMeForestRegressor, "y", 300, "noisy_avg"),
        (DiPriMeTreeClassifier, "c", 30, "noisy_count"),
    ]
    for miner, target, rows, verb in cases:
        plan = miner(epsilon=0.1).plan(Schema(columns=columns, max_rows=rows), target)
        assert [(line.verb, line.epsilon) for line in plan.lines] == [(verb, Fraction(1, 10))]


def test_the_plan_of_random_splits_says_what_they_miss() -> None:
    numeric = Numeric(lower=0, upper=1)
    schema = Schema(columns={"x": numeric, "y": numeric, "c": Categorical(values=(0, 1))}, max_rows=3000)
    assert any("splits are random" in note for note in DPExtraTrees().plan(schema, "c").notes)
    assert not any("splits are random" in note for note in DPExtraTreesRegressor().plan(schema, "y").notes)
