# SPDX-License-Identifier: Apache-2.0
"""Synthetic numbers lie where the rows' numbers do: their means and deviations, values that repeat, and no far ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import Synthesizer
from miners.synthesizer.fine_numbers import FineNumbers, pieces
from miners.synthesizer.purchase import FINES
from pinq import QueryError
from pinq.language.specs import bind
from pinq.public.schema import Numeric

ROWS = 8_000
SCHEMA = pinq.Schema(
    columns={
        "age": pinq.Numeric(lower=0, upper=100, integer=True),
        "income": pinq.Numeric(lower=0, upper=5_000_000),
        "term": pinq.Numeric(lower=0, upper=120, integer=True),
        "late": pinq.Numeric(lower=0, upper=10, integer=True),
        "kind": pinq.Categorical(values=("a", "b", "c")),
    },
    max_rows=ROWS,
)


def rows() -> pd.DataFrame:
    draw = np.random.default_rng(5)
    kind = draw.choice(list("abc"), ROWS, p=[0.6, 0.3, 0.1])
    return pd.DataFrame(
        {
            "age": draw.integers(18, 80, ROWS),
            "income": np.exp(draw.normal(11, 0.6, ROWS) + 0.5 * (kind == "c")).clip(0, 5_000_000),
            "term": np.where(draw.random(ROWS) < np.where(kind == "a", 0.3, 0.8), 60, 36),
            "late": (draw.random(ROWS) < 0.002).astype(int),
            "kind": kind,
        }
    )


@pytest.mark.parametrize("epsilon", [1, 4])
def test_numbers_are_where_the_rows_are(epsilon: float) -> None:
    """Under bounds thirty times too wide, with two values of 121, and with a column that is nearly constant."""
    private = rows()
    with pinq.simulate(SCHEMA, data=private, epsilon=epsilon) as handle:
        fitted = Synthesizer(epsilon=epsilon, random_state=0).fit(handle)
        assert fitted.cost_ == handle.budget.spent == epsilon
    made = fitted.sample(random_state=1)
    for name in ("age", "income", "term"):
        assert abs(made[name].mean() - private[name].mean()) < 0.12 * private[name].std(), name
        assert made[name].std() == pytest.approx(private[name].std(), rel=0.2), name
    assert (made["age"] < 17).mean() < 0.01
    assert made["term"].isin((36, 60)).mean() > 0.9
    assert made["late"].mean() < 0.02
    assert fitted.plan(SCHEMA).total == epsilon
    again = Synthesizer.from_json(fitted.to_json())
    pd.testing.assert_frame_equal(again.sample(50, random_state=1), fitted.sample(50, random_state=1))
    stored = json.loads(fitted.to_json())
    stored["model"]["fine"]["kind"] = stored["model"]["fine"]["age"]
    with pytest.raises(QueryError, match="fit no column"):
        Synthesizer.from_json(json.dumps(stored))


def test_fine_numbers_have_a_share_of_their_own() -> None:
    """Ten percent, the same for each numeric column that has more numbers than cells; the plan says so."""
    lines = {line.query: line for line in Synthesizer(epsilon=1).plan(SCHEMA).lines}
    fine = next(line for asked, line in lines.items() if "finer cells" in asked)
    assert float(fine.epsilon) == pytest.approx(FINES / 100, abs=1e-6)


def test_noise_leaves_pieces_without_rows_empty() -> None:
    """Of 16 pieces with all rows in one, and noise of a fiftieth of them; without rows or a difference, pieces are even."""
    draw = np.random.default_rng(0)
    counts = draw.laplace(0, 14, 16)
    counts[3] += 1_000
    fine = FineNumbers(np.arange(16), counts, 20.0)
    found = fine.drawn(np.array([0]), np.zeros(5_000, dtype=np.int64), 16, draw, (0, 16))
    assert (found == 3).mean() > 0.9
    even = FineNumbers(np.arange(16), draw.laplace(0, 14, 16), 20.0)
    assert np.ptp(np.bincount(even.drawn(np.array([0]), np.zeros(16_000, dtype=np.int64), 16, draw, (0, 16)))) < 800
    for hostile in (np.full(16, -50.0), np.zeros(16), np.append(np.zeros(15), -900.0)):  # noise larger than all rows
        shares = FineNumbers(np.arange(16), hostile, 20.0)._shares(np.arange(16))
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1)


def test_pieces_follow_the_models_rows() -> None:
    """Each cell begins a piece, full cells have more of them, and whole numbers have one each, or round ones."""
    column = Numeric(lower=0, upper=1_200, integer=True)
    firsts = np.arange(0, 1_300, 100)
    found = pieces(firsts, np.array([0.9, *[0.1 / 11] * 11]), column)
    assert set(firsts[:-1]) <= set(found.tolist())
    assert np.count_nonzero(found < 100) == 100
    assert found[(found >= 100) & (found < 200)].tolist() == [100, 101, 120, 121, 140, 141, 160, 161, 180, 181]
    years = Numeric(lower=1, upper=16, integer=True)
    assert pieces(np.array([0, 8, 16]), np.array([0.5, 0.5]), years).tolist() == [*range(16)]


@pytest.mark.parametrize("cuts", [(), (30.0, 60.0)])
def test_the_largest_deviation_counts_rows_that_noise_hides(cuts: tuple[float, ...]) -> None:
    """Three rows at a far bound carry half of the variance: no fit sees them, and each bound holds the deviation."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"pay": draw.normal(50, 10, 4_000).clip(0, 1_000), "few": draw.choice([1, 2, 3], 4_000)})
    frame["kind"] = draw.choice(["u", "v"], 4_000)
    frame.loc[:2, "pay"] = 1_000.0
    frame.loc[:2, "few"] = 20
    columns: dict[str, Any] = {
        "pay": pinq.Numeric(lower=0, upper=1_000, cuts=cuts),
        "few": pinq.Numeric(lower=1, upper=20, integer=True),
        "kind": pinq.Categorical(values=("u", "v")),
    }
    schema = pinq.Schema(columns=columns, max_rows=4_000)
    for seed in range(5):
        synthesizer = Synthesizer(epsilon=1, random_state=seed)
        with pinq.simulate(schema, data=frame, epsilon=1) as handle:
            numbers = synthesizer.fit(handle).model_.numbers.set_index("column")
        assert (numbers["most"] > frame[["pay", "few"]].std()).all()
        again = Synthesizer.from_json(synthesizer.to_json()).model_.numbers.set_index("column")
        pd.testing.assert_frame_equal(again, numbers)
    assert any("noise can hide" in note for note in synthesizer.plan(schema).notes)


