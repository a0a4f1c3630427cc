# SPDX-License-Identifier: Apache-2.0
"""A synthesizer pays what it planned, keeps pairs that belong together, and says what it measured."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import Synthesizer
from miners.synthesizer.fitting import Fitting
from miners.synthesizer.purchase import CHECKED, EACH, OFFERED, Purchase
from miners.synthesizer.synthetic_table import SyntheticTable
from pinq import Cuts, Misfit, QueryError, Values
from pinq.public.epsilon import Epsilon
from tests.support.requests.handles import simulated

ROWS = 4000


def schema() -> pinq.Schema:
    return pinq.Schema(
        columns={
            "sex": pinq.Categorical(values=("F", "M"), nullable=True),
            "age": pinq.Numeric(lower=0, upper=99, integer=True, cuts=[20, 40, 60, 80]),
            "height": pinq.Numeric(lower=1, upper=2.2, step=0.01),
            "smokes": pinq.Categorical(values=(True, False)),
            "since": {"type": "date", "lower": "2020-01-01", "upper": "2024-12-31"},
        },
        max_rows=8000,
    )


def rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    age = random.integers(18, 90, ROWS)
    sex = random.choice(np.array(["F", "M", None], dtype=object), ROWS, p=[0.475, 0.475, 0.05])
    smokes = random.random(ROWS) < np.where(age < 40, 0.6, 0.1)
    height = np.where(sex == "F", 1.65, 1.78) + random.normal(0, 0.05, ROWS)
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 1800, ROWS), unit="D")
    return pd.DataFrame({"sex": sex, "age": age, "height": height, "smokes": smokes, "since": since.date})


@pytest.fixture(scope="module")
def handle() -> pinq.PrivateQueryable:
    return pinq.simulate(schema(), data=rows(), epsilon=100)


@pytest.fixture(scope="module")
def fitted(handle: pinq.PrivateQueryable) -> Synthesizer:
    return Synthesizer(epsilon=4, random_state=1).fit(handle)


def test_the_bill_is_the_plan(handle: pinq.PrivateQueryable) -> None:
    """To the nano-epsilon, also where shares do not divide evenly."""
    before = handle.budget.spent
    miner = Synthesizer(epsilon=Fraction("0.700000007"), columns=["sex", "age", "smokes"], random_state=0)
    assert miner.plan(handle.schema).total == Fraction("0.700000007")
    assert miner.fit(handle).cost_ == handle.budget.spent - before == Fraction("0.700000007")


def test_pairs_that_belong_together_stay_together(fitted: Synthesizer) -> None:
    """The young smoke, and women are smaller, in synthetic rows as in private ones."""
    made, private = fitted.sample(random_state=2), rows()
    for frame in (made, private):
        assert frame[frame.age < 40].smokes.mean() - frame[frame.age >= 40].smokes.mean() == pytest.approx(0.5, abs=0.1)
    assert len(made) == pytest.approx(ROWS, abs=100)
    tall = made[made.sex == "M"].height.mean() - made[made.sex == "F"].height.mean()
    assert tall == pytest.approx(0.13, abs=0.05)


def test_rows_have_the_schemas_own_values(fitted: Synthesizer) -> None:
    """So the same program runs on them: types, bounds, missing values, the order of columns."""
    made = fitted.sample(500, random_state=3)
    assert list(made.columns) == list(schema().columns)
    assert set(made.sex.dropna()) == {"F", "M"}
    assert made.sex.isna().any()
    assert made.sex.dtype == rows().sex.infer_objects().dtype
    assert made.age.dtype.kind == "i"
    assert made.age.between(0, 99).all()
    assert made.height.between(1, 2.2).all()
    assert set(made.smokes) == {True, False}
    assert pinq.simulate(schema(), data=made, epsilon=10).noisy_count(epsilon=10) == pytest.approx(500, abs=20)
    pd.testing.assert_frame_equal(made, fitted.sample(500, random_state=3))


def test_a_measured_table_has_the_interval_of_its_noise(fitted: Synthesizer) -> None:
    """And an inferred one says how far such tables are off."""
    measured = fitted.model_.table("smokes", "age")
    exact: Any = rows().groupby(["smokes", pd.cut(rows().age, [-1, 19, 39, 59, 79, 99])], observed=False).size()
    assert "measured" in measured.notes[0]
    inside = [
        low <= exact[label].iloc[number] <= high
        for label in (True, False)
        for number, (low, high) in enumerate(measured.frame[measured.frame.smokes == label][["low", "high"]].to_numpy())
    ]
    assert np.mean(inside) >= 0.8
    assert measured.frame["value"].between(measured.frame["low"], measured.frame["high"]).all()
    three = fitted.model_.table("sex", "age", "smokes")
    assert three.frame["value"].sum() == pytest.approx(fitted.model_.model.rows)
    assert "inferred" in three.notes[0]


def test_estimates_of_filters(fitted: Synthesizer) -> None:
    """Rows that meet conditions on several columns, missing values and open ends among them."""
    private = rows()
    assert fitted.model_.estimate(age=(None, 40), smokes=True) == pytest.approx(
        ((private.age < 40) & private.smokes).sum(), abs=150
    )
    assert fitted.model_.estimate(sex=None) == pytest.approx(private.sex.isna().sum(), abs=80)
    assert fitted.model_.estimate(sex=["F", "M", None]) == pytest.approx(fitted.model_.model.rows)
    with pytest.raises(QueryError, match="declared values"):
        fitted.model_.estimate(sex="X")
    with pytest.raises(QueryError, match="columns"):
        fitted.model_.table("weight")


def test_what_is_stored_is_the_same_model(fitted: Synthesizer) -> None:
    """Rows, tables and bill."""
    again = Synthesizer.from_json(fitted.to_json())
    assert again.cost_ == fitted.cost_
    pd.testing.assert_frame_equal(again.sample(50, random_state=1), fitted.sample(50, random_state=1))
    assert again.model_.export_text() == fitted.model_.export_text()
    with pytest.raises(QueryError, match="stored synthesizer"):
        SyntheticTable.from_dict({"format": "pinq-synthetic", "version": 1})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"columns": ["weight"]}, "weight"),
        ({"random_state": -1}, "random_state"),
        ({"epsilon": 1e-9}, "too little"),
    ],
)
def test_wrong_parameters_cost_nothing(handle: pinq.PrivateQueryable, parameters: dict[str, Any], message: str) -> None:
    """Each is named."""
    before = handle.budget.spent
    with pytest.raises(QueryError, match=message):
        Synthesizer(**{"epsilon": 1, **parameters}).fit(handle)
    with pytest.raises(QueryError, match="did you mean 'height'"):
        Synthesizer(epsilon=1).fit(handle, "weight")
    assert handle.budget.spent == before


def test_misfit_chooses_the_table_that_the_model_misses(handle: pinq.PrivateQueryable) -> None:
    """A wrong expectation is found; the allowance and weights count; other candidates are refused."""
    sex, smokes = Values("sex"), Values("smokes")
    right = (tuple(16 * int(n) for n in np.rint(handle.partition(sex).noisy_count(epsilon=5))), (0, 16 * ROWS))
    assert handle.exp_mech([sex, smokes], score=Misfit((sex, smokes), right), epsilon=2) == smokes
    light = Misfit((sex, smokes), ((0, 0, 0), right[1]), weights=(100, 1))
    assert handle.exp_mech([sex, smokes], score=light, epsilon=2) == sex
    with pytest.raises(QueryError, match="no expected rows"):
        handle.exp_mech([Cuts("age", (50,))], score=Misfit((sex,), right[:1]), epsilon=1)
    with pytest.raises(QueryError, match="3 parts"):
        handle.exp_mech([sex], score=Misfit((sex,), ((1, 2),)), epsilon=1)


def test_the_stated_error_is_never_below_what_noise_can_hide() -> None:
    """On independent columns the measured misfit is often below 0; a stated error of 0 would be a promise."""
    flags = {name: pinq.Categorical(values=("n", "y")) for name in "abcdef"}
    with pinq.simulate(pinq.Schema(columns=flags, max_rows=1000), rows=900, epsilon=30) as handle:
        for run in range(3):
            model = Synthesizer(epsilon=10, random_state=run).fit(handle).model_
            noises = [
                (4 / (2 * model.rows) ** 2) ** 2 * 5 * 4 * table.deviation**4 for table in model.bought[-CHECKED:]
            ]
            assert model.error is not None
            assert model.error >= 0.99 * min(1.0, (1.28 * sum(noises) ** 0.5 / CHECKED) ** 0.5) > 0


def test_of_very_many_pairs_a_round_offers_some() -> None:
    """So a request stays small however many columns there are; the pairs differ from round to round."""
    columns = {f"c{number}": pinq.Categorical(values=tuple(map(str, range(100)))) for number in range(8)}
    specs = tuple(Values(name) for name in columns)
    purchase = Purchase(pinq.Schema(columns=columns, max_rows=1000), specs, Epsilon.of(1), None)
    without: Any = None  # what is drawn follows from public coins alone
    fitting = Fitting(purchase, without, np.random.default_rng(0))
    drawn = [fitting._drawn(purchase.pairs) for _ in range(100)]
    assert {len(pairs) for pairs in drawn} == {OFFERED // (EACH + 100**2)}
    assert set().union(*drawn) == set(purchase.pairs)
    assert fitting._drawn(purchase.pairs[:3]) == purchase.pairs[:3]


def test_with_few_rounds_uncovered_columns_come_first() -> None:
    """With many rounds the misfit alone decides."""
    columns = {f"c{number}": pinq.Categorical(values=("n", "y")) for number in range(6)}
    few, many = (
        Purchase(
            pinq.Schema(columns=columns, max_rows=1000),
            tuple(Values(name) for name in columns),
            Epsilon.of(epsilon),
            None,
        )
        for epsilon in (0.1, 100)
    )
    assert few.turns == 4  # enough that pairs can hold each column
    assert few.uncovered([(0, 3), (3, 4)]) == {1, 2, 5}
    assert many.uncovered([(0, 3), (3, 4)]) == set()


def test_a_choice_that_is_too_much_work_is_refused_before_the_first_charge(handle: pinq.PrivateQueryable) -> None:
    """Whatever the policy allows for one request, a fit is refused as a whole or not at all."""
    outcomes, spent = set(), handle.budget.spent
    for limit in (1, 2, 3, 5, 8, 12, 20, 600):
        handle._session._curator.max_work = limit  # type: ignore[attr-defined]  # as a policy would say
        try:
            Synthesizer(epsilon=1, random_state=0).fit(handle)
        except pinq.QueryError as refused:
            outcomes.add("refused")
            assert "units of work" in str(refused)
            assert refused.charged == 0
        else:
            outcomes.add("fitted")
            spent += 1
        assert handle.budget.spent == spent
    assert outcomes == {"refused", "fitted"}


def test_one_column_is_counted_and_nothing_else(handle: pinq.PrivateQueryable) -> None:
    """There is no pair to choose."""
    alone = Synthesizer(epsilon=1, columns=["smokes"]).fit(handle)
    assert alone.cost_ == 1
    assert len(alone.model_.bought) == 1
    assert alone.sample(10).columns.tolist() == ["smokes"]


def test_columns_may_be_called_like_numbers_of_a_table() -> None:
    """The key gets an underscore, as in every other table."""
    columns = {name: pinq.Categorical(values=("p", "q")) for name in ("value", "low")}
    made = Synthesizer(epsilon=10).fit(simulated(pinq.Schema(columns=columns, max_rows=500), rows=500, epsilon=10))
    table = made.model_.table("low", "value")
    assert table.keys == ["low_", "value_"]
    assert table.wide().shape == (2, 2)


@pytest.mark.parametrize("columns", [["smokes"], ["sex", "smokes"]])
def test_noise_that_rounds_to_none_divides_nothing(columns: list[str]) -> None:
    """From some epsilon on the deviation of the noise is 0 in floating point."""
    miner = Synthesizer(epsilon=10_000, columns=columns, random_state=0)
    model = miner.fit(pinq.simulate(schema(), data=rows(), epsilon=10_000)).model_
    assert miner.cost_ == 10_000
    assert model.rows == ROWS
    assert model.estimate(smokes=True) == pytest.approx(rows().smokes.sum(), abs=1)


def test_columns_of_very_many_values_leave_room_for_pairs_of_others() -> None:
    """What is paid for first must not take the room of the first round; and a fit ends with its epsilon spent."""
    wide = pinq.Categorical(values=tuple(f"v{number}" for number in range(60_000)))
    flag = pinq.Categorical(values=("n", "y"))
    columns = {"a": wide, "b": wide, "c": flag, "d": flag}
    with pinq.simulate(pinq.Schema(columns=columns, max_rows=1000), rows=100, epsilon=1) as handle:
        fitted = Synthesizer(epsilon=1, random_state=0).fit(handle)
    assert fitted.cost_ == 1
    assert (2, 3) in [bought.columns for bought in fitted.model_.bought]


def asked_before(handle: pinq.PrivateQueryable, epsilon: float) -> None:
    """All tables of a model of three columns, in any order of columns, and two that are none of its."""
    sex, smokes, age = Values("sex"), Values("smokes"), Cuts("age", (20, 40, 60, 80))
    tables: list[tuple[Any, ...]] = [(sex,), (smokes,), (age,), (sex, smokes), (smokes, age), (sex, age)]
    for specs in tables:
        handle.partition(*specs).noisy_count(epsilon=epsilon)
    handle.partition(Cuts("age", (30,)), smokes).noisy_count(epsilon=epsilon)  # other cells than the model's
    handle.partition(smokes)[True].partition(sex).noisy_count(epsilon=epsilon)  # of some rows alone


def test_counts_in_the_log_are_not_bought_again() -> None:
    """They make a model for little, or with nothing left to spend; and a ledger can prove it."""
    three = Synthesizer(epsilon=1, columns=["sex", "age", "smokes"], random_state=0)
    with pinq.simulate(schema(), data=rows(), epsilon=8) as handle:
        asked_before(handle, 1)
        assert three.fit(handle, history=True).cost_ == 0
        assert handle.budget.spent == 8
        known = [bought.columns for bought in three.model_.bought]
        assert sorted(known) == [(0,), (0, 1), (0, 2), (1,), (1, 2), (2,)]
        private = rows()
        young = ((private.age < 40) & private.smokes).sum()
        assert three.model_.estimate(age=(None, 40), smokes=True) == pytest.approx(young, abs=30)
        again = Synthesizer.from_json(three.to_json()).fitted_again(handle)
        assert again.cost_ == 0
        assert again.model_.to_dict() == three.model_.to_dict()
        assert len(three.certificate().requests) == 6


def test_a_log_of_little_saves_little() -> None:
    """A table stands for a round at its own price; one of a column that is noisier than the fit's is bought too."""
    miner = Synthesizer(epsilon=1, columns=["sex", "age", "smokes"], random_state=0)
    with pinq.simulate(schema(), data=rows(), epsilon=2) as handle:
        handle.partition(Values("sex")).noisy_count(epsilon=0.01)
        handle.partition(Values("smokes")).noisy_count(epsilon=0.3)
        handle.partition(Values("smokes"), Values("sex")).noisy_count(epsilon=0.04)
        miner.fit(handle, history=True)
        assert miner.cost_ == 1 - Fraction("0.02") - Fraction("0.04")
        with pytest.raises(QueryError, match="one of them"):
            miner.fit(handle, history=True, reuse=True)
    with pinq.simulate(schema(), data=rows(), epsilon=2) as other:  # whose ledger has none of them
        assert miner.fitted_again(other).cost_ == 1


