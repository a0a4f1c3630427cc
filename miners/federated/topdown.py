# SPDX-License-Identifier: Apache-2.0
"""DP-TopDown: one tree from several data owners, each behind its own layer and ledger.

``InTurns`` lets one owner alone choose each level's splits, so the owner does not divide its epsilon over the other
levels. In a noisy choice, a gain of g per row among n rows at loss e is a signal of n g e, against noise of a fixed
size. Each owner has the whole epsilon, so a quarter of the rows at four times the loss gives the signal of all rows.
The price is that a quarter of the rows is a sample. All owners count the classes of the leaves.

Privacy:
    Claim: at each owner, every path from the root to a leaf costs ``Problem.epsilon`` in all, in the terms of its
    policy. Why: nodes of a level are disjoint. Best first, the steps of level t search a split for a node of level t
    once, at most at their price, and the leaf's histogram gets the rest of the path's epsilon. A split's gain is
    computed from noisy histograms, which also count its children: no score leaves an owner, and no query asks for a
    size alone. In turns, an owner gets queries for its size, for the splits of its own levels, and for each leaf's
    histogram with the rest. The order of turns, the next node to split and the nodes without a search follow from noisy
    answers. Held by: tests/unit/federated/test_topdown_bill.py.

References:
    Wang, Dick & Balcan 2020, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal, Self, get_args

from miners.budget.plan import (
    NOT_GIVEN,
    SMALLEST,
    PlanLine,
    Step,
    Storage,
    lost_votes,
    spread,
    tell,
)
from miners.estimator import Classifier, GrownMiner, require_word
from miners.federated.best_first import BestFirst, LocalChoice
from miners.federated.federation import (
    CountSource,
    FederatedParts,
    Federation,
    SumsNeeded,
)
from miners.federated.growing import (
    FederatedStrategy,
    HeldNode,
    SplitsByColumn,
    SplitSet,
    branch,
    gather,
    splitting_functions,
)
from miners.federated.owners_miner import (
    DISJOINT,
    NEEDS,
    OwnersFit,
    OwnersMiner,
    resumes,
)
from miners.fitted.node import Split
from miners.fitted.tree import Tree, faint_of
from miners.growth.candidates import (
    attribute_names,
    default_depth_note,
    families,
    levels_carried,
    require_criterion,
    score_of,
)
from miners.growth.fitted_nodes import estimated_nodes
from miners.growth.frontier import Problem, SplitCandidate, in_pieces, rehearsing
from miners.trees.diffp_c45 import LEAF_SHARE
from miners.trees.tree_miner import MAX_DEPTH
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.language.queries import MAX_NODES, PART_BYTES
from pinq.language.specs import MAX_PARTS
from pinq.public.checks import many, whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike
from pinq.public.schema import Schema


@dataclass(frozen=True)
class Turn:
    """A level whose splits one data owner chooses, by one query."""

    owner: str
    step: Step


@dataclass(frozen=True, kw_only=True)
class InTurns(FederatedStrategy):
    """Growth of a tree in turns.

    A level that would exceed ``max_nodes`` is not begun; its epsilon goes to the leaves.

    Attributes:
        candidates: The candidates for the split of each node.
        decay: Whether each of an owner's levels gets half of the one before, instead of the same.
    """

    candidates: Sequence[SplitCandidate]
    decay: bool = False

    def steps(self) -> list[Step]:
        rest = self.problem.epsilon - self._size_loss
        # With owners of equal size, at most one owner for each level gets a turn.
        names = [f"owner {number}" for number in range(1, min(self.owners, max(1, self.depth)) + 1)]
        turns = self.turns(dict.fromkeys(names, rest - self.leaves), dict.fromkeys(names, 1.0), 0)
        size = [Step(self.size_query("each owner"), 0, self._size_loss)] if self._size_loss else []
        return [*size, *(turn.step for turn in turns), self.leaf_step(len(turns), self.leaves if turns else rest)]

    def turns(self, left: Mapping[str, Epsilon], rows: Mapping[str, float], level: int) -> list[Turn]:
        """The owner that chooses at each level from ``level`` down; none for a level without epsilon."""
        levels = self.depth - level
        # No share may be below a nano.
        able = {name: rows[name] * loss.nano for name, loss in left.items() if loss.nano >= levels}
        order = deal(able, levels) if able else []
        losses = {name: iter(self._spread(left[name], order.count(name))) for name in dict.fromkeys(order)}
        best = f"best split by {many(len(self.attributes), 'attribute')}"
        return [
            Turn(name, self.choice_step(number, f"{best}, of {name}", next(losses[name])))
            for number, name in enumerate(order, start=level)
        ]

    def grow(self, source: CountSource) -> list[HeldNode]:
        root = HeldNode(parts=source.parts())
        rows = self._ask_sizes(source, root)
        nodes, frontier, splits, level = [root], [root], 0, 0
        turns = self.turns(self._left(source, root), rows, level)
        while turns and frontier and splits + len(frontier) <= self.max_nodes:
            parts, frontier = gather(frontier)
            chosen = self._ask_splits(frontier, parts, turns[0])
            if chosen is None:  # the owner was dropped: the others take its turns
                turns = self.turns(self._left(source, frontier[0]), rows, level)
                continue
            split_of = {node: split for node, split in zip(frontier, chosen, strict=True) if split is not None}
            frontier = branch(self.problem.schema, nodes, list(split_of), list(split_of.values())) if split_of else []
            splits, level, turns = splits + len(split_of), level + 1, turns[1:]
        self.ask_leaves(source, [node for node in nodes if node.split is None])
        return nodes

    @property
    def _size_loss(self) -> Epsilon:
        """The cost of each owner's size; 0 if one owner has all turns, or there is no choice."""
        # A fiftieth of epsilon goes into each owner's size.
        return self.problem.epsilon // 50 if self.depth and self.owners > 1 else ZERO

    def _spread(self, epsilon: Epsilon, levels: int) -> Sequence[Epsilon]:
        """Divides an owner's loss among its levels."""
        return spread(epsilon, [2 ** (levels - 1 - level) if self.decay else 1 for level in range(levels)])

    def _left(self, source: CountSource, node: HeldNode) -> dict[str, Epsilon]:
        """The rest of each remaining owner's epsilon for choices, below a node."""
        choices = self.problem.epsilon - self.leaves
        return {name: choices - node.paid_at(name) for name in source.owners}

    def _ask_sizes(self, source: CountSource, root: HeldNode) -> dict[str, float]:
        """Each owner's noisy number of rows, divided by the distance of its neighbours."""
        if not self._size_loss:
            return dict.fromkeys(source.owners, 1.0)
        sizes = root.parts.noisy_count(epsilon=self._size_loss, reuse=self.reuse)
        for name in sizes:
            root.pay(name, self._size_loss)
        return {name: float(count[0]) / source.distance(name) for name, count in sizes.items()}

    def _ask_splits(self, nodes: Sequence[HeldNode], parts: FederatedParts, turn: Turn) -> list[Split | None] | None:
        """Lets one owner choose a split for each node; None if it was dropped meanwhile."""
        score = score_of(self.criterion, self.target)
        losses = {turn.owner: turn.step.epsilon}

        def ask(some: FederatedParts, asked_nodes: Sequence[tuple[HeldNode]]) -> list[Split | None]:
            chosen = some.exp_mech(self.candidates, score=score, epsilon=losses, reuse=self.reuse)
            if turn.owner not in chosen:
                return []
            for (node,) in asked_nodes:
                node.pay(turn.owner, turn.step.epsilon)
            return chosen[turn.owner]

        chosen = in_pieces(ask, parts, [(node,) for node in nodes])
        return chosen if len(chosen) == len(nodes) else None


