# SPDX-License-Identifier: Apache-2.0
"""``LinearRegression``: what it finds, how sure it is, what it says, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from miners import FitWarning, LinearRegression
from miners.linear.regression import posterior
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

ROWS = 20_000
SCHEMA = Schema(
    max_rows=ROWS,
    columns={
        "y": Numeric(lower=0, upper=10_000, step="0.5", nullable=True),
        "a": Numeric(lower=-50, upper=150),
        "b": Numeric(lower=0, upper=1, nullable=True),
        "c": Categorical(values=("u", "v", "w"), nullable=True),
    },
)
TRUE = {"(intercept)": 100.0, "a": 2.0, "b": -30.0, "c = v": 5.0, "c = w": -8.0, "c = missing": 0.0}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    a, b, c = draw.normal(40, 10, ROWS), draw.beta(2, 5, ROWS), draw.choice(list("uvw"), ROWS, p=[0.5, 0.3, 0.2])
    y = 100 + 2 * a - 30 * b + np.select([c == "v", c == "w"], [5, -8], 0) + draw.normal(0, 12, ROWS)
    return pd.DataFrame({"y": np.where(draw.random(ROWS) < 0.1, np.nan, y), "a": a, "b": b, "c": c})


@pytest.fixture(scope="module")
def fitted(rows: pd.DataFrame) -> Any:
    with simulated(SCHEMA, data=rows, epsilon=4) as handle:
        return LinearRegression(epsilon=4).fit(handle, "y")


def test_coefficients_are_those_of_the_rows(fitted: Any, rows: pd.DataFrame) -> None:
    """In units of the columns, each within six of its errors; under bounds a hundred times too wide for the target."""
    table = fitted.to_frame().set_index("term")
    for term, true in TRUE.items():
        assert abs(table["coefficient"][term] - true) < 6 * table["error"][term], term
    assert table["error"]["a"] < 0.03
    assert table["error"]["c = missing"] > table["error"]["c = w"]  # which no row has
    assert fitted.score(rows) == pytest.approx(0.75, abs=0.02)
    assert fitted.line_.determination == pytest.approx(0.75, abs=0.04)
    assert fitted.line_.residual == pytest.approx(12, abs=0.8)
    assert fitted.line_.rows == pytest.approx(0.9 * ROWS, rel=0.02)
    assert [fitted.intercept_, *fitted.coef_] == table["coefficient"].tolist()


def test_a_prediction_is_intercept_and_coefficients(fitted: Any) -> None:
    """A missing number counts as the mean, an unknown value as the first; means are within the bounds."""
    rows = pd.DataFrame({"a": [40.0, 60.0], "b": [0.5, 0.5], "c": ["u", "w"]})
    one, other = fitted.predict(rows)
    slope = dict(zip(fitted.line_.coordinates.names, fitted.coef_, strict=True))
    assert other - one == pytest.approx(20 * slope["a"] + slope["c = w"], abs=0.1)
    assert one == pytest.approx(fitted.intercept_ + 40 * slope["a"] + 0.5 * slope["b"], abs=0.1)
    with pytest.raises(QueryError, match="no class"):
        fitted.line_.predict_proba(rows)


def test_the_report_names_each_term_and_draws(fitted: Any) -> None:
    """As text, as HTML, as a picture; what was learned is read again from JSON, and nothing else is."""
    text = fitted.export_text()
    assert text.startswith("Linear regression of y: 5 coefficients\nabout 1")
    assert all(term in text for term in TRUE)
    assert "c = w" in fitted._repr_html_()
    ax = fitted.plot()
    assert len(ax.get_yticks()) == 5
    stored = json.loads(fitted.to_json())
    for name, wrong in (("errors", [-1.0] * 6), ("scale", [0, 0]), ("coefficients", [1.0]), ("rows", None)):
        forged = json.dumps({**stored, "line": {**stored["line"], name: wrong}})
        with pytest.raises(QueryError, match="not a stored regression"):
            LinearRegression.from_json(forged)
    body = stored["line"]["coordinates"]
    for name, other in (("reach", 100), ("scales", [None] * 3), ("columns", ["a"])):
        forged = json.dumps({**stored, "line": {**stored["line"], "coordinates": {**body, name: other}}})
        with pytest.raises(QueryError):
            LinearRegression.from_json(forged)


def test_what_noise_hides_is_said_before_anything_is_paid() -> None:
    """More noise in the products than rows."""
    columns: dict[str, Any] = {f"x{number}": Numeric(lower=0, upper=1) for number in range(30)}
    schema = Schema(columns={**columns, "y": Numeric(lower=0, upper=1)}, max_rows=500)
    plan = LinearRegression(epsilon=0.1).plan(schema, "y")
    assert "noise in the products equals" in plan.warnings[0]
    with simulated(schema, rows=50, epsilon=1) as handle, pytest.warns(FitWarning, match="noise in the products"):
        miner = LinearRegression(epsilon=0.1).fit(handle, "y")
    assert np.isfinite(miner.coef_).all()


def test_what_noise_hides_of_a_table_with_fewer_rows_than_declared_is_said() -> None:
    """At the line that fits: R² and rows of no rows at all are noise."""
    columns: dict[str, Any] = {f"x{number}": Numeric(lower=0, upper=1) for number in range(30)}
    schema = Schema(columns={**columns, "y": Numeric(lower=0, upper=1)}, max_rows=10**6)
    assert not LinearRegression(epsilon=0.1).plan(schema, "y").warnings
    with (
        simulated(schema, rows=0, epsilon=1) as handle,
        pytest.warns(FitWarning, match="noise in the products") as told,
    ):
        LinearRegression(epsilon=0.1).fit(handle, "y")
    assert {one.filename for one in told} == {__file__}


def test_a_categorical_target_names_its_miner() -> None:
    """Before anything is asked."""
    with pytest.raises(QueryError, match="take LinearDiscriminant"):
        LinearRegression().plan(SCHEMA, "c")


def test_intervals_of_a_posterior_hold_what_they_say() -> None:
    """Of 4,000 coefficients, drawn with sampling and noise of about equal size, 93 to 97 % of intervals hold the true one.

    The binomial deviation of 4,000 is .34 %; a noise that is forgotten leaves 84 %.
    """
    draw, held, forgotten = np.random.default_rng(3), [], []
    for _ in range(400):
        points = np.insert(draw.normal(size=(2_000, 9)), 0, 1, axis=1)
        true = draw.normal(size=10) * 0.3
        y = points @ true + draw.normal(size=2_000) * 0.8
        scale = float(np.sqrt(2 * true @ true + 0.64))
        noise = draw.laplace(0, 20, (11, 11))
        noise = np.triu(noise) + np.triu(noise, 1).T
        gram, cross = points.T @ points + noise[:-1, :-1], points.T @ y / scale + noise[:-1, -1]
        mean, covariance, _ = posterior(gram, cross, float(y @ y) / scale**2, 20 * 2**0.5, 1.0, 2_000)
        off = np.abs(mean - true / scale)
        held += list(off < 1.96 * np.sqrt(np.diag(covariance)))
        mean, covariance, _ = posterior(gram, cross, float(y @ y) / scale**2, 1e-9, 1.0, 2_000)
        forgotten += list(np.abs(mean - true / scale) < 1.96 * np.sqrt(np.diag(covariance)))
    assert 0.93 <= np.mean(held) <= 0.97
    assert np.mean(forgotten) < 0.9


@pytest.mark.filterwarnings("ignore::miners.budget.plan.FitWarning")
def test_bounds_as_wide_as_they_may_be_are_fitted() -> None:
    """A noisy range of deviations may end beyond the bounds; no fit fails for that after it was paid."""
    far = Numeric(lower=-9e99, upper=9e99)
    columns = pd.DataFrame({"a": np.linspace(-0.9, 0.9, 4000) * 1e100})
    schema = Schema(max_rows=5000, columns={"a": far, "y": far})
    with simulated(schema, data=columns.assign(y=0.9 * columns["a"]), epsilon=5) as handle:
        fitted = LinearRegression(epsilon=5).fit(handle, "y")
    assert np.isfinite(fitted.predict(columns.head(3))).all()
