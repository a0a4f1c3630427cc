# SPDX-License-Identifier: Apache-2.0
"""A question that was checked against the schema: what to read of the data, and what to release of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from pinq.engine.tables import ListRequest, Moments, TableRequest
from pinq.errors import QueryError
from pinq.ledger.composition import Demand
from pinq.public.parts import PartSet
from pinq.public.schema import Numeric
from pinq.public.specs import Spec

__all__ = ["Noise", "PreparedQuery", "Released", "about", "grid_error", "require_room"]

MAX_TABLE_CELLS = 2**26


class Released(NamedTuple):
    """What an answer says of the rows.

    Attributes:
        values: Numbers in the parts' order.
        chosen: The specs that the numbers of a choice count through.
        rows: For averages, the noisy number of rows of each part.
    """

    values: list[Any]
    chosen: tuple[Spec, ...] = ()
    rows: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Noise:
    """How exact an answer will be, by public facts.

    Attributes:
        error: In words.
        scale: Scale of the discrete Laplace noise in the answer's units; None where there is none.
        grid: Distance of neighbouring possible answers.
        uniform: Whether each part's answer has this scale. An average's is divided by its part's
            rows.
    """

    error: str
    scale: float | None = None
    grid: float | None = None
    uniform: bool = True


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """What stands between the check of a question and its answer.

    Attributes:
        parts: Whom it asks.
        about: One line for the log: the question, by public facts.
        noise: How exact the answer will be, at a loss for one row.
        release: The answer, from exact tables and the loss for one row. Only here do they meet
            noise.
        tables: What the engine is to count.
        moments: What the engine is to sum up.
        charged: Where the loss falls, unless it is on the parts themselves.
    """

    parts: PartSet
    about: str
    noise: Callable[[Fraction], Noise]
    release: Callable[[list[Any], Fraction], Released]
    tables: tuple[TableRequest | ListRequest, ...] = (TableRequest(),)
    moments: Moments | None = None
    charged: PartSet | None = None

    def __post_init__(self) -> None:
        # The engine keeps one more place along each axis, for rows in no part of it.
        dense = [table for table in self.tables if isinstance(table, TableRequest) and not table.sparse]
        require_room(sum((len(self.parts) + 1) * math.prod(axis.size + 1 for axis in table.axes) for table in dense))

    @property
    def demand(self) -> Demand:
        """Where the question is charged."""
        return Demand.of(self.parts if self.charged is None else self.charged)


def require_room(cells: int) -> None:
    """``QueryError`` where tables of so many cells are too large."""
    if cells > MAX_TABLE_CELLS:
        raise QueryError(
            f"the request needs tables of {cells:,} cells; at most {MAX_TABLE_CELLS:,} are possible. "
            "Ask fewer parts or coarser ones."
        )


def about(what: str, parts: PartSet) -> str:
    """One line for the log: what is asked, and of which parts."""
    where = str(parts.at(0)) if len(parts) == 1 else f"{len(parts):,} parts"
    splits = [block.partition for block in parts.blocks if block.partition is not None]
    if len(parts.blocks) == 1 and splits:
        names = [axis.column if axis.column is not None else "shards" for axis in splits[0].axes]
        above = parts.blocks[0].part
        where = f"{len(parts):,} parts by {' x '.join(names)}" + (f" of {above}" if above.depth else "")
    return f"{what} on {where}"[:200]


def grid_error(column: Numeric) -> str:
    """How far the public grid moves a value, in words."""
    if column.integer and column.width == 1:
        return "and the grid is exact"
    return f"and the grid moves a value by at most {float(column.width - int(column.integer)) / 2:.3g}"
