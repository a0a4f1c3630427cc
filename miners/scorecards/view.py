# SPDX-License-Identifier: Apache-2.0
"""A scorecard as text, as HTML for notebooks, as a picture, and the points of one row as a table.

The picture has a panel for each attribute, the most important first: points with intervals, or for several outputs a
map of classes and cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from miners.fitted.route import encode
from miners.pictures import BLUE, CLASSES, INK, PALE, RED, Axes, panels, shorten
from miners.scorecards.card import DOUBLES, Card, Term, probabilities
from pinq.errors import QueryError
from pinq.language.specs import Cuts, bind
from pinq.public.columns import CutPoint

if TYPE_CHECKING:
    import pandas as pd


START = "start"
LADDER = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0)  # logits whose probabilities a printed card names
MAX_HTML, OPEN = 60, 3  # attributes that a notebook shows, and opens
SURE = 2.0  # standard deviations on each side


def cell_labels(card: Card, term: Term) -> list[str]:
    """Returns the labels of a term's cells."""
    cells = bind(term.spec, card.schema)
    labels = [cells.labels(number) for number in range(cells.size)]
    return [", ".join("(missing)" if name is None else str(name) for name in label) for label in labels]


def _with_margins(card: Card, term: Term) -> tuple[np.ndarray, np.ndarray]:
    return card.printed(term.points), SURE * card.printed(term.deviations)


def _rows(card: Card, term: Term) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    return zip(cell_labels(card, term), *_with_margins(card, term), strict=True)


def rule(card: Card) -> str:
    """The rule from points to a prediction, in a line or two."""
    if card.numeric is not None:
        low, high = card.numeric.bounds
        return f"The prediction is the start and the points of all attributes, at least {low} and at most {high}."
    if len(card.classes) == 2:
        return (
            f"Add the points of all attributes to the start; every {DOUBLES} points double the odds of "
            f"`{card.headings[0]}`."
        )
    return (
        "Add the points of all attributes to the start, separately for each class; "
        f"a class with {DOUBLES} points more than another is twice as likely."
    )


def text(card: Card) -> str:
    """Returns the card as text to print."""
    lines = [repr(card), rule(card), ""]
    names = [label for term in card.terms for label in cell_labels(card, term)]
    wide = max([len(name) for name in (START, *names, *(term.name for term in card.terms))], default=5) + 2
    columns = [max(len(name), 9) for name in card.headings]
    if len(columns) > 1:
        lines.append(" " * wide + "  ".join(name.rjust(w) for name, w in zip(card.headings, columns, strict=True)))
    lines.append(_line(card, START, wide, columns, card.start, None))
    for term in card.ranked:
        lines += ["", term.name]
        lines += [_line(card, f"  {label}", wide, columns, points, sure) for label, points, sure in _rows(card, term)]
    return "\n".join([*lines, *_ladder(card)])


def _line(card: Card, label: str, wide: int, columns: list[int], points: np.ndarray, margins: np.ndarray | None) -> str:
    signed = margins is not None
    numbers = "  ".join(
        _number(card, number, signed=signed).rjust(w) for number, w in zip(points, columns, strict=True)
    )
    sure = f"  ± {_number(card, margins[0], signed=False)}" if margins is not None and len(columns) == 1 else ""
    return f"{label.ljust(wide)}{numbers}{sure}".rstrip()


def _number(card: Card, value: float, *, signed: bool) -> str:
    """Whole points, or units of the target to three figures."""
    shown = round(value) if card.numeric is None else float(f"{value:.3g}")
    return f"{shown:+,}" if signed and shown else f"{shown:,}"


def _ladder(card: Card) -> Iterator[str]:
    """Yields a table from sums to probabilities, for two classes."""
    if card.numeric is not None or len(card.classes) != 2:
        return
    yield ""
    yield f"sum of points   share of `{card.headings[0]}`"
    for logit in LADDER:
        # A sum of 1 logit, 29 points, is a share of 73.1 %.
        share = probabilities(np.array([[logit]]))[0, 1]
        yield f"{card.unit * logit:>13.0f}   {share:.1%}"


def html(card: Card) -> str:
    """Returns the card as tables that open and close, one for each attribute."""
    intro = f"{escape(repr(card))}<br><small>{escape(rule(card))} ± is half of a 95 % interval.</small>"
    tables = [_table(card, term, number < OPEN) for number, term in enumerate(card.ranked[:MAX_HTML])]
    start = ", ".join(_number(card, value, signed=False) for value in card.start)
    more = f"<p>and {len(card.terms) - MAX_HTML:,} more</p>" if len(card.terms) > MAX_HTML else ""
    return "".join([f"<p>{intro}</p>", *tables, more, f"<p>All rows start with {escape(start)}.</p>"])


