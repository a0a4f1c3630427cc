# SPDX-License-Identifier: Apache-2.0
"""DP-TopDown: one tree from several data holders, each behind its own layer and ledger.

Wang, Dick & Balcan 2020 describe it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Self

from miners.budget.payment import require_budget
from miners.budget.plan import Plan, lost_votes, remember_fit, warn_before_fit
from miners.estimator import TreeClassifier, require_varied, whole_number
from miners.federated.asking import Task
from miners.federated.best_first import BestFirst
from miners.federated.bill import DISJOINT, HoldersBill, cost_of, resumes, source_of
from miners.federated.card import Card
from miners.federated.held_node import HeldNode
from miners.federated.source import CountSource, SumsNeeded
from miners.federated.split_finders import LocalChoice, NoisyCounts
from miners.federated.splitting import SplitsByColumn, SplitSet, splitting_functions
from miners.federated.strategy import NEEDS, STRATEGIES, FederatedStrategy, StrategyName, require_abilities
from miners.federated.turns import InTurns
from miners.fitted.tree import Tree
from miners.growth.candidates import attribute_names, default_depth_note, families, levels_carried
from miners.growth.criteria import require_criterion
from miners.growth.fitted_nodes import estimated_nodes
from miners.trees.diffp_c45 import LEAF_SHARE
from miners.trees.strategy import Problem, SplitCandidate, many
from miners.trees.tree_miner import MAX_DEPTH, require_word
from pinq.errors import QueryError, unspent
from pinq.public.epsilon import ZERO, Epsilon, Loss
from pinq.public.schema import Schema

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["Card", "DPTopDown"]

CRITERION = {"entropy": "info_gain", "gini": "gini", "max": "max"}
SIZE_SHARE = 50  # one part in so many of epsilon goes into each holder's size
MAX_NODES = 2**16
CERTAINTY = 0.25
MAX_DECAYS = 6  # halved more often, a share is too thin to be of use


@dataclass(kw_only=True, repr=False, eq=False)
class DPTopDown(TreeClassifier):
    """A decision tree from several data holders' tables.

    A coordinator that none of them needs to trust grows it. ``fit`` takes a ``Federation`` of
    handles, or one handle. The holders hold disjoint people, so the fit costs ``epsilon`` at each
    of them, in the terms of its own policy.

    Args:
        epsilon: What ``fit`` costs at each holder.
        strategy: How splits are found. ``"turns"``, the most accurate: each level's splits are
            chosen by one holder alone, in turns, and all holders count the leaves. The others grow
            best-first, like the paper: ``"local_rnm"`` (holders propose, histograms from all
            decide), ``"noisy_counts"`` (histograms of all splitting functions from all holders),
            ``"single"`` (one holder), ``"secure"`` (as noisy_counts, with one noise for all: of
            parties that add up under secret sharing, a ``miners.secure.SecureFederation``).
        criterion: ``"gini"``, ``"entropy"`` or ``"max"`` (rows that a vote gets right).
        max_nodes: The most nodes that are split.
        leaf_fraction: What part of ``epsilon`` goes to the leaves' classes at least, above 0 and
            below 1. None for a sixth ("turns") or a quarter; the paper has a half.
        budget: ``"uniform"``, every depth as much, or ``"decay"``, each half of the one above. None
            for "decay" where growth is best-first and at most six levels deep, else "uniform".
        max_depth: The most splits on a path, 0 to 60. None for what public facts let expect to be of
            use.
        attributes: Columns to split by; None for all but the target.
        splits: The splitting functions, by column, where the default is not wanted: thresholds of a
            numeric column or how many evenly spaced ones, values or lists of values of a
            categorical one, each against the rest. By default "turns" lets the mechanism find
            thresholds and groups, the others choose among ten thresholds and single values.
        at_once: How many nodes best-first growth splits before it judges their children together; 1
            is the paper's algorithm to the letter and takes as many more round trips.
        resume: Take answers to the same questions that were paid for before. A fit that was broken
            off is repeated so and pays only for what is new.

    Attributes:
        tree_: The fitted ``Tree``, pruned.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public columns under which the tree was grown.
        card_: Who took part, what it cost there, who was dropped; a ``Card``.
        cost_: The largest of what the holders charged, exact: ``epsilon`` unless some of it had
            been paid for before. Who does not say counts as ``epsilon``.

    Privacy:
        Adjacency: at each holder its policy's. Claim: ``fit`` is ``epsilon``-DP at each holder, in
        its own policy's terms, whatever the coordinator and the other holders do.
        Why: on every path from the root to a leaf the shares of what a holder is asked add up to
        ``epsilon``: see ``miners.federated.turns`` and ``miners.federated.best_first``; its ledger
        charges and enforces just that. A person is one holder's only, so nothing adds up over
        holders. Scores are the layer's, scaled to counts and with public sensitivities; a choice
        publishes an index, never a score.
        Exact: nano-epsilons. Held by: tests/unit/federated/test_topdown_bill.py,
        tests/privacy/test_topdown_releases.py.

    Notes:
        What differs from the paper, whose mechanisms are not private as printed (privacy.md 2.8):
        no noise is scaled by private sizes; a gain comes from a fresh histogram of the chosen
        split, which also counts the children; one table for each column in place of three kinds of
        counts for each splitting function; nothing is asked after the last split; decay shares add
        up to what there is, and a leaf takes what its path has left. Trade-offs and gains that
        measured better: the layer's selection without the factor 2, consistent counts, shrunken
        shares, pruning, no split where noise drowns the counts.

    References:
        Wang, Dick & Balcan 2020, "Scalable and Provably Accurate Algorithms for Differentially
        Private Distributed Decision Tree Learning".

    Examples:
        >>> DPTopDown(epsilon=0.5, strategy="local_rnm")
        DPTopDown(epsilon=0.5, strategy='local_rnm')
    """

    epsilon: Loss = 1.0
    strategy: StrategyName = "turns"
    criterion: str = "gini"
    max_nodes: int = 512
    leaf_fraction: Loss | None = None
    budget: Literal["decay", "uniform"] | None = None
    max_depth: int | None = None
    attributes: Sequence[str] | None = None
    splits: SplitsByColumn | None = None
    at_once: int = 16
    resume: bool = False

    def fit(self, handle: CountSource | PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Grows the tree.

        Args:
            handle: The holders' handles, as a ``Federation``; parties that add up, as a
                ``miners.secure.SecureFederation``; or one handle.
            target: The categorical column to predict.
            reuse: Take the stored answers where the same fit was paid for before, at no cost; of
                several holders as ``resume=True``.

        Raises:
            QueryError: A parameter or the target is wrong.
            HolderFailed: A holder failed, or has less than ``epsilon`` left, and the federation
                does not go on without it; says what was spent where.
        """
        with unspent():
            resume = resumes(self.resume, reuse, keeps=self.strategy != "secure")
            source = source_of(handle, self, reuse=reuse)
            count = len(source.holders)
            strategy = self._checked(source.schema, target, count)
            require_abilities(self.strategy, source)
            if not resume:  # of a fit that was broken off a part has been paid for
                source.each(lambda budget: require_budget(budget, strategy.problem.epsilon, miner=self))
                warn_before_fit(self, handle, strategy.problem.epsilon, self._warnings(strategy, count))
        with HoldersBill(source) as bill:
            nodes = strategy.grow(Task(source, strategy.problem, resume))
        self.card_: Card = bill.card(self.strategy)
        remember_fit(self, handle)
        cost = cost_of(self.card_, strategy.problem.epsilon.exact)
        return self._fitted(_tree(strategy.problem, source, nodes), cost)

    def to_json(self) -> str:
        """The fitted miner as text: its parameters, what it cost, its tree, its card."""
        return json.dumps(json.loads(super().to_json()) | {"card": self.card_.to_dict()}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads what ``to_json`` wrote. ``QueryError`` where it is something else."""
        miner = super().from_json(text)
        miner.card_ = Card.from_dict(json.loads(text).get("card"))
        return miner

    def plan(self, schema: Schema, target: str, *, holders: int = 1) -> Plan:
        """Says what ``fit`` is going to ask of each holder, and what it costs there.

        Free: it looks at the schema only.

        Args:
            schema: The public schema, ``federation.schema``.
            target: The column to predict.
            holders: How many there are.
        """
        strategy = self._checked(schema, target, whole_number("holders", holders, 1, 10**6))
        lines = strategy.lines(holders)
        depth = lines[-1].level
        title = (
            f"DPTopDown for `{target}`: {many(holders, 'holder')}, strategy {self.strategy!r}, "
            f"{many(depth, 'level')} of splits, criterion {self.criterion}"
        )
        notes = tuple(self._notes(holders, depth))
        return Plan(title, lines, strategy.problem.epsilon.exact, notes, self._warnings(strategy, holders))

    def smallest_count_loss(self, schema: Schema, target: str) -> Fraction:
        """Returns the smallest loss at which a fit asks for a count. Free.

        The strategy must be "secure" or "noisy_counts".

        Args:
            schema: The public schema.
            target: The column to predict.

        Raises:
            QueryError: A parameter or the target is wrong, or the strategy asks for more than
                counts.
        """
        problem = self._problem(schema, target, 1)
        if NEEDS[self.strategy] == "choices":
            raise QueryError(
                f"strategy {self.strategy!r} asks for choices too; 'secure' and 'noisy_counts' ask for counts alone."
            )
        return self._best_first(problem).smallest_count().exact

    def sums_needed(self, schema: Schema, target: str) -> SumsNeeded:
        """Returns what a fit asks of parties that add up. Free; see ``smallest_count_loss``."""
        problem = self._problem(schema, target, 1)
        cells = tuple(function.base for function in self._functions(problem))
        return SumsNeeded(cells, Epsilon.of(self.smallest_count_loss(schema, target)))

    def _in_a_line(self) -> str:
        return f"{self._model!r}. {self.card_!r}"

    def _plan_of(self, fitted: DPTopDown) -> Plan:
        return fitted.plan(self.schema_, self._model.target, holders=len(self.card_.spent))

    # What a plan says

    def _notes(self, holders: int, depth: int) -> Iterator[str]:
        """Yields what is worth knowing, one sentence each."""
        yield DISJOINT
        if self.strategy == "turns" and holders > 1:
            yield (
                "each level is chosen by one holder, which pays for that one; who has paid for fewer levels "
                "has more left for the leaves."
            )
            yield (
                "the levels are dealt out in proportion to noisy sizes; shown is what holders of equal size "
                "would be asked."
            )
        if self.strategy == "secure":
            yield (
                "noise is that of one holder; where c of m parties may pool what they drew, its variance is "
                "m / (m - c) times what is shown."
            )
        if self.strategy != "turns":
            yield (
                f"at most {self.max_nodes:,} nodes are split, the most promising first; a leaf takes all that "
                "its path has left."
            )
        if self.max_depth is not None and depth < self.max_depth:
            yield (
                f"no more than {many(depth, 'level')} of splits are planned: with more a full tree splits "
                "more than max_nodes, or epsilon is too thin."
            )
        if self.max_depth is None:
            yield default_depth_note(depth)

    def _warnings(self, strategy: FederatedStrategy, holders: int) -> tuple[str, ...]:
        """Whether anything is split, and whether the leaves' votes stand out of the noise."""
        problem, leaves = strategy.problem, strategy.steps(holders)[-1]
        if not leaves.level and self.max_depth is None:
            facts = f"at epsilon {problem.epsilon} and at most {problem.schema.max_rows:,} rows"
            lost = "no level of splits stands out of the noise, so all rows get one prediction"
            return (f"{facts} {lost}; a larger `epsilon` is needed for any split.",)
        if self.strategy != "turns":  # best-first growth stops by itself
            return ()
        noise, _ = leaves.noise
        return lost_votes(problem.schema.max_rows, 2**leaves.level, noise * holders**0.5, known=False)

    # Checks

    def _checked(self, schema: Schema, target: str, holders: int) -> FederatedStrategy:
        """Returns how the tree is going to grow, everything checked before anything is spent."""
        problem = self._problem(schema, target, holders)
        return self._turns(problem, holders) if self.strategy == "turns" else self._best_first(problem)

    def _problem(self, schema: Schema, target: str, holders: int) -> Problem:
        """Returns what is to be learned, the parameters checked."""
        require_word("strategy", self.strategy, STRATEGIES)
        resumes(self.resume, False, keeps=self.strategy != "secure")
        if self.strategy == "single" and holders > 1:
            raise QueryError(
                f"strategy 'single' learns from one holder, and there are {holders}; use 'turns', 'local_rnm' "
                "or 'noisy_counts'."
            )
        require_word("budget", self.budget, ("decay", "uniform", None))
        require_criterion(self.criterion, CRITERION)
        whole_number("max_nodes", self.max_nodes, 1, MAX_NODES)
        whole_number("at_once", self.at_once, 1, MAX_NODES)
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        column = schema.categorical(target)
        require_varied(schema, target)
        return Problem(schema, target, column.codes, column.cells, Epsilon.of(self.epsilon))

    # Strategies

    def _turns(self, problem: Problem, holders: int) -> InTurns:
        names = attribute_names(problem.schema, problem.target, self.attributes)
        candidates: Sequence[SplitCandidate] = families(problem.schema, names)
        if self.splits is not None:
            candidates = [split for functions in self._functions(problem) for split in functions.splits]
        # A full tree of d levels splits 2^d - 1 nodes; more where missing numbers are a third part,
        # which growth looks to.
        depth = min(self._depth(problem, names), int(self.max_nodes + 1).bit_length() - 1)
        return InTurns(
            problem=problem,
            attributes=names,
            criterion=CRITERION[self.criterion],
            depth=depth,
            max_nodes=self.max_nodes,
            leaves=self._leaves(problem.epsilon, Fraction(1, LEAF_SHARE)),
            decay=self.budget == "decay",
            candidates=candidates,
            size=problem.epsilon // SIZE_SHARE if holders > 1 else ZERO,
        )

    def _best_first(self, problem: Problem) -> BestFirst:
        names = attribute_names(problem.schema, problem.target, self.attributes)
        depth = self._depth(problem, names)
        if self.max_depth is None:
            depth = max(2, depth)
        finder = NoisyCounts if self.strategy in ("noisy_counts", "secure") else LocalChoice
        return BestFirst(
            problem=problem,
            attributes=names,
            criterion=CRITERION[self.criterion],
            depth=depth,
            max_nodes=self.max_nodes,
            leaves=self._leaves(problem.epsilon, Fraction(1, 4)),
            decay=depth <= MAX_DECAYS if self.budget is None else self.budget == "decay",
            finder=finder(self._functions(problem), CRITERION[self.criterion]),
            at_once=self.at_once,
        )

    def _depth(self, problem: Problem, names: Sequence[str]) -> int:
        """Levels: those asked for, or as many as the budget carries."""
        if self.max_depth is not None:
            return self.max_depth
        return levels_carried(problem.schema, names, problem.schema.max_rows, problem.epsilon)

    def _functions(self, problem: Problem) -> Sequence[SplitSet]:
        return splitting_functions(problem.schema, problem.target, attributes=self.attributes, splits=self.splits)

    def _leaves(self, epsilon: Epsilon, default: Fraction) -> Epsilon:
        """Returns what the leaves get at least: a share of epsilon, a nano-epsilon or more."""
        share = default if self.leaf_fraction is None else _fraction("leaf_fraction", self.leaf_fraction)
        return max(Epsilon(1), epsilon * share.numerator // share.denominator)


def _fraction(name: str, value: object) -> Fraction:
    """Returns a parameter that is a share of a budget, exact. ``QueryError`` where it is none."""
    is_number = isinstance(value, (int, float, Decimal, Fraction)) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1:  # type: ignore[operator]
        raise QueryError(f"is {value!r}", parameter=name, allowed="above 0 and below 1, or None")
    return Fraction(value)  # type: ignore[call-overload]


def _tree(problem: Problem, source: CountSource, nodes: Sequence[HeldNode]) -> Tree:
    """Returns the fitted tree, by what the holders answered that are there to the end.

    The counts of all nodes are then of the same people.
    """
    for node in nodes:
        node.pool(source)
    return Tree(problem.schema, str(problem.target), estimated_nodes(nodes, problem.cells, problem.classes, CERTAINTY))
