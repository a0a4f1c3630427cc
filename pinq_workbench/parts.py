# SPDX-License-Identifier: Apache-2.0
"""The common parts of all pages: a frame, fields that survive a reload, acts with their errors in place.

A page's fields write into a dictionary of the process, so a reload, a second tab or a lost connection
loses no typed text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib.resources import files
from typing import Any, TypeVar

from nicegui import run, ui

from pinq.errors import PinqError
from pinq.provider.report.html import MARK
from pinq.provider.report.markup import Html, element, escaped

T = TypeVar("T")
Redraw = Callable[[], object]
# The pages' names of Python's parameters.
LABELS = {
    "analyst": "Analyst",
    "because": "Because",
    "epsilon": "Epsilon",
    "expires": "Until",
    "max_epsilon_per_query": "Most that one query may ask",
    "queries_per_minute": "Queries a minute",
    "since": "From",
    "until": "To",
}
# Patterns of texts about policy files and the command line, and the pages' words for them.
PAGE_WORDS = {
    r"columns\.(.+?)\.(\w+)": r"\1 (\2)",
    r" ?[(]in a policy[^)]*[)]": "",
    r", or `nullable: true`": ", or let a missing value be an answer of its own",
    r"\[lower, upper\]": "the bounds",
    r"privacy_unit: \{column: (\"?)(.+?)\1, max_rows: (\S+)\}": r"\2 as the person, at most \3 rows",
    r"\bprivacy_unit\b": "persons",
    r"\bmax_rows\b": "the number of rows at most",
    r"the next `?pinq grant`? or `?extend`?": "the next grant",
    r"; say which: --sheet NAME": ": choose one",
    r"`pinq \w+[^`]*`": "the workbench",
    r"--(\w+)": r"\1",
    r"`": "",
}
STYLE = files("pinq_workbench").joinpath("style.css").read_text(encoding="utf-8")
READ_SECONDS = 600.0  # a page may read a table or a log before it is shown


class Inputs(dict[str, Any]):
    """The typed values so far, by name."""

    def text(self, name: str) -> str | None:
        """The text of a field without blanks around it; None for an empty one."""
        return str(self.get(name) or "").strip() or None


def page(path: str) -> ui.page:
    """Declares a page."""
    return ui.page(path, response_timeout=READ_SECONDS)


@contextmanager
def frame(title: str, links: Mapping[str, str] | None = None, beside: Redraw = lambda: None) -> Iterator[None]:
    """Makes a page around its content.

    Args:
        title: The title in the window and above the content.
        links: The links to other pages, name to path; the page's own path is marked.
        beside: A function that draws the part that is always in sight.
    """
    ui.page_title(f"{title} - pinq workbench")
    ui.colors(primary="#0b5d66", negative="#a3181b", positive="#14612c")
    ui.add_css(STYLE)
    here = ui.context.client.sub_pages_router.current_path
    with ui.element("header").classes("bench-head full"):
        write(MARK, "span").classes("brand")
        for name, path in (links or {}).items():
            ui.link(name, path).props('aria-current="page"' if path == here else "")
        beside()
    with ui.element("div").classes("bench") as main:
        write(escaped(title), "h1")
        yield
    ui.skip_link(target=main)


def write(text: Html, tag: str = "div") -> ui.html:
    """Writes HTML whose texts are escaped."""
    return ui.html(text, tag=tag, sanitize=False)


@contextmanager
def section(title: str, about: str = "") -> Iterator[None]:
    """Makes a card with a heading and a sentence about its purpose."""
    with ui.card().props("flat bordered tag=section"):
        write(escaped(title), "h2")
        if about:
            ui.label(about).classes("quiet")
        yield


def row() -> ui.element:
    """Makes a row that wraps in a narrow window."""
    return ui.element("div").classes("row-of")


def tell(text: str = "", kind: str = "wrong") -> ui.label:
    """Makes a label for the outcome of an act; its kind is ``wrong``, ``good`` or ``quiet``."""
    return ui.label(text).classes(kind).props(f"role={'alert' if kind == 'wrong' else 'status'}")


def fields(draft: Inputs, labels: Mapping[str, str], changed: Redraw = lambda: None) -> None:
    """Makes a row of fields whose texts survive a reload.

    Args:
        draft: The values of the fields, by name.
        labels: The label of each field, by name; a second line is its hint.
        changed: A function that is called after each change of the draft.
    """
    with row():
        for name, text in labels.items():
            label, _, hint = text.partition("\n")
            field = ui.input(label, value=str(draft.get(name, "")))
            field.props("outlined dense stack-label").props.update({"hint": hint} if hint else {})
            _keep_value(field, draft, name, changed)


def choice(
    label: str, options: Any, draft: Inputs, name: str, changed: Redraw = lambda: None, **words: Any
) -> ui.select:
    """Makes a choice that survives a reload, unless the chosen option is gone."""
    chosen = draft.get(name)
    field = ui.select(options, label=label, value=chosen if chosen in options else None, **words)
    field.props("outlined dense stack-label options-dense")
    _keep_value(field, draft, name, changed)
    return field


def _keep_value(field: Any, draft: Inputs, name: str, changed: Redraw) -> None:
    field.on_value_change(lambda event: (draft.update({name: event.value}), changed()))


def command(text: str, heading: str, *, shown: bool = False) -> None:
    """Shows the lines of Python that do the same."""
    with ui.expansion(heading, value=shown).classes("full").props("dense"):
        write(Html(escape(text)), "pre").classes("line").props("tabindex=0")
        ui.button("Copy", on_click=lambda: ui.clipboard.write(text)).props("flat dense no-caps")


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes a table; a head that ends with `` >`` has numbers, aligned on the right."""
    kinds = ["n" if head.endswith(" >") else None for head in heads]
    head_cells = [
        element("th", head.removesuffix(" >"), scope="col", class_=kind)
        for head, kind in zip(heads, kinds, strict=True)
    ]
    lines = [
        element("tr", *(element("td", str(cell), class_=kind) for cell, kind in zip(cells, kinds, strict=True)))
        for cells in rows
    ]
    caption = element("caption", title)
    html = element(
        "table", caption, element("thead", element("tr", *head_cells)), element("tbody", *lines), class_="cells"
    )
    box = write(html).classes("wide").props("tabindex=0 role=group")
    box.props["aria-label"] = title


