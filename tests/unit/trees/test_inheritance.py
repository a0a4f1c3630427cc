# SPDX-License-Identifier: Apache-2.0
"""Composition before inheritance: few classes of this package stand above a miner."""

from __future__ import annotations

import pytest

import miners

# The most classes above any miner, and above some. The numbers may only become smaller.
MAX_BASES = 7
FEWER = {
    "DiffPC45": 5,
    "DiPriMeForestClassifier": 6,
    "DiPriMeForestRegressor": 6,
    "FederatedTopDown": 5,
    "Scorecard": 4,
}
MINERS = [kind for name in miners.__all__ if isinstance(kind := getattr(miners, name), type) and hasattr(kind, "fit")]


@pytest.mark.parametrize("kind", MINERS, ids=lambda kind: kind.__name__)
def test_few_classes_stand_above_a_miner(kind: type) -> None:
    """A reader of a miner reads these, too."""
    above = [base for base in kind.__mro__[1:] if base.__module__.startswith(("miners", "pinq"))]
    assert len(above) <= FEWER.get(kind.__name__, MAX_BASES)
