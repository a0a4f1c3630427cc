# SPDX-License-Identifier: Apache-2.0
"""All engines, and worlds to test them on: a policy of hostile names and a table that may not fit it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from pinq.engine import open_engine
from pinq.language.derivatives import Packing, RowMeasure
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Axis
from pinq.policy.policy import Policy
from tests.support.tables.spark import ON_SPARK, RUN, open_on_spark

EXPLORE = bool(os.environ.get("PINQ_EXPLORE"))


def examples(usual: int, many: int) -> int:
    """The number of drawn examples; few for Spark, which takes seconds for each."""
    return many if EXPLORE else max(2, usual // 12) if RUN else usual


Opener = Callable[..., Any]
"""Takes a policy, ``data``, ``salt`` and ``report``; gives an engine and what it reports."""

ENGINES: dict[str, Opener] = {"ArrayEngine": open_engine, "SparkEngine": open_on_spark}
every_engine = pytest.mark.parametrize(
    "opener", [open_engine, pytest.param(open_on_spark, marks=ON_SPARK)], ids=list(ENGINES)
)
WHOLE = PartSet([Block(Part())])


@dataclass(frozen=True, eq=False)
class Lookups(RowMeasure):
    """A public function of a row: numbers looked up at its places, and multiplied.

    Attributes:
        inputs: The inputs of the function.
        tables: The table of values along each input, shape (2, places).
    """

    inputs: tuple[Axis, ...]
    tables: tuple[np.ndarray, ...]
    width = 2
    steps = 2

    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]:  # type: ignore[override]
        return tuple((axis,) for axis in self.inputs)

    @property
    def packing(self) -> Packing:  # type: ignore[override]
        most = 100 ** len(self.inputs)
        return Packing.of([(-most, most)] * 2)

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        factors = [table[:, place] for table, place in zip(self.tables, places, strict=True)]
        return np.prod(np.stack(factors), axis=0)

    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        return self.packing.packed(self.of(cells))


HOSTILE = [
    "select",
    'a"b',
    "c0",
    "c1",
    "row_coin",
    "unit",
    "codes",
    "source",
    "価格",
    "x; DROP TABLE codes --",
    "p",
    "m",
    "%s",
    " x",
    "k0",
    "'",
    "\u00e9",
    "e\u0301",
]
TEXTS = ["a", "b'", 'c"', "", " a", "NULL", "select", "\u00e9", "e\u0301", "nan", "1", "true", "\\", "ß"]
NUMBERS = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e308, -1e308, 5e-324, 0.3, 10.0, 9.999999999]),
    st.floats(-20, 30),
    st.integers(-3, 14).map(float),
)


@st.composite
def worlds(draw: Any) -> tuple[Policy, pd.DataFrame]:
    """A policy of a few columns and a table with values that fit it, or not."""
    names = draw(st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=4, unique=True))
    rows = draw(st.integers(0, 40))
    columns: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for place, name in enumerate(names):
        nullable = draw(st.booleans())
        if place == 0 or draw(st.booleans()):
            values = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6, unique=True))
            columns[name] = {"type": "categorical", "values": values, "nullable": nullable}
            data[name] = draw(
                st.lists(st.sampled_from([*values, *values, "undeclared", None]), min_size=rows, max_size=rows)
            )
        else:
            grid = draw(
                st.sampled_from(
                    [
                        {"lower": 0, "upper": 10},
                        {"lower": -3, "upper": 9, "integer": True},
                        {"lower": 0, "upper": 1, "step": "0.1"},
                    ]
                )
            )
            columns[name] = {"type": "numeric", "nullable": nullable, **grid}
            data[name] = draw(st.lists(NUMBERS, min_size=rows, max_size=rows))
    frame = pd.DataFrame(
        {
            name: pd.Series(values, dtype=object if columns[name]["type"] == "categorical" else float)
            for name, values in data.items()
        }
    )
    return Policy(dataset="world", cap=1, max_rows=1000, columns=columns), frame
