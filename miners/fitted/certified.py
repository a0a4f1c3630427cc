# SPDX-License-Identifier: Apache-2.0
"""``Certified`` names the released answers that a fitted miner was made from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pinq.errors import QueryError
from pinq.public.certificate import Certificate, Release, digest_of
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

__all__ = ["Certified"]


class Certified:
    """A fitted miner that can say from which answers it was made.

    Attributes:
        releases_: The digests of those answers; not in ``to_json``.
    """

    schema_: Schema
    fitted_on_: str
    releases_: tuple[Release, ...]
    _fit_params: dict[str, Any]

    @abstractmethod
    def to_json(self) -> str:
        """Returns the fitted miner as text."""

    def certificate(self) -> Certificate:
        """From which answers the model was made, for whoever has the ledger; free.

        ``pinq audit POLICY --certificate FILE --model FILE`` compares it with the ledger.

        Raises:
            QueryError: It was not fitted in this process, or on several holders, each with a ledger
                of its own.
        """
        releases = getattr(self, "releases_", None)
        if not releases:
            raise QueryError(
                "only a model that was fitted in this process, on one handle, has a certificate: "
                "take it right after `fit` and keep it with the model."
            )
        return Certificate(
            miner=repr(self),
            model=digest_of(self.to_json()),
            dataset=self.fitted_on_,
            schema_digest=self.schema_.digest,
            epsilon=str(Epsilon.of(self._fit_params["epsilon"])),
            releases=releases,
        )
