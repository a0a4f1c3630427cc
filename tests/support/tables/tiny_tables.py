# SPDX-License-Identifier: Apache-2.0
"""A tiny table and the policy that fits it; and a tinier one, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from pinq.policy.policy import Policy

COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "values": ["Female", "Male"]},
    "job": {"type": "categorical", "values": ["clerk", "nurse", "smith"], "nullable": True},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
    "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
}
PEOPLE = """
dataset: people
source: people.parquet
cap: 2
max_rows: 1000
columns:
  sex: {type: categorical, values: [f, m]}
"""


def people_in(folder: Path, more: str = "") -> Path:
    """Writes a hundred people with one column, and their policy.

    Args:
        folder: The folder of the files.
        more: Further lines of the policy.

    Returns:
        The policy's file.
    """
    pd.DataFrame({"sex": ["f", "m"] * 50}).to_parquet(folder / "people.parquet")
    (folder / "people.yaml").write_text(PEOPLE + more)
    return folder / "people.yaml"


def policy_in(folder: Path) -> Policy:
    """A reviewed policy without a source, whose ledger lies in a folder."""
    return Policy(dataset="tiny", cap=1000, max_rows=1000, columns=COLUMNS, folder=folder)


def rows() -> pd.DataFrame:
    """Forty rows that fit the policy."""
    return pd.DataFrame(
        {
            "sex": ["Female", "Male"] * 20,
            "job": ["clerk", "nurse", "smith", None] * 10,
            "age": [2 * i for i in range(40)],
            "income": ["<=50K"] * 25 + [">50K"] * 15,
        }
    )
