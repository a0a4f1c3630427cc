# SPDX-License-Identifier: Apache-2.0
"""The wall, as its two sides use it: a server process over TLS, a handle in this one."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from servers import Certificate, Server, publish, serving, token_of

import pinq
from miners import DiffPID3
from pinq import Gini, Values


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    """Two datasets behind TLS."""
    publish(place / "policies", "people")
    publish(place / "policies", "others")
    with serving(place / "policies", folder=place, certificate=Certificate.make(place)) as running:
        yield running


@pytest.fixture
def policy(place: Path) -> Path:
    return place / "policies" / "people.yaml"


def test_the_same_face_over_the_wire(server: Server, policy: Path) -> None:
    """Counts, tables, choices, previews, budget, history and a miner work as in process; the bill is the ledger's."""
    token = token_of(policy, "ana", 10)
    with pinq.connect(server.url(), token=token, **server.words()) as h:
        assert h.schema == pinq.load_policy(policy).schema_
        assert abs(h.noisy_count(epsilon=1) - 400) < 40
        table = h.partition(Values("sex"), Values("income")).noisy_count(epsilon="0.5")
        assert table.shape == (2, 2)
        assert table.dtype == np.int64
        assert h.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=0.5) in (Values("sex"), Values("job"))
        preview = h.preview("noisy_avg", "age", epsilon=1)
        assert (preview.cost, preview.remaining) == (1, 7)
        assert h.budget == pinq.Budget(Fraction(10), Fraction(2), Fraction(8))
        tree = DiffPID3(epsilon=1.0, max_depth=2).fit(h, "income")
        assert tree.cost_ == 1
        assert h.budget.spent == 3
        with pytest.raises(pinq.BudgetExceeded) as refused:
            h.noisy_count(epsilon=8)
        assert (refused.value.asked, refused.value.remaining, refused.value.scope) == (8, 7, "analyst")
        assert "Nothing was spent" in str(refused.value)
        assert h.history()["outcome"].tolist()[-1] == "refused (budget)"
