# SPDX-License-Identifier: Apache-2.0
"""The analyst's pages: a served dataset through its handle only.

Each page builds a query, a value that knows its plan, its answer and the lines of Python that do the
same; the page before a query is free, and an answer stays until the workbench is stopped.
Then ``reuse`` gives it again for nothing.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib import pyplot
from nicegui import ui

import miners
from miners import statistics, tables
from miners.budget.plan import Plan, loss_text
from miners.budget.wish_list import WishList
from miners.tables.columns import even_cuts
from pinq.analyst.client import connect
from pinq.analyst.queryable import PrivateQueryable
from pinq.cli.ask import spec
from pinq.errors import PinqError, QueryError
from pinq.language.queries import Budget
from pinq.public.schema import Schema
from pinq_workbench.parts import (
    ActionButton,
    Inputs,
    Redraw,
    attempt,
    choice,
    command,
    fields,
    frame,
    page,
    row,
    section,
    table,
    tell,
)

if TYPE_CHECKING:
    import pandas as pd

KINDS = {
    "crosstab": "Cross table",
    "histogram": "Histogram",
    "quantiles": "Quantiles",
    "grouped": "Averages",
    "summary": "Summary",
    "compare": "Compare groups",
    "survival": "Survival",
}
STUDIES = ("compare", "survival")  # of miners.statistics
MODELS = {
    "DiffPC45": "Decision tree",
    "Scorecard": "Scorecard",
    "ScorecardRegressor": "Scorecard of a number",
    "LinearRegression": "Linear regression",
    "LinearDiscriminant": "Linear discriminant",
    "Synthesizer": "Synthetic rows",
}
BINS = 5  # of a number without cuts, given or in the policy
DRAWN_ROWS = 1000  # of a synthesizer, to look at; any number more is free
LINKS = {"Columns": "/", "Tables": "/tables", "Models": "/models", "Plan": "/plan", "History": "/history"}
_alone = threading.Lock()  # matplotlib draws one picture at a time, and Python notes warnings of one at a time


@dataclass(frozen=True)
class PageResult:
    """An answer.

    Attributes:
        title: The title of the result.
        html: As a notebook shows it.
        picture: An SVG file.
        files: The files that can be saved, by name.
        lines: The lines of Python that make it.
        doubts: The warnings of a fit.
        frame: The numbers of a table.
    """

    title: str
    html: str
    picture: bytes
    files: dict[str, str]
    lines: str
    doubts: tuple[str, ...] = ()
    frame: pd.DataFrame | None = None


@dataclass(frozen=True)
class PageQuery:
    """A query that a page can send.

    Attributes:
        plan: A function that says what it would cost and how exact it would be; free.
        ask: A function that asks it.
        lines: The lines of Python that do the same with a handle ``h``.
    """

    plan: Callable[[], Plan]
    ask: Callable[[], PageResult]
    lines: str


class Analyst:
    """The pages of a dataset that is served.

    Args:
        url: The address of the dataset.
        words: Further arguments of ``connect``, whose errors it raises.

    Attributes:
        drafts: The typed values, by page.
        results: The answers, the last first.
        wishes: The planned queries, not asked yet.
        budget: The budget as last read.
    """

    def __init__(self, url: str, **words: Any) -> None:
        self.url, self.handle = url, connect(url, **words)
        self.drafts, self.results, self.wishes = dict[str, Inputs](), list[PageResult](), list[PageQuery]()
        self.budget: Budget | None = None

    def register(self) -> None:
        """Declares the pages."""
        mpl.use("Agg")
        page("/")(self._columns)
        page("/tables")(lambda: self._asking("Tables", _table_asked, self._table_fields))
        page("/models")(lambda: self._asking("Models", _model_asked, self._model_fields))
        page("/plan")(self._plan)
        page("/history")(self._history)

    def _budget(self) -> None:
        """Shows the remaining budget, as far as it is known, in the head of each page, in all tabs."""
        ui.label().classes("budget").bind_text_from(self, "budget", _left)

    async def _look(self, label: ui.label) -> None:
        """Asks for the budget, which is free; the pages show it."""
        self.budget = await attempt(label, lambda: self.handle.budget) or self.budget

    async def _columns(self) -> None:
        schema = self.handle.schema
        with frame(f"Columns of {self.url.rpartition('/')[2]}", LINKS, self._budget):
            await self._look(tell())
            unit = "a row" if schema.privacy_unit == "row" else "a person, with all rows of theirs"
            ui.label(f"At most {schema.max_rows:,} rows. Hidden is the presence of {unit}. All of this is public.")
            rows = [[name, one.describe()] for name, one in schema.columns.items()]
            table("Columns", ["column", "what it holds"], rows)
            command(f"import pathlib, pinq\nh = pinq.connect({self.url!r}, token=pathlib.Path('FILE'))", "In Python")

    async def _history(self) -> None:
        with frame("History", LINKS, self._budget):
            await self._look(tell())
            history = await attempt(tell(), self.handle.history)
            if history is not None:
                _notebook(_shown(history))
                command("h.history()", "In Python")
                self._downloads(history.to_csv(index=False))

    def _downloads(self, history: str) -> None:
        """Offers the history: the log, the numbers of this workbench's tables, and a notebook that repeats them."""
        frames = [one.frame.assign(table=one.title) for one in reversed(self.results) if one.frame is not None]
        files = {"history.csv": history}
        if frames:
            import pandas as pd

            files["answers.csv"] = pd.concat(frames).to_csv(index=False)
        if self.results:
            files["answers.ipynb"] = notebook_of(self.url, [one.lines for one in reversed(self.results)])
        _keep(files)

    async def _plan(self) -> None:
        with frame("Plan", LINKS, self._budget):
            await self._look(tell())
            self._wished()

    @ui.refreshable_method
    def _wished(self) -> None:
        """Shows the planned queries and their total beside the budget; drawn again in all tabs."""
        if not self.wishes:
            ui.label("Nothing is planned yet. Add tables and models on their pages; nothing is asked by that.")
            return
        plans = [query.plan() for query in self.wishes]

        def remove(number: int) -> None:
            self.wishes.pop(number)
            self._wished.refresh()

        def ask() -> list[PageResult]:
            if (wishes := WishList.of(self.handle, *plans)).left < 0:
                raise QueryError(f"{wishes.verdict} Remove something, or take less epsilon for it.")
            return [query.ask() for query in self.wishes]

        async def answered(results: list[PageResult]) -> None:
            self.wishes.clear()
            self.results[:0] = reversed(results)
            self._results.refresh()
            await self._look(tell())
            ui.navigate.to("/tables")

        with section("What all of it would cost", "Before asking, and free."):
            _notebook(_shown(WishList.of(self.handle, *plans)))
            with row():
                for number, plan in enumerate(plans):
                    out = ui.button(f"Remove {plan.title}", on_click=partial(remove, number))
                    out.props("no-caps outline dense")
            ActionButton("Ask all of it", ask, answered)
            command("\n\n".join(query.lines for query in self.wishes), "The same in Python")

    async def _asking(
        self,
        title: str,
        read: Callable[[Inputs, PrivateQueryable], PageQuery],
        choices: Callable[[Inputs, Redraw], None],
    ) -> None:
        """Makes a page: the query, its cost, then the answers."""
        draft, paid = self.drafts.setdefault(title, Inputs(epsilon="0.1")), [Fraction(0), Fraction(0)]

        @ui.refreshable
        def price() -> None:
            try:
                query = read(draft, self.handle)
                _notebook(_shown(query.plan()))
                command(query.lines, "The same in Python")
            except PinqError as error:
                tell(str(error), "quiet")

        def ask() -> PageResult:
            query = read(draft, self.handle)
            paid[:] = self.handle.budget.spent, query.plan().total
            return query.ask()

        async def watch(label: ui.label) -> None:
            await self._look(tell())
            before, whole = paid
            if self.budget is not None and whole:
                label.text = f"Asking: {min(1, (self.budget.spent - before) / whole):.0%} of the price is paid ..."

        with frame(title, LINKS, self._budget):
            await self._look(tell())
            with section("What to ask"):
                choices(draft, lambda: price.refresh())
                with section("What it costs", "Before asking, and free."):
                    price()
                ActionButton("Ask", ask, self._answered, watch=watch)
                ActionButton("Add to the plan", lambda: self._wish(read(draft, self.handle)), _planned, main=False)
            self._results()

    def _wish(self, query: PageQuery) -> int:
        """Notes a query for later. Raises ``QueryError`` if it has no plan; returns the number of those that wait."""
        query.plan()
        self.wishes.append(query)
        return len(self.wishes)

    async def _answered(self, result: PageResult) -> None:
        self.results.insert(0, result)
        self._results.refresh()
        await self._look(tell())

    @ui.refreshable_method
    def _results(self) -> None:
        """Shows what was answered, in all tabs."""
        if not self.results:
            ui.label("Answers will stand here. They stay until the workbench is stopped.").classes("quiet")
        for result in self.results:
            with section(result.title):
                source = f"data:image/svg+xml;base64,{base64.b64encode(result.picture).decode()}"
                ui.element("img").classes("picture").props.update({"src": source, "alt": result.title})
                for doubt in result.doubts:
                    tell(doubt, "quiet")
                _notebook(result.html)
                _keep(result.files)
                command(result.lines, "The same in Python")

    def _table_fields(self, draft: Inputs, changed: Redraw) -> None:
        schema = self.handle.schema
        names = list(schema.columns)

        @ui.refreshable
        def details() -> None:
            """The further fields for the chosen columns."""
            cut = [draft.get("by")] + ([draft.get("column")] if draft.get("kind") == "crosstab" else [])
            hint = "30, 45; left empty, as the policy cuts it or evenly"
            cuts = [name for name in cut if name and schema.columns[name].type != "categorical"]
            fields(draft, {f"cut {name}": f"Cut {name} at\n{hint}" for name in cuts}, changed)
            if draft.get("kind") == "survival":
                with row():
                    choice("Event", names, draft, "event", again, clearable=True)
                    event = draft.get("event")
                    if event and schema.columns[event].type == "categorical":
                        ends = [one for one in schema.columns[event].labels_up_to(BINS) if one is not None]
                        choice("The event is", ends, draft, "observed", changed)
            only = draft.get("where")
            if only and schema.columns[only].type == "categorical":
                values = [one for one in schema.columns[only].labels_up_to(BINS) if one is not None]
                choice(f"{only} is", values, draft, f"is {only}", changed)
            elif only:
                fields(draft, {f"from {only}": f"{only} is at least", f"to {only}": f"{only} is below"}, changed)

        def again() -> None:
            details.refresh()
            changed()

        draft.setdefault("kind", "crosstab")
        with row():
            choice("Kind", KINDS, draft, "kind", again)
            choice("Column", names, draft, "column", again, clearable=True)
            choice("By (optional)", names, draft, "by", again, clearable=True)
            choice("Only rows where (optional)", names, draft, "where", again, clearable=True)
        fields(draft, {"epsilon": "Epsilon"}, changed)
        details()

    def _model_fields(self, draft: Inputs, changed: Redraw) -> None:
        draft.setdefault("kind", "DiffPC45")
        with row():
            choice("Model", MODELS, draft, "kind", changed)
            choice("Target", list(self.handle.schema.columns), draft, "target", changed, clearable=True)
        fields(draft, {"epsilon": "Epsilon"}, changed)


