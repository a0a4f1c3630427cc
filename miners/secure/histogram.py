# SPDX-License-Identifier: Apache-2.0
"""The sum of several holders' histograms with the noise of one curator: all learn it, nobody learns anything else. For other miners to build on."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from miners.secure.arithmetic import Arithmetic
from miners.secure.bounds import noise_bound, signed_bits
from miners.secure.mpyc_runtime import simulate
from miners.secure.noise import own_noise
from pinq.errors import QueryError

__all__ = ["noisy_sum", "noisy_sum_bits", "noisy_sums", "simulate_noisy_sum", "simulate_noisy_sums"]


def noisy_sum_bits(rows: int, parties: int, epsilon: Fraction) -> int:
    """Bits for sums of histograms of at most ``rows`` rows in all: a cell is at most that, each party's noise at most its bound."""
    return signed_bits(rows + parties * noise_bound(epsilon))


async def noisy_sum(arithmetic: Arithmetic, histogram: np.ndarray, epsilon: Fraction, colluding: int) -> np.ndarray:
    """Opens the sum of all parties' histograms, each cell with discrete Laplace noise of its own.

    Args:
        arithmetic: Among the parties, of at least ``noisy_sum_bits`` bits.
        histogram: This party's whole numbers, any shape, the same for all.
        epsilon: Loss of the release for one row, which counts in one cell; exact.
        colluding: How many parties may pool the noise that they drew.

    Returns:
        The noisy sums, int64.

    Privacy:
        Adjacency: one row of one party comes or goes and changes one cell by 1. Claim: epsilon-DP
        for everybody outside and for any ``colluding`` parties.
        Why: cells are disjoint parts, each gets at least DLap(1/epsilon) that those parties do not
        know (miners/secure/noise.py). Only the noisy sums are opened. With ``colluding=0`` the
        noise is exactly one DLap(1/epsilon); with c of m parties its variance is m / (m - c) times
        that.
        Held by: tests/privacy/test_secure_noise.py.
    """
    return (await noisy_sums(arithmetic, [histogram], [epsilon], colluding))[0]


async def noisy_sums(
    arithmetic: Arithmetic, histograms: Sequence[np.ndarray], epsilons: Sequence[Fraction], colluding: int
) -> list[np.ndarray]:
    """Several noisy sums, each at a loss of its own, in the two rounds of one: a party adds its noise to its counts before it shares them."""
    tables = [np.asarray(one) for one in histograms]
    mine = [
        table.astype(object) + await own_noise(arithmetic, table.shape, epsilon, colluding)
        for table, epsilon in zip(tables, epsilons, strict=True)
    ]
    shares = await arithmetic.sum_of_inputs(np.concatenate([table.reshape(-1) for table in mine]))
    opened = (await arithmetic.open(shares, "noisy sum")).astype(np.int64)
    ends = np.cumsum([table.size for table in tables])[:-1]
    return [found.reshape(table.shape) for found, table in zip(np.split(opened, ends), tables, strict=True)]


def simulate_noisy_sum(
    histograms: Sequence[np.ndarray], epsilon: Fraction, *, rows: int, colluding: int = 0
) -> np.ndarray:
    """``noisy_sum`` with all parties in this process: the same numbers by the same steps, for experiments; protects no holder from this process.

    Args:
        histograms: One for each party, of one shape.
        epsilon: Loss of the release for one row.
        rows: The most rows that all parties together may have.
        colluding: How many parties may pool their noise.
    """
    if not histograms or not 0 <= colluding < len(histograms):
        raise QueryError(
            f"`colluding` is {colluding}; it must be at least 0 and below the {len(histograms)} histograms."
        )
    if len({np.shape(one) for one in histograms}) > 1:
        raise QueryError(
            f"the histograms have the shapes {', '.join(str(np.shape(one)) for one in histograms)}; they must be the same."
        )
    if np.abs(np.sum(histograms, axis=0)).max(initial=0) > rows:
        raise QueryError(
            f"a cell of the histograms' sum is beyond `rows`, {rows:,}. Declare as many as all parties together may have."
        )
    return simulate_noisy_sums(
        [np.sum(histograms, axis=0)], [epsilon], rows=rows, parties=len(histograms), colluding=colluding
    )[0]


def simulate_noisy_sums(
    totals: Sequence[np.ndarray], epsilons: Sequence[Fraction], *, rows: int, parties: int, colluding: int
) -> list[np.ndarray]:
    """``noisy_sums`` of histograms that are summed already, by one process that plays all parties."""
    bits = max(noisy_sum_bits(rows, parties, epsilon) for epsilon in epsilons)

    async def work(runtime: Any) -> list[np.ndarray]:
        return await noisy_sums(Arithmetic(runtime, bits, plays=parties), totals, epsilons, colluding)

    found: list[np.ndarray] = simulate(work, bits)
    return found
