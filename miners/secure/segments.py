# SPDX-License-Identifier: Apache-2.0
"""Public bookkeeping for reducing many lists of different lengths at once: which neighbours meet in each round. No secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Round", "rounds"]


@dataclass(frozen=True)
class Round:
    """One round over lists that lie end to end.

    Attributes:
        left: Places of the first of each pair.
        right: Places of the second; always the next place of the same list.
        single: Places of last elements without a partner.
        order: Puts (results of the pairs, then the singles) back into the lists' order.
    """

    left: np.ndarray
    right: np.ndarray
    single: np.ndarray
    order: np.ndarray


def rounds(sizes: Sequence[int] | np.ndarray) -> list[Round]:
    """The rounds after which each list has one element: as many as the logarithm of the longest.

    Neighbours meet, so of equal elements the first stays first.
    """
    lengths, found = np.asarray(sizes, dtype=np.int64), []
    while lengths.max(initial=1) > 1:
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(owner)) - starts[owner]
        even = within % 2 == 0
        last = within == lengths[owner] - 1
        left, single = np.flatnonzero(even & ~last), np.flatnonzero(even & last)
        found.append(Round(left, left + 1, single, np.argsort(np.concatenate([left, single]), kind="stable")))
        lengths = (lengths + 1) // 2
    return found
