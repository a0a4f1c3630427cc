# SPDX-License-Identifier: Apache-2.0
"""A plan lists the queries of a fit with their costs and noise, from public facts, before anything is spent.

A recipe lists the steps of a fit: ``plan`` prints the steps, ``fit`` runs them, and their losses add up to its cost. A
fit is refused before its first query if the budget, or the bytes that a ledger keeps (``Storage``), do not suffice.

Privacy:
    Claim: the steps along a path from the root to a leaf below the last split add up to ``total``
    exactly, and along no path to more. The query of an early leaf may have all epsilon that its path
    has left (``Recipe.remainder``).
    Why: a row lies in one part of each level. The queries of a level cost as much as those of one
    of its nodes (parallel composition), and levels add up (sequential composition).
    Exact: integers; the remainder of a division goes to the leaf. Held by:
    tests/unit/budget/test_recipe.py.

References:
    Friedman & Schuster 2010, Algorithms 1 and 2 (equal shares for every level, leaves included);
    privacy.md 5 and 6.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial
from html import escape
from typing import TYPE_CHECKING, Literal, Protocol, cast

from pinq.analyst.queryable import PrivateQueryable, recording, reusing
from pinq.analyst.session import Session, Way
from pinq.errors import BudgetExceeded, NotAllowed, PinqError, QueryError, Refusal, TooManyRequests
from pinq.language.derivatives import Derivatives
from pinq.language.queries import (
    NUMBER_BYTES,
    PART_BYTES,
    QUERY_BYTES,
    Answer,
    Budget,
    Certificate,
    Preview,
    Request,
)
from pinq.language.scores import MAX_DEPTH
from pinq.public.checks import first_of, many, require_bool, require_kind
from pinq.public.epsilon import NANO, ZERO, Epsilon, EpsilonLike, Exact, laplace_interval, standard_deviation
from pinq.public.schema import Schema, Value

if TYPE_CHECKING:
    import pandas as pd

# A leaf predicts its own class if its rows are at least two standard deviations of the difference of two noisy counts,
# which are 2 sqrt(2) deviations of one count. In a smaller leaf, noise hides even a single class.
CLEAR = 2 * math.sqrt(2)
HEADINGS = ("level", "query", "parts (max.)", "epsilon", "noise")


class Pricing(Protocol):
    """A handle, or a party of a secure computation, with a budget."""

    @property
    def budget(self) -> Budget:
        """The granted, spent and remaining epsilon."""

    def attempt(self, *, epsilon: EpsilonLike, act: str = "") -> None:
        """Raises ``BudgetExceeded``, logged if there is a ledger, if an act needs more than remains."""


@dataclass(frozen=True)
class PlanLine:
    """One query of all nodes of a level.

    Attributes:
        level: The number of splits above the queried nodes.
        query: A description of the query, for people.
        verb: The verb of the handle.
        parts: The largest possible number of parts; usually there are far fewer.
        epsilon: The cost of all parts together.
        noise: Standard deviation of the noise in each number, or the scale of a choice's noise; None if no
            single value describes it. With m candidates, the chosen score is about ln(m) scales below the best score.
        unit: The unit of ``noise``.
    """

    level: int
    query: str
    verb: str
    parts: int
    epsilon: Fraction
    noise: float | None = None
    unit: str = "rows"

    @property
    def within(self) -> float | None:
        """Half the width of the 95 % interval of each number; for a choice, a 95 % bound of the noise in a score."""
        if self.noise is None:
            return None
        if self.verb == "noisy_count" and self.noise:  # the scale of the discrete Laplace law with this deviation
            return laplace_interval(0.5 / math.asinh(math.sqrt(0.5) / self.noise))
        scale = self.noise if self.verb == "exp_mech" else self.noise / math.sqrt(2)
        return scale * math.log(20)

    def cells(self) -> tuple[str, ...]:
        """The line as texts, one for each heading."""
        parts = many(self.parts, "part") if self.parts < 10**9 else "very many parts"
        return (
            str(self.level),
            self.query,
            parts,
            loss_text(self.epsilon),
            "" if self.within is None else f"±{rows_text(self.within)} {self.unit}",
        )


@dataclass(frozen=True)
class Plan:
    """All queries of a fit, in order.

    Attributes:
        title: The title of the plan.
        lines: A line for each request.
        total: The largest cost of the fit.
        notes: Useful facts, one sentence each.
        warnings: Likely problems, one sentence each.
    """

    title: str
    lines: tuple[PlanLine, ...]
    total: Fraction
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        table = [HEADINGS, *(line.cells() for line in self.lines), ("", "in all", "", loss_text(self.total), "")]
        widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
        right_aligned = {0, 2, 4}
        rows = [
            "  ".join(
                cell.rjust(width) if column in right_aligned else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        rule = "-" * max(len(row) for row in rows)
        table_text = [self.title, rule, rows[0], rule, *rows[1:-1], rule, rows[-1]]
        notes = [f"Note: {note}" for note in self.notes]
        return "\n".join([*table_text, *notes, *(f"Warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
        body = "".join(_row(line.cells()) for line in self.lines)
        foot = _row(("", "in all", "", loss_text(self.total), ""), "th")
        after = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        after += "".join(f"<p><b>Warning:</b> {escape(warning)}</p>" for warning in self.warnings)
        table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody><tfoot>{foot}</tfoot>"
        return f"<p>{escape(self.title)}</p><table>{table}</table>{after}"


WISH_HEADINGS = ("table or model", "epsilon", "widest ±", "at half of it", "at twice")


@dataclass(frozen=True)
class WishList:
    """Plans, added up against the remaining budget; no query, no cost.

    Attributes:
        plans: A plan of each table or model.
        remaining: The epsilon that remained when the list was made.

    Examples:
        >>> import pinq
        >>> from miners import Scorecard, WishList
        >>> from miners.tables import crosstab
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=1)
        >>> wishes = WishList.of(
        ...     h,
        ...     crosstab.plan(h, "sex", "income", epsilon=0.1),
        ...     Scorecard(epsilon=0.5).plan(h.schema, "income"),
        ... )
        >>> wishes.total, wishes.remainder
        (Fraction(3, 5), Fraction(2, 5))
    """

    plans: tuple[Plan, ...]
    remaining: Fraction

    @classmethod
    def of(cls, handle: PrivateQueryable, *plans: Plan) -> WishList:
        """Adds plans up against the budget of a handle.

        Args:
            handle: The private handle. Reading its budget is free.
            plans: The ``plan`` of each table or model.

        Raises:
            QueryError: An argument is not a plan.
        """
        require_kind(plans, Plan, "`plans` must be plans, such as crosstab.plan(...).")
        return cls(plans, handle.budget.remaining)

    @property
    def total(self) -> Fraction:
        return sum((plan.total for plan in self.plans), Fraction(0))

    @property
    def remainder(self) -> Fraction:
        """The epsilon that would remain; below 0 if the budget does not suffice."""
        return self.remaining - self.total

    def to_frame(self) -> pd.DataFrame:
        """A line for each plan: its epsilon, and its widest interval at this epsilon, at half and at twice."""
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=list(WISH_HEADINGS))

    def __repr__(self) -> str:
        return f"{self.to_frame().to_string(index=False)}\n{self.verdict}"

    def _repr_html_(self) -> str:
        return f"{self.to_frame().to_html(index=False)}<p>{escape(self.verdict)}</p>"

    @property
    def verdict(self) -> str:
        """The sum, and what would remain."""
        after = (
            f"{loss_text(self.remainder)} would be left"
            if self.remainder >= 0
            else f"{loss_text(-self.remainder)} more than that"
        )
        return f"In all epsilon {loss_text(self.total)} of {loss_text(self.remaining)} that remain; {after}."

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for plan in self.plans:
            width, unit = max(((line.within, line.unit) for line in plan.lines if line.within), default=(0.0, ""))
            # Noise is inversely proportional to epsilon, apart from the rounding of whole counts.
            widths = [f"±{rows_text(width * factor)} {unit}".rstrip() if width else "" for factor in (1, 2, 0.5)]
            yield plan.title, loss_text(plan.total), *widths


class FitWarning(UserWarning):
    """The warning before ``fit`` charges: low expected accuracy, or a second fit.

    Examples:
        >>> import warnings
        >>> import pinq
        >>> from miners import DiffPC45, FitWarning
        >>> handle = pinq.simulate("policies/adult.yaml", rows=100, epsilon=1)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = DiffPC45(epsilon=0.001).fit(handle, "income")
        >>> [warning.category is FitWarning for warning in caught]
        [True]
    """


_is_silenced = ContextVar("is_silenced", default=False)

# The handle of each miner's last fit. It is no attribute of the miner, because handles cannot be pickled or copied.
_fitted_on: weakref.WeakKeyDictionary[object, weakref.ref[object]] = weakref.WeakKeyDictionary()


def warn_before_fit(
    miner: object, handle: object, cost: Epsilon, plan_warnings: Sequence[str], *, reuse: bool = False
) -> None:
    """Gives the warnings of a plan and of the cost of a second fit, as one warning."""
    sentences = list(plan_warnings)
    before = _fitted_on.get(miner)
    if before is not None and before() is handle and not reuse:
        already = f"this {type(miner).__name__} is already fitted on this handle"
        sentences.insert(0, f"{already}, and another fit costs an epsilon of {cost} again.")
    tell([" ".join(sentences)] if sentences else [])


def tell(sentences: Iterable[str]) -> None:
    """Warns of each sentence at the line outside of this package that called ``fit``."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("miners."):
        frame, level = frame.f_back, level + 1
    for sentence in () if _is_silenced.get() else sentences:
        warnings.warn(sentence, FitWarning, stacklevel=level)


