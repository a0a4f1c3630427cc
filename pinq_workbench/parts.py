# SPDX-License-Identifier: Apache-2.0
"""What all pages are made of: a frame, fields that survive a reload, acts whose errors stand in place.

A page's fields write into a dictionary of the process, so a reload, a second tab or a lost connection
loses nothing that was typed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from importlib.resources import files
from typing import Any, TypeVar

from nicegui import run, ui

from pinq.errors import PinqError

T = TypeVar("T")
# What the pages call Python's parameters.
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
Draft = dict[str, Any]
"""What was typed so far, by name."""

STYLE = files("pinq_workbench").joinpath("style.css").read_text(encoding="utf-8")


READ_SECONDS = 600.0  # a page may read a table or a log before it is shown


def page(path: str) -> ui.page:
    """Declares a page."""
    return ui.page(path, response_timeout=READ_SECONDS)


@contextmanager
def frame(
    title: str, links: Mapping[str, str] | None = None, beside: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Makes a page around its content.

    Args:
        title: In the window and above the content.
        links: Where else to go, name to path; the page's own path is marked.
        beside: Draws what is always in sight.
    """
    ui.page_title(f"{title} - pinq workbench")
    ui.colors(primary="#0b5a8a", negative="#a3181b", positive="#14612c")
    ui.add_css(STYLE)
    here = ui.context.client.sub_pages_router.current_path
    with ui.element("header").classes("bench-head full"):
        for name, path in (links or {}).items():
            link = ui.link(name, path)
            if path == here:
                link.props('aria-current="page"')
        beside()
    with ui.element("div").classes("bench") as main:
        heading(1, title)
        yield
    ui.skip_link(target=main)


def heading(level: int, text: str) -> ui.html:
    """Writes a heading."""
    return ui.html(escape(text), tag=f"h{level}", sanitize=False)


@contextmanager
def section(title: str, about: str = "") -> Iterator[None]:
    """Makes a card with a heading, and a sentence on what it is for."""
    with ui.card().props("flat bordered tag=section"):
        heading(2, title)
        if about:
            ui.label(about).classes("quiet")
        yield


def tell(text: str = "", kind: str = "wrong") -> ui.label:
    """Makes a place where the outcome of an act stands: ``wrong``, ``good`` or ``quiet``."""
    role = "alert" if kind == "wrong" else "status"
    return ui.label(text).classes(kind).props(f"role={role}")


def field(
    label: str, draft: Draft, name: str, hint: str = "", changed: Callable[[], object] = lambda: None
) -> ui.input:
    """Makes a field whose text outlives the page; ``changed`` is called once the draft has it."""
    made = ui.input(label, value=str(draft.get(name, "")))
    made.props("outlined dense stack-label").props.update({"hint": hint} if hint else {})
    made.on_value_change(lambda event: (draft.update({name: event.value or ""}), changed()))
    return made


def choice(
    label: str, options: Any, draft: Draft, name: str, changed: Callable[[], object] = lambda: None, **words: Any
) -> ui.select:
    """Makes a choice that outlives the page; what was chosen and is no longer there is forgotten."""
    chosen = draft.get(name)
    made = ui.select(options, label=label, value=chosen if chosen in options else None, **words)
    made.props("outlined dense stack-label options-dense")
    made.on_value_change(lambda event: (draft.update({name: event.value}), changed()))
    return made


def command(text: str, what: str = "The same at the command line") -> None:
    """Shows the command, or the lines of Python, that do the same."""
    with ui.expansion(what).classes("full").props("dense"):
        ui.html(escape(text), tag="pre", sanitize=False).classes("line").props("tabindex=0")
        ui.button("Copy", on_click=lambda: ui.clipboard.write(text)).props("flat dense no-caps")


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes a table; `` >`` after a head means numbers, on the right."""

    def cells(tag: str, row: Sequence[object], scope: str = "") -> str:
        kinds = [" class='n'" if head.endswith(" >") else "" for head in heads]
        return "".join(
            f"<{tag}{scope}{kind}>{escape(str(cell))}</{tag}>" for kind, cell in zip(kinds, row, strict=True)
        )

    head = cells("th", [head.removesuffix(" >") for head in heads], " scope='col'")
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    text = f"<caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    with ui.element("div").classes("wide").props("tabindex=0 role=group") as box:
        box.props["aria-label"] = title
        ui.html(text, tag="table", sanitize=False).classes("cells")


async def attempt(place: ui.label, call: Callable[..., T], *args: Any, **words: Any) -> T | None:
    """Calls a function beside the page, which goes on; what goes wrong stands in its place.

    Returns:
        What the function returns; None where it raised.
    """
    place.text = ""
    try:
        return await run.io_bound(partial(call, *args, **words))
    except PinqError as error:
        place.text = error.worded(LABELS)
    except OSError as error:
        place.text = f"{error.filename or 'A file'}: {error.strerror or 'cannot be used'}."
    except Exception as error:
        logging.getLogger("pinq.workbench").exception("an act failed")
        place.text = (
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


class Act:
    """A button that does something once at a time, and the place where its errors stand.

    Args:
        text: On the button.
        act: What it does; it gets the place.
        main: Whether it is what one came for.
    """

    def __init__(self, text: str, act: Callable[[ui.label], Awaitable[None]], *, main: bool = True) -> None:
        self._act = act
        self.button = ui.button(text, on_click=self._run)
        self.button.props("no-caps unelevated" if main else "no-caps outline")
        self.place = tell()

    async def _run(self) -> None:
        self.button.props("loading").disable()
        try:
            await self._act(self.place)
        finally:
            if not self.button.is_deleted:
                self.button.props(remove="loading").enable()
