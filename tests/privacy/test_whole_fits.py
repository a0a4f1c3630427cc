# SPDX-License-Identifier: Apache-2.0
"""Whole fits on neighbouring tables: what the tree shows tells the tables apart by no more than epsilon."""

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

from miners import DiffPC45, DiffPID3, SuLQID3
from pinq.provider.simulation import simulate
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.schema import Categorical, Numeric, Schema

SCHEMA = Schema(
    columns={
        "a": Categorical(values=("u", "v")),
        "x": Numeric(lower=0, upper=3, integer=True, cuts=(2,)),
        "y": Categorical(values=("n", "p")),
    },
    max_rows=20,
)
EPSILON = Fraction(3)
RUNS = 120


def table(extra: Any) -> Any:
    """Twelve rows of one class at one place; the row more stands alone with its class, where both columns set it apart."""
    return pd.DataFrame({"a": ["u"] * 12 + ["v"] * extra, "x": [0] * 12 + [3] * extra, "y": ["p"] * 12 + ["n"] * extra})


@pytest.mark.parametrize("variant", ["best", "paper"])
@pytest.mark.parametrize("miner", [SuLQID3, DiffPID3, DiffPC45])
def test_a_whole_fit_loses_no_more_than_its_epsilon(miner: Any, variant: Any) -> None:
    """Few runs, so gross leaks only: each question's law has its own test, and their sum is the ledger's. What is compared is the split and every noisy count, coarsely, as an attacker would."""

    def fits(handle: Any, runs: Any) -> Any:
        seen = []
        for _ in range(runs):
            tree = (
                miner(
                    epsilon=EPSILON, max_depth=1, variant=variant, **({"certainty": None} if miner is DiffPC45 else {})
                )
                .fit(handle, "y")
                .tree_
            )
            split = tree.nodes[0].split
            seen.append(
                (split and split.column, *(round(count) > 0 for node in tree.nodes for count in node.counts[:1]))
            )
        return seen

    handles = [simulate(SCHEMA, data=table(extra), epsilon=EPSILON * RUNS) for extra in (0, 1)]
    try:
        assert epsilon_lower_bound(fits, *handles, runs=RUNS, error=1e-6) <= EPSILON
        assert all(handle.budget.spent <= EPSILON * RUNS for handle in handles)
    finally:
        for handle in handles:
            handle.close()
