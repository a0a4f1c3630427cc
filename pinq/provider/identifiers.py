# SPDX-License-Identifier: Apache-2.0
"""Which columns of a table look as if they name persons. They may be the privacy unit.

The provider decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pinq.engine import ColumnProfile

__all__ = ["FEW", "Unit", "is_identifier", "is_quantity", "may_be_unit"]

FEW = 20  # so many different values are categories, whatever the column is called
_IDENTITY = r"(^|[\W_])(id|ids|uuid|guid|ssn|key|index|rowid|unnamed)([\W_]|$)|[a-z]I[Dd]$"
_PERSON = r"(person|patient|user|customer|client|member|household|family)[\W_]?id$"
_QUANTITY = (
    r"(^|[\W_])(age|num|number|count|n|years?|hours?|days?|weeks?|months?|minutes?|amount|income|salary|price|cost|"
    r"gain|loss|score|weight|height|size|total|sum|qty|quantity)([\W_]|$)"
)


@dataclass(frozen=True)
class Unit:
    """A column that may name the units whose presence is to be hidden.

    Exact numbers: for the provider's eyes only.
    """

    column: str
    values: int
    rows: int
    largest: int

    def __str__(self) -> str:
        return f"{self.column}: {self.values:,} values in {self.rows:,} rows; the commonest stands in {self.largest:,}"


def is_quantity(name: str) -> bool:
    """Whether a column's name says that it counts or measures."""
    return re.search(_QUANTITY, name.casefold()) is not None


def is_identifier(name: str, seen: ColumnProfile) -> bool:
    """Whether a column names rows or persons.

    It does by its own name, unless its values are few and the name may mean regions.
    """
    return _is_named(name, seen) and (
        re.search(_PERSON, name.casefold()) is not None or seen.distinct >= seen.filled / 100
    )


def may_be_unit(name: str, seen: ColumnProfile) -> bool:
    """Whether a column may name those who have several rows: by its name, or as many texts."""
    texts = seen.numbers < seen.filled or seen.zero_led > 0
    many = seen.distinct > FEW and seen.distinct >= seen.filled / 10
    return _is_named(name, seen) or (texts and many and not is_quantity(name))


def _is_named(name: str, seen: ColumnProfile) -> bool:
    """Whether its name is an identifier's, and its values are neither few nor measured."""
    named = re.search(_IDENTITY, name) or re.search(f"{_IDENTITY}|{_PERSON}", name.casefold())
    return named is not None and seen.distinct > FEW and (seen.whole or seen.numbers < seen.filled)
