# SPDX-License-Identifier: Apache-2.0
"""``run_simulation`` runs all parties in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from miners.secure.mpc.mpyc_runtime import run_to_end, simulate
from miners.secure.session.protocols import Outcome, Role
from miners.secure.session.session import Session
from pinq.errors import QueryError
from pinq.secure_computation import Holding

__all__ = ["run_simulation"]


def run_simulation(
    session: Session, holdings: Sequence[Holding], lookups: Sequence[np.ndarray | None] = ()
) -> list[Outcome]:
    """Computes what each party would learn, in this process alone. Protects nothing.

    All rows count as one party's, and rows that are looked up are looked up by it; noise is drawn
    once for each party.

    Args:
        session: What all agree on.
        holdings: The rows of each party.
        lookups: The codes of the rows that each party looks up, or None.

    Raises:
        QueryError: A party has more rows than the session admits.
    """
    for member, holding in zip(session.parties, holdings, strict=True):
        if holding.rows > member.rows:
            raise QueryError(
                f"the table of party {member.name} has more rows than `rows` says, {member.rows:,}. "
                "Declare as many as any party may have."
            )
    none = np.zeros((0, len(session.task.sizes)), dtype=np.int64)
    looked_up = [none if rows is None else rows for rows in (lookups or [None] * len(holdings))]
    together = Role(session, Holding.joined(holdings), own_lookups=np.concatenate(looked_up), plays=len(holdings))
    if session.miner() is None:
        outcome = simulate(together.run, session.bits)
    else:
        outcome = run_to_end(together.run(_alone))
    if not len(outcome.looked_up):
        return [outcome] * len(holdings)
    # Parties that look up 2, 0 and 1 rows: cuts at 2 and at 2 leave the second with none.
    by_party = np.split(outcome.looked_up, np.cumsum([len(rows) for rows in looked_up])[:-1])
    return [replace(outcome, looked_up=classes) for classes in by_party]


async def _alone(numbers: np.ndarray) -> np.ndarray:
    """Adds up at the one party there is."""
    return numbers
