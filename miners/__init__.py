# SPDX-License-Identifier: Apache-2.0
"""Miners: estimators in the manner of scikit-learn that learn from a private handle.

Names are imported when they are first used: pandas alone takes a third of a second.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from miners.budget.plan import FitWarning as FitWarning, WishList as WishList
    from miners.distances.dilca import DPDilca as DPDilca
    from miners.federated.federation import Federation as Federation
    from miners.federated.scorecard import (
        FederatedScorecard as FederatedScorecard,
        FederatedScorecardRegressor as FederatedScorecardRegressor,
    )
    from miners.federated.topdown import FederatedTopDown as FederatedTopDown
    from miners.fitted.route import UndeclaredValueWarning as UndeclaredValueWarning
    from miners.fitted.tree import Forest as Forest, Tree as Tree
    from miners.linear.components import PCA as PCA
    from miners.linear.discriminant import (
        LinearDiscriminant as LinearDiscriminant,
        QuadraticDiscriminant as QuadraticDiscriminant,
    )
    from miners.linear.regression import LinearRegression as LinearRegression
    from miners.scorecards.scorecard import Scorecard as Scorecard, ScorecardRegressor as ScorecardRegressor
    from miners.synthesizer.synthesizer import Synthesizer as Synthesizer
    from miners.trees.diffp_c45 import DiffPC45 as DiffPC45
    from miners.trees.diprime import (
        DiPriMeForestClassifier as DiPriMeForestClassifier,
        DiPriMeForestRegressor as DiPriMeForestRegressor,
        DiPriMeTreeClassifier as DiPriMeTreeClassifier,
        DiPriMeTreeRegressor as DiPriMeTreeRegressor,
    )
    from miners.trees.id3 import DiffPID3 as DiffPID3, SuLQID3 as SuLQID3
    from miners.tuning.public_rows import PublicRows as PublicRows
    from miners.tuning.recommendation import recommend as recommend
    from miners.tuning.suggestion import suggest as suggest

_HOMES = {
    "DPDilca": "miners.distances.dilca",
    "FederatedScorecard": "miners.federated.scorecard",
    "FederatedScorecardRegressor": "miners.federated.scorecard",
    "FederatedTopDown": "miners.federated.topdown",
    "DiPriMeForestClassifier": "miners.trees.diprime",
    "DiPriMeForestRegressor": "miners.trees.diprime",
    "DiPriMeTreeClassifier": "miners.trees.diprime",
    "DiPriMeTreeRegressor": "miners.trees.diprime",
    "DiffPC45": "miners.trees.diffp_c45",
    "DiffPID3": "miners.trees.id3",
    "Federation": "miners.federated.federation",
    "FitWarning": "miners.budget.plan",
    "WishList": "miners.budget.plan",
    "Forest": "miners.fitted.tree",
    "LinearDiscriminant": "miners.linear.discriminant",
    "LinearRegression": "miners.linear.regression",
    "PCA": "miners.linear.components",
    "PublicRows": "miners.tuning.public_rows",
    "QuadraticDiscriminant": "miners.linear.discriminant",
    "Scorecard": "miners.scorecards.scorecard",
    "ScorecardRegressor": "miners.scorecards.scorecard",
    "SuLQID3": "miners.trees.id3",
    "Synthesizer": "miners.synthesizer.synthesizer",
    "Tree": "miners.fitted.tree",
    "UndeclaredValueWarning": "miners.fitted.route",
    "recommend": "miners.tuning.recommendation",
    "suggest": "miners.tuning.suggestion",
}
__all__ = sorted(_HOMES)


# Names of earlier states, which are still read and imported.
_FORMER = {
    "DPScorecard": "FederatedScorecard",
    "DPScorecardRegressor": "FederatedScorecardRegressor",
    "DPTopDown": "FederatedTopDown",
}


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        warnings.warn(f"miners.{name} is called {_FORMER[name]} now.", DeprecationWarning, stacklevel=2)
        name = _FORMER[name]
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'miners' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