@pytest.mark.parametrize("epsilon", [1, 10])
def test_noise_is_taken_off_the_stated_error(epsilon: int) -> None:
    """Tables that are off by the deviation of their noise, in each cell, show no misfit: the bound is of noise alone."""
    flags = {name: pinq.Categorical(values=("n", "y")) for name in "abcdef"}
    schema = pinq.Schema(columns=flags, max_rows=1000)
    with pinq.simulate(schema, rows=900, epsilon=30) as handle:
        table = Synthesizer(epsilon=epsilon, random_state=0).fit(handle).model_
    purchase = Purchase(schema, tuple(map(Values, flags)), Epsilon.of(epsilon), None)
    off, model = purchase.deviation(purchase.checks), table.model

    class Off:
        """Answers that are off by the deviation of their noise."""

        def partition(self, *specs: Values) -> Any:
            pair = tuple(table.columns.index(spec.column) for spec in specs)
            counts = model.marginal(pair) * model.rows + off * np.array([[1, -1], [-1, 1]])
            return SimpleNamespace(noisy_count=lambda epsilon: counts)

    answers: Any = Off()
    error = Fitting(purchase, answers, np.random.default_rng(0))._checked_error(table, purchase.pairs)
    noises = CHECKED * (4 / (2 * model.rows) ** 2) ** 2 * 5 * 4 * off**4
    assert error == pytest.approx(min(1.0, (1.28 * noises**0.5 / CHECKED) ** 0.5))
    assert error is not None
    assert error < 1


