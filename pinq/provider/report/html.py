# SPDX-License-Identifier: Apache-2.0
"""The audit as one HTML page: a picture, the tables behind it, no script, nothing from elsewhere. The provider's page shows the same pieces.

Names and questions in the log come from strangers: every text goes through ``_text``, and a content
security policy stands behind that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from pinq.public.epsilon import NANO, ZERO, Epsilon

if TYPE_CHECKING:
    from pinq.ledger.state import Account
    from pinq.provider.report.audit import Audit, Line

__all__ = [
    "STYLE",
    "bar",
    "cards",
    "changes",
    "chart_of_all",
    "charts_of_each",
    "exhaustion",
    "page",
    "printable",
    "refusals",
    "requests",
    "short",
    "table",
]

MAX_CHARTS, MAX_ROWS, MAX_LINES, MAX_MARKS = 24, 500, 6, 200
_STEPS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
)
_DAY = 86400


def printable(text: str) -> str:
    """A text with every character that does not print (controls, marks of direction, lone surrogates) as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@dataclass(frozen=True)
class _Series:
    """A step line: from each moment on, a loss in nano-epsilons."""

    label: str
    points: list[tuple[float, int]]
    style: str


@dataclass(frozen=True)
class _Frame:
    """The size of a picture, and how much fits: one for a desk, one for a phone; the style sheet shows one of them."""

    name: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    ticks: int
    letters: int


_FRAMES = (_Frame("desk", 960, 300, 64, 190, 16, 40, 5, 16), _Frame("phone", 380, 250, 44, 126, 16, 36, 2, 8))


def page(audit: Audit) -> str:
    """The report as one page."""
    whose = f" for {_text(audit.only)}" if audit.only else ""
    title = f"Audit of {_text(audit.dataset)}{whose}"
    body = [
        f"<h1>{title}</h1>",
        cards(audit),
        _charts(audit),
        _analysts(audit),
        exhaustion(audit),
        refusals(audit),
        changes(audit),
        requests(audit),
        f"<footer>Replayed from the log alone{f': {_text(audit.ledger)}' if audit.ledger else ''}. "
        "Losses are epsilons in the policy's terms; times are UTC. "
        "<code>pinq audit --csv</code> has every event.</footer>",
    ]
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'><meta "
        "name='color-scheme' content='light dark'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style>"
    )
    inner = "\n".join(filter(None, body))
    return f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body><main>\n{inner}\n</main></body></html>\n"


def cards(audit: Audit) -> str:
    """The report in five numbers."""
    facts = [
        (
            f"{short(audit.joint)} <small>of {short(audit.cap)}</small>",
            f"spent by all together, under the cap: it counts {audit.together.counts}",
        ),
        (short(audit.together.remaining), "remains under the cap"),
        (f"{sum(one.answered for one in audit.accounts.values()):,}", "queries answered"),
        (f"{sum(one.refused.total() for one in audit.accounts.values()):,}", "requests refused"),
        ("verified", f"chain of {audit.events:,} events, last {audit.head[:12]}"),
    ]
    return (
        "<div class='cards'>"
        + "".join(f"<div class='card'><b>{number}</b><span>{what}</span></div>" for number, what in facts)
        + "</div>"
    )


def short(epsilon: Epsilon) -> str:
    """A loss in three figures, for where there is little room; all of them where it is pointed at."""
    brief, full = epsilon.figures, str(epsilon)
    return brief if brief == full else f"<span title='{full}'>{brief}…</span>"


def bar(spent: Epsilon, limit: Epsilon) -> str:
    """How much of a limit is used, as a bar; the numbers stand beside it, so it says nothing to a screen reader."""
    used = min(100.0, 100 * spent.nano / limit.nano) if limit else 0.0
    whole, part = "<rect class='all' width='100' height='6'/>", f"<rect width='{used:.4g}' height='6'/>"
    return f"<svg class='bar' viewBox='0 0 100 6' preserveAspectRatio='none' aria-hidden='true'>{whole}{part}</svg>"


# Tables


