# SPDX-License-Identifier: Apache-2.0
"""The coins of rows are made when shards are first asked for, and can be stopped."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable
from itertools import count
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from pinq.curator.deadline import Stopped
from pinq.engine.codes import Codes, RowBlock
from pinq.engine.shards import ShardColumns, coins_of


@pytest.mark.parametrize("stop", [0, 1])
def test_making_coins_can_be_stopped(stop: int) -> None:
    """Before each block, and while the rows are numbered: what the check raises ends the work, and nothing is kept."""
    columns: dict[Hashable, np.ndarray] = {
        f"c{number}": np.arange(300_000, dtype=np.uint32) % np.uint32(7 + number) for number in range(6)
    }
    codes = SimpleNamespace(rows=300_000, blocks=[RowBlock(columns, 300_000)], require=list)
    made, looks = ShardColumns(cast(Codes, codes), b"salt"), count()

    def check() -> None:
        if next(looks) == stop:
            raise Stopped

    with pytest.raises(Stopped):
        made.columns([("shards", 0, 2)], check)
    (column,) = made.columns([("shards", 0, 2)], check).values()
    assert set(column) == {0, 1}


@pytest.mark.parametrize("codes", [4, 2**30], ids=["one word", "words that are numbered"])
def test_coins_are_digests_of_text_that_no_version_changes(codes: int) -> None:
    """A row's codes and its number among equal rows: what the ledger's forests of years ago were drawn by."""
    random = np.random.default_rng(3)
    table = random.integers(0, 2, (5, 40)).astype(np.uint32) * (codes - 1)  # each row some times
    blocks = [
        RowBlock({f"c{n}": line[rows] for n, line in enumerate(table)}, 20) for rows in np.split(np.arange(40), 2)
    ]
    coins = coins_of(cast(Codes, SimpleNamespace(rows=40, blocks=blocks, require=list)), b"salt")
    seen, expected = Counter[tuple[int, ...]](), []
    for row in map(tuple, table.T.tolist()):
        seen[row] += 1
        digest = hashlib.md5(f"{b'salt'.hex()}:{','.join(map(str, row))}#{seen[row]}".encode()).digest()
        expected.append((row, int.from_bytes(digest[8:], "little")))
    assert sorted(zip(map(tuple, table.T.tolist()), coins.tolist(), strict=True)) == sorted(expected)
