# SPDX-License-Identifier: Apache-2.0
"""Opening takes a source's whole numbers to the cells of the same numbers in floating point, each once, without pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pinq.engine.encoding import encode, encoder_of
from pinq.policy.policy import Policy
from tests.support.house.checkout import ROOT

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


def test_each_value_is_read_once() -> None:
    """The condition on codes stands above them in the plan: pushed below, it would read each value again."""
    number = {"type": "numeric", "lower": 0, "upper": 9, "integer": True}
    text = {"type": "categorical", "values": ["a", "b"]}
    policy = Policy(dataset="d", cap=1, max_rows=9, columns={"n": number, "s": text})
    with encoder_of(pa.table({"n": ["1"], "s": ["a"]}), policy, b"") as (connection, encoder):
        plan = connection.execute(f"EXPLAIN (FORMAT json) {encoder.encoded('source')}").fetchall()[0][1]
    assert plan.count("TRY_CAST(n AS DOUBLE)") == 1
    assert plan.count('"Expression"') == 1


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv"])
def test_opening_a_file_takes_no_pandas_along(name: str, tmp_path: Path) -> None:
    """Which takes a quarter of a second: nothing of it is needed between a file and its codes, kept ones too."""
    pq.write_table(pa.table({"n": [1, 2, 3], "s": ["a", "b", "a"]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("n,s\n1,a\n2,b\n3,a\n")
    code = """
import sys
from pathlib import Path
from pinq.engine import open_engine, sources
from pinq.policy.policy import Policy
number, text = {"type": "numeric", "lower": 0, "upper": 9, "integer": True}, {"type": "categorical", "values": ["a", "b"]}
folder, name = sys.argv[1:]
policy = Policy(dataset="d", cap=1, max_rows=9, source=name, columns={"n": number, "s": text}, folder=Path(folder))
for sources.IN_MEMORY_BYTES in (2**25, 0):
    engine, _ = open_engine(policy, salt=b"")
    assert engine.rows() == 3
    engine.close()
assert len(list(Path(folder).rglob("*.codes"))) == 1
assert "pandas" not in sys.modules
"""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path), name], cwd=ROOT, env=environment, check=True)