def deal(sizes: Mapping[str, float], levels: int) -> list[str]:
    """Distributes levels in proportion to the sizes, by D'Hondt's rule, the largest first.

    So all choices are about equally exact.
    """
    turns: list[str] = []
    for _ in range(levels):
        # Sizes 600 and 250: the quotients 600, 300, 250, 200, ... give the first two turns to the
        # first, the third to the second, the fourth to the first.
        turns.append(max(sizes, key=lambda name: max(sizes[name], 1.0) / (turns.count(name) + 1)))
    return turns


CRITERION = {"entropy": "info_gain", "gini": "gini", "max": "max"}
WIDEST = 3  # the most parts of a split in two: missing numbers are a separate part
CERTAINTY = 0.25
MAX_DECAYS = 6  # halved more often, a share would be too small

TreeStrategyName = Literal["turns", "noisy_counts", "secure", "local_rnm", "single"]
BudgetName = Literal["uniform", "decay"]


@dataclass(frozen=True)
class OwnersTreeFit(OwnersFit):
    """The fit of a tree on several data owners."""

    miner: FederatedTopDown
    strategy: FederatedStrategy

    def among(self, owners: int, *, resume: bool = False) -> Self:
        if self.miner.strategy == "single" and owners > 1:
            raise QueryError(f"strategy 'single' learns from one owner, and there are {owners}.")
        return replace(self, strategy=replace(self.strategy, owners=owners, reuse=resume))

    def rehearse(self, handle: PrivateQueryable) -> Storage:
        """Rehearses the growth of one level. Later requests may be about one node each."""
        with rehearsing(handle) as (rehearsal, asked):
            root = replace(self.strategy, owners=1, depth=min(1, self.strategy.depth))
            root.grow(Federation([rehearsal]))
        below = len(asked) * PART_BYTES * MAX_DEPTH
        node = below + sum(request.stored(self.strategy.problem.schema) for request in asked)
        return Storage(node, WIDEST * node, "max_nodes", self.strategy.max_nodes)

    def learn(self, source: CountSource) -> Tree:
        problem = self.strategy.problem
        nodes = self.strategy.grow(source)
        for node in nodes:  # from the remaining owners only, so that all counts are of the same people
            node.pool(source)
        estimated = estimated_nodes([nodes], problem.cells, problem.classes, CERTAINTY)[0]
        tree = Tree(problem.schema, str(problem.target), estimated)
        tell(faint_of([tree]))
        return tree

    @property
    def total(self) -> Epsilon:
        return self.strategy.problem.epsilon

    @property
    def title(self) -> str:
        levels = many(self.lines()[-1].level, "level")
        facts = f"{many(self.strategy.owners, 'owner')}, strategy {self.miner.strategy!r}, {levels} of splits"
        name, target = type(self.miner).__name__, self.strategy.problem.target
        return f"{name} for `{target}`: {facts}, criterion {self.miner.criterion}"

    def lines(self) -> Sequence[PlanLine]:
        return self.strategy.lines()

    def notes(self) -> Iterator[str]:
        yield DISJOINT
        if self.miner.strategy == "turns" and self.strategy.owners > 1:
            yield (
                "one owner chooses the splits of each level and pays for it; an owner that paid for fewer "
                "levels has more left for the leaves."
            )
            yield (
                "the levels are distributed in proportion to noisy sizes; the plan shows the queries to "
                "owners of equal size."
            )
        if self.miner.strategy == "secure":
            yield (
                "the noise shown is that of one owner; if c of m parties may pool their noise, its variance is "
                "m / (m - c) times as large."
            )
        if self.miner.strategy != "turns":
            yield (
                f"at most {self.miner.max_nodes:,} nodes are split, the most promising first; a leaf gets all that "
                "its path has left."
            )
        depth = self.lines()[-1].level
        if self.miner.max_depth is not None and depth < self.miner.max_depth:
            yield (
                f"no more than {many(depth, 'level')} of splits are planned: a deeper full tree splits "
                "more than max_nodes, or has too little epsilon for a node."
            )
        if self.miner.max_depth is None:
            yield default_depth_note(depth)

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        problem, leaves = self.strategy.problem, self.strategy.steps()[-1]
        if not leaves.level and self.miner.max_depth is None:
            return (
                f"at epsilon {problem.epsilon} and at most {problem.schema.max_rows:,} rows noise hides every level of "
                "splits, so all rows get one prediction; a larger `epsilon` is needed for any split.",
            )
        if self.miner.strategy != "turns":  # best-first growth stops by itself
            return ()
        noise, _ = leaves.noise
        expected = problem.schema.max_rows if rows is None else rows
        return lost_votes(expected, 2**leaves.level, noise * self.strategy.owners**0.5, known=rows is not None)


