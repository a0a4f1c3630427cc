# SPDX-License-Identifier: Apache-2.0
"""Scorecards learn what there is to learn, and say so where there is nothing."""

from __future__ import annotations

import bisect
import functools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pinq
from miners import FitWarning, Scorecard, ScorecardRegressor
from miners.growth.candidates import attribute_pairs
from miners.scorecards.objectives import Objective
from pinq.analyst.queryable import Verbs
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(
    columns={
        "a": Categorical(values=("x", "y", "z")),
        "b": Numeric(lower=0, upper=10),
        "still": Categorical(values=("x", "y")),
        "two": Categorical(values=("no", "yes"), nullable=True),
        "three": Categorical(values=("r", "s", "t"), nullable=True),
        "mean": Numeric(lower=0, upper=100, nullable=True),
    },
    max_rows=5000,
)
EXPLAINING = ["a", "b", "still"]


def table(rows: int = 4000, seed: int = 0) -> pa.Table:
    """Rows whose targets follow ``a`` and ``b`` additively; a tenth of the targets is missing."""
    random = np.random.default_rng(seed)
    a, b, still = random.integers(0, 3, rows), random.uniform(0, 10, rows), random.integers(0, 2, rows)
    score = np.array([-1.5, 0.0, 1.5])[a] + 0.6 * (b - 5)
    two = np.where(random.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no").astype(object)
    logits = np.column_stack([-score, 1.2 * (a == 1) - 0.2, score]) + random.gumbel(size=(rows, 3))
    three = np.array(["r", "s", "t"], dtype=object)[logits.argmax(axis=1)]
    mean = np.clip(50 + 8 * score + random.normal(0, 5, rows), 0, 100)
    missing = random.random(rows) < 0.1
    two[missing] = three[missing] = None
    columns = {
        "a": np.array(["x", "y", "z"], dtype=object)[a],
        "b": b,
        "still": np.array(["x", "y"], dtype=object)[still],
        "two": two,
        "three": three,
        "mean": np.where(missing, np.array(None), mean),
    }
    return pa.table({name: pa.array(list(values)) for name, values in columns.items()})


@pytest.fixture(scope="module")
def handle() -> Any:
    with simulated(SCHEMA, data=table(), epsilon=1000, seed=5) as h:
        yield h


FRESH = table(seed=1).to_pandas()


@pytest.mark.parametrize(("target", "reached"), [("two", 0.77), ("three", 0.70)])
def test_a_card_finds_what_adds_up(handle: Any, target: str, reached: float) -> None:
    """Near the best that is possible (means of 25 fits: .784 ± .002 and .719 ± .003); nearly nothing for what says nothing."""
    card = Scorecard(epsilon=2, attributes=EXPLAINING).fit(handle, target)
    known = FRESH[FRESH[target].notna()]
    assert card.score(known) > reached
    importance = dict(zip(card.feature_names_in_, card.feature_importances_, strict=True))
    assert importance["still"] < 0.1 < min(importance["a"], importance["b"])
    assert card.feature_importances_.sum() == pytest.approx(1)


def test_probabilities_are_calibrated(handle: Any) -> None:
    """Of rows with a predicted share of p, about p have the class."""
    card = Scorecard(epsilon=4, attributes=EXPLAINING).fit(handle, "two")
    known = FRESH[FRESH["two"].notna()]
    shares = card.predict_proba(known)[:, 1]
    happened = (known["two"] == "yes").to_numpy()
    tenths = np.minimum((shares * 10).astype(int), 9)
    off = sum(abs((shares - happened)[tenths == tenth].sum()) for tenth in range(10)) / len(known)
    assert off < 0.06


def test_a_mean_is_found(handle: Any) -> None:
    """Rows without a value are not learned from."""
    card = ScorecardRegressor(epsilon=4, attributes=EXPLAINING).fit(handle, "mean")
    assert card.score(FRESH) > 0.75
    assert "units" not in card.export_text()


def test_intervals_hold_what_more_epsilon_says(handle: Any) -> None:
    """The points of many fits spread about as far as their deviations say, or less: they lean on the prior."""
    fits = [Scorecard(epsilon=1, steps=1, attributes=["a"]).fit(handle, "two").card_ for _ in range(40)]
    points = np.array([card.terms[0].points[:, 0] for card in fits])
    deviations = np.array([card.terms[0].deviations[:, 0] for card in fits]).mean(axis=0)
    assert (points.std(axis=0) < 1.5 * deviations).all()


def test_a_table_too_small_for_epsilon_is_answered_by_the_majority() -> None:
    """With a warning, and no points."""
    rows = table(200)
    with simulated(SCHEMA.model_copy(update={"max_rows": 200}), data=rows, epsilon=1) as h:
        for miner, target, word in (
            (Scorecard(epsilon=0.1), "two", "most frequent"),
            (Scorecard(epsilon=0.1), "three", "most frequent"),
            (ScorecardRegressor(epsilon=0.01), "mean", "the mean"),
        ):
            with pytest.warns(FitWarning, match=word):
                card = miner.fit(h, target)
            assert card.card_.terms == ()
            assert len(set(card.predict(FRESH[:20]))) == 1
            assert (card.feature_importances_ == 0).all()


def test_a_target_of_the_other_kind_names_the_other_miner(handle: Any) -> None:
    """Nothing is spent."""
    with pytest.raises(QueryError, match="take ScorecardRegressor"):
        Scorecard().fit(handle, "mean")
    with pytest.raises(QueryError, match="take Scorecard,"):
        ScorecardRegressor().fit(handle, "two")


def test_steps_can_be_chosen(handle: Any) -> None:
    """So many choices, so many sums, after the start and, of few attributes, their tables."""
    plan = Scorecard(steps=3, attributes=EXPLAINING).plan(SCHEMA, "two")
    assert [line.verb for line in plan.lines] == ["noisy_count"] * 2 + ["exp_mech", "noisy_sum"] * 3
    assert "3 steps over 3 attributes" in plan.title
    alone = Scorecard(attributes=["a"]).plan(SCHEMA, "two")
    assert [line.verb for line in alone.lines] == ["noisy_count", "noisy_sum"]
    with pytest.raises(QueryError, match="steps"):
        Scorecard(steps=201).fit(handle, "two")


def test_a_pair_is_found_where_attributes_act_together() -> None:
    """An exclusive or, which no sum of points says: .5 without pairs, for one epsilon as the plan tells it."""
    bits = np.random.default_rng(3).integers(0, 2, (2000, 8))
    rows = pd.DataFrame(np.where(bits, "y", "n"), columns=list("abcdefgh")).assign(
        t=np.where(bits[:, 0] ^ bits[:, 1], "q", "p")
    )
    columns = {name: Categorical(values=("n", "y")) for name in "abcdefgh"}
    schema = Schema(columns={**columns, "t": Categorical(values=("p", "q"))}, max_rows=2000)
    with simulated(schema, data=rows, epsilon=100) as h:
        alone = Scorecard(epsilon=20, steps=3).fit(h, "t")
        card = Scorecard(epsilon=20, steps=3, pairs=True).fit(h, "t")
    assert alone.score(rows) < 0.6 < 0.99 < card.score(rows)
    assert card.cost_ == card.plan(schema, "t").total == 20
    assert "attribute or pair to improve, of 36" in str(card.plan(schema, "t"))
    assert card.card_.ranked[0].name == "a and b"
    assert Scorecard.from_json(card.to_json()).score(rows) == card.score(rows)


def test_pairs_need_steps_and_few_cells() -> None:
    """Without steps a plan says so; a number has six intervals in a pair, and large pairs are left out."""
    plan = Scorecard(steps=0, pairs=True).plan(SCHEMA, "two")
    assert "there are no steps, so no pair is chosen; give `steps`." in plan.notes
    found = attribute_pairs(SCHEMA, "two", ["a", "b", "still"], {"b": 30})
    assert [pair.columns() for pair in found] == [{"a", "still"}, {"b", "still"}]
    with pytest.raises(QueryError, match="`pairs` is 1; it must be True or False"):
        Scorecard(pairs=1).plan(SCHEMA, "two")  # type: ignore[arg-type]


def test_html_shows_parameters_and_points(handle: Any) -> None:
    """Before and after a fit."""
    miner = Scorecard(epsilon=1, attributes=EXPLAINING)
    assert "not fitted" in miner._repr_html_()
    assert "<details open>" in miner.fit(handle, "three")._repr_html_()
    assert repr(miner.card_) == f"Scorecard for `three` (r, s, t): {len(miner.card_.columns)} attributes"


def test_a_target_of_very_many_cells_is_learned() -> None:
    """Residuals are clamped to what the layer takes, so that no fit ends after its first question is paid for."""
    schema = SCHEMA.model_copy(update={"columns": {**SCHEMA.columns, "mean": Numeric(lower=0, upper=10**6, step=1)}})
    rows = (
        table()
        .drop_columns(["mean"])
        .append_column("mean", pa.array(np.where(table()["a"].to_numpy() == "x", 10, 9 * 10**5)))
    )
    with simulated(schema, data=rows, epsilon=20) as h:
        card = ScorecardRegressor(epsilon=20, attributes=["a", "b"], steps=3).fit(h, "mean")
    assert card.score(rows.to_pandas()) > 0.1


@pytest.mark.parametrize("target", ["two", "three", "mean"])
def test_a_fit_that_is_too_much_work_is_refused_before_it_costs(target: str) -> None:
    """A limit that the first questions keep and a later step would pass ends the fit before anything is paid."""
    miner = (ScorecardRegressor if target == "mean" else Scorecard)(epsilon=1)
    lowest = None
    for limit in range(1, 40):
        with simulated(SCHEMA, data=table(), epsilon=1) as handle:
            handle._session._curator.max_work = limit  # type: ignore[attr-defined]  # as a policy would say
            try:
                miner.fit(handle, target)
            except QueryError as refused:
                assert "units of work" in str(refused)
                assert refused.charged == 0
                assert handle.budget.spent == 0
            else:
                lowest = limit
                break
    assert lowest is not None
    assert lowest > 1


@pytest.mark.parametrize("target", ["two", "three", "mean"])
def test_no_fit_is_refused_for_what_it_would_not_ask(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of one step looks at no attribute before: whoever is refused beforehand would have been refused later, having paid."""
    kind = ScorecardRegressor if target == "mean" else Scorecard
    miner = kind(epsilon=1, steps=1, attributes=["a", "b"], cuts={"b": 3})
    schema, rows = SCHEMA.model_copy(update={"max_rows": 200_000}), table(100)

    def is_enough(limit: int) -> bool:
        with simulated(schema, data=rows, epsilon=1) as handle:
            handle._session._curator.max_work = limit  # type: ignore[attr-defined]  # as a policy would say
            try:
                miner.fit(handle, target)
            except QueryError as refused:
                assert "units of work" in str(refused)
                return False
            return True

    lowest = bisect.bisect_left(range(200), True, key=is_enough)
    monkeypatch.setattr(kind._plan_kind, "require", lambda plan, _: plan)
    assert is_enough(lowest)
    assert not is_enough(lowest - 1)


def test_no_steps_leave_naive_bayes() -> None:
    """With ``steps=0`` a card of two classes is one step over all attributes: it learns, and answers as the tables say."""
    with simulated(SCHEMA, data=table(), epsilon=20) as handle:
        plan = Scorecard(epsilon=10, steps=0, attributes=EXPLAINING).plan(handle.schema, "two")
        assert [line.verb for line in plan.lines] == ["noisy_count", "noisy_count"]
        card = Scorecard(epsilon=10, steps=0, attributes=EXPLAINING).fit(handle, "two")
    assert card.cost_ == 10
    assert card.score(FRESH[FRESH["two"].notna()]) > 0.74


@pytest.mark.parametrize(("miner", "target"), [(Scorecard, "two"), (Scorecard, "three"), (ScorecardRegressor, "mean")])
def test_an_update_is_told_of_the_noise_that_there_is(
    miner: Any, target: str, handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points are shrunk by the scale of the noise in the sums: that of the answer, not of twice as much or half."""
    asked, told = [], []
    noisy_sum = Verbs.noisy_sum
    kinds = [kind for kind in below(Objective) if "update" in vars(kind)]
    updates = {kind: kind.update for kind in kinds}

    @functools.wraps(noisy_sum)
    def summed(self: Any, *args: Any, **words: Any) -> Any:
        answer = noisy_sum(self, *args, **words)
        asked.append(answer.scale)
        return answer

    def updated(self: Any, card: Any, gradients: Any, curvatures: Any, scale: float) -> Any:
        told.append(scale)
        own = next(updates[kind] for kind in type(self).__mro__ if kind in updates)
        return own(self, card, gradients, curvatures, scale)

    monkeypatch.setattr(Verbs, "noisy_sum", summed)
    for kind in kinds:
        monkeypatch.setattr(kind, "update", updated)
    miner(epsilon=2, steps=3).fit(handle, target)
    assert len(told) == len(asked) == 3
    assert told == pytest.approx(asked, rel=1e-3)


def below(kind: type[Any]) -> list[type[Any]]:
    """All classes below one."""
    return [kind for child in kind.__subclasses__() for kind in (child, *below(child))]


@pytest.mark.parametrize(("upper", "step"), [(100, None), (10_000, None), (100_000, 1)])
def test_wide_bounds_of_a_target_cost_little(upper: int, step: int | None) -> None:
    """A target of 40 deviating by 9 is found in any range before scores start, and a plan says so."""
    random = np.random.default_rng(4)
    z = random.normal(0, 1, 5000)
    frame = pd.DataFrame({"z": z, "y": 40 + 8 * z + random.normal(0, 4, 5000)})
    columns = {"z": pinq.Numeric(lower=-5, upper=5), "y": pinq.Numeric(lower=0, upper=upper, step=step)}
    schema = pinq.Schema(columns=columns, max_rows=5000)
    miner = ScorecardRegressor(epsilon=2)
    assert miner.fit(pinq.simulate(schema, data=frame, epsilon=2), "y").score(frame) > 0.6
    lines = [line.query for line in miner.plan(schema, "y").lines]
    assert lines[:3] == ["rows by `y`", *["rows by `y`, in finer cells"] * 2]


def test_a_target_that_is_nowhere_found_is_told() -> None:
    """Where noise hides all rows, and where cells are as wide as the values spread."""
    frame = pd.DataFrame({"z": np.linspace(-5, 5, 3000), "y": np.tile([37.0, 40.0, 43.0], 1000)})
    z = pinq.Numeric(lower=-5, upper=5)
    for upper, epsilon, told in [(1000, 0.01, "too small to find where `y` lies"), (1e5, 4, "read in grid cells")]:
        schema = pinq.Schema(columns={"z": z, "y": pinq.Numeric(lower=0, upper=upper)}, max_rows=3000)
        with pytest.warns(FitWarning, match=told):
            ScorecardRegressor(epsilon=epsilon, steps=1).fit(pinq.simulate(schema, data=frame, epsilon=9), "y")


@pytest.mark.parametrize("classes", [("no", "yes"), ("no", "yes", "mid")])
def test_a_class_that_noise_hides_is_told(classes: tuple[str, ...]) -> None:
    """Of 20,000 rows 5 of a class are too few at epsilon .5, and 2,000 are not; nobody else is named."""
    random = np.random.default_rng(6)
    a, b = random.uniform(0, 9, 20_000), random.choice(["u", "v"], 20_000)
    y_column = pinq.Categorical(values=classes)
    columns: dict[str, Any] = {
        "a": pinq.Numeric(lower=0, upper=9),
        "b": pinq.Categorical(values=("u", "v")),
        "y": y_column,
    }
    schema = pinq.Schema(columns=columns, max_rows=20_000)
    for rare in (5, 2000):
        y = np.where(random.random(20_000) < 0.4, "mid" if len(classes) > 2 else "no", "no").astype(object)
        y[np.argsort(-a)[:rare]] = "yes"
        handle = pinq.simulate(schema, data=pd.DataFrame({"a": a, "b": b, "y": y}), epsilon=3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(6):  # noise may hide that there are few, seldom
                Scorecard(epsilon=0.5).fit(handle, "y")
        told = [str(each.message) for each in caught if each.category is FitWarning]
        assert bool(told) == (rare == 5)
        assert all("`y` has too few rows of 'yes' (about" in text and "'no'" not in text for text in told)
