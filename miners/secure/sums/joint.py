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
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Union

import numpy as np

from miners.secure.id3.task import Task
from miners.secure.mpc.noise import Below
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.sums.additions import OwnRows, most_units
from miners.secure.sums.together import JointSum, OwnTables, SecureFederation, noisy_sum_bits
from pinq.public.epsilon import Epsilon
from pinq.secure_computation import Holding

if TYPE_CHECKING:  # they import scikit-learn's manners and pandas, which no other protocol needs
    from miners.federated.scorecard import HoldersCardMiner
    from miners.federated.topdown import FederatedTopDown

__all__ = ["Miner", "fit_jointly", "sum_bits"]

Miner = Union["FederatedTopDown", "HoldersCardMiner"]
"""A miner whose fit asks for counts and sums alone."""
M = TypeVar("M", bound=Miner)


def sum_bits(miner: Miner, task: Task) -> int:
    """Returns the bits of every sum, from the smallest losses at which a miner asks.

    Raises ``QueryError`` if its noise would be too large, or the miner refuses.
    """

    def bits(epsilon: Epsilon, units: int) -> int:
        """Returns the bits of sums to which a row adds at most so many units."""
        per_unit = epsilon.per_row(task.schema.distance) / units
        return noisy_sum_bits(units * task.max_rows, len(task.rows), per_unit)

    needed = miner.sums_needed(task.schema, task.target)
    sums = 0 if needed.sums is None else bits(needed.sums, most_units(needed.width))
    return max(bits(needed.count, 1), sums)


async def fit_jointly(
    miner: M,
    task: Task,
    holding: Holding,
    add: Callable[[np.ndarray], Awaitable[np.ndarray]],
    rounds: Rounds,
    *,
    colluding: int,
    plays: int,
    progress: Callable[[str], None],
) -> M:
    """Runs one party's side; returns the fitted miner.

    Its fit asks from a thread of its own, and each round of its questions is one addition of all
    parties. A process that plays all parties adds alone.

    Args:
        miner: What every party runs; new for each run.
        task: The public facts.
        holding: This party's rows.
        add: Adds up what all parties pass, arrays of one length.
        rounds: Asks what has noise.
        colluding: The number of parties that may pool the noise that they drew.
        plays: How many parties this process is.
        progress: Called with a line of text after each round.
    """
    loop, fitting = asyncio.get_running_loop(), True

    async def opened(asked: JointSum, own: OwnTables) -> list[np.ndarray]:
        if not fitting:  # the session ended while the fit was at work
            raise asyncio.CancelledError
        sources: list[Below] = []

        def draw(below: Below) -> np.ndarray:
            sources.append(below)
            return np.concatenate([cells.ravel() for cells in asked.noise(len(task.rows) - colluding, below, plays)])

        async def added(noise: np.ndarray) -> np.ndarray:
            # After the charge; and rounding draws from where the noise did, so that a round that is
            # asked again has the same numbers.
            tables = await asyncio.to_thread(own, sources[0])
            sums = await add(noise + np.concatenate([table.ravel() for table in tables]))
            rounds.opened.append(Opened("noisy sum", tuple(sums.tolist())))
            return sums

        sums = await rounds.ask("noisy sum", asked.price, draw, added, question=asked.identity)
        return _cut(sums.astype(np.int64), asked.shapes)

    def add_up(asked: JointSum, own: OwnTables) -> Sequence[np.ndarray]:
        return asyncio.run_coroutine_threadsafe(opened(asked, own), loop).result()

    together = SecureFederation(
        task.schema,
        OwnRows.of_holding(task, holding),
        add_up,
        epsilon=miner.epsilon,
        parties=len(task.rows),
        colluding=colluding,
        say=progress,
    )
    try:
        await asyncio.to_thread(miner.fit, together, task.target)
        return miner
    finally:
        fitting = False


def _cut(sums: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Makes arrays again of cells that lie end to end."""
    # Arrays of 2 x 3 and of 4 cells were added as one of 10, which is cut at 6.
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [cells.reshape(shape) for cells, shape in zip(np.split(sums, ends), shapes, strict=True)]
