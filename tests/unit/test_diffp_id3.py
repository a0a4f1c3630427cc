# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import miners
from miners import DiffPID3
from miners.candidates import equal_width, multiway_splits
from pinq.errors import BudgetExceeded, QueryError
from pinq.parts import Cuts, Values
from pinq.schema import Categorical, Numeric, Schema
from pinq.simulation import made_up, simulate

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=17, upper=90, integer=True, cuts=(25, 35, 45, 60)),
        "rate": Numeric(lower=0, upper=1, nullable=True),
        "job": Categorical(values=("private", "self", "state", "none"), nullable=True),
        "sex": Categorical(values=("F", "M")),
        "only": Categorical(values=("one",)),
        "income": Categorical(values=("<=50K", ">50K"), nullable=True),
    },
    max_rows=5000,
)


def handle(rows=2000, epsilon=1, **more):
    return simulate(SCHEMA, rows=rows, epsilon=epsilon, **more)


@pytest.mark.parametrize("criterion", ["max", "gini", "info_gain"])
@pytest.mark.parametrize("max_depth", [0, 1, 3, 10])
def test_fit_spends_exactly_what_was_planned(criterion, max_depth):
    h = handle()
    miner = DiffPID3(epsilon=0.7, max_depth=max_depth, criterion=criterion)
    plan = miner.plan(h.schema, "income")
    assert miner.fit(h, "income") is miner
    assert plan.total == miner.cost_ == h.budget.spent == Fraction("0.7")
    assert miner.tree_.depth <= min(max_depth, 4)
    assert miner.classes_.tolist() == ["<=50K", ">50K"]
    assert miner.schema_ == SCHEMA


def test_one_request_for_each_line_of_a_level():
    h = handle(rows=5000, epsilon=100)
    miner = DiffPID3(epsilon=100, max_depth=3).fit(h, "income")
    assert miner.tree_.depth == 3
    stopped = {depth for node, depth in zip(miner.tree_.nodes, miner.tree_.depths, strict=True) if node.is_leaf and depth < 3}
    assert len(h.history()) == 3 * 2 + len(stopped) + 1


def test_every_way_costs_the_total_wherever_it_ends():
    h = handle(epsilon=5)
    miner = DiffPID3(epsilon="0.9", max_depth=4).fit(h, "income")
    share = Fraction("0.9") / 10
    leaves = 0
    for node, depth in zip(miner.tree_.nodes, miner.tree_.depths, strict=True):
        if not node.is_leaf:
            assert node.size_scale == float(1 / share)
            continue
        leaves += 1
        sizes = depth + (node.size is not None)
        assert sizes * share + depth * share + Fraction(1 / node.counts_scale).limit_denominator(10**9) == Fraction("0.9")
        assert (node.size is None) == (depth == 4)
    assert leaves == miner.tree_.n_leaves


def test_with_hardly_any_noise_the_counts_are_those_of_the_rows_that_predict_sends_there():
    table = made_up(SCHEMA, 3000, seed=5)
    frame = table.to_pandas()
    miner = DiffPID3(epsilon=10**5, max_depth=3, criterion="gini", cuts={"rate": 3}).fit(handle(epsilon=10**5, data=table), "income")
    reached = miner.tree_.apply(frame)
    for place, node in enumerate(miner.tree_.nodes):
        if node.is_leaf:
            here = frame["income"][reached == place]
            assert node.counts == ((here == "<=50K").sum(), (here == ">50K").sum())
    assert miner.tree_.nodes[0].size == 3000


def test_with_hardly_any_noise_each_split_is_the_best_one():
    table = made_up(SCHEMA, 3000, seed=6)
    frame = table.to_pandas()
    miner = DiffPID3(epsilon=10**5, max_depth=1, attributes=["age", "job", "sex"]).fit(handle(epsilon=10**5, data=table), "income")

    def right(keys):
        # Rows whose class is missing are one more class to the score.
        return pd.crosstab(keys.fillna("?"), frame["income"].fillna("?")).max(axis=1).sum()

    age = pd.cut(frame["age"], [-np.inf, 25, 35, 45, 60, np.inf], right=False).astype(str)
    best = {"age": right(age), "job": right(frame["job"]), "sex": right(frame["sex"])}
    chosen = miner.tree_.nodes[0].split
    assert best[chosen.column] == max(best.values())
    assert miner.tree_.n_leaves == {"age": 5, "job": 5, "sex": 2}[chosen.column]


