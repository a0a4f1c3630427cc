# SPDX-License-Identifier: Apache-2.0
"""The tables of the paper that are at hand, with domains and bins that anyone could declare without seeing a row, and its synthetic ones."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import datasets
from pinq import Cuts, Schema, Values
from pinq.public.specs import bind

__all__ = ["BINS", "NAMES", "Dataset", "MissingData", "load", "synthetic"]

NAMES = ("adult", "mushroom", "soybean", "cmc")
# Five bins each, like the paper's, but of round numbers: the paper found them by k-means on the private table, which releases them exactly.
BINS = {
    "age": (25, 35, 45, 60),
    "fnlwgt": (100_000, 200_000, 300_000, 500_000),
    "education_num": (9, 10, 12, 14),
    "capital_gain": (1, 5_000, 10_000, 50_000),
    "capital_loss": (1, 1_500, 2_000, 2_500),
    "hours_per_week": (20, 40, 41, 60),
    "wife_age": (22, 28, 34, 41),
    "num_children": (1, 2, 4, 6),
}


class MissingData(FileNotFoundError):
    """The data sets are not where they were looked for."""


@dataclass(frozen=True)
class Dataset:
    """A table and what is public about it.

    Attributes:
        frame: The attributes; the class is apart.
        classes: The class of each row, None where there is none.
    """

    name: str
    schema: Schema
    frame: pd.DataFrame
    classes: pd.Series | None = None

    @property
    def attributes(self) -> list[str]:
        return list(self.schema.columns)

    @property
    def codes(self) -> np.ndarray:
        """The declared value or bin of each row along each attribute, shape (attributes, rows)."""
        return np.array(
            [
                bind(self.spec(name), self.schema).axes[0].parts_of(self.schema.columns[name].encode(self.frame[name]))
                for name in self.attributes
            ]
        )

    @property
    def sizes(self) -> list[int]:
        return [bind(self.spec(name), self.schema).size for name in self.attributes]

    def spec(self, name: str) -> Any:
        return Cuts(name, BINS[name]) if self.schema.columns[name].type == "numeric" else Values(name)

    def under(self, adjacency: str) -> Schema:
        """The schema with another adjacency."""
        return self.schema.model_copy(update={"adjacency": adjacency})


def load(name: str, place: str | os.PathLike[str] | None = None) -> Dataset:
    """Reads ``NAME.parquet`` and ``NAME.json``.

    Raises:
        MissingData: They are not there; says what to do.
    """
    where = Path(place) if place else datasets.folder()
    if not (where / f"{name}.parquet").exists() or not (where / f"{name}.json").exists():
        raise MissingData(
            f"{name}.parquet and {name}.json are not in {where}. Put the UCI table and its schema there (see benchmarks/papers/dilca/README.md), "
            "or say where they are with --data or the environment variable PINQ_DATA."
        )
    public = json.loads((where / f"{name}.json").read_text(encoding="utf-8"))
    rows = pd.read_parquet(where / f"{name}.parquet")
    columns: dict[str, Any] = {}
    for column, declared in public["columns"].items():
        if column in (public["target"], "fold"):
            continue
        if declared["type"] == "numeric":
            columns[column] = {
                "type": "numeric",
                "lower": declared["lower"],
                "upper": declared["upper"],
                "integer": declared.get("integer", False),
                "cuts": BINS[column],
            }
        else:  # UCI documents which columns have missing values
            columns[column] = {
                "type": "categorical",
                "values": declared["values"],
                "nullable": bool(rows[column].isna().any()),
            }
    return Dataset(name, Schema(columns=columns, max_rows=len(rows)), rows[list(columns)], rows[public["target"]])


def synthetic(kind: str, noise: float, seed: int = 0) -> tuple[Dataset, str, tuple[str, ...]]:
    """Synth-A to Synth-D of appendix A.1: 10,000 x 11 booleans.

    Returns:
        The table, the target's name, and the context that is to be found.
    """
    random = np.random.default_rng([seed, ord(kind), round(100 * noise)])
    rows = 10_000

    def swapped(column: np.ndarray, share: float) -> np.ndarray:
        places = random.choice(rows, round(share * rows), replace=False)
        changed = column.copy()
        changed[places] = 1 - changed[places]
        return changed

    if kind == "D":
        blocks = np.repeat(np.eye(5, dtype=np.int64), rows // 5, axis=0).T
        columns = [swapped(column, noise) for column in blocks]
        context = 4
    else:
        target = np.zeros(rows, dtype=np.int64)
        target[: 5000 if kind == "A" else 2000] = 1
        columns = [target, *(swapped(target, noise) for _ in range(3))]
        columns += [swapped(target, 0.35) for _ in range(2)] if kind == "C" else []
        context = 3
    columns += [random.integers(0, 2, rows) for _ in range(11 - len(columns))]
    frame = pd.DataFrame({f"x{i}": np.where(column == 1, "yes", "no") for i, column in enumerate(columns)})
    schema = Schema(
        columns={name: {"type": "categorical", "values": ["no", "yes"]} for name in frame.columns}, max_rows=rows
    )
    return Dataset(f"synth-{kind.lower()}-{noise}", schema, frame), "x0", tuple(f"x{i}" for i in range(1, 1 + context))