@contextmanager
def silenced(is_reported: object = True) -> Iterator[None]:
    """Suppresses each ``FitWarning`` of a ``with`` block in this thread, unless the argument is empty or false.

    The filters of ``warnings`` belong to all threads, so they are not changed.
    """
    before = _is_silenced.set(bool(is_reported) or _is_silenced.get())
    try:
        yield
    finally:
        _is_silenced.reset(before)


def remember_fit(miner: object, handle: object, certificate: Certificate | None = None) -> None:
    """Stores the data of a successful fit, and its certificate."""
    _fitted_on[miner] = weakref.ref(handle)
    name = getattr(handle, "dataset", None) or ", ".join(getattr(handle, "owners", ()))
    vars(miner).update(fitted_on_=name, _certificate=certificate)


def lost_votes(rows: int, leaves: float, noise: float, *, known: bool, trees: int = 1) -> tuple[str, ...]:
    """The warning that noise hides the counts of leaves.

    Averaging ``trees`` reduces noise.
    """
    # Noise of 14 rows needs leaves of 40 rows; with the average of four trees, leaves of 20 are enough.
    leaf = rows / leaves
    if leaf * math.sqrt(trees) >= CLEAR * noise:
        return ()
    return (
        f"with {'about' if known else 'at most'} {rows:,} rows an average leaf has {rows_text(leaf)} of them, "
        f"against noise of about {rows_text(noise)} rows in each count; take fewer or shallower trees, or a larger "
        "`epsilon`.",
    )


