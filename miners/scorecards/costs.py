# SPDX-License-Identifier: Apache-2.0
"""The division of a scorecard's epsilon and its number of steps, by public facts.

A fit queries the start of scores (``base``), perhaps one table for each attribute, then steps: one choice and the sums
in the cells of the chosen attribute each.

Privacy:
    Claim: all queries together cost the total exactly. Why: all are about the same rows, so losses add up, in whole
    nano-epsilons. Held by: tests/unit/scorecards/test_costs.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from miners.budget.plan import spread
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Schema

MAX_STEPS = 200
MOST_STEPS = 24  # of a default; more gain nothing on Adult, epsilon .1 to 64
STEP = 1000  # the weight of an average step
# Later steps have less to find, so they get more: the factors from one step's sums and choice to the next.
SUMS_GROW, CHOICES_GROW = 1.1, 1.2
LEFT = 5.0  # step S finds 1 / (5 S) of the rows; six tables, docs/defaults.md
TABLES_KNOW, TABLES_OF_FEW_KNOW = 3, 8  # steps that tables of all attributes replace, and of few attributes
FEW_ATTRIBUTES = 6  # few enough that they seldom repeat each other
# The weight of the tables of all attributes for each unit of all steps: seven tenths; for two classes a half.
TABLES, TABLES_FOR_TWO = 2.3, 1.0
BESIDE_TABLES = 10  # the weight of the start where points start from tables, which are more precise


@dataclass(frozen=True)
class CardStep:
    """The costs of one step.

    Attributes:
        choice: The cost of the choice of an attribute; None for a single attribute.
    """

    choice: Epsilon | None
    sums: Epsilon

    @property
    def cost(self) -> Epsilon:
        return self.sums + (self.choice or ZERO)


@dataclass(frozen=True)
class FitCosts:
    """The costs of the queries of a fit.

    Attributes:
        bases: The costs of the queries for the start of scores: one query, or several for numbers, each in the range
            found by the one before.
        tables: The costs of the class tables of each attribute's cells; empty without tables.
    """

    bases: tuple[Epsilon, ...]
    tables: tuple[Epsilon, ...]
    steps: tuple[CardStep, ...]
    starts: bool

    @property
    def total(self) -> Epsilon:
        return sum((*self.bases, *self.tables, *(step.cost for step in self.steps)), ZERO)

    @classmethod
    def of(
        cls,
        epsilon: Epsilon,
        *,
        tables: int,
        steps: int,
        choice: float,
        base: float,
        weight: float = TABLES,
        starts: bool = True,
        looks: int = 1,
    ) -> FitCosts:
        """Divides a loss.

        Args:
            epsilon: The total.
            tables: The number of tables.
            steps: The number of steps.
            choice: The fraction of a step for the choice of its attribute; 0 without choices.
            base: The weight of the first query for the start of scores, relative to an average step.
            weight: The weight of all tables together, relative to all steps.
            starts: Whether points start from tables, where there are any.
            looks: The number of queries for the start of scores.

        Raises:
            QueryError: Some fraction would be below one nano-epsilon.
        """
        # Two steps, a quarter for choices: the choices weigh 227 and 273, the sums 714 and 786, together 2,000.
        choices = _growing(STEP * choice, CHOICES_GROW, steps)
        sums = _growing(STEP * (1 - choice), SUMS_GROW, steps)
        each = max(1, round(STEP * max(steps, 1) * weight / max(tables, 1)))
        starts = starts and tables > 0
        first = BESIDE_TABLES if starts else round(STEP * base)
        # Looks may have the same parts: with different losses they are different queries for ``reuse``.
        weights = [first + look for look in range(looks)] + [each] * tables
        for for_choice, for_sums in zip(choices, sums, strict=True):
            weights += [for_choice, for_sums] if choice else [for_sums]
        costs = spread(epsilon, weights)
        first_step = looks + tables
        return cls(costs[:looks], costs[looks:first_step], tuple(_steps(costs[first_step:], choice > 0)), starts)


def with_turns(epsilon: Epsilon, steps: Sequence[CardStep], turns: Collection[int]) -> tuple[CardStep, ...]:
    """The costs of some steps for a data owner that chooses at its own steps only.

    Its own choices get the epsilon of all choices, or its sums if it has none.
    """
    # An owner that chooses at two of three steps of equal cost gets 3/2 as much for each choice.
    choices = [0 if step.choice is None else step.choice.nano for step in steps]
    factor = sum(choices) / (sum(choices[position] for position in turns) or 1)
    weights: list[int] = []
    for position, step in enumerate(steps):
        weights += [step.sums.nano] + [max(1, round(choices[position] * factor))] * (position in turns)
    costs = iter(spread(epsilon, weights))
    return tuple(
        CardStep(sums=next(costs), choice=next(costs) if position in turns else None) for position in range(len(steps))
    )


def rows_epsilon(schema: Schema, epsilon: Epsilon) -> float:
    """The largest number of rows times the loss of one row: the size of the table in noise scales."""
    return schema.max_rows * float(epsilon.per_row(schema.distance))


def choice_fraction(attributes: int, cells: float) -> float:
    """The share of a step's loss for the choice of its attribute; the rest is for its sums.

    At a share c of the loss, a choice among A attributes errs by up to 2 ln A / c noise scales; at
    1 - c the sums of K cells, two numbers each, by 2 K / (1 - c) in all. The total error is
    smallest if the two shares are in proportion to the roots of ln A and of K: 1 to 2 for 14
    attributes of about 11 cells.
    """
    choice = math.log(attributes) ** 0.5
    return choice / (choice + cells**0.5)


def base_fraction(attributes: int, cells: float) -> float:
    """The cost of the start of scores for each unit of a step; see ``choice_fraction``.

    The start is one more table, of two cells.
    """
    # 22 attributes of two cells: 1.41 / (1.76 + 1.41), nearly half a step; 14 of about 11: a quarter.
    return 2**0.5 / (math.log(attributes) ** 0.5 + cells**0.5)


def steps_that_pay(size: float, attributes: int, cells: float) -> int:
    """The number of useful steps.

    A step with the whole loss has an error of 2 (√ln A + √K)² noise scales, and one of S steps S times as much. The
    possible gain falls with S: step S finds about 1 / (``LEFT`` S) of the rows. Both are equal at S, the root of a
    multiple of rows times epsilon.
    """
    # 50,000 rows times epsilon, 14 attributes of 14 cells: errors of 58 scales, so 13 steps.
    errors = 2 * (math.log(attributes) ** 0.5 + cells**0.5) ** 2
    return min(round((size / (LEFT * errors)) ** 0.5), MOST_STEPS)


def tables_for_two(size: float, attributes: int) -> float:
    """The weight of tables of all attributes for two classes; 0 if steps alone are better.

    Many attributes repeat each other, and divide the cost of tables.
    """
    few = 1 < attributes <= FEW_ATTRIBUTES
    return TABLES_FOR_TWO if few and tables_pay(size, 2, attributes, TABLES_FOR_TWO) else 0.0


def steps_after_tables(size: float, classes: int, attributes: int) -> int:
    """The useful number of steps after tables of all attributes, which correct double counts.

    Few attributes seldom count double, so their steps begin at more rows. Classes beyond three share the rows of three.
    """
    replaced = TABLES_KNOW if attributes > FEW_ATTRIBUTES else TABLES_OF_FEW_KNOW
    # 50,000 rows of three classes, or as many rows in each class: 11 steps, of which tables replace 3.
    return min(max(0, round(11 * (3 / classes * size / 50_000) ** 0.35) - replaced), MAX_STEPS)


def repeated(attributes: int) -> float:
    """The weight of an attribute in tables, less than 1 for many attributes, which repeat each other."""
    # Twenty-four attributes: each counts half.
    return min(1.0, (FEW_ATTRIBUTES / attributes) ** 0.5)


def tables_pay(size: float, classes: int, attributes: int, weight: float) -> bool:
    """Whether the average class has more rows than the noise in a count of its tables.

    Otherwise a few chosen attributes serve better.
    """
    # Of 330 rows of six classes, each has 55; at epsilon .5 counts in tables of 34 attributes have noise of 98 rows.
    # The odds of two classes have the noise of both counts.
    return size * weight / (1 + weight) >= classes * attributes * (2**0.5 if classes == 2 else 1)


def _growing(mean: float, factor: float, count: int) -> list[int]:
    """Weights that grow by a factor and have about this mean."""
    powers = [factor**number for number in range(count)]
    return [max(1, round(mean * power * count / sum(powers))) for power in powers]


def _steps(costs: Sequence[Epsilon], chooses: bool) -> Iterator[CardStep]:
    width = 2 if chooses else 1
    for start in range(0, len(costs), width):
        # Fractions 2 7 3 8 are the steps (2, 7) and (3, 8); without choices four steps.
        *choice, sums = costs[start : start + width]
        yield CardStep(choice[0] if choice else None, sums)
