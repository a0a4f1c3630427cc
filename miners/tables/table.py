# SPDX-License-Identifier: Apache-2.0
"""``Table`` is what each function of this room returns, and ``TableFunction`` what each of them is.

A function first drafts: it says which questions it will ask at which epsilon. ``function.plan(...)``
shows the draft and costs nothing; ``function(...)`` carries it out, once the handle can pay for all
of it, so no epsilon goes into half a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import update_wrapper
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Concatenate, Generic, Literal, ParamSpec

import pandas as pd

from miners.budget.payment import require_remaining
from miners.budget.plan import Plan, PlanLine
from miners.tables.arguments import required_handle
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from pinq.public.plugins import optional

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Draft", "Picture", "Table", "TableFunction"]

P = ParamSpec("P")
Picture = Literal["bars", "heat", "boxes", "panels"]
NUMBERS = ("value", "low", "high")
SHOWN_ROWS = 200


@dataclass(frozen=True, eq=False)
class Table:
    """Noisy numbers in a frame, each with the interval that holds the exact one.

    Attributes:
        title: What the numbers are.
        frame: A row for each number: what it is of, then ``value``, ``low`` and ``high``.
        scale: The scale of the noise in each row's number, in the number's units; missing where no
            one noise was added (a quantile, a variance).
        epsilon: What the whole table was charged at most.
        level: With which probability ``low`` and ``high`` hold the exact number, each row by itself.
        notes: What is worth knowing, one sentence each.
        picture: How ``plot`` draws it.
    """

    title: str
    frame: pd.DataFrame
    scale: pd.Series
    epsilon: Fraction
    level: float
    notes: tuple[str, ...] = ()
    picture: Picture = "bars"

    @property
    def keys(self) -> list[str]:
        """The columns that say what a number is of."""
        return [name for name in self.frame.columns if name not in NUMBERS]

    def to_frame(self) -> pd.DataFrame:
        """Returns a copy as a pandas frame."""
        return self.frame.copy()

    def to_arrow(self) -> pa.Table:
        """Returns the frame as an Arrow table, which polars and DuckDB read without a copy."""
        pa = optional("pyarrow", "arrow", "an Arrow table needs pyarrow")
        return pa.Table.from_pandas(_of_text(self.frame), preserve_index=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Gives Arrow's stream, so that ``polars.DataFrame(table)`` works."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def wide(self, value: str = "value") -> pd.DataFrame:
        """Spreads the last key over columns: of a cross table the usual two-way one.

        Args:
            value: ``"value"``, ``"low"`` or ``"high"``.

        Raises:
            QueryError: Another column.
        """
        if value not in NUMBERS:
            raise QueryError(f"is {value!r}", parameter="value", allowed="'value', 'low' or 'high'")
        *rows, last = self.keys
        labels = list(dict.fromkeys(self.frame[last]))
        # Of rows (f, no, 5), (f, yes, 3), and (m, yes, 4): f has 5 and 3, m has none and 4.
        cells: dict[tuple[object, ...], dict[object, object]] = {}
        for *row, label, number in self.frame[[*self.keys, value]].itertuples(index=False):
            cells.setdefault(tuple(row), {})[label] = number
        numbers = pd.DataFrame(
            [[row.get(label) for label in labels] for row in cells.values()], columns=pd.Index(labels, dtype=object)
        )
        keys = pd.DataFrame(list(cells), columns=rows, dtype=object)
        wide = pd.concat([keys, numbers], axis=1).set_index(rows) if rows else numbers
        return wide.rename_axis(columns=last)

    def plot(self, ax: Axes | None = None) -> Figure:
        """Draws bars with intervals, boxes from quantiles, or a heat map; needs matplotlib.

        Args:
            ax: Where to draw; by default a new figure. A summary has several panels and takes none.

        Returns:
            The figure.
        """
        from miners.tables.plot import draw

        return draw(self, ax)

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        text = self.frame.to_string(na_rep="", float_format=_written, max_rows=SHOWN_ROWS)
        return "\n".join([self._head, text, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        from html import escape

        table = self.frame.to_html(index=False, na_rep="", float_format=_written, max_rows=SHOWN_ROWS)
        return f"<p>{escape(self._head)}</p>{table}" + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    @property
    def _head(self) -> str:
        return f"{self.title}; epsilon {Epsilon.of(self.epsilon)}, intervals of {100 * self.level:.10g}%"


@dataclass(frozen=True)
class Draft:
    """What a function is going to ask.

    Attributes:
        title: What comes out.
        lines: Its questions, in order.
        answer: Asks them; returns the table.
        notes: What is worth knowing before.
    """

    title: str
    lines: tuple[PlanLine, ...]
    answer: Callable[[], Table]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Fraction:
        """What all questions cost together."""
        return sum((line.epsilon for line in self.lines), Fraction(0))


class TableFunction(Generic[P]):
    """A function from a handle to a table, with a plan.

    ``reuse=True`` gives the stored answers where the same table was asked before, at no cost.
    """

    def __init__(self, draft: Callable[Concatenate[PrivateQueryable, P], Draft]) -> None:
        self._draft = draft
        update_wrapper(self, draft)
        self.__signature__ = signature(draft).replace(return_annotation="Table")

    def __repr__(self) -> str:
        parameters = ", ".join(
            name if parameter.default is Parameter.empty else f"{name}={parameter.default!r}"
            for name, parameter in self.__signature__.parameters.items()
        )
        name = self._draft.__name__
        return f"<{name}({parameters}) -> Table; {name}.plan(...) says what it asks, free>"

    def __call__(self, handle: PrivateQueryable, *args: P.args, **kwargs: P.kwargs) -> Table:
        """Asks, and returns the table."""
        draft = self._draft(required_handle(handle), *args, **kwargs)
        if draft.total and not kwargs.get("reuse"):
            require_remaining(handle, Epsilon.of(draft.total), name=self._draft.__name__)
        return draft.answer()

    def plan(self, handle: PrivateQueryable, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """Says what the same call would ask, at what cost and with how much noise. Free."""
        draft = self._draft(required_handle(handle), *args, **kwargs)
        return Plan(draft.title, draft.lines, draft.total, draft.notes)


def _of_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Writes keys of mixed kinds as text, for an Arrow column has one type; None stays missing."""
    written = frame.copy()
    for name in frame.columns:
        if frame[name].map(type).nunique() > 1:
            written[name] = pd.Series([None if pd.isna(key) else str(key) for key in frame[name]], dtype=object)
    return written


def _written(number: float) -> str:
    """Writes a number with six digits, or as a whole one where it has more."""
    return f"{number:.0f}" if abs(number) >= 1e6 else f"{number:.6g}"
