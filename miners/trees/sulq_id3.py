# SPDX-License-Identifier: Apache-2.0
"""SuLQ-ID3: ID3 on a private table by noisy counts alone (Blum et al. 2005 as in Friedman & Schuster 2010, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from miners.budget.noise import count_scale, count_variance
from miners.budget.plan import PlanLine
from miners.budget.schedule import Schedule
from miners.fitted.tree import Split
from miners.growth.candidates import multiway_splits
from miners.growth.criteria import CRITERIA, gain
from miners.growth.frontier import Level, Rules
from miners.trees.diffp_id3 import multiway_facts, multiway_rules
from miners.trees.tree_miner import Candidate, GreedyTree, Recipe, Variant, many, noise_of
from pinq.public.epsilon import Loss
from pinq.public.schema import Schema
from pinq.public.specs import Values

__all__ = ["SuLQID3"]


@dataclass(kw_only=True, repr=False, eq=False)
class SuLQID3(GreedyTree):
    """A decision tree with multiway splits, each chosen by looking at noisy counts of every attribute.

    It pays for a table of class counts for each attribute and node, where ``DiffPID3`` pays for one
    noisy selection: the baseline against which that is measured. In return every criterion of its
    tables is free, gain ratio too.

    Args:
        epsilon: What ``fit`` costs in all.
        max_depth: Levels of splits; see ``DiffPID3``.
        criterion: ``"info_gain"``, ``"gain_ratio"``, ``"gini"`` or ``"max"``.
        variant: ``"best"``, or ``"paper"`` for the published budget split.
        attributes: Columns to split by; None for all but the target.
        cuts: Cut points for numeric attributes; see ``DiffPID3``.

    Attributes:
        tree_: The fitted ``Tree``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which the tree was grown.
        cost_: What ``fit`` really spent, exact; ``plan(schema).total`` unless some of it had been
            paid for before, or all leaves were reached early ("paper").

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: all answers are noisy counts. With d levels of splits and e = epsilon/(2(d+1)), "paper"
        asks a node that splits for its size at e and, of each of the a attributes that its way has
        not used, for the rows of each value and of each value and class at e/(2a) each: 2e in all.
        "best" asks for the latter alone, at 2e/a. A leaf costs 2e. Nodes of a level are disjoint;
        so a way costs at most epsilon.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_trees.py,
        tests/unit/budget/test_schedule.py.

    Notes:
        "best" (privacy.md 6): four times the epsilon for each cell of the tables, hence a quarter
        of its noise; the chosen attribute's table counts as what was asked of the children, the
        others' as what was asked of the node, and all of it enters consistent least squares.
        Whether a node is split is judged by what is known of it from its parent's table, at no
        cost.
        A target that is missing is no class: such rows count in the sizes that "paper" asks for,
        else nowhere. Attributes are ranked by information per row, H(C) included. The paper's V_A
        leaves both out, for they are the same for all attributes but for the noise; with it, the
        right attribute is found somewhat less often.

    References:
        Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 4.1, Algorithm 1.

    Examples:
        >>> SuLQID3(epsilon=2, criterion="gain_ratio")
        SuLQID3(criterion='gain_ratio', epsilon=2)
    """

    criteria = (*CRITERIA, "gain_ratio")

    epsilon: Loss = 1.0
    max_depth: int | None = None
    criterion: str = "info_gain"
    variant: Variant = "best"
    attributes: Sequence[str] | None = None
    cuts: Mapping[str, Sequence[float] | int] | None = None

    def _splits(self, schema: Schema, target: str | None) -> tuple[Candidate, ...]:
        return multiway_splits(schema, target, attributes=self.attributes, cuts=self.cuts)

    def _recipe(self, facts: Recipe, depth: int) -> Recipe:
        levels = min(depth, facts.attributes)
        per_attribute = 2 if self.variant == "paper" else 1
        # Weights are whole: a level has ``unit`` of them for its tables, however many tables that
        # makes.
        tables = [per_attribute * (facts.attributes - level) for level in range(levels)]
        unit = math.lcm(*tables)
        if self.variant == "paper":
            schedule = Schedule.by_weights(
                self.epsilon,
                [{"size": unit, "tables": (unit // count, count)} for count in tables],
                {"size": unit, "classes": unit},
            )
        else:
            schedule = Schedule.by_weights(
                self.epsilon, [{"tables": (unit // count, count)} for count in tables], {"classes": unit}
            )
        return replace(multiway_facts(facts, levels), schedule=schedule, factor=1.0 if self.variant == "paper" else 0.5)

    def _rules(self, recipe: Recipe) -> Rules:
        def choose(level: Level) -> Sequence[Split | None]:
            return _choose(recipe, level, self.criterion, paper=self.variant == "paper")

        return multiway_rules(recipe, choose, spend_rest=self.variant == "best")

    def _lines(self, recipe: Recipe, level: int, nodes: int) -> list[PlanLine]:
        ask, widest = recipe.schedule.levels[level]["tables"], recipe.fan_out[level]
        what = f"classes by {many(recipe.attributes - level, 'attribute')}, for the best split" + (
            ", and their sums" if self.variant == "paper" else ""
        )
        return [
            PlanLine(
                level,
                what,
                "noisy_count",
                nodes * widest * recipe.cells,
                ask.cost,
                noise_of(recipe.schema, ask.epsilon),
            )
        ]


def _choose(recipe: Recipe, level: Level, criterion: str, *, paper: bool) -> Sequence[Split | None]:
    """Asks for the tables of all attributes, one request for each attribute; the best split of each node by them."""
    epsilon = recipe.schedule.levels[level.number]["tables"].epsilon
    scale = count_scale(recipe.schema, epsilon)
    tables: list[dict[Candidate, np.ndarray]] = [{} for _ in level.nodes]
    scores: list[dict[Candidate, float]] = [{} for _ in level.nodes]
    for split in recipe.splits:
        places = np.array([split.column not in node.used for node in level.nodes])
        if not places.any():
            continue
        parts = level.parts[places].partition(split)
        sizes = np.asarray(parts.noisy_count(epsilon=epsilon)) if paper else None
        cells = np.asarray(parts.partition(Values(str(recipe.target))).noisy_count(epsilon=epsilon))
        for row, place in enumerate(np.flatnonzero(places)):
            tables[place][split] = cells[row]
            scores[place][split] = gain(
                criterion, cells[row][:, : recipe.classes], None if sizes is None else sizes[row]
            )
    best: list[Any] = [max(found, key=found.__getitem__) for found in scores]
    if not paper:
        for node, found, chosen in zip(level.nodes, tables, best, strict=True):
            for split, table in found.items():
                if split != chosen:
                    node.observe(table.sum(axis=0), len(table) * count_variance(scale))
        level.below, level.below_scale = [found[chosen] for found, chosen in zip(tables, best, strict=True)], scale
    return best
