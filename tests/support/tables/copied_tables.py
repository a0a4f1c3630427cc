# SPDX-License-Identifier: Apache-2.0
"""Many fits for the price of one: copies of a small table are the parts of a large one, and a tree grows on each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from miners.fitted.tree import Tree
from miners.growth.frontier import grow
from pinq.language.specs import Values
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated


def copies_schema(columns: dict[str, Categorical | Numeric], copies: int, max_rows: int) -> Schema:
    """The columns of one copy, and the number of the copy."""
    return Schema(columns={"copy": Categorical(values=tuple(range(copies))), **columns}, max_rows=copies * max_rows)


def trees_of_copies(miner: Any, schema: Schema, rows: pd.DataFrame, target: str) -> list[Tree]:
    """Grows a tree on each copy, independently: an answer for a part depends on the rows of that part alone.

    Args:
        miner: A miner of one tree. It must not learn from the column ``copy``.
        schema: A schema of ``copies_schema``.
        rows: The rows of one copy.
        target: The column to predict.
    """
    copies = len(schema.categorical("copy").values)
    table = pd.concat([rows] * copies, ignore_index=True)
    table.insert(0, "copy", np.repeat(np.arange(copies), len(rows)))
    (strategy,) = miner._checked(schema, target).strategies
    with simulated(schema, data=table, epsilon=miner.epsilon) as handle:
        grown = grow(handle.partition(Values("copy")), strategy)
        assert handle.budget.spent <= miner.epsilon
    return [Tree(schema, target, nodes) for nodes in strategy.estimates(grown)]
