# SPDX-License-Identifier: Apache-2.0
"""The tables of the paper that are at hand, and its synthetic ones.

Domains and bins are such as anyone could declare without seeing a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.harness import datasets
from pinq import Cuts, Schema, Values
from pinq.language.specs import bind

__all__ = ["BINS", "NAMES", "Dataset", "load", "synthetic"]

NAMES = ("adult", "mushroom", "soybean", "cmc")
# Five bins each, like the paper's, but of round numbers: the paper found its own by k-means on the
# private table, which releases them exactly.
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


@dataclass(frozen=True)
class Dataset:
    """A table and what is public about it.

    Attributes:
        frame: The attributes; the class stands apart.
        classes: The class of each row, None where there is none.
    """

    name: str
    schema: Schema
    frame: pd.DataFrame
    classes: pd.Series | None = None

    @property
    def attributes(self) -> list[str]:
        """The names of all attributes."""
        return list(self.schema.columns)

    @property
    def codes(self) -> np.ndarray:
        """The declared value or bin of each row along each attribute, shape (attributes, rows)."""
        rows = []
        for name in self.attributes:
            axis = bind(self.spec(name), self.schema).axes[0]
            rows.append(axis.parts_of(self.schema.columns[name].encode(self.frame[name])))
        return np.array(rows)

    @property
    def sizes(self) -> list[int]:
        """The number of values or bins of each attribute."""
        return [bind(self.spec(name), self.schema).size for name in self.attributes]

    def spec(self, name: str) -> Cuts | Values:
        """Returns how an attribute is told apart."""
        return Cuts(name, BINS[name]) if self.schema.columns[name].type == "numeric" else Values(name)

    def under(self, adjacency: str) -> Schema:
        """Returns the schema with another adjacency."""
        return self.schema.model_copy(update={"adjacency": adjacency})


def load(name: str) -> Dataset:
    """Reads a table with the declared bins; the class stands apart.

    Raises:
        SystemExit: It is not there; says what to do.
    """
    schema, target, rows = datasets.load(name)
    columns: dict[str, dict[str, object]] = {}
    for column, declaration in schema.columns.items():
        if column in (target, "fold"):
            continue
        columns[column] = declaration.model_dump(exclude_none=True)
        if declaration.type == "numeric":
            columns[column]["cuts"] = BINS[column]
    return Dataset(name, Schema(columns=columns, max_rows=len(rows)), rows[list(columns)], rows[target])


N_SYNTHETIC = 10_000
N_COLUMNS = 11


def synthetic(kind: str, noise: float, seed: int = 0) -> tuple[Dataset, str, tuple[str, ...]]:
    """Makes one of Synth-A to Synth-D of appendix A.1: 10,000 x 11 booleans.

    Returns:
        The table, the target's name, and the context that is to be found.
    """
    random = np.random.default_rng([seed, ord(kind), round(100 * noise)])
    columns = _blocks(noise, random) if kind == "D" else _copies(kind, noise, random)
    context = 4 if kind == "D" else 3
    columns += [random.integers(0, 2, N_SYNTHETIC) for _ in range(N_COLUMNS - len(columns))]
    frame = pd.DataFrame({f"x{i}": np.where(column == 1, "yes", "no") for i, column in enumerate(columns)})
    boolean = {"type": "categorical", "values": ["no", "yes"]}
    schema = Schema(columns=dict.fromkeys(frame.columns, boolean), max_rows=N_SYNTHETIC)
    return Dataset(f"synth-{kind.lower()}-{noise}", schema, frame), "x0", tuple(f"x{i}" for i in range(1, 1 + context))


def _blocks(noise: float, random: np.random.Generator) -> list[np.ndarray]:
    """Returns Synth-D's columns: each is 1 in its own fifth of the rows, but for noise."""
    blocks = np.repeat(np.eye(5, dtype=np.int64), N_SYNTHETIC // 5, axis=0).T
    return [_swapped(column, noise, random) for column in blocks]


def _copies(kind: str, noise: float, random: np.random.Generator) -> list[np.ndarray]:
    """Returns a target and three noisy copies of it; in Synth-C two noisier ones, too."""
    target = np.zeros(N_SYNTHETIC, dtype=np.int64)
    target[: 5000 if kind == "A" else 2000] = 1
    copies = [_swapped(target, noise, random) for _ in range(3)]
    noisier = [_swapped(target, 0.35, random) for _ in range(2)] if kind == "C" else []
    return [target, *copies, *noisier]


def _swapped(column: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """Returns a column of booleans with a share of its values turned round."""
    rows = random.choice(N_SYNTHETIC, round(share * N_SYNTHETIC), replace=False)
    changed = column.copy()
    changed[rows] = 1 - changed[rows]
    return changed
