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
from miners.secure.noise import noise_shares
from pinq.errors import QueryError

__all__ = ["noisy_sum", "noisy_sum_bits", "simulate_noisy_sum"]


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
        Adjacency: one row of one party comes or goes and changes one cell by 1. Claim: epsilon-DP for everybody outside and for any ``colluding`` parties.
        Why: cells are disjoint parts, each gets at least DLap(1/epsilon) that those parties do not know (miners/secure/noise.py). Only the noisy sums are opened.
        With ``colluding=0`` the noise is exactly one DLap(1/epsilon); with c of m parties its variance is m / (m - c) times that.
        Held by: tests/privacy/test_secure_noise.py.
    """
    cells = np.asarray(histogram)
    total = await arithmetic.sum_of_inputs(cells) + await noise_shares(arithmetic, cells.shape, epsilon, colluding)
    return (await arithmetic.open(total % arithmetic.modulus, "noisy sum")).astype(np.int64)


def simulate_noisy_sum(histograms: Sequence[np.ndarray], epsilon: Fraction, *, rows: int, colluding: int = 0) -> np.ndarray:
    """``noisy_sum`` with all parties in this process: the same numbers by the same steps, for experiments; protects no holder from this process.

    Args:
        histograms: One for each party, of one shape.
        epsilon: Loss of the release for one row.
        rows: The most rows that all parties together may have.
        colluding: How many parties may pool their noise.
    """
    if not histograms or not 0 <= colluding < len(histograms):
        raise QueryError(f"`colluding` is {colluding}; it must be at least 0 and below the {len(histograms)} histograms.")
    if len({np.shape(one) for one in histograms}) > 1:
        raise QueryError(f"the histograms have the shapes {', '.join(str(np.shape(one)) for one in histograms)}; they must be the same.")
    if np.abs(np.sum(histograms, axis=0)).max(initial=0) > rows:
        raise QueryError(f"a cell of the histograms' sum is beyond `rows`, {rows:,}. Declare as many as all parties together may have.")
    bits, parties = noisy_sum_bits(rows, len(histograms), epsilon), len(histograms)

    async def work(runtime: Any) -> np.ndarray:
        return await noisy_sum(Arithmetic(runtime, bits, plays=parties), np.sum(histograms, axis=0), epsilon, colluding)

    found: np.ndarray = simulate(work, bits)
    return found