def _table(card: Card, term: Term, is_open: bool) -> str:
    largest = max(float(np.abs(card.printed(term.points)).max()), 1e-9)
    rows = []
    for label, points, sure in _rows(card, term):
        cells = "".join(_cell(card, *pair, largest) for pair in zip(points, sure, strict=True))
        rows.append(f"<tr><td style='text-align:left'>{escape(label)}</td>{cells}</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in card.headings)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    summary = f"<summary><b>{escape(term.name)}</b></summary>"
    return f"<details{' open' if is_open else ''}>{summary}{table}</details>"


def _cell(card: Card, points: float, margin: float, largest: float) -> str:
    """A cell shaded by its points."""
    colour = "78,121,167" if points >= 0 else "225,87,89"
    shade = f"background:rgba({colour},{0.6 * min(abs(points) / largest, 1):.2f})"
    sure = f"<small>±{_number(card, margin, signed=False)}</small>"
    return f"<td style='{shade}'>{_number(card, points, signed=True)} {sure}</td>"


def points_frame(card: Card) -> pd.DataFrame:
    """Returns a row for each cell and output; see ``ScorecardMiner.to_frame``."""
    import pandas as pd

    rows: list[tuple[object, ...]] = []
    for term in card.ranked:
        for label, points, margins in _rows(card, term):
            numbers = zip(card.headings, points, margins, strict=True)
            rows += [(term.name, label, name, point, point - sure, point + sure) for name, point, sure in numbers]
    return pd.DataFrame(rows, columns=["attribute", "value", "output", "points", "low", "high"])


def explained(card: Card, row: Mapping[str, object] | pd.DataFrame) -> pd.DataFrame:
    """Returns the points of each attribute for one row; see ``ScorecardMiner.explain``."""
    import pandas as pd

    frame = pd.DataFrame([dict(row)]) if isinstance(row, Mapping) else row
    if len(frame) != 1:
        raise QueryError(f"`row` has {len(frame):,} rows; one is explained at a time.")
    lines: list[tuple[str, object, np.ndarray]] = [(START, "", card.start)]
    for term in card.ranked:
        part = int(card.cells(term, {name: encode(card.schema, name, frame) for name in term.columns})[0])
        added = card.printed(term.points[part]) if part >= 0 else np.zeros(len(card.base))
        label = cell_labels(card, term)[part] if part >= 0 else "(not known)"
        lines.append((term.name, label, added))
    lines[1:] = sorted(lines[1:], key=lambda line: -float(np.abs(line[2]).max()))
    names = pd.Index([name for name, _, _ in lines], name="attribute")
    points = pd.DataFrame(np.array([added for *_, added in lines]), index=names, columns=list(card.headings))
    points.insert(0, "value", [value for _, value, _ in lines])
    return points


ACROSS = 3  # panels side by side
WIDE, HIGH = 4.0, 3.0  # inches of a panel
TICKS = 6  # of a panel
DATES = 3  # ticks of a panel that are dates, which are long
VALUES = 10  # of a categorical attribute that a panel names
LABEL = 22  # letters


def plot(card: Card, max_attributes: int | None) -> Axes:
    """Draws a card; see ``ScorecardMiner.plot``."""
    terms = card.ranked[:max_attributes]
    figure, axes = panels("a card", [HIGH] * len(terms), across=ACROSS, wide=WIDE, least=2)
    figure.suptitle(f"{card!r}\n{_caption(card)}", fontsize=11, color=INK)
    scale = _room(np.concatenate([np.zeros(1), *(_with_margins(card, term)[0].ravel() for term in terms)]))
    for ax, term in zip(axes, terms, strict=True):
        _panel(ax, card, term, scale)
    if len(card.base) > 1 and terms:
        figure.colorbar(axes[0].images[0], ax=axes, label="points, in all panels", shrink=0.5, aspect=30)
    return figure.axes[0]


def _caption(card: Card) -> str:
    if card.numeric is not None:
        return f"what is added to the prediction, in units of {card.target}; bars: 95 % intervals"
    if len(card.base) == 1:
        return f"points; every {DOUBLES} double the odds of {card.headings[0]}; bars: 95 % intervals"
    return f"points of each class; {DOUBLES} more are twice as likely; white: not distinguishable from 0"


def _panel(ax: Axes, card: Card, term: Term, scale: tuple[float, float]) -> None:
    ax.set_title(shorten(term.name, 34), fontsize=10, fontweight="bold", loc="left", color=INK)
    ax.tick_params(labelsize=9, colors=INK)
    ax.spines[["top", "right"]].set_visible(False)
    if len(card.base) > 1:
        _map(ax, card, term, max(map(abs, scale)))
    elif isinstance(term.spec, Cuts):
        _steps(ax, card, term, term.spec, scale)
    else:
        _values(ax, card, term, scale)


def _steps(ax: Axes, card: Card, term: Term, spec: Cuts, scale: tuple[float, float]) -> None:
    """Draws points over a numeric attribute, those of missing values next to it.

    All cells are equally wide, because cuts are dense where values are.
    """
    points, margins = (numbers[:, 0] for numbers in _with_margins(card, term))
    cells = len(spec.points) + 1
    edges = np.arange(cells + 1)
    ax.axhline(0, color=PALE, linewidth=0.7)
    ax.stairs(points[:cells], edges, baseline=None, color=BLUE, linewidth=1.4)
    low, high = scale
    # An interval that would fill the panel is left out.
    shown_margins = np.where(margins < (high - low) / 2, margins, 0.0)[:cells]
    tops, bases = points[:cells] + shown_margins, points[:cells] - shown_margins
    ax.stairs(tops, edges, baseline=bases, fill=True, color=BLUE, alpha=0.25)
    ax.set(xlim=(0, cells), ylim=(low, high))
    shown = _spread(len(spec.points), DATES if isinstance(spec.points[0], str) else TICKS)
    ax.set_xticks(shown + 1, [_cut(spec.points[number]) for number in shown])
    if len(points) > cells:
        _beside(ax, f"missing: {points[-1]:+.3g} ± {margins[-1]:.2g}", INK)


def _cut(point: CutPoint) -> str:
    """A cut to three figures, or whole; a date unchanged."""
    if isinstance(point, str):
        return point
    return f"{point:.3g}" if abs(point) < 1000 else f"{point:,.0f}"


def _room(points: np.ndarray) -> tuple[float, float]:
    low, high = min(0.0, float(points.min())), max(0.0, float(points.max()))
    room = 0.25 * (high - low) or 1.0
    return low - room, high + room


def _spread(count: int, limit: int) -> np.ndarray:
    """At most so many of the numbers below a count, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))


def _beside(ax: Axes, words: str, colour: str) -> None:
    ax.text(1, 1.01, words, transform=ax.transAxes, ha="right", va="bottom", fontsize=8, color=colour)


def _values(ax: Axes, card: Card, term: Term, scale: tuple[float, float]) -> None:
    """Draws a line for each value, or for those of largest weight."""
    points, margins = (numbers[:, 0] for numbers in _with_margins(card, term))
    chosen = np.argsort(-term.weights, kind="stable")[:VALUES]
    chosen = chosen[np.argsort(points[chosen], kind="stable")]
    labels = cell_labels(card, term)
    ax.axvline(0, color=PALE, linewidth=0.7)
    heights = np.arange(len(chosen))
    ax.barh(heights, points[chosen], color=np.where(points[chosen] >= 0, BLUE, RED), alpha=0.55, height=0.7)
    ax.errorbar(points[chosen], heights, xerr=margins[chosen], fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
    ax.set_xlim(scale)
    ax.set_yticks(heights, [shorten(labels[cell], LABEL) for cell in chosen])
    if len(labels) > len(chosen):
        _beside(ax, f"and {len(labels) - len(chosen):,} rarer values", PALE)


def _map(ax: Axes, card: Card, term: Term, largest: float) -> None:
    points, margins = (numbers.T for numbers in _with_margins(card, term))
    is_clear = np.abs(points) > margins
    ax.imshow(np.where(is_clear, points, 0), cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    labels = cell_labels(card, term)
    shown = _spread(len(labels), TICKS)
    ax.set_xticks(shown, [shorten(labels[cell], 12) for cell in shown])
    if max(map(len, labels)) > 4:
        for label in ax.get_xticklabels():
            label.set(rotation=30, ha="right")
    shown_classes = _spread(len(card.headings), CLASSES)
    ax.set_yticks(shown_classes, [shorten(card.headings[number], LABEL) for number in shown_classes])