def _analysts(audit: Audit) -> str:
    def row(one: Account) -> list[str]:
        used = f"{bar(one.spent, one.limit)} {100 * one.spent.nano // one.limit.nano} %" if one.limit else ""
        state = f"<span class='state {one.state.replace(' ', '-')}'>{one.state}</span>"
        counts = [
            f"{one.answered:,} answered",
            *(f"{count:,} refused ({_text(reason)})" for reason, count in one.refused.items()),
        ]
        counts += [f"{one.unanswered:,} unanswered"] if one.unanswered else []
        asked = [_when(at).replace(" ", "<br>") for at in (one.first, one.last)]
        numbers = [str(one.limit), str(one.spent), str(one.remaining), used, "<br>".join(counts)]
        return [_text(one.analyst), state, *numbers, _when(one.expires.isoformat()) if one.expires else "never", *asked]

    heads = ["analyst~", "state", "limit>", "spent>", "remaining>", "used", "requests~", "expires", "first", "last"]
    note = "Unanswered: charged, and no answer given, because a process or its engine failed in between."
    return table(
        "Analysts", heads, [row(one) for one in audit.accounts.values()], "Nobody was granted anything yet.", note
    )


def exhaustion(audit: Audit, last: int | None = None) -> str:
    """Who asked for more than what remained: oldest first, or only the last, newest first."""
    lines, note = _latest(audit.exhaustion, last)
    rows = [
        [_when(one.at), _text(one.analyst), _amount(one.asked), _amount(one.remaining), _whose(one), _text(one.about)]
        for one in lines
    ]
    heads = ["when", "analyst~", "asked>", "remaining>", "of which budget", "question~"]
    return table("Exhaustion", heads, rows, "Nobody asked for more than what remained.", note)


def refusals(audit: Audit, last: int | None = None) -> str:
    """Who was refused for another reason, in the same order; empty where nobody was."""
    lines, note = _latest([one for one in audit.requests if one.kind == "refusal" and one.asked is None], last)
    rows = [[_when(one.at), _text(one.analyst), _text(one.outcome), _text(one.about)] for one in lines]
    return table("Other refusals", ["when", "analyst~", "outcome", "question~"], rows, "", note) if rows else ""


def changes(audit: Audit, last: int | None = None) -> str:
    """What was granted and changed, in the same order."""
    lines, note = _latest(audit.changes, last)
    rows = [[_when(one.at), *map(_text, (one.kind, one.analyst, one.about, one.by, one.because))] for one in lines]
    heads = ["when", "event", "analyst~", "what~", "by~", "because~"]
    return table("Grants and policy", heads, rows, "Nothing was declared yet.", note)


def requests(audit: Audit, last: int | None = None) -> str:
    """Charges and refusals, in the same order."""
    lines, note = _latest(audit.requests, last)
    rows = [
        [
            _when(one.at),
            _text(one.analyst),
            _text(one.about),
            _amount(one.cost),
            _amount(one.spent),
            str(one.joint),
            _text(one.outcome),
        ]
        for one in lines
    ]
    heads = ["when", "analyst~", "question~", "cost>", "spent>", "all together>", "outcome"]
    return table(
        "Spending over time" if last is None else "The last requests", heads, rows, "Nothing was asked yet.", note
    )


def _latest(lines: list[Line], last: int | None) -> tuple[list[Line], str]:
    if last is None:
        return lines, ""
    return lines[: -last - 1 : -1], f"The last {last:,} of {len(lines):,}, newest first." if len(lines) > last else ""


def table(title: str, heads: Sequence[str], rows: list[list[str]], nothing: str, note: str = "") -> str:
    """A section; ``>`` after a head means numbers, on the right, ``~`` texts, which may wrap. Cells are HTML already."""
    key = title.lower().replace(" ", "-")
    if not rows:
        return f"<section><h2 id='{key}'>{title}</h2><p>{nothing}</p></section>"
    hidden = max(0, len(rows) - MAX_ROWS)
    kinds = [{">": " class='n'", "~": " class='w'"}.get(head[-1], "") for head in heads]
    top = "".join(f"<th scope='col'{kind}>{head.rstrip('>~')}</th>" for head, kind in zip(heads, kinds, strict=True))
    names = [f" data-label='{head.rstrip('>~')}'" for head in heads]
    lines = "\n".join(
        f"<tr>{''.join(f'<td{name}{kind}>{cell}</td>' for name, cell, kind in zip(names, row, kinds, strict=True))}</tr>"
        for row in rows[hidden:]
    )
    note = f"The last {MAX_ROWS:,} of {len(rows):,}." if hidden else note
    note = f"<p>{note}</p>" if note else ""
    # What is wider than the screen scrolls in a box of its own; the keyboard must reach the box to
    # scroll it.
    return (
        f"<section><h2 id='{key}'>{title}</h2>{note}<div class='wide' role='group' tabindex='0' "
        f"aria-labelledby='{key}'><table><caption class='unseen'>{title}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>\n{lines}\n</tbody></table></div></section>"
    )


# Pictures


