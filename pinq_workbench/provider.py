# SPDX-License-Identifier: Apache-2.0
"""The provider's way: from a file to a reviewed policy, to a grant, to a served dataset, to its log.

Here are the pages of the folder, of its server, and of a log; ``reviewing.py`` and ``granting.py`` have
those of a policy.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from nicegui import ui

from pinq.errors import PinqError
from pinq.provider import grants, policy_file
from pinq_workbench.auditor import declare_report, show_report
from pinq_workbench.folder import DIALECT, Folder
from pinq_workbench.granting import Granting
from pinq_workbench.parts import Act, Draft, attempt, choice, field, frame, page, section, tell
from pinq_workbench.reviewing import Reviewing
from pinq_workbench.serving import Serving


class Provider:
    """The pages of a folder.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.folder, self.serving = Folder(path), Serving(path)

    def register(self) -> None:
        """Declares the pages."""
        page("/")(self._home)
        page("/serve")(self._serve)
        page("/policy/{name}/log")(self._log)
        declare_report("/policy/{name}/log", lambda name: (self.folder.file(name), None))
        Reviewing(self.folder).register()
        Granting(self.folder).register()

    # The folder

    def _home(self) -> None:
        draft = self.folder.draft("")
        with frame(f"Datasets in {self.folder.path.name}", self.folder.links()):
            for name in self.folder.policies():
                with ui.card().props("flat bordered"):
                    ui.link(name, f"/policy/{name}").classes("text-h6")
                    ui.label(self._state(name))
            if not self.folder.policies():
                ui.label("Nothing here yet. Choose a table below: the workbench proposes a policy for it.")
            with section("A new dataset", "Nothing leaves this machine. What is read off the rows waits for review."):
                self._new(draft)

    def _state(self, name: str) -> str:
        """Says in one line where a policy stands."""
        try:
            waiting = len(policy_file.waiting(self.folder.path / name))
            if waiting:
                return f"{waiting} values wait for review"
            status = grants.show(self.folder.path / name)
            return f"{status.spent} of {status.cap} spent, {len(status.accounts)} granted"
        except PinqError as error:
            return str(error)

    def _new(self, draft: Draft) -> None:
        found = self.folder.tables()
        chosen = {**dict.fromkeys(found), **dict.fromkeys(filter(None, [draft.get("data")]))}
        made = choice("Table", list(chosen), draft, "data", new_value_mode="add-unique")
        made.props["hint"] = "A file of this folder; or type a path, or FILE.duckdb::TABLE, and Enter"
        with ui.row().classes("row-of"):
            field("Column that models will predict (optional)", draft, "target")
            field(
                "Of a database: variable with its URI (optional)", draft, "uri_env", "VISITS_URI; then a table's name"
            )
        with ui.expansion("How a text file is written").classes("full").props("dense"), ui.row().classes("row-of"):
            for key, label in DIALECT.items():
                field(label, draft, key)

        async def act(place: ui.label) -> None:
            name = await attempt(place, self.folder.propose, draft)
            if name:
                self.folder.drafts[""] = {}
                ui.navigate.to(f"/policy/{name}")

        Act("Look at it", act)

    # The server

    def _serve(self) -> None:
        draft = self.folder.draft("")
        with frame("Serve", self.folder.links()), section(f"pinq serve {self.folder.path.name}"):
            ui.label("Analysts ask over HTTPS, with a certificate. Without one, this machine alone can ask.")
            self._server()
            draft.setdefault("port", "8443")
            with ui.row().classes("row-of"):
                field("Port", draft, "port")
                field("Certificate (PEM)", draft, "cert")
                field("Its key", draft, "key")

            async def start(place: ui.label) -> None:
                tls = ["--tls-cert", draft.get("cert", ""), "--tls-key", draft.get("key", "")]
                words = tls if draft.get("cert") or draft.get("key") else ["--insecure-http"]
                await attempt(place, self.serving.start, ["--port", draft["port"], *words])
                self._server.refresh()

            async def stop(place: ui.label) -> None:
                await attempt(place, self.serving.stop)
                self._server.refresh()

            with ui.row().classes("row-of"):
                Act("Start", start)
                Act("Stop", stop, main=False)
            ui.label(f"What it logs is in {self.serving.log.name}. It runs on when the workbench stops.").classes(
                "quiet"
            )

    @ui.refreshable_method
    def _server(self) -> None:
        """Says whether it runs, in all tabs."""
        if line := self.serving.running():
            tell("It runs:", "good")
            ui.html(escape(line), tag="pre", sanitize=False).classes("line")
        else:
            tell("It does not run.", "quiet")

    # The log

    async def _log(self, name: str) -> None:
        with frame(f"Log of {name}", self.folder.links(name)):
            file = await attempt(tell(), self.folder.file, name)
            if file is not None:
                await show_report(f"/policy/{name}/log", self.folder.draft(name), (file, None))
