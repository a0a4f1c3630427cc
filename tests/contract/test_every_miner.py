# SPDX-License-Identifier: Apache-2.0
"""What every miner promises, in each of its forms. A new one is tested by its name in ``miners.__all__``.

A fit that was paid for is found again, and can be read as tables and as a page.
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from matplotlib.axes import Axes
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

from miners import DiPriMeForestClassifier, Federation, FitWarning
from miners.budget.plan import loss_text
from miners.estimator import FitPlan, cloned
from miners.federated.owners_miner import OwnersMiner
from miners.fitted.model_card import determination
from miners.trees.diprime import DiPriMeForest
from pinq.errors import UNSPENT, BudgetExceeded, QueryError
from pinq.ledger.events import Terms
from pinq.provider.local import dummy_rows, simulate
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Adjacency, Categorical, Date, Numeric, Schema
from tests.support.laws.fixed_noise import COINS
from tests.support.requests.catalogue import FORMS, MINERS, Form
from tests.support.requests.handles import ledger_of, simulated
from tests.support.tables.mixed_schema import SCHEMA

TARGETS = {"classes": "income", "means": "wage", "distances": "job", "components": "income", "rows": "income"}
# Their published forms keep back what leaves that came early were not asked.
MAY_KEEP_BACK = {"SuLQID3", "DiffPID3", "DiffPC45"}

# For each form; together 176 tables, and thousands in `make explore`.
EXAMPLES = 60 if os.environ.get("PINQ_EXPLORE") else 4

every_form = pytest.mark.parametrize("form", FORMS, ids=str)
every_miner = pytest.mark.parametrize("form", [Form(name) for name in MINERS], ids=str)


def handle(rows: int = 400, epsilon: Any = 1) -> Any:
    return simulated(SCHEMA, rows=rows, epsilon=epsilon)


@pytest.fixture(scope="module")
def untouched() -> Iterator[Any]:
    """A handle with a budget of 1/2 for all tests of what is refused: each leaves it as it was."""
    with handle(rows=10, epsilon="0.5") as shared:
        yield shared


class Fit(NamedTuple):
    """A fit of a form: its miner, the plan made before, and what was spent before the fit and after."""

    miner: Any
    plan: Any
    before: Fraction
    after: Fraction


@lru_cache(maxsize=len(FORMS))
def _fitted(form: str) -> Fit:
    with COINS.apart(form), handle() as h:
        chosen = next(candidate for candidate in FORMS if str(candidate) == form)
        miner = chosen.built(epsilon=Fraction(1, 2))
        plan, before = miner.plan(h.schema, TARGETS[chosen.learns]), h.budget.spent
        assert miner.fit(h, TARGETS[chosen.learns]) is miner
        return Fit(miner, plan, before, h.budget.spent)


def fitted(form: Form) -> Any:
    """A fitted miner of this form, the same one for all tests: they only look at it."""
    return _fitted(str(form)).miner


def keeps_back(form: Form) -> bool:
    return form.name in MAY_KEEP_BACK and form.choices.get("variant") == "paper"


def learned(miner: Any) -> Any:
    """What a fitted miner knows, as JSON has it; of several owners without what each charged."""
    known = {
        key: value for key, value in json.loads(miner.to_json()).items() if key not in ("params", "cost", "owners")
    }
    return known if "tree" not in known else {key: value for key, value in known.items() if key != "card"}


def test_all_miners_are_here() -> None:
    """The list is found by introspection; it must not become empty by a change of names."""
    assert len(MINERS) >= 12
    assert {str(form) for form in FORMS} >= {"DiffPC45 variant=paper", "FederatedTopDown strategy=noisy_counts"}
    assert {form.learns for form in FORMS} == set(TARGETS)


# What it costs


@every_form
def test_a_plan_is_free_and_equals_the_bill(form: Form) -> None:
    """To the nano-epsilon: what the plan says in all is what is claimed, and what the ledger says in the end."""
    miner, plan, before, after = _fitted(str(form))
    assert before == 0
    assert plan.total == Fraction(1, 2) <= sum(line.epsilon for line in plan.lines)
    assert form.name in plan.title
    assert "<table>" in plan._repr_html_()
    assert after == miner.cost_ <= plan.total
    assert keeps_back(form) or miner.cost_ == plan.total


DAYS = Date.model_validate({"lower": "2020-01-01", "upper": "2020-12-31"})
CUT = Numeric(lower=-10, upper=10, cuts=(0, 5))
COLUMN = st.one_of(
    st.builds(
        lambda count, nullable: Categorical(values=tuple("abcdefg"[:count]), nullable=nullable),
        st.integers(1, 7),
        st.booleans(),
    ),
    st.builds(
        lambda upper, nullable: Numeric(lower=0, upper=upper, integer=True, nullable=nullable),
        st.integers(0, 40),
        st.booleans(),
    ),
    st.sampled_from([CUT, DAYS]),
)


def target_column(learns: str, size: int) -> Categorical | Numeric:
    if learns == "means":
        return Numeric(lower=0, upper=size, integer=True, nullable=True)
    return Categorical(values=tuple("stuv"[:size]), nullable=True)


@every_form
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    columns=st.lists(COLUMN, min_size=1, max_size=4),
    size=st.integers(2, 4),
    adjacency=st.sampled_from(["add-remove", "substitute"]),
    nano=st.integers(10**5, 20 * 10**9),
    max_depth=st.integers(0, 4),
    rows=st.integers(0, 60),
    seed=st.integers(0, 2**31),
)
def test_the_ledger_equals_the_claim(
    form: Form, columns: Any, size: int, adjacency: Adjacency, nano: int, max_depth: int, rows: int, seed: int
) -> None:
    """Whatever the table: constant columns, missing values, no rows. A form that keeps back does so for leaves that came early."""
    if all(column.codes < 2 or (isinstance(column, Numeric) and column.cells < 2) for column in columns):
        return  # there is nothing to learn from
    if form.learns == "distances" and any(isinstance(column, Numeric) and column.codes < 2 for column in columns):
        return  # see test_a_number_of_one_value_is_left_alone
    named = {f"c{number}": column for number, column in enumerate(columns)} | {"y": target_column(form.learns, size)}
    schema, epsilon = Schema(columns=named, max_rows=100, adjacency=adjacency), Fraction(nano, 10**9)
    narrow = {"max_depth": max_depth} if "max_depth" in form.built().get_params() else {}
    with simulated(schema, rows=rows, epsilon=epsilon, seed=seed) as h:
        miner = form.built(epsilon=epsilon, **narrow)
        plan = miner.plan(schema, "y")
        assert plan.total == epsilon
        miner.fit(h, "y")
        assert h.budget.spent == miner.cost_
        assert np.isfinite(np.asarray(numbers_in(learned(miner)))).all()
        if not keeps_back(form):
            assert miner.cost_ == epsilon
            return
        assert 0 < miner.cost_ <= epsilon
        depth = max(line.level for line in plan.lines)
        assert (
            miner.cost_ == epsilon or miner.tree_.depth < depth or form.name == "DiffPC45"
        )  # whose leaves were pruned


@every_form
@pytest.mark.parametrize("epsilon", ["0.001", 10**6])
def test_a_fit_at_the_ends_of_epsilon_spends_its_plan(form: Form, epsilon: Any) -> None:
    """Of ten rows where there may be a million; numbers are dates, of two values, or cut by the policy."""
    columns = {"day": DAYS, "cut": CUT, "two": Numeric(lower=3, upper=4, integer=True), "sex": SCHEMA.columns["sex"]}
    schema = Schema(columns={**columns, "y": target_column(form.learns, 2)}, max_rows=10**6)
    with simulated(schema, rows=10, epsilon=epsilon) as h:
        miner = form.built(epsilon=epsilon)
        assert miner.plan(schema, "y").total == Fraction(epsilon)
        assert miner.fit(h, "y").cost_ == h.budget.spent
        assert keeps_back(form) or miner.cost_ == Fraction(epsilon)


@every_miner
def test_a_number_of_one_value_is_left_alone(form: Form) -> None:
    """A column that says nothing keeps nobody from learning from the others."""
    columns = {"a": SCHEMA.columns["sex"], "still": Numeric(lower=0, upper=0, integer=True)}
    schema = Schema(columns={**columns, "y": target_column(form.learns, 2)}, max_rows=100)
    assert form.built(epsilon=1).plan(schema, "y").total == 1


def numbers_in(value: Any) -> list[float]:
    """All numbers of a JSON value."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [number for item in inner for number in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []


@every_form
def test_too_little_budget_is_said_before_anything_is_asked(form: Form, untouched: Any) -> None:
    """With what was asked and what remains."""
    with pytest.raises(BudgetExceeded, match=r"needs an epsilon of 0\.6; 0\.5 remains") as refused:
        form.built(epsilon="0.6").fit(untouched, TARGETS[form.learns])
    assert (refused.value.asked, refused.value.remaining) == (Fraction("0.6"), Fraction("0.5"))
    assert form.name in str(refused.value)
    assert untouched.budget.spent == 0
    assert set(untouched.history()["outcome"]) == {"refused (budget)"}


@every_miner
def test_a_grant_that_allows_every_question_allows_the_fit(form: Form) -> None:
    """Terms bind each question by its verb and its epsilon, and nothing that stands for all of them."""
    target = TARGETS[form.learns]
    with handle() as h:
        miner = form.built(epsilon="0.6")
        lines = miner.plan(h.schema, target).lines
        # A leaf that is reached early may be asked at all that its path has left: less than the whole.
        largest = max(Epsilon.of("0.599"), *(Epsilon.of(line.epsilon) for line in lines))
        ledger_of(h).set_terms("simulated", Terms(largest, verbs=tuple({line.verb for line in lines})))
        assert miner.fit(h, target).cost_ <= Fraction("0.6")
        asked = len(h.history())
        with pytest.raises(BudgetExceeded, match=r"needs an epsilon of 0\.6"):
            form.built(epsilon="0.6").fit(h, target)
        assert h.history()["outcome"].tolist()[asked:] == ["refused (budget)"]


