# SPDX-License-Identifier: Apache-2.0
"""Which epsilon a miner would need, by simulation on made-up rows of the same public schema.

Privacy:
    Claim: free. Why: the public schema and made-up rows are all that is looked at; no handle of a
    real table is asked anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.isotonic import isotonic_regression

import pinq
from miners.estimator import whole_number
from miners.tuning.synthetic import Concept
from pinq.errors import QueryError
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["Suggestion", "Tried", "suggest"]

FINE = 1.15  # neighbouring epsilons closer than this are not told apart
ENDLESS = 10**6  # made-up rows need no protection
FRESH = 5_000  # rows on which each run is tested
SURE = 2.0  # standard errors
NOTE = "Made-up rows: this says how far noise lets the miner follow rules of this kind, nothing about the real table."


@dataclass(frozen=True)
class Tried:
    """What one epsilon gave.

    Attributes:
        epsilon: The loss of a fit.
        mean: Mean accuracy on fresh rows without noise.
        deviation: Standard deviation of the accuracy over the runs.
        runs: Runs, each with a rule and rows of its own.
    """

    epsilon: float
    mean: float
    deviation: float
    runs: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.runs)


@dataclass(frozen=True)
class Suggestion:
    """The answer of ``suggest``, and the curve it was read from.

    Attributes:
        epsilon: The smallest epsilon whose mean accuracy reaches the goal; None where none up to
            the limit does.
        between: Where two standard errors of the means, either way, put it; None for an end outside
            of what was tried.
        accuracy: The goal.
        rows: Rows that each run learned from.
        miner: What was asked for, as text.
        curve: What each epsilon gave, in increasing order.
    """

    epsilon: float | None
    between: tuple[float | None, float | None]
    accuracy: float
    rows: int
    miner: str
    curve: tuple[Tried, ...]

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        first, last = self.curve[0], self.curve[-1]
        goal = f"a mean accuracy of {self.accuracy:.1%} from {self.rows:,} rows"
        if self.epsilon is None:
            return f"No epsilon up to {last.epsilon:g} reaches {goal}; {last.epsilon:g} reaches {last.mean:.1%}. More rows or a lower goal is needed, or a tree that can say more."
        if self.epsilon == first.epsilon and first.mean >= self.accuracy:
            return f"Epsilon {first.epsilon:g}, the smallest that was tried, reaches {goal} already: {first.mean:.1%}."
        low, high = self.between
        within = f"{'less' if low is None else f'{low:g}'} to {'more' if high is None else f'{high:g}'} within two standard errors"
        return f"Epsilon {self.epsilon:g} reaches {goal} ({within})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the curve with the goal and the suggestion; returns the axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("drawing a curve needs matplotlib: pip install 'pinq-miners[plot]'") from None
        if ax is None:
            ax = plt.subplots(figsize=(6, 4), layout="constrained")[1]
        epsilons, means = [one.epsilon for one in self.curve], [one.mean for one in self.curve]
        ax.errorbar(
            epsilons,
            means,
            yerr=[SURE * one.error for one in self.curve],
            marker="o",
            markersize=4,
            capsize=3,
            label="mean ± two standard errors",
        )
        ax.axhline(self.accuracy, color="#777777", linestyle="--", linewidth=1, label=f"goal {self.accuracy:.1%}")
        if self.epsilon is not None:
            ax.axvline(self.epsilon, color="#59a14f", linewidth=1, label=f"epsilon {self.epsilon:g}")
        ax.set_xscale("log")
        ax.set_xlabel("epsilon")
        ax.set_ylabel("accuracy on fresh made-up rows")
        ax.set_title(f"{self.miner}, {self.rows:,} made-up rows", fontsize=10)
        ax.legend()
        return ax

    def __repr__(self) -> str:
        lines = [f"{'epsilon':>10}  {'accuracy':>8}  {'sd':>6}  {'runs':>4}"]
        lines += [f"{one.epsilon:>10g}  {one.mean:>8.1%}  {one.deviation:>6.1%}  {one.runs:>4}" for one in self.curve]
        return "\n".join([f"{self.miner}: {self.verdict}", *lines, f"Note: {NOTE}"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{one.epsilon:g}</td><td>{one.mean:.1%}</td><td>{one.deviation:.1%}</td><td>{one.runs}</td></tr>"
            for one in self.curve
        )
        head = "".join(f"<th>{name}</th>" for name in ("epsilon", "accuracy", "sd", "runs"))
        return f"<p><b>{escape(self.miner)}</b>: {escape(self.verdict)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{escape(NOTE)}</p>"


def suggest(
    miner: Any,
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
    """Solves for the epsilon at which a miner reaches an accuracy on made-up rows.

    Each run makes up a rule (a random tree of ``depth`` levels over the schema, categorical values
    in two random groups) and ``rows`` rows that follow it but for ``noise``; the miner learns from
    a simulated handle and is tested on 5,000 fresh rows without noise. All epsilons meet the same
    rules and rows, so that their difference is the noise of privacy. Epsilons ten times apart are
    tried upward until one reaches the goal, then the gap is halved, on a logarithmic scale, down to
    15 %; the answer is read off the monotone curve that fits all means best, and rounded up to two
    figures.

    What it cannot say: how well the miner does on the real table. Real rows follow other rules,
    easier or harder; attributes lean on each other and classes are not even. Read it as the order
    of magnitude below which a budget is wasted, and to compare miners and settings.

    Args:
        miner: An estimator with a parameter ``epsilon``, say ``DiffPC45(max_depth=4)``. It is
            copied; its own epsilon does not matter.
        schema: The public schema, ``handle.schema``.
        target: The categorical column to predict.
        rows: How many rows to expect, at most ``schema.max_rows``.
        accuracy: The goal: share of fresh rows whose class is predicted, in the mean over the runs.
        limits: The smallest and the largest epsilon to try.
        runs: Rules, each with its own rows; at least 2. The error of the answer falls with their
            square root.
        depth: Levels of the made-up rules, 1 to 12.
        noise: Share of the made-up values that are replaced at random.
        seed: Steers rules and rows, never the noise of privacy.
        progress: Whether to show progress on a terminal.

    Returns:
        The answer with its curve; ``.plot()`` draws it. Where no epsilon up to the limit reaches
        the goal, ``epsilon`` is None.

    Raises:
        QueryError: A parameter is wrong.
        ModuleNotFoundError: The provider's side, which simulates, is not installed.

    Privacy:
        Adjacency: any. Claim: 0-DP. Why: nothing but the schema, which is public, goes in.
    """
    _check(miner, schema, target, rows=rows, accuracy=accuracy, limits=limits, runs=runs, depth=depth)
    with ExitStack() as opened, _counter(progress) as advance:
        trials = [
            _Trial.open(opened, schema, target, rows=rows, depth=depth, noise=noise, seed=[seed, run])
            for run in range(runs)
        ]

        def attempt(epsilon: float) -> Tried:
            scores = []
            for number, trial in enumerate(trials):
                advance(f"epsilon {epsilon:g}", number, runs)
                scores.append(trial.score(miner, epsilon))
            return Tried(epsilon, float(np.mean(scores)), float(np.std(scores, ddof=1)), runs)

        curve = _search(attempt, accuracy, *limits)
    means, errors = np.array([one.mean for one in curve]), np.array([one.error for one in curve])
    early, answer, late = (_crossing(curve, means + shift * errors, accuracy) for shift in (SURE, 0.0, -SURE))
    between = (None if early == curve[0].epsilon else early, late)
    return Suggestion(answer, between, float(accuracy), int(rows), _name(miner), curve)


@dataclass(frozen=True)
class _Trial:
    """A rule's rows: a handle to learn from, fresh rows to be tested on."""

    handle: PrivateQueryable
    fresh: pa.Table
    target: str

    @classmethod
    def open(
        cls, opened: ExitStack, schema: Schema, target: str, *, rows: int, depth: int, noise: float, seed: list[int]
    ) -> _Trial:
        concept = Concept.random(schema, target, depth=depth, categorical="groups", seed=[*seed, 0])
        handle = pinq.simulate(schema, data=concept.sample(rows, noise=noise, seed=[*seed, 1]), epsilon=ENDLESS)
        return cls(opened.enter_context(handle), concept.sample(FRESH, seed=[*seed, 2]), target)

    def score(self, miner: Any, epsilon: float) -> float:
        return float(clone(miner).set_params(epsilon=epsilon).fit(self.handle, self.target).score(self.fresh))