def test_errors_are_judged_on_tenths_of_numbers() -> None:
    """A column's parts have about equal rows, missing ones apart, and single values that are frequent are one."""
    shares = np.array([0.05, 0.5, 0.07, 0.1, 0.1, 0.1, 0.08])
    fine = FineNumbers(np.arange(0, 70, 10), shares, 1.0)
    assert fine.tenths(shares, 10).tolist() == [0, 20, 30, 40, 50, 60]
    assert fine.tenths(np.array([0, 0, 0, 0, 0, 0, 1.0]), 10).tolist() == [0]
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.exp(draw.normal(size=4000)) * 100, "b": draw.choice(list("uv"), 4000)})
    frame["c"] = frame["a"].where(draw.random(4000) < 0.8)
    number = pinq.Numeric(lower=0, upper=5_000)
    columns: dict[str, Any] = {
        "a": number,
        "b": pinq.Categorical(values=("u", "v")),
        "c": pinq.Numeric(lower=0, upper=5_000, nullable=True),
    }
    schema = pinq.Schema(columns=columns, max_rows=4000)
    with pinq.simulate(schema, data=frame, epsilon=8) as handle:
        table = Synthesizer(epsilon=8, random_state=0).fit(handle).model_
    for place, wanted in enumerate((10, 2, 11)):
        spec, parts = table.tenths(place)
        assert parts.shape == (table.model.sizes[place], wanted) == (parts.shape[0], bind(spec, schema).size)
        assert np.allclose(parts[table.model.marginal((place,)) > 0].sum(axis=1), 1)
        found = table.model.marginal((place,)) @ parts
        if place != 1:
            assert 0.04 < found[:10].min() <= found[:10].max() < 0.16
    numbers = table.numbers.set_index("column")
    made = table.sample(40_000, random_state=1)
    for name in ("a", "c"):
        mean, deviation, most, noise = numbers.loc[name]
        assert deviation < frame[name].std() * 1.1 < most * 1.1
        assert mean == pytest.approx(made[name].mean(), abs=0.03 * deviation)
        assert deviation == pytest.approx(made[name].std(), rel=0.05)
        assert abs(mean - frame[name].mean()) < 6 * noise * deviation
    assert "deviation" in table.export_text()
    assert "deviation" in table._repr_html_()