# What it refuses


def is_refused(untouched: Any, form: Form, target: Any, match: str, **params: Any) -> None:
    with pytest.raises(QueryError, match=match) as refused:
        form.built(**{"epsilon": "0.5"} | params).fit(untouched, target)
    assert str(refused.value).endswith(UNSPENT)
    assert untouched.budget.spent == 0
    assert set(untouched.history().get("outcome", ())) <= {"refused (budget)"}  # of other tests


PARAMETERS = [
    pytest.param(
        Form(name),
        param,
        id=f"{name}-{param}",
    )
    for name, kind in MINERS.items()
    for param in kind().get_params()
]


@pytest.mark.parametrize(("form", "param"), PARAMETERS)
def test_a_wrong_parameter_is_refused_by_name(form: Form, param: str, untouched: Any) -> None:
    """Every parameter that there is: something of no use is refused before anything is asked."""
    is_refused(untouched, form, TARGETS[form.learns], param, **{param: object()})


@every_miner
def test_a_target_of_the_other_kind_names_a_miner_that_learns_it_from_the_same_owners(form: Form) -> None:
    other = {"classes": "means", "means": "classes"}.get(form.learns)
    if other is None:
        return
    with pytest.raises(QueryError, match="take ") as refused:
        form.built(epsilon=1).plan(SCHEMA, TARGETS[other])
    advised = MINERS[str(refused.value).split("take ")[1].split(",")[0]]
    assert Form(advised.__name__).learns == other
    assert issubclass(advised, OwnersMiner) == issubclass(form.kind, OwnersMiner)
    assert issubclass(advised, DiPriMeForest) == issubclass(form.kind, DiPriMeForest)
    advised(epsilon=1).plan(SCHEMA, TARGETS[other])


@every_miner
@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), "much", True])
def test_an_epsilon_that_is_none_is_refused(form: Form, epsilon: Any, untouched: Any) -> None:
    """By its name, whatever the algorithm."""
    is_refused(untouched, form, TARGETS[form.learns], "epsilon", epsilon=epsilon)


