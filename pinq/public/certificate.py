# SPDX-License-Identifier: Apache-2.0
"""``Certificate``: under which request ids a model's answers were charged, so that a ledger can prove it.

Privacy:
    Claim: a certificate is free. Why: it holds ids that the analyst drew, and public parts.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pinq.errors import QueryError
from pinq.public.queries import WireParts

__all__ = ["Certificate"]


class Certificate(BaseModel):
    """Which answers of a ledger a model was made from. It claims nothing: an audit makes the model again.

    Attributes:
        part: The part of the table that the model was fitted on.
        requests: The ids under which the answers were charged, in the order in which they came.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["pinq-certificate"] = "pinq-certificate"
    version: Literal[2] = 2
    part: WireParts
    requests: tuple[str, ...]

    def to_json(self) -> str:
        """Returns the certificate as text, for a file."""
        return self.model_dump_json(indent=1, exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """Reads a certificate. ``QueryError`` where the text is none."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "the text"
            raise QueryError(f"this is not a certificate: {where} is not as it should be.") from None
