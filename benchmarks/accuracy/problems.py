# SPDX-License-Identifier: Apache-2.0
"""The tables of ``which.py``: those a rule was tuned on, and those only looked at afterwards.

Held-out tables are UCI's own rows with another column to predict, and made-up ones; tables that
come with scikit-learn were held out until the rule was mended for them. The bounds of the latter are
those of their rows, which its descriptions print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

from benchmarks.accuracy.made import MADE
from benchmarks.accuracy.trees import table
from benchmarks.harness.datasets import declared, stratified_folds, why_missing
from miners.fitted.route import encode
from pinq.public.schema import Numeric, Schema

__all__ = ["HELD_OUT", "SEEN", "TUNED", "Problem"]

MOST_ROWS = 50_000
LARGE = 20.0  # of a bound: numbers beyond it have a grid of 1/10, others of 1/1000


@dataclass(frozen=True)
class Problem:
    """A table and a column to predict.

    Attributes:
        data: The data set of PINQ_DATA; empty for a table of scikit-learn or a made-up one.
        target: The column; empty for the data set's own.
        name: The name of the table; by default that of the data set, with the target if it is another.
    """

    data: str
    target: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """Names the problem."""
        return self.name or "/".join(filter(None, (self.data, self.target)))

    def load(self) -> tuple[Schema, str, pd.DataFrame]:
        """Returns the schema, the target and at most ``MOST_ROWS`` rows."""
        return _loaded(self)

    def tested(self, run: int) -> np.ndarray:
        """Returns which rows are for the test, shape (rows,): UCI's fold of Adult, else a tenth."""
        schema, target, rows = self.load()
        if self.key == "adult":
            return (rows["fold"] == "test").to_numpy()
        classes = encode(schema, target, rows)
        classes = np.zeros_like(classes) if isinstance(schema.columns[target], Numeric) else classes
        return stratified_folds(classes, 10, seed=run) == 0

    @property
    def is_there(self) -> bool:
        """Whether its rows are at hand."""
        return not self.data or not why_missing(self.data)

    @property
    def is_numeric(self) -> bool:
        """Whether a mean is predicted."""
        columns, own = declared(self.data) if self.data else ({}, "")
        return bool(columns) and columns[self.target or own]["type"] == "numeric"


@cache
def _loaded(problem: Problem) -> tuple[Schema, str, pd.DataFrame]:
    if problem.name in MADE:
        return MADE[problem.name].table()
    if not problem.data:
        return _bundled(SCIKIT_LEARN[problem.name])
    schema, own, rows = table(problem.data)
    target = problem.target or own
    if len(rows) > MOST_ROWS:
        rows = rows.sample(MOST_ROWS, random_state=0)
    return schema, target, rows[rows[target].notna()].reset_index(drop=True)


def _bundled(load: Callable[..., Any]) -> tuple[Schema, str, pd.DataFrame]:
    """Returns a table of scikit-learn's; bounds are its smallest and largest numbers."""
    bunch = load(as_frame=True)
    rows = bunch.frame.rename(columns=lambda name: str(name).replace(" ", "_").replace("/", "_"))
    target = "target"
    columns: dict[str, Any] = {name: _numeric(rows[name]) for name in rows.columns if name != target}
    rows[target] = rows[target].astype(str)
    columns[target] = {"type": "categorical", "values": sorted(rows[target].unique().tolist())}
    cap = next(size for size in (200, 500, 1000, 2000, 5000) if size >= len(rows))
    return Schema.model_validate({"columns": columns, "max_rows": cap}), target, rows


def _numeric(values: pd.Series) -> dict[str, object]:
    lower, upper = float(values.min()), float(values.max())
    step = 0.1 if upper > LARGE else 0.001
    return {"type": "numeric", "lower": min(0.0, lower), "upper": upper + step, "step": step}


SCIKIT_LEARN: dict[str, Callable[..., Any]] = {
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
}
_OWN = [
    "adult",
    "credit_default",
    "mushroom",
    "robot_navigation",
    "car",
    "cmc",
    "banknote",
    "soybean",
    "balance_scale",
    "spect",
]
TUNED: Sequence[Problem] = (*(Problem(name) for name in _OWN), Problem("appliances_energy"))
SEEN: Sequence[Problem] = tuple(Problem("", name=name) for name in SCIKIT_LEARN)
HELD_OUT: Sequence[Problem] = (
    *(Problem("", name=name) for name in MADE),
    Problem("adult", "occupation"),
    Problem("adult", "sex"),
    Problem("adult", "workclass"),
    Problem("credit_default", "education"),
    Problem("mushroom", "habitat"),
    Problem("cmc", "wife_religion"),
    Problem("spect", "f13"),
    Problem("soybean", "stem"),
    Problem("soybean", "fruit_pods"),
    Problem("car", "safety"),
    Problem("adult", "hours_per_week"),
    Problem("adult", "age"),
    Problem("credit_default", "limit_bal"),
)
