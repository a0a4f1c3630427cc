# SPDX-License-Identifier: Apache-2.0
"""``Declared`` is what a provider writes down: frozen, without unknown keys, exact numbers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from decimal import Decimal
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Declared", "FiniteDecimal"]

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


class Declared(BaseModel):
    """A declaration: frozen, and without unknown keys.

    What follows from its fields is a ``functools.cached_property``: no dump, comparison, copy or pickle
    of a declaration depends on what was computed before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        # `help` begins with the signature: names and defaults, without how pydantic checks them.
        plain = [one.replace(annotation=Parameter.empty) for one in signature(cls).parameters.values()]
        cls.__signature__ = Signature(plain)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name not in fields or value != fields[name].default:
                yield name, value

    def __getstate__(self) -> dict[Any, Any]:
        """The fields alone."""
        fields = {name: value for name, value in self.__dict__.items() if name in type(self).model_fields}
        return super().__getstate__() | {"__dict__": fields}

    def __copy__(self) -> Self:
        """A checked copy."""
        return self.model_copy()

    def __deepcopy__(self, memo: object = None) -> Self:
        """A checked copy, whose declarations nobody else has."""
        return pickle.loads(pickle.dumps(self))

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A checked copy; pydantic's own takes any fields."""
        fields = {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}
        named = {
            (type(self).model_fields[name].alias if name in type(self).model_fields else None) or name: value
            for name, value in (update or {}).items()
        }
        return type(self).model_validate(fields | named)
