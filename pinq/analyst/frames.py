# SPDX-License-Identifier: Apache-2.0
"""Answers as labelled tables: a row for each part, a column for each spec that made it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from pinq.public.parts import PartSet

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NUMBERS", "answer_html", "keys_of", "with_axes"]

SHOWN_ROWS = 20  # of a table in a notebook
NUMBERS = ("value", "low", "high", "scale", "epsilon")  # columns of every answer
AXES = ("cell", "entry")  # of the sums of a loss, below the parts


def keys_of(parts: PartSet) -> pd.DataFrame:
    """Returns what each part is, in flat order; the label of missing values is None.

    Parts that do not come from one partition have one column, ``part``. A key that is called like a
    number of the answer gets an underscore: a table's own ``value`` is ``value_``.
    """
    import pandas as pd

    block = parts.blocks[0] if len(parts.blocks) == 1 else None
    if block is None or block.partition is None:
        return pd.DataFrame({"part": [str(part) for part in parts]})
    named = [axis.column or "shard" for axis in block.partition.axes]
    names = [f"{name}_" if name in NUMBERS else name for name in named]
    rows = [block.partition.labels(number) for number in range(len(block))]
    # Of a column that it types by itself pandas makes a missing label nan, and whole numbers beside
    # it floats.
    kind = object if any(None in row for row in rows) else None
    return pd.DataFrame(rows, columns=names, dtype=kind)


def with_axes(keys: pd.DataFrame, shape: tuple[int, ...]) -> pd.DataFrame:
    """Repeats each row for the numbers that a part has of its own, and numbers them.

    Args:
        keys: A row for each part.
        shape: Of one part's numbers: () for one, else those of a loss: its entries, or the cells of
            ``by`` and the entries in each.
    """
    numbers = int(np.prod(shape))
    if not shape:
        return keys
    repeated = keys.loc[np.repeat(keys.index, numbers)].reset_index(drop=True)
    for name, positions in zip(AXES[-len(shape) :], np.indices(shape).reshape(len(shape), -1), strict=True):
        repeated[name] = np.tile(positions, len(keys))
    return repeated


def answer_html(title: str, frame: pd.DataFrame) -> str:
    """Returns an answer as a notebook shows it: its title, and the first rows of its table."""
    more = f"<p>... and {len(frame) - SHOWN_ROWS:,} more</p>" if len(frame) > SHOWN_ROWS else ""
    table = frame.head(SHOWN_ROWS).to_html(index=False, float_format="{:g}".format)
    return f"<p>{escape(title)}</p>{table}{more}"
