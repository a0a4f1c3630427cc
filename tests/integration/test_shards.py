# SPDX-License-Identifier: Apache-2.0
"""The coins of rows are made when shards are first asked for, and can be stopped."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from pinq.curator.turn import Stopped
from pinq.engine.codes import Codes, RowBlock
from pinq.engine.shards import ShardColumns


@pytest.mark.parametrize("stop", [0, 1])
def test_making_coins_can_be_stopped(stop: int) -> None:
    """Before each block, and while the rows are numbered: what the check raises ends the work, and nothing is kept."""
    columns: dict[Hashable, np.ndarray] = {f"c{number}": np.arange(300_000) % (7 + number) for number in range(6)}
    codes = SimpleNamespace(rows=300_000, blocks=[RowBlock(columns, 300_000)])
    made, looks = ShardColumns(cast(Codes, codes), b"salt"), count()

    def check() -> None:
        if next(looks) == stop:
            raise Stopped

    with pytest.raises(Stopped):
        made.columns([("shards", 0, 2)], check)
    (column,) = made.columns([("shards", 0, 2)], check).values()
    assert set(column) == {0, 1}
