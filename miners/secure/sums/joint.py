# SPDX-License-Identifier: Apache-2.0
"""``grow_jointly`` runs DP-TopDown among parties that trust no one, on noisy sums."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from miners.secure.id3.task import Task
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.sums.histogram import noisy_sum_bits, noisy_sums
from miners.secure.sums.own_rows import OwnRows
from miners.secure.sums.together import SecureFederation
from pinq.errors import SessionError
from pinq.public.secure_computation import Holding

if TYPE_CHECKING:
    from miners.federated.topdown import DPTopDown
    from miners.fitted.tree import Tree

__all__ = ["Joint", "grow_jointly"]

AGREED_BITS = 48  # of a question's digest, by which parties see that they ask the same


@dataclass(frozen=True)
class Joint:
    """How a tree grows from sums of all parties.

    Attributes:
        miner: What every party runs; new for each run.
        task: The public facts.
        colluding: How many parties may pool the noise that they drew.
    """

    miner: DPTopDown
    task: Task
    colluding: int

    @cached_property
    def bits(self) -> int:
        """The bits of every sum, from the smallest loss at which the miner asks for a count.

        ``QueryError`` where its noise would be too large, or the miner refuses.
        """
        smallest = self.miner.smallest_count_loss(self.task.schema, self.task.target)
        per_row = smallest / self.task.schema.distance
        # The digests of up to 32 parties add up to less than 2^53, which takes 54 bits with a sign.
        return max(AGREED_BITS + 6, noisy_sum_bits(self.task.max_rows, len(self.task.rows), per_row))


async def grow_jointly(
    arithmetic: Arithmetic, task: Task, joint: Joint, holding: Holding, progress: Callable[[str], None]
) -> Tree:
    """Runs one party's side.

    Its growth asks from a thread of its own, and each round of its questions is one addition of all
    parties.

    Privacy:
        Opens: in each round a number that says whether all ask the same, then the noisy class
        counts of some nodes, by the values of each attribute, or of leaves. Noise is of the size
        that the question says, so parties that asked different ones must not add up: growth decides
        by floating-point numbers, which another machine may round otherwise.
    """
    loop, growing = asyncio.get_running_loop(), True

    async def opened(tables: Sequence[np.ndarray], epsilons: Sequence[Fraction], question: bytes) -> list[np.ndarray]:
        if not growing:  # the session ended while the growth was at work
            raise asyncio.CancelledError
        if not await arithmetic.agree(int.from_bytes(question[: AGREED_BITS // 8], "big"), "question"):
            raise SessionError(
                "the parties' growths do not ask the same question: do all run the same version, "
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
        return (await asyncio.to_thread(joint.miner.fit, together, task.target)).tree_
    finally:
        growing = False
