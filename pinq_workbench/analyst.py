# SPDX-License-Identifier: Apache-2.0
"""The analyst's pages: a served dataset through its handle only.

Each page builds a ``PageQuery``, which has a plan, an answer and the lines of Python that do the same.
A plan is free. Answers are shown until the workbench stops; after that, ``reuse`` repeats them at no cost.
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
from miners.budget.plan import Plan, WishList, loss_text
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
BINS = 5  # groups of a numeric column for which neither the form nor the policy has cuts
DRAWN_ROWS = 1000  # synthetic rows in the file; Python draws any number at no cost
LINKS = {"Columns": "/", "Tables": "/tables", "Models": "/models", "Plan": "/plan", "History": "/history"}
_picture_lock = threading.Lock()  # neither matplotlib nor warnings.catch_warnings is safe in several threads


@dataclass(frozen=True)
class PageResult:
    """An answer.

    Attributes:
        title: The title of the result.
        html: The result as a notebook shows it.
        picture: An SVG file.
        files: The files that can be saved, by name.
        lines: The lines of Python that make it.
        warnings: The warnings of a fit.
        frame: The numbers of a table.
    """

    title: str
    html: str
    picture: bytes
    files: dict[str, str]
    lines: str
    warnings: tuple[str, ...] = ()
    frame: pd.DataFrame | None = None


@dataclass(frozen=True)
class PageQuery:
    """A query that a page can send.

    Attributes:
        plan: A function that returns its cost and accuracy; free.
        ask: A function that sends the query.
        lines: The lines of Python that do the same with a handle ``h``.
    """

    plan: Callable[[], Plan]
    ask: Callable[[], PageResult]
    lines: str


class Analyst:
    """The pages of a dataset that is served.

    Args:
        url: The address of the dataset.
        words: Further arguments of ``connect``; its errors are raised here.

    Attributes:
        drafts: The typed values, by page.
        results: The answers, the last first.
        wishes: The planned queries, not sent yet.
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
        page("/tables")(lambda: self._query_page("Tables", _table_query, self._table_fields))
        page("/models")(lambda: self._query_page("Models", _model_query, self._model_fields))
        page("/plan")(self._plan)
        page("/history")(self._history)

    def _budget(self) -> None:
        """Shows the last known budget at the top of each page, in all tabs."""
        ui.label().classes("budget").bind_text_from(self, "budget", _budget_text)

    async def _look(self, label: ui.label) -> None:
        """Reads the budget anew (free), for all pages."""
        self.budget = await attempt(label, lambda: self.handle.budget) or self.budget

    async def _columns(self) -> None:
        schema = self.handle.schema
        with frame(f"Columns of {self.url.rpartition('/')[2]}", LINKS, self._budget):
            await self._look(tell())
            unit = "a row" if schema.privacy_unit == "row" else "a person, with all their rows,"
            ui.label(f"At most {schema.max_rows:,} rows. The presence of {unit} is hidden. All facts here are public.")
            rows = [[name, column.describe()] for name, column in schema.columns.items()]
            table("Columns", ["column", "what it holds"], rows)
            command(f"import pathlib, pinq\nh = pinq.connect({self.url!r}, token=pathlib.Path('FILE'))", "In Python")

    async def _history(self) -> None:
        with frame("History", LINKS, self._budget):
            await self._look(tell())
            history = await attempt(tell(), self.handle.history)
            if history is not None:
                _notebook(_html(history))
                command("h.history()", "In Python")
                self._downloads(history.to_csv(index=False))

    def _downloads(self, history: str) -> None:
        """Offers the history: the log, the numbers of this workbench's tables, and a notebook that repeats them."""
        frames = [
            result.frame.assign(table=result.title) for result in reversed(self.results) if result.frame is not None
        ]
        files = {"history.csv": history}
        if frames:
            import pandas as pd

            files["answers.csv"] = pd.concat(frames).to_csv(index=False)
        if self.results:
            files["answers.ipynb"] = notebook_of(self.url, [result.lines for result in reversed(self.results)])
        _save_buttons(files)

    async def _plan(self) -> None:
        with frame("Plan", LINKS, self._budget):
            await self._look(tell())
            self._plan_list()

    @ui.refreshable_method
    def _plan_list(self) -> None:
        """Shows the planned queries and their total beside the budget; drawn again in all tabs."""
        if not self.wishes:
            ui.label("Nothing is planned yet. Add tables and models on their pages, which sends no query.")
            return
        plans = [query.plan() for query in self.wishes]

        def remove(number: int) -> None:
            self.wishes.pop(number)
            self._plan_list.refresh()

        def ask() -> list[PageResult]:
            if (wishes := WishList.of(self.handle, *plans)).remainder < 0:
                raise QueryError(f"{wishes.verdict} Remove something, or take less epsilon for it.")
            return [query.ask() for query in self.wishes]

        async def answered(results: list[PageResult]) -> None:
            self.wishes.clear()
            self.results[:0] = reversed(results)
            self._results.refresh()
            await self._look(tell())
            ui.navigate.to("/tables")

        with section("What all of it would cost", "Free: nothing has been asked yet."):
            _notebook(_html(WishList.of(self.handle, *plans)))
            with row():
                for number, plan in enumerate(plans):
                    button = ui.button(f"Remove {plan.title}", on_click=partial(remove, number))
                    button.props("no-caps outline dense")
            ActionButton("Ask all of it", ask, answered)
            command("\n\n".join(query.lines for query in self.wishes), "The same in Python")

    async def _query_page(
        self,
        title: str,
        read: Callable[[Inputs, PrivateQueryable], PageQuery],
        choices: Callable[[Inputs, Redraw], None],
    ) -> None:
        """Makes a page: the query, its cost, then the answers."""
        draft, progress = self.drafts.setdefault(title, Inputs(epsilon="0.1")), [Fraction(0), Fraction(0)]

        @ui.refreshable
        def price() -> None:
            try:
                query = read(draft, self.handle)
                _notebook(_html(query.plan()))
                command(query.lines, "The same in Python")
            except PinqError as error:
                tell(str(error), "quiet")

        def ask() -> PageResult:
            query = read(draft, self.handle)
            progress[:] = self.handle.budget.spent, query.plan().total
            return query.ask()

        async def watch(label: ui.label) -> None:
            await self._look(tell())
            spent_before, total = progress
            if self.budget is not None and total:
                label.text = (
                    f"Asking: {min(1, (self.budget.spent - spent_before) / total):.0%} of the price is paid ..."
                )

        with frame(title, LINKS, self._budget):
            await self._look(tell())
            with section("What to ask"):
                choices(draft, lambda: price.refresh())
                with section("What it costs", "Free: nothing has been asked yet."):
                    price()
                ActionButton("Ask", ask, self._answered, watch=watch)
                ActionButton("Add to the plan", lambda: self._wish(read(draft, self.handle)), _planned, main=False)
            self._results()

    def _wish(self, query: PageQuery) -> int:
        """Adds a query to the plan; returns the number of planned queries. Raises ``QueryError`` if it is invalid."""
        query.plan()
        self.wishes.append(query)
        return len(self.wishes)

    async def _answered(self, result: PageResult) -> None:
        self.results.insert(0, result)
        self._results.refresh()
        await self._look(tell())

    @ui.refreshable_method
    def _results(self) -> None:
        """Shows all answers, in all tabs."""
        if not self.results:
            ui.label("Answers will stand here. They stay until the workbench is stopped.").classes("quiet")
        for result in self.results:
            with section(result.title):
                source = f"data:image/svg+xml;base64,{base64.b64encode(result.picture).decode()}"
                ui.element("img").classes("picture").props.update({"src": source, "alt": result.title})
                for warning in result.warnings:
                    tell(warning, "quiet")
                _notebook(result.html)
                _save_buttons(result.files)
                command(result.lines, "The same in Python")

    def _table_fields(self, draft: Inputs, changed: Redraw) -> None:
        schema = self.handle.schema
        names = list(schema.columns)

        @ui.refreshable
        def details() -> None:
            """The further fields for the chosen columns."""
            cut_columns = [draft.get("by")] + ([draft.get("column")] if draft.get("kind") == "crosstab" else [])
            hint = "30, 45; if empty, the policy's cuts, or else even ones"
            numeric = [name for name in cut_columns if name and schema.columns[name].type != "categorical"]
            fields(draft, {f"cut {name}": f"Cut {name} at\n{hint}" for name in numeric}, changed)
            if draft.get("kind") == "survival":
                with row():
                    choice("Event", names, draft, "event", update, clearable=True)
                    event = draft.get("event")
                    if event and schema.columns[event].type == "categorical":
                        labels = [label for label in schema.columns[event].labels_up_to(BINS) if label is not None]
                        choice("The event is", labels, draft, "observed", changed)
            condition = draft.get("where")
            if condition and schema.columns[condition].type == "categorical":
                values = [label for label in schema.columns[condition].labels_up_to(BINS) if label is not None]
                choice(f"{condition} is", values, draft, f"is {condition}", changed)
            elif condition:
                fields(
                    draft,
                    {f"from {condition}": f"{condition} is at least", f"to {condition}": f"{condition} is below"},
                    changed,
                )

        def update() -> None:
            details.refresh()
            changed()

        draft.setdefault("kind", "crosstab")
        with row():
            choice("Kind", KINDS, draft, "kind", update)
            choice("Column", names, draft, "column", update, clearable=True)
            choice("By (optional)", names, draft, "by", update, clearable=True)
            choice("Only rows where (optional)", names, draft, "where", update, clearable=True)
        fields(draft, {"epsilon": "Epsilon"}, changed)
        details()

    def _model_fields(self, draft: Inputs, changed: Redraw) -> None:
        draft.setdefault("kind", "DiffPC45")
        with row():
            choice("Model", MODELS, draft, "kind", changed)
            choice("Target", list(self.handle.schema.columns), draft, "target", changed, clearable=True)
        fields(draft, {"epsilon": "Epsilon"}, changed)


