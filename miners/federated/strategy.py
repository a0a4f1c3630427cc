# SPDX-License-Identifier: Apache-2.0
"""What all strategies of growth on several holders share: steps, and how they read in a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from miners.budget.plan import PlanLine
from miners.budget.recipe import Step, StepName, StepQuestion
from miners.federated.asking import Task
from miners.federated.federation import Ability, CountSource
from miners.federated.held_node import HeldNode
from miners.growth.candidates import families
from miners.growth.criteria import choice_noise_scale
from miners.trees.strategy import Problem, noise_of
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon

__all__ = ["DISJOINT", "NEEDS", "STRATEGIES", "FederatedStrategy", "StrategyName", "require_abilities"]

DISJOINT = "holders hold disjoint people: each is asked for the total, in its own policy's terms, and no more."

StrategyName = Literal["turns", "noisy_counts", "secure"]
STRATEGIES = get_args(StrategyName)
# What a strategy needs of a source beside counts.
NEEDS: dict[str, Ability | None] = {
    "turns": "choices",
    "noisy_counts": None,
    "secure": "sums",
}
UNABLE: dict[Ability, str] = {
    "choices": (
        "strategy {strategy!r} asks holders to choose, and parties that add up their counts do nothing else; "
        "use 'secure'."
    ),
    "sums": (
        "strategy {strategy!r} needs parties that add up their counts under secret sharing, and handles "
        "answer each for itself, "
        "with noise of its own. Between machines use `pinq secure join` with `protocol: topdown`, or `scorecard` for a "
        "scorecard, to try it "
        "miners.secure.SecureFederation.simulated; 'turns' is for handles."
    ),
}


@dataclass(frozen=True, kw_only=True)
class FederatedStrategy(ABC):
    """How one strategy divides the budget of each holder, and grows a tree.

    Attributes:
        problem: What is to be learned.
        attributes: The columns that are split.
        criterion: By what a split is judged, one of ``CRITERIA``.
        depth: Levels of splits.
        max_nodes: How many nodes may be split.
        leaves: What the leaves' histograms get at least.
        holders: How many holders are asked.
    """

    problem: Problem
    attributes: Sequence[str]
    criterion: str
    depth: int
    max_nodes: int
    leaves: Epsilon
    holders: int = 1

    @abstractmethod
    def steps(self) -> list[Step]:
        """Returns what the holders are asked, from the root down to the leaves."""

    @abstractmethod
    def grow(self, task: Task) -> list[HeldNode]:
        """Grows a tree; the root first, each node before its children."""

    @property
    def parts(self) -> int:
        """The most parts that a split in two makes: missing numbers are a part of their own."""
        schema = self.problem.schema
        return max(family.max_parts(schema) for family in families(schema, self.attributes))

    def lines(self) -> tuple[PlanLine, ...]:
        """Returns how the steps read in a plan."""
        *asked, leaves = self.steps()
        nodes = [min(self.parts**step.level, self.max_nodes) for step in asked]
        ends = min(self.parts**leaves.level, self.max_nodes * (self.parts - 1) + 1)
        return tuple(step.line(count, step.cost) for step, count in zip([*asked, leaves], [*nodes, ends], strict=True))

    def leaf_step(self, level: int, epsilon: Epsilon) -> Step:
        """Returns the question to each leaf below so many levels of splits."""
        asked = "classes of each leaf, at least"
        question = StepQuestion(StepName.CLASSES, "noisy_count", asked, self.count_noise, numbers=self.problem.cells)
        return Step(question, level, epsilon)

    def choice_step(self, level: int, asked: str, epsilon: Epsilon) -> Step:
        """Returns a question for splits that the criterion judges."""
        return Step(StepQuestion(StepName.SPLIT, "exp_mech", asked, self.choice_noise), level, epsilon)

    def count_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """Returns the standard deviation of the noise in one holder's count."""
        return noise_of(self.problem.schema, epsilon), "rows"

    def choice_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """Returns the scale of the noise in one holder's choice."""
        return choice_noise_scale(self.problem.schema, self.criterion, epsilon, textbook=False)


def require_abilities(strategy: str, source: CountSource) -> None:
    """Raises ``QueryError`` where a source does not answer what a strategy asks of it."""
    needed = NEEDS.get(strategy, "choices")
    if needed is not None and needed not in source.abilities:
        raise QueryError(UNABLE[needed].format(strategy=strategy))
