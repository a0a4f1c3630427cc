# SPDX-License-Identifier: Apache-2.0
"""The self-test of miners: does a fitted model reveal a row?

``FITS`` is registered as an entry point: the provider's command may not import miners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from miners.budget.plan import silenced
from miners.scorecards.scorecard import Scorecard
from miners.trees.diffp_c45 import DiffPC45
from miners.trees.diprime import DiPriMeForestClassifier
from miners.trees.id3 import DiffPID3, SuLQID3
from pinq.analyst.queryable import PrivateQueryable
from pinq.public.schema import Value

Fit = Callable[[PrivateQueryable, Fraction, str, str, Sequence[Value], Value], np.ndarray]
"""A function that fits ``target`` on one column at a loss; returns a class's probability for each value, (values,)."""


def _fit(
    kind: type[Any],
    handle: PrivateQueryable,
    epsilon: Fraction,
    target: str,
    column: str,
    values: Sequence[Value],
    positive: Value,
) -> np.ndarray:
    params = {"max_depth": 1} if kind in (DiffPID3, SuLQID3) else {}
    with silenced():
        model = kind(epsilon=epsilon, **params).fit(handle, target)
    probabilities = model.predict_proba(pd.DataFrame({column: list(values)}))
    return np.asarray(probabilities[:, list(model.classes_).index(positive)])


KINDS: tuple[type[Any], ...] = (DiffPID3, SuLQID3, DiffPC45, Scorecard, DiPriMeForestClassifier)
FITS: Mapping[str, Fit] = {kind.__name__: partial(_fit, kind) for kind in KINDS}
