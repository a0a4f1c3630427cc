# SPDX-License-Identifier: Apache-2.0
"""A small table and its policy, for the tests of the command; a policy that is published again and again, for those of faults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pinq.policy.policy import Policy
from tests.support.processes.commands import HOSTILE, review, run


def table_in(folder: Path) -> Path:
    """A table whose columns have hostile names as well, in a folder."""
    columns: dict[str, Any] = {"age": [20 + i % 60 for i in range(400)], "sex": ["fm"[i % 2] for i in range(400)]}
    columns["income"] = ["low", "high", "low"] * 133 + ["low"]
    columns |= {name: [["[b]u[/b]", "v"][i % 2] for i in range(400)] for name in HOSTILE}
    pq.write_table(pa.table(columns), folder / "people.parquet")
    return folder / "people.parquet"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The table, in the test's folder."""
    return table_in(tmp_path)


@pytest.fixture(scope="session")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a reviewed policy of the table: it names the table's file as one beside its own."""
    folder = tmp_path_factory.mktemp("proposed")
    path = folder / "people.yaml"
    assert run("init", table_in(folder), "--target", "income", "-o", path).exit_code == 0
    review(path)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def policy(data: Path, proposed: str) -> Path:
    """A reviewed policy, with a grant to ``ana``."""
    path = data.parent / "people.yaml"
    path.write_text(proposed, encoding="utf-8")
    assert run("grant", path, "ana", "--epsilon", "1000").exit_code == 0
    return path


@pytest.fixture
def columns(tiny_policy: Policy) -> dict[str, Any]:
    """The declared columns, to change one of them."""
    return {
        name: column.model_dump(exclude_defaults=True) | {"type": column.type}
        for name, column in tiny_policy.columns.items()
    }


@pytest.fixture
def published(tmp_path: Path, frame: pd.DataFrame, columns: dict[str, Any]) -> Callable[..., Path]:
    """Writes a policy over ``data/adult.parquet``; each call another file, the same rows."""
    (tmp_path / "data").mkdir()
    frame.to_parquet(tmp_path / "data" / "adult.parquet")

    def publish(name: str = "one.yaml", source: str = "data/adult.parquet", **changes: Any) -> Path:
        policy = Policy(
            **{"dataset": "adult", "source": source, "cap": 10, "max_rows": 1000, "columns": columns} | changes
        )
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(policy.to_yaml(), encoding="utf-8")
        return file

    return publish
