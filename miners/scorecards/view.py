# SPDX-License-Identifier: Apache-2.0
"""A card as text to print, as HTML for notebooks, and the points of one row as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from miners.budget.plan import many
from miners.fitted.route import encode
from miners.scorecards.card import DOUBLES, Card, Term, probabilities
from pinq.errors import QueryError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cell_labels", "explained", "heading", "html", "points_frame", "rule", "text"]

START = "start"
LADDER = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0)  # logits whose probabilities a printed card names
MAX_HTML, OPEN = 60, 3  # attributes that a notebook shows, and opens
MARGIN = 2.0  # standard deviations on each side


def cell_labels(card: Card, term: Term) -> list[str]:
    """Returns what the cells of a term are called."""
    return ["(missing)" if label is None else str(label) for label in card.axis(term).labels]


def heading(card: Card) -> str:
    """Returns what a card is for, in a line."""
    return f"Scorecard for {card.goal}: {many(len(card.terms), 'attribute')}"


def rule(card: Card) -> str:
    """Returns how points become a prediction, in a line or two."""
    if card.numeric is not None:
        low, high = card.numeric.bounds
        return f"The prediction is the start and the points of all attributes, at least {low} and at most {high}."
    if len(card.classes) == 2:
        doubled = f"every {DOUBLES} points double the odds of `{card.headings[0]}`"
        return f"Add the points of all attributes to the start; {doubled}."
    return (
        "Add the points of all attributes to the start, for each class by itself; "
        f"a class with {DOUBLES} points more than another is twice as likely."
    )


def text(card: Card) -> str:
    """Returns the card as text to print."""
    lines = [heading(card), rule(card), ""]
    names = [label for term in card.terms for label in cell_labels(card, term)]
    wide = max([len(name) for name in (START, *names, *(str(name) for name in card.columns))], default=5) + 2
    columns = [max(len(name), 9) for name in card.headings]
    if len(columns) > 1:
        lines.append(" " * wide + "  ".join(name.rjust(w) for name, w in zip(card.headings, columns, strict=True)))
    lines.append(_line(card, START, wide, columns, card.start, None))
    for term in card.ranked:
        lines += ["", str(term.spec.column)]
        points, deviations = card.printed(term.points), card.printed(term.deviations)
        rows = zip(cell_labels(card, term), points, deviations, strict=True)
        lines += [_line(card, f"  {label}", wide, columns, own, MARGIN * sure) for label, own, sure in rows]
    return "\n".join([*lines, *_ladder(card)])


def _line(card: Card, label: str, wide: int, columns: list[int], points: np.ndarray, margins: np.ndarray | None) -> str:
    """Returns one line of points; with one column also how sure they are."""
    signed = margins is not None
    numbers = "  ".join(_number(card, own, signed=signed).rjust(w) for own, w in zip(points, columns, strict=True))
    sure = f"  ± {_number(card, margins[0], signed=False)}" if margins is not None and len(columns) == 1 else ""
    return f"{label.ljust(wide)}{numbers}{sure}".rstrip()


def _number(card: Card, value: float, *, signed: bool) -> str:
    """Returns whole points, or units of the target to three figures."""
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
    intro = f"{escape(heading(card))}<br><small>{escape(rule(card))} ± holds two standard deviations.</small>"
    tables = [_table(card, term, number < OPEN) for number, term in enumerate(card.ranked[:MAX_HTML])]
    start = ", ".join(_number(card, value, signed=False) for value in card.start)
    more = f"<p>and {len(card.terms) - MAX_HTML:,} more</p>" if len(card.terms) > MAX_HTML else ""
    return "".join([f"<p>{intro}</p>", *tables, more, f"<p>All rows start with {escape(start)}.</p>"])


def _table(card: Card, term: Term, is_open: bool) -> str:
    """Returns the points of one attribute."""
    points, margins = card.printed(term.points), MARGIN * card.printed(term.deviations)
    largest = max(float(np.abs(points).max()), 1e-9)
    rows = []
    for label, own, sure in zip(cell_labels(card, term), points, margins, strict=True):
        cells = "".join(_cell(card, *pair, largest) for pair in zip(own, sure, strict=True))
        rows.append(f"<tr><td style='text-align:left'>{escape(label)}</td>{cells}</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in card.headings)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    summary = f"<summary><b>{escape(str(term.spec.column))}</b></summary>"
    return f"<details{' open' if is_open else ''}>{summary}{table}</details>"


def _cell(card: Card, points: float, margin: float, largest: float) -> str:
    """Returns a cell whose shade follows its points."""
    colour = "78,121,167" if points >= 0 else "225,87,89"
    shade = f"background:rgba({colour},{0.6 * min(abs(points) / largest, 1):.2f})"
    sure = f"<small>±{_number(card, margin, signed=False)}</small>"
    return f"<td style='{shade}'>{_number(card, points, signed=True)} {sure}</td>"


def points_frame(card: Card) -> pd.DataFrame:
    """Returns a row for each cell and output; see ``ScorecardMiner.to_frame``."""
    import pandas as pd

    rows: list[tuple[object, ...]] = []
    for term in card.ranked:
        points, margins = card.printed(term.points), MARGIN * card.printed(term.deviations)
        for cell, label in enumerate(cell_labels(card, term)):
            numbers = zip(card.headings, points[cell], margins[cell], strict=True)
            rows += [(term.spec.column, label, name, own, own - sure, own + sure) for name, own, sure in numbers]
    return pd.DataFrame(rows, columns=["attribute", "value", "output", "points", "low", "high"])


def explained(card: Card, row: Mapping[str, object] | pd.DataFrame) -> pd.DataFrame:
    """Returns what each attribute adds for one row; see ``ScorecardMiner.explain``."""
    import pandas as pd

    frame = pd.DataFrame([dict(row)]) if isinstance(row, Mapping) else row
    if len(frame) != 1:
        raise QueryError(f"`row` has {len(frame):,} rows; one is explained at a time.")
    lines: list[tuple[str, object, np.ndarray]] = [(START, "", card.start)]
    for term in card.ranked:
        part = int(card.axis(term).parts_of(encode(card.schema, term.spec.column, frame))[0])
        added = card.printed(term.points[part]) if part >= 0 else np.zeros(len(card.base))
        label = cell_labels(card, term)[part] if part >= 0 else "(not known)"
        lines.append((term.spec.column, label, added))
    lines[1:] = sorted(lines[1:], key=lambda line: -float(np.abs(line[2]).max()))
    names = [name for name, _, _ in lines]
    points = pd.DataFrame(np.array([added for *_, added in lines]), index=names, columns=list(card.headings))
    points.insert(0, "value", [value for _, value, _ in lines])
    points.index.name = "attribute"
    return points
