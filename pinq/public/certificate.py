# SPDX-License-Identifier: Apache-2.0
"""``Certificate``: from which released answers a model was made, so that a ledger can vouch for it.

It holds digests alone: of the model's text, of each question and of each answer. Whoever has the
ledger finds the same digests in it (``pinq audit --certificate``); nobody else learns more from it
than from the model.

Privacy:
    Claim: a certificate is free. Why: it follows from the public schema and from released answers.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pinq.errors import QueryError
from pinq.public.queries import Answer, Choose, Question, Request, Vote
from pinq.public.schema import Schema

__all__ = ["Certificate", "Release", "digest_of"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Release(_Frozen):
    """One answer that a model was made from.

    Attributes:
        request: The id under which it was charged.
        question: Digest of schema and question, as the ledger logs it.
        answer: SHA-256 of the answer's text, as the ledger logs it.
        verb: What was asked for.
        epsilon: What each of its parts was charged.
        mechanism: How the answer was drawn.
        sensitivity: What one privacy unit can change, with its unit.
    """

    request: str
    question: str
    answer: str
    verb: str
    epsilon: str
    mechanism: str
    sensitivity: str

    @classmethod
    def of(cls, request: Request, answer: Answer, schema: Schema) -> Release:
        """Describes an answer."""
        mechanism, sensitivity = _mechanism(request.question, answer, schema)
        return cls(
            request=answer.id,
            question=request.identity(schema.digest),
            answer=digest_of(answer.to_json()),
            verb=answer.verb,
            epsilon=answer.epsilon,
            mechanism=mechanism,
            sensitivity=sensitivity,
        )


class Certificate(_Frozen):
    """What a model was made of.

    Attributes:
        miner: The miner with its parameters, as Python writes it.
        model: SHA-256 of the model's JSON text, UTF-8, as ``to_json`` gives it.
        dataset: What the data are called.
        schema_digest: Identifies the public part of the policy.
        epsilon: What the model was to cost, decimal text.
        releases: The answers, in the order in which they came.
    """

    format: Literal["pinq-certificate"] = "pinq-certificate"
    version: Literal[1] = 1
    miner: str
    model: str
    dataset: str
    schema_digest: str
    epsilon: str
    releases: tuple[Release, ...]

    def to_json(self) -> str:
        """Returns the certificate as text, for a file."""
        return self.model_dump_json(indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """Reads a certificate. ``QueryError`` where the text is none."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "the text"
            raise QueryError(f"this is not a certificate: {where} is not as it should be.") from None

    def __repr__(self) -> str:
        return f"Certificate({self.miner}, {len(self.releases)} answers of {self.dataset!r}, model {self.model[:12]})"


def digest_of(text: str) -> str:
    """SHA-256 of a text, in hexadecimal: of an answer as the ledger logs it, of a model."""
    return hashlib.sha256(text.encode()).hexdigest()


def _mechanism(question: Question, answer: Answer, schema: Schema) -> tuple[str, str]:
    """Says how an answer was drawn, and what one privacy unit can change."""
    if answer.scale is not None:
        return "discrete Laplace", f"{answer.scale * float(answer.epsilon):.10g} in the answer's units"
    if isinstance(question, (Choose, Vote)):
        span = question.score.span(schema) * schema.distance
        drawn = "exponential mechanism" if question.textbook else "permute-and-flip, or the weighted exponential one"
        return drawn, f"{span:,} in units of {question.score.kind}"
    return "noisy threshold on a path, once for a whole tree", "1 row"
