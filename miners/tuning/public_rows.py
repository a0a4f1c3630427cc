# SPDX-License-Identifier: Apache-2.0
"""``PublicRows`` makes a miner learn from public rows, for scikit-learn's cross-validation and searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from miners.estimator import Kind, Learner, Parameterised, cloned, require_pairs
from pinq.errors import QueryError
from pinq.public.checks import Shown
from pinq.public.epsilon import EpsilonLike
from pinq.public.plugins import install_line, plugin
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from miners.fitted.route import Frame
    from pinq.analyst.queryable import PrivateQueryable


MISSING = f"Trying settings on public rows needs the provider's side: {install_line('provider')}."


def simulated(schema: Schema, *, data: Frame, epsilon: EpsilonLike) -> PrivateQueryable:
    """Opens a handle on public rows, with the noise and the refusals of a real one.

    Miners do not import the provider's side; it registers the simulator (``pinq.public.plugins``).
    """
    return plugin("pinq.provider", "simulate", MISSING)(schema, data=data, epsilon=epsilon)


class PublicRows(Shown, Parameterised):
    """Fits a miner to a pandas frame of *public* rows, behind a simulated handle.

    scikit-learn's searches divide a table into folds and fit on each. A private handle has no rows to divide, so they
    compare settings on public rows: dummy rows, rows published last year, or rows of another country. Each fit opens
    ``pinq.simulate`` on its rows with a budget of the miner's ``epsilon``, and new noise.

    Never use it for sensitive rows, because it does not protect them: the ledger is temporary, and each score is an
    exact number about the rows.

    Args:
        estimator: The miner, not fitted. Its parameters are searched as ``estimator__epsilon`` and
            so on.
        schema: The schema that encodes the rows, such as ``handle.schema``; rows that do not fit
            are left out.
        target: The column of the schema that ``y`` holds.

    Attributes:
        estimator_: The fitted miner.
        classes_: The declared values of a classifier's target, sorted, shape (classes,).

    Examples:
        >>> import numpy as np, pandas as pd, pinq
        >>> from miners import DiffPC45, PublicRows
        >>> from sklearn.model_selection import cross_val_score
        >>> columns = {
        ...     "x": pinq.Numeric(lower=0, upper=9, integer=True),
        ...     "y": pinq.Categorical(values=("a", "b")),
        ... }
        >>> schema = pinq.Schema(columns=columns, max_rows=1000)
        >>> x = np.arange(1000) % 10
        >>> rows = pd.DataFrame({"x": x, "y": np.where(x < 5, "a", "b")})
        >>> miner = PublicRows(DiffPC45(epsilon=2), schema, "y")
        >>> scores = cross_val_score(miner, rows[["x"]], rows["y"])
        >>> bool(scores.mean() > 0.8)
        True
    """

    estimator_: Any  # a fitted copy of ``estimator``; Any, because a regressor has no ``predict_proba``

    def __init__(self, estimator: Learner, schema: Schema, target: str) -> None:
        self.estimator = estimator
        self.schema = schema
        self.target = target

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Self:
        """Fits a clone of the miner on public rows.

        Args:
            X: A pandas frame with the schema's columns; the target may be missing.
            y: The class or value of each row.

        Raises:
            QueryError: ``X`` is not a pandas frame, or a parameter of the miner is wrong.
        """
        if not hasattr(X, "assign"):
            raise QueryError(f"a pandas frame with the schema's columns is needed, not {type(X).__name__}.")
        labels = np.asarray(y)
        require_pairs(labels, X)
        rows = X.assign(**{self.target: labels})
        with simulated(self.schema, data=rows, epsilon=self.estimator.epsilon) as handle:
            self.estimator_ = cloned(self.estimator).fit(handle, self.target)
        if hasattr(self.estimator_, "classes_"):
            self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Frame) -> np.ndarray:
        """The likeliest class or the mean for each row, shape (rows,)."""
        self._require_fitted("estimator_")
        return self.estimator_.predict(X)

    def score(self, X: Frame, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The miner's ``score``: the accuracy, or R^2."""
        self._require_fitted("estimator_")
        return self.estimator_.score(X, y, sample_weight)

    @property
    def _estimator_type(self) -> Kind:  # type: ignore[override]  # as its miner's
        return getattr(self.estimator, "_estimator_type", None)

    def predict_proba(self, X: Frame) -> np.ndarray:
        """Class probabilities, shape (rows, classes), in the order of ``classes_``."""
        self._require_fitted("estimator_")
        return self.estimator_.predict_proba(X)