@dataclass(kw_only=True, repr=False, eq=False)
class FederatedTopDown(OwnersMiner, Classifier, GrownMiner):
    """A decision tree from the tables of several data owners.

    A coordinator learns it; no data owner has to trust the coordinator. ``fit`` takes a ``Federation`` of handles, or
    one handle.

    Args:
        epsilon: The cost of ``fit`` at each data owner, in its own policy's terms.
        strategy: The search for splits. ``"turns"``, the most accurate: one owner chooses all splits of a level, in
            turns, and all owners count the leaves. The other strategies grow best-first, as in the paper:
            ``"noisy_counts"`` queries histograms of all splitting functions from all owners; ``"secure"`` does so with
            one noise for all, with a ``pinq_secure.SecureFederation``; ``"local_rnm"`` lets each owner propose a split
            for a node, and histograms from all decide among the proposals; ``"single"`` is the same with one owner.
        criterion: ``"gini"``, ``"entropy"`` or ``"max"`` (correctly classified rows).
        max_nodes: The largest number of nodes that are split.
        leaf_fraction: The smallest fraction of ``epsilon`` for the leaves' classes, above 0 and
            below 1. None for a sixth ("turns") or a quarter; the paper has a half.
        budget: ``"uniform"`` gives every depth the same epsilon; ``"decay"`` gives each depth half
            of the one above. None is ``"decay"`` if growth is best-first and at most six levels
            deep, else ``"uniform"``.
        max_depth: The largest number of splits on a path, 0 to 60. None for a number that follows
            from public facts.
        attributes: The columns to split by. None for all but the target.
        splits: The splitting functions by column, instead of the default: thresholds of a numeric
            column, or a number of evenly spaced ones; values or lists of values of a categorical
            column, each against the rest. By default the mechanism of "turns" finds thresholds and
            groups, and the other strategies choose among ten thresholds and single values.
        at_once: The number of nodes that best-first growth splits before it evaluates their
            children together. 1 is exactly the paper's algorithm and needs more round trips.
        resume: Whether to use the stored answers of identical earlier queries. An interrupted fit then pays only for
            the missing answers.

    Attributes:
        tree_: The fitted ``Tree``, pruned.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public columns under which the tree was grown.
        card_: The participants, their costs, and who was dropped.
        cost_: The largest charge of a data owner, exact: ``epsilon`` unless some answers were
            paid for before. An owner that does not report counts as ``epsilon``.

    Privacy:
        Adjacency: each owner's policy. Claim: ``fit`` is ``epsilon``-DP at each data owner, in its
        own policy's terms, for any behaviour of the coordinator and the other owners.
        Why: on every path from the root to a leaf the costs of the queries to an owner add up to
        ``epsilon`` (``miners.federated.topdown``), and its ledger charges and enforces this. A
        person is at one owner only, so costs do not add up over owners. Scores are the layer's,
        scaled to counts and with public sensitivities. A choice publishes an index, never a score.
        Exact: nano-epsilons. Held by: tests/unit/federated/test_topdown_bill.py,
        tests/privacy/test_topdown_releases.py.

    Notes:
        The differences from the paper, whose printed mechanisms are not private, are in docs/papers.md.

    References:
        Wang, Dick & Balcan 2020, "Scalable and Provably Accurate Algorithms for Differentially
        Private Distributed Decision Tree Learning".

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Federation, FederatedTopDown
        >>> rows = pd.read_parquet("data/adult.parquet")
        >>> handles = {
        ...     name: pinq.simulate("policies/adult.yaml", data=rows[start::3], epsilon=1)
        ...     for start, name in enumerate(["north", "south", "west"])
        ... }
        >>> tree = FederatedTopDown(epsilon=1, max_depth=2).fit(Federation(handles), "income")
        >>> {name: float(spent) for name, spent in tree.card_.spent.items()}
        {'north': 1.0, 'south': 1.0, 'west': 1.0}
        >>> bool(tree.score(rows) > 0.75)
        True
    """

    _former = "DPTopDown"
    _other = "FederatedScorecardRegressor"
    _noted_as = "card"
    _made = "Tree"
    epsilon: EpsilonLike = NOT_GIVEN
    strategy: TreeStrategyName = "turns"
    criterion: str = "gini"
    max_nodes: int = 512
    leaf_fraction: EpsilonLike | None = None
    budget: BudgetName | None = None
    max_depth: int | None = None
    attributes: Sequence[str] | None = None
    splits: SplitsByColumn | None = None
    at_once: int = 16
    resume: bool = False

    def sums_needed(self, schema: Schema, target: str) -> SumsNeeded:
        """Returns the sums that a fit needs from parties that add up, with the smallest epsilon of its counts. Free.

        The strategy must be "secure" or "noisy_counts".

        Raises:
            QueryError: A parameter or the target is wrong, or the strategy needs more than counts.
        """
        problem = self._problem(schema, target)
        if NEEDS[self.strategy] == "choices":
            raise QueryError(
                f"strategy {self.strategy!r} asks for choices too; 'secure' and 'noisy_counts' ask for counts alone."
            )
        strategy = self._best_first(problem)
        recipe = strategy.recipe()
        # A leaf gets the rest of its path's epsilon: at least the part of no level.
        smallest = min([strategy.count_epsilon(steps, 1) for steps in recipe.levels] + [recipe.leaf[0].epsilon])
        return SumsNeeded(tuple(function.base for function in strategy.functions), smallest)

    # Checks

    def _checked(self, schema: Schema, target: str) -> OwnersTreeFit:
        problem = self._problem(schema, target)
        return OwnersTreeFit(self, self._turns(problem) if self.strategy == "turns" else self._best_first(problem))

    def _problem(self, schema: Schema, target: str) -> Problem:
        require_word("strategy", self.strategy, get_args(TreeStrategyName))
        resumes(self.resume, False, keeps=self.strategy != "secure")
        require_word("budget", self.budget, (*get_args(BudgetName), None))
        require_criterion(self.criterion, CRITERION)
        whole_number("max_nodes", self.max_nodes, 1, MAX_NODES)
        whole_number("at_once", self.at_once, 1, MAX_NODES)
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        self._require_target(schema, target)
        column = schema.column(target)
        return Problem(schema, target, column.codes, column.cells, Epsilon.of(self.epsilon))

    # Strategies

    def _turns(self, problem: Problem) -> InTurns:
        names = attribute_names(problem.schema, problem.target, self.attributes)
        candidates: Sequence[SplitCandidate] = families(problem.schema, names)
        if self.splits is not None:
            candidates = [split for functions in self._functions(problem) for split in functions.splits]
        # A full tree of d levels splits 2^d - 1 nodes; more where missing numbers are a third part,
        # which growth looks to.
        nodes = min(self.max_nodes, self._max_splits(problem))
        depth = min(self._depth(problem, names), int(nodes + 1).bit_length() - 1)
        return InTurns(
            problem=problem,
            attributes=names,
            criterion=CRITERION[self.criterion],
            depth=depth,
            max_nodes=nodes,
            leaves=self._leaves(problem.epsilon, Fraction(1, LEAF_SHARE)),
            candidates=candidates,
            decay=self.budget == "decay",
        )

    def _best_first(self, problem: Problem) -> BestFirst:
        names = attribute_names(problem.schema, problem.target, self.attributes)
        depth = self._depth(problem, names)
        if self.max_depth is None:
            depth = max(2, depth)
        growth = LocalChoice if self.strategy in ("local_rnm", "single") else BestFirst
        return growth(
            problem=problem,
            attributes=names,
            criterion=CRITERION[self.criterion],
            depth=depth,
            max_nodes=min(self.max_nodes, self._max_splits(problem)),
            leaves=self._leaves(problem.epsilon, Fraction(1, 4)),
            decay=self.budget == "decay" or (self.budget is None and depth <= MAX_DECAYS),
            functions=self._functions(problem),
            at_once=self.at_once,
        )

    def _max_splits(self, problem: Problem) -> int:
        """The number of nodes that can be split so that one query can count all their children's classes."""
        return min(MAX_PARTS // (WIDEST * problem.cells), MAX_NODES // (1 + WIDEST))

    def _depth(self, problem: Problem, names: Sequence[str]) -> int:
        """The levels: the given number, or as many as the budget supports."""
        if self.max_depth is not None:
            return self.max_depth
        return levels_carried(problem.schema, names, problem.schema.max_rows, problem.epsilon)

    def _functions(self, problem: Problem) -> Sequence[SplitSet]:
        return splitting_functions(problem.schema, problem.target, attributes=self.attributes, splits=self.splits)

    def _leaves(self, epsilon: Epsilon, default: Fraction) -> Epsilon:
        """The least epsilon of the leaves: a share of epsilon, at least a nano-epsilon."""
        share = default if self.leaf_fraction is None else _fraction("leaf_fraction", self.leaf_fraction)
        return max(SMALLEST, epsilon * share.numerator // share.denominator)


def _fraction(name: str, value: object) -> Fraction:
    """A parameter that is a share of a budget, exact; raises ``QueryError`` for another value."""
    is_number = isinstance(value, (int, float, Decimal, Fraction)) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1:  # type: ignore[operator]
        raise QueryError(f"is {value!r}", parameter=name, allowed="above 0 and below 1, or None")
    return Fraction(value)  # type: ignore[call-overload]
