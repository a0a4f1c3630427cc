# SPDX-License-Identifier: Apache-2.0
"""The auditor's pages: the report of a ledger, for all analysts or one, for any period.

The report is the page that ``pinq audit --html`` writes, shown in a frame, so that screen, print
and file have the same content.
"""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

from pinq.provider.report.audit import Audit, audit
from pinq.provider.report.html import page as written
from pinq_workbench.parts import ActionButton, Inputs, attempt, choice, fields, frame, page, row, tell

# The frame is as high as its content, so that the page scrolls, not a window in it.
FIT = "this.style.height = (this.contentDocument.documentElement.scrollHeight + 4) + 'px'"
PRINT = "document.querySelector('iframe').contentWindow.print()"


class Auditor:
    """A ledger to be read.

    Args:
        ledger: A file, a copy of one, or a database's URL.
    """

    def __init__(self, ledger: str) -> None:
        self.ledger, self.draft = ledger, Inputs()

    def register(self) -> None:
        """Declares the page. Raises ``LedgerError`` if the ledger cannot be trusted."""
        audit(ledger=self.ledger)
        page("/")(self._home)

    async def _home(self) -> None:
        with frame(f"Audit of {Path(self.ledger).name}"):
            await show_report(self.draft, None, self.ledger)


async def show_report(draft: Inputs, policy: Path | None, ledger: str | None) -> None:
    """Shows the log of a policy or a ledger, with filters."""

    def read() -> Audit:
        analyst, since, until = (draft.text(name) for name in ("analyst", "since", "until"))
        return audit(policy, analyst, ledger=ledger, since=since, until=until)

    def show(report: Audit) -> None:
        tell(f"The chain of {report.events:,} events holds; the last one is {report.head[:16]}.", "good")
        text = written(report)
        with row():
            ui.button("Print", on_click=lambda: ui.run_javascript(PRINT)).props("no-caps outline")
            save_button = ui.button("Keep audit.html", on_click=lambda: ui.download.content(text, "audit.html"))
            save_button.props("no-caps outline")
        ui.element("iframe").props.update({"srcdoc": text, "title": "Report", "onload": FIT})

    report_of_all = await attempt(tell(), lambda: audit(policy, ledger=ledger))
    if report_of_all is None:
        return
    choice("Analyst (all)", [name for name in report_of_all.accounts if name], draft, "analyst", clearable=True)
    fields(draft, {"since": "From (a day or a time)\n2030-01-31", "until": "To\n2030-01-31"})
    button = ActionButton("Show", read, show)
    await button.run()
