# SPDX-License-Identifier: Apache-2.0
"""``noisy_sum`` adds up several holders' histograms with the noise of one curator.

For other miners to build on.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.bounds import noise_bound, signed_bits
from miners.secure.mpc.noise import own_noise
from pinq.errors import QueryError

__all__ = ["noisy_sum", "noisy_sum_bits", "simulate_noisy_sum"]


def noisy_sum_bits(rows: int, parties: int, epsilon: Fraction) -> int:
    """Bounds the bits of sums of histograms of at most ``rows`` rows in all.

    A cell is at most ``rows``, each party's noise at most its bound.
    """
    # 1,000 rows, three parties at epsilon 1: 1,000 + 3 * 71 = 1,213, which takes 12 bits with a
    # sign.
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
        know (miners/secure/mpc/noise.py). Only the noisy sums are opened.
        With ``colluding=0`` the noise is exactly one DLap(1/epsilon); with c of m parties its
        variance is m / (m - c) times that.
        Held by: tests/privacy/test_secure_noise.py.
    """
    table = np.asarray(histogram)
    noise = own_noise(table.shape, epsilon, arithmetic.parties - colluding, secrets.randbelow, arithmetic.plays)
    shares = await arithmetic.sum_of_inputs(table.astype(object) + noise)
    return (await arithmetic.open(shares, "noisy sum")).astype(np.int64)


def simulate_noisy_sum(
    histograms: Sequence[np.ndarray], epsilon: Fraction, *, rows: int, colluding: int = 0
) -> np.ndarray:
    """Draws what ``noisy_sum`` would open, with all parties in this process.

    For experiments; it protects no holder from this process.

    Args:
        histograms: One for each party, of one shape.
        epsilon: Loss of the release for one row.
        rows: The maximal number of rows of all parties together.
        colluding: How many parties may pool their noise.
    """
    if not histograms or not 0 <= colluding < len(histograms):
        raise QueryError(
            f"is {colluding}", parameter="colluding", allowed=f"at least 0 and below the {len(histograms)} histograms"
        )
    shapes = [np.shape(histogram) for histogram in histograms]
    if len(set(shapes)) > 1:
        raise QueryError(f"the histograms have the shapes {', '.join(map(str, shapes))}; they must be the same.")
    total = np.sum(histograms, axis=0)
    if np.abs(total).max(initial=0) > rows:
        raise QueryError(
            f"a cell of the histograms' sum is beyond `rows`, {rows:,}. "
            "Declare as many as all parties together may have."
        )
    noise = own_noise(total.shape, epsilon, len(histograms) - colluding, secrets.randbelow, len(histograms))
    return (total + noise).astype(np.int64)