def _table_asked(draft: Inputs, handle: PrivateQueryable) -> PageQuery:
    """Reads the form of a table. Raises ``QueryError`` if something is missing or wrong."""
    kind, column, by, schema = draft["kind"], draft.get("column"), draft.get("by"), handle.schema
    if not column and kind != "summary":
        raise QueryError("Choose a column.")
    groups = None if not by else _parts(by, draft, schema)
    asked: dict[str, Any] = {"epsilon": draft.get("epsilon") or ""}
    if kind == "crosstab":
        asked |= {"rows": _parts(str(column), draft, schema)} | ({"columns": groups} if groups else {})
    elif kind == "grouped":
        asked |= {"by": groups, "statistics": {column: ["mean"]}}
    elif kind == "compare":
        if not by:
            raise QueryError("Choose the groups to compare, in By.")
        asked |= {"column": column, "by": groups}
    elif kind == "survival":
        if not draft.get("event"):
            raise QueryError("Choose the column of the event; the column above is the time until then.")
        asked |= {"time": column, "event": draft["event"], "by": groups, "observed": draft.get("observed")}
    elif kind == "summary":
        asked |= {"columns": column or None, "by": groups}
    else:
        asked |= {"column": column, "by": groups}
    conditions = _conditions(draft, schema)
    words = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    rows = "h" if not conditions else f"where(h, **{conditions!r})"
    specs = "from pinq import Calendar, Cuts, Values\n" if "(column=" in words else ""
    room = statistics if kind in STUDIES else tables
    imports = f"from {room.__name__} import {kind}\nfrom miners.tables import where\n{specs}"
    lines = f"{imports}table = {kind}({rows}, {words}, reuse=True)"
    narrowed, function = tables.where(handle, **conditions), getattr(room, kind)

    def ask() -> PageResult:
        made = function(narrowed, **asked, reuse=True)
        numbers = made.to_frame()
        files = {"table.csv": numbers.to_csv(index=False)}
        return PageResult(made.title, _shown(made), _drawn(made.plot), files, lines, frame=numbers)

    return PageQuery(lambda: function.plan(narrowed, **asked), ask, lines)