def page_words(text: str) -> str:
    """Returns a text in the words of the pages: without a command, or a key of a policy file."""
    for pattern, words in PAGE_WORDS.items():
        text = re.sub(pattern, words, text)
    return text


async def attempt(label: ui.label, call: Callable[[], T]) -> T | None:
    """Calls a function in a thread; the label shows its error.

    Returns:
        The function's result; None after an error.
    """
    label.text = ""
    try:
        return await run.io_bound(call)
    except PinqError as error:
        label.text = page_words(error.worded(LABELS))
    except OSError as error:
        label.text = f"{error.filename or 'A file'}: {error.strerror or 'cannot be used'}."
    except Exception as error:
        logging.getLogger("pinq.workbench").exception("an act failed")
        label.text = (
            f"Something unexpected went wrong ({type(error).__name__}). Please report it; PINQ_LOG=FILE keeps details."
        )
    return None


async def sure(question: str) -> bool:
    """Asks before something that cannot be taken back."""
    with ui.dialog() as dialog, ui.card().props("role=alertdialog"):
        ui.label(question)
        with ui.row():
            ui.button("Yes", on_click=lambda: dialog.submit(True)).props("no-caps unelevated")
            ui.button("No", on_click=lambda: dialog.submit(False)).props("no-caps outline")
    return bool(await dialog)


class ActionButton:
    """A button whose action runs in a thread, once at a time, with a label for its errors.

    Args:
        text: The text on the button.
        call: The action.
        then: The function that draws the result below.
        main: Whether this is the page's primary button.
        ask: A function that returns a question to confirm before the action; empty for none.
        watch: A function that is called each second while the action runs.
    """

    def __init__(
        self,
        text: str,
        call: Callable[[], object],
        then: Callable[[Any], object],
        *,
        main: bool = True,
        ask: Callable[[], str] = str,
        watch: Callable[[ui.label], Awaitable[None]] | None = None,
    ) -> None:
        self._call, self._then, self._ask, self._watch = call, then, ask, watch
        self._button = ui.button(text, on_click=self.run)
        self._button.props("no-caps unelevated" if main else "no-caps outline")
        self._message, self._progress, self._outcome = tell(), tell(kind="quiet"), ui.column().classes("full")

    async def run(self) -> None:
        """Runs the action, and then ``then`` unless it failed."""
        if (question := self._ask()) and not await sure(question):
            return
        self._button.props("loading").disable()
        timer = ui.timer(1.0, lambda: self._watch and self._watch(self._progress), immediate=False)
        try:
            result = await attempt(self._message, self._call)
        finally:
            timer.deactivate()
        if self._button.is_deleted:
            return
        self._progress.text = ""
        self._button.props(remove="loading").enable()
        self._outcome.clear()
        if not self._message.text:
            with self._outcome:
                pending = self._then(result)
                if isinstance(pending, Awaitable):
                    await pending
