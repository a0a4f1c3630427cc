# SPDX-License-Identifier: Apache-2.0
"""What all strategies share: their questions, how those read in a plan, how splits are chosen.

A strategy is everything that one algorithm does its own way. Where an algorithm has the variants
"best" and "paper", its file has the strategies ``Best`` and ``Paper``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from miners.budget.plan import count_scale, many
from miners.budget.recipe import Recipe, Step, StepName, StepQuestion
from miners.fitted.node import Ends, Node, Split
from miners.growth.criteria import choice_noise_scale, score_of
from miners.growth.fitted_nodes import estimated_nodes
from miners.growth.frontier import Level, OpenNode, ask_classes, ask_ends
from pinq.public.epsilon import Epsilon, standard_deviation
from pinq.public.schema import Schema
from pinq.public.specs import AnyCut, AnyGrouping, Cuts, Groups, Values

if TYPE_CHECKING:
    from pinq.analyst.queryable import Parts

__all__ = ["Problem", "SplitCandidate", "TreeStrategy", "many", "noise_of"]

SplitCandidate = Values | Cuts | Groups | AnyCut | AnyGrouping
Offer = Sequence[SplitCandidate] | Sequence[Sequence[SplitCandidate]]


@dataclass(frozen=True)
class Problem:
    """What is to be learned: all public, all checked.

    Attributes:
        schema: The public schema.
        target: The column to predict; None in a plan that is asked for without one.
        cells: Numbers that a node is described by: parts of the histogram of classes, one for a
            missing class included, or the two ends of a numeric target.
        classes: How many of them are predicted, the first ones: all but a missing class.
        epsilon: What learning it may cost in all, beside ``looks``.
        numeric: Whether the target is numeric.
        looks: What each question for the range of a numeric target costs.
        within: The range, once it is known.
    """

    schema: Schema
    target: str | None
    cells: int
    classes: int
    epsilon: Epsilon
    numeric: bool = False
    looks: tuple[Epsilon, ...] = ()
    within: Ends = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeStrategy(ABC):
    """How one algorithm divides its epsilon, chooses splits and ends paths.

    Attributes:
        problem: What is to be learned.
        epsilon: What growing costs.
        depth: Levels of splits that are asked for.
        criterion: By what a split is judged.
        trees: How many trees grow together, each from a shard of its own; 1 for one tree on all
            rows.
        certainty: C4.5's certainty factor; None where nothing is pruned.
        textbook: Whether splits are chosen by the exponential mechanism with its factor 2.
        spends_rest: See ``Recipe``.
    """

    problem: Problem
    epsilon: Epsilon
    depth: int
    criterion: str
    trees: int = 1
    certainty: float | None = None

    textbook: ClassVar[bool] = False
    spends_rest: ClassVar[bool] = True

    @abstractmethod
    def questions(self) -> tuple[list[list[StepQuestion]], list[StepQuestion]]:
        """Returns what each level of splits is asked, and what a leaf is asked, by weight."""

    @abstractmethod
    def choose(self, level: Level) -> Sequence[Split | None]:
        """Returns a split for each node of a level; None for a node that cannot be split."""

    @abstractmethod
    def max_parts(self, node: OpenNode) -> int:
        """Returns the most parts that a node's split can have."""

    def fan_out(self, level: int) -> int:
        """Returns the most parts that a split of this level makes."""
        return self.max_parts(OpenNode())

    @cached_property
    def recipe(self) -> Recipe:
        """The steps, at their losses."""
        levels, leaf = self.questions()
        return Recipe.by_weights(self.epsilon, levels, leaf, spends_rest=self.spends_rest)

    @property
    def schema(self) -> Schema:
        """The public schema."""
        return self.problem.schema

    @property
    def target(self) -> str:
        """The column to predict."""
        return str(self.problem.target)

    @property
    def cells(self) -> int:
        """How many numbers describe a node."""
        return self.problem.cells

    @property
    def stop_rows(self) -> int:
        """The rows from which a tree's first node is worth splitting, where the recipe stops."""
        return self.stop_rows_at(self.recipe.leaf_step(StepName.CLASSES).epsilon)

    def stop_rows_at(self, epsilon: Epsilon) -> int:
        """Returns as many rows as there is noise in all that describes two leaves at this loss."""
        # Two classes at epsilon .1: counts deviate by 14.1, so 2 * 2 * 14.1 rows, 57.
        return math.ceil(2 * self.cells * noise_of(self.schema, epsilon))

    def describe(self, parts: Parts, epsilon: Epsilon) -> np.ndarray:
        """Returns noisy numbers that describe each part, shape (parts, cells), by one request."""
        if self.problem.numeric:
            return ask_ends(parts, self.schema, self.target, epsilon, self.problem.within)
        return ask_classes(parts, self.target, epsilon)

    def without_split(self, level: int) -> Sequence[Step]:
        """Returns the steps that a node has been asked for which ``choose`` returns None."""
        return self.recipe.levels[level]

    def threshold(self, node: OpenNode) -> float:
        """Returns the noisy size from which a node is split; without a rule all are."""
        return -math.inf

    def uses_up(self, split: Split) -> bool:
        """Returns whether a path that has used this split does not use its column again."""
        return split.is_finest

    def estimates(self, trees: Sequence[Sequence[OpenNode]]) -> list[list[Node]]:
        """Returns the nodes of each fitted tree."""
        return estimated_nodes(trees, self.cells, self.problem.classes, self.certainty)

    # Questions

    def size_question(self, of: str, weight: int = 1) -> StepQuestion:
        """Returns the question for the rows of nodes."""
        return StepQuestion(StepName.SIZE, "noisy_count", f"size of {of}", self.count_noise, weight)

    def classes_question(self, of: str, weight: int = 1) -> StepQuestion:
        """Returns the question that describes nodes."""
        if self.problem.numeric:
            asked = f"mean of `{self.target}` in {of}"
            return StepQuestion(StepName.CLASSES, "noisy_avg", asked, self.count_noise, weight)
        asked = f"classes of {of}"
        return StepQuestion(StepName.CLASSES, "noisy_count", asked, self.count_noise, weight, numbers=self.cells)

    def choice_question(self, name: StepName, asked: str, weight: int = 1, times: int = 1) -> StepQuestion:
        """Returns the question for splits that the criterion judges."""
        return StepQuestion(name, "exp_mech", asked, self.choice_noise, weight, times)

    def count_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """Returns the standard deviation of a count's noise."""
        return noise_of(self.schema, epsilon), "rows"

    def choice_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """Returns the scale of the noise in a choice."""
        return choice_noise_scale(self.schema, self.criterion, epsilon, textbook=self.textbook, target=self.target)

    # Choices

    def ask_choices(self, parts: Parts, offered: Offer, step: Step) -> list[Split | None]:
        """Returns what the mechanism chooses for each part among the candidates that it is offered.

        Args:
            parts: Who is asked.
            offered: The candidates: one list for all parts, or a list for each.
            step: At which loss.
        """
        within = [self.problem.within] if self.problem.numeric else []
        score = score_of(self.criterion, self.target, *within)
        splits = parts.exp_mech(offered, score=score, epsilon=step.epsilon, textbook=self.textbook)
        return cast(list[Split | None], splits)  # what was offered

    def ask_where_offered(
        self, level: Level, offered: Sequence[Sequence[SplitCandidate]], step: Step
    ) -> list[Split | None]:
        """Returns the same where some nodes are offered nothing: not asked, they get None."""
        splits: list[Split | None] = [None] * len(offered)
        rows = [row for row, candidates in enumerate(offered) if candidates]
        if rows:
            answers = self.ask_choices(level.parts[rows], [offered[row] for row in rows], step)
            for row, split in zip(rows, answers, strict=True):
                splits[row] = split
        return splits


def noise_of(schema: Schema, epsilon: Epsilon) -> float:
    """Returns the standard deviation of a count's noise, in rows."""
    return standard_deviation(count_scale(schema, epsilon))