def _search(attempt: Callable[[float], Tried], goal: float, low: float, high: float) -> tuple[Tried, ...]:
    """Tries epsilons: upward in large steps, then halving the gap in which the goal is reached."""
    steps = max(1, math.ceil(math.log10(high / low)))
    tried: list[Tried] = []
    for step in range(steps + 1):
        tried.append(attempt(_figures(low * (high / low) ** (step / steps), 3)))
        if tried[-1].mean >= goal:
            break
    if tried[-1].mean >= goal and len(tried) > 1:
        below, above = tried[-2].epsilon, tried[-1].epsilon
        while above / below > FINE:
            middle = attempt(_figures(math.sqrt(below * above), 3))
            tried.append(middle)
            below, above = (below, middle.epsilon) if middle.mean >= goal else (middle.epsilon, above)
    return tuple(sorted(tried, key=lambda one: one.epsilon))


def _crossing(curve: tuple[Tried, ...], means: np.ndarray, goal: float) -> float | None:
    """The smallest epsilon that was tried at which the monotone curve that fits the means best reaches the goal; None where it does not.

    Not a point between two: the default depth of a miner follows epsilon in steps, and so does
    accuracy.
    """
    place = int(np.searchsorted(isotonic_regression(means), goal))
    return None if place == len(curve) else curve[place].epsilon


