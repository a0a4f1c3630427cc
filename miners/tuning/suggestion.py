# SPDX-License-Identifier: Apache-2.0
"""``suggest`` estimates the epsilon that a miner needs, by simulation on dummy rows.

Each run draws a rule, which is a random tree over the schema, and rows that follow it except for noise. The miner
learns from a simulated handle and is tested on 5,000 fresh rows without noise. All epsilons have the same rules and
rows, so their accuracies differ by the noise of privacy alone. The answer is the smallest tried epsilon at which the
best-fitting monotone curve of all means reaches the goal.

Privacy:
    Claim: free. Why: it uses the public schema and dummy rows only, and queries no handle of a real table.

References:
    Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 5: the dummy rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from miners.budget.plan import silenced
from miners.estimator import Learner, cloned
from miners.fitted.node import Node
from miners.fitted.tree import Tree
from miners.growth.candidates import attribute_names, random_split
from miners.pictures import COLOURS, PALE, Axes, axes_of
from miners.tuning.public_rows import simulated
from pinq.errors import QueryError
from pinq.language.parts import Part
from pinq.language.specs import bind
from pinq.public.checks import is_number, whole_number
from pinq.public.plugins import optional
from pinq.public.schema import Numeric, Schema

if TYPE_CHECKING:
    import pyarrow as pa


Seed = int | Sequence[int]


def random_rule(schema: Schema, target: str, *, depth: int, leaf_probability: float = 0.3, seed: Seed = 0) -> Tree:
    """A tree that determines each row's class: the likeliest one of the row's leaf.

    Each node is split by a uniformly drawn attribute. A numeric attribute is cut in two at a random point of the rest
    of its grid. A categorical attribute is split into two random groups of its values, at most once on each path. From
    the third level on a node is a leaf with ``leaf_probability``. A leaf's class is uniform.

    Args:
        schema: The public schema.
        target: The column that the rule determines, categorical.
        depth: Levels of splits, at least 0.
        leaf_probability: A probability, from 0 to 1.
        seed: The seed; equal seeds give equal rules.

    Examples:
        >>> from pinq import Schema
        >>> flag = {"type": "categorical", "values": ["no", "yes"]}
        >>> schema = Schema(columns=dict.fromkeys(("a", "b", "c", "class"), flag), max_rows=1000)
        >>> rule = random_rule(schema, "class", depth=2, seed=7)
        >>> dummy_rows(rule, 3, seed=1).column_names
        ['a', 'b', 'c', 'class']
    """
    classes = schema.categorical(target).cells
    names = attribute_names(schema, target, None)
    random = np.random.default_rng(seed)
    nodes, parts = [Node()], [Part()]
    # The list grows while the loop walks through it, so parents come before their children.
    for index, part in enumerate(parts):
        # Leaves are possible from the third level on.
        leaf = part.depth >= depth or (part.depth >= 2 and random.random() < leaf_probability)
        split = None if leaf else random_split(schema, names, part, random)
        if split is None:
            # Counts of one row, which has the leaf's class.
            nodes[index] = Node(counts=tuple(np.eye(classes)[random.integers(classes)].tolist()))
            continue
        partition = bind(split, schema)
        nodes[index] = Node(split, tuple(range(len(nodes), len(nodes) + partition.size)))
        nodes += [Node()] * partition.size
        parts += [Part(part, partition, number) for number in range(partition.size)]
    return Tree(schema, target, nodes)


def dummy_rows(rule: Tree, rows: int, *, noise: float = 0.0, seed: Seed = 0) -> pa.Table:
    """Dummy rows that follow a rule except for noise.

    Attributes are uniform over their declared domains (a declared missing value is one more value), the class is the
    rule's. Then each attribute and the class is replaced with probability ``noise`` by a uniform value, which may equal
    the old one.

    Args:
        rule: The rule; see ``random_rule``.
        rows: The number of rows, at least 0.
        noise: The proportion of noise, from 0 to 1; 0 for rows that follow the rule without exception.
        seed: The seed; equal seeds give equal rows.

    Raises:
        QueryError: ``noise`` is not from 0 to 1.
    """
    if not is_number(noise, 0, 1):
        raise QueryError(f"is {noise!r}", parameter="noise", allowed="a number from 0 to 1")
    random = np.random.default_rng(seed)
    # A class is never missing.
    sizes = {n: column.cells if n == rule.target else column.codes for n, column in rule.schema.columns.items()}
    codes = {name: random.integers(0, size, rows) for name, size in sizes.items()}
    attributes = {name: codes[name] for name in sizes if name != rule.target}
    reached = rule.apply(_table(rule.schema, attributes, random))
    codes[rule.target] = rule.probabilities.argmax(axis=1)[reached]
    if noise:
        for name, size in sizes.items():
            codes[name] = np.where(random.random(rows) < noise, random.integers(0, size, rows), codes[name])
    return _table(rule.schema, codes, random)


def _table(schema: Schema, codes: Mapping[str, np.ndarray], random: np.random.Generator) -> pa.Table:
    arrow = optional("pyarrow", "provider", "Dummy rows need the provider's side")
    columns = {}
    for name, numbers in codes.items():
        column = schema.numeric_columns.get(name)
        if column is None:
            columns[name] = arrow.array(list(schema.categorical(name).labels)).take(arrow.array(numbers))
        else:
            columns[name] = arrow.array(_numbers(column, numbers, random), mask=numbers >= column.cells)
    return arrow.table(columns)


def _numbers(column: Numeric, codes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Numbers with these codes; fractional numbers are anywhere in their bins."""
    lower, width = float(column.lower), float(column.width)
    # Away from the edges of the bin: a rounded sum must not lie in the next one.
    inside = 0.0 if column.integer else random.uniform(0.01, 0.99, len(codes))
    values = np.minimum(lower + (codes + inside) * width, float(column.upper))
    return column.shown(values.astype(np.int64) if column.integer else values)


