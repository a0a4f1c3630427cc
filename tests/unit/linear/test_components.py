# SPDX-License-Identifier: Apache-2.0
"""``PCA`` and ``correlation``: directions and numbers of the rows, without what noise adds."""

from __future__ import annotations

import json
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd
import pytest

from miners import PCA, FitWarning, LinearDiscriminant, LinearRegression
from miners.linear.components import debiased
from miners.tables import correlation
from pinq.errors import BudgetExceeded, QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

ROWS, WIDTH = 20_000, 8
COLUMNS: dict[str, Any] = {f"x{number}": Numeric(lower=-12, upper=14) for number in range(WIDTH)}
SCHEMA = Schema(columns={**COLUMNS, "k": Categorical(values=("u", "v"))}, max_rows=ROWS)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Two directions, of variance about 5 and 2 of 8, and a column that the others do not know."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(ROWS, 2)) * [2, 1.2] @ draw.normal(size=(2, WIDTH)) + draw.normal(size=(ROWS, WIDTH))
    points[:, -1] = draw.normal(size=ROWS)
    return pd.DataFrame(points, columns=list(COLUMNS)).assign(k=draw.choice(["u", "v"], ROWS))


@pytest.mark.parametrize(("kind", "target"), [(PCA, None), (LinearDiscriminant, "c"), (LinearRegression, "y")])
def test_columns_that_fill_hardly_any_of_their_bounds_are_told(kind: Any, target: str | None) -> None:
    """Noise stands in the place of their variance, and intervals of a hundredth excluded a coefficient of 2."""
    draw = np.random.default_rng(0)
    # That noise lifts the variances of all eight above its own deviation has probability .12^8.
    names = [f"x{number}" for number in range(8)]
    frame = pd.DataFrame({name: draw.normal(50, 10, ROWS) for name in names})
    frame["y"], frame["c"] = 2 * frame["x0"], np.where(frame["x0"] > 50, "p", "q")
    for upper in (100, 10**6):
        columns: dict[str, Any] = {name: Numeric(lower=0, upper=upper) for name in names}
        columns |= {"y": Numeric(lower=0, upper=200), "c": Categorical(values=("p", "q"))}
        handle = simulated(Schema(columns=columns, max_rows=ROWS), data=frame, epsilon=4)
        with catch_warnings(record=True) as told:
            simplefilter("always")
            kind(epsilon=4, attributes=names).fit(handle, target)
        hidden = [str(one.message) for one in told if "noise hides how far" in str(one.message)]
        assert len(hidden) == (upper > 100)


@pytest.mark.parametrize("miner", [PCA, LinearDiscriminant])
def test_what_noise_hides_of_a_table_with_fewer_rows_than_declared_is_said(
    miner: type[PCA | LinearDiscriminant],
) -> None:
    """Of no rows at all; the plan, which knows the declared number only, says nothing."""
    schema = SCHEMA.model_copy(update={"max_rows": 10**6})
    with simulated(schema, rows=0, epsilon=1) as handle, pytest.warns(FitWarning, match=r"noise .* rows?"):
        miner(epsilon=0.1).fit(handle, *(() if miner is PCA else ("k",)))
    assert not (miner(epsilon=0.1).plan(schema) if miner is PCA else miner(epsilon=0.1).plan(schema, "k")).warnings


@pytest.mark.parametrize("scaled", [True, False])
def test_components_are_those_of_the_rows(rows: pd.DataFrame, scaled: bool) -> None:
    """Within five degrees, variances within a tenth, in deviations and in units of the columns; transformed rows are along them."""
    with simulated(SCHEMA, data=rows, epsilon=16) as handle:
        miner = PCA(epsilon=16, n_components=2, scaled=scaled).fit(handle)
    points = rows[list(COLUMNS)].to_numpy()
    points = (points - points.mean(axis=0)) / (points.std(axis=0) if scaled else 1)
    _, sizes, exact = np.linalg.svd(points, full_matrices=False)
    cosines = np.linalg.svd(exact[:2] @ miner.components_.T)[1]
    assert cosines.min() > np.cos(np.radians(5))
    assert miner.explained_variance_ratio_ == pytest.approx((sizes**2 / (sizes**2).sum())[:2], rel=0.1)
    moved = miner.transform(rows)
    assert moved.var(axis=0) == pytest.approx((points @ miner.components_.T).var(axis=0), rel=0.1)
    assert miner.mean_ == pytest.approx(rows[list(COLUMNS)].mean().to_numpy(), abs=0.3)
    assert miner.get_feature_names_out().tolist() == ["pca0", "pca1"]
    assert "pca1" in miner.export_text()
    assert "pca1" in miner._repr_html_()
    assert len(miner.plot().figure.axes) == 3  # shares, loadings, and the scale of these  # shares, and the map
    assert len(miner.to_frame()) == 2


