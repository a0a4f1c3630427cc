# SPDX-License-Identifier: Apache-2.0
"""Step charts of spending against the limits, as SVG without a script, for desks and phones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING

from pinq.provider.report.audit import amount, when
from pinq.provider.report.markup import Html, element, joined
from pinq.public.epsilon import NANO, ZERO, Epsilon

if TYPE_CHECKING:
    from pinq.provider.report.audit import Audit, Line

__all__ = ["chart_of_all", "charts_of_each"]

MAX_CHARTS, MAX_COLOURS, MAX_MARKS = 24, 6, 200
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_MINUTES = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_STEPS = (*_SECONDS, *_MINUTES)  # between two marks of time, where they are less than a day apart
_DAY = 86400


@dataclass(frozen=True)
class _Series:
    """A step line: from each moment on, a loss in nano-epsilons."""

    label: str
    points: list[tuple[float, int]]
    style: str


@dataclass(frozen=True)
class _Frame:
    """The size of a picture, and how much fits; the style sheet shows one of the frames."""

    name: str
    width: int
    height: int
    left: int
    right_margin: int
    top: int
    bottom_margin: int
    ticks: int
    letters: int

    @property
    def right(self) -> int:
        """Where the lines end."""
        return self.width - self.right_margin

    @property
    def bottom(self) -> int:
        """Where a loss of 0 is."""
        return self.height - self.bottom_margin


_FRAMES = (_Frame("desk", 960, 300, 64, 190, 16, 40, 5, 16), _Frame("phone", 380, 250, 44, 126, 16, 36, 2, 8))


@dataclass(frozen=True)
class _Axes:
    """Where a moment and a loss lie in a frame.

    Attributes:
        first, last: The moments at the ends of the time axis, in seconds.
        highest: The largest loss that is drawn, in nano-epsilons.
    """

    frame: _Frame
    first: float
    last: float
    highest: float

    @property
    def top(self) -> float:
        """The loss at the upper edge."""
        return self.highest * 1.06

    def x(self, moment: float) -> float:
        """Returns the place of a moment; one outside the axis lies at its end."""
        within = min(max(moment, self.first), self.last) - self.first
        return self.frame.left + (self.frame.right - self.frame.left) * within / (self.last - self.first)

    def y(self, nano: float) -> float:
        """Returns the height of a loss."""
        return self.frame.bottom - (self.frame.bottom - self.frame.top) * nano / self.top


@dataclass(frozen=True)
class _Chart:
    """What a chart shows, in every frame.

    Attributes:
        key: Its name on the page.
        about: What it shows, in a sentence.
        refusals: Requests that are marked, at their moments.
        level: The field of a refusal that says how high its mark stands.
    """

    key: str
    title: str
    about: str
    series: list[_Series]
    refusals: list[Line]
    level: str


def chart_of_all(audit: Audit) -> Html:
    """Draws all analysts under the cap; empty before the first request."""
    if not audit.requests:
        return Html()
    granted = [
        (position, name, lines)
        for position, (name, lines) in enumerate(_by_analyst(audit).items())
        if audit.accounts[name].granted
    ]
    series = [
        _Series(name, _stepped(lines, "spent"), f"s{position % MAX_COLOURS}") for position, name, lines in granted
    ]
    together = _Series("all together", _stepped(audit.lines, "joint"), "joint")
    cap = _Series("cap", _stepped(audit.lines, "cap"), "limit")
    refused = [line for line in audit.exhaustion if line.scope == "cap"]
    # An only analyst's line would lie on that of all together; those of very many cannot be told
    # apart.
    shown = series if 1 < len(series) <= MAX_COLOURS else []
    about = f"{audit.joint} of {audit.cap} spent by {len(series)} {'analyst' if len(series) == 1 else 'analysts'}."
    title = "All analysts together, against the cap"
    return _figure(_Chart("chart-all", title, about, [*shown, together, cap], refused, "joint"))


def charts_of_each(audit: Audit) -> Html:
    """Draws each analyst who asked against the analyst's own limit."""
    by_analyst = _by_analyst(audit)
    drawn = [
        name
        for name, lines in by_analyst.items()
        if audit.accounts[name].granted and any(line.kind in ("charge", "refusal") for line in lines)
    ]
    colours = {name: f"s{position % MAX_COLOURS}" for position, name in enumerate(by_analyst)}
    charts = [
        _chart_of(audit, name, by_analyst[name], f"chart-{position}", colours[name])
        for position, name in enumerate(drawn[:MAX_CHARTS])
    ]
    if len(drawn) > MAX_CHARTS:
        charts.append(
            element("p", f"Charts of the first {MAX_CHARTS} of {len(drawn):,} analysts; the tables have all.")
        )
    return joined(charts)


