# SPDX-License-Identifier: Apache-2.0
"""Two baselines for miners: naive Bayes from noisy counts, and the most frequent class.

Both are written by hand on ``noisy_count``, as anyone could.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from miners.budget.plan import count_scale, spread
from miners.fitted.route import encode, encode_rows
from miners.growth.candidates import Grid, attribute_cells
from miners.scorecards.objectives import log_probabilities
from pinq.analyst.queryable import PrivateQueryable
from pinq.language.specs import Cuts, Values, bind
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

__all__ = ["Majority", "NaiveBayes", "PooledMean"]


@dataclass
class _Classifier(ABC):
    """Predicts the shares of a target's classes."""

    epsilon: float

    @abstractmethod
    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Returns class shares, shape (rows, classes)."""

    def score(self, X: pd.DataFrame) -> float:
        """Returns the accuracy."""
        predicted: Sequence[int] = self.predict_proba(X).argmax(axis=1)
        return float(np.mean(predicted == encode(self._schema, self._target, X)))

    def _about(self, schema: Schema, target: str) -> None:
        """Notes what is predicted."""
        self._schema, self._target = schema, target
        self.classes_ = np.array(schema.categorical(target).values)


@dataclass
class NaiveBayes(_Classifier):
    """One noisy table of classes for each attribute, at equal shares of epsilon."""

    def fit(self, handle: PrivateQueryable, target: str) -> NaiveBayes:
        """Asks for all tables."""
        self._about(handle.schema, target)
        names = [name for name in handle.schema.columns if name != target]
        size = handle.schema.max_rows * self.epsilon / (len(names) * len(self.classes_))
        grid = Grid.of_tables(size, many=len(self.classes_) > 2)
        self._specs = attribute_cells(handle.schema, target, None, None, grid)
        shares = spread(Epsilon.of(self.epsilon), [1] * len(self._specs))
        tables = [self._table(handle, spec, each) for spec, each in zip(self._specs, shares, strict=True)]
        scale = count_scale(handle.schema, shares[0])
        totals = np.maximum(np.mean([table.sum(axis=0) for table in tables], axis=0), scale)
        self._start = np.log(totals / totals.sum())
        self._points = [each.points for each in log_probabilities(tables, totals, scale)]
        return self

    def _table(self, handle: PrivateQueryable, spec: Values | Cuts, epsilon: Epsilon) -> np.ndarray:
        counts = handle.partition(spec).partition(Values(self._target)).noisy_count(epsilon=epsilon)
        table = np.asarray(counts, dtype=np.float64).reshape(bind(spec, self._schema).size, -1)
        return table[:, : len(self.classes_)]

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Returns class shares, shape (rows, classes)."""
        codes = encode_rows(self._schema, [spec.column for spec in self._specs], X, otherwise="It adds nothing.")
        scores = np.tile(self._start, (len(X), 1))
        for spec, points in zip(self._specs, self._points, strict=True):
            parts = bind(spec, self._schema).axes[0].parts_of(codes[spec.column])
            scores += np.vstack([points, np.zeros_like(points[:1])])[parts]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


@dataclass
class Majority(_Classifier):
    """The noisy shares of the classes, for every row."""

    def fit(self, handle: PrivateQueryable, target: str) -> Majority:
        """Counts the classes."""
        self._about(handle.schema, target)
        counts = handle.partition(Values(target)).noisy_count(epsilon=self.epsilon)
        rows = np.maximum(np.asarray(counts, dtype=np.float64)[: len(self.classes_)], 0.5)
        self._shares = rows / rows.sum()
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Returns class shares, shape (rows, classes)."""
        return np.tile(self._shares, (len(X), 1))


@dataclass
class PooledMean:
    """The noisy mean of a number, for every row."""

    epsilon: float

    def fit(self, handle: PrivateQueryable, target: str) -> PooledMean:
        """Asks for the mean."""
        self._target = target
        self._mean = float(handle.noisy_avg(target, epsilon=self.epsilon))
        return self

    def score(self, X: pd.DataFrame) -> float:
        """Returns the coefficient of determination."""
        truth = X[self._target].dropna().to_numpy(dtype=np.float64)
        return float(1 - ((truth - self._mean) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
