# SPDX-License-Identifier: Apache-2.0
"""What a provider looks at while reviewing: values as a policy reads them, and rows of a person.

Raw values and exact numbers, for the provider's eyes only; nothing here is written or logged.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

from pinq.engine import RawTable, largest_group, read_columns
from pinq.engine.encoding import Encoder
from pinq.engine.profile import group_sizes
from pinq.engine.sources import declared_columns
from pinq.errors import PolicyError
from pinq.provider.policy_file import load_policy
from pinq.public.checks import closest, text_of
from pinq.public.policy import Policy
from pinq.public.schema import Column

__all__ = ["Example", "Groups", "examples", "groups", "raw_columns"]

LEFT_OUT = "left out"


@dataclass(frozen=True)
class Example:
    """A value of a row, and how the policy reads it.

    Attributes:
        raw: As the source has it; empty where it holds none.
        read: As queries see it: ``missing``, or ``left out`` where it is no declared value.
    """

    raw: str
    read: str


@dataclass(frozen=True)
class Groups:
    """How many rows the values of a column have: a person's, where it names persons.

    Attributes:
        values: How many values there are.
        largest: In how many rows the commonest stands.
        sizes: Pairs of a number of rows and of how many values have so many, the largest first.
    """

    values: int
    largest: int
    sizes: tuple[tuple[int, int], ...]


def examples(policy: str | os.PathLike[str] | Policy, rows: int = 5) -> dict[str, list[Example]]:
    """Reads some rows as a policy does: for each column, values and what becomes of them.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy)
    with closing(read_columns(loaded)) as raw:
        _require(raw, declared_columns(loaded))
        encoder = Encoder(raw.connection, loaded, raw.types, b"")
        found = raw.connection.execute(encoder.compared(raw.name, rows)).fetchall()
    listed: dict[str, list[Example]] = {}
    for position, (name, column) in enumerate(loaded.columns.items()):
        pairs = (row[2 * position : 2 * position + 2] for row in found)
        listed[name] = [Example(value or "", _read(column, code)) for value, code in pairs]
    return listed


def groups(policy: str | os.PathLike[str] | Policy, column: str, most: int = 6) -> Groups:
    """Counts the rows of each value of a column of the source: is it a person's, and how many has one?

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or has no such column.
    """
    with closing(read_columns(load_policy(policy))) as raw:
        _require(raw, [column])
        values, largest = largest_group(raw.connection, raw.name, column)
        return Groups(values, largest, tuple(group_sizes(raw.connection, raw.name, column, most)))


def raw_columns(policy: str | os.PathLike[str] | Policy) -> list[str]:
    """Names the columns of the source, those too that the policy leaves out."""
    with closing(read_columns(load_policy(policy))) as raw:
        return list(raw.types)


def _require(raw: RawTable, names: list[str]) -> None:
    for name in names:
        if name not in raw.types:
            raise PolicyError(f"The source has no column {name!r}{closest(name, raw.types)}.")


def _read(column: Column, code: int | None) -> str:
    """Writes a code as queries see it."""
    if code is None:
        return LEFT_OUT
    if code == column.null_code:
        return "missing"
    return text_of(column.values[code]) if column.type == "categorical" else column.text(column.number(code))
