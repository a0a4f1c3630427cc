# SPDX-License-Identifier: Apache-2.0
"""The self-test of miners: does a fitted model reveal a row?

``FITS`` is registered as an entry point: the provider's command may not import miners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pandas as pd

from miners.budget.plan import silenced
from miners.estimator import ClassLearner
from miners.scorecards.scorecard import Scorecard
from miners.trees.diffp_c45 import DiffPC45
from miners.trees.diprime import DiPriMeForestClassifier
from miners.trees.id3 import DiffPID3, SuLQID3
from pinq.analyst.queryable import PrivateQueryable
from pinq.public.schema import Value

Fit = Callable[[PrivateQueryable, Fraction, str, str, Sequence[Value], Value], np.ndarray]
"""A function that fits ``target`` on one column at a loss; returns a class's probability for each value, (values,)."""


def _fit(make: Callable[[Fraction], ClassLearner]) -> Fit:
    def fit(
        handle: PrivateQueryable,
        epsilon: Fraction,
        target: str,
        column: str,
        values: Sequence[Value],
        positive: Value,
    ) -> np.ndarray:
        with silenced():
            model = make(epsilon).fit(handle, target)
        probabilities = model.predict_proba(pd.DataFrame({column: list(values)}))
        return np.asarray(probabilities[:, list(model.classes_).index(positive)])

    return fit


FITS: Mapping[str, Fit] = {
    "DiffPID3": _fit(lambda epsilon: DiffPID3(epsilon=epsilon, max_depth=1)),
    "SuLQID3": _fit(lambda epsilon: SuLQID3(epsilon=epsilon, max_depth=1)),
    "DiffPC45": _fit(lambda epsilon: DiffPC45(epsilon=epsilon)),
    "Scorecard": _fit(lambda epsilon: Scorecard(epsilon=epsilon)),
    "DiPriMeForestClassifier": _fit(lambda epsilon: DiPriMeForestClassifier(epsilon=epsilon)),
}