def test_what_noise_adds_to_a_variance_is_taken_off() -> None:
    """Of a variance of 4 in 50 columns, under noise whose own largest eigenvalue is 2; all noise is nothing."""
    draw = np.random.default_rng(1)
    noise = draw.normal(size=(50, 50)) / np.sqrt(50)
    noise = np.triu(noise) + np.triu(noise, 1).T
    true = np.zeros((50, 50))
    true[0, 0] = 4
    values = np.linalg.eigvalsh(debiased(true + noise, 1 / np.sqrt(50)))
    assert values[-1] == pytest.approx(4, abs=0.3)
    assert np.linalg.eigvalsh(true + noise)[-1] > 4.1
    assert (values[:-2] < 0.5).all()
    assert (np.linalg.eigvalsh(debiased(0.5 * noise, 1 / np.sqrt(50))) >= -1e-12).all()


def test_components_of_indicators_and_of_too_much_noise() -> None:
    """Categorical columns can be named; a plan warns where noise has larger components than columns."""
    with simulated(SCHEMA, rows=100, epsilon=2) as handle:
        miner = PCA(epsilon=1, attributes=["k"]).fit(handle)
        assert miner.cost_ == handle.budget.spent == 1
        assert miner.components_.shape == (1, 1)
        assert miner.fitted_again(handle).components_.shape == (1, 1)
    assert PCA(epsilon=0.01).plan(SCHEMA, rows=50).warnings
    with simulated(SCHEMA.model_copy(update={"max_rows": 50}), rows=40, epsilon=1) as handle:
        with pytest.warns(FitWarning, match="noise alone makes components"):
            PCA(epsilon=0.1).fit(handle)
        for wrong, words in (({"n_components": 99}, "n_components"), ({"scaled": "yes"}, "scaled")):
            with pytest.raises(QueryError, match=words):
                PCA(epsilon=0.1, **wrong).fit(handle)
        stored = json.loads(PCA(epsilon=0.1).fit(handle).to_json())
    for name, other in (("scaled", "yes"), ("variances", []), ("mean", [1.0])):
        forged = json.dumps({**stored, "components": {**stored["components"], name: other}})
        with pytest.raises(QueryError, match="not a stored set of components"):
            PCA.from_json(forged)


def test_intervals_of_correlations_hold_where_one_factor_is_in_all_columns() -> None:
    """There rows are long or short together, so shortening the long ones would make columns seem independent."""
    draw = np.random.default_rng(4)
    points = (draw.normal(size=(ROWS, 1)) + draw.normal(size=(ROWS, WIDTH))) / np.sqrt(2)
    rows = pd.DataFrame(points, columns=list(COLUMNS))
    exact = rows.corr().to_numpy().ravel()
    schema = Schema(columns=dict.fromkeys(COLUMNS, Numeric(lower=-8, upper=8)), max_rows=ROWS)
    with simulated(schema, data=rows, epsilon=1) as handle:
        table = correlation(handle, epsilon=0.2)
    held = ((table["low"] <= exact) & (exact <= table["high"]))[exact < 1 - 1e-9]
    assert held.mean() > 0.9
    assert "a plausible effect" in table.notes[0]


def test_correlations_are_those_of_the_rows(rows: pd.DataFrame) -> None:
    """Their intervals hold 95 % of the exact ones or nearly, a column with itself is 1, and a map is drawn; reuse is free."""
    exact = rows[list(COLUMNS)].corr().to_numpy().ravel()
    with simulated(SCHEMA, data=rows, epsilon=7) as handle:
        assert correlation.plan(handle, epsilon=5).total == 5
        table = correlation(handle, epsilon=5)
        frame = table.frame
        assert handle.budget.spent == 5
        assert np.abs(frame["value"] - exact).max() < 0.03
        other = (exact < 1 - 1e-9).nonzero()[0]
        held = (frame["low"] <= exact)[other] & (exact <= frame["high"])[other]
        assert held.mean() > 0.8
        assert (frame["value"][frame["first"] == frame["second"]] == 1).all()
        again = correlation(handle, ["x0", "k"], epsilon=1, reuse=True)
        assert correlation(handle, ["x0", "k"], epsilon=1, reuse=True).frame.equals(again.frame)
        assert again.wide().shape == (2, 2)
        assert handle.budget.spent == 6
        assert table.plot().figure.axes
        with pytest.raises(BudgetExceeded):
            correlation(handle, epsilon=2)


def test_an_empty_list_is_not_all_columns_and_a_table_is_no_handle(rows: pd.DataFrame) -> None:
    """The list names nothing, and nothing is paid; a table with its labels is told what a handle is."""
    with simulated(SCHEMA, data=rows, epsilon=1) as handle:
        with pytest.raises(QueryError, match="no attribute to learn from"):
            PCA(epsilon=1, attributes=[]).fit(handle)
        assert not handle.budget.spent
    with pytest.raises(QueryError, match="learns from a private handle, not from DataFrame"):
        PCA(epsilon=1).fit(rows, rows["k"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "target"), [(PCA, None), (LinearDiscriminant, "k"), (LinearRegression, "y")])
def test_hardly_any_noise_asks_for_no_more_than_any_products_have(kind: Any, target: str | None) -> None:
    """The least noise keeps the longest rows, and a query has a largest norm."""
    two = Categorical(values=("u", "v"))
    schema = Schema(columns={"x": two, "k": two, "y": Numeric(lower=0, upper=1)}, max_rows=10**6)
    with simulated(schema, rows=10, epsilon=10**6) as handle:
        kind(epsilon=10**6, attributes=["x"]).fit(handle, target)
        assert handle.budget.spent == 10**6