def _table_query(draft: Inputs, handle: PrivateQueryable) -> PageQuery:
    """Reads the form of a table. Raises ``QueryError`` if something is missing or wrong."""
    kind, column, by, schema = draft["kind"], draft.get("column"), draft.get("by"), handle.schema
    if not column and kind != "summary":
        raise QueryError("Choose a column.")
    groups = None if not by else _parts(by, draft, schema)
    arguments: dict[str, Any] = {"epsilon": draft.get("epsilon") or ""}
    match kind:
        case "crosstab":
            arguments |= {"rows": _parts(str(column), draft, schema)} | ({"columns": groups} if groups else {})
        case "grouped":
            arguments |= {"by": groups, "statistics": {column: ["mean"]}}
        case "compare" if not by:
            raise QueryError("Choose the groups to compare, in By.")
        case "survival" if not draft.get("event"):
            raise QueryError("Choose the column of the event; the column above is the time until then.")
        case "survival":
            arguments |= {"time": column, "event": draft["event"], "by": groups, "observed": draft.get("observed")}
        case "summary":
            arguments |= {"columns": column or None, "by": groups}
        case _:
            arguments |= {"column": column, "by": groups}
    conditions = _conditions(draft, schema)
    argument_text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    rows = "h" if not conditions else f"where(h, **{conditions!r})"
    specs = "from pinq import Calendar, Cuts, Values\n" if "(column=" in argument_text else ""
    room = statistics if kind in STUDIES else tables
    imports = f"from {room.__name__} import {kind}\nfrom miners.tables import where\n{specs}"
    lines = f"{imports}table = {kind}({rows}, {argument_text}, reuse=True)"
    selection, function = tables.where(handle, **conditions), getattr(room, kind)

    def ask() -> PageResult:
        result = function(selection, **arguments, reuse=True)
        numbers = result.to_frame()
        files = {"table.csv": numbers.to_csv(index=False)}
        return PageResult(result.title, _html(result), _svg(result.plot), files, lines, frame=numbers)

    return PageQuery(lambda: function.plan(selection, **arguments), ask, lines)


