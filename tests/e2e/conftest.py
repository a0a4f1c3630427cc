# SPDX-License-Identifier: Apache-2.0
"""A small table and its policy, for the tests of the command."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import HOSTILE, review, run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A table whose columns have hostile names as well."""
    columns: dict[str, Any] = {"age": [20 + i % 60 for i in range(400)], "sex": ["fm"[i % 2] for i in range(400)]}
    columns["income"] = ["low", "high", "low"] * 133 + ["low"]
    columns |= {name: [["[b]u[/b]", "v"][i % 2] for i in range(400)] for name in HOSTILE}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


@pytest.fixture
def policy(data: Path) -> Path:
    """A reviewed policy, with a grant to ``ana``."""
    path = data.parent / "people.yaml"
    assert run("init", data, "--target", "income", "-o", path).exit_code == 0
    review(path)
    assert run("grant", path, "ana", "--epsilon", "1000").exit_code == 0
    return path