AMPLE = 10**6  # the epsilon of a simulated handle, enough for all fits: dummy rows need no protection
Advance = Callable[[str, int, int], None]
Trial = Callable[[Learner, float], float]
"""A function that returns the accuracy of a copy of the miner, fitted with an epsilon on the rows of one rule."""
STANDARD_ERRORS = 2.0  # on each side of a mean
NOTE = (
    "Dummy rows: this shows how well the miner learns rules of this kind in spite of noise, and says nothing about "
    "the real table."
)


@dataclass(frozen=True)
class TrialMean:
    """The mean accuracy of an epsilon over all runs.

    Attributes:
        epsilon: The loss of a fit.
        mean: Mean accuracy on fresh rows without noise.
        deviation: Standard deviation of the accuracy over the runs.
        runs: The number of runs, each with its own rule and rows.
    """

    epsilon: float
    mean: float
    deviation: float
    runs: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.deviation / math.sqrt(self.runs)


@dataclass(frozen=True)
class Suggestion:
    """The answer of ``suggest``, and its curve.

    Attributes:
        epsilon: The smallest epsilon whose mean accuracy reaches the goal; None for none up to the limit.
        between: The epsilons at which the mean plus, and minus, two standard errors reaches the goal; None for one
            outside of the tried epsilons.
        accuracy: The goal.
        rows: The rows of each run.
        curve: The accuracy of each epsilon, in increasing order.
    """

    epsilon: float | None
    between: tuple[float | None, float | None]
    accuracy: float
    rows: int
    miner: str
    curve: tuple[TrialMean, ...]

    @property
    def verdict(self) -> str:
        first, last = self.curve[0], self.curve[-1]
        goal = f"a mean accuracy of {self.accuracy:.1%} from {self.rows:,} rows"
        if self.epsilon is None:
            return (
                f"No epsilon up to {last.epsilon:g} reaches {goal}; {last.epsilon:g} reaches {last.mean:.1%}. "
                "More rows or a lower goal is needed, or a deeper tree."
            )
        if self.epsilon == first.epsilon and first.mean >= self.accuracy:
            return f"Epsilon {first.epsilon:g}, the smallest that was tried, reaches {goal} already: {first.mean:.1%}."
        low, high = self.between
        lower = "less" if low is None else f"{low:g}"
        upper = "more" if high is None else f"{high:g}"
        return f"Epsilon {self.epsilon:g} reaches {goal} ({lower} to {upper} within two standard errors)."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the curve with the goal and the suggestion; returns the axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        ax = axes_of("a curve", ax, (6, 4))
        ax.errorbar(
            [point.epsilon for point in self.curve],
            [point.mean for point in self.curve],
            yerr=[STANDARD_ERRORS * point.error for point in self.curve],
            marker="o",
            markersize=4,
            capsize=3,
            label="mean ± two standard errors",
        )
        ax.axhline(self.accuracy, color=PALE, linestyle="--", linewidth=1, label=f"goal {self.accuracy:.1%}")
        if self.epsilon is not None:
            ax.axvline(self.epsilon, color=COLOURS[2], linewidth=1, label=f"epsilon {self.epsilon:g}")
        ax.set_xscale("log")
        ax.set_xlabel("epsilon")
        ax.set_ylabel("accuracy on fresh dummy rows")
        ax.set_title(f"{self.miner}, {self.rows:,} dummy rows", fontsize=10)
        ax.legend()
        return ax

    def __repr__(self) -> str:
        lines = [f"{'epsilon':>10}  {'accuracy':>8}  {'sd':>6}  {'runs':>4}"]
        lines += [
            f"{point.epsilon:>10g}  {point.mean:>8.1%}  {point.deviation:>6.1%}  {point.runs:>4}"
            for point in self.curve
        ]
        return "\n".join([f"{self.miner}: {self.verdict}", *lines, f"Note: {NOTE}"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{point.epsilon:g}</td><td>{point.mean:.1%}</td><td>{point.deviation:.1%}</td>"
            f"<td>{point.runs}</td></tr>"
            for point in self.curve
        )
        head = "".join(f"<th>{name}</th>" for name in ("epsilon", "accuracy", "sd", "runs"))
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<p><b>{escape(self.miner)}</b>: {escape(self.verdict)}</p>{table}<p>{escape(NOTE)}</p>"


def suggest(
    miner: Learner,
    schema: Schema,
    target: str,
    *,
    rows: int,
    accuracy: float,
    limits: tuple[float, float] = (0.01, 100.0),
    runs: int = 20,
    depth: int = 3,
    noise: float = 0.1,
    seed: int = 0,
    progress: bool = True,
) -> Suggestion:
    """Finds the smallest epsilon at which a miner reaches an accuracy on dummy rows.

    Its answer is an order of magnitude, because the real rows follow other rules. It can also compare miners.

    Args:
        miner: An estimator with a parameter ``epsilon``. It is copied, and its own epsilon is
            ignored.
        schema: The public schema, ``handle.schema``.
        target: The categorical column to predict.
        rows: The number of rows to expect, at most ``schema.max_rows``.
        accuracy: The goal: the mean accuracy of the runs on new rows.
        limits: The smallest and the largest epsilon to try.
        runs: The number of random rules, each with its own rows; at least 2.
        depth: Levels of the random rules, 1 to 12.
        noise: The proportion of dummy values that are replaced at random.
        seed: Seed of rules and rows. It never affects the noise of privacy.
        progress: Whether to show progress on a terminal.

    Returns:
        The answer with its curve. ``epsilon`` is None if no epsilon within the limits reaches the
        goal.

    Raises:
        QueryError: A parameter is wrong.
        ModuleNotFoundError: The provider's side, which simulates, is not installed.

    Privacy:
        Adjacency: any. Claim: 0-DP. Why: the only input is the schema, which is public.

    Examples:
        >>> import pinq
        >>> from miners import DiffPC45, suggest
        >>> schema = pinq.load_policy("policies/adult.yaml").schema_
        >>> answer = suggest(DiffPC45(max_depth=2), schema, "income", rows=2000, accuracy=0.7, runs=2, progress=False)
        >>> answer.epsilon is None or 0.01 <= answer.epsilon <= 100
        True
    """
    _check(miner, schema, target, rows=rows, accuracy=accuracy, limits=limits, runs=runs, depth=depth)
    with ExitStack() as handles, _counter(progress) as advance:
        seeds = ([seed, run] for run in range(runs))
        trials = [_trial(handles, schema, target, rows=rows, depth=depth, noise=noise, seed=seed_) for seed_ in seeds]
        curve = _search(partial(_trial_mean, miner, trials, advance), accuracy, *limits)
    means = np.array([point.mean for point in curve])
    margins = STANDARD_ERRORS * np.array([point.error for point in curve])
    # With means of .70, .78 and .84 at .1, .3 and 1, margins of .03 and a goal of .8: the answer is
    # 1, between .3, which reaches .81 at best, and 1, which reaches .81 at worst.
    early, answer, late = (_crossing(curve, shifted, accuracy) for shifted in (means + margins, means, means - margins))
    between = (None if early == curve[0].epsilon else early, late)
    # The miner's own epsilon does not matter here.
    name = repr(cloned(miner).set_params(epsilon=type(miner)().epsilon))
    return Suggestion(answer, between, float(accuracy), int(rows), name, curve)


def _trial_mean(miner: Learner, trials: Sequence[Trial], advance: Advance, epsilon: float) -> TrialMean:
    """The accuracy of an epsilon over all trials."""
    scores = []
    for number, trial in enumerate(trials):
        advance(f"epsilon {epsilon:g}", number, len(trials))
        scores.append(trial(miner, epsilon))
    return TrialMean(epsilon, float(np.mean(scores)), float(np.std(scores, ddof=1)), len(trials))


def _trial(
    handles: ExitStack, schema: Schema, target: str, *, rows: int, depth: int, noise: float, seed: list[int]
) -> Trial:
    """Draws a rule and its rows, and opens a handle on them, which ``handles`` closes."""
    rule = random_rule(schema, target, depth=depth, seed=[*seed, 0])
    training_rows = dummy_rows(rule, rows, noise=noise, seed=[*seed, 1])
    handle = handles.enter_context(simulated(schema, data=training_rows, epsilon=AMPLE))
    fresh = dummy_rows(rule, 5_000, seed=[*seed, 2])

    def score(miner: Learner, epsilon: float) -> float:
        with silenced():  # epsilons that are too small are tried on purpose
            return float(cloned(miner).set_params(epsilon=epsilon).fit(handle, target).score(fresh))

    return score


def _search(attempt: Callable[[float], TrialMean], goal: float, low: float, high: float) -> tuple[TrialMean, ...]:
    """Tries epsilons upwards in large steps, then halves the gap in which the goal is reached.

    From 0.01 to 100 it tries 0.01, 0.1, 1, ...; if 1 is the first that reaches the goal, the next is 0.316, the middle
    of 0.1 and 1 on a logarithmic scale.
    """
    steps = max(1, math.ceil(math.log10(high / low)))
    tried: list[TrialMean] = []
    for step in range(steps + 1):
        tried.append(attempt(_writable(low * (high / low) ** (step / steps))))
        if tried[-1].mean >= goal:
            break
    if tried[-1].mean >= goal and len(tried) > 1:
        # Halved on a logarithmic scale: between .1 and 1 lies .316, between .1 and .316 lies .178.
        below, above = tried[-2].epsilon, tried[-1].epsilon
        while above / below > 1.15:  # no other epsilon is tried between closer ones
            middle = attempt(_writable(math.sqrt(below * above)))
            tried.append(middle)
            below, above = (below, middle.epsilon) if middle.mean >= goal else (middle.epsilon, above)
    return tuple(sorted(tried, key=lambda point: point.epsilon))


def _crossing(curve: tuple[TrialMean, ...], means: np.ndarray, goal: float) -> float | None:
    """The smallest tried epsilon at which the means reach the goal; None for none.

    The means are first replaced by the monotone curve that fits them best: 0.5, 0.9, 0.7 become 0.5, 0.8, 0.8. The
    answer is never a point between two, because a miner's default depth, and so accuracy, follows epsilon in steps.
    """
    index = int(np.searchsorted(_monotone(means), goal))
    return None if index == len(curve) else curve[index].epsilon


def _monotone(means: np.ndarray) -> np.ndarray:
    """The best fit that never falls, by pooling neighbours, shape unchanged."""
    pools: list[list[float]] = []
    for mean in means:
        # Means .5, .9 and .7: .9 is not below .7, so both become one pool of mean .8.
        pool = [float(mean)]
        while pools and fmean(pools[-1]) >= fmean(pool):
            pool = pools.pop() + pool
        pools.append(pool)
    return np.concatenate([np.full(len(pool), fmean(pool)) for pool in pools])


def _writable(epsilon: float) -> float:
    """Rounds an epsilon to three digits: 0.031623 to 0.0316."""
    return float(f"{epsilon:.3g}")


def _check(
    miner: Learner,
    schema: object,
    target: str,
    *,
    rows: int,
    accuracy: float,
    limits: tuple[float, float],
    runs: int,
    depth: int,
) -> None:
    is_miner = not isinstance(miner, type) and hasattr(miner, "get_params") and hasattr(miner, "score")
    if not is_miner or "epsilon" not in miner.get_params():
        raise QueryError(
            f"{miner!r} is not a classifier with a parameter `epsilon`; pass one like DiffPC45(max_depth=4)."
        )
    if not isinstance(schema, Schema):
        raise QueryError(f"is {type(schema).__name__}", parameter="schema", allowed="a Schema, like `handle.schema`")
    schema.categorical(target)
    whole_number("rows", rows, 1, schema.max_rows)
    whole_number("runs", runs, 2, 10_000)
    whole_number("depth", depth, 1, 12)
    if not is_number(accuracy, 0, 1) or not 0 < accuracy < 1:
        raise QueryError(f"is {accuracy!r}", parameter="accuracy", allowed="above 0 and below 1")
    if not isinstance(limits, (tuple, list)) or len(limits) != 2 or not 0 < limits[0] < limits[1] <= 1000:
        raise QueryError(
            f"is {limits!r}", parameter="limits", allowed="a smaller and a larger epsilon, above 0 and at most 1,000"
        )


@contextmanager
def _counter(show: bool) -> Iterator[Advance]:
    """Shows the tried epsilon and run on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not show or not console.is_terminal) as bar:
        task = bar.add_task("drawing dummy rows", total=None)
        yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
