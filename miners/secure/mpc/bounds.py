# SPDX-License-Identifier: Apache-2.0
"""``gini_bits`` and similar functions bound the size of secret numbers.

Everything is computed modulo a prime p. ``Arithmetic`` takes p of ``bits`` + security + 2 bits,
where every compared number is proved to lie strictly between -2^(bits-1) and 2^(bits-1); the rest
of p is the room that comparison needs for its mask. All lengths follow from public facts: n is the
largest number of rows that all parties together may have, v_k the number of values of attribute k,
c the number of classes.
Held by: tests/unit/secure/test_secure_bounds.py, at the extremes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from pinq.errors import QueryError

MAX_BITS = 2048
NEGLIGIBLE_BITS = 100
MIN_EPSILON = Fraction(1, 100_000)


def signed_bits(largest: int) -> int:
    """Returns the smallest b with ``largest`` < 2^(b-1).

    Numbers from -largest to largest are compared exactly at this length.
    """
    return largest.bit_length() + 1


def gini_bits(sizes: Sequence[int], rows: int, alpha: int) -> int:
    """Bounds the bits of the difference that decides between two splits.

    A split into v cells of n_1 .. n_v rows has y_j = alpha n_j + 1, D = prod y_j and
    G = D sum_j s_j / y_j, s_j = sum_i x_ij^2.

    1. The y_j sum to at most alpha n + v, so by the inequality of means
       D <= ((alpha n + v) / v)^v.
    2. s_j <= n_j^2, so s_j / y_j <= n_j / alpha, and G <= D n / alpha.

    Two splits are compared by G D' - G' D; both terms are at least 0, so it is at most
    D D' n / alpha in size (or D, where n < alpha). Partial sums of fractions on the way (of fewer
    cells) have the same bounds, for D only grows with more cells.

    Args:
        sizes: v_k of the attributes that are compared.
        rows: n.
        alpha: The weight of a row in y_j.
    """
    # Two attributes of two values, 10 rows, alpha 8: D <= (82 / 2)^2 = 1,681 each, so D D' n /
    # alpha <= 3,532,202, which takes 23 bits with a sign.
    products = sorted(((alpha * rows + size) ** size // size**size for size in sizes), reverse=True)
    pair = math.prod(products[:2])
    return signed_bits(max(pair, -(-pair * rows // alpha)))


def count_bits(rows: int) -> int:
    """Bounds the bits of a difference of two counts of rows."""
    return signed_bits(rows)


def stop_bits(rows: int, share: Fraction) -> int:
    """Bounds the bits of ``numerator total - denominator size``, which is between -d n and d n.

    It decides whether a node has at most this share of all rows.
    """
    return signed_bits(share.denominator * rows)


def noise_bound(epsilon: Fraction) -> int:
    """Bounds one party's share of noise: it is reached with probability at most 2^-100.

    The share is X - Y, and both are dominated by a geometric variable with P[X >= b] = exp(-epsilon
    b), so it is at most twice that.

    Raises:
        QueryError: Noise of more than 100,000 rows, which would also take long to draw.
    """
    if epsilon < MIN_EPSILON:
        raise QueryError(
            f"a single question would have an epsilon of {float(epsilon):.2g}; it must be at least "
            f"{float(MIN_EPSILON):.5f}, the noise of about {int(1 / MIN_EPSILON):,} rows. "
            "Ask for more epsilon, or for less depth or fewer steps. Nothing left any party."
        )
    # At epsilon 1 the bound is 71, and 2 exp(-71) = 2.9e-31 is below 2^-100 = 7.9e-31.
    return math.ceil(Fraction(7 * (NEGLIGIBLE_BITS + 1), 10) / epsilon)  # ln 2 < 0.7


def require_bits(bits: int) -> int:
    """Returns the bits. Raises ``QueryError`` if the field would be too large to compute in."""
    if bits > MAX_BITS:
        raise QueryError(
            f"numbers of {bits:,} bits would be compared; at most {MAX_BITS:,} are possible. "
            "Declare fewer values or coarser cuts for the widest attributes, "
            "leave them out, or use noise, whose scores stay small. Nothing left any party."
        )
    return bits