def rare_classes(
    target: str, classes: Sequence[Value], rows: Iterable[float], noise: float, rare: Iterable[bool]
) -> str:
    """The warning that a model has too few rows of some classes, given their approximate rows and the noise."""
    texts = [
        f"{value!r} (about {max(count, 0):,.0f} of them, and noise of {noise:,.0f})"
        for value, count, each in zip(classes, rows, rare, strict=True)
        if each
    ]
    return (
        f"`{target}` has too few rows of {first_of(texts, 8)}: predicted probabilities may be wrong by more than a "
        "factor of two."
    )


def loss_text(loss: Fraction) -> str:
    """A loss, a whole number of nano-epsilons, as the shortest decimal: ``0.25``."""
    return str(Epsilon(int(loss * NANO)))


def rows_text(rows: float) -> str:
    """A number of rows to about two figures: ``0.3``, ``14``, ``2,300``."""
    if rows >= 1000:
        return f"{round(rows, -2):,.0f}"
    return f"{rows:.0f}" if rows >= 10 else f"{rows:.1f}".removesuffix(".0")


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag} style='text-align:left'>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def count_scale(schema: Schema, epsilon: Epsilon) -> float:
    """The scale of the noise in one count, in rows; ``epsilon`` is in the policy's terms, hence the distance."""
    return float(1 / epsilon.per_row(schema.distance))


def count_line(
    schema: Schema, query: str, parts: int, epsilon: Epsilon, each: Epsilon | None = None, *, level: int = 0
) -> PlanLine:
    """The plan's line of one query for counts, or of several at ``each``."""
    noise = standard_deviation(count_scale(schema, each or epsilon))
    return PlanLine(level, query, "noisy_count", parts, epsilon.exact, noise)


