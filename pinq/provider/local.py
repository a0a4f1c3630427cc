# SPDX-License-Identifier: Apache-2.0
"""Handles in the provider's own process: ``pinq.open``, and what a grant's holder sees of the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pinq.analyst.queryable import Budget, PrivateQueryable
from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.errors import QueryError
from pinq.ledger.claim import ledger_url
from pinq.ledger.composition import Costs
from pinq.ledger.grants import load_demand
from pinq.ledger.ledger import Event, Ledger
from pinq.public.epsilon import exact, show
from pinq.public.policy import Policy, load_policy
from pinq.public.queries import Answer, Asked, Preview, Request

__all__ = ["LocalSession", "budget", "history", "open", "open_ledger"]

ANSWERS_AT_A_TIME = 500


class LocalSession:
    """A curator in this process, for one analyst."""

    def __init__(self, name: str, analyst: str, curator: Curator) -> None:
        self.name, self.schema = name, curator.schema
        self._analyst, self._curator = analyst, curator

    def ask(self, request: Request) -> Answer:
        """The answer of the curator."""
        return self._curator.ask(self._analyst, request)

    def preview(self, request: Request) -> Preview:
        """What it would cost."""
        return self._curator.preview(self._analyst, request)

    def budget(self) -> Budget:
        """The analyst's budget as the ledger has it now."""
        return budget(self._curator.ledger, self._analyst)

    def history(self) -> list[Asked]:
        """The analyst's own lines of the log, with the answers."""
        return list(history(self._curator.ledger, self._analyst))

    def terms(self) -> str:
        """What the analyst's grant allows, as the ledger has it now."""
        return str(self._curator.ledger.grants()[self._analyst].terms)

    def close(self) -> None:
        """Frees the encoded copy and the ledger's connections."""
        self._curator.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "A handle cannot be pickled: it would carry the way to the data, or its budget, elsewhere. Open it again where it is needed."
        )


def open(policy: str | os.PathLike[str] | Policy, *, analyst: str, data: Any = None) -> PrivateQueryable:
    """Opens a dataset for an analyst, in this process.

    In one process nothing can be kept from code that looks for it: this handle keeps an honest
    analyst honest.

    Args:
        policy: A policy file, or a loaded policy; reviewed.
        analyst: Who asks; needs a grant (``pinq grant``).
        data: An Arrow table or pandas frame instead of the policy's source.

    Raises:
        PolicyError: Wrong or unreviewed policy, or a source that does not fit it.
        NotAuthorised: No valid grant.
        LedgerError: A ledger that cannot be trusted.
    """
    if not isinstance(analyst, str) or not analyst:
        raise QueryError(f"`analyst` is {analyst!r}; it must be the name of a grant's holder.")
    loaded = load_policy(policy)
    ledger = open_ledger(loaded, provider=False)
    ledger.authorise(analyst)
    engine, _ = open_engine(loaded, data=data, salt=ledger.salt)
    return PrivateQueryable(LocalSession(loaded.dataset, analyst, Curator(loaded.schema_, ledger, engine)))


def open_ledger(policy: Policy, *, create: bool = True, provider: bool = True) -> Ledger:
    """The ledger of a reviewed policy; logs the policy where it changed.

    Args:
        policy: Whose ledger.
        create: Make it where there is none.
        provider: Whether this is the provider's own act. An analyst's opening makes no ledger and
            never raises the cap.

    Raises:
        PolicyError: Unreviewed, or the source is guarded by another ledger.
        LedgerError: It cannot be trusted.
    """
    policy.require_reviewed()
    create = create and provider
    ledger = Ledger(ledger_url(policy, create=create), policy.dataset, create=create)
    schema = policy.schema_
    ledger.declare(
        schema.digest, policy.cap_nano, schema.model_dump(mode="json", exclude_defaults=True), may_raise=provider
    )
    return ledger


def budget(ledger: Ledger, analyst: str) -> Budget:
    """An analyst's budget; what the cap over all analysts leaves bounds what remains."""
    grant = ledger.grants()[analyst]
    spent, cap = ledger.joint()
    return Budget(exact(grant.limit), exact(grant.spent), exact(min(grant.remaining, max(0, cap - spent))))


def history(ledger: Ledger, analyst: str, start: int = 0) -> Iterator[Asked]:
    """An analyst's charges and refusals, oldest first, without the first ``start``; ``spent`` is the total after each. Answers are read some at a time."""
    costs, events = Costs(), ledger.requests_of(analyst)
    for first in range(0, len(events), ANSWERS_AT_A_TIME):
        some = events[first : first + ANSWERS_AT_A_TIME]
        answers = ledger.payloads(analyst, [event.request for event in some]) if first + len(some) > start else {}
        for number, event in enumerate(some, first):
            if event.kind == "charge":
                costs.charge(load_demand(event.body["demand"]), event.body["epsilon"])
            if number >= start:
                yield _asked(event, answers.get(event.request), costs.spent)


def _asked(event: Event, given: str | None, spent: int) -> Asked:
    line: dict[str, Any] = {"outcome": f"refused ({event.body.get('reason')})"}
    if event.kind == "charge":
        answer = None if given is None else Answer.from_json(given)
        outcome = (
            "answered"
            if given
            else "computed among several parties"
            if "session" in event.body
            else "charged, not answered"
        )
        line = {
            "outcome": outcome,
            "epsilon": show(event.body["epsilon"]),
            "answer": answer,
            "classes": event.body.get("classes"),
        }
    return Asked(at=event.at, about=event.body.get("about", ""), spent=show(spent), **line)
