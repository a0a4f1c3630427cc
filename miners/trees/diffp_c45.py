# SPDX-License-Identifier: Apache-2.0
"""DiffPC4.5: numeric attributes split at points that the mechanism finds, and pruning (Friedman & Schuster 2010, sec. 4.3 and 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from miners.budget.plan import PlanLine
from miners.budget.schedule import Schedule
from miners.fitted.tree import Split
from miners.growth.candidates import attribute_names, choose_in_pieces, default_levels, families, levels_carried
from miners.growth.criteria import CRITERIA, blur
from miners.growth.frontier import Level, Rules
from miners.trees.tree_miner import GreedyTree, Recipe, Variant, many
from pinq.errors import QueryError
from pinq.public.epsilon import Loss
from pinq.public.schema import Numeric, Schema
from pinq.public.specs import AnyCut, Family, Values

__all__ = ["LEAF_SHARE", "DiffPC45"]

LEAF_SHARE = 6  # the leaf's histogram gets one part in so many of epsilon


@dataclass(kw_only=True, repr=False, eq=False)
class DiffPC45(GreedyTree):
    """A decision tree that finds its own split points, grown level by level on a private handle.

    A numeric attribute is split in two at a point of its public grid; a categorical one into two
    groups of its values ("best") or into all of its values ("paper"). Attribute and point are
    chosen together, by one noisy selection for each node; all nodes of a level are asked together,
    as one request and one charge. Splits that pay neither for the class nor for the shares are
    pruned.

    Args:
        epsilon: What ``fit`` costs in all.
        max_depth: Levels of splits, 0 to 60. None for as many as public facts (epsilon,
            ``max_rows``, the attributes) let expect to be of use; for ``variant="paper"`` 5.
        criterion: ``"gini"``, ``"max"`` (rows that a vote gets right) or ``"info_gain"``.
        variant: ``"best"``, or ``"paper"`` for the published budget split and mechanism.
        certainty: C4.5's certainty factor, above 0 and up to 0.5: the smaller, the more is pruned
            of what pays for the class alone. None prunes nothing. "best" keeps a split also where
            it tells class shares apart; "paper" prunes by errors alone.
        attributes: Columns to split by; None for all but the target.

    Attributes:
        tree_: The fitted ``Tree``, pruned.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which the tree was grown.
        cost_: What ``fit`` really spent, exact; ``plan(schema).total`` unless some of it had been
            paid for before, or ("paper") all leaves were reached early.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: "best" asks each node of d levels one question at 5 epsilon / 6d and each leaf one at
        epsilon / 6; "paper", with n numeric attributes and e = epsilon/((2+n)d+2), asks a node that
        splits for its size, one cut for each of them and one choice, at e each, and a leaf for size
        and classes at e each. Nodes of a level are disjoint, so each way from the root down costs
        at most epsilon. The choice over all cuts of a column weighs them by a public measure, the
        grid (privacy.md 2.7). Pruning looks at answers alone.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_trees.py,
        tests/unit/budget/test_schedule.py.

    Notes:
        What "best" does otherwise than the paper at equal epsilon (privacy.md 2.7 and 6): one
        selection over all pairs of attribute and cut, in place of one for each numeric attribute
        and another among the results; exponents without the factor 2; no sizes; consistent counts
        in place of Algorithm 3; class shares that lean on the parent's as far as noise demands.
        Trade-offs that measured better: "gini", two groups of values, fixed depth without a stop
        test, a sixth of epsilon for the leaves. "paper" selects by the textbook exponential
        mechanism with its factor 2 and calibrates counts by Algorithm 3.
        Subtrees are pruned to leaves, not raised: see ``miners.growth.pruning``.

    References:
        Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 4.3, 4.4, Algorithm
        3; Quinlan 1993, "C4.5".

    Examples:
        >>> DiffPC45(epsilon=0.5)
        DiffPC45(epsilon=0.5)
    """

    epsilon: Loss = 1.0
    max_depth: int | None = None
    criterion: str = "gini"
    variant: Variant = "best"
    certainty: float | None = 0.25
    attributes: Sequence[str] | None = None

    def _certainty(self) -> float | None:
        if self.certainty is None:
            return None
        if (
            isinstance(self.certainty, bool)
            or not isinstance(self.certainty, (int, float))
            or not 0 < self.certainty <= 0.5
        ):
            raise QueryError(
                f"`certainty` is {self.certainty!r}; it must be above 0 and at most 0.5, or None to prune nothing."
            )
        return float(self.certainty)

    def _splits(self, schema: Schema, target: str | None) -> tuple[Values | Family, ...]:
        names = attribute_names(schema, target, self.attributes)
        if self.variant == "best":
            return families(schema, names)
        return tuple(AnyCut(name) if isinstance(schema.columns[name], Numeric) else Values(name) for name in names)

    def _recipe(self, facts: Recipe, depth: int) -> Recipe:
        self._certainty()
        numeric = [split for split in facts.splits if isinstance(split, AnyCut)]
        if self.variant == "best":
            schedule = Schedule.even(
                self.epsilon, depth, node={"split": LEAF_SHARE - 1}, leaf={"classes": max(1, depth)}
            )
            return replace(facts, schedule=schedule, fan_out=(facts.widest(),) * depth)
        # Without a numeric attribute each attribute is used up by its split, as in ID3.
        levels = depth if numeric else min(depth, facts.attributes)
        node: dict[str, int | tuple[int, int]] = (
            {"size": 1, "cut": (1, len(numeric)), "split": 1} if numeric else {"size": 1, "split": 1}
        )
        schedule = Schedule.even(self.epsilon, levels, node=node, leaf={"size": 1, "classes": 1})
        widest = facts.widest()
        return replace(facts, schedule=schedule, fan_out=(widest,) * levels, factor=1.0)

    def _default_depth(self, recipe: Recipe) -> int:
        return default_levels(
            recipe.schema, [split.column for split in recipe.splits], recipe.schema.max_rows, self.epsilon
        )

    def _carried(self, recipe: Recipe, rows: int) -> int:
        """How many levels the budget carries."""
        if self.variant == "paper":
            return super()._carried(recipe, rows)
        return levels_carried(recipe.schema, [split.column for split in recipe.splits], rows, self.epsilon)

    def _rules(self, recipe: Recipe) -> Rules:
        ask = partial(
            choose_in_pieces,
            schema=recipe.schema,
            measure=recipe.cells,
            score=CRITERIA[self.criterion][0](str(recipe.target)),
        )
        if self.variant == "best":

            def together(level: Level) -> Sequence[Split | None]:
                return ask(level.parts, recipe.splits, epsilon=recipe.schedule.levels[level.number]["split"].epsilon)

            return Rules(
                recipe.schema, recipe.cells, recipe.schedule, recipe.ask, together, widest=lambda _: recipe.widest()
            )

        def one_by_one(level: Level) -> Sequence[Split | None]:
            asks = recipe.schedule.levels[level.number]
            candidates: list[list[Any]] = [
                [split for split in recipe.open_splits(node.used) if isinstance(split, Values)] for node in level.nodes
            ]
            for family in (split for split in recipe.splits if isinstance(split, AnyCut)):
                cuts = ask(level.parts, [family], epsilon=asks["cut"].epsilon, textbook=True)
                for offered, cut in zip(candidates, cuts, strict=True):
                    offered += [cut] if cut is not None else []
            chosen: list[Split | None] = [None] * len(candidates)
            able = [place for place, offered in enumerate(candidates) if offered]
            found = (
                ask(
                    level.parts[able],
                    [candidates[place] for place in able],
                    epsilon=asks["split"].epsilon,
                    textbook=True,
                )
                if able
                else []
            )
            for place, split in zip(able, found, strict=True):
                chosen[place] = split
            return chosen

        def enough(node: Any) -> float:
            return recipe.enough(recipe.widest(node.used))

        return Rules(
            recipe.schema,
            recipe.cells,
            recipe.schedule,
            recipe.ask,
            one_by_one,
            enough,
            spend_rest=False,
            widest=lambda node: recipe.widest(node.used),
        )

    def _lines(self, recipe: Recipe, level: int, nodes: int) -> list[PlanLine]:
        asks = recipe.schedule.levels[level]
        lines = []
        if "cut" in asks:
            cut = asks["cut"]
            asked = f"best cut of each of {many(cut.times, 'numeric attribute')}"
            lines.append(
                PlanLine(
                    level,
                    asked,
                    "exp_mech",
                    nodes,
                    cut.cost,
                    *blur(recipe.schema, self.criterion, cut.epsilon, textbook=self.variant == "paper"),
                )
            )
        split = asks["split"].epsilon
        what = f"best split by {many(recipe.attributes, 'attribute')}" + (
            ", cuts and groups included" if self.variant == "best" else ""
        )
        return [
            *lines,
            PlanLine(
                level,
                what,
                "exp_mech",
                nodes,
                split,
                *blur(recipe.schema, self.criterion, split, textbook=self.variant == "paper"),
            ),
        ]
