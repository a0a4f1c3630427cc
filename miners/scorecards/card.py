# SPDX-License-Identifier: Apache-2.0
"""A fitted scorecard: points for each cell of each attribute, added up; and the card as text, HTML and picture.

The picture has a panel for each attribute, the most important first. With one output a panel shows points with
intervals: steps over the cells of a numeric attribute, a line for each value of a categorical one. With several it is a
map of classes and cells, white for points that are indistinguishable from 0.

Privacy:
    Claim: a card costs nothing to use, show, store or send (post-processing of answers). Its JSON contains nothing
    else. Held by: tests/unit/scorecards/test_card.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from miners.fitted.node import Split, Target, as_array, split_in, split_out, target_of
from miners.fitted.route import Bins, encode, encode_rows, length
from miners.pictures import BLUE, CLASSES, INK, PALE, RED, Axes, panels, shorten
from pinq.errors import QueryError
from pinq.language.points import POINTS, Points
from pinq.language.specs import Axis, Cross, Cuts, bind
from pinq.public.checks import many
from pinq.public.columns import CutPoint
from pinq.public.schema import Numeric, Schema, Value

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Estimate:
    """Points of the cells of one spec.

    Attributes:
        points: Shape (cells, outputs).
        deviations: The standard deviations of the posterior, same shape.
        weights: The weights of the cells among all rows, at least 0, shape (cells,).
    """

    points: np.ndarray
    deviations: np.ndarray
    weights: np.ndarray


FORMAT, VERSION = "pinq-scorecard", 1
MOST_POINTS = 2**48
ADDED_AT_ONCE = 2**14  # rows, whose points fit into a processor's cache
DOUBLES = 20  # printed points that double the odds
NO_PART = "A value that the card does not know adds no points."
START = "start"
LADDER = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0)  # logits whose probabilities a printed card names
MAX_HTML, OPEN = 60, 3  # attributes that a notebook shows, and opens
SURE = 2.0  # standard deviations on each side
ACROSS = 3  # panels side by side
WIDE, HIGH = 4.0, 3.0  # inches of a panel
TICKS = 6  # of a panel
DATES = 3  # ticks of a panel that are dates, which are long
VALUES = 10  # of a categorical attribute that a panel names
LABEL = 22  # letters
CardCells = Split | Cross
"""The cells of an attribute, or of a pair of attributes."""


@dataclass(frozen=True, eq=False)
class Term:
    """The points of the cells of one attribute, or of a pair.

    Attributes:
        spec: The cells.
        points: Whole numbers, 256 to one logit or one grid cell of the target; shape (cells,
            outputs).
        deviations: Standard deviations of the remaining noise in them, same unit and shape.
        weights: The approximate weights of the cells among all rows, shape (cells,).
    """

    spec: CardCells
    points: np.ndarray
    deviations: np.ndarray
    weights: np.ndarray

    @classmethod
    def estimated(cls, spec: CardCells, estimate: Estimate) -> Term:
        return cls(
            spec,
            np.rint(estimate.points * POINTS).astype(np.int64),
            estimate.deviations * POINTS,
            estimate.weights,
        )

    def plus(self, other: Term) -> Term:
        """Adds the points of a later step for the same cells.

        Smaller deviations replace larger ones.
        """
        deviations = np.minimum(self.deviations, other.deviations)
        return Term(self.spec, self.points + other.points, deviations, np.maximum(self.weights, other.weights))

    @property
    def factors(self) -> tuple[Split, ...]:
        return cast("tuple[Split, ...]", self.spec.factors)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(factor.column for factor in self.factors)

    @property
    def name(self) -> str:
        return " and ".join(map(str, self.columns))

    @property
    def is_sound(self) -> bool:
        """Whether its numbers can be those of a card: finite, sizes at least 0."""
        sizes = np.concatenate([self.deviations.ravel(), self.weights])
        return bool((np.abs(self.points) <= MOST_POINTS).all() and ((sizes >= 0) & (sizes <= MOST_POINTS)).all())

    @property
    def spread(self) -> float:
        """The standard deviation of the points over rows, by weights: the importance of the attribute."""
        weights = self.weights + 1e-9
        mean = np.average(self.points, axis=0, weights=weights)
        return math.sqrt(np.average((self.points - mean) ** 2, axis=0, weights=weights).sum())


@dataclass(frozen=True, eq=False)
class Card:
    """Points that add up to the log-odds of a class, to those of each class, or to a mean.

    Attributes:
        base: The score from which every row starts, a whole number for each output.
        terms: A term for each attribute or pair, in the order of ``spread``.

    Raises:
        QueryError: The terms do not fit the schema.
    """

    schema: Schema
    target: str
    base: tuple[int, ...]
    terms: tuple[Term, ...] = ()

    kept_as: ClassVar[str] = "card"

    def __repr__(self) -> str:
        return f"Scorecard for {self.goal}: {many(len(self.columns), 'attribute')}"

    def __post_init__(self) -> None:
        if len(self.classes) == 1:
            raise QueryError(f"`{self.target}` has one value only; there is nothing to predict.")
        outputs = 1 if len(self.classes) <= 2 else len(self.classes)  # one for a mean or two classes
        if len(self.base) != outputs:
            raise QueryError(f"a card for `{self.target}` needs {outputs} bases, not {len(self.base)}.")
        if any(abs(points) > MOST_POINTS for points in self.base):
            raise QueryError(f"the bases of a card are at most {MOST_POINTS:,} in size.")
        for term in self.terms:
            shape = (bind(term.spec, self.schema).size, len(self.base))
            fits = term.points.shape == term.deviations.shape == shape and term.weights.shape == shape[:1]
            if not fits or not term.is_sound:
                raise QueryError(f"the points of {term.spec!r} do not fit its {shape[0]} cells.")

    @cached_property
    def goal(self) -> Target:
        return target_of(self.schema, self.target)

    @property
    def classes(self) -> tuple[Value, ...]:
        return self.goal.classes

    @cached_property
    def numeric(self) -> Numeric | None:
        return self.schema.numeric_columns.get(self.target)

    @property
    def columns(self) -> list[str]:
        """The attributes, in descending order of their term's spread."""
        return list(dict.fromkeys(itertools.chain.from_iterable(term.columns for term in self.ranked)))

    @cached_property
    def ranked(self) -> tuple[Term, ...]:
        return tuple(sorted(self.terms, key=lambda term: -term.spread))

    @property
    def importances(self) -> dict[str, float]:
        """The importances of attributes, with sum 1; a pair's are halved."""
        total = sum(term.spread for term in self.terms)
        return {
            name: sum(term.spread / len(term.columns) for term in self.terms if name in term.columns) / total
            for name in (self.columns if total else ())
        }

    def plus(self, spec: CardCells, estimate: Estimate) -> Card:
        """The card with more points for some cells."""
        added = Term.estimated(spec, estimate)
        terms = {term.spec: term for term in self.terms}
        # Each step adds to the points of earlier steps: 40 points, then -10, are 30.
        terms[spec] = terms[spec].plus(added) if spec in terms else added
        return Card(self.schema, self.target, self.base, tuple(terms.values()))

    def score_of(self, output: int) -> Points:
        """The public score of one output, in the layer's form."""
        tables = tuple(tuple(term.points[:, output].tolist()) for term in self.terms)
        return Points(tuple(term.spec for term in self.terms), tables, self.base[output])

    # Predictions

    def scores(self, frame: Any) -> np.ndarray:
        """The sums of points, in logits or grid cells, shape (rows, outputs)."""
        rows = length(frame)
        codes = encode_rows(self.schema, self.columns, frame, otherwise=NO_PART)
        total = np.tile(np.array(self.base, dtype=np.int64), (rows, 1))
        for term in self.terms:
            # Cell -1, of a code in no part, has no points.
            points = np.vstack([term.points, np.zeros_like(term.points[:1])])
            if len(term.columns) > 1:
                total += points.take(self.cells(term, codes), axis=0)
                continue
            column_codes, axis = codes[term.columns[0]], self.axis(term)
            bins = Bins(self.schema.columns[term.columns[0]], [axis])
            points, find = points.take(axis.parts_of(bins.codes), axis=0), bins.finder(rows)
            for first in range(0, rows, ADDED_AT_ONCE):
                block = slice(first, first + ADDED_AT_ONCE)
                total[block] += points.take(find(column_codes[block]), axis=0)
        return total / POINTS

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Returns class probabilities, shape (rows, classes), in the order of ``classes``."""
        return probabilities(self.scores(frame))

    def predict(self, frame: Any) -> np.ndarray:
        """Returns the likeliest class or the mean for each row, shape (rows,)."""
        if self.numeric is not None:
            cells = np.clip(self.scores(frame)[:, 0], 0, self.numeric.cells - 1)
            return float(self.numeric.origin) + float(self.numeric.width) * cells
        # The class with the most points is the likeliest. One score stands beside a 0.
        scores = self.scores(frame)
        best = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(as_array(self.classes).take(best))

    def axis(self, term: Term) -> Axis:
        return bind(term.spec, self.schema).axes[0]

    def cells(self, term: Term, codes: Mapping[str, np.ndarray]) -> np.ndarray:
        """The cell of each row in a term, -1 for none."""
        cells = bind(term.spec, self.schema)
        parts = [axis.parts_of(codes[name]) for axis, name in zip(cells.axes, term.columns, strict=True)]
        return np.where(np.min(parts, axis=0) < 0, -1, np.ravel_multi_index(parts, cells.shape, mode="clip"))

    # In the units of people

    @property
    def unit(self) -> float:
        """The printed points of one logit, or the units of the target in one grid cell."""
        return DOUBLES / math.log(2) if self.numeric is None else float(self.numeric.width)

    @property
    def headings(self) -> tuple[str, ...]:
        """The names of the outputs: the second class, each class, or the target."""
        if self.numeric is not None:
            return (self.target,)
        return tuple(str(value) for value in (self.classes[1:] if len(self.classes) == 2 else self.classes))

    def printed(self, points: np.ndarray | Sequence[int]) -> np.ndarray:
        """Printed points: 20 double the odds, or units of the target."""
        return np.asarray(points, dtype=np.float64) / POINTS * self.unit

    @property
    def start(self) -> np.ndarray:
        printed = self.printed(self.base)
        return printed if self.numeric is None else printed + float(self.numeric.origin)

    # Shown

    def to_frame(self) -> pd.DataFrame:
        """The points as a table, the most important attribute first.

        Returns:
            A row for each cell and output: ``attribute``, ``value``, ``output``, ``points``, and
            ``low`` and ``high``, two standard deviations of the posterior on each side.
        """
        import pandas as pd

        rows: list[tuple[object, ...]] = []
        for term in self.ranked:
            for label, points, margins in _rows(self, term):
                numbers = zip(self.headings, points, margins, strict=True)
                rows += [(term.name, label, name, point, point - sure, point + sure) for name, point, sure in numbers]
        return pd.DataFrame(rows, columns=["attribute", "value", "output", "points", "low", "high"])

    def export_text(self) -> str:
        """The card as text to print: the points of each value, the start, the meaning of sums."""
        lines = [repr(self), rule(self), ""]
        names = [label for term in self.terms for label in cell_labels(self, term)]
        wide = max([len(name) for name in (START, *names, *(term.name for term in self.terms))], default=5) + 2
        columns = [max(len(name), 9) for name in self.headings]
        if len(columns) > 1:
            lines.append(" " * wide + "  ".join(name.rjust(w) for name, w in zip(self.headings, columns, strict=True)))
        lines.append(_line(self, START, wide, columns, self.start, None))
        for term in self.ranked:
            lines += ["", term.name]
            lines += [
                _line(self, f"  {label}", wide, columns, points, sure) for label, points, sure in _rows(self, term)
            ]
        return "\n".join([*lines, *_ladder(self)])

    def _repr_html_(self) -> str:
        """The card as tables that open and close, one for each attribute."""
        intro = f"{escape(repr(self))}<br><small>{escape(rule(self))} ± is half of a 95 % interval.</small>"
        tables = [_table(self, term, number < OPEN) for number, term in enumerate(self.ranked[:MAX_HTML])]
        start = ", ".join(_number(self, value, signed=False) for value in self.start)
        more = f"<p>and {len(self.terms) - MAX_HTML:,} more</p>" if len(self.terms) > MAX_HTML else ""
        return "".join([f"<p>{intro}</p>", *tables, more, f"<p>All rows start with {escape(start)}.</p>"])

    def explain(self, row: Mapping[str, object] | pd.DataFrame) -> pd.DataFrame:
        """The points of each attribute for one row; see ``ScorecardMiner.explain``."""
        import pandas as pd

        frame = pd.DataFrame([dict(row)]) if isinstance(row, Mapping) else row
        if len(frame) != 1:
            raise QueryError(f"`row` has {len(frame):,} rows; one is explained at a time.")
        lines: list[tuple[str, object, np.ndarray]] = [(START, "", self.start)]
        for term in self.ranked:
            part = int(self.cells(term, {name: encode(self.schema, name, frame) for name in term.columns})[0])
            added = self.printed(term.points[part]) if part >= 0 else np.zeros(len(self.base))
            label = cell_labels(self, term)[part] if part >= 0 else "(not known)"
            lines.append((term.name, label, added))
        lines[1:] = sorted(lines[1:], key=lambda line: -float(np.abs(line[2]).max()))
        names = pd.Index([name for name, _, _ in lines], name="attribute")
        points = pd.DataFrame(np.array([added for *_, added in lines]), index=names, columns=list(self.headings))
        points.insert(0, "value", [value for _, value, _ in lines])
        return points

    def plot(self, max_attributes: int | None = None) -> Axes:
        """Draws the card; see ``ScorecardMiner.plot``."""
        terms = self.ranked[:max_attributes]
        figure, axes = panels("a card", [HIGH] * len(terms), across=ACROSS, wide=WIDE, least=2)
        figure.suptitle(f"{self!r}\n{_caption(self)}", fontsize=11, color=INK)
        scale = _room(np.concatenate([np.zeros(1), *(_with_margins(self, term)[0].ravel() for term in terms)]))
        for ax, term in zip(axes, terms, strict=True):
            _panel(ax, self, term, scale)
        if len(self.base) > 1 and terms:
            figure.colorbar(axes[0].images[0], ax=axes, label="points, in all panels", shrink=0.5, aspect=30)
        return figure.axes[0]

    # JSON

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "target": self.target,
            "schema": self.schema.model_dump(mode="json"),
            "base": list(self.base),
            "terms": [
                {
                    "cells": _cells_out(term),
                    "points": term.points.tolist(),
                    "deviations": term.deviations.tolist(),
                    "weights": term.weights.tolist(),
                }
                for term in self.terms
            ],
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Card:
        """Reads a result of ``to_dict``; raises ``QueryError`` unless it is a whole and valid card."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT or stored.get("version") != VERSION:
            raise QueryError(f"this is not a stored card: its `format` must be {FORMAT!r}, its `version` {VERSION}.")
        try:
            schema = Schema.model_validate(stored["schema"])
            terms = tuple(_read_terms(stored["terms"]))
            return cls(schema, stored["target"], tuple(int(number) for number in stored["base"]), terms)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise QueryError(f"this is not a stored card: {error}") from None


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Class probabilities from log-odds, shape (rows, 1), or from scores of each class."""
    # One score of ln 3 stands beside a 0: odds of 1 and 3, shares .25 and .75. All rows of a class lie side by side,
    # because sums along rows of two take many times as long.
    of_classes = np.vstack([np.zeros(len(scores)), scores.T]) if scores.shape[1] == 1 else scores.T.copy()
    odds = np.exp(of_classes - of_classes.max(axis=0))
    return np.ascontiguousarray((odds / odds.sum(axis=0)).T)


def _cells_out(term: Term) -> object:
    cells = [split_out(factor) for factor in term.factors]
    return cells if len(cells) > 1 else cells[0]


def _read_terms(stored: Any) -> Iterator[Term]:
    for number, entry in enumerate(stored):
        # The cells of a pair are those of its two attributes.
        cells = entry["cells"] if isinstance(entry["cells"], list) else [entry["cells"]]
        factors = [split_in(f"the cells of term {number} of the stored card", cell) for cell in cells]
        if not factors:
            raise QueryError(f"term {number} of the stored card has no cells.")
        spec = Cross(tuple(factors)) if len(factors) > 1 else factors[0]
        arrays = [np.array(entry[name], dtype=np.float64) for name in ("deviations", "weights")]
        yield Term(spec, np.array(entry["points"], dtype=np.int64), arrays[0], arrays[1])


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
