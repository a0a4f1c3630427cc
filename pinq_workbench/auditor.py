# SPDX-License-Identifier: Apache-2.0
"""The auditor's way: the report of a ledger, for all analysts or one, for all time or a part of it.

The report is the page that ``pinq audit --html`` writes, shown in a frame, so that what is on the
screen is what is printed and kept.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse
from nicegui import app, ui

from pinq.errors import PinqError
from pinq.provider.report.audit import Audit, audit
from pinq.provider.report.html import page as written
from pinq_workbench.parts import Act, Draft, attempt, choice, command, fields, frame, page, tell

Source = tuple[Path | None, str | None]
"""Whose log: a policy's, or a ledger's."""

REPORT = "/report"
# The frame is as high as what it shows, so that the page scrolls and not a window in it.
FIT = "this.style.height = (this.contentDocument.documentElement.scrollHeight + 4) + 'px'"


class Auditor:
    """A ledger to be read.

    Args:
        ledger: A file, a copy of one, or a database's URL.
    """

    def __init__(self, ledger: str) -> None:
        self.ledger, self.draft = ledger, Draft()

    def register(self) -> None:
        """Declares the pages. Raises ``LedgerError`` if the ledger cannot be trusted."""
        audit(ledger=self.ledger)
        page("/")(self._home)
        declare_report("", lambda _: (None, self.ledger))

    async def _home(self) -> None:
        with frame(f"Audit of {Path(self.ledger).name}"):
            await show_report("", self.draft, (None, self.ledger))


def declare_report(path: str, find: Callable[[str], Source]) -> None:
    """Declares where the frames of a page find their report.

    Args:
        path: The page's, ``/policy/{name}/log`` say.
        find: Returns whose log it is, by the name in the path.
    """

    def drawn(
        name: str = "", analyst: str | None = None, since: str | None = None, until: str | None = None
    ) -> HTMLResponse:
        try:
            policy, ledger = find(name)
            text = written(audit(policy, analyst, ledger=ledger, since=since, until=until))
        except PinqError as error:
            text = escape(str(error))
        return HTMLResponse(text, headers={"Cache-Control": "no-store"})

    app.get(f"{path}{REPORT}")(drawn)


async def show_report(path: str, draft: Draft, source: Source) -> None:
    """Shows a dataset's log, narrowed as one likes."""
    policy, ledger = source

    def read() -> tuple[dict[str, str], Audit]:
        said = {name: text for name in ("analyst", "since", "until") if (text := draft.said(name))}
        return said, audit(policy, ledger=ledger, **said)

    def show(found: tuple[dict[str, str], Audit]) -> None:
        said, report = found
        tell(f"The chain of {report.events:,} events holds; the last one is {report.head[:16]}.", "good")
        address = f"{path}{REPORT}?{urlencode(said)}"
        ui.link("Open the report by itself, to print or keep it", address, new_tab=True)
        ui.element("iframe").props.update({"src": address, "title": "Report", "onload": FIT})

    everybody = await attempt(tell(), lambda: audit(policy, ledger=ledger))
    if everybody is None:
        return
    choice("Analyst (all)", [name for name in everybody.accounts if name], draft, "analyst", clearable=True)
    fields(draft, {"since": "From (a day or a time)\n2030-01-31", "until": "To\n2030-01-31"})
    act = Act("Show", read, show)
    of = shlex.quote(policy.name) if policy is not None else f"--ledger {shlex.quote(str(ledger))}"
    command(f"pinq audit {of} --html -o audit.html")
    await act.run()
