# SPDX-License-Identifier: Apache-2.0
"""How a budget is spread over the levels of a tree: exact, in whole nano-epsilons.

A row lies in one part of each level, so what counts is the sum along a way from the root to a leaf: the questions asked of a
whole level cost what one of its nodes costs (parallel composition), and levels add up (sequential composition).

Privacy:
    Claim: what is asked along every way from the root to a leaf adds up to ``total`` exactly, never more. A leaf that
    is reached early is asked with all that its way has left.
    Exact: integers; what does not divide evenly goes to the leaf. Held by: tests/unit/test_schedule.py.

References:
    Friedman & Schuster 2010, Algorithms 1 and 2 (equal shares for every level, leaves included); privacy.md 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from pinq.epsilon import NANO, Loss, exact, show, to_nano
from pinq.errors import QueryError

__all__ = ["Schedule", "spread"]


def spread(nano: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Spreads nano-epsilons in proportion to whole weights; each share is rounded down, the *last* gets the rest as well.

    Raises:
        QueryError: A share would be zero.
    """
    if not weights or min(weights) < 1:
        raise QueryError(f"the weights {list(weights)} must be whole numbers of at least 1. Nothing was spent.")
    whole = sum(weights)
    shares = [nano * weight // whole for weight in weights[:-1]]
    shares.append(nano - sum(shares))
    if min(shares) < 1:
        raise QueryError(
            f"an epsilon of {show(nano)} is too small to be spread over {whole:,} shares of at least {show(1)} each; "
            "use a larger `epsilon` or a smaller `max_depth`. Nothing was spent."
        )
    return tuple(shares)


@dataclass(frozen=True)
class Schedule:
    """The losses of all questions on a way through a tree.

    Attributes:
        total: What a way from the root to a leaf costs, exact.
        levels: For each level of splits, from the root down: what each question to its nodes costs, in the order asked.
        leaf: What the questions to a leaf below the last split cost together; rounding remainders are here.
    """

    total: Fraction
    levels: tuple[Mapping[str, Fraction], ...]
    leaf: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(MappingProxyType(dict(level)) for level in self.levels))
        if self.leaf <= 0 or any(share <= 0 for level in self.levels for share in level.values()):
            raise QueryError("every share of a schedule must be greater than 0. Nothing was spent.")
        if sum((sum(level.values()) for level in self.levels), self.leaf) != self.total:
            raise QueryError(f"the shares of a schedule must add up to its total, {show(int(self.total * NANO))}. Nothing was spent.")

    @classmethod
    def even(cls, epsilon: Loss, depth: int, *, node: Mapping[str, int], leaf: int) -> Schedule:
        """The same shares at every level of splits.

        Args:
            epsilon: The total.
            depth: Levels of splits, at least 0; leaves are one level further down.
            node: What is asked of each node that splits, by name, each with a whole weight. ``{"size": 1, "split": 1}`` for
                DiffPID3; a question that consists of several (one per numeric attribute, say) weighs as many.
            leaf: Weight of what is asked of a leaf.

        Raises:
            QueryError: ``epsilon`` is not a loss, or some share would be below one nano-epsilon.
        """
        nano = to_nano(epsilon)
        shares = spread(nano, [*node.values()] * depth + [leaf])
        names, width = tuple(node), len(node)
        levels = [
            {name: exact(share) for name, share in zip(names, shares[start : start + width], strict=True)}
            for start in range(0, width * depth, width)
        ]
        return cls(exact(nano), tuple(levels), exact(shares[-1]))

    @property
    def depth(self) -> int:
        """Levels of splits."""
        return len(self.levels)

    def left(self, level: int, *asked: str) -> Fraction:
        """What a way has left at a node of ``level`` of which ``asked`` has been asked, all of the levels above being paid in full."""
        spent = sum((sum(above.values()) for above in self.levels[:level]), Fraction(0))
        return self.total - spent - sum((self.levels[level][name] for name in asked), Fraction(0))
