# SPDX-License-Identifier: Apache-2.0
"""``recommend`` names a miner for a table, by public facts alone.

docs/defaults.md derives its rule.

Privacy:
    Claim: free. Why: it reads the public schema only, and sends no query.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from miners.growth.candidates import attribute_names
from miners.linear.discriminant import LinearDiscriminant
from miners.linear.linear_miner import LinearFit
from miners.linear.regression import LinearRegression
from miners.scorecards.costs import rows_epsilon
from miners.scorecards.scorecard import Scorecard, ScorecardMiner, ScorecardRegressor
from miners.synthesizer.synthesizer import Synthesizer
from miners.trees.diffp_c45 import DiffPC45
from miners.trees.diprime import DiPriMeTreeRegressor
from pinq.errors import QueryError
from pinq.public.checks import Shown, whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema

if TYPE_CHECKING:
    Recommended = (
        Scorecard
        | ScorecardRegressor
        | DiffPC45
        | DiPriMeTreeRegressor
        | LinearDiscriminant
        | LinearRegression
        | Synthesizer
    )


FEW = 8  # the most attributes that a tree can combine
PLENTY = 1500.0  # the fewest rows times epsilon for each class from which a tree has exact leaves
MANY = 8  # the fewest classes that are too many for the leaves that noise permits
PAIR = 3  # steps of a pair of attributes: one for each attribute, and one for both together
SCARCE_ROWS = 50  # the most rows for each attribute with which a scorecard's points beat the few splits of a tree
CLEAR = 10.0  # the fewest rows times epsilon for each attribute with which a wide table is not too noisy
NOTE = "By public facts alone: columns, classes, max_rows and epsilon. The rows may behave differently."


@dataclass(frozen=True)
class Facts:
    """The facts that the rule uses.

    Attributes:
        attributes: The number of columns besides the target.
        numeric: The number of numeric columns among them.
        classes: The classes of the target; 0 for a numeric one.
        rows: ``max_rows``.
        size: ``max_rows`` times epsilon: the number of rows, as a multiple of the scale of a count's noise.
        planes: The precision of planes between classes: "clear" if noise permits a covariance of each class, "dim" if
            it permits only one of all classes together, else (and for a numeric target) "hidden".
    """

    attributes: int
    numeric: int
    classes: int
    rows: int
    size: float
    planes: Literal["clear", "dim", "hidden"] = "hidden"

    def __str__(self) -> str:
        target = f"{self.classes} classes" if self.classes else "a number to predict"
        columns = f"{self.attributes:,} attributes, {self.numeric:,} of them numeric"
        return f"{columns}; {target}; max_rows times epsilon {self.size:,.0f}"


@dataclass(frozen=True)
class Alternative:
    """A miner that was considered.

    Attributes:
        miner: The miner with this epsilon, not fitted.
        when: The tables for which this miner fits.
    """

    miner: Recommended
    when: str

    @property
    def name(self) -> str:
        return type(self.miner).__name__


@dataclass(frozen=True)
class Recommendation(Shown):
    """The answer of ``recommend``.

    Attributes:
        miner: The recommended miner with this epsilon, not fitted.
        reason: The reason, in a sentence.
        alternatives: All considered miners, the recommended one first.
        warnings: The warnings of the recommended miner's plan.
    """

    miner: Recommended
    reason: str
    facts: Facts
    alternatives: tuple[Alternative, ...]
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        return type(self.miner).__name__

    def __repr__(self) -> str:
        width = max(len(other.name) for other in self.alternatives)
        lines = [f"{self.miner!r}: {self.reason}", f"Facts: {self.facts}."]
        lines += [f"  {other.name:<{width}}  {other.when}" for other in self.alternatives]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join([*lines, f"Note: {NOTE}"])


def recommend(
    schema: Schema,
    target: str,
    epsilon: EpsilonLike,
    *,
    max_rows: int | None = None,
    verbs: Collection[str] | None = None,
) -> Recommendation:
    """Recommends a miner by public facts alone; free.

    Args:
        schema: The public schema, ``handle.schema``.
        target: The column to predict.
        epsilon: The largest cost of the fit.
        max_rows: The largest number of rows to expect; by default the schema's ``max_rows``.
        verbs: The verbs that the grant's terms allow (``handle.terms``); None for all.

    Returns:
        The miner with this epsilon, the reason in words, the alternatives, and the warnings of its
        plan.

    Raises:
        QueryError: A parameter or the target is wrong.

    Privacy:
        Adjacency: any. Claim: 0-DP. Why: the only input is the schema, which is public.

    Examples:
        >>> import pinq
        >>> from miners import recommend
        >>> answer = recommend(pinq.load_policy("policies/adult.yaml").schema_, "income", epsilon=0.5)
        >>> answer.miner
        Scorecard(epsilon=0.5, pairs=True)
    """
    if not isinstance(schema, Schema):
        raise QueryError(f"is {type(schema).__name__}", parameter="schema", allowed="a Schema, like `handle.schema`")
    if max_rows is not None:
        whole_number("max_rows", max_rows, 1, schema.max_rows)
        schema = schema.model_copy(update={"max_rows": max_rows})
    column, names = schema.column(target), attribute_names(schema, target, None)
    numeric = sum(name in schema.numeric_columns for name in names)
    classes = 0 if target in schema.numeric_columns else column.cells
    planes = _planes(LinearDiscriminant(epsilon=epsilon)._checked(schema, target)) if classes else "hidden"
    facts = Facts(len(names), numeric, classes, schema.max_rows, rows_epsilon(schema, Epsilon.of(epsilon)), planes)
    name, reason = _choice(facts)
    uses: dict[type[Recommended], str] = {
        ScorecardRegressor: "if attributes add up; a page to print",
        LinearRegression: "if people need coefficients with errors, or effects of numeric columns are linear",
        DiPriMeTreeRegressor: "if attributes act together, and there are many rows",
    }
    if facts.classes:
        uses = {
            Scorecard: "if attributes add up, or probabilities are needed; a page to print",
            DiffPC45: "if attributes act together: rules, positions, sensors; numeric columns",
            LinearDiscriminant: "many correlated numeric columns and several classes: measurements, images",
        }
    uses[Synthesizer] = "if one fit serves several targets, or a model of another library"
    considered = [Alternative(_miner_of(kind, schema, target, epsilon), when) for kind, when in uses.items()]
    if verbs is not None:
        plans = {other.name: other.miner.plan(schema, target) for other in considered}
        considered = [other for other in considered if {line.verb for line in plans[other.name].lines} <= {*verbs}]
        if not considered:
            raise QueryError(f"are {', '.join(verbs) or 'none'}", parameter="verbs", allowed="the verbs of some miner")
        if name not in {other.name for other in considered}:
            name, reason = considered[0].name, "the terms of the grant forbid a verb of the usual choice."
    alternatives = sorted(considered, key=lambda other: other.name != name)
    miner = alternatives[0].miner
    return Recommendation(miner, reason, facts, tuple(alternatives), miner.plan(schema, target).warnings)


def _planes(fit: LinearFit) -> Literal["clear", "dim", "hidden"]:
    """The precision of planes between classes; see ``Facts``."""
    return "hidden" if fit.hidden else "clear" if fit.by_class else "dim"


def _miner_of(kind: type[Recommended], schema: Schema, target: str, epsilon: EpsilonLike) -> Recommended:
    """Makes a miner of a kind; a scorecard has pairs if the epsilon pays for enough steps."""
    if not issubclass(kind, ScorecardMiner):
        return kind(epsilon=epsilon)
    fit = kind(epsilon=epsilon, pairs=True)._checked(schema, target)
    return kind(epsilon=epsilon, pairs=bool(fit.pairs) and fit.steps_with_pairs >= PAIR)


def _choice(facts: Facts) -> tuple[str, str]:
    """The name of the recommended miner, and the reason."""
    if not facts.classes:
        return "ScorecardRegressor", (
            "a number is predicted; points that add up were ahead of trees on every measured table."
        )
    many, sparse = facts.classes >= MANY, facts.size < PLENTY * facts.classes
    # Many classes and numeric columns: a plane needs fewer numbers than anything finer.
    if 2 * facts.numeric > facts.attributes and many and facts.planes != "hidden":
        return "LinearDiscriminant", (
            f"most attributes are numeric, and the classes are {MANY} or more: a plane takes fewer numbers than "
            "the cells of a card or the leaves of a tree."
        )
    if facts.numeric == facts.attributes and sparse and facts.planes == "clear":
        return "LinearDiscriminant", (
            "all attributes are numeric, and rows are too few for fine cells, but enough for means and products."
        )
    # Few rows for each attribute: all attributes together predict best.
    if facts.rows <= SCARCE_ROWS * facts.attributes and facts.size >= CLEAR * facts.attributes:
        return "Scorecard", (
            f"at most {SCARCE_ROWS} rows for each attribute: the points of all of them say more than the few "
            "attributes of a tree."
        )
    # The cut points of a tree predict better than a card's few cells of equal width.
    if (
        2 * facts.numeric > facts.attributes
        and not many
        and (facts.classes > 2 or (sparse and facts.numeric == facts.attributes))
    ):
        return "DiffPC45", (
            "attributes are numeric, and a tree finds its own cut points; a scorecard has only cells of "
            "equal width and round numbers."
        )
    # A tree can use all attributes and still have rows in its leaves.
    if facts.attributes <= FEW and 2 < facts.classes < MANY and not sparse:
        return "DiffPC45", (
            f"at most {FEW} attributes and {PLENTY:,.0f} rows times epsilon a class: a tree can combine all attributes."
        )
    return "Scorecard", (
        "the effects of attributes usually add up, and points need fewer rows than a tree, which halves them at every "
        "level."
    )