def _charts(audit: Audit) -> str:
    """All analysts under the cap, then each against the own limit."""
    drawn = chart_of_all(audit) + charts_of_each(audit) if audit.only is None else charts_of_each(audit)
    return f"<section><h2>Spending against the limits</h2>{drawn}</section>" if drawn else ""


def chart_of_all(audit: Audit) -> str:
    """All analysts under the cap; empty before the first request."""
    if not audit.requests:
        return ""
    granted = [
        (place, name, own)
        for place, (name, own) in enumerate(_by_analyst(audit).items())
        if audit.accounts[name].granted
    ]
    lines = [_Series(name, _stepped(own, "spent"), f"s{place % MAX_LINES}") for place, name, own in granted]
    together = _Series("all together", _stepped(audit.lines, "joint"), "joint")
    cap = _Series("cap", _stepped(audit.lines, "cap"), "limit")
    refused = [line for line in audit.exhaustion if line.scope == "cap"]
    shown = lines if 1 < len(lines) <= MAX_LINES else []
    about = f"{audit.joint} of {audit.cap} spent by {len(lines)} {'analyst' if len(lines) == 1 else 'analysts'}."
    return _figure(
        "chart-all", "All analysts together, against the cap", about, [*shown, together, cap], refused, "joint"
    )


def charts_of_each(audit: Audit) -> str:
    """Each analyst who asked, against the own limit."""
    by_analyst = _by_analyst(audit)
    drawn = [
        name
        for name, own in by_analyst.items()
        if audit.accounts[name].granted and any(one.kind in ("charge", "refusal") for one in own)
    ]
    charts = []
    for place, name in enumerate(drawn[:MAX_CHARTS]):
        own, account = by_analyst[name], audit.accounts[name]
        style = f"s{list(by_analyst).index(name) % MAX_LINES}"
        series = [
            _Series("spent", _stepped(own, "spent"), f"{style} area"),
            _Series("limit", _stepped(own, "limit"), "limit"),
        ]
        about = f"{account.spent} of {account.limit} spent in {account.answered:,} answered queries, {account.refused.total():,} refused."
        refused = [one for one in own if one.asked is not None]
        charts.append(
            _figure(f"chart-{place}", f"{_text(name)}, against the limit granted", about, series, refused, "spent")
        )
    if len(drawn) > MAX_CHARTS:
        charts.append(f"<p>Charts of the first {MAX_CHARTS} of {len(drawn):,} analysts; the tables have all.</p>")
    return "".join(charts)


def _by_analyst(audit: Audit) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in audit.lines:
        if line.analyst:
            found.setdefault(line.analyst, []).append(line)
    return found


def _stepped(lines: Sequence[Line], field: str) -> list[tuple[float, int]]:
    """The moments at which a loss changed, in nano-epsilons."""
    points: list[tuple[float, int]] = []
    for line in lines:
        loss: Epsilon | None = getattr(line, field)
        # Before the policy was declared there is no cap, rather than one of 0.
        if loss is not None and (loss or field != "cap") and (not points or points[-1][1] != loss.nano):
            points.append((_moment(line.at), loss.nano))
    if points and lines:
        points.append((_moment(lines[-1].at), points[-1][1]))
    return points


def _figure(key: str, title: str, about: str, series: list[_Series], refusals: list[Line], level: str) -> str:
    """A step chart; empty where nothing was spent. ``title`` and ``about`` are HTML already."""
    series = [one for one in series if one.points]
    # A budget granted long before its first use would squeeze its use into the last pixels: time
    # starts where spending does.
    spending = [at for one in series if one.style != "limit" for at, value in one.points if value] + [
        _moment(one.at) for one in refusals
    ]
    if not spending:
        return ""
    first, last = min(spending), max(at for one in series for at, _ in one.points)
    day = " to ".join(dict.fromkeys(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (first, last)))
    first, last = first - 0.04 * max(last - first, 0.01), last + 0.01 * max(last - first, 0.01)
    key_line = (
        f"<span class='key'>{day}. Dashed: the limit{'. ✕: refused for want of budget' if refusals else ''}.</span>"
    )
    drawn = ""
    for frame in _FRAMES:
        name = f"{key}-{frame.name}"
        drawn += (
            f"<svg class='{frame.name}' viewBox='0 0 {frame.width} {frame.height}' role='img' "
            f"aria-labelledby='{name}-t {name}-d'><title id='{name}-t'>{title}</title>"
            f"<desc id='{name}-d'>Step chart of epsilon spent over time. {about} The tables below have the "
            f"numbers.</desc>"
            f"{_drawing(frame, series, refusals, level, first, last)}</svg>"
        )
    return f"<figure><figcaption><b>{title}</b> {about} {key_line}</figcaption>{drawn}</figure>"


