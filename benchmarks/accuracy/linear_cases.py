# SPDX-License-Identifier: Apache-2.0
"""Tables on which intervals of coefficients must hold: easy ones, and each way of being hard that a table can have.

Six are drawn from a law with known coefficients. Of real tables, a run has 5,000 rows drawn with replacement, and the
true coefficients are the least squares of the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.harness.datasets import load, why_missing
from pinq.public.schema import Categorical, Numeric, Schema

__all__ = ["Case", "cases", "least_squares"]

ROWS = 5_000
WEIGHTS = (1.0, -0.5, 0.2, 0.0)
GROUPS = {"a": 0.0, "b": 2.0, "c": -1.0, "rare": 5.0}
REAL = {
    "cps": ("wage", ("education", "experience", "ethnicity", "smsa", "parttime")),
    "loans": (
        "interest_rate",
        ("annual_income", "debt_to_income", "loan_amount", "term", "inquiries_last_12m", "verified_income"),
    ),
}


class Case(NamedTuple):
    """A table with a target, and the true coefficients by term.

    Attributes:
        name: The name of the case.
        schema: Its schema.
        frame: Its rows.
        target: The column to predict.
        true: The true coefficients of terms, without the intercept.
    """

    name: str
    schema: Schema
    frame: pd.DataFrame
    target: str
    true: dict[str, float]


def least_squares(schema: Schema, frame: pd.DataFrame, target: str) -> dict[str, float]:
    """Returns the coefficients of least squares without noise, by term; missing numbers count as the mean."""
    points: dict[str, np.ndarray] = {"": np.ones(len(frame))}
    for name, column in schema.columns.items():
        if isinstance(column, Categorical):
            points |= {f"{name} = {value}": (frame[name] == value).to_numpy(float) for value in column.values[1:]}
        elif name != target:
            points[name] = frame[name].fillna(frame[name].mean()).to_numpy(float)
    found = np.linalg.lstsq(np.column_stack([*points.values()]), frame[target].to_numpy(float), rcond=None)[0]
    return dict(zip([*points][1:], found[1:].tolist(), strict=True))


def cases(run: int) -> Iterator[Case]:
    """Yields the cases with the rows of one run; those of real tables where the tables are."""
    draw = np.random.default_rng(run)
    z = draw.normal(size=(ROWS, 4))
    drawn = {
        "normal": (z, -6.0, 6.0),
        "bounds 200 times too wide": (50 + 5 * z, 0.0, 1000.0),
        "Student's t of 3 degrees": (draw.standard_t(3, z.shape).clip(-50, 50), -50.0, 50.0),
        "lognormal": (np.exp(z).clip(0, 100), 0.0, 100.0),
        "columns that correlate by .95": (z[:, :1] + 0.23 * z, -6.0, 6.0),
    }
    for name, (points, low, high) in drawn.items():
        frame = pd.DataFrame(points, columns=list("abcd"))
        y = points @ WEIGHTS + draw.normal(size=ROWS) * points.std()
        wide: dict[str, Any] = {"y": Numeric(lower=2 * low - high, upper=2 * high - low)}
        columns: dict[str, Any] = {column: Numeric(lower=low, upper=high) for column in "abcd"}
        schema = Schema(columns=columns | wide, max_rows=ROWS)
        frame["y"] = y.clip(2 * low - high, 2 * high - low)
        yield Case(name, schema, frame, "y", dict(zip("abcd", WEIGHTS, strict=True)))
    yield _grouped(draw)
    for name in REAL:
        if not why_missing(name):
            schema, frame, true = _real(name)
            yield Case(name, schema, frame.iloc[draw.integers(0, len(frame), ROWS)], REAL[name][0], true)


def _grouped(draw: np.random.Generator) -> Case:
    """A table of groups, one with 1 % of the rows and a large coefficient."""
    frame = pd.DataFrame(
        {
            "age": draw.integers(18, 90, ROWS).astype(float),
            "group": draw.choice([*GROUPS], ROWS, p=[0.5, 0.3, 0.19, 0.01]),
            "sex": draw.choice(["f", "m"], ROWS),
        }
    )
    y = 10 + 0.1 * frame["age"] + frame["group"].map(GROUPS) + 1.5 * (frame["sex"] == "m") + draw.normal(0, 3, ROWS)
    columns: dict[str, Any] = {
        "age": Numeric(lower=0, upper=120, integer=True),
        "group": Categorical(values=tuple(GROUPS)),
        "sex": Categorical(values=("f", "m")),
        "y": Numeric(lower=-10, upper=60),
    }
    true = {"age": 0.1, "sex = m": 1.5} | {f"group = {name}": own for name, own in GROUPS.items() if own}
    return Case("a group of 1 %", Schema(columns=columns, max_rows=ROWS), frame.assign(y=y.clip(-10, 60)), "y", true)


@cache
def _real(name: str) -> tuple[Schema, pd.DataFrame, dict[str, float]]:
    """Some columns of a real table, and their least squares."""
    target, columns = REAL[name]
    schema, _, frame = load(name)
    within = Schema(columns={own: schema.columns[own] for own in (*columns, target)}, max_rows=ROWS)
    frame = frame[[*columns, target]].dropna(subset=[target])
    return within, frame, least_squares(within, frame, target)
