# SPDX-License-Identifier: Apache-2.0
"""Tables on neighbours: quantiles and spreads tell two tables apart by no more than their epsilon.

Their questions follow from earlier answers, so what is compared is the whole released row. ``COPIES`` groups are as many
independent tables, for parts are disjoint.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import pinq.curator.mechanisms
from miners.tables import Table, quantiles, std
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.schema import Numeric
from tests.support.requests.handles import simulated
from tests.support.tables.copied_tables import copies_schema

EPSILON, COPIES = 1.0, 400
SCHEMA = copies_schema({"x": Numeric(lower=0, upper=7, integer=True)}, COPIES, max_rows=12)

# A table's function; rows that one more at 7 makes another table, the median's cut moves on, or the spread is told from
# noise; and the number that its answers are compared with.
ASKED: dict[str, tuple[Callable[..., Table], list[int], int]] = {
    "median": (
        lambda handle: quantiles(handle, "x", [0.5], by="copy", epsilon=EPSILON),
        [0] * 4 + [6] + [7] * 4,
        5,
    ),
    "std": (lambda handle: std(handle, "x", by="copy", epsilon=EPSILON), [0] * 7 + [7] * 4, 2),
}


def loss_of(name: str) -> float:
    """A loss that a table has at least, by its numbers read coarsely."""
    ask, rows, threshold = ASKED[name]

    def released(extra: int, runs: int) -> list[bool]:
        copy = [*rows, *[7] * extra]
        data = pd.DataFrame({"copy": np.repeat(np.arange(COPIES), len(copy)), "x": np.tile(copy, COPIES)})
        with simulated(SCHEMA, data=data, epsilon=EPSILON) as handle:
            return (ask(handle).frame["value"] > threshold)[:runs].tolist()

    return epsilon_lower_bound(released, 0, 1, runs=COPIES, error=1e-6)


@pytest.mark.parametrize("name", ASKED)
def test_a_table_loses_no_more_than_its_epsilon(name: str) -> None:
    assert loss_of(name) <= EPSILON


@pytest.mark.parametrize("name", ASKED)
def test_a_table_that_forgets_its_noise_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would see counts and choices without noise."""
    choose = pinq.curator.mechanisms.choose_weighted
    monkeypatch.setattr(pinq.curator.mechanisms, "scale_of", lambda sensitivity, epsilon: 1e-3)
    monkeypatch.setattr(
        "pinq.curator.candidates.selection.choose_weighted",
        lambda candidates, span, epsilon, *whole: choose(candidates, span, epsilon * 1000, *whole),
    )
    assert loss_of(name) > 1.5 * EPSILON