def _drawing(frame: _Frame, series: list[_Series], refusals: list[Line], level: str, first: float, last: float) -> str:
    """What a chart shows from one moment to another."""
    highest = max(value for one in series for _, value in one.points) or NANO
    step = _round_up(highest / 5)
    top = highest * 1.06
    right, bottom = frame.width - frame.right, frame.height - frame.bottom

    def x(at: float) -> float:
        return frame.left + (right - frame.left) * (min(max(at, first), last) - first) / (last - first)

    def y(value: float) -> float:
        return bottom - (bottom - frame.top) * value / top

    grid = ""
    for level_line in (step * i for i in range(math.floor(top / step) + 1)):
        at = f"{y(level_line):.1f}"
        grid += f"<line class='grid' x1='{frame.left}' x2='{right}' y1='{at}' y2='{at}'/>"
        grid += f"<text x='{frame.left - 8}' y='{y(level_line) + 4:.1f}' text-anchor='end'>{Epsilon(round(level_line))}</text>"
    for moment, text in _ticks(first, last, frame.ticks):
        at = f"{x(moment):.1f}"
        grid += f"<line class='tick' x1='{at}' x2='{at}' y1='{bottom}' y2='{bottom + 5}'/>"
        grid += f"<text x='{at}' y='{bottom + 18}' text-anchor='middle'>{text}</text>"
    paths = "".join(_path(one, x, y, last) for one in series)
    marks = ""
    for one in refusals[-MAX_MARKS:]:
        said = f"{_text(one.analyst)} asked {_amount(one.asked)}, {_amount(one.remaining)} remained {_whose(one)}, {_when(one.at)}"
        place = f"translate({x(_moment(one.at)):.1f} {y((getattr(one, level) or ZERO).nano):.1f})"
        marks += f"<g class='refusal' transform='{place}'><path d='M-5-5 5 5M-5 5 5-5'/><title>{said}</title></g>"
    names = ""
    for height, line in _apart([(y(line.points[-1][1]), line) for line in series]):
        end = Epsilon(line.points[-1][1])
        label, whole = f"{_clip(line.label, frame.letters)} {end.figures}", f"{line.label} {end}"
        title = f"<title>{_text(whole)}</title>" if label != whole else ""
        names += f"<text class='name {line.style}' x='{right + 10}' y='{height + 4:.1f}'>{_text(label)}{title}</text>"
    return grid + paths + marks + names


def _path(one: _Series, x: Callable[[float], float], y: Callable[[float], float], last: float) -> str:
    """A step line, at most one step for each pixel: the last one, and steps only grow within a pixel unless a cap fell."""
    steps: dict[float, float] = {}
    for at, value in one.points:
        steps[round(x(at), 1)] = y(value)
    places = iter(steps.items())
    start, height = next(places)
    base = y(0)
    # Spending starts from nothing.
    path = f"M{start} {height:.1f}" if one.style == "limit" or height == base else f"M{start} {base:.1f}V{height:.1f}"
    path += "".join(f"H{at}V{level:.1f}" for at, level in places) + f"H{round(x(last), 1)}"
    fill = f"<path class='fill {one.style}' d='{path}V{base:.1f}H{start}Z'/>" if "area" in one.style else ""
    return f"{fill}<path class='line {one.style}' d='{path}'/>"


def _apart(ends: list[tuple[float, _Series]]) -> list[tuple[float, _Series]]:
    """Moves labels that would overlap apart, upwards from the lowest."""
    placed: list[tuple[float, _Series]] = []
    for at, one in sorted(ends, key=lambda end: -end[0]):
        placed.append((min(at, placed[-1][0] - 15) if placed else at, one))
    return placed


def _ticks(first: float, last: float, count: int) -> list[tuple[float, str]]:
    """About ``count`` round moments and their texts."""
    span = last - first
    step = next((step for step in _STEPS if step >= span / count), None) or _round_up(span / (count + 1) / _DAY) * _DAY
    places = [math.ceil(first / step) * step + i * step for i in range(12)]
    form = "%Y-%m-%d" if step >= _DAY else "%d %b %H:%M" if span > _DAY / 2 else "%H:%M" if step >= 60 else "%H:%M:%S"
    texts = []
    for at in (place for place in places if place <= last):
        text = datetime.fromtimestamp(round(at, 3), UTC).strftime(form)
        texts.append((at, text + (f"{at % 1:.3f}"[1:] if step < 0.1 else f"{at % 1:.1f}"[1:] if step < 1 else "")))
    return texts


