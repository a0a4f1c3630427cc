# SPDX-License-Identifier: Apache-2.0
"""A table of a hundred columns, learned through a server: requests stay small, and the bill is the plan."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import pinq
from miners import Synthesizer
from tests.support.processes.servers import publish, serving, token_of

COLUMNS, ROUNDS = 100, 1


def test_a_synthesizer_learns_a_hundred_columns_through_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one round, which chooses among as many pairs as a request holds."""
    monkeypatch.setattr("miners.synthesizer.purchase.ROUNDS", 0.0)
    monkeypatch.setattr("miners.synthesizer.purchase.LEAST_ROUNDS", ROUNDS / COLUMNS)
    values = ["a", "b", "c", "d"]
    columns = {f"c{number}": {"type": "categorical", "values": values} for number in range(COLUMNS)}
    rows = pd.DataFrame({f"c{number}": [values[(i * i + number) % 4] for i in range(400)] for number in range(COLUMNS)})
    policy = publish(tmp_path, "wide", rows, columns=columns)
    token = token_of(policy, epsilon=1)
    with (
        serving(policy, folder=tmp_path) as server,
        pinq.connect(server.url("wide"), token=token, **server.words()) as handle,
    ):
        miner = Synthesizer(epsilon=1, random_state=0).fit(handle)
    assert miner.cost_ == miner.plan(miner.schema_).total == 1
    pairs = [bought.columns for bought in miner.model_.bought if len(bought.columns) == 2]
    assert len(pairs) == ROUNDS
    assert miner.sample(10, random_state=0).shape == (10, COLUMNS)
