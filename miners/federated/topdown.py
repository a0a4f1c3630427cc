# SPDX-License-Identifier: Apache-2.0
"""DP-TopDown: one tree from several data holders, each behind its own layer and ledger (Wang, Dick & Balcan 2020)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from miners.budget.plan import Plan, PlanLine, lost_votes, remember_fit, warn_before_fit
from miners.estimator import TreeClassifier, public_schema, require_budget, whole_number
from miners.federated.best_first import BestFirst, Judge, LocalChoice, NoisyCounts, grow_best_first
from miners.federated.buds import Bud, Task, open_nodes_of
from miners.federated.federation import Federation, HolderFailed, spent_text
from miners.federated.source import Ability, CountSource, Dropped
from miners.federated.splitting import splitting_functions
from miners.federated.turns import Turns, dealt_losses, grow_in_turns
from miners.fitted.tree import Tree
from miners.growth.candidates import attribute_names, families, levels_carried
from miners.growth.criteria import CRITERIA, choice_noise_scale, require_criterion
from miners.growth.leaf_estimates import estimated_nodes
from miners.trees.diffp_c45 import LEAF_SHARE
from miners.trees.strategy import many, noise_of
from pinq.errors import PinqError, QueryError, unspent
from pinq.public.epsilon import NANO, Loss, exact, show, to_nano
from pinq.public.schema import Numeric, Schema, closest
from pinq.public.scores import Score

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["Card", "DPTopDown"]

Strategy = Literal["turns", "single", "noisy_counts", "local_rnm", "secure"]
STRATEGIES = get_args(Strategy)
CRITERION = {"entropy": "info_gain", "gini": "gini", "max": "max"}
# What a strategy needs of a source beside counts.
NEEDS: dict[Strategy, Ability | None] = {
    "turns": "choices",
    "single": "choices",
    "noisy_counts": None,
    "local_rnm": "choices",
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
        "with noise of its own. Between machines use `pinq secure join` with `protocol: topdown`, to try it "
        "miners.secure.SecureFederation.simulated; 'turns' is for handles."
    ),
}
SIZE_SHARE = 50  # one part in so many of epsilon goes into each holder's size
MOST_NODES = 2**16
MOST_DEPTH = 60
CERTAINTY = 0.25
MOST_DECAYS = 6  # halved more often, a share is too thin to be of use


@dataclass(frozen=True)
class Card:
    """What a reader of the model should know of how it was made.

    Attributes:
        strategy: How splits were found.
        spent: What each holder's own ledger has charged while the fit went on, for something else
            under the same grant too; None where it did not say.
        dropped: Who was left behind, after how many rounds, and why. The counts of the tree are
            those of the others.
        rounds: How often the coordinator waited for answers.
        requests: How many requests each holder was sent.
    """

    strategy: str
    spent: Mapping[str, Fraction | None]
    dropped: tuple[Dropped, ...]
    rounds: int
    requests: Mapping[str, int]

    def __repr__(self) -> str:
        lines = [f"Tree of {many(len(self.spent), 'holder')}, strategy {self.strategy!r}, {many(self.rounds, 'round')}"]
        for name, spent in self.spent.items():
            said = "does not say what it charged" if spent is None else f"spent {show(int(spent * NANO))}"
            lines.append(f"  {name}: {said}, {many(self.requests[name], 'request')}")
        return "\n".join([*lines, *(f"  {one}" for one in self.dropped)])

    def to_dict(self) -> dict[str, Any]:
        """The card as JSON has it."""
        return {
            "strategy": self.strategy,
            "spent": {name: None if spent is None else show(int(spent * NANO)) for name, spent in self.spent.items()},
            "dropped": [[one.holder, one.after, one.reason] for one in self.dropped],
            "rounds": self.rounds,
            "requests": dict(self.requests),
        }

    @classmethod
    def from_dict(cls, found: Any) -> Card:
        """Reads what ``to_dict`` made. ``QueryError`` where it is something else."""
        try:
            spent = {str(name): None if text is None else Fraction(text) for name, text in found["spent"].items()}
            dropped = tuple(Dropped(str(holder), int(after), str(reason)) for holder, after, reason in found["dropped"])
            return cls(
                str(found["strategy"]),
                spent,
                dropped,
                int(found["rounds"]),
                {name: int(found["requests"][name]) for name in spent},
            )
        except (TypeError, ValueError, KeyError, AttributeError):
            raise QueryError("`card` of a stored DPTopDown is not what `to_json` writes.") from None


class DPTopDown(TreeClassifier):
    """A decision tree from several data holders' tables, grown by a coordinator that none of them needs to trust.

    ``fit`` takes a ``Federation`` of handles, or one handle. The holders hold disjoint people, so
    the fit costs ``epsilon`` at each of them, in the terms of its own policy.

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
        max_depth: The most splits on a way, 0 to 60. None for what public facts let expect to be of
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
        Why: on every way from the root to a leaf the shares of what a holder is asked add up to
        ``epsilon``: see ``miners.federated.turns`` and ``miners.federated.best_first``; its ledger
        charges and enforces just that. A person is one holder's only, so nothing adds up over
        holders. Scores are the layer's, scaled to counts and with public sensitivities; a choice
        publishes an index, never a score.
        Exact: nano-epsilons. Held by: tests/unit/federated/test_topdown.py,
        tests/privacy/test_topdown_releases.py.

    Notes:
        What differs from the paper, whose mechanisms are not private as printed (privacy.md 2.8):
        no noise is scaled by private sizes; a gain comes from a fresh histogram of the chosen
        split, which also counts the children; one table for each column in place of three kinds of
        counts for each splitting function; nothing is asked after the last split; decay shares add
        up to what there is, and a leaf takes what its way has left. Trade-offs and gains that
        measured better: the layer's selection without the factor 2, consistent counts, shrunken
        shares, pruning, no split where noise drowns the counts.

    References:
        Wang, Dick & Balcan 2020, "Scalable and Provably Accurate Algorithms for Differentially
        Private Distributed Decision Tree Learning".

    Examples:
        >>> DPTopDown(epsilon=0.5, strategy="local_rnm")
        DPTopDown(epsilon=0.5, strategy='local_rnm')
    """

    card_: Card

    def __init__(
        self,
        *,
        epsilon: Loss = 1.0,
        strategy: Strategy = "turns",
        criterion: str = "gini",
        max_nodes: int = 512,
        leaf_fraction: Loss | None = None,
        budget: Literal["decay", "uniform"] | None = None,
        max_depth: int | None = None,
        attributes: Sequence[str] | None = None,
        splits: Mapping[str, Any] | None = None,
        at_once: int = 16,
        resume: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.strategy = strategy
        self.criterion = criterion
        self.max_nodes = max_nodes
        self.leaf_fraction = leaf_fraction
        self.budget = budget
        self.max_depth = max_depth
        self.attributes = attributes
        self.splits = splits
        self.at_once = at_once
        self.resume = resume

    def fit(self, handle: CountSource | PrivateQueryable, target: str) -> Self:
        """Grows the tree.

        Args:
            handle: The holders' handles, as a ``Federation``; parties that add up, as a
                ``miners.secure.SecureFederation``; or one handle.
            target: The categorical column to predict.

        Raises:
            QueryError: A parameter or the target is wrong.
            HolderFailed: A holder failed, or has less than ``epsilon`` left, and the federation
                does not go on without it; says what was spent where.
        """
        with unspent():
            federation = handle if isinstance(handle, CountSource) else Federation({"holder 1": _one_handle(handle)})
            schema = federation.schema
            grow = self._grower(schema, target, len(federation.holders))
            self._check_abilities(federation)
            total = exact(to_nano(self.epsilon))
            if not self.resume:  # of a fit that was broken off a part has been paid for
                federation.each(
                    lambda one: require_budget(
                        one, total, name=f"{type(self).__name__}(epsilon={show(int(total * NANO))}).fit"
                    )
                )
                # Repeating a fit that was broken off is what `resume` is for.
                hopes = self.plan(schema, target, holders=len(federation.holders)).warnings
                warn_before_fit(self, handle, total, hopes)
        before, rounds, requests = federation.spent(), federation.rounds, dict(federation.requests)
        task = Task(federation, schema, target, total, bool(self.resume))
        try:
            nodes = estimated_nodes(open_nodes_of(task, grow(task)), task.cells, task.classes, CERTAINTY)
        except PinqError as error:
            if not isinstance(error, HolderFailed):  # which says so itself
                error.charged = None  # of one holder's request; the note is about all
                error.add_note(f"Spent by the whole fit until then: {spent_text(_since(before, federation))}.")
            raise
        spent = _since(before, federation)
        asked = {name: count - requests[name] for name, count in federation.requests.items()}
        self.card_ = Card(self.strategy, spent, tuple(federation.dropped), federation.rounds - rounds, asked)
        remember_fit(self, handle)
        return self._fitted(
            Tree(schema, target, nodes),
            max(
                (total if one is None else one for name, one in spent.items() if asked[name] or one),
                default=Fraction(0),
            ),
        )

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
        """What ``fit`` is going to ask of each holder, and what it costs there. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``federation.schema``.
            target: The column to predict.
            holders: How many there are.
        """
        self._check(schema, target, whole_number("holders", holders, 1, 10**6))
        lines, depth = (
            self._lines_of_turns(schema, target, holders)
            if self.strategy == "turns"
            else self._lines_of_best_first(schema, target, holders)
        )
        notes = ["holders hold disjoint people: each is asked for the total, in its own policy's terms, and no more."]
        if self.strategy == "turns" and holders > 1:
            notes.append(
                "each level is chosen by one holder, which pays for that one; who has paid for fewer levels "
                "has more left for the leaves."
            )
            notes.append(
                "the levels are dealt out in proportion to noisy sizes; shown is what holders of equal size "
                "would be asked."
            )
        if self.strategy == "secure":
            notes.append(
                "noise is that of one holder; where c of m parties may pool what they drew, its variance is "
                "m / (m - c) times what is shown."
            )
        if self.strategy != "turns":
            notes.append(
                f"at most {self.max_nodes:,} nodes are split, the most promising first; a leaf takes all that "
                f"its way has left."
            )
        if self.max_depth is not None and depth < self.max_depth:
            notes.append(
                f"no more than {many(depth, 'level')} of splits are planned: with more a full tree splits "
                f"more than max_nodes, or epsilon is too thin."
            )
        if self.max_depth is None:
            notes.append(
                f"max_depth is not given; {depth} is what epsilon, max_rows and the attributes let expect to be of use."
            )
        title = f"DPTopDown for `{target}`: {many(holders, 'holder')}, strategy {self.strategy!r}, {many(depth, 'level')} of splits, criterion {self.criterion}"
        warnings = self._warnings(schema, holders, depth, lines[-1])
        return Plan(title, tuple(lines), exact(to_nano(self.epsilon)), tuple(notes), warnings)

    def _warnings(self, schema: Schema, holders: int, depth: int, leaves: PlanLine) -> tuple[str, ...]:
        """Whether anything is split, and whether the votes of leaves stand out of the noise that all holders add."""
        if not depth and self.max_depth is None:
            known = f"at epsilon {show(to_nano(self.epsilon))} and at most {schema.max_rows:,} rows"
            lost = "no level of splits stands out of the noise, so all rows get one prediction"
            return (f"{known} {lost}; a larger `epsilon` is needed for any split.",)
        if self.strategy != "turns":  # best-first growth stops by itself
            return ()
        return lost_votes(schema.max_rows, 2**depth, (leaves.noise or 0.0) * holders**0.5, known=False)

    def smallest_count_loss(self, schema: Schema, target: str) -> Fraction:
        """Returns the smallest loss at which a fit with strategy "secure" or "noisy_counts" asks for a count. Free.

        Args:
            schema: The public schema.
            target: The column to predict.

        Raises:
            QueryError: A parameter or the target is wrong, or the strategy asks for more than
                counts.
        """
        self._check(schema, target, 1)
        if NEEDS[self.strategy] == "choices":
            raise QueryError(
                f"strategy {self.strategy!r} asks for choices too; 'secure' and 'noisy_counts' ask for counts alone."
            )
        judge, how = self._judge(schema, target), self._best_first(schema, target)
        # A leaf is asked with all that its path has left: at least what no level's share takes.
        leaves = exact(to_nano(self.epsilon)) - sum(how.shares, Fraction(0))
        smallest = min([judge.counting(share, 1) for share in how.shares] + [leaves])
        # Growth asks in whole nano-epsilons, rounded down so that a level's questions fit its
        # share.
        return exact(int(smallest * NANO))

    def _lines_of_turns(self, schema: Schema, target: str, holders: int) -> tuple[list[PlanLine], int]:
        how, cells = self._turns(schema, target, holders), schema.columns[target].codes
        wide = _widest(schema, how.attributes)
        rest = exact(to_nano(self.epsilon)) - (how.size if how.depth else 0)
        lines = (
            [PlanLine(0, "size of each holder", "noisy_count", 1, how.size, noise_of(schema, how.size))]
            if how.size and how.depth
            else []
        )
        # Of equal holders no more than there are levels get a turn.
        left = dict.fromkeys(
            [f"holder {number}" for number in range(1, min(holders, max(1, how.depth)) + 1)],
            int((rest - how.leaves) * NANO),
        )
        turns = dealt_losses(left, dict.fromkeys(left, 1.0), how.depth, decay=how.decay)
        for level, (name, loss) in enumerate(turns):
            noise, unit = choice_noise_scale(schema, CRITERION[self.criterion], loss, textbook=False)
            lines.append(
                PlanLine(
                    level,
                    f"best split by {many(len(how.attributes), 'attribute')}, of {name}",
                    "exp_mech",
                    min(wide**level, self.max_nodes),
                    loss,
                    noise,
                    unit,
                )
            )
        leaves, ends = how.leaves if turns else rest, min(wide ** len(turns), self.max_nodes * (wide - 1) + 1)
        lines.append(
            PlanLine(
                len(turns),
                "classes of each leaf, at least",
                "noisy_count",
                ends * cells,
                leaves,
                noise_of(schema, leaves),
            )
        )
        return lines, len(turns)

    def _lines_of_best_first(self, schema: Schema, target: str, holders: int) -> tuple[list[PlanLine], int]:
        judge, how = self._judge(schema, target), self._best_first(schema, target)
        cells, wide = schema.columns[target].codes, _widest(schema, attribute_names(schema, target, self.attributes))
        lines = []
        for level, share in enumerate(how.shares):
            nodes = min(wide**level, self.max_nodes)
            counting = judge.counting(share, holders)
            if isinstance(judge, NoisyCounts):
                lines.append(
                    PlanLine(
                        level, "tables of every attribute", "noisy_count", nodes, share, noise_of(schema, counting)
                    )
                )
            else:
                lines.append(
                    PlanLine(
                        level,
                        "best split, of each holder",
                        "exp_mech",
                        nodes,
                        share / 2,
                        *choice_noise_scale(schema, CRITERION[self.criterion], share / 2, textbook=False),
                    )
                )
                below = f"classes below at most {many(holders, 'choice')}"
                lines.append(
                    PlanLine(
                        level,
                        below,
                        "noisy_count",
                        nodes * holders * wide * cells,
                        share / 2,
                        noise_of(schema, counting),
                    )
                )
        leaves = exact(to_nano(self.epsilon)) - sum(how.shares, Fraction(0))
        ends = min(wide ** len(how.shares), self.max_nodes * (wide - 1) + 1)
        lines.append(
            PlanLine(
                len(how.shares),
                "classes of each leaf, at least",
                "noisy_count",
                ends * cells,
                leaves,
                noise_of(schema, leaves),
            )
        )
        return lines, len(how.shares)

    # Checks

    def _grower(self, schema: Schema, target: str, holders: int) -> Callable[[Task], list[Bud]]:
        """How the tree is going to grow: everything checked, before anything is spent."""
        self._check(schema, target, holders)
        if self.strategy == "turns":
            turns = self._turns(schema, target, holders)
            return lambda task: grow_in_turns(task, turns)
        judge, how = self._judge(schema, target), self._best_first(schema, target)
        return lambda task: grow_best_first(task, judge, how)

    def _check(self, schema: Schema, target: str, holders: int) -> None:
        if self.strategy not in STRATEGIES:
            listed = ", ".join(map(repr, STRATEGIES))
            raise QueryError(
                f"`strategy` is {self.strategy!r}{closest(str(self.strategy), STRATEGIES)}; it must be one of {listed}."
            )
        if not isinstance(self.resume, bool):
            raise QueryError(f"`resume` is {self.resume!r}; it must be True or False.")
        if self.strategy == "secure" and self.resume:
            raise QueryError(
                "`resume` goes with holders that keep their answers; parties of a secure session keep none."
            )
        if self.strategy == "single" and holders > 1:
            raise QueryError(
                f"strategy 'single' learns from one holder, and there are {holders}; use 'turns', 'local_rnm' "
                f"or 'noisy_counts'."
            )
        if self.budget not in (None, "decay", "uniform"):
            raise QueryError(
                f"`budget` is {self.budget!r}{closest(str(self.budget), ('decay', 'uniform'))}; it must be "
                f"'decay', 'uniform' or None."
            )
        fraction = self.leaf_fraction
        number = isinstance(fraction, (int, float, Decimal, Fraction)) and not isinstance(fraction, bool)
        if fraction is not None and not (number and 0 < fraction < 1):  # type: ignore[operator]
            raise QueryError(f"`leaf_fraction` is {fraction!r}; it must be above 0 and below 1, or None.")
        require_criterion(self.criterion, CRITERION)
        whole_number("max_nodes", self.max_nodes, 1, MOST_NODES)
        whole_number("at_once", self.at_once, 1, MOST_NODES)
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth, 0, MOST_DEPTH)
        if schema.categorical(target).cells < 2:
            raise QueryError(f"the target `{target}` has a single value, so there is nothing to learn.")

    def _check_abilities(self, source: CountSource) -> None:
        """Raises ``QueryError`` where a source does not answer what the strategy asks of it."""
        needed = NEEDS[self.strategy]
        if needed is not None and needed not in source.abilities:
            raise QueryError(UNABLE[needed].format(strategy=self.strategy))

    def _score(self, target: str) -> Score:
        score: Score = CRITERIA[CRITERION[self.criterion]][0](target)
        return score

    def _leaves(self, default: Fraction) -> Fraction:
        nano = to_nano(self.epsilon)
        return exact(max(1, int(nano * (default if self.leaf_fraction is None else Fraction(self.leaf_fraction)))))

    def _turns(self, schema: Schema, target: str, holders: int) -> Turns:
        names = attribute_names(schema, target, self.attributes)
        if self.splits is None:
            candidates: list[Any] = list(families(schema, names))
        else:
            candidates = [
                split
                for one in splitting_functions(schema, target, attributes=self.attributes, splits=self.splits)
                for split in one.splits
            ]
        depth = (
            levels_carried(schema, names, schema.max_rows, self.epsilon) if self.max_depth is None else self.max_depth
        )
        # A full tree of d levels splits 2^d - 1 nodes; more where missing numbers are a third part,
        # which growth looks to.
        depth = min(depth, int(self.max_nodes + 1).bit_length() - 1)
        size = exact(to_nano(self.epsilon) // SIZE_SHARE) if holders > 1 else Fraction(0)
        return Turns(
            names,
            candidates,
            self._score(target),
            depth,
            self.max_nodes,
            size,
            self._leaves(Fraction(1, LEAF_SHARE)),
            self.budget == "decay",
        )

    def _judge(self, schema: Schema, target: str) -> Judge:
        functions = splitting_functions(schema, target, attributes=self.attributes, splits=self.splits)
        criterion = CRITERION[self.criterion]
        return (
            NoisyCounts(functions, criterion)
            if self.strategy in ("noisy_counts", "secure")
            else LocalChoice(functions, self._score(target), criterion)
        )

    def _best_first(self, schema: Schema, target: str) -> BestFirst:
        names = attribute_names(schema, target, self.attributes)
        depth = (
            max(2, levels_carried(schema, names, schema.max_rows, self.epsilon))
            if self.max_depth is None
            else self.max_depth
        )
        leaves = self._leaves(Fraction(1, 4))
        decay = depth <= MOST_DECAYS if self.budget is None else self.budget == "decay"
        return BestFirst.spread(
            exact(to_nano(self.epsilon)), leaves, depth, decay=decay, max_nodes=self.max_nodes, at_once=self.at_once
        )


def _widest(schema: Schema, names: Sequence[str]) -> int:
    """The most parts that a split of one of these columns makes: missing numbers are a part of their own."""
    return 2 + any(isinstance(schema.columns[name], Numeric) and schema.columns[name].nullable for name in names)


def _one_handle(handle: Any) -> Any:
    """What was passed in place of a federation, unless it is several handles."""
    if isinstance(handle, (Mapping, list, tuple)):
        raise QueryError(
            f"`fit` learns from one handle or a Federation, not from a {type(handle).__name__}; wrap several "
            f"handles: Federation([...])."
        )
    public_schema(handle)
    return handle


def _since(before: Mapping[str, Fraction | None], federation: CountSource) -> dict[str, Fraction | None]:
    """What each holder has charged since then; None where it did not say."""
    return {
        name: None if now is None or then is None else now - then
        for (name, now), then in zip(federation.spent().items(), before.values(), strict=True)
    }
