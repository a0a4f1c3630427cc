# SPDX-License-Identifier: Apache-2.0
"""``rounds`` plans how many lists of different lengths are reduced at once. No secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Round", "rounds"]


@dataclass(frozen=True)
class Round:
    """One round over lists that lie end to end.

    Attributes:
        left: Positions of the first of each pair.
        right: Positions of the second; always the next position of the same list.
        single: Positions of last elements without a partner.
        order: Puts (results of the pairs, then the singles) back into the lists' order.
    """

    left: np.ndarray
    right: np.ndarray
    single: np.ndarray
    order: np.ndarray


def rounds(sizes: Sequence[int] | np.ndarray) -> list[Round]:
    """Plans the rounds after which each list has one element.

    Neighbours meet, so of equal elements the first stays first. Example: lists of 3 and 2 elements
    at positions 0 1 2 | 3 4. Round 1: 0 meets 1, 3 meets 4, and 2 is single; the results of the
    pairs, then the single, are put into the order 0, 2, 1: lists of 2 and 1. Round 2: 0 meets 1.
    """
    lengths, planned = np.asarray(sizes, dtype=np.int64), []
    while lengths.max(initial=1) > 1:
        # For 3 and 2 elements: `owner` is 0 0 0 1 1 and `within` 0 1 2 0 1, so 0 and 3 are left, 2
        # is single, and `order` sorts 0 3 2 by 0 2 1.
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(owner)) - starts[owner]
        even = within % 2 == 0
        last = within == lengths[owner] - 1
        left, single = np.flatnonzero(even & ~last), np.flatnonzero(even & last)
        order = np.argsort(np.concatenate([left, single]), kind="stable")
        planned.append(Round(left, left + 1, single, order))
        lengths = (lengths + 1) // 2
    return planned