def _chart_of(audit: Audit, name: str, lines: list[Line], key: str, colour: str) -> Html:
    account = audit.accounts[name]
    series = [
        _Series("spent", _stepped(lines, "spent"), f"{colour} area"),
        _Series("limit", _stepped(lines, "limit"), "limit"),
    ]
    answered, refused = f"{account.answered:,} answered queries", f"{account.refused.total():,} refused"
    about = f"{account.spent} of {account.limit} spent in {answered}, {refused}."
    marked = [line for line in lines if line.asked is not None]
    return _figure(_Chart(key, f"{name}, against the limit granted", about, series, marked, "spent"))


def _by_analyst(audit: Audit) -> dict[str, list[Line]]:
    by_analyst: dict[str, list[Line]] = {}
    for line in audit.lines:
        if line.analyst:
            by_analyst.setdefault(line.analyst, []).append(line)
    return by_analyst


def _stepped(lines: Sequence[Line], field: str) -> list[tuple[float, int]]:
    """Lists the moments at which a loss changed, in nano-epsilons."""
    loss_of = attrgetter(field)
    points: list[tuple[float, int]] = []
    for line in lines:
        loss: Epsilon | None = loss_of(line)
        # Before the policy was declared there is no cap, rather than one of 0.
        if loss is not None and (loss or field != "cap") and (not points or points[-1][1] != loss.nano):
            points.append((_moment(line.at), loss.nano))
    if points and lines:
        points.append((_moment(lines[-1].at), points[-1][1]))
    return points


def _figure(chart: _Chart) -> Html:
    """Draws a chart for each frame, with its caption; empty where nothing was spent."""
    series = [steps for steps in chart.series if steps.points]
    # A budget granted long before its first use would squeeze its use into the last pixels: time
    # starts where spending does.
    spending = [at for steps in series if steps.style != "limit" for at, nano in steps.points if nano]
    spending += [_moment(line.at) for line in chart.refusals]
    if not spending:
        return Html()
    first, last = min(spending), max(at for steps in series for at, _ in steps.points)
    days = " to ".join(dict.fromkeys(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (first, last)))
    first, last = first - 0.04 * max(last - first, 0.01), last + 0.01 * max(last - first, 0.01)
    highest = max(nano for steps in series for _, nano in steps.points) or NANO
    marks = ". ✕: refused for want of budget" if chart.refusals else ""
    key = element("span", f"{days}. Dashed: the limit{marks}.", class_="key")
    caption = element("figcaption", element("b", chart.title), " ", chart.about, " ", key)
    return element(
        "figure", caption, *(_picture(chart, series, _Axes(frame, first, last, highest)) for frame in _FRAMES)
    )


