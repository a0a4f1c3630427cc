# SPDX-License-Identifier: Apache-2.0
"""``fit_jointly`` runs a miner that asks for sums alone, among parties that trust no one.

Privacy:
    Opens: in each round noisy sums: of a tree the class counts of some nodes, by the values of each
    attribute, or of leaves; of a scorecard counts of the target, alone or in the cells of each
    attribute, or derivatives in the cells of one. Noise is of the size that the question says, so
    parties that asked different ones must not add up: fits decide by floating-point numbers, which
    another machine may round otherwise. So a round compares the question first (``rounds``).
    Claim: together these cost the miner's epsilon. Why: the miner's own argument for a source
    of one holder; ``SecureFederation`` prices each question before anything is shared, by the
    ledger's recursion, and refuses beyond epsilon. What a row moves in a sum, and the noise
    that hides it, is argued in ``additions`` and ``mpc.noise``; the field holds both, for its
    bits follow from the smallest losses and the most units. Held by:
    tests/unit/secure/test_secure_topdown.py, tests/unit/secure/test_secure_card_session.py,
    tests/e2e/test_secure_session.py.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from miners.budget.plan import Plan
from miners.federated.federation import CountSource, SumsNeeded
from miners.secure.id3.task import Task
from miners.secure.mpc.noise import Below
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.sums.additions import most_units
from miners.secure.sums.histogram import noisy_sum_bits
from miners.secure.sums.own_rows import OwnRows
from miners.secure.sums.together import OwnTables, SecureFederation, Sum
from pinq.public.epsilon import Epsilon, Loss
from pinq.public.schema import Schema
from pinq.secure_computation import Holding

__all__ = ["Adder", "Joint", "SumsMiner", "fit_jointly"]


class Adder(Protocol):
    """Adds up what all parties pass, arrays of one length."""

    async def add(self, numbers: np.ndarray) -> np.ndarray: ...


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
        bits = [self._bits(needed.count, 1)]
        if needed.sums is not None:
            bits.append(self._bits(needed.sums, most_units(needed.width)))
        return max(bits)

    def _bits(self, epsilon: Epsilon, units: int) -> int:
        """Returns the bits of sums to which a row adds at most so many units."""
        per_unit = epsilon.per_row(self.task.schema.distance) / units
        return noisy_sum_bits(units * self.task.max_rows, len(self.task.rows), per_unit)


async def fit_jointly(
    adder: Adder, rounds: Rounds, joint: Joint[M], holding: Holding, progress: Callable[[str], None], plays: int
) -> M:
    """Runs one party's side; returns the fitted miner.

    Its fit asks from a thread of its own, and each round of its questions is one addition of all
    parties. A process that plays all parties adds alone.
    """
    loop, fitting = asyncio.get_running_loop(), True
    parties = len(joint.task.rows)

    async def opened(asked: Sum, own: OwnTables) -> list[np.ndarray]:
        if not fitting:  # the session ended while the fit was at work
            raise asyncio.CancelledError
        sources: list[Below] = []

        def draw(below: Below) -> np.ndarray:
            sources.append(below)
            return np.concatenate([cells.ravel() for cells in asked.noise(parties - joint.colluding, below, plays)])

        async def added(noise: np.ndarray) -> np.ndarray:
            # After the charge; and rounding draws from where the noise did, so that a round that is
            # asked again has the same numbers.
            tables = await asyncio.to_thread(own, sources[0])
            sums = await adder.add(noise + np.concatenate([table.ravel() for table in tables]))
            rounds.opened.append(Opened("noisy sum", tuple(sums.tolist())))
            return sums

        sums = await rounds.ask("noisy sum", asked.price, draw, added, question=asked.identity)
        # Arrays of 2 x 3 and of 4 cells are added as one of 10, which is cut at 6 again.
        ends = np.cumsum([math.prod(shape) for shape in asked.shapes])[:-1]
        pieces = zip(np.split(sums.astype(np.int64), ends), asked.shapes, strict=True)
        return [cells.reshape(shape) for cells, shape in pieces]

    def add_up(asked: Sum, own: OwnTables) -> Sequence[np.ndarray]:
        return asyncio.run_coroutine_threadsafe(opened(asked, own), loop).result()

    together = SecureFederation(
        joint.task.schema,
        OwnRows.of_holding(joint.task, holding),
        add_up,
        epsilon=joint.miner.epsilon,
        parties=parties,
        colluding=joint.colluding,
        say=progress,
    )
    try:
        await asyncio.to_thread(joint.miner.fit, together, joint.task.target)
        return joint.miner
    finally:
        fitting = False
