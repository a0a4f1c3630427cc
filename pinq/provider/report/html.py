# SPDX-License-Identifier: Apache-2.0
"""The audit as one HTML page, without scripts and without other files; ``markup.py`` escapes every text.

Lines of pictures stretch with the page and texts keep their size, so a picture fits desks and phones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from pinq.ledger.composition import COUNTED
from pinq.ledger.state import Account
from pinq.provider.report.audit import Audit, AuditLine
from pinq.provider.report.markup import Html, amount, element, escaped, joined, when
from pinq.public.epsilon import Epsilon

MAX_CHARTS, MAX_COLOURS, MAX_MARKS = 24, 6, 200
WIDTH, HEIGHT = 1000, 100  # units of a picture; the page stretches it


@dataclass(frozen=True)
class _Steps:
    label: str
    style: str
    points: list[tuple[float, int]]

    @classmethod
    def of(cls, label: str, style: str, lines: Sequence[AuditLine], field: str) -> _Steps:
        """Takes the moments at which a loss changed from the log; a cap of 0 is not drawn."""
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
    # The line of a single analyst would coincide with that of all together; many lines cannot be distinguished.
    shown = each if 1 < len(each) <= MAX_COLOURS else []
    together = _Steps.of("all together", "joint", audit.lines, "joint")
    about = f"{audit.joint} of {audit.cap} spent by {len(each)} {'analyst' if len(each) == 1 else 'analysts'}."
    refused = [line for line in audit.exhaustion if line.scope == "cap"]
    cap = _Steps.of("cap", "limit", audit.lines, "cap")
    return _figure("All analysts together, against the cap", about, [*shown, together, cap], refused)


def charts_of_each(audit: Audit) -> Html:
    """Draws each analyst's spending against the analyst's limit."""
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
    series = [steps for steps in series if steps.points]
    # The axis of time starts at the first spending, which may be long after the grant.
    spending = [at for steps in series if steps.style != "limit" for at, nano in steps.points if nano]
    spending += [_moment(line.at) for line in refusals]
    if not spending:
        return Html()
    first, last = min(spending), max(at for steps in series for at, _ in steps.points)
    highest = max(nano for steps in series for _, nano in steps.points) or 1

    def position(at: float, nano: int) -> tuple[float, float]:
        within = (min(max(at, first), last) - first) / (last - first or 1)
        return round(WIDTH * within, 1), round(HEIGHT * (1 - nano / highest), 1)

    drawn = [_path(steps, position) for steps in series]
    drawn += [_mark(line, position(_moment(line.at), 0)[0]) for line in refusals[-MAX_MARKS:]]
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


def _path(steps: _Steps, position: Callable[[float, int], tuple[float, float]]) -> Html:
    """Draws a step line from the first moment to the last, with at most one step for each tenth of a unit."""
    heights = dict(position(at, nano) for at, nano in steps.points)
    # A step goes right at the old height, then up to the new height.
    drawn = f"M0 {next(iter(heights.values())) if steps.style == 'limit' else HEIGHT}"
    drawn += "".join(f"H{x}V{y}" for x, y in heights.items()) + f"H{WIDTH}"
    line = element("path", class_=f"line {steps.style}", d=drawn)
    if "area" not in steps.style:
        return line
    return joined([element("path", class_=f"fill {steps.style}", d=f"{drawn}V{HEIGHT}H0Z"), line])


def _mark(line: AuditLine, x: float) -> Html:
    """Draws a line at a refusal, with details under the pointer."""
    request = f"{line.analyst} asked {amount(line.asked)}"
    title = element("title", f"{request}, {amount(line.remaining)} remained {line.budget}, {when(line.at)}")
    return element("g", element("path", d=f"M{x} 0V{HEIGHT}"), title, class_="refusal")


def _moment(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


MAX_ROWS, MAX_QUERIES = 500, 50
STYLE, _SVG = (
    files("pinq.provider.report").joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "mark.svg")
)
MARK = Html(_SVG)

_BREAK, _NEWLINE = Html("<br>"), Html("\n")
_PAGE = """<!doctype html>
<html lang='en'><head><meta charset='utf-8'>\
<meta name='viewport' content='width=device-width, initial-scale=1'>\
<meta name='color-scheme' content='light dark'>\
<meta http-equiv='Content-Security-Policy' content="default-src 'none'; style-src 'unsafe-inline'">\
<title>{title}</title><style>{style}</style></head>
<body><header>{mark}<span>pinq</span></header><main>
{body}
</main></body></html>
"""


def page(audit: Audit) -> str:
    """Writes the report as one page."""
    analyst = f" for {audit.only}" if audit.only else ""
    title = f"Audit of {audit.dataset}{analyst}"
    charts = joined([chart_of_all(audit) if audit.only is None else "", charts_of_each(audit)])
    pieces = [
        element("h1", title),
        _cards(audit),
        element("section", element("h2", "Spending against the limits"), charts) if charts else "",
        _analysts(audit),
        *_tables(audit),
        element(
            "footer",
            f"Replayed from the log alone{f': {audit.ledger}' if audit.ledger else ''}. ",
            Html("Losses are epsilons in the policy's terms; times are UTC. "),
            element("code", "pinq audit --csv"),
            " has every event.",
        ),
    ]
    return document(title, joined(filter(None, pieces), _NEWLINE))


def document(title: str, body: Html) -> str:
    """Writes a self-contained page."""
    mark = MARK.replace(' xmlns="http://www.w3.org/2000/svg"', "")  # a picture inside a page does not need it
    return _PAGE.format(title=escaped(title), style=STYLE, mark=mark, body=body)


def _cards(audit: Audit) -> Html:
    answered = sum(account.answered for account in audit.accounts.values())
    refused = sum(account.refused.total() for account in audit.accounts.values())
    of_cap = element("small", "of ", _short(audit.cap))
    facts = [
        (
            joined([_short(audit.joint), " ", of_cap]),
            f"spent by all together, under the cap: it counts {COUNTED}",
        ),
        (_short(audit.together.remaining), "remains under the cap"),
        (f"{answered:,}", "queries answered"),
        (f"{refused:,}", "requests refused"),
        *([("retired", audit.follows)] if audit.follows else []),
        ("verified", f"chain of {audit.events:,} events, last {audit.head[:12]}"),
    ]
    shown = (element("div", element("b", number), element("span", text), class_="card") for number, text in facts)
    return element("div", *shown, class_="cards")


def _short(epsilon: Epsilon) -> Html:
    """Shows a loss in four figures, and in full under the pointer."""
    brief, full = epsilon.figures, str(epsilon)
    return escaped(brief) if brief == full else element("span", brief, title=full)


def _bar(spent: Epsilon, limit: Epsilon) -> Html:
    """Draws the used share of a limit. Screen readers skip it, because the numbers are beside it."""
    used = min(100.0, 100 * spent.nano / limit.nano) if limit else 0.0
    whole, part = element("rect", class_="all", width=100, height=6), element("rect", width=f"{used:.4g}", height=6)
    return element(
        "svg", whole, part, class_="bar", viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true"
    )


def _tables(audit: Audit) -> list[Html]:
    return [
        table(title, heads, [_cells(line, heads) for line in lines], nothing)
        for title, heads, lines, nothing in audit.tables()
        if lines or nothing
    ]


def _cells(line: AuditLine, heads: Sequence[str]) -> list[str]:
    """Returns the cells of a line; the queries of an act are in a list that unfolds."""
    cells = line.cells(heads)
    if line.queries:
        shown = [f"{query.about}: {query.outcome}, {amount(query.cost)}" for query in line.queries]
        more = len(shown) - MAX_QUERIES
        items = [element("li", text) for text in shown[:MAX_QUERIES]]
        items += [element("li", f"and {more:,} more")] if more > 0 else []
        about = cells.index(line.about)
        cells[about] = element("details", element("summary", line.about), element("ol", *items))
    return cells


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], nothing: str, note: str = "") -> Html:
    """Makes a section with a table of the last ``MAX_ROWS`` rows; heads as of ``print_table``."""
    key = title.lower().replace(" ", "-")
    heading = element("h2", title, id=key)
    if not rows:
        return element("section", heading, element("p", nothing))
    columns = [(head.rstrip(" >~"), {">": "n", "~": "w"}.get(head[-1])) for head in heads]
    top = element("tr", *(element("th", name, scope="col", class_=kind) for name, kind in columns))
    body = joined((_row(columns, row) for row in rows[-MAX_ROWS:]), _NEWLINE)
    drawn = element(
        "table",
        element("caption", title, class_="unseen"),
        element("thead", top),
        element("tbody", _NEWLINE, body, _NEWLINE),
    )
    note = f"The last {MAX_ROWS:,} of {len(rows):,}." if len(rows) > MAX_ROWS else note
    # A table that is wider than the screen scrolls in a box, which the keyboard must reach.
    box = element("div", drawn, class_="wide", role="group", tabindex=0, aria_labelledby=key)
    return element("section", heading, element("p", note) if note else "", box)


def _row(columns: Sequence[tuple[str, str | None]], cells: Sequence[str]) -> Html:
    return element(
        "tr",
        *(element("td", cell, data_label=name, class_=kind) for (name, kind), cell in zip(columns, cells, strict=True)),
    )


def _analysts(audit: Audit) -> Html:
    heads = [
        "analyst ~",
        "state",
        "limit >",
        "spent >",
        "remaining >",
        "used",
        "requests ~",
        "expires",
        "first",
        "last",
    ]
    rows = [_analyst(account) for account in audit.accounts.values()]
    note = "Unanswered: charged, and no answer given, because a process or its engine failed in between."
    return table("Analysts", heads, rows, "Nobody was granted anything yet.", note)


def _analyst(account: Account) -> list[str]:
    share = 100 * account.spent.nano // account.limit.nano if account.limit else 0
    used = joined([_bar(account.spent, account.limit), f" {share} %"]) if account.limit else ""
    counts = [f"{account.answered:,} answered"]
    counts += [f"{count:,} refused ({reason})" for reason, count in account.refused.items()]
    counts += [f"{account.unanswered:,} unanswered"] if account.unanswered else []
    return [
        account.analyst,
        element("span", account.state, class_=f"state {account.state.replace(' ', '-')}"),
        _short(account.limit),
        _short(account.spent),
        _short(account.remaining),
        used,
        joined(counts, _BREAK),
        when(account.expires) if account.expires else "never",
        *(joined(when(at).split(" "), _BREAK) for at in (account.first, account.last)),
    ]
