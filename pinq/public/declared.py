# SPDX-License-Identifier: Apache-2.0
"""``Declared`` is what a provider writes down: frozen, without unknown keys, exact numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Generic, Self, TypeVar, cast, overload

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Declared", "FiniteDecimal", "derived"]

# Bounds and steps lie within 1e-100 and 1e100 in size, so that a noisy answer is a double whatever
# the noise: noise is at most 2^64 units, and a scale at most 1e35 of them.
MAX_DIGITS = 100


def _canonical(number: Decimal) -> Decimal:
    """Gives each number one form: 1, 1.0 and 1E0 are one declaration, with one digest."""
    if not number:
        return Decimal(0)
    if not -MAX_DIGITS <= number.adjusted() < MAX_DIGITS:
        raise ValueError(
            f"the number {number:.3g} is not between 1e-{MAX_DIGITS} and 1e{MAX_DIGITS} in size; declare the "
            f"column in another unit"
        )
    # 1E+2 and 100.0 become 100, and 1.50 becomes 1.5.
    digits = format(number, "f")
    return Decimal(digits.rstrip("0").rstrip(".") if "." in digits else digits)


FiniteDecimal = Annotated[Decimal, Field(allow_inf_nan=False), AfterValidator(_canonical)]


T = TypeVar("T")
D = TypeVar("D", bound="Declared")


class derived(Generic[D, T]):
    """A property that follows from the fields of a declaration, computed once.

    What was computed is kept beside the fields, not among them as ``functools.cached_property``
    would keep it: no dump, comparison or copy of a declaration depends on what somebody looked at
    before.
    """

    def __init__(self, compute: Callable[[D], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, declared: None, owner: type) -> Self: ...
    @overload
    def __get__(self, declared: D, owner: type) -> T: ...
    def __get__(self, declared: D | None, owner: type) -> Self | T:
        if declared is None:
            return self
        kept = declared.kept()
        if self._name not in kept:
            kept[self._name] = self._compute(declared)
        return cast(T, kept[self._name])


class Declared(BaseModel):
    """A declaration: frozen, without unknown keys, with room for what is ``derived`` from it."""

    __slots__ = ("_kept",)  # pydantic dumps, compares and copies what is in __dict__
    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(derived,))

    def kept(self) -> dict[str, object]:
        """What was computed from the fields so far, by name. Starts empty, also in a copy."""
        try:
            kept: dict[str, object] = object.__getattribute__(self, "_kept")
        except AttributeError:
            kept = {}
            object.__setattr__(self, "_kept", kept)
        return kept

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A checked copy; pydantic's own takes any fields."""
        fields = {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}
        named = {
            (type(self).model_fields[name].alias if name in type(self).model_fields else None) or name: value
            for name, value in (update or {}).items()
        }
        return type(self).model_validate(fields | named)
