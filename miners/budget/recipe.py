# SPDX-License-Identifier: Apache-2.0
"""A recipe lists the steps of a fit: what each level of a tree is asked, and at which loss.

``plan`` renders the steps, ``fit`` runs them, and their losses add up to what a fit costs.

Privacy:
    Claim: the steps along a path from the root to a leaf below the last split add up to ``total``
    exactly, and along no path to more. A leaf that is reached early may be asked with all that its
    path has left (``Recipe.left``).
    Why: a row lies in one part of each level. The questions to a level cost what they cost one of
    its nodes (parallel composition), and levels add up (sequential composition).
    Exact: integers; what does not divide evenly goes to the leaf. Held by:
    tests/unit/budget/test_recipe.py.

References:
    Friedman & Schuster 2010, Algorithms 1 and 2 (equal shares for every level, leaves included);
    privacy.md 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from miners.budget.plan import PlanLine
from pinq.errors import QueryError
from pinq.public.epsilon import ZERO, Epsilon

__all__ = ["DESCRIBING", "Recipe", "Step", "StepName", "StepQuestion", "spread"]

SMALLEST = Epsilon(1)


def spread(epsilon: Epsilon, weights: Sequence[int]) -> tuple[Epsilon, ...]:
    """Spreads a loss in proportion to whole weights.

    Each share is rounded down to whole nano-epsilons; the *last* one gets the rest as well.

    Raises:
        QueryError: A share would be zero.
    """
    if not weights or min(weights) < 1:
        raise QueryError(f"the weights {list(weights)} must be whole numbers of at least 1.")
    whole = sum(weights)
    # Ten nano by weights 1, 1 and 1: 3, 3 and 4, for the last takes what rounding leaves.
    shares = [epsilon * weight // whole for weight in weights[:-1]]
    shares.append(epsilon - sum(shares, ZERO))
    if min(shares) < SMALLEST:
        raise QueryError(
            f"an epsilon of {epsilon} is too small to be spread over {whole:,} shares of at least {SMALLEST} each; "
            "use a larger `epsilon` or ask for less."
        )
    return tuple(shares)


Verb = Literal["noisy_count", "noisy_avg", "exp_mech"]


class StepName(Enum):
    """What a step is for."""

    SIZE = "size"
    CLASSES = "classes"
    SPLIT = "split"
    TABLES = "tables"
    CUT = "cut"
    MEDIAN = "median"
    STOP = "stop"


# Steps that describe a node before it is decided whether to split it; the others choose its split.
DESCRIBING = (StepName.SIZE, StepName.CLASSES)


@dataclass(frozen=True)
class StepQuestion:
    """One kind of question, before it has a price.

    Attributes:
        name: What it is for.
        verb: The verb of the handle.
        asked: What is asked, for people.
        noise: From the loss of one asking to the noise in each number, and its unit.
        weight: What one asking weighs among all shares of the total.
        times: How often it is asked of the same rows: once for each numeric attribute, say.
        numbers: How many parts a node is cut into to be asked.
    """

    name: StepName
    verb: Verb
    asked: str
    noise: Callable[[Epsilon], tuple[float, str]]
    weight: int = 1
    times: int = 1
    numbers: int = 1


@dataclass(frozen=True)
class Step:
    """One kind of question to the nodes of one level, at its price.

    Attributes:
        question: What is asked.
        level: Splits above the nodes that are asked.
        epsilon: What each asking costs, exact.
    """

    question: StepQuestion
    level: int
    epsilon: Epsilon

    @property
    def name(self) -> StepName:
        """What the step is for."""
        return self.question.name

    @property
    def cost(self) -> Epsilon:
        """What all askings cost together; losses add up."""
        return self.epsilon * self.question.times

    @property
    def noise(self) -> tuple[float, str]:
        """The noise in each number, and its unit."""
        return self.question.noise(self.epsilon)

    def line(self, nodes: int, cost: Epsilon) -> PlanLine:
        """Returns how the step reads in a plan.

        Args:
            nodes: The most nodes that can be asked.
            cost: What the step costs in all trees.
        """
        noise, unit = self.noise
        question = self.question
        return PlanLine(self.level, question.asked, question.verb, nodes * question.numbers, cost.exact, noise, unit)


@dataclass(frozen=True)
class Recipe:
    """The steps along a path through a tree.

    Attributes:
        total: What a path from the root to a leaf below the last split costs, exact.
        levels: The steps of each level of splits, from the root down, in the order asked.
        leaf: The steps of a leaf below the last split; rounding remainders are in the last of them.
        spends_rest: Whether a leaf that is reached early is asked with all that its path has left,
            not with the leaf's share.
    """

    total: Epsilon
    levels: tuple[tuple[Step, ...], ...]
    leaf: tuple[Step, ...]
    spends_rest: bool = True

    def __post_init__(self) -> None:
        steps = [step for steps in (*self.levels, self.leaf) for step in steps]
        if any(step.epsilon <= ZERO or step.question.times < 1 for step in steps):
            raise QueryError("every share of a recipe must be greater than 0.")
        if _cost(steps) != self.total:
            raise QueryError(f"the shares of a recipe must add up to its total, {self.total}.")

    @classmethod
    def by_weights(
        cls,
        epsilon: Epsilon,
        levels: Sequence[Sequence[StepQuestion]],
        leaf: Sequence[StepQuestion],
        *,
        spends_rest: bool = True,
    ) -> Recipe:
        """Spreads a budget over questions in proportion to their weights.

        Args:
            epsilon: The total.
            levels: What a node is asked, for each level of splits.
            leaf: What a leaf is asked, each once.
            spends_rest: See ``Recipe``.

        Raises:
            QueryError: Some share would be below one nano-epsilon.
        """
        rows = [*levels, leaf]
        shares = list(spread(epsilon, [q.weight for row in rows for q in row for _ in range(q.times)]))
        # Equal weights get equal shares, but for the last of all, which is asked once: three
        # askings of weight 1 and a leaf of weight 2 share 11 nano as 2, 2, 2 and 5.
        priced: list[tuple[Step, ...]] = []
        for level, row in enumerate(rows):
            steps = []
            for question in row:
                steps.append(Step(question, level, shares[0]))
                del shares[: question.times]
            priced.append(tuple(steps))
        return cls(epsilon, tuple(priced[:-1]), priced[-1], spends_rest)

    @property
    def depth(self) -> int:
        """Levels of splits."""
        return len(self.levels)

    @property
    def stops(self) -> bool:
        """Whether one question of all grown trees says where their paths end early."""
        return any(step.name is StepName.STOP for step in self.leaf)

    def step(self, name: StepName, level: int) -> Step:
        """Returns the step of a level of splits that has this name."""
        return next(step for step in self.levels[level] if step.name is name)

    def leaf_step(self, name: StepName) -> Step:
        """Returns the step of the leaves that has this name."""
        return next(step for step in self.leaf if step.name is name)

    def left(self, level: int, asked: Iterable[Step]) -> Epsilon:
        """Returns what a path has left at a node, all levels above it being paid in full.

        Args:
            level: Splits above the node.
            asked: The steps that have been asked of the node itself.
        """
        # A total of 1, levels of .3 and .3 and a leaf of .4: at a node of the second level whose
        # size was asked for .05 is left 1 - .3 - .05 = .65.
        return self.total - _cost(step for above in self.levels[:level] for step in above) - _cost(asked)

    def early_leaf(self, level: int, asked: Iterable[Step]) -> Step:
        """Returns the last step of a node of ``level`` that is not split; see ``left``."""
        classes = self.leaf_step(StepName.CLASSES)
        epsilon = self.left(level, asked) if self.spends_rest else classes.epsilon
        question = replace(classes.question, asked="or, where that is too small, once more: its classes")
        return Step(question, level, epsilon)

    def worded(self, name: StepName, asked: str) -> Recipe:
        """Returns the same recipe with other words for a step of the leaves."""
        leaf = tuple(
            replace(step, question=replace(step.question, asked=asked)) if step.name is name else step
            for step in self.leaf
        )
        return replace(self, leaf=leaf)


def _cost(steps: Iterable[Step]) -> Epsilon:
    return sum((step.cost for step in steps), ZERO)