@every_miner
def test_a_wrong_column_is_refused_by_name(form: Form, untouched: Any) -> None:
    """With the closest name that there is; and a column of one value says nothing."""
    target = TARGETS[form.learns]
    is_refused(untouched, form, "incme", "did you mean 'income'")
    if form.learns not in ("rows", "components"):  # which have that value, and leave it out
        is_refused(untouched, form, "only", "only")
    is_refused(untouched, form, target, "did you mean 'age'", attributes=["sex", "agee"])
    is_refused(untouched, form, target, "list of names", attributes="age")
    is_refused(untouched, form, target, "twice", attributes=["age", "age"])
    is_refused(untouched, form, target, "single value", attributes=["sex", "only"])


@every_form
def test_a_table_is_no_handle(form: Form) -> None:
    """Rows that anybody may see are not learned from by mistake."""
    with pytest.raises(QueryError, match=r"private handle, not from DataFrame"):
        form.built().fit(pd.DataFrame({"income": []}), TARGETS[form.learns])


# scikit-learn's manners


@every_form
def test_a_miner_has_scikit_learns_manners(form: Form) -> None:
    """Parameters are kept as they came, by name only; a copy has the same; nothing can be had before ``fit``."""
    epsilon, attributes = Fraction(1, 3), ["age", "sex"]
    miner = form.built(epsilon=epsilon, attributes=attributes)
    params = miner.get_params()
    assert params["epsilon"] is epsilon
    assert attributes in params.values()
    assert params | form.choices == params
    assert clone(miner).get_params() == params
    assert f"{form.name}(" in repr(miner)
    assert "s=['age', 'sex']" in repr(miner)
    assert form.kind(**params).get_params() == params
    with pytest.raises(TypeError):
        form.kind(0.5)
    with pytest.raises(NotFittedError):
        answers(miner, pd.DataFrame({"age": [1], "sex": ["F"]}))
    with pytest.raises(NotFittedError):
        miner.to_json()
    assert is_classifier(miner) == (form.learns == "classes")
    assert is_regressor(miner) == (form.learns == "means")


@every_miner
@pytest.mark.filterwarnings("error::miners.budget.plan.FitWarning")
def test_fitting_again_says_what_it_costs_before_it_does(form: Form) -> None:
    """On the same handle only; whoever makes warnings errors has spent nothing; copies are miners of their own."""
    target, schema = TARGETS[form.learns], Schema(columns=SCHEMA.columns, max_rows=10**5)
    wide = {"attributes": ["age", "job", "sex"]}  # few enough for no warning that they learn little
    with simulated(schema, rows=20_000, epsilon=100) as h, simulated(schema, rows=20_000, epsilon=100) as other:
        miner = form.built(epsilon=1.5, **wide).fit(h, target)
        before = h.budget.spent
        again = (
            rf"^this {form.name} is already fitted on this handle, and another fit costs an epsilon of 1\.5 again\.$"
        )
        with pytest.raises(FitWarning, match=again):
            miner.fit(h, target)
        assert h.budget.spent == before == miner.cost_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            miner.fit(h, target)
        assert h.budget.spent == before + miner.cost_
        pickle.loads(pickle.dumps(miner)).fit(h, target)
        miner.fit(other, target)


# What was learned


@every_form
def test_json_round_trip(form: Form) -> None:
    """The same text again, and a miner that knows, cost and answers the same."""
    miner = fitted(form)
    text = miner.to_json()
    again = form.kind.from_json(text)
    assert again.to_json() == text
    assert again.epsilon == "0.5"
    assert (again.cost_, again.schema_) == (miner.cost_, SCHEMA)
    assert learned(again) == learned(miner)
    frame = dummy_rows(SCHEMA, 50, seed=2).to_pandas()
    first, second = pd.DataFrame(answers(again, frame)), pd.DataFrame(answers(miner, frame))
    assert first.equals(second)


@every_miner
def test_json_that_is_something_else_is_refused(form: Form) -> None:
    """No part of it may be missing, unknown or another miner's."""
    body = json.loads(fitted(form).to_json())
    wrong = [{key: value for key, value in body.items() if key != missing} for missing in body]
    wrong += [{**body, "format": "pinq-Nothing"}, {**body, "version": 10**6}, {**body, "cost": "much"}, {}]
    wrong += [{**body, "params": {**body["params"], "more": 1}}]
    for text in [*map(json.dumps, wrong), "[]", "[", ""]:
        with pytest.raises(QueryError):
            form.kind.from_json(text)


