# SPDX-License-Identifier: Apache-2.0
"""A source's whole numbers are encoded as the same numbers are that it holds as floating point."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pinq.engine.encoding import encode
from pinq.public.policy import Policy

LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("bounds", [(0, 9), (-5, 3), (1000, 1_500_999), (-(2**40), -(2**40) + 7)])
def test_whole_numbers_have_the_cells_of_their_doubles(bounds: tuple[int, int], nullable: bool) -> None:
    """At and beyond the bounds, at the ends of 64 bits, and where they are missing."""
    lower, upper = bounds
    number = {"type": "numeric", "lower": lower, "upper": upper, "integer": True, "step": 1, "nullable": nullable}
    policy = Policy(dataset="d", cap=1, max_rows=99, columns={"n": number})
    near = [edge + step for edge in bounds for step in (-1, 0, 1)]
    rows = [LEAST, *near, (lower + upper) // 2, 0, MOST, *([None] if nullable else [])]
    cells = [
        encode(pa.table({"n": pa.array(rows, pa.int64()).cast(kind, safe=False)}), policy).column("c0").to_pylist()
        for kind in (pa.int64(), pa.float64())
    ]
    assert (
        cells[0]
        == cells[1]
        == policy.schema_.columns["n"].encode([np.nan if row is None else row for row in rows]).tolist()
    )


def test_narrow_whole_numbers_do_not_overflow() -> None:
    """Octets, with and without a sign, on a grid far from 0."""
    number = {"type": "numeric", "lower": -1000, "upper": 250, "integer": True}
    policy = Policy(dataset="d", cap=1, max_rows=99, columns={"n": number})
    for kind in (pa.uint8(), pa.int8(), pa.uint32()):
        encoded = encode(pa.table({"n": pa.array([0, 1, 127], kind)}), policy)
        assert encoded.column("c0").to_pylist() == [1000, 1001, 1127]