def _model_asked(draft: Inputs, handle: PrivateQueryable) -> PageQuery:
    """Reads the form of a model. Raises ``QueryError`` if something is missing."""
    kind, target = draft["kind"], draft.get("target")
    if not target and kind != "Synthesizer":
        raise QueryError("Choose a target: the column to predict.")
    words = {"epsilon": str(draft.get("epsilon") or "")} | ({"random_state": 0} if kind == "Synthesizer" else {})
    miner = getattr(miners, kind)(**words)
    lines = f"import miners\nmodel = miners.{kind}(**{words!r}).fit(h, {target!r}, reuse=True)"

    def ask() -> PageResult:
        with _alone, warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", miners.FitWarning)
            made = miner.fit(handle, target, reuse=True)
        doubts = tuple(str(one.message) for one in noted if one.category is miners.FitWarning)
        files = {"model.json": made.to_json(), "card.md": made.card().to_markdown()}
        if kind == "Synthesizer":
            files["rows.csv"] = made.sample(DRAWN_ROWS, random_state=0).to_csv(index=False)
        title = f"{MODELS[kind]} of {target or 'all columns'}"
        return PageResult(title, _shown(made), _drawn(made.plot), files, lines, doubts)

    return PageQuery(lambda: miner.plan(handle.schema, target), ask, lines)