# In the place of each piece of a stored model, a third of them in turns.
DAMAGE: list[Any] = [None, True, "x", 1.5, -1, 10**400, float("nan"), [1], {}]


def pieces(content: Any, kind: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Of each piece in JSON its kind, its owner and its key; items of a list are of one kind unless their types differ."""
    alike = isinstance(content, list) and len({type(item) for item in content}) < 2
    for key, item in content.items() if isinstance(content, dict) else enumerate(content):
        own = (*kind, None if alike else key)
        yield own, content, key
        if isinstance(item, dict | list):
            yield from pieces(item, own)


@every_miner
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of a variance of -1
def test_a_damaged_model_is_refused_or_answers(form: Form) -> None:
    """Whatever stands in the place of a piece of it: it is a ``QueryError`` or a model that answers and is stored again."""
    body, frame = json.loads(fitted(form).to_json()), dummy_rows(SCHEMA, 10, seed=2).to_pandas()
    known = {kind: place for kind, *place in pieces(body) if not {"schema", "params"} & {*kind[:-1]}}
    assert len(known) > 6
    refused = 0
    for number, (owner, key) in enumerate(known.values()):
        whole = owner[key]
        for owner[key] in DAMAGE[number % 3 :: 3]:
            try:
                again = form.kind.from_json(json.dumps(body))
                answers(again, frame)
                again.to_frame()
                assert again._repr_html_()
                again.to_json()
            except QueryError:
                refused += 1
        owner[key] = whole
    assert refused > len(known) / 2


def answers(miner: Any, table: Any) -> Any:
    if hasattr(miner, "sample"):
        return miner.sample(len(table), random_state=1)
    learns = Form(type(miner).__name__).learns
    return getattr(miner, {"distances": "pairwise", "components": "transform"}.get(learns, "predict"))(table)


@every_form
def test_answers_have_the_type_that_was_promised(form: Form) -> None:
    """Declared classes with shares that add up to one, means within the bounds, distances of a pseudometric: from pandas and Arrow alike."""
    miner, table = fitted(form), dummy_rows(SCHEMA, 30, seed=3)
    frame = table.to_pandas()
    got = answers(miner, frame)
    if form.learns == "rows":
        assert list(got.columns) == list(SCHEMA.columns)
        assert len(got) == 30
        return
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got, answers(miner, pa.Table.from_pandas(frame)))
    if form.learns == "classes":
        assert miner.classes_.tolist() == ["<=50K", ">50K"]  # sorted; declared the other way round
        assert got.shape == (30,)
        assert set(got.tolist()) <= set(miner.classes_.tolist())
        shares = miner.predict_proba(frame)
        assert shares.shape == (30, 2)
        assert np.allclose(shares.sum(axis=1), 1)
        assert (shares >= 0).all()
        assert 0 <= miner.score(frame) <= 1
    elif form.learns == "means":
        assert got.shape == (30,)
        assert got.dtype == np.float64
        assert ((got >= 0) & (got <= 50)).all()
        assert miner.score(frame) <= 1
    elif form.learns == "components":
        assert got.shape == (30, len(miner.components_))
        assert np.allclose(miner.components_ @ miner.components_.T, np.eye(len(miner.components_)))
        assert (np.diff(miner.explained_variance_) <= 0).all()
        assert miner.explained_variance_ratio_.sum() == pytest.approx(1) or not miner.explained_variance_.any()
    else:
        (matrix,) = [distances.to_numpy() for distances in miner.distances_.values()]
        assert got.shape == (30, 30)
        for square in (got, matrix):
            assert np.allclose(square, square.T)
            assert (np.diag(square) == 0).all()
            assert (square >= 0).all()


BILLION = Schema(columns=SCHEMA.columns, max_rows=10**9)


@every_form
def test_no_rows_of_a_billion_are_learned_from_or_refused_before_the_first_charge(form: Form) -> None:
    """The work of a billion rows follows from public facts: no fit pays for a question and is refused the next one."""
    with simulated(BILLION, rows=0, epsilon=1) as h:
        try:
            miner = form.built().fit(h, TARGETS[form.learns])
        except QueryError as refused:
            assert "units of work" in str(refused)
            assert refused.charged == h.budget.spent == 0
            hardly_any(form, 0)
        else:
            is_of_noise(miner, h)


@every_miner
def test_hardly_any_rows_are_learned_from_too(form: Form) -> None:
    """What is known of them is noise, and it costs the same."""
    hardly_any(form, 1)


def hardly_any(form: Form, rows: int) -> None:
    with handle(rows=rows) as h:
        is_of_noise(form.built().fit(h, TARGETS[form.learns]), h)


def is_of_noise(miner: Any, h: Any) -> None:
    assert 0 < miner.cost_ == h.budget.spent <= 1
    assert np.isfinite(numbers_in(learned(miner))).all()


class Several:
    """A source of several owners, as a miner of one handle sees it."""

    def __init__(self) -> None:
        self.schema, self.owners = SCHEMA, ("north", "south")

    def parts(self) -> None:
        """There are parts, but nothing to preview."""


@every_miner
def test_a_wrong_source_is_told_what_is_needed(form: Form, untouched: Any) -> None:
    """A plan reads a schema, and a fit one handle; a federation is for the federated miners."""
    miner, target = form.built(epsilon=1), TARGETS[form.learns]
    for wrong in (untouched, pd.DataFrame({"a": [1]}), "policy.yaml", None):
        with pytest.raises(QueryError, match=r"`plan` reads a public schema, not .*; pass `handle.schema`"):
            miner.plan(wrong, target)
    match = "one private handle, not from Several. FederatedTopDown"
    with pytest.raises(QueryError, match=match):
        miner.fit(Several(), target)


# What was paid for is found again


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
        assert poor.history()["outcome"].tolist() == ["refused (budget)"]


@pytest.mark.parametrize("name", [name for name, kind in MINERS.items() if is_regressor(kind())])
def test_a_mean_of_dates_is_a_date(name: str) -> None:
    """Dates are predicted, and scored by days, however the true ones are written."""
    days = np.arange(600) % 300
    frame = pd.DataFrame({"x": days // 100, "on": pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D")})
    on = {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31"}
    columns = {"x": {"type": "numeric", "lower": 0, "upper": 2, "integer": True}, "on": on}
    source = simulate(Schema.model_validate({"columns": columns, "max_rows": 600}), data=frame, epsilon=100)
    miner = MINERS[name](epsilon=100).fit(Federation({"a": source}) if "Federated" in name else source, "on")
    assert miner.predict(frame).dtype == "datetime64[D]"
    since = (frame["on"] - pd.Timestamp("1970-01-01")).dt.days.to_numpy().astype(float)
    assert miner.score(frame) == determination(since, miner._model.predict(frame))
    assert miner.score(frame, frame["on"].dt.strftime("%Y-%m-%d")) == miner.score(frame)


def test_a_forest_without_a_random_state_says_that_it_finds_nothing() -> None:
    """What it asks is drawn anew."""
    with handle(epsilon=2) as h, pytest.warns(FitWarning, match="random_state is not given"):
        DiPriMeForestClassifier(epsilon=1, n_estimators=2, max_depth=1).fit(h, "income", reuse=True)


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
def test_a_fit_is_one_object(form: Form) -> None:
    """It has the whole plan before it has a handle."""
    miner, target = form.built(), TARGETS[form.learns]
    fit = miner._checked(SCHEMA, target)
    assert isinstance(fit, FitPlan)
    assert fit.total.exact == fit.plan(None).total
    assert fit.plan(None) == miner.plan(SCHEMA, target)


@every_miner
def test_a_plan_is_for_a_number_of_rows(form: Form) -> None:
    """Whatever the miner, no other number is taken."""
    for rows in (-1, 2.5, True, 2**40):
        with pytest.raises(QueryError, match="`rows` is"):
            form.built().plan(SCHEMA, TARGETS[form.learns], rows=rows)


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
