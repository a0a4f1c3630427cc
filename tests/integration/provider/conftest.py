# SPDX-License-Identifier: Apache-2.0
"""A small table of people, and a reviewed policy over it."""

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pinq.provider.proposal import propose
from tests.support.tables.reviewed_policies import reviewed


def people_in(folder: Path) -> Path:
    """A table with a column of each kind, in a folder."""
    rows = 400
    pq.write_table(
        pa.table(
            {
                "age": pa.array([18 + i % 70 for i in range(rows)]),
                "children": pa.array([i % 4 for i in range(rows)]),
                "num_visits": pa.array([i % 6 for i in range(rows)]),
                "flag": pa.array([float(i % 2) if i % 9 else None for i in range(rows)]),
                "height": pa.array([1.5 + (i % 100) / 200 for i in range(rows)]),
                "sex": pa.array([["f", "m", None][i % 3] for i in range(rows)]),
                "smoker": pa.array([i % 5 == 0 for i in range(rows)]),
                "person_id": pa.array(range(1000, 1000 + rows)),
                "name": pa.array([f"person {i}" for i in range(rows)]),
                "born": pa.array([date(1950, 1, 1) + timedelta(days=i) for i in range(rows)]),
                "empty": pa.array([None] * rows, pa.string()),
                "tags": pa.array([["a"]] * rows),
            }
        ),
        folder / "people.parquet",
    )
    return folder / "people.parquet"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """The table, in the test's folder."""
    return people_in(tmp_path)


@pytest.fixture(scope="session")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a reviewed policy of the table: it names the table's file as one beside its own."""
    folder = tmp_path_factory.mktemp("proposed")
    return reviewed(propose(people_in(folder), target="sex", folder=folder), cap=2)


@pytest.fixture
def policy(people: Path, proposed: str) -> Path:
    """A reviewed policy of it."""
    path = people.parent / "people.yaml"
    path.write_text(proposed, encoding="utf-8")
    return path