def _round_up(number: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``number``."""
    power = 10.0 ** math.floor(math.log10(number))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number * (1 - 1e-9))


def _moment(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _when(at: str) -> str:
    return escape(at[:10] if at[11:19] == "23:59:59" else at[:19].replace("T", " "))


def _amount(loss: Epsilon | None) -> str:
    return "" if loss is None else str(loss)


def _whose(refusal: Line) -> str:
    return "under the own limit" if refusal.scope == "analyst" else "under the cap"


def _clip(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _text(text: str) -> str:
    return escape(printable(text))


STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6575; --paper: #fff; --card: #f3f5f8; --line: #d7dce3; --bad: #b3261e; --good:
#1b7a43; --s0: #1463a5; --s1: #b3560b; --s2: #1a7f5a; --s3: #8a3ea8; --s4: #806600; --s5: #b0264f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a0a9b8; --paper: #14181f; --card: #1e242e; --line: #38414f; --bad:
#ff8a80; --good: #6fd39a; --s0: #6db3f2; --s1: #f0a35e; --s2: #58c9a0; --s3: #cf95e8; --s4: #d9c04a; --s5: #f585a5; } }
* { box-sizing: border-box } body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 1180px; margin: 0 auto; padding: 1.5rem 1rem 3rem } h1 { font-size: 1.6rem; margin: 0 0 1rem }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem } h1, figcaption b, .w { overflow-wrap: anywhere }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: .7rem }
.card { background: var(--card); border-radius: 8px; padding: .7rem .9rem }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums }
.card small, .card > span { color: var(--soft); font-size: .82rem; font-weight: normal }
section p { color: var(--soft); font-size: .88rem; margin: 0 0 .5rem } figure { margin: 0 0 1.4rem } figcaption { margin-bottom: .2rem }
.key { color: var(--soft); font-size: .85rem } svg { width: 100%; height: auto; display: block }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; font-variant-numeric: tabular-nums } svg .name { font-weight: 600 }
.grid { stroke: var(--line); stroke-width: 1 } .tick { stroke: var(--soft) }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round } .fill { fill: var(--c); opacity: .14 }
svg .name { fill: var(--c) } .limit { --c: var(--soft) } .line.limit { stroke-dasharray: 7 5 } .joint { --c: var(--ink) }
.line.joint { stroke-width: 3 } .s0 { --c: var(--s0) } .s1 { --c: var(--s1) } .s2 { --c: var(--s2) } .s3 { --c: var(--s3) }
.s4 { --c: var(--s4) } .s5 { --c: var(--s5) } .refusal path { stroke: var(--bad); stroke-width: 2.5; fill: none } .wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); padding: .35rem .9rem .35rem 0;
vertical-align: bottom }
td { border-bottom: 1px solid var(--line); padding: .35rem .9rem .35rem 0; vertical-align: top; white-space: nowrap }
td.w { white-space: normal; min-width: 7em } .n { text-align: right } .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden;
clip-path: inset(50%); white-space: nowrap } .bar { width: 4rem; height: .55rem; display: inline-block; border-radius: 3px } .bar rect { fill: var(--s0) }
.bar .all { fill: var(--line) } .phone { display: none } @media screen and (max-width: 640px) { .phone { display: block } .desk { display: none } }
@media print { html { font-size: 11px } body { font-size: 11px } main { max-width: none; padding: 0 } table { font-size: 9px } .wide { overflow: visible }
td, th { padding-right: .5rem; white-space: normal } td.w { min-width: 5em } .wide .bar { display: none } figure, tr, .card { break-inside: avoid }
h2, thead { break-after: avoid } }
@media screen and (max-width: 1100px) { td, th { padding-right: .5rem } .wide .bar { width: 2.5rem } }
@media screen and (max-width: 1000px) { /* each row of a table is a card */
.wide table, .wide tbody { display: block } .wide thead { display: block; position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
.wide tr { display: flex; flex-wrap: wrap; gap: .15rem 1.2rem; padding: .7rem 0; border-bottom: 1px solid var(--line) }
.wide tbody :is(td, th) { display: block; padding: 0; border: 0; white-space: normal; text-align: left } .wide td:empty { display: none }
.wide tbody .w { flex: 1 0 100% } td[data-label]::before { content: attr(data-label) " "; color: var(--soft); font-size: .82rem }
td[data-label]::first-letter { text-transform: uppercase } }
:focus-visible { outline: 3px solid var(--s0); outline-offset: 2px } .state { font-weight: 600 }
.active { color: var(--good) } .spent, .expired, .revoked, .no-grant, .cap-reached { color: var(--bad) }
footer { color: var(--soft); margin-top: 2.5rem; font-size: .85rem }
"""
