# SPDX-License-Identifier: Apache-2.0
"""Values of every type, through each miner: what was fitted comes back equal from its text, and predicts the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import miners
from pinq.public.schema import Schema
from tests.support.processes.servers import EVERY_TYPE, every_type
from tests.support.requests.handles import simulated

SCHEMA = Schema.model_validate({"columns": EVERY_TYPE, "max_rows": 1000})
LEARNERS = [
    name
    for name in miners.__all__
    if hasattr(getattr(miners, name), "from_json") and hasattr(getattr(miners, name), "fit")
]
TARGETS = ["truth", "mixed", "number"]


def test_all_learners_are_tried() -> None:
    """A new miner is found by itself."""
    assert len(LEARNERS) >= 10


@pytest.mark.parametrize("name", LEARNERS)
def test_a_fitted_miner_comes_back_with_its_values(name: str) -> None:
    """Schema, splits and classes are equal, types included; predictions are the same array."""
    rows = every_type(200)
    for target in TARGETS:
        kind: Any = getattr(miners, name)
        regression = "Regress" in name
        if regression != (target == "number") and name not in ("DPDilca", "PCA"):
            continue
        with simulated(SCHEMA, data=rows, epsilon=1000) as handle:
            shallow = {"max_depth": 2} if "max_depth" in kind.param_names() else {}
            miner = kind(epsilon=1000, **shallow).fit(handle, target)
        again = kind.from_json(miner.to_json())
        assert again.to_json() == miner.to_json()
        assert again.schema_ == miner.schema_ == SCHEMA
        assert repr(again.schema_) == repr(miner.schema_)
        assert again.schema_.digest == SCHEMA.digest
        if name == "DPDilca":
            assert again.distances_[target].equals(miner.distances_[target])
            continue
        if name == "Synthesizer":
            assert again.sample(50, random_state=1).equals(miner.sample(50, random_state=1))
            continue
        if name == "PCA":
            assert np.array_equal(again.transform(rows), miner.transform(rows))
            continue
        one, other = again.predict(rows), miner.predict(rows)
        assert one.dtype == other.dtype
        assert [type(value) for value in one.tolist()] == [type(value) for value in other.tolist()]
        assert np.array_equal(one, other)
        if not regression:
            assert repr(again.classes_.tolist()) == repr(miner.classes_.tolist())