def test_it_learns():
    table = made_up(SCHEMA, 4000, seed=1).to_pandas()
    table["income"] = np.where(table["age"] >= 45, ">50K", "<=50K")
    miner = DiffPID3(epsilon=1, max_depth=2).fit(handle(data=table), "income")
    assert miner.score(table, table["income"]) > 0.95
    assert miner.score(table) == miner.score(table, table["income"])
    assert miner.predict(table.head(3)).shape == (3,)
    assert miner.predict_proba(table.head(3)).shape == (3, 2)
    with pytest.raises(QueryError, match="values for"):
        miner.score(table, table["income"].head(3))


def test_no_attribute_is_used_twice_on_a_way():
    tree = DiffPID3(epsilon=100, max_depth=9).fit(handle(rows=5000, epsilon=100), "income").tree_
    used = {0: ()}
    for place, node in enumerate(tree.nodes):
        for child in node.children:
            used[child] = (*used[place], node.split.column)
    assert all(len(set(way)) == len(way) for way in used.values())


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_rows_gives_a_tree_too(rows):
    h = handle(rows=rows)
    miner = DiffPID3(epsilon=1).fit(h, "income")
    assert miner.cost_ == 1
    assert np.allclose(miner.tree_.probabilities.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("params", "target", "match"),
    [
        ({"epsilon": 0}, "income", "epsilon"),
        ({"epsilon": float("nan")}, "income", "epsilon"),
        ({"epsilon": "0.000000001"}, "income", "too small"),
        ({"max_depth": -1}, "income", "max_depth"),
        ({"max_depth": 2.0}, "income", "max_depth"),
        ({"max_depth": True}, "income", "max_depth"),
        ({"criterion": "ginny"}, "income", "did you mean 'gini'"),
        ({"criterion": None}, "income", "criterion"),
        ({}, "incme", "did you mean 'income'"),
        ({}, "age", "numeric"),
        ({}, "only", "single value"),
        ({}, None, "no column"),
        ({}, ["income"], "no column"),
        ({"attributes": []}, "income", "no attribute"),
        ({"attributes": "age"}, "income", "list of names"),
        ({"attributes": ["age", "age"]}, "income", "twice"),
        ({"attributes": ["age", "income"]}, "income", "target"),
        ({"attributes": ["agee"]}, "income", "did you mean 'age'"),
        ({"attributes": ["only"]}, "income", "single value"),
        ({"cuts": {"sex": [1]}}, "income", "categorical"),
        ({"cuts": {"age": [1000]}}, "income", "out of bounds"),
        ({"cuts": {"age": [40, 30]}}, "income", "increase"),
        ({"cuts": {"age": 1}}, "income", "intervals"),
        ({"cuts": {"age": "30"}}, "income", "cut points"),
        ({"cuts": {"age": 3.5}}, "income", "cut points"),
        ({"cuts": [30]}, "income", "cuts"),
        ({"cuts": {"age": [30]}, "attributes": ["sex"]}, "income", "not an attribute"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_spent(params, target, match):
    h = handle(rows=10)
    with pytest.raises(QueryError, match=match):
        DiffPID3(**params).fit(h, target)
    assert h.budget.spent == 0


def test_too_little_budget_is_said_before_anything_is_spent():
    h = handle(rows=10, epsilon="0.5")
    with pytest.raises(BudgetExceeded, match=r"0\.5 remains") as refused:
        DiffPID3(epsilon="0.6").fit(h, "income")
    assert (refused.value.asked, refused.value.remaining) == (Fraction("0.6"), Fraction("0.5"))
    assert h.budget.spent == 0


def test_a_table_is_no_handle():
    with pytest.raises(QueryError, match="private handle"):
        DiffPID3().fit(pd.DataFrame({"income": []}), "income")


def test_two_fits_cost_at_most_both():
    h = handle(epsilon=1)
    first = DiffPID3(epsilon="0.4", max_depth=2).fit(h, "income")
    second = DiffPID3(epsilon="0.5", max_depth=2).fit(h, "income")
    assert first.cost_ == Fraction("0.4")
    assert 0 < second.cost_ <= Fraction("0.5")
    assert h.budget.spent == first.cost_ + second.cost_


def test_scikit_learn_manners():
    miner = DiffPID3(epsilon=0.5, criterion="gini", attributes=["age"], cuts={"age": [30]})
    assert miner.get_params() == {"epsilon": 0.5, "max_depth": 5, "criterion": "gini", "attributes": ["age"], "cuts": {"age": [30]}}
    again = clone(miner)
    assert again.get_params() == miner.get_params()
    assert "criterion='gini'" in repr(miner)
    with pytest.raises(TypeError):
        DiffPID3(0.5)
    with pytest.raises(ValueError, match="not fitted"):
        miner.predict(pd.DataFrame({"age": [1]}))


def test_json_round_trip():
    miner = DiffPID3(epsilon=Fraction(1, 2), max_depth=2, cuts={"age": np.array([30, 45])}).fit(handle(), "income")
    text = miner.to_json()
    again = DiffPID3.from_json(text)
    assert again.to_json() == text
    assert again.tree_ == miner.tree_
    assert again.cost_ == miner.cost_
    assert again.epsilon == "0.5"
    frame = made_up(SCHEMA, 50).to_pandas()
    assert again.predict(frame).tolist() == miner.predict(frame).tolist()
    for wrong in ("{}", miner.tree_.to_json(), text.replace('"max_depth"', '"depth"'), text.replace('"cost": "0.5"', '"cost": "much"')):
        with pytest.raises(QueryError):
            DiffPID3.from_json(wrong)


def test_plan_says_what_comes():
    miner = DiffPID3(epsilon=0.6, max_depth=2, criterion="info_gain", attributes=["sex", "age"])
    plan = miner.plan(SCHEMA, "income")
    assert plan.total == Fraction("0.6")
    assert [(line.level, line.verb, line.parts, line.epsilon) for line in plan.lines] == [
        (0, "noisy_count", 1, Fraction("0.1")),
        (0, "noisy_count", 3, Fraction("0.5")),
        (0, "exp_mech", 1, Fraction("0.1")),
        (1, "noisy_count", 5, Fraction("0.1")),
        (1, "noisy_count", 15, Fraction("0.3")),
        (1, "exp_mech", 5, Fraction("0.1")),
        (2, "noisy_count", 30, Fraction("0.2")),
    ]
    assert "bits" in repr(plan)
    assert "0.6" in repr(plan).splitlines()[-1 - len(plan.notes) - len(plan.warnings)]
    assert "<table>" in plan._repr_html_()


def test_plan_warns_of_a_budget_that_does_not_carry_the_depth():
    deep = DiffPID3(epsilon=0.1, max_depth=4)
    assert "of 4 levels" in deep.plan(SCHEMA, "income").warnings[0]
    assert not deep.plan(SCHEMA, "income", rows=10**8).warnings
    assert "larger `epsilon`" in deep.plan(SCHEMA, "income", rows=10).warnings[0]
    assert not DiffPID3(max_depth=0).plan(SCHEMA).warnings
    with pytest.raises(QueryError, match="rows"):
        deep.plan(SCHEMA, rows=-1)


def test_plan_needs_no_target():
    plan = DiffPID3(epsilon=1, max_depth=9).plan(SCHEMA)
    assert plan.total == 1
    assert "4 levels" in plan.title
    assert any("4 attributes" in note for note in plan.notes)


def test_candidates_are_public():
    splits = multiway_splits(SCHEMA, "income", attributes=None, cuts=None)
    assert splits == (Cuts("age", (25, 35, 45, 60)), Cuts("rate", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)), Values("job"), Values("sex"))
    assert multiway_splits(SCHEMA, "income", attributes=["age"], cuts={"age": [30]}) == (Cuts("age", (30,)),)


@pytest.mark.parametrize(("bins", "edges"), [(2, (2.0,)), (3, (1.0, 2.0)), (50, (1.0, 2.0, 3.0))])
def test_equal_width_edges_of_a_coarse_column_count_once(bins, edges):
    coarse = Schema(columns={"a": Numeric(lower=0, upper=3, integer=True)}, max_rows=1)
    assert equal_width(coarse, "a", bins) == edges


def test_no_more_nodes_are_split_than_can_be_asked(monkeypatch):
    monkeypatch.setattr("miners.diffp_id3.MAX_PARTS", 40)
    tree = DiffPID3(epsilon=100, max_depth=4).fit(handle(rows=5000, epsilon=100), "income").tree_
    assert max(np.bincount(tree.depths)) * 3 <= 40


def test_import_is_quick_and_lazy():
    code = """
import sys, time
start = time.perf_counter()
import miners
assert time.perf_counter() - start < 0.5
assert not {"sklearn", "pandas", "numpy"} & set(sys.modules)
assert "DiffPID3" in dir(miners)
miners.DiffPID3
assert not {"duckdb", "opendp", "sqlalchemy", "matplotlib", "pinq.curator", "pinq.engine"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert miners.__all__ == ["DiffPID3", "Tree"]
    with pytest.raises(AttributeError, match="no attribute"):
        miners.Nothing  # noqa: B018