def _figures(number: float, figures: int) -> float:
    """A number rounded to so many figures: an epsilon that people can write down."""
    exact = Decimal(repr(number))
    step = Decimal(10) ** (exact.adjusted() - figures + 1)
    return float((exact / step).to_integral_value("ROUND_HALF_EVEN") * step)


def _check(
    miner: Any,
    schema: Any,
    target: str,
    *,
    rows: int,
    accuracy: float,
    limits: tuple[float, float],
    runs: int,
    depth: int,
) -> None:
    if (
        isinstance(miner, type)
        or not hasattr(miner, "get_params")
        or "epsilon" not in miner.get_params()
        or not hasattr(miner, "score")
    ):
        raise QueryError(
            f"{miner!r} is not a classifier with a parameter `epsilon`; pass one like DiffPC45(max_depth=4)."
        )
    if not isinstance(schema, Schema):
        raise QueryError(f"`schema` is {type(schema).__name__}; it must be a Schema, like `handle.schema`.")
    schema.categorical(target)
    whole_number("rows", rows, 1, schema.max_rows)
    whole_number("runs", runs, 2, 10_000)
    whole_number("depth", depth, 1, 12)
    if isinstance(accuracy, bool) or not isinstance(accuracy, (int, float)) or not 0 < accuracy < 1:
        raise QueryError(f"`accuracy` is {accuracy!r}; it must be above 0 and below 1.")
    if not isinstance(limits, (tuple, list)) or len(limits) != 2 or not 0 < limits[0] < limits[1] <= 1000:
        raise QueryError(
            f"`limits` is {limits!r}; it must be a smaller and a larger epsilon, above 0 and at most 1,000."
        )


def _name(miner: Any) -> str:
    """The miner as text, without its own epsilon, which does not matter here."""
    return repr(clone(miner).set_params(epsilon=type(miner)().epsilon))


@contextmanager
def _counter(show: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Progress on a terminal: which epsilon, which run."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(
        console=Console(stderr=True), transient=True, disable=not show or not Console(stderr=True).is_terminal
    ) as bar:
        task = bar.add_task("making up rows", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
