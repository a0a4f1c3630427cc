# SPDX-License-Identifier: Apache-2.0
"""``COMPUTATION`` gives the provider's ``pinq secure`` command the protocols of this folder.

It is registered as the entry point ``computation`` of the group ``pinq.provider.secure``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miners.secure.id3.task import Table, hold
from miners.secure.mpc.mpyc_runtime import field_bits, threshold_of
from miners.secure.session.estimate import estimate
from miners.secure.session.local import run_simulation
from miners.secure.session.party import run_party
from miners.secure.session.protocols import Outcome
from miners.secure.session.session import Session, first_certificate, load_session
from pinq.secure_computation import Booking, FieldSize, Holding, Joining, SecureComputation, Traffic

__all__ = ["COMPUTATION", "MPyCComputation"]


class MPyCComputation:
    """Runs sessions of ``miners.secure`` on MPyC; see ``SecureComputation``."""

    load_session = staticmethod(load_session)
    draft_session = staticmethod(Session.drafted)
    certificate = staticmethod(first_certificate)
    estimate = staticmethod(estimate)

    def field_size(self, session: Session) -> FieldSize:
        bits, parties = session.bits, len(session.parties)
        return FieldSize(bits, field_bits(bits, parties), threshold_of(parties))

    def plan(self, session: Session) -> str:
        miner = session.miner()
        if miner is None:
            return ""
        return repr(miner.plan(session.schema_, session.target, holders=len(session.parties)))

    def hold(self, session: Session, table: Table) -> Holding:
        return hold(session.task, table)

    def lookup_codes(self, session: Session, table: Table) -> np.ndarray:
        return session.task.lookup_codes(table)

    def run(
        self,
        session: Session,
        joining: Joining,
        holding: Holding,
        *,
        lookups: np.ndarray | None,
        booking: Booking,
    ) -> tuple[Outcome, Traffic]:
        return run_party(session, joining, holding, booking, lookups)

    def simulate(self, session: Session, holdings: Sequence[Holding]) -> Outcome:
        return run_simulation(session, holdings)[0]


COMPUTATION: SecureComputation[Session] = MPyCComputation()
