# SPDX-License-Identifier: Apache-2.0
"""Several tables and models in one list: their total cost and their widths, before any query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING

from miners.budget.plan import Plan, loss_text, rows_text
from pinq.public.checks import require_kind

if TYPE_CHECKING:
    import pandas as pd

    from pinq.analyst.queryable import PrivateQueryable

HEADINGS = ("table or model", "epsilon", "widest ±", "at half of it", "at twice")


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

        return pd.DataFrame(self._rows(), columns=list(HEADINGS))

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
