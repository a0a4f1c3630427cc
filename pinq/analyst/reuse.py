# SPDX-License-Identifier: Apache-2.0
"""The same handle, whose answers are found again (``reusing``) or noted (``recording``).

A verb with ``reuse=True`` finds the last answer to the same question. A fit asks many questions; it
may ask one of them twice and wants two answers, each with noise of its own, the same two when all
is asked again. So each question gets an id that follows from what it is and how often it was asked
before: sha256 of ``reuse``, its identity (the digest of schema and question that the ledger logs)
and that number. The ledger answers an id that it has charged as it did the first time.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, defaultdict
from collections.abc import Callable

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Session
from pinq.public.certificate import Certificate
from pinq.public.queries import Answer, Request, WireParts

__all__ = ["recording", "reusing"]


class Reusing:
    """Asks what was asked before under the same ids, counting each question.

    Args:
        session: Who answers.
        before_first: Called before the first question where that is not paid for yet.

    Privacy:
        Nothing changes at the curator: an id is charged once, ``reuse`` costs nothing where the
        question was charged, and everything else is charged as ever.
    """

    def __init__(self, session: Session, before_first: Callable[[], None]) -> None:
        self._session, self._before_first = session, before_first
        self._begun = False
        self._times: Counter[str] = Counter()
        self._seen: defaultdict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def ask(self, request: Request) -> Answer:
        """Returns the paid answer to this question, or a new one.

        A question that comes first may have been asked without this session; then its last answer
        will do. One that comes again is a question of its own. The last answer may be that of a
        number to come: then the next number is taken.
        """
        identity = request.identity(self._session.schema.digest)
        with self._lock:  # questions asked side by side wait until the first may be asked at all
            number = self._times[identity]
            request = request.model_copy(update={"id": _key(identity, number), "reuse": True if number == 0 else None})
            if not self._begun and self._session.preview(request).cost > 0:
                self._before_first()
            self._begun = True
            self._times[identity] += 1
        answer = self._session.ask(request)
        while answer.id in self._seen[identity]:
            number += 1
            answer = self._session.ask(request.model_copy(update={"id": _key(identity, number)}))
        self._seen[identity].add(answer.id)
        return answer


def reusing(handle: PrivateQueryable, before_first: Callable[[], None]) -> PrivateQueryable:
    """Returns a handle on the same part, for one fit; see ``Reusing``."""
    return handle.through(lambda session: Reusing(session, before_first).ask)


def _key(identity: str, number: int) -> str:
    return hashlib.sha256(f"reuse {identity} {number}".encode()).hexdigest()[:32]


def recording(handle: PrivateQueryable) -> tuple[PrivateQueryable, Callable[[], Certificate]]:
    """Returns a handle on the same part that notes the id of each answer, and what gives their certificate so far."""
    ids: list[str] = []
    part = WireParts.of(handle.parts().part_set)

    def noting(session: Session) -> Callable[[Request], Answer]:
        def ask(request: Request) -> Answer:
            answer = session.ask(request)
            ids.append(answer.id)
            return answer

        return ask

    return handle.through(noting), lambda: Certificate(part=part, requests=tuple(ids))
