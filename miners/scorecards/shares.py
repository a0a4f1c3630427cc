# SPDX-License-Identifier: Apache-2.0
"""How a scorecard's epsilon is divided, and how many steps it pays for, by public facts.

A fit is a list of questions: where scores start (``base``), perhaps one table for each attribute,
then steps: one choice and the sums of what was chosen.

Privacy:
    Claim: all questions together cost the total exactly. Why: all are asked of the same rows, so
    losses add up (sequential composition), and shares are whole nano-epsilons. Held by:
    tests/unit/scorecards/test_shares.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from miners.budget.plan import spread
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Schema

MAX_STEPS = 200
STEP = 1000  # what an average step weighs
BASE, CHOICE = 100, 250  # of it: where scores start; each step's choice, the rest being its sums
# Later steps have less to find, so they get more: their sums by this factor, their choices by that.
SUMS_GROW, CHOICES_GROW = 1.1, 1.2
# Below so many rows times epsilon (for many classes: by class) noise eats all that can be learned.
HOPELESS_TWO, HOPELESS_EACH = 100.0, 25.0
TABLES_KNOW = 4  # steps that tables of all attributes replace, and twice as many of few attributes
FEW_ATTRIBUTES = 6  # few enough that they seldom repeat each other
MANY_ATTRIBUTES = 14  # so many that more of them pay for fewer steps
WIDE_ROWS = 50  # rows for each attribute below which noise is in all of them
TABLES = 2.3  # what tables of all attributes weigh, for each unit of all steps: seven tenths
BESIDE_TABLES = 10  # what the start weighs where points start from tables, which say it better


@dataclass(frozen=True)
class Steps:
    """How many steps pay, as a power of rows times epsilon.

    Attributes:
        count: So many at ``size``.
        size: Rows times epsilon.
        grows: The power.
        most: More gain nothing.
        set_by: The experiment; its figures are in docs/defaults.md.
    """

    count: float
    size: float
    grows: float
    most: int = MAX_STEPS
    set_by: str = ""

    def at(self, size: float) -> float:
        """Returns how many pay, before rounding."""
        return float(self.count * (size / self.size) ** self.grows)

    def within(self, steps: float, least: int = 0) -> int:
        """Returns a number of steps that can be made."""
        return min(max(least, round(steps)), self.most)


STEPS_FOR_TWO = Steps(13, 50_000, 0.4, most=24, set_by="Adult, epsilon .1 to 64; Mushroom and Banknote at .5")
STEPS_AFTER_TABLES = Steps(11, 50_000, 0.35, set_by="Car and Balance Scale, 20 runs; Contraceptive Method at 4")
STEPS_FOR_MEANS = Steps(6, 20_000, 0.4, set_by="Appliances Energy, epsilon .1 to 4")


@dataclass(frozen=True)
class Regime:
    """Tables of two classes to which a weight of tables of all attributes belongs.

    Attributes:
        weight: What all tables together weigh, for each unit of all steps.
        clear: Rows times epsilon for each attribute, at least.
        attributes: At most.
        rows: For each attribute, at most.
        set_by: The experiment; its figures are in docs/decisions/0102.
    """

    weight: float
    clear: float
    attributes: float = math.inf
    rows: float = math.inf
    set_by: str = ""


# The first row that holds decides; where none does, steps are better alone.
TABLES_FOR_TWO = (
    Regime(0.43, 500, attributes=FEW_ATTRIBUTES, set_by="Banknote, iris, columns of Car, epsilon 4: .844, else .838"),
    Regime(TABLES, 0, attributes=FEW_ATTRIBUTES, set_by="the same at .25 and 1: .696 and .817, steps .683 and .786"),
    Regime(TABLES, 30, rows=WIDE_ROWS, set_by="breast cancer, SPECT, Soybean, wide made-up tables, epsilon 1 to 4"),
    Regime(0.11, 100, rows=500, set_by="2,000 rows of Mushroom's columns at 1: .977, steps .965; samples of Adult"),
)


@dataclass(frozen=True)
class CardStep:
    """What one step pays.

    Attributes:
        choice: For the choice of an attribute; None where there is one attribute only.
        sums: For the sums of its cells.
    """

    choice: Epsilon | None
    sums: Epsilon


@dataclass(frozen=True)
class Shares:
    """What each question of a fit pays.

    Attributes:
        bases: For where scores start: one question, or several of numbers, each in the range that
            the one before finds.
        tables: For the classes of each attribute's cells; empty where they are not asked.
        steps: For each step.
    """

    bases: tuple[Epsilon, ...]
    tables: tuple[Epsilon, ...]
    steps: tuple[CardStep, ...]

    @property
    def total(self) -> Epsilon:
        """What all of it costs."""
        steps = sum((step.sums + (step.choice or ZERO) for step in self.steps), ZERO)
        return sum((*self.bases, *self.tables), ZERO) + steps

    @classmethod
    def of(
        cls,
        epsilon: Epsilon,
        *,
        tables: int,
        steps: int,
        chooses: bool,
        weight: float = TABLES,
        starts: bool = True,
        looks: int = 1,
    ) -> Shares:
        """Divides a loss.

        Args:
            epsilon: The total.
            tables: How many tables are asked.
            steps: How many steps are made.
            chooses: Whether a step chooses its attribute.
            weight: What all tables together weigh, for each unit of all steps.
            starts: Whether points start from tables, where there are any.
            looks: How many questions say where scores start.

        Raises:
            QueryError: Some share would be below one nano-epsilon.
        """
        # Of two steps the choices weigh 227 and 273, the sums 714 and 786: 2,000 in all.
        choices, sums = _growing(CHOICE, CHOICES_GROW, steps), _growing(STEP - CHOICE, SUMS_GROW, steps)
        each = max(1, round(STEP * max(steps, 1) * weight / max(tables, 1)))
        base = BESIDE_TABLES if tables and starts else BASE
        # Looks may be of the same parts: at losses of their own they are different questions, and ``reuse``
        # finds the answer of each.
        weights = [base + look for look in range(looks)] + [each] * tables
        for choice, own in zip(choices, sums, strict=True):
            weights += [choice, own] if chooses else [choice + own]
        shares = spread(epsilon, weights)
        first = looks + tables
        return cls(shares[:looks], shares[looks:first], tuple(_steps(shares[first:], chooses)))


def with_turns(epsilon: Epsilon, steps: Sequence[CardStep], own: Collection[int]) -> tuple[CardStep, ...]:
    """Returns what some steps cost whoever chooses at its own steps alone.

    What others choose it need not pay for: its own choices share what all would cost. Without any
    its sums get all.

    Args:
        epsilon: What it has left for all of them.
        steps: What each costs whoever chooses at every step.
        own: The positions of its own among them.
    """
    # Who chooses at two of three steps, which would cost alike, gets 3/2 as much for each choice.
    choices = [0 if step.choice is None else step.choice.nano for step in steps]
    factor = sum(choices) / (sum(choices[position] for position in own) or 1)
    weights: list[int] = []
    for position, step in enumerate(steps):
        weights += [step.sums.nano] + [max(1, round(choices[position] * factor))] * (position in own)
    shares = iter(spread(epsilon, weights))
    return tuple(_turn(shares, position in own) for position in range(len(steps)))


def _turn(shares: Iterator[Epsilon], chooses: bool) -> CardStep:
    """Takes the shares of one step."""
    sums = next(shares)
    return CardStep(next(shares) if chooses else None, sums)


def rows_epsilon(schema: Schema, epsilon: Epsilon) -> float:
    """Returns the most rows times the loss of one row: how many noise scales the whole table is."""
    return schema.max_rows * float(epsilon.per_row(schema.distance))


def steps_for_two(size: float, attributes: int, tables: float) -> int:
    """Returns how many steps pay for two classes.

    Of many attributes fewer pay, for each says less that is new; but after tables one at least does.

    Args:
        size: ``rows_epsilon``.
        attributes: How many there are.
        tables: What tables weigh from which points start, 0 without.
    """
    if size < HOPELESS_TWO:
        return 0
    steps = STEPS_FOR_TWO.at(size / (1 + tables))
    if tables:
        return STEPS_FOR_TWO.within(steps, least=1)
    # Fourteen attributes and fewer: all of these; twenty-three and more: seven tenths.
    return STEPS_FOR_TWO.within(steps * min(1.0, max(0.7, (MANY_ATTRIBUTES / attributes) ** 0.7)))


def tables_for_two(size: float, rows: int, attributes: int) -> float:
    """Returns what tables of all attributes weigh for two classes, 0 where steps are better alone.

    One step over all attributes says what many weak ones or a few that do not repeat each other
    say together, where single steps reach some of them. With many rows for each attribute steps
    reach all that matters; with few rows times epsilon nothing in a table can be told from noise.

    Args:
        size: ``rows_epsilon``.
        rows: The most there are.
        attributes: How many there are.
    """
    if attributes == 1 or size < HOPELESS_TWO:
        return 0.0
    held = (
        regime.weight
        for regime in TABLES_FOR_TWO
        if attributes <= regime.attributes and rows <= regime.rows * attributes and size / attributes >= regime.clear
    )
    return next(held, 0.0)


def repeats_little(rows: int, attributes: int) -> bool:
    """Returns whether tables of all attributes say more than single steps can mend.

    So it is where attributes are few, or rows are so few for each that noise is in all of them.
    """
    return attributes <= FEW_ATTRIBUTES or rows <= WIDE_ROWS * attributes


def steps_after_tables(size: float, classes: int, attributes: int) -> int:
    """Returns how many steps pay after tables of all attributes: they mend what those count twice.

    Few attributes seldom do, so there steps begin at more rows; below that the tables are all, in
    one step over all attributes at once.

    Args:
        size: ``rows_epsilon``.
        classes: Of the target, three or more; those beyond three share the rows that three would have.
        attributes: How many there are.
    """
    known = TABLES_KNOW if attributes > FEW_ATTRIBUTES else 2 * TABLES_KNOW
    return STEPS_AFTER_TABLES.within(STEPS_AFTER_TABLES.at(3 / classes * size) - known)


def repeated(attributes: int) -> float:
    """Returns what each of so many attributes counts in tables, for they repeat each other."""
    # Twenty-four attributes: each counts half.
    return min(1.0, (FEW_ATTRIBUTES / attributes) ** 0.5)


def tables_pay(size: float, classes: int) -> bool:
    """Returns whether tables of many classes can be told from noise."""
    return size >= HOPELESS_EACH * classes


def _growing(mean: int, factor: float, count: int) -> list[int]:
    """Returns weights that grow by a factor and have about this mean."""
    # A mean of 250, factor 1.2, two steps: powers 1 and 1.2 of 2.2 are 227 and 273 of 500.
    powers = [factor**number for number in range(count)]
    return [max(1, round(mean * power * count / sum(powers))) for power in powers]


def _steps(shares: Sequence[Epsilon], chooses: bool) -> Iterator[CardStep]:
    """Yields steps from their shares, in order."""
    width = 2 if chooses else 1
    for start in range(0, len(shares), width):
        # Shares 2 7 3 8 are the steps (2, 7) and (3, 8); without choices four steps.
        *choice, sums = shares[start : start + width]
        yield CardStep(choice[0] if choice else None, sums)
