# SPDX-License-Identifier: Apache-2.0
"""``Table`` is the result of each function of this room, and ``TableFunction`` their class.

A function first makes a draft: its queries with their epsilons. ``function(...)`` runs it only if the budget covers all
of it, so no epsilon is spent on half a table.

In a picture the last key of a table is the axis, and earlier keys are colours. Statistics of several columns have a
panel for each column, because units differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import update_wrapper
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Concatenate, Generic, Literal, ParamSpec

import numpy as np
import pandas as pd

from miners.budget.plan import Plan, PlanLine, patient, require_budget
from miners.pictures import BLUE, INK, RED, Axes, axes_of, colour, named_map, panels, shorten, write_cells
from miners.tables.columns import ALL, columns_named, required_handle
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import closest, first_of
from pinq.public.epsilon import Epsilon
from pinq.public.plugins import optional

if TYPE_CHECKING:
    import pyarrow as pa


P = ParamSpec("P")
Picture = Literal["bars", "heat", "map", "boxes", "panels"]
NUMBERS = ("value", "low", "high")
SHOWN_ROWS = 200
WRITTEN = 15  # columns of a map whose cells have their numbers


@dataclass(frozen=True, eq=False)
class Table:
    """A table of noisy numbers, each with an interval that contains the exact one.

    It reads like a frame: ``table["value"]`` is a column, ``len(table)`` its number of rows, and
    ``list(table)`` its columns.

    Attributes:
        frame: A row for each number: its keys, then ``value``, ``low`` and ``high``.
        scale: The scale of the noise in each row's number, in the number's units; missing for a
            number without a single noise (a quantile, a variance).
        epsilon: The largest charge of the whole table.
        level: The probability with which ``low`` and ``high`` contain the exact number, for each row.
        notes: Remarks and warnings, one sentence each.
        picture: The kind of picture that ``plot`` draws.

    Examples:
        >>> import pinq
        >>> from miners.tables import crosstab
        >>> handle = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> table = crosstab(handle, "sex", "income", epsilon=1)
        >>> list(table), len(table)
        (['sex', 'income', 'value', 'low', 'high'], 4)
        >>> bool((table["low"] <= table["value"]).all())
        True
        >>> list(table.wide(intervals=True))[:2]
        [('value', '<=50K'), ('value', '>50K')]
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
        return [name for name in self.frame.columns if name not in NUMBERS]

    @property
    def columns(self) -> pd.Index:
        return self.frame.columns

    def __getitem__(self, name: str) -> pd.Series:
        try:
            return self.frame[name].copy()
        except KeyError:
            columns = ", ".join(map(str, self.frame.columns))
            raise KeyError(
                f"{name!r} is no column of this table{closest(str(name), self.frame)}; it has {columns}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter([*self.keys, *NUMBERS])

    def to_frame(self) -> pd.DataFrame:
        return self.frame.copy()

    def to_arrow(self) -> pa.Table:
        """Returns the frame as an Arrow table, which polars and DuckDB read without a copy."""
        pa = optional("pyarrow", "arrow", "an Arrow table needs pyarrow")
        return pa.Table.from_pandas(_of_text(self.frame), preserve_index=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def wide(self, value: str = "value", *, intervals: bool = False) -> pd.DataFrame:
        """Spreads the last key over columns, as in the usual two-way table; counts stay whole.

        Args:
            value: ``"value"``, ``"low"`` or ``"high"``.
            intervals: Whether to return all three, with their names above the columns.

        Raises:
            QueryError: Another column.
        """
        if intervals:
            return pd.concat({name: self.wide(name) for name in NUMBERS}, axis=1)
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
        return wide.apply(_whole).rename_axis(columns=last)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws bars with intervals, boxes from quantiles, or a heat map; needs matplotlib.

        Args:
            ax: The axes; by default a new figure. A summary has several panels and accepts no axes.

        Returns:
            The axes; for a summary the first panel. Its ``.figure`` is the whole picture.

        Raises:
            QueryError: A table of several panels was given axes.
            ImportError: matplotlib is not installed.
        """
        if self.picture == "panels":
            return _panels(self, ax)
        lines = 2 * len(self.wide()) if self.picture in ("heat", "map") else _lines(self.frame)
        ax = axes_of("a table", ax, (WIDE, TITLE + max(6, lines) * BAR))
        {"bars": _bars, "heat": _heat, "map": _map, "boxes": _boxes}[self.picture](ax, self.frame, self.keys)
        ax.set_title(self.title, fontsize=10, loc="left", wrap=True)
        return ax

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        text = self._shown.to_string(na_rep="", float_format=_written, max_rows=SHOWN_ROWS)
        return "\n".join([self._head, text, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        from html import escape

        wide = self.picture == "heat"
        table = self._shown.to_html(index=wide, na_rep="", float_format=_written, max_rows=SHOWN_ROWS)
        return f"<p>{escape(self._head)}</p>{table}" + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    @property
    def _shown(self) -> pd.DataFrame:
        return self.wide() if self.picture == "heat" else self.frame

    @property
    def _head(self) -> str:
        head = f"{self.title}; epsilon {Epsilon.of(self.epsilon)}, intervals of {100 * self.level:.10g}%"
        if self.picture != "heat":
            return head
        half = float(np.median(self.frame["high"].astype(float) - self.frame["value"].astype(float)))
        return f"{head}, each number about ±{half:,.3g} (to_frame() has them)"


@dataclass(frozen=True)
class Draft:
    """The queries of a table function, before they are sent."""

    title: str
    lines: tuple[PlanLine, ...]
    answer: Callable[[], Table]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Fraction:
        return sum((line.epsilon for line in self.lines), Fraction(0))


class TableFunction(Generic[P]):
    """A function from a handle to a table, with a plan.

    The log names it with its room: ``tables.crosstab``, ``statistics.survival``.
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
        """Sends the queries, and returns the table."""
        room = self._draft.__module__.split(".")[1]  # of miners
        act = f"{room}.{self._draft.__name__}"
        columns = first_of(columns_named(required_handle(handle).schema, (*args, *kwargs.values())), 8)
        handle = handle.named(f"{act} of {columns}" if columns else act).through(patient)
        draft = self._draft(handle, *args, **kwargs)
        if draft.total and not kwargs.get("reuse"):
            require_budget(handle, Epsilon.of(draft.total), name=self._draft.__name__)
        return draft.answer()

    def plan(self, handle: PrivateQueryable, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """The queries, the cost and the noise of the same call; free."""
        draft = self._draft(required_handle(handle), *args, **kwargs)
        return Plan(draft.title, draft.lines, draft.total, draft.notes)


def _whole(column: pd.Series) -> pd.Series:
    """Writes a column of whole numbers without decimals; missing ones stay missing."""
    numbers = column.dropna()
    if column.dtype.kind != "f" or not len(numbers) or not np.isfinite(numbers).all() or (numbers % 1).any():
        return column
    return column.astype("int64" if len(numbers) == len(column) else "Int64")


def _of_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Writes keys of mixed kinds as text, because an Arrow column has one type; None stays missing."""
    written = frame.copy()
    for name in frame.columns:
        if frame[name].map(type).nunique() > 1:
            written[name] = pd.Series([None if pd.isna(key) else str(key) for key in frame[name]], dtype=object)
    return written


def _written(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1e6 else f"{number:.6g}"


BAR, TITLE, WIDE = 0.26, 1.1, 6.4  # inches
ACROSS = 40  # letters of labels that fit side by side
FEWEST = 4  # the least number of bars for which there is room


def _bars(ax: Axes, frame: pd.DataFrame, keys: Sequence[str]) -> None:
    frame, dated = _numbered(frame)
    # The keys that differ between rows, without the statistic of counted values.
    differing = [name for name in keys if frame[name].astype(str).nunique() > 1]
    if "of" in differing and "statistic" in differing:
        differing.remove("statistic")
    *hues, axis = differing or [next((name for name in keys if name == "statistic"), keys[-1])]
    labels = list(dict.fromkeys(frame[axis]))
    groups = list(frame.groupby(hues, sort=False, dropna=False)) if hues else [((), frame)]
    height = 0.8 / len(groups)
    for number, (name, rows) in enumerate(groups):
        # With three groups, the bars of a label are 0.27 of a line above it, on it, and below it.
        at = np.array([labels.index(label) for label in rows[axis]]) + (number - (len(groups) - 1) / 2) * height
        off = np.abs([rows["value"] - rows["low"], rows["high"] - rows["value"]])
        text = ", ".join(_text(part) for part in np.atleast_1d(np.array(name, dtype=object)))
        ax.barh(at, rows["value"], height, xerr=off, color=colour(number), ecolor=INK, capsize=2, label=text)
    ax.set_yticks(range(len(labels)), [_text(label) for label in labels], fontsize=8)
    slack = 0.5 + max(0, FEWEST - len(labels)) / 2  # keeps a few bars from being thick
    ax.set_ylim(len(labels) - 1 + slack, -slack)
    ax.set_ylabel(axis if axis not in ("of", "statistic") else "", fontsize=9)
    _tidy(ax, dated)
    if hues:
        ax.legend(title=", ".join(hues), fontsize=8, title_fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _heat(ax: Axes, frame: pd.DataFrame, keys: Sequence[str]) -> None:
    """Draws a two-way table in shades, without margins.

    A cell is pale if its interval contains half of the other numbers.
    """
    from matplotlib.cm import ScalarMappable

    rows, columns = keys
    cells = frame[(frame[rows].astype(object) != ALL) & (frame[columns].astype(object) != ALL)]
    downs, acrosses = list(dict.fromkeys(cells[rows])), list(dict.fromkeys(cells[columns]))
    numbers = cells["value"].to_numpy(dtype=float).reshape(len(downs), len(acrosses))
    smallest, largest = min(0.0, float(numbers.min())), float(numbers.max())
    low, high = (cells[name].to_numpy(dtype=float).reshape(numbers.shape) for name in NUMBERS[1:])
    among = ((numbers >= low[..., None, None]) & (numbers <= high[..., None, None])).sum((2, 3)) - 1
    pale = among * 2 >= max(1, numbers.size - 1)
    names = [_text(label) for label in acrosses]
    image = named_map(
        ax,
        numbers,
        names,
        [_text(label) for label in downs],
        upright=sum(map(len, names)) > ACROSS,
        cmap="Blues",
        vmin=smallest,
        vmax=largest,
        alpha=np.where(pale, 0.25, 1.0),
    )
    write_cells(ax, numbers, lambda number: f"{number:,.0f}", (numbers > (smallest + largest) / 2) & ~pale)
    ax.set_ylabel(rows, fontsize=9)
    half = float(np.median(high - low)) / 2
    ax.set_xlabel(f"{columns}\neach ±{half:,.0f}; pale: not told apart from half of the others", fontsize=9)
    bar = ax.figure.colorbar(ScalarMappable(image.norm, image.cmap), ax=ax)
    bar.set_label("rows", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _map(ax: Axes, frame: pd.DataFrame, keys: Sequence[str]) -> None:
    """Draws numbers from -1 to 1 for each pair in two colours, pale if their interval contains 0."""
    names, down = list(dict.fromkeys(frame[keys[1]])), len(set(frame[keys[0]]))
    numbers, low, high = (frame[name].to_numpy(dtype=float).reshape(down, -1) for name in NUMBERS)
    clear = np.where((low > 0) | (high < 0), numbers, 0.0)
    labels = [_text(name) for name in names]
    named_map(ax, clear, labels, labels, cmap="RdBu", vmin=-1, vmax=1)
    if down <= WRITTEN:
        write_cells(ax, numbers, lambda number: f"{number:.2f}", np.abs(clear) > 0.6)


def _boxes(ax: Axes, frame: pd.DataFrame, keys: Sequence[str]) -> None:
    """Draws for each group a box with a line at each quantile, and a dot at the mean, with intervals below."""
    frame, dated = _numbered(frame)
    groups = [name for name in keys if name not in ("column", "statistic", "of")]
    by_group = list(frame.groupby(groups, sort=False, dropna=False)) if groups else [("", frame)]
    labels = []
    for height, (name, rows) in enumerate(by_group):
        _box(ax, height, rows[rows["statistic"].str.endswith("%")])
        means, spreads = (rows[rows["statistic"] == statistic]["value"] for statistic in ("mean", "std"))
        ax.plot(means, [height] * len(means), "o", color=RED, markersize=5, zorder=3)
        words = [_text(part) for part in np.atleast_1d(np.array(name, dtype=object)) if part != ""]
        labels.append(
            "\n".join([", ".join(words), *(f"std {float(f'{number:.3g}'):,.10g}" for number in spreads)]).strip()
        )
    ax.set_yticks(range(len(labels)), labels, fontsize=8)
    ax.use_sticky_edges = False  # a box at the edge of the picture looks cut
    ax.autoscale_view()
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_ylabel(", ".join(groups), fontsize=9)
    _tidy(ax, dated)
    shares = list(dict.fromkeys(frame["statistic"][frame["statistic"].str.endswith("%")]))
    if shares:
        dot = "; dot: mean" if (frame["statistic"] == "mean").any() else ""
        ax.set_xlabel(f"lines: {', '.join(shares)}{dot}\nbelow each line its interval", fontsize=8)


def _box(ax: Axes, height: int, quantiles: pd.DataFrame) -> None:
    values = quantiles["value"].to_numpy(dtype=float)
    # With five quantiles the box is between the second and the fourth, with three from end to end.
    first = 0 if len(values) < 5 else len(values) // 4
    inner = values[first], values[-1 - first]
    ax.hlines(height, values[0], values[-1], color=INK, linewidth=1)
    ax.barh(height, inner[1] - inner[0], 0.5, left=inner[0], color=BLUE, alpha=0.6)
    ax.vlines(values, height - 0.25, height + 0.25, color=INK, linewidth=1.2)
    below = height + 0.31 + 0.04 * (np.arange(len(values)) % 2)  # neighbours' intervals may overlap
    ax.hlines(below, quantiles["low"], quantiles["high"], color=INK, linewidth=0.8)


def _panels(table: Table, ax: Axes | None) -> Axes:
    """Draws a panel for each column: quartiles as boxes, other statistics as bars."""
    if ax is not None:
        raise QueryError("a table of several columns takes a figure of its own; call plot() without `ax`.")
    drawn = _panel_frames(table)
    figure, grid = panels("a table", [TITLE + BAR * _lines(frame) for _, frame in drawn], across=3, wide=4.2)
    for axes, (title, frame) in zip(grid, drawn, strict=True):
        keys = [name for name in frame.columns if name not in ("value", "low", "high")]
        (_boxes if frame["statistic"].str.endswith("%").any() else _bars)(axes, frame, keys)
        axes.set_title(title, fontsize=9, loc="left")
    figure.suptitle(table.title, fontsize=10, x=0.01, ha="left")
    return grid[0]


def _panel_frames(table: Table) -> list[tuple[str, pd.DataFrame]]:
    """Divides rows into panels: counts, quantiles with mean and spread, or another number."""
    frame = table.frame.assign(column=table.frame["column"].fillna("rows"))
    quantile = frame["statistic"].str.endswith("%")
    described = frame["column"].isin(frame["column"][quantile]) & frame["statistic"].isin(["mean", "std"])
    counted = frame["of"].notna() if "of" in frame else quantile & False
    counted |= (frame["statistic"] == "missing") & frame["column"].isin(frame["column"][counted])
    kind = frame["statistic"].where(~quantile & ~described, "").where(~counted, "")
    panels = []
    for (column, name), rows in frame.groupby([frame["column"], kind], sort=False):
        panels.append((f"{column}: {name}" if name else str(column), rows.reset_index(drop=True)))
    return panels


def _numbered(frame: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Writes dates as days since 1970, as matplotlib does; returns whether there are dates."""
    dated = [value for value in frame["value"] if hasattr(value, "year")]
    if not dated:
        return frame, False
    return frame.assign(**{name: list(map(_days, frame[name])) for name in ("value", "low", "high")}), True


def _days(value: date | float) -> float:
    if isinstance(value, float):
        return value
    return (pd.Timestamp(value) - pd.Timestamp(0)) / pd.Timedelta(days=1)


def _tidy(ax: Axes, dated: bool) -> None:
    ax.tick_params(axis="x", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", linewidth=0.4, alpha=0.6)
    ax.set_axisbelow(True)
    if dated:
        ax.xaxis_date()
        ax.tick_params(axis="x", labelrotation=30)
        return
    ax.xaxis.set_major_formatter(lambda number, _: f"{number:,.10g}")
    ax.locator_params(axis="x", nbins=6)


def _text(label: object) -> str:
    if label is None or label is pd.NA or (isinstance(label, float) and math.isnan(label)):
        return "missing"
    return shorten(str(label))


def _lines(frame: pd.DataFrame) -> int:
    """The height of a picture of this frame in lines of text: two for a box, one for a bar."""
    if "statistic" not in frame:
        return len(frame)
    quantiles = frame["statistic"].str.endswith("%")
    return len(frame) if not quantiles.any() else 3 * len(frame) // frame["statistic"].nunique()
