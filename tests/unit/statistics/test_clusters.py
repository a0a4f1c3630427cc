# SPDX-License-Identifier: Apache-2.0
"""K-means: without noise the centres of scipy, with noise intervals that hold; no power is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.cluster.vq import kmeans2

import pinq
from miners.statistics import kmeans
from miners.statistics.clusters import Clusters
from pinq.errors import QueryError

WHOLE = pinq.Numeric(lower=0, upper=30, integer=True)
SCHEMA = pinq.Schema(
    columns={
        "x": WHOLE,
        "y": WHOLE,
        "z": pinq.Numeric(lower=0, upper=30, integer=True, nullable=True),
        "s": pinq.Categorical(values=("a", "b")),
    },
    max_rows=10_000,
)
CENTRES = np.array([[6.0, 8.0], [22.0, 9.0], [14.0, 24.0]])


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    own = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    x, y = np.clip(np.rint(CENTRES[own] + rng.normal(0, 2, (n, 2))), 0, 30).astype(int).T
    return pd.DataFrame({"x": x, "y": y, "z": rng.integers(0, 31, n), "s": "a"})


def test_centres_are_those_of_scipy() -> None:
    table = rows(2000, 1)
    h = pinq.simulate(SCHEMA, data=table, epsilon=10**6)
    found = kmeans(h, ["x", "y"], 3, epsilon=10_000)
    centres, labels = kmeans2(table[["x", "y"]].to_numpy(dtype=float), CENTRES, iter=100, minit="matrix")
    order = np.argsort(-np.bincount(labels))
    assert isinstance(found, Clusters)
    np.testing.assert_allclose(found.centers, centres[order], atol=1e-6)
    np.testing.assert_allclose(found.sizes["value"], np.bincount(labels)[order], atol=1e-6)
    assert (found.predict(table) == np.argsort(order)[labels]).all()
    spread = table["x"][labels == order[0]].std(ddof=0) / np.sqrt(found.sizes["value"][0])
    assert (found["high"] - found["value"])[0] == pytest.approx(1.959964 * spread, rel=1e-3)
    assert found.predict(table.assign(x=[np.nan, *table["x"][1:]]))[0] == -1


def test_intervals_of_centres_hold_with_noise() -> None:
    """Centres of 200,000 rows are the truth; 30 tables of 4,000 at epsilon 1, of 180 intervals 171 are expected to hold."""
    truth = kmeans(
        pinq.simulate(SCHEMA.model_copy(update={"max_rows": 200_000}), data=rows(200_000, 99), epsilon=10**6),
        ["x", "y"],
        3,
        epsilon=10_000,
    )
    held = 0
    for seed in range(30):
        h = pinq.simulate(SCHEMA, data=rows(4000, seed), epsilon=1, seed=seed)
        found = kmeans(h, ["x", "y"], 3, epsilon=1)
        held += int(((found["low"] <= truth["value"]) & (truth["value"] <= found["high"])).sum())
    assert 160 <= held <= 179


def test_noise_that_hides_the_rows_is_said() -> None:
    h = pinq.simulate(SCHEMA, data=rows(50, 1), epsilon=1)
    faint = kmeans(h, ["x", "y", "z"], 4, epsilon=0.01)
    assert faint["value"].isna().all()
    assert any("no power" in note for note in faint.notes)


@pytest.mark.parametrize(
    ("columns", "words", "said"),
    [
        ([], {}, "1 to 4"),
        (["x", "y", "z", "x", "y"], {}, "1 to 4"),
        (["x", "x"], {}, "named twice"),
        (["s"], {}, "must be a numeric column"),
        (["x"], {"n_clusters": 0}, "a whole number from 1 to 31"),
        (["x"], {"n_clusters": 32}, "a whole number from 1 to 31"),
    ],
)
def test_a_malformed_request_is_refused_before_any_charge(columns: Any, words: dict[str, Any], said: str) -> None:
    h = pinq.simulate(SCHEMA, data=rows(50, 1), epsilon=10)
    with pytest.raises(QueryError, match=said):
        kmeans(h, columns, **{"n_clusters": 3, "epsilon": 1, **words})
    assert h.budget.spent == 0
