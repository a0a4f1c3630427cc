# SPDX-License-Identifier: Apache-2.0
"""Handles whose budget does not end, and whose exact scores are computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np
import pandas as pd

import pinq
from pinq.curator.candidates.scorer import Crossing
from pinq.curator.monitor import Curator
from pinq.ledger.composition import Cap, Costs, Demand
from pinq.ledger.events import LoggedQuery
from pinq.ledger.state import Account, LedgerState
from pinq.provider.local import LocalSession
from pinq.public.epsilon import Epsilon

__all__ = ["unlimited_handle"]

T = TypeVar("T")
MemberScores = Callable[..., np.ndarray]
ENDLESS = Epsilon(10**18)


def remembered(member_scores: MemberScores) -> MemberScores:
    """Wraps a method of exact scores, which do not change between runs on the same table."""
    known_scores: dict[Hashable, np.ndarray] = {}

    def scores(cross: Crossing, size: int, score: Callable[..., np.ndarray], check: Callable[[], None]) -> np.ndarray:
        frame = getattr(score, "__self__", None)
        if frame is None:  # no curator asks
            return member_scores(cross, size, score, check)
        # The first rows tell tables apart: there are few, and to hash whole ones takes the time it saves.
        table = (cross.codes[:, :64].tobytes(), cross.codes.shape, cross.target[:64].tobytes(), cross.counts.tobytes())
        key = (*table, cross.sizes, size, repr(frame.score), frame.schema.digest)
        if key not in known_scores:
            known_scores[key] = member_scores(cross, size, score, check)
        return known_scores[key]

    return scores


Crossing.member_scores = remembered(Crossing.member_scores)  # type: ignore[method-assign]


class PassingLedger:
    """A ledger that says yes and counts, and keeps no log.

    Noise is measured here, and nobody reads a log of a million simulated charges.
    """

    url = "sqlite://"  # of no place that another handle could share

    def __init__(self) -> None:
        self.costs = Costs()
        self.state = LedgerState()  # of no events: there is nothing to tell of
        self.log = self

    def run(self, look: Callable[[PassingLedger], T]) -> T:
        return look(self)

    def charge(
        self, analyst: str, request: str, demand: Demand, epsilon: Epsilon, question: LoggedQuery, **terms: object
    ) -> tuple[None, None]:
        self.costs.charge(demand, epsilon)
        return None, None

    def attempt(self, *asked: object, **terms: object) -> None:
        """Covers every act."""

    def answer(self, analyst: str, request: str, payload: str) -> str:
        return payload

    def price(self, analyst: str, demand: Demand, epsilon: Epsilon, **terms: object) -> tuple[Epsilon, Epsilon]:
        return self.costs.price(demand, epsilon), ENDLESS

    def grants(self) -> dict[str, Account]:
        return {"simulated": Account("simulated", Cap(ENDLESS), granted=True, limit=ENDLESS, costs=self.costs)}

    def work_per_minute(self, analyst: str) -> int | None:
        return None

    def accounts(self) -> dict[str, Account]:
        return self.grants()


def unlimited_handle(schema: pinq.Schema, rows: pd.DataFrame) -> pinq.PrivateQueryable:
    """Returns a handle like ``pinq.simulate``'s, with a budget that does not end and no log."""
    simulated = pinq.simulate(schema, data=rows)
    engine = simulated._session._curator._engine  # type: ignore[attr-defined]
    curator = Curator(schema, PassingLedger(), engine)  # type: ignore[arg-type]
    return pinq.PrivateQueryable(LocalSession("simulated", "simulated", curator))
