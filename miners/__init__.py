# SPDX-License-Identifier: Apache-2.0
"""Miners on the analyst's face: estimators in the manner of scikit-learn that learn from a private handle.

Names are imported when they are first used: scikit-learn alone takes most of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from miners.decision_forest import DPDecisionForest
    from miners.diffp_c45 import DiffPC45
    from miners.diffp_id3 import DiffPID3
    from miners.dilca import DPDilca
    from miners.diprime import DiPriMeForestClassifier, DiPriMeForestRegressor, DiPriMeTreeClassifier, DiPriMeTreeRegressor
    from miners.extra_trees import DPExtraTrees, DPExtraTreesRegressor
    from miners.federation import Federation
    from miners.forest import Forest
    from miners.public_rows import PublicRows
    from miners.suggestion import suggest
    from miners.sulq_id3 import SuLQID3
    from miners.topdown import DPTopDown
    from miners.tree import Tree

__all__ = [
    "DPDecisionForest",
    "DPDilca",
    "DPExtraTrees",
    "DPExtraTreesRegressor",
    "DPTopDown",
    "DiPriMeForestClassifier",
    "DiPriMeForestRegressor",
    "DiPriMeTreeClassifier",
    "DiPriMeTreeRegressor",
    "DiffPC45",
    "DiffPID3",
    "Federation",
    "Forest",
    "PublicRows",
    "SuLQID3",
    "Tree",
    "suggest",
]

_HOMES = {
    "DPDecisionForest": "miners.decision_forest",
    "DPDilca": "miners.dilca",
    "DPExtraTrees": "miners.extra_trees",
    "DPExtraTreesRegressor": "miners.extra_trees",
    "DPTopDown": "miners.topdown",
    "DiPriMeForestClassifier": "miners.diprime",
    "DiPriMeForestRegressor": "miners.diprime",
    "DiPriMeTreeClassifier": "miners.diprime",
    "DiPriMeTreeRegressor": "miners.diprime",
    "DiffPC45": "miners.diffp_c45",
    "DiffPID3": "miners.diffp_id3",
    "Federation": "miners.federation",
    "Forest": "miners.forest",
    "PublicRows": "miners.public_rows",
    "SuLQID3": "miners.sulq_id3",
    "Tree": "miners.tree",
    "suggest": "miners.suggestion",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'miners' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
