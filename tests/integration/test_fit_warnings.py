# SPDX-License-Identifier: Apache-2.0
"""What miners say aloud: before a charge that little can be learned, and of rows that nobody declared."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone, is_regressor

import miners
import pinq
from miners import (
    DiffPC45,
    DiPriMeForestClassifier,
    DPDilca,
    FederatedTopDown,
    Federation,
    FitWarning,
    Scorecard,
    UndeclaredValueWarning,
)
from miners.estimator import Classifier, Regressor
from miners.trees.tree_miner import GreedyFit
from pinq.public.schema import Categorical, Column, Numeric, Schema
from tests.support.requests.catalogue import MINERS
from tests.support.requests.handles import simulated

pytestmark = [
    pytest.mark.filterwarnings("error::miners.budget.plan.FitWarning"),
    pytest.mark.filterwarnings("error::miners.fitted.route.UndeclaredValueWarning"),
]

COLUMNS: dict[str, Column] = {
    "age": Numeric(lower=0, upper=99, integer=True, cuts=(30, 60)),
    "job": Categorical(values=("clerk", "nurse", "smith")),
    "ill": Categorical(values=("yes", "no")),
}
KINDS = sorted(name for name, kind in MINERS.items() if issubclass(kind, Classifier | Regressor))


def built(name: str, **more: Any) -> Any:
    return MINERS[name](**more)


def target_of(miner: Any) -> str:
    return "age" if is_regressor(miner) else "ill"


def handle(rows: int, epsilon: float = 100) -> pinq.PrivateQueryable:
    return simulated(Schema(columns=COLUMNS, max_rows=rows), rows=min(rows, 20_000), epsilon=epsilon)


@pytest.mark.parametrize("name", KINDS)
def test_a_hopeless_fit_warns_once_in_the_plans_words(name: str) -> None:
    """On 100 rows at epsilon 0.1 noise beats the majority; the warning names the caller's line, and comes before any charge."""
    h, miner = handle(100), built(name, epsilon=0.1)
    with pytest.warns(FitWarning) as caught:
        miner.fit(h, target_of(miner))
    assert [str(one.message) for one in caught] == [" ".join(miner.plan(h.schema, target_of(miner)).warnings)]
    assert caught[0].filename == __file__
    assert "100 rows" in str(caught[0].message)
    spent = h.budget.spent
    with pytest.raises(FitWarning):
        built(name, epsilon=0.1).fit(h, target_of(miner))
    assert h.budget.spent == spent


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_that_can_work_is_silent(name: str) -> None:
    """Many rows and a fair epsilon: no word, of a clone neither."""
    h, miner = handle(50_000), built(name, epsilon=1)
    miner.fit(h, target_of(miner))
    clone(miner).fit(h, target_of(miner))


def test_a_fit_that_was_refused_is_not_one() -> None:
    """What was never fitted is not fitted again."""
    h, miner = handle(50_000, epsilon=1), DiffPC45(epsilon=2)
    with pytest.raises(pinq.BudgetExceeded):
        miner.fit(h, "ill")
    miner.set_params(epsilon=1).fit(h, "ill")
    few = handle(100)
    for _ in range(2):  # an error in place of the warning, before anything is charged
        with pytest.raises(FitWarning, match=r"^at epsilon 0\.01 "):
            miner.set_params(epsilon=0.01).fit(few, "ill")


def test_a_federation_is_a_handle_too() -> None:
    """Fitted again it costs again, unless a fit that was broken off is resumed."""
    both = Federation([handle(50_000), handle(50_000)])
    miner = FederatedTopDown(epsilon=1, max_depth=2).fit(both, "ill")
    with pytest.raises(FitWarning, match="costs an epsilon of 1 again"):
        miner.fit(both, "ill")
    assert miner.set_params(resume=True).fit(both, "ill").cost_ < 1


def test_distances_that_say_little_warn() -> None:
    """As their plan does."""
    with pytest.raises(FitWarning, match="are unreliable"):
        DPDilca(epsilon="0.01").fit(handle(1000), "job")


def test_votes_of_no_rows_warn_without_splits() -> None:
    """A tree of one leaf is a vote of all rows."""
    with pytest.raises(FitWarning, match="an average leaf has 100 of them"):
        DiffPC45(epsilon=0.01, max_depth=0).fit(handle(100), "ill")
    DiffPC45(epsilon=1, max_depth=0).fit(handle(100), "ill")


def test_a_search_for_an_epsilon_tries_small_ones_in_silence() -> None:
    """They are meant to fail."""
    schema = Schema(columns=COLUMNS, max_rows=1000)
    miners.suggest(DiffPC45(), schema, "ill", rows=500, accuracy=0.6, runs=2, limits=(0.001, 1), progress=False)


