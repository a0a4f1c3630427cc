# SPDX-License-Identifier: Apache-2.0
"""Constructors of miners, as scikit-learn and notebooks use them."""

from typing import Any

import pytest
from sklearn.base import clone

import miners
from miners.estimator import Classifier, Regressor

ESTIMATORS = [
    kind
    for kind in (getattr(miners, name) for name in miners.__all__)
    if isinstance(kind, type) and issubclass(kind, Classifier | Regressor)
]


def test_all_tree_and_forest_miners_are_looked_at() -> None:
    names = {kind.__name__ for kind in ESTIMATORS}
    assert {"SuLQID3", "DiffPID3", "DiffPC45", "DiPriMeForestClassifier", "DiPriMeTreeRegressor"} <= names


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_a_constructor_takes_shows_and_copies_parameters(kind: Any) -> None:
    miner = kind(epsilon=0.25)
    assert repr(miner) == f"{kind.__name__}(epsilon=0.25)"
    copy = clone(miner)
    assert copy is not miner
    assert copy != miner  # a miner is equal to itself alone, whatever its parameters
    assert copy.get_params() == miner.get_params()
    assert len({copy, miner}) == 2
    assert copy.set_params(epsilon=2) is copy
    assert (copy.epsilon, miner.epsilon) == (2, 0.25)
    with pytest.raises(TypeError):
        kind(0.25)
    with pytest.raises(TypeError):
        kind(epsilons=0.25)
