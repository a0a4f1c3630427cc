# SPDX-License-Identifier: Apache-2.0
"""Whole fits on neighbouring tables: what the tree shows tells the tables apart by no more than epsilon.

Each question's law has its own test and their sum is the ledger's, so gross leaks are looked for here: a fit that shows the row
for sure has a bound of 2.9 or more at ``COPIES`` draws and an error of 1e-6, twice the claim, and is tried.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

import pinq.curator.mechanisms
from miners import DiffPC45, DiffPID3, SuLQID3
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.schema import Categorical, Numeric
from tests.support.tables.copied_tables import copies_schema, trees_of_copies

EPSILON = Fraction(3, 2)
COPIES = 600
SCHEMA = copies_schema(
    {
        "a": Categorical(values=("u", "v")),
        "x": Numeric(lower=0, upper=3, integer=True, cuts=(2,)),
        "y": Categorical(values=("n", "p")),
    },
    COPIES,
    max_rows=20,
)


def table(extra: int) -> pd.DataFrame:
    """Twelve rows of one class at one place; the row more stands alone with its class, where both columns set it apart."""
    return pd.DataFrame({"a": ["u"] * 12 + ["v"] * extra, "x": [0] * 12 + [3] * extra, "y": ["p"] * 12 + ["n"] * extra})


def loss_of_fits(miner: Any, variant: str) -> float:
    """A loss that whole fits have at least, by the split and every noisy count, coarsely, as an attacker would compare."""
    params: dict[str, Any] = {"certainty": None} if miner is DiffPC45 else {}
    built = miner(epsilon=EPSILON, max_depth=1, variant=variant, attributes=["a", "x"], **params)

    def fits(extra: int, runs: int) -> list[Any]:
        trees = trees_of_copies(built, SCHEMA, table(extra), "y")
        return [
            (
                getattr(tree.nodes[0].split, "column", None),
                *(round(count) > 0 for node in tree.nodes for count in node.counts[:1]),
            )
            for tree in trees[:runs]
        ]

    return epsilon_lower_bound(fits, 0, 1, runs=COPIES, error=1e-6)


@pytest.mark.parametrize("variant", ["best", "paper"])
@pytest.mark.parametrize("miner", [SuLQID3, DiffPID3, DiffPC45])
def test_a_whole_fit_loses_no_more_than_its_epsilon(miner: Any, variant: str) -> None:
    """On neighbours that the whole tree, split and counts together, tells apart as well as it can."""
    assert loss_of_fits(miner, variant) <= EPSILON


def test_a_whole_fit_that_forgets_its_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would see a fit that looks at the rows."""
    monkeypatch.setattr(pinq.curator.mechanisms, "scale_of", lambda sensitivity, epsilon: 1e-3)
    assert loss_of_fits(DiffPID3, "best") > 1.9 * EPSILON
