# SPDX-License-Identifier: Apache-2.0
"""``Stored``: how a value of the log becomes JSON and comes back, by the types of its fields."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from pinq.public.checks import is_whole
from pinq.public.epsilon import Epsilon

__all__ = ["Body", "Loss", "Moment", "Stored", "Texts", "Whole", "digest_of"]

MOST_NANO = 2**60
Body = dict[str, Any]
"""JSON, read from outside: each value checks it field by field when it is read."""


def _loss(stored: object) -> Epsilon:
    if not is_whole(stored, 0, MOST_NANO):
        raise ValueError(f"{str(stored)[:40]!r} is no loss in nano-epsilons")
    return Epsilon(stored)


def _moment(stored: object) -> datetime | None:
    if stored is None:
        return None
    if not isinstance(stored, str):
        raise ValueError(f"{str(stored)[:40]!r} is no time")
    moment = datetime.fromisoformat(stored)
    if moment.tzinfo is None:
        raise ValueError(f"{stored!r} has no zone")
    return moment


Loss = Annotated[Epsilon, PlainValidator(_loss), PlainSerializer(lambda loss: loss.nano)]
"""A loss, stored as whole nano-epsilons."""
Moment = Annotated[
    datetime | None, PlainValidator(_moment), PlainSerializer(lambda moment: moment and moment.isoformat())
]
"""A time with its zone, ISO 8601, or none."""
Texts = tuple[str, ...]
"""A list of texts."""
Whole = Annotated[int, Field(ge=0, strict=True)]
"""A whole number from 0 on."""


class Stored:
    """A frozen dataclass that the log keeps.

    Fields are written in their order. A field that has its default is left out, and a field that is
    not known is refused.

    Attributes:
        flat: The field, if any, whose own fields are written in its place.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    flat: ClassVar[str] = ""

    def to_body(self) -> Body:
        """Writes it down as JSON."""
        body: Body = {}
        written = _adapter(type(self)).dump_python(self, mode="json", exclude_defaults=True)  # type: ignore[arg-type]
        for name, value in written.items():
            body |= value if name == self.flat else {name: value}
        return body

    @classmethod
    def from_body(cls, body: Body) -> Self:
        """Reads it back. ``ValueError`` for a field that is unknown, missing or of another type."""
        if cls.flat:
            own = {field.name for field in fields(cls)} - {cls.flat}  # type: ignore[arg-type]
            rest = {name: value for name, value in body.items() if name not in own}
            body = {name: value for name, value in body.items() if name in own} | {cls.flat: rest}
        try:
            read: Self = _adapter(cls).validate_python(body)  # type: ignore[arg-type]
        except ValidationError as error:
            raise ValueError("; ".join(_told(each["loc"], each) for each in error.errors())) from None
        return read


def digest_of(text: str) -> str:
    """SHA-256 of an answer's text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _told(place: tuple[object, ...], error: Any) -> str:
    field = place[-1] if place else ""
    return repr(field) if error["type"] == "missing" else f"{field!r}: {error['msg']}"
