# SPDX-License-Identifier: Apache-2.0
"""Step charts of spending against the limits: lines in SVG, texts in HTML, no script.

The lines stretch with the page, so one picture serves desks and phones; texts keep their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pinq.provider.report.markup import Html, amount, element, joined, when
from pinq.public.epsilon import Epsilon

if TYPE_CHECKING:
    from pinq.provider.report.audit import Audit, AuditLine

__all__ = ["chart_of_all", "charts_of_each"]

MAX_CHARTS, MAX_COLOURS, MAX_MARKS = 24, 6, 200
WIDTH, HEIGHT = 1000, 100  # of a picture, which the page stretches


@dataclass(frozen=True)
class _Steps:
    """A step line: from each moment on, a loss in nano-epsilons."""

    label: str
    style: str
    points: list[tuple[float, int]]

    @classmethod
    def of(cls, label: str, style: str, lines: Sequence[AuditLine], field: str) -> _Steps:
        """Takes the moments at which a loss changed from the log; no cap is drawn before there is one."""
        losses = [(_moment(line.at), getattr(line, field)) for line in lines]
        return cls(
            label, style, [(at, loss.nano) for at, loss in losses if loss is not None and (loss or field != "cap")]
        )

    def name(self) -> Html:
        """Its name and last loss, in its colour."""
        last = Epsilon(self.points[-1][1])
        return element(
            "span", f"{self.label} {last.figures}", class_=f"name {self.style}", title=f"{self.label} {last}"
        )


def chart_of_all(audit: Audit) -> Html:
    """Draws all analysts under the cap; empty before the first request."""
    if not audit.requests:
        return Html()
    each = [
        _Steps.of(name, f"s{position % MAX_COLOURS}", lines, "spent")
        for position, (name, lines) in enumerate(_by_analyst(audit).items())
        if audit.accounts[name].granted
    ]
    # An only analyst's line would lie on that of all together; those of very many cannot be told apart.
    shown = each if 1 < len(each) <= MAX_COLOURS else []
    together = _Steps.of("all together", "joint", audit.lines, "joint")
    about = f"{audit.joint} of {audit.cap} spent by {len(each)} {'analyst' if len(each) == 1 else 'analysts'}."
    refused = [line for line in audit.exhaustion if line.scope == "cap"]
    cap = _Steps.of("cap", "limit", audit.lines, "cap")
    return _figure("All analysts together, against the cap", about, [*shown, together, cap], refused)


def charts_of_each(audit: Audit) -> Html:
    """Draws each analyst who asked against the analyst's own limit."""
    by_analyst = _by_analyst(audit)
    drawn = [
        _chart_of(audit, name, lines, f"s{position % MAX_COLOURS}")
        for position, (name, lines) in enumerate(by_analyst.items())
        if audit.accounts[name].granted and any(line.kind in ("charge", "refusal") for line in lines)
    ]
    more = element("p", f"Charts of the first {MAX_CHARTS} of {len(drawn):,} analysts; the tables have all.")
    return joined([*drawn[:MAX_CHARTS], more if len(drawn) > MAX_CHARTS else ""])


def _chart_of(audit: Audit, name: str, lines: list[AuditLine], colour: str) -> Html:
    account = audit.accounts[name]
    answered, refused = f"{account.answered:,} answered queries", f"{account.refused.total():,} refused"
    about = f"{account.spent} of {account.limit} spent in {answered}, {refused}."
    spent, limit = _Steps.of("spent", f"{colour} area", lines, "spent"), _Steps.of("limit", "limit", lines, "limit")
    return _figure(
        f"{name}, against the limit granted", about, [spent, limit], [line for line in lines if line.asked is not None]
    )


def _by_analyst(audit: Audit) -> dict[str, list[AuditLine]]:
    by_analyst: dict[str, list[AuditLine]] = {}
    for line in audit.lines:
        if line.analyst:
            by_analyst.setdefault(line.analyst, []).append(line)
    return by_analyst


def _figure(title: str, about: str, series: list[_Steps], refusals: list[AuditLine]) -> Html:
    """Draws a chart, its caption, the ends of its axes and the names of its lines; empty where nothing was spent."""
    series = [steps for steps in series if steps.points]
    # A budget granted long before its first use would squeeze its use into the last pixels: time
    # starts where spending does.
    spending = [at for steps in series if steps.style != "limit" for at, nano in steps.points if nano]
    spending += [_moment(line.at) for line in refusals]
    if not spending:
        return Html()
    first, last = min(spending), max(at for steps in series for at, _ in steps.points)
    highest = max(nano for steps in series for _, nano in steps.points) or 1

    def place(at: float, nano: int) -> tuple[float, float]:
        within = (min(max(at, first), last) - first) / (last - first or 1)
        return round(WIDTH * within, 1), round(HEIGHT * (1 - nano / highest), 1)

    drawn = [_path(steps, place) for steps in series]
    drawn += [_mark(line, place(_moment(line.at), 0)[0]) for line in refusals[-MAX_MARKS:]]
    picture = element(
        "svg",
        element("title", f"{title}. {about} The tables below have the numbers."),
        *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
    )
    key = f"Dashed: the limit{'. Red: refused, budget exhausted' if refusals else ''}."
    levels = [element("span", Epsilon(highest * halves // 2).figures) for halves in (2, 1, 0)]
    ends = [element("span", when(datetime.fromtimestamp(at, UTC))) for at in (first, last)]
    return element(
        "figure",
        element("figcaption", element("b", title), " ", about, " ", element("span", key, class_="key")),
        element("div", element("div", *levels, class_="levels"), picture, class_="plot"),
        element("div", *ends, class_="ends"),
        element("div", *(steps.name() for steps in series), class_="names"),
    )


def _path(steps: _Steps, place: Callable[[float, int], tuple[float, float]]) -> Html:
    """Draws a step line from the first moment to the last, with at most one step for each tenth of a unit."""
    heights = dict(place(at, nano) for at, nano in steps.points)
    # Of two moments the second begins a step: to the right at the old height, then to the new one.
    drawn = f"M0 {next(iter(heights.values())) if steps.style == 'limit' else HEIGHT}"
    drawn += "".join(f"H{x}V{y}" for x, y in heights.items()) + f"H{WIDTH}"
    line = element("path", class_=f"line {steps.style}", d=drawn)
    if "area" not in steps.style:
        return line
    return joined([element("path", class_=f"fill {steps.style}", d=f"{drawn}V{HEIGHT}H0Z"), line])


def _mark(line: AuditLine, x: float) -> Html:
    """Draws a line at a refusal, that says more when it is pointed at."""
    asked = f"{line.analyst} asked {amount(line.asked)}"
    title = element("title", f"{asked}, {amount(line.remaining)} remained {line.budget}, {when(line.at)}")
    return element("g", element("path", d=f"M{x} 0V{HEIGHT}"), title, class_="refusal")


def _moment(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
