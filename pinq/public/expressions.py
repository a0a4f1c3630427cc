# SPDX-License-Identifier: Apache-2.0
"""What specs, families and scores share: each is a frozen value that answers for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from pinq.errors import QueryError
from pinq.public.schema import Schema

if TYPE_CHECKING:
    from pinq.public.factors import Splitting

__all__ = ["Expression"]

_PLAIN = frozenset({str, int, float, bool, type(None)})  # what nearly all members are


class Expression(ABC):
    """A spec, a family of candidates, or a score: a frozen dataclass with a ``kind``.

    Whoever handles an expression asks it, and never looks at its class; so a new class cannot be
    forgotten anywhere.
    """

    # On the wire the number 1 is neither true nor 1.0 nor "1", and a field that the class does not
    # have is no request.
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    kind: str

    @abstractmethod
    def columns(self) -> set[str]:
        """The columns that it names: what a grant's terms are compared with."""

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """``QueryError`` unless it means something under this schema."""

    @property
    def as_spec(self) -> Splitting | None:
        """Itself where it is a spec, which splits parts; None for a family and for a score."""
        return None

    def named(self) -> int:
        """How many cut points and values it lists: what to check it takes grows with them."""
        return 0

    def inner(self) -> tuple[Expression, ...]:
        """The specs that it looks at rows through, beside those that it is asked with."""
        return ()

    @cached_property
    def identity(self) -> Hashable:
        """The kind and all values with their types.

        For Python ``True == 1``, but a column can have both as values.
        """
        identity = (self.kind, *[_tagged(getattr(self, name)) for name in _names(type(self))])
        try:
            hash(identity)
        except TypeError:
            raise QueryError(f"{self!r} holds something that is not a plain value.") from None
        return identity


@lru_cache(maxsize=64)
def _names(kind: type[Expression]) -> list[str]:
    """The fields of a class that tell its values apart."""
    return [field.name for field in fields(kind) if field.name != "kind"]  # type: ignore[arg-type]


def _tagged(value: object) -> Hashable:
    kind = type(value)
    if kind not in _PLAIN:
        if isinstance(value, Expression):
            return value.identity
        if isinstance(value, tuple):
            return tuple([_tagged(member) for member in value])
    return kind.__name__, value