@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_independent_columns_stay_independent(epsilon: float) -> None:
    """Noise in measured tables makes no relation: pairs are .06 from independence at the most, and rows' own are .04."""
    draw, size = np.random.default_rng(1), 3_000
    frame = pd.DataFrame(
        {
            "ward": draw.choice(list("ABCD"), size),
            "kind": draw.choice(list("vwxyz"), size),
            "weight": draw.normal(78, 14, size).clip(30, 130),
            "height": draw.normal(170, 9, size).round().clip(140, 210),
            "cost": draw.gamma(2, 1800, size).clip(0, 50_000),
            "born": draw.integers(0, 30_000, size),
        }
    )
    schema = pinq.Schema(
        columns={
            "ward": pinq.Categorical(values=tuple("ABCD")),
            "kind": pinq.Categorical(values=tuple("vwxyz")),
            "weight": pinq.Numeric(lower=30, upper=130),
            "height": pinq.Numeric(lower=140, upper=210, integer=True),
            "cost": pinq.Numeric(lower=0, upper=50_000),
            "born": pinq.Numeric(lower=0, upper=30_000, integer=True),
        },
        max_rows=5_000,
    )
    with simulated(schema, data=frame, epsilon=epsilon) as handle:
        model = Synthesizer(epsilon=epsilon, random_state=0).fit(handle).model_
    distances = model.dependence().to_numpy()[np.triu_indices(6, 1)]
    assert distances.max() < 0.06
    assert distances.mean() < 0.03
