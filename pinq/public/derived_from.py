# SPDX-License-Identifier: Apache-2.0
"""What a column is made of where the source does not have it: other columns, a formula, a table.

The formula is SQL over one row, which ``pinq/engine/formulas.py`` checks and runs. Both sides know
it: analysts read what a column means, and a column that is made otherwise is another one.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from pinq.public.declared import Declared

__all__ = ["DerivedFrom", "Lookup"]

MAX_FORMULA = 1000  # characters: what one row's value may cost is bounded


class Lookup(Declared):
    """A public table in which each value is looked up: postcodes to regions."""

    file: str = Field(min_length=1, description="a CSV or Parquet file, relative to the policy")
    key: str = Field(min_length=1, description="its column of values to find")
    value: str = Field(min_length=1, description="its column of values to take")
    digest: str | None = Field(default=None, description="of its pairs; filled in when the policy is read")


def _listed(names: object) -> object:
    return (names,) if isinstance(names, str) else names


class DerivedFrom(Declared):
    """The part of a column's declaration that says how the source gives it."""

    sources: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(), alias="from", description="the source's columns that it is made of; by default the one of its name"
    )
    formula: str | None = Field(
        default=None,
        max_length=MAX_FORMULA,
        description="SQL over one row of these columns; by default their one value",
    )
    lookup: Lookup | None = Field(default=None, description="a public table in which the value is looked up")

    @field_validator("sources")
    @classmethod
    def _named_once(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.casefold() for name in sources}) < len(sources) or "" in sources:
            raise ValueError("a column of `from` stands twice, or has no name")
        return sources

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.sources and (self.formula is not None or self.lookup is not None):
            raise ValueError("`from` is missing; it names the source's columns that the formula or lookup reads")
        if len(self.sources) > 1 and self.formula is None:
            raise ValueError("`formula` is missing; it says how one value is made of several columns")
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leaves out what a plain column does not say, so that its digest is what it always was."""
        fields: dict[str, object] = dump(self)
        sources = fields.pop("sources", fields.pop("from", ()))
        origin = {"from": sources} if sources else {}
        return origin | {name: value for name, value in fields.items() if name not in UNSAID or value is not None}

    @property
    def is_derived(self) -> bool:
        """Whether the source does not have it as it is."""
        return bool(self.sources)

    @property
    def as_given(self) -> Self:
        """The same domain, as a column that the source has."""
        return self.model_copy(update={"sources": (), "formula": None, "lookup": None})

    @property
    def made_of(self) -> str:
        """What it is made of, as the end of a line."""
        return f", from {', '.join(self.sources)}" if self.sources else ""


UNSAID = ("formula", "lookup", "other")
"""Keys that are left out of a declaration's dump where nothing is said."""