def _model_query(draft: Inputs, handle: PrivateQueryable) -> PageQuery:
    """Reads the form of a model. Raises ``QueryError`` if something is missing."""
    kind, target = draft["kind"], draft.get("target")
    if not target and kind != "Synthesizer":
        raise QueryError("Choose a target: the column to predict.")
    arguments = {"epsilon": str(draft.get("epsilon") or "")} | ({"random_state": 0} if kind == "Synthesizer" else {})
    miner = getattr(miners, kind)(**arguments)
    lines = f"import miners\nmodel = miners.{kind}(**{arguments!r}).fit(h, {target!r}, reuse=True)"

    def ask() -> PageResult:
        with _picture_lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", miners.FitWarning)
            fitted = miner.fit(handle, target, reuse=True)
        fit_warnings = tuple(str(warning.message) for warning in caught if warning.category is miners.FitWarning)
        files = {"model.json": fitted.to_json(), "card.md": fitted.card().to_markdown()}
        if kind == "Synthesizer":
            files["rows.csv"] = fitted.sample(DRAWN_ROWS, random_state=0).to_csv(index=False)
        title = f"{MODELS[kind]} of {target or 'all columns'}"
        return PageResult(title, _html(fitted), _svg(fitted.plot), files, lines, fit_warnings)

    return PageQuery(lambda: miner.plan(handle.schema, target), ask, lines)


