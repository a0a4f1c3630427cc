# SPDX-License-Identifier: Apache-2.0
"""``Balance`` finds medians, quantiles and even bipartitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np

from pinq.errors import QueryError
from pinq.public.expressions import Expression
from pinq.public.partitions import Axis
from pinq.public.schema import Schema
from pinq.public.score import Score

__all__ = ["Balance"]

SHARE = re.compile(r"[0-9]{1,20}/[0-9]{1,20}|[0-9]{0,20}\.?[0-9]{0,20}(e-?[0-9]{1,2})?")
MAX_DENOMINATOR = 10**6  # of a share: its product with any number of rows fits 64 bits


@dataclass(frozen=True)
class Balance(Score):
    """Scores how close a candidate of two cells comes to a share of the rows in its first cell.

    With n0 rows in cell 0, n1 in cell 1 and a share q = a/b in lowest terms, the score is the
    integer -|(b - a) n0 - a n1| = -b |n0 - q (n0 + n1)|. Without a share, q = 1/2, it is -|n0 - n1|:
    the median, the even bipartition. Among the cuts of a column it finds the q-quantile.

    Attributes:
        share: q, exact: a text like ``"1/4"``, or a number, whose decimal digits count. None is a
            half. Kept as text in lowest terms.

    Privacy:
        Adjacency: add or remove one row. Claim: sensitivity max(a, b - a), that is b max(q, 1 - q);
        not monotone, so the span is twice that.
        Why: a row in cell 0 moves (b - a) n0 - a n1 up by b - a, a row in cell 1 moves it down by a,
        and an absolute value moves by no more than what is inside. A row can bring one cut closer
        to balance and take another further from it, by max(q, 1 - q) each, so 2 b max(q, 1 - q) is
        attained. Where one row is substituted the inside moves by 0 or b, at most twice max(a, b -
        a): so much as two rows (the schema's distance, by which epsilon is divided) are allowed.
        Exact: integers. Held by: tests/contract/test_every_score.py,
        tests/privacy/test_sensitivity.py, tests/privacy/test_selections.py.

    References:
        Smith 2011, "Privacy-preserving statistical estimation with optimal convergence rates",
        algorithm 2 (quantiles by the exponential mechanism).
    """

    share: str | float | None = None
    kind: Literal["balance"] = field(default="balance", repr=False)

    measure = "rows"
    monotone = False

    def __post_init__(self) -> None:
        share = _share_of(self.share)
        object.__setattr__(self, "share", None if share == Fraction(1, 2) else str(share))

    @property
    def weights(self) -> tuple[int, int]:
        """By which integers the rows of the two cells are multiplied: b - a and a."""
        share = _share_of(self.share)
        return share.denominator - share.numerator, share.numerator

    @property
    def unit(self) -> Fraction:
        """Half of b: the natural unit is that of |n0 - n1|, whatever the share."""
        return Fraction(sum(self.weights), 2)

    def columns(self) -> set[str]:
        """None: it counts rows."""
        return set()

    def check(self, schema: Schema) -> None:
        """Needs nothing of the schema."""

    def check_cells(self, candidate: Expression, axes: tuple[Axis, ...]) -> None:
        """``QueryError`` unless there are two cells, a third for missing values aside."""
        if len(axes) != 1 or sum(label is not None for label in axes[0].labels) != 2:
            raise QueryError(f"Balance compares two parts, and {candidate!r} does not have two.")

    def sensitivity(self, schema: Schema) -> int:
        return max(self.weights)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, 1). A third cell (missing values) does not count."""
        # A quarter has the weights 3 and 1: 10 rows below and 30 above score 0, 20 and 20 score
        # -40.
        below, above = self.weights
        return -np.abs(below * table[..., 0, 0] - above * table[..., 1, 0])


def _share_of(share: object) -> Fraction:
    """Reads the share of ``Balance``: None is a half. ``QueryError`` unless it is in (0, 1)."""
    text = "1/2" if share is None else str(share)
    try:
        exact = Fraction(text if SHARE.fullmatch(text) else 0)
    except (ValueError, ZeroDivisionError):
        exact = Fraction(0)
    if not 0 < exact < 1 or exact.denominator > MAX_DENOMINATOR:
        allowed = f"between 0 and 1, both excluded, with a denominator of at most {MAX_DENOMINATOR:,}: 0.25 or '1/3'"
        raise QueryError(f"is {share!r}", parameter="share", allowed=allowed)
    return exact