def _picture(chart: _Chart, series: list[_Series], axes: _Axes) -> Html:
    """Draws a chart in one frame."""
    frame = axes.frame
    name = f"{chart.key}-{frame.name}"
    about = f"Step chart of epsilon spent over time. {chart.about} The tables below have the numbers."
    return element(
        "svg",
        element("title", chart.title, id=f"{name}-t"),
        element("desc", about, id=f"{name}-d"),
        _grid(axes),
        *(_path(steps, axes) for steps in series),
        _marks(chart, axes),
        _names(series, axes),
        class_=frame.name,
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


def _grid(axes: _Axes) -> Html:
    """Draws lines at round losses and marks at round moments, with their texts."""
    frame, pieces = axes.frame, []
    # A highest loss of 1.3: a fifth is .26, rounded up to .5.
    step = _round_up(axes.highest / 5)
    for nano in (step * i for i in range(math.floor(axes.top / step) + 1)):
        height = axes.y(nano)
        at = f"{height:.1f}"
        pieces.append(element("line", class_="grid", x1=frame.left, x2=frame.right, y1=at, y2=at))
        text = str(Epsilon(round(nano)))
        pieces.append(element("text", text, x=frame.left - 8, y=f"{height + 4:.1f}", text_anchor="end"))
    for moment, text in _ticks(axes.first, axes.last, frame.ticks):
        at = f"{axes.x(moment):.1f}"
        pieces.append(element("line", class_="tick", x1=at, x2=at, y1=frame.bottom, y2=frame.bottom + 5))
        pieces.append(element("text", text, x=at, y=frame.bottom + 18, text_anchor="middle"))
    return joined(pieces)


def _marks(chart: _Chart, axes: _Axes) -> Html:
    """Draws a cross for each refusal, that says more when it is pointed at."""
    level_of = attrgetter(chart.level)
    marks = []
    for line in chart.refusals[-MAX_MARKS:]:
        under = "under the own limit" if line.scope == "analyst" else "under the cap"
        asked = f"{line.analyst} asked {amount(line.asked)}"
        title = element("title", f"{asked}, {amount(line.remaining)} remained {under}, {when(line.at)}")
        centre = f"{axes.x(_moment(line.at)):.1f} {axes.y((level_of(line) or ZERO).nano):.1f}"
        cross = element("path", d="M-5-5 5 5M-5 5 5-5")
        marks.append(element("g", cross, title, class_="refusal", transform=f"translate({centre})"))
    return joined(marks)


def _names(series: list[_Series], axes: _Axes) -> Html:
    """Writes the name and the last loss of each line at its end."""
    frame, names = axes.frame, []
    for height, steps in _apart([(axes.y(steps.points[-1][1]), steps) for steps in series]):
        end = Epsilon(steps.points[-1][1])
        label, whole = f"{_clip(steps.label, frame.letters)} {end.figures}", f"{steps.label} {end}"
        children = [label, element("title", whole)] if label != whole else [label]
        style, x = f"name {steps.style}", frame.right + 10
        names.append(element("text", *children, class_=style, x=x, y=f"{height + 4:.1f}"))
    return joined(names)


def _path(series: _Series, axes: _Axes) -> Html:
    """Draws a step line, with at most one step for each pixel.

    That is the last one in it: steps only grow within a pixel unless a cap fell.
    """
    steps = {round(axes.x(moment), 1): axes.y(nano) for moment, nano in series.points}
    (start, height), *rest = steps.items()
    base = axes.y(0)
    # Spending starts from nothing.
    rises = series.style != "limit" and height != base
    path = f"M{start} {base:.1f}V{height:.1f}" if rises else f"M{start} {height:.1f}"
    # To the right at the old height, then up to the new one: that is a step.
    path += "".join(f"H{x}V{y:.1f}" for x, y in rest) + f"H{round(axes.x(axes.last), 1)}"
    line = element("path", class_=f"line {series.style}", d=path)
    if "area" not in series.style:
        return line
    return joined([element("path", class_=f"fill {series.style}", d=f"{path}V{base:.1f}H{start}Z"), line])


def _apart(ends: Iterable[tuple[float, _Series]]) -> list[tuple[float, _Series]]:
    """Moves labels that would overlap apart, upwards from the lowest."""
    placed: list[tuple[float, _Series]] = []
    for height, series in sorted(ends, key=lambda end: -end[0]):
        # Ends at the heights 200, 195 and 100 are named at 200, 185 and 100.
        placed.append((min(height, placed[-1][0] - 15) if placed else height, series))
    return placed


def _ticks(first: float, last: float, count: int) -> list[tuple[float, str]]:
    """Chooses about ``count`` round moments, and writes them as finely as they lie apart."""
    span = last - first
    # 100 s and 5 marks: the first step of at least 20 s is 30 s.
    step = next((step for step in _STEPS if step >= span / count), None) or _round_up(span / (count + 1) / _DAY) * _DAY
    moments = [math.ceil(first / step) * step + i * step for i in range(12)]
    form = "%Y-%m-%d" if step >= _DAY else "%d %b %H:%M" if span > _DAY / 2 else "%H:%M" if step >= 60 else "%H:%M:%S"
    return [
        (at, datetime.fromtimestamp(round(at, 3), UTC).strftime(form) + _fraction(at, step))
        for at in moments
        if at <= last
    ]


def _fraction(at: float, step: float) -> str:
    """Writes the part of a second, where marks lie less than a second apart."""
    if step >= 1:
        return ""
    return f"{at % 1:.3f}"[1:] if step < 0.1 else f"{at % 1:.1f}"[1:]


def _round_up(number: float) -> float:
    """Returns the smallest of 1, 2 and 5 times a power of ten that is not below ``number``."""
    power = 10.0 ** math.floor(math.log10(number))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number * (1 - 1e-9))


def _moment(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _clip(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
