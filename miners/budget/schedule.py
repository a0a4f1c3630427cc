# SPDX-License-Identifier: Apache-2.0
"""How a budget is spread over the levels of a tree: exact, in whole nano-epsilons.

A row lies in one part of each level, so what counts is the sum along a way from the root to a leaf:
the questions asked of a whole level cost what one of its nodes costs (parallel composition), and
levels add up (sequential composition).

Privacy:
    Claim: what is asked along a way from the root to a leaf below the last split adds up to
    ``total`` exactly, and along no way to more. A leaf that is reached early may be asked with all
    that its way has left (``left``).
    Exact: integers; what does not divide evenly goes to the leaf. Held by:
    tests/unit/budget/test_schedule.py.

References:
    Friedman & Schuster 2010, Algorithms 1 and 2 (equal shares for every level, leaves included);
    privacy.md 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from pinq.errors import QueryError
from pinq.public.epsilon import NANO, Loss, exact, show, to_nano

__all__ = ["Ask", "Schedule", "spread"]


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
            "use a larger `epsilon` or ask for less. Nothing was spent."
        )
    return tuple(shares)


@dataclass(frozen=True)
class Ask:
    """One kind of question to a node.

    Attributes:
        epsilon: What each asking costs, exact.
        times: How often it is asked of the same rows: once for each numeric attribute, say. Losses
            add up.
    """

    epsilon: Fraction
    times: int = 1

    @property
    def cost(self) -> Fraction:
        """What all askings cost together."""
        return self.epsilon * self.times


@dataclass(frozen=True)
class Schedule:
    """The losses of all questions on a way through a tree.

    Attributes:
        total: What a way from the root to a leaf below the last split costs, exact.
        levels: For each level of splits, from the root down: what is asked of its nodes, by name,
            in the order asked.
        leaf: What is asked of a leaf below the last split, likewise; rounding remainders are in the
            last of these.
    """

    total: Fraction
    levels: tuple[Mapping[str, Ask], ...]
    leaf: Mapping[str, Ask]

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(MappingProxyType(dict(level)) for level in self.levels))
        object.__setattr__(self, "leaf", MappingProxyType(dict(self.leaf)))
        asks = [ask for level in (*self.levels, self.leaf) for ask in level.values()]
        if any(ask.epsilon <= 0 or ask.times < 1 for ask in asks):
            raise QueryError("every share of a schedule must be greater than 0. Nothing was spent.")
        if sum((ask.cost for ask in asks), Fraction(0)) != self.total:
            raise QueryError(
                f"the shares of a schedule must add up to its total, {show(int(self.total * NANO))}. Nothing was spent."
            )

    @classmethod
    def by_weights(
        cls, epsilon: Loss, levels: Sequence[Mapping[str, int | tuple[int, int]]], leaf: Mapping[str, int]
    ) -> Schedule:
        """Spreads a budget in proportion to whole weights.

        Args:
            epsilon: The total.
            levels: For each level of splits what is asked of a node, by name: the weight of one
                asking, or ``(weight, times)``.
            leaf: What is asked of a leaf, each once.

        Raises:
            QueryError: ``epsilon`` is not a loss, or some share would be below one nano-epsilon.
        """
        nano = to_nano(epsilon)
        rows = [
            {name: ask if isinstance(ask, tuple) else (ask, 1) for name, ask in level.items()}
            for level in (*levels, leaf)
        ]
        shares = iter(spread(nano, [weight for row in rows for weight, times in row.values() for _ in range(times)]))
        # Equal weights get equal shares, but for the last of all, which is asked once.
        made = [
            {name: Ask(exact(min([next(shares) for _ in range(times)])), times) for name, (_, times) in row.items()}
            for row in rows
        ]
        return cls(exact(nano), tuple(made[:-1]), made[-1])

    @classmethod
    def even(
        cls, epsilon: Loss, depth: int, *, node: Mapping[str, int | tuple[int, int]], leaf: Mapping[str, int]
    ) -> Schedule:
        """The same shares at every level of splits; see ``by_weights``."""
        return cls.by_weights(epsilon, [node] * depth, leaf)

    @property
    def depth(self) -> int:
        """Levels of splits."""
        return len(self.levels)

    def left(self, level: int, *asked: str) -> Fraction:
        """What a way has left at a node of ``level`` of which ``asked`` has been asked, all of the levels above being paid in full."""
        spent = sum((ask.cost for above in self.levels[:level] for ask in above.values()), Fraction(0))
        here = {**self.leaf, **(self.levels[level] if level < self.depth else {})}
        return self.total - spent - sum((here[name].cost for name in asked), Fraction(0))
