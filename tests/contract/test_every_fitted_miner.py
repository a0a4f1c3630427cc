# SPDX-License-Identifier: Apache-2.0
"""What every miner promises of a fit that was paid for: it is found again, and can be read as tables and as a page."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from miners import DPExtraTrees, FitWarning
from miners.budget.plan import loss_text
from miners.parameters import cloned
from pinq.errors import BudgetExceeded, QueryError
from pinq.provider.local import simulate
from pinq.public.epsilon import Epsilon
from tests.catalogue import Form
from tests.contract.test_every_miner import (
    TARGETS,
    every_form,
    every_miner,
    fitted,
    handle,
    keeps_back,
    learned,
)
from tests.people import SCHEMA

pytestmark = pytest.mark.slow


@every_form
def test_a_fit_that_runs_again_finds_its_paid_answers(form: Form) -> None:
    """With ``reuse`` the first fit costs what it plans, and the same fit nothing, though nothing is left; it learns the same."""
    target, seeded = TARGETS[form.learns], {"random_state": 3} if "random_state" in form.built().get_params() else {}
    with handle(epsilon="0.5") as h:
        first = form.built(epsilon="0.5", **seeded).fit(h, target, reuse=True)
        assert first.cost_ == h.budget.spent
        assert keeps_back(form) or first.cost_ == Fraction("0.5")
        asked = len(h.history())
        again = form.built(epsilon="0.5", **seeded).fit(h, target, reuse=True)
        assert (again.cost_, len(h.history())) == (0, asked)
        assert learned(again) == learned(first)
        assert form.kind.from_json(again.to_json()).cost_ == 0


@every_miner
def test_reuse_takes_what_a_plain_fit_paid_and_no_half_fit_begins(form: Form) -> None:
    """What nobody paid for needs all of epsilon before the first question, with ``reuse`` too."""
    target = TARGETS[form.learns]
    with handle(epsilon="0.5") as h:
        first = form.built(epsilon="0.5").fit(h, target)
        assert learned(form.built(epsilon="0.5").fit(h, target, reuse=True)) == learned(first)
        assert h.budget.spent == first.cost_
    with handle(rows=10, epsilon="0.5") as poor:
        with pytest.raises(BudgetExceeded, match=r"needs an epsilon of 0\.6; 0\.5 remains"):
            form.built(epsilon="0.6").fit(poor, target, reuse=True)
        with pytest.raises(QueryError, match=r"`reuse` is 1; it must be True or False\. Nothing was spent\."):
            form.built(epsilon="0.5").fit(poor, target, reuse=1)
        assert not poor.history().size


def test_a_forest_without_a_random_state_says_that_it_finds_nothing() -> None:
    """What it asks is drawn anew."""
    with handle(epsilon=2) as h, pytest.warns(FitWarning, match="random_state is not given"):
        DPExtraTrees(epsilon=1, n_estimators=2, max_depth=1).fit(h, "income", reuse=True)


# What can be read


@every_form
def test_what_was_learned_is_a_table(form: Form) -> None:
    """With a row for each node, cell or two values; the columns that were looked at have their names and their shares of 1."""
    miner = fitted(form)
    frame = miner.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame)
    assert miner.n_features_in_ == len(miner.feature_names_in_)
    assert set(miner.feature_names_in_) <= set(SCHEMA.columns) - (
        {TARGETS[form.learns]} if form.learns != "distances" else set()
    )
    if form.learns == "distances":
        assert frame["distance"].between(0, 1).all()
        return
    if form.learns == "components":
        assert (frame["variance"] >= 0).all()
        return
    if form.learns == "rows":
        assert (frame["off"] >= 0).all()
        return
    shares = miner.feature_importances_
    assert shares.shape == miner.feature_names_in_.shape
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1) or not shares.any()
    again = form.kind.from_json(miner.to_json())
    assert np.array_equal(again.feature_importances_, shares)
    assert again.to_frame().equals(frame)
    if hasattr(miner, "rules"):
        rules = miner.rules()
        assert len(rules) == frame["split"].isna().sum()
        assert rules["rule"].str.contains("all rows| = | in |<|>|missing").all()


@every_miner
def test_every_model_is_drawn_on_axes(form: Form) -> None:
    """In a figure of its own, which a notebook shows once."""
    miner = fitted(form)
    axes = miner.plot(next(iter(miner.distances_))) if form.learns == "distances" else miner.plot()
    assert isinstance(axes, Axes)
    assert axes in axes.figure.axes


@every_form
def test_every_model_has_a_card(form: Form) -> None:
    """With data, digest, epsilon, plan, bill and known limits, of the fit and not of later parameters; as Markdown and HTML."""
    miner = fitted(form)
    card, page = miner.card(), miner.card().to_markdown()
    for said in (
        form.name,
        "simulated",
        SCHEMA.digest,
        "epsilon: 0.5, delta 0",
        "## Plan",
        "## Known limits",
        "1.65-fold",
    ):
        assert said in page
    assert f"charged by this fit: {Epsilon(int(miner.cost_ * 10**9))}" in page
    assert "| level | query |" in page
    assert len(card.limits) >= 5
    assert "<h3>Known limits</h3>" in card._repr_html_()
    assert "not fitted" in cloned(miner)._repr_html_()
    assert f"cost {loss_text(miner.cost_)}" in miner._repr_html_()
    stored = form.kind.from_json(miner.to_json())
    assert "not known to a model that was stored" in stored.card().to_markdown()
    stored.set_params(epsilon=7)
    assert "epsilon: 0.5, delta 0" in stored.card().to_markdown()


@every_miner
def test_a_notebook_shows_what_a_miner_learned(form: Form) -> None:
    """Each fitted object of the project has a view for notebooks of its own."""
    miner = fitted(form)
    for name, value in vars(miner).items():
        if name.endswith("_") and name != "cost_" and type(value).__module__.startswith(("miners", "pinq")):
            assert value._repr_html_().startswith("<"), name


def test_a_rule_is_where_its_rows_go() -> None:
    """The rows that a rule describes are those that reach its leaf, and importances follow what tells apart."""
    rows = pd.DataFrame({"age": [20, 30, 60, 70] * 250, "sex": ["F", "M"] * 500})
    rows["income"] = np.where(rows["age"] >= 60, ">50K", "<=50K")
    schema = type(SCHEMA)(columns={name: SCHEMA.columns[name] for name in ("age", "sex", "income")}, max_rows=2000)
    with simulate(schema, data=rows, epsilon=1000) as h:
        miner = Form("DiffPC45").built(epsilon=1000, max_depth=1).fit(h, "income")
    rules = miner.tree_.rules()
    reached = miner.tree_.apply(rows)
    for leaf, rule in rules.iterrows():
        assert rule["rows"] == pytest.approx((reached == leaf).sum(), abs=1)
        assert rule["predicts"] == rows["income"][reached == leaf].mode()[0]
        assert rule["rule"].startswith("age ")
        assert rule[f"share of {rule['predicts']}"] > 0.99
    assert dict(zip(miner.feature_names_in_, miner.feature_importances_, strict=True)) == {"age": 1, "sex": 0}
    assert miner.to_frame()["condition"].tolist()[0] == "all rows"
