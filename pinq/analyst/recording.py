# SPDX-License-Identifier: Apache-2.0
"""``recording``: the same handle, which notes the digests of all that is answered through it."""

from __future__ import annotations

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Forwarding, Session
from pinq.public.certificate import Release
from pinq.public.queries import Answer, Request

__all__ = ["Recording", "recording"]


class Recording(Forwarding):
    """A session that notes each answer.

    Args:
        session: Who answers.
        noted: Where the answers are noted, in their order.
    """

    def __init__(self, session: Session, noted: list[Release]) -> None:
        super().__init__(session)
        self._noted = noted

    def ask(self, request: Request) -> Answer:
        """Passes a request on, and notes its answer."""
        answer = super().ask(request)
        self._noted.append(Release.of(request, answer, self.schema))
        return answer


def recording(handle: PrivateQueryable) -> tuple[PrivateQueryable, list[Release]]:
    """Returns a handle on the same part, and the list that fills as it is asked."""
    noted: list[Release] = []
    return handle.through(lambda session: Recording(session, noted)), noted