@pytest.mark.parametrize(
    "miner", [DiffPC45(epsilon=50, max_depth=3), DiPriMeForestClassifier(epsilon=50, max_depth=3, n_estimators=2)]
)
@pytest.mark.parametrize("table", [pd.DataFrame, lambda rows: pa.table(rows)])
def test_rows_of_undeclared_categories_are_counted(miner: Any, table: Any) -> None:
    """A missing category is none, and a column by which nothing is split does not matter."""
    schema = Schema(columns={"job": COLUMNS["job"], "ill": COLUMNS["ill"]}, max_rows=50_000)
    rows = pd.DataFrame({"job": ["clerk", "nurse", "smith"] * 500, "ill": ["yes", "no", "no"] * 500})
    with simulated(schema, data=rows, epsilon=100) as h:
        miner.fit(h, "ill")
    with pytest.warns(
        UndeclaredValueWarning,
        match=r"^2 of 4 rows have a value of `job` that the schema does not declare; 1 of 4 rows have no `job`, ",
    ) as caught:
        miner.predict(table({"job": ["clerk", "pilot", "Nurse", None]}))
    assert len(caught) == 1
    with pytest.warns(UndeclaredValueWarning, match="^1 of 3 rows have no `job`"):
        miner.predict(table({"job": ["clerk", None, "nurse"]}))


def test_what_was_spent_stays_what_it_was() -> None:
    """Parameters are for the next fit; scikit-learn's names of features are the schema's."""
    h = handle(50_000)
    miner = DiffPC45(epsilon=1, max_depth=2).fit(h, "ill").set_params(epsilon=0.25)
    assert (miner.cost_, miner.unspent_) == (Fraction(1), Fraction(0))
    assert miner.feature_names_in_.tolist() == ["age", "job"]
    assert miner.n_features_in_ == 2
    again = DiffPC45.from_json(miner.to_json())
    assert again.feature_names_in_.tolist() == ["age", "job"]


@pytest.mark.parametrize("miner", [DiffPC45(epsilon=50, max_depth=1), Scorecard(epsilon=50, steps=1)])
@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["n/a", "13,0", 30, 31], "^2 of 4 rows have no number as `age`"),
        ([None, float("nan"), 30, 31], "^2 of 4 rows have no `age`, of which no value may be missing"),
        ([float("inf"), 1e9, -(10**9), 30], "^3 of 4 rows have a `age` far outside its bounds"),
    ],
)
def test_numbers_that_cannot_be_used_are_counted(miner: Any, values: list[object], told: str) -> None:
    """Text, missing values where none may be, and numbers far from the bounds; a little outside is fine."""
    schema = Schema(columns={"age": COLUMNS["age"], "ill": COLUMNS["ill"]}, max_rows=50_000)
    rows = pd.DataFrame({"age": [20, 40, 70] * 500, "ill": ["yes", "no", "no"] * 500})
    with simulated(schema, data=rows, epsilon=100) as h:
        miner.fit(h, "ill")
    with pytest.warns(UndeclaredValueWarning, match=told):
        miner.predict(pd.DataFrame({"age": values}))
    miner.predict(pd.DataFrame({"age": [-5, 0, 99, 120]}))


@pytest.mark.parametrize(
    ("name", "told"), [("DiffPC45", "31 minutes"), ("DiPriMeTreeClassifier", "31 minutes"), ("DiffPID3", "")]
)
def test_a_plan_says_that_groupings_of_many_values_take_long(name: str, told: str) -> None:
    """Of 45,000 values and 4,095 nodes; of an everyday column, and of splits without groupings, it says nothing."""
    many = Categorical(values=tuple(f"v{number}" for number in range(45_000)))
    for column, words in ((many, told), (COLUMNS["job"], "")):
        schema = Schema(columns={**COLUMNS, "job": column}, max_rows=2_000_000)
        warnings = built(name, epsilon=1, max_depth=12 if told else 1).plan(schema, "ill").warnings
        said = [warning for warning in warnings if "groupings of values" in warning]
        assert len(said) == bool(words)
        assert all(f"about {words}" in warning and "`job` has 45,000 values" in warning for warning in said)


@pytest.mark.parametrize("miner", [miners.Synthesizer(epsilon=1), DPDilca(epsilon=1, k=1)], ids=repr)
def test_far_fewer_rows_than_declared_are_told_once_they_are_found(miner: Any) -> None:
    """Ten rows of a million in cells by the hundred: no plan can foresee it, and noise is all that was learned."""
    wide: dict[str, Column] = {name: Categorical(values=tuple(range(200))) for name in ("a", "b")}
    schema = Schema(columns=wide, max_rows=10**6)
    assert not miner.plan(schema).warnings
    with pytest.warns(FitWarning, match="noise of") as caught:
        miner.fit(simulated(schema, rows=10))
    assert [one.filename for one in caught] == [__file__]
    miner.set_params(epsilon=1000).fit(simulated(schema, rows=20_000, epsilon=1000))


def test_fits_that_overlap_leave_the_filters_of_warnings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both keep their second word to themselves; the filters are all threads', and the second to end put back the first one's."""
    learned, begun, ended = GreedyFit.learn, [threading.Event(), threading.Event()], threading.Event()

    def waits(self: Any, *given: Any) -> Any:
        begun[number := int(self.miner.max_depth or 0) - 1].set()
        assert begun[1].wait(60)
        assert not number or ended.wait(60)
        return learned(self, *given)

    monkeypatch.setattr(GreedyFit, "learn", waits)
    with warnings.catch_warnings(record=True), ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("always", FitWarning)
        filters = list(warnings.filters)
        first = pool.submit(DiffPC45(epsilon=0.01, max_depth=1).fit, handle(100), "ill")
        assert begun[0].wait(60)
        second = pool.submit(DiffPC45(epsilon=0.01, max_depth=2).fit, handle(100), "ill")
        first.result(60)
        ended.set()
        second.result(60)
        assert list(warnings.filters) == filters