def _parts(column: str, draft: Inputs, schema: Schema) -> Any:
    """A column as groups: by its values, or cut at the given points, at the policy's, or evenly."""
    declared, said = schema.columns[column], str(draft.get(f"cut {column}") or "").replace(" ", "")
    if declared.type == "categorical":
        return column
    if said:
        return spec(f"{column}:{said}", schema)
    return column if declared.cuts else even_cuts(schema, column, BINS)


def _conditions(draft: Inputs, schema: Schema) -> dict[str, Any]:
    """The rows that a query is about, as ``where`` takes them."""
    only = draft.get("where")
    if not only:
        return {}
    if schema.columns[only].type == "categorical":
        if draft.get(f"is {only}") is None:  # which would mean rows without a value
            raise QueryError(f"Choose which {only}.")
        return {only: draft[f"is {only}"]}
    return {only: tuple(_number(draft.said(f"{end} {only}")) for end in ("from", "to"))}


def _number(text: str | None) -> float | str | None:
    """A number, or a date as it is written."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _planned(number: int) -> None:
    tell(f"It is in the plan, with {number:,} in all. Nothing was asked.", "good")
    ui.link("Plan", "/plan")


def notebook_of(url: str, cells: Sequence[str]) -> str:
    """Writes a notebook that asks everything again; ``reuse`` gives what was paid for without a new cost.

    Args:
        url: The address of the dataset.
        cells: The lines of each answer.
    """
    plain = ", insecure_http=True" if url.startswith("http://") else ""
    connect = f"from getpass import getpass\nimport pinq\n\nh = pinq.connect({url!r}, token=getpass('Token: '){plain})"
    shown = [f"{text}\n{text.rpartition(chr(10))[2].partition(' ')[0]}" for text in cells]  # ends with its value
    empty: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    made = [{"id": f"cell-{number}", "source": text, **empty} for number, text in enumerate([connect, *shown])]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _shown(value: Any) -> str:
    """A value as a notebook shows it."""
    return str(value._repr_html_())


def _notebook(shown: str) -> None:
    """Writes what a notebook would show; its texts may be a server's."""
    ui.html(shown).classes("notebook wide").props("tabindex=0")


def _keep(files: Mapping[str, str]) -> None:
    """Makes a button for each file that can be saved, by name."""
    with row():
        for name, text in files.items():
            ui.button(f"Keep {name}", on_click=partial(ui.download.content, text, name)).props("no-caps outline")


def _left(budget: Budget | None) -> str:
    if budget is None:
        return ""
    spent, whole, left = (loss_text(loss) for loss in (budget.spent, budget.epsilon, budget.remaining))
    return f"{spent} of epsilon {whole} spent, {left} remains"


def _drawn(plot: Callable[[], Any]) -> bytes:
    """A picture as an SVG file."""
    with _alone:
        figure, file = plot().figure, io.BytesIO()
        figure.savefig(file, format="svg", bbox_inches="tight")
        pyplot.close(figure)
        return file.getvalue()
