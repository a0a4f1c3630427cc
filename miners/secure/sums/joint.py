# SPDX-License-Identifier: Apache-2.0
"""``fit_jointly`` runs a miner that asks for sums alone, among parties that trust no one.

Privacy:
    Opens: in each round a number that says whether all ask the same, then noisy sums: of a
    tree the class counts of some nodes, by the values of each attribute, or of leaves; of a
    scorecard counts of the target, alone or in the cells of each attribute, or derivatives in
    the cells of one. Noise is of the size that the question says, so parties that asked
    different ones must not add up: fits decide by floating-point numbers, which another machine
    may round otherwise.
    Claim: together these cost the miner's epsilon. Why: the miner's own argument for a source
    of one holder; ``SecureFederation`` prices each question before anything is shared, by the
    ledger's recursion, and refuses beyond epsilon. What a row moves in a sum, and the noise
    that hides it, is argued in ``additions`` and ``histogram``; the field holds both, for its
    bits follow from the smallest losses and the most units. Held by:
    tests/unit/secure/test_secure_topdown.py, tests/unit/secure/test_secure_card_session.py,
    tests/e2e/test_secure_session.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from miners.budget.plan import Plan
from miners.federated.federation import CountSource, SumsNeeded
from miners.secure.id3.task import Task
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.sums.additions import most_units
from miners.secure.sums.histogram import noisy_sum_bits, noisy_sums
from miners.secure.sums.own_rows import OwnRows
from miners.secure.sums.together import SecureFederation
from pinq.errors import SessionError
from pinq.public.epsilon import Epsilon, Loss
from pinq.public.schema import Schema
from pinq.public.secure_computation import Holding

__all__ = ["Joint", "SumsMiner", "fit_jointly"]

AGREED_BITS = 48  # of a question's digest, by which parties see that they ask the same


class SumsMiner(Protocol):
    """A miner whose fit asks for counts and sums alone."""

    epsilon: Loss

    def fit(self, handle: CountSource, target: str) -> object:
        """Learns from a source of sums."""

    def plan(self, schema: Schema, target: str, *, holders: int) -> Plan:
        """Says what ``fit`` is going to ask."""

    def sums_needed(self, schema: Schema, target: str) -> SumsNeeded:
        """Returns what a fit asks of parties that add up."""


M = TypeVar("M", bound=SumsMiner)


@dataclass(frozen=True)
class Joint(Generic[M]):
    """How a miner learns from sums of all parties.

    Attributes:
        miner: What every party runs; new for each run.
        task: The public facts.
        colluding: How many parties may pool the noise that they drew.
    """

    miner: M
    task: Task
    colluding: int

    @cached_property
    def bits(self) -> int:
        """The bits of every sum, from the smallest losses at which the miner asks.

        ``QueryError`` where its noise would be too large, or the miner refuses.
        """
        needed = self.miner.sums_needed(self.task.schema, self.task.target)
        # The digests of up to 32 parties add up to less than 2^53, which takes 54 bits with a sign.
        bits = [AGREED_BITS + 6, self._bits(needed.count, 1)]
        if needed.sums is not None:
            bits.append(self._bits(needed.sums, most_units(needed.width)))
        return max(bits)

    def _bits(self, epsilon: Epsilon, units: int) -> int:
        """Returns the bits of sums to which a row adds at most so many units."""
        per_unit = epsilon.per_row(self.task.schema.distance) / units
        return noisy_sum_bits(units * self.task.max_rows, len(self.task.rows), per_unit)


async def fit_jointly(
    arithmetic: Arithmetic, task: Task, joint: Joint[M], holding: Holding, progress: Callable[[str], None]
) -> M:
    """Runs one party's side; returns the fitted miner.

    Its fit asks from a thread of its own, and each round of its questions is one addition of all
    parties.
    """
    loop, fitting = asyncio.get_running_loop(), True

    async def opened(tables: Sequence[np.ndarray], epsilons: Sequence[Fraction], question: bytes) -> list[np.ndarray]:
        if not fitting:  # the session ended while the fit was at work
            raise asyncio.CancelledError
        if not await arithmetic.agree(int.from_bytes(question[: AGREED_BITS // 8], "big"), "question"):
            raise SessionError(
                "the parties' fits do not ask the same question: do all run the same version, "
                "on the same kind of machine? Nothing of this round left any party."
            )
        return await noisy_sums(arithmetic, tables, epsilons, joint.colluding)

    def add_up(tables: Sequence[np.ndarray], epsilons: Sequence[Fraction], question: bytes) -> Sequence[np.ndarray]:
        return asyncio.run_coroutine_threadsafe(opened(tables, epsilons, question), loop).result()

    together = SecureFederation(
        joint.task.schema,
        OwnRows.of_holding(task, holding),
        add_up,
        epsilon=joint.miner.epsilon,
        parties=arithmetic.parties,
        colluding=joint.colluding,
        say=progress,
    )
    try:
        await asyncio.to_thread(joint.miner.fit, together, task.target)
        return joint.miner
    finally:
        fitting = False