def count_variance(scale: float) -> float:
    """The variance of the noise in one count, in rows squared; at least 1e-12, because it is a divisor."""
    return max(standard_deviation(scale) ** 2, 1e-12)


def sum_variance(schema: Schema, loss: Derivatives, epsilon: Epsilon) -> float:
    """The variance of the noise in one sum of derivatives, in natural units."""
    return 2 * (loss.vectors(schema).bound / loss.unit * count_scale(schema, epsilon)) ** 2


SMALLEST = Epsilon(1)


def spread(epsilon: Epsilon, weights: Sequence[int]) -> tuple[Epsilon, ...]:
    """Divides a loss in proportion to whole weights.

    Each share is rounded down to whole nano-epsilons; the *last* one also gets the rest.

    Raises:
        QueryError: A share would be zero.
    """
    if not weights or min(weights) < 1:
        raise QueryError(f"the weights {list(weights)} must be whole numbers of at least 1.")
    whole = sum(weights)
    shares = [epsilon * weight // whole for weight in weights[:-1]]
    shares.append(epsilon - sum(shares, ZERO))
    if min(shares) < SMALLEST:
        raise QueryError(
            f"an epsilon of {epsilon} is too small to be divided into {whole:,} shares of at least {SMALLEST} each; "
            "use a larger `epsilon` or ask for less."
        )
    return tuple(shares)


Verb = Literal["noisy_count", "noisy_avg", "exp_mech"]


class StepName(Enum):
    """The purpose of a step."""

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
class StepQuery:
    """One kind of query, before it has a price.

    Attributes:
        text: A description of the query, for people.
        noise: A function from the loss of one query to the noise in each number, and its unit.
        weight: The weight of one query in the division of the total.
        times: The number of such queries of the same rows, for example the number of numeric attributes.
        numbers: The number of parts of a node in the query.
    """

    name: StepName
    verb: Verb
    text: str
    noise: Callable[[Epsilon], tuple[float, str]]
    weight: int = 1
    times: int = 1
    numbers: int = 1


@dataclass(frozen=True)
class Step:
    """One kind of query to the nodes of one level, at its price."""

    query: StepQuery
    level: int
    epsilon: Epsilon

    @property
    def name(self) -> StepName:
        return self.query.name

    @property
    def cost(self) -> Epsilon:
        return self.epsilon * self.query.times

    @property
    def noise(self) -> tuple[float, str]:
        """The noise in each number, and its unit."""
        return self.query.noise(self.epsilon)

    def line(self, nodes: int, cost: Epsilon) -> PlanLine:
        parts = nodes * self.query.numbers
        return PlanLine(self.level, self.query.text, self.query.verb, parts, cost.exact, *self.noise)


@dataclass(frozen=True)
class Recipe:
    """The steps along a path through a tree.

    Attributes:
        total: The exact cost of a path from the root to a leaf below the last split.
        levels: The steps of each level of splits, from the root down, in the order of the queries.
        leaf: The steps of a leaf below the last split; rounding remainders are in the last of them.
        spends_rest: Whether the query of an early leaf gets the rest of the path's epsilon; else it gets the
            leaf's fraction.
    """

    total: Epsilon
    levels: tuple[tuple[Step, ...], ...]
    leaf: tuple[Step, ...]
    spends_rest: bool = True

    def __post_init__(self) -> None:
        steps = [step for steps in (*self.levels, self.leaf) for step in steps]
        if any(step.epsilon <= ZERO or step.query.times < 1 for step in steps):
            raise QueryError("every share of a recipe must be greater than 0.")
        if _cost(steps) != self.total:
            raise QueryError(f"the shares of a recipe must add up to its total, {self.total}.")

    @classmethod
    def by_weights(
        cls,
        epsilon: Epsilon,
        levels: Sequence[Sequence[StepQuery]],
        leaf: Sequence[StepQuery],
        *,
        spends_rest: bool = True,
    ) -> Recipe:
        """Divides a budget among queries in proportion to their weights.

        Raises:
            QueryError: Some share would be below one nano-epsilon.
        """
        rows = [*levels, leaf]
        shares = list(spread(epsilon, [q.weight for row in rows for q in row for _ in range(q.times)]))
        # Repeated queries get equal shares: only the last share has the remainder, and the last query is not
        # repeated. Three times weight 1 and a leaf of weight 2 share 11 nano as 2, 2, 2 and 5.
        priced: list[tuple[Step, ...]] = []
        for level, row in enumerate(rows):
            steps = []
            for query in row:
                steps.append(Step(query, level, shares[0]))
                del shares[: query.times]
            priced.append(tuple(steps))
        return cls(epsilon, tuple(priced[:-1]), priced[-1], spends_rest)

    @property
    def depth(self) -> int:
        return len(self.levels)

    @cached_property
    def stops(self) -> bool:
        """Whether one query of all grown trees decides where their paths end early."""
        return any(step.name is StepName.STOP for step in self.leaf)

    def step(self, name: StepName, level: int) -> Step:
        """The step of a level of splits that has this name."""
        return next(step for step in self.levels[level] if step.name is name)

    def leaf_step(self, name: StepName) -> Step:
        """The step of the leaves that has this name."""
        return next(step for step in self.leaf if step.name is name)

    def remainder(self, level: int, paid: Iterable[Step]) -> Epsilon:
        """The rest of a path's epsilon at a node, after all levels above it and these steps of the node."""
        # A total of 1, levels of .3 and .3 and a leaf of .4: a node of the second level whose size
        # was queried at .05 has 1 - .3 - .05 = .65 left.
        return self.total - _cost(step for above in self.levels[:level] for step in above) - _cost(paid)

    def early_leaf(self, level: int, paid: Iterable[Step]) -> Step:
        """The last step of an unsplit node of ``level``; see ``remainder``."""
        classes = self.leaf_step(StepName.CLASSES)
        epsilon = self.remainder(level, paid) if self.spends_rest else classes.epsilon
        return Step(replace(classes.query, text="its classes, if it is too small for a split"), level, epsilon)


def _cost(steps: Iterable[Step]) -> Epsilon:
    return sum((step.cost for step in steps), ZERO)


UNSEEDED = (
    "random_state is not given, so a second fit may draw other queries, which have no paid answers; give a number "
    "together with reuse=True."
)


_log = logging.getLogger("miners")
QUIET = 2.0  # seconds before a fit shows its progress


@contextmanager
def billed(handle: PrivateQueryable) -> Iterator[Callable[[], Fraction]]:
    """Gives a function that reads from the ledger what the queries of a ``with`` block have cost so far, exactly.

    A refusal that ends the block has this cost too; an interrupt (Ctrl-C) gets a note with it.
    """
    before = handle.budget.spent

    def spent() -> Fraction:
        return Exact(handle.budget.spent - before)

    try:
        yield spent
    except Refusal as error:
        error.charged = None
        with suppress(PinqError):  # without the ledger the cost stays unknown
            error.charged = spent()
        raise
    except KeyboardInterrupt as error:
        with suppress(PinqError):
            error.add_note(
                f"The answers so far have cost epsilon {loss_text(spent())}. The same call with reuse=True uses them "
                "at no cost and continues."
            )
        raise


def patient(session: Session, request: Request) -> Answer:
    """Sends a request, after each wait that the grant's pace demands; the logger ``miners`` reports the waits.

    A refusal in the middle of a fit would waste the paid epsilon.
    """
    while True:
        try:
            return session.ask(request)
        except TooManyRequests as error:
            if error.retry_after is None:
                raise
            _log.warning("Waiting %.0f s: %s", error.retry_after, error)
            time.sleep(error.retry_after)


def showing(act: str, total: Epsilon) -> Way:
    """Shows the progress of an act with this name, in a line on standard error, after two seconds."""
    start, paid = time.monotonic(), 0.0

    def ask(session: Session, request: Request) -> Answer:
        nonlocal paid
        answer = session.ask(request)
        paid += float(request.epsilon)
        seconds, share = time.monotonic() - start, min(1.0, paid / float(total.exact))
        if seconds >= QUIET:
            text = f"{act}: {share:.0%} of the queries, {seconds:.0f} s, about {seconds / share - seconds:.0f} s left "
            print(text, end="\n" if share == 1 else "\r", file=sys.stderr, flush=True)
        return answer

    return ask


class _NotGiven(float):
    """The epsilon of a miner that was made without one: plans read it as a number, and no fit spends it."""


NOT_GIVEN = _NotGiven(1.0)


def require_given(miner: object) -> None:
    """Raises ``QueryError`` for a miner without an epsilon, because a default could spend a whole grant."""
    if isinstance(getattr(miner, "epsilon", None), _NotGiven):
        allowed = f"what this fit may cost, as in {type(miner).__name__}(epsilon=0.5)"
        raise QueryError("is not given", parameter="epsilon", allowed=allowed)


def begin_fit(
    miner: object,
    handle: PrivateQueryable,
    target: object,
    total: Epsilon,
    plan_warnings: Sequence[str],
    *,
    reuse: bool,
    before: Epsilon = ZERO,
) -> tuple[PrivateQueryable, Callable[[], Certificate]]:
    """Refuses a fit that exceeds the budget, and gives the warnings of the plan.

    With ``reuse``, the budget is checked only if the first query has no stored answer. So a fit that broke off can
    continue with less than its whole epsilon.

    Returns:
        The handle to query, and a function that returns the certificate afterwards.

    Raises:
        QueryError: ``reuse`` is not True or False.
        BudgetExceeded: Less than ``total`` remains.
    """
    require_bool("reuse", reuse)
    act = f"miners.{type(miner).__name__}.fit"
    named = handle.named(act if target is None else f"{act} of {target}")
    require = partial(require_budget, named, total, name=f"{type(miner).__name__}.fit")
    if not reuse:
        require()
    elif getattr(miner, "random_state", 0) is None:
        plan_warnings = [*plan_warnings, UNSEEDED]
    warn_before_fit(miner, handle, total, plan_warnings, reuse=reuse)
    handle = named.through(patient)
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        handle = handle.through(showing(act, total + before))
    return recording(reusing(handle, require) if reuse else handle)


def require_budget(handle: Pricing, needed: Epsilon, *, name: str, act: str = "") -> None:
    """Raises ``BudgetExceeded`` unless the remaining budget pays for all queries of an act together.

    The log has the refusal.
    """
    if not needed:
        return
    try:
        handle.attempt(epsilon=needed, act=act)
    except BudgetExceeded as error:
        under_cap = " under the cap over all analysts" if error.scope == "cap" else ""
        text = f"{name} needs an epsilon of {needed}; {loss_text(error.remaining)} remains{under_cap}. Ask for less."
        refused = BudgetExceeded(text, asked=error.asked, remaining=error.remaining, scope=error.scope)
        refused.charged = error.charged
        raise refused from None


@dataclass(frozen=True)
class Storage:
    """The largest number of bytes that a ledger keeps of a fit.

    Attributes:
        fixed: The bytes of queries that do not depend on the parameter.
        each: The bytes of further queries for each unit of the parameter.
        parameter: The parameter of which more units are more queries; empty for none.
        number: Its value.
    """

    fixed: int = 0
    each: int = 0
    parameter: str = ""
    number: int = 0

    def require(self, room: int | None) -> None:
        """Raises ``NotAllowed`` if a ledger with so many bytes left might refuse a later query of the fit."""
        needed = self.fixed + self.each * self.number
        if room is None or needed <= room:
            return
        most = (room - self.fixed) // self.each if self.each else 0
        largest = f"the largest `{self.parameter}` that fits is {most:,}" if most > 0 else "take fewer columns"
        raise NotAllowed(
            f"the ledger might have to keep {needed:,} bytes of this fit, and the grant has {room:,} left; {largest}, "
            "or let the data provider change the terms (pinq terms)."
        )


def bytes_of(numbers: int, queries: int = 1) -> int:
    """The largest number of bytes that a ledger keeps of queries with so many numbers in all, of parts at any depth."""
    return queries * (QUERY_BYTES + PART_BYTES * (MAX_DEPTH + 4)) + numbers * NUMBER_BYTES


class _PublicSession:
    """A session that knows only a schema: it previews what the schema allows, and answers nothing."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.name, self.account, self.tables, self.cohorts = schema, "public", "public", (), None

    def preview(self, request: Request) -> Preview:
        """Raises ``QueryError`` if the schema does not allow the request."""
        request.query.check_for(request.parts.bind(self.schema), self.schema)
        return Preview(Fraction(0), Fraction(0), "")

    def budget(self, _: str = "") -> Budget:
        """A budget of 0."""
        return Budget(Fraction(0), Fraction(0), Fraction(0))


def public_handle(schema: Schema) -> PrivateQueryable:
    """Returns a handle for rehearsals and previews by public facts alone."""
    return PrivateQueryable(cast(Session, _PublicSession(schema)))