def _parts(column: str, draft: Inputs, schema: Schema) -> Any:
    """A column as groups: its values, or intervals with the cuts of the form, else of the policy, else even ones."""
    declaration, points = schema.columns[column], str(draft.get(f"cut {column}") or "").replace(" ", "")
    if declaration.type == "categorical":
        return column
    if points:
        return spec(f"{column}:{points}", schema)
    return column if declaration.cuts else even_cuts(schema, column, BINS)


def _conditions(draft: Inputs, schema: Schema) -> dict[str, Any]:
    """The condition on rows, as arguments of ``where``."""
    column = draft.get("where")
    if not column:
        return {}
    if schema.columns[column].type == "categorical":
        if draft.get(f"is {column}") is None:  # None stands for rows without a value
            raise QueryError(f"Choose which {column}.")
        return {column: draft[f"is {column}"]}
    return {column: tuple(_number(draft.text(f"{end} {column}")) for end in ("from", "to"))}


def _number(text: str | None) -> float | str | None:
    """A number; or a date, as text."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _planned(number: int) -> None:
    tell(f"It is in the plan, with {number:,} in all. Nothing was asked.", "good")
    ui.link("Plan", "/plan")


def notebook_of(url: str, cells: Sequence[str]) -> str:
    """Writes a notebook that sends all queries again; ``reuse`` answers paid ones at no cost.

    Args:
        url: The address of the dataset.
        cells: The lines of each answer.
    """
    options = ", insecure_http=True" if url.startswith("http://") else ""
    connect = (
        f"from getpass import getpass\nimport pinq\n\nh = pinq.connect({url!r}, token=getpass('Token: '){options})"
    )
    cells_with_value = [
        f"{text}\n{text.rpartition(chr(10))[2].partition(' ')[0]}" for text in cells
    ]  # the last line shows the value
    code_cell: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    notebook_cells = [
        {"id": f"cell-{number}", "source": text, **code_cell}
        for number, text in enumerate([connect, *cells_with_value])
    ]
    return json.dumps({"cells": notebook_cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _html(value: Any) -> str:
    """A value as a notebook shows it."""
    return str(value._repr_html_())


def _notebook(html: str) -> None:
    """Shows HTML as a notebook does. A server may have sent its texts, so the browser removes scripts."""
    ui.html(html).classes("notebook wide").props("tabindex=0")


def _save_buttons(files: Mapping[str, str]) -> None:
    """Makes a button for each file that can be saved, by name."""
    with row():
        for name, text in files.items():
            ui.button(f"Keep {name}", on_click=partial(ui.download.content, text, name)).props("no-caps outline")


def _budget_text(budget: Budget | None) -> str:
    if budget is None:
        return ""
    spent, limit, remaining = (loss_text(loss) for loss in (budget.spent, budget.epsilon, budget.remaining))
    return f"{spent} of epsilon {limit} spent, {remaining} remains"


def _svg(plot: Callable[[], Any]) -> bytes:
    """A picture as an SVG file."""
    with _picture_lock:
        figure, file = plot().figure, io.BytesIO()
        figure.savefig(file, format="svg", bbox_inches="tight")
        pyplot.close(figure)
        return file.getvalue()
