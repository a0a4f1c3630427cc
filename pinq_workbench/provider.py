# SPDX-License-Identifier: Apache-2.0
"""The provider's pages: from a file to a reviewed policy, a grant, a served dataset and its log.

Order: the folder, and a proposal for a table; the review of a policy (``review.py``); its grants, with the
meaning of an epsilon; the server; the log; the letter to an analyst. The folder holds the whole state: policies,
ledgers beside their sources, and the files of a running server (``serving.py``). So a stopped or killed
workbench continues where it was.
"""

from __future__ import annotations

import io
import re
import shlex
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import typer
from nicegui import ui

from pinq.cli.prepare import dialect_of
from pinq.engine.formats import typed
from pinq.errors import PinqError, PolicyError
from pinq.ledger.database import NoLedger
from pinq.ledger.events import FREE, Signature, Terms, here
from pinq.policy.dialect import is_text
from pinq.policy.policy import Policy
from pinq.provider import grants
from pinq.provider.policy_file import load_policy, parse_policy
from pinq.provider.proposal import WholeDoubt, look
from pinq.provider.report.markup import Html, when
from pinq.provider.review import change as change_in, waiting as waiting_in
from pinq.public.epsilon import Epsilon, laplace_interval, max_belief
from pinq.public.schema import Schema
from pinq_workbench.auditor import show_report
from pinq_workbench.parts import (
    ActionButton,
    Inputs,
    attempt,
    choice,
    command,
    fields,
    frame,
    page,
    page_words,
    row,
    section,
    table,
    tell,
    write,
)
from pinq_workbench.review import Review
from pinq_workbench.serving import Serving

BINARY = (".parquet", ".duckdb")  # table files that need no dialect
DIALECT = {
    "delimiter": "Between fields",
    "decimal": "Before decimals",
    "thousands": "Between thousands",
    "dates": "Dates, as %d.%m.%Y",
    "encoding": "Encoding",
    "sheet": "Sheet of a workbook",
    "skip": "Title lines above the header",
    "header": "Names of the columns, where no line has them",
    "quote": "Around texts",
}
PORT = "8443"
AT_ONCE = ("Issue another token", "Revoke")


class Provider:
    """The pages of a folder.

    Args:
        path: The folder of policies and tables.

    Attributes:
        drafts: The typed values, by policy file and page; those of the folder's pages have the key "".
    """

    def __init__(self, path: Path) -> None:
        self.path, self.serving, self.drafts = path, Serving(path), defaultdict[str, Inputs](Inputs)
        self._reviews: dict[str, Review] = {}

    def register(self) -> None:
        """Declares the pages."""
        page("/")(self._home)
        page("/serve")(self._serve)
        page("/policy/{name}")(self._review)
        page("/policy/{name}/grants")(self._grants)
        page("/policy/{name}/log")(self._log)

    # The folder

    def _files(self, *endings: str) -> list[str]:
        return sorted(file.name for file in self.path.iterdir() if file.name.lower().endswith(endings))

    def _file(self, name: str) -> Path:
        """The policy file of a page. Raises ``PolicyError`` if the folder has none of this name."""
        if name not in self._files(".yaml", ".yml"):
            raise PolicyError(f"There is no policy {name} in {self.path}.")
        return self.path / name

    def _links(self, name: str = "") -> dict[str, str]:
        """The links to the folder's pages and, with a name, to the pages of that policy."""
        policy_links = {"Review": f"/policy/{name}", "Grants": f"/policy/{name}/grants", "Log": f"/policy/{name}/log"}
        return {"Datasets": "/", "Serve": "/serve"} | (policy_links if name else {})

    def _home(self) -> None:
        draft, policies = self.drafts[""], self._files(".yaml", ".yml")
        with frame(f"Datasets in {self.path.name}", self._links()):
            for name in policies:
                with ui.card().props("flat bordered"):
                    ui.link(Path(name).stem, f"/policy/{name}").classes("text-h6")
                    state, is_draft = self._state(name)
                    ui.label(state)
                    if is_draft:
                        delete = partial(self._delete, name)
                        ask = partial(str, f"Delete the draft {name}? The table itself stays.")
                        ActionButton("Delete this draft", delete, lambda _: ui.navigate.reload(), main=False, ask=ask)
            if not policies:
                ui.label("Nothing here yet. Choose a table below: the workbench proposes what analysts may ask.")
            with section("A new dataset", "Nothing leaves this machine. What is read off the rows waits for review."):
                tables = [name for name in self._files("") if is_text(name) or name.lower().endswith(BINARY)]
                choices = dict.fromkeys([*tables, *filter(None, [draft.get("data")])])
                field = choice("Table", list(choices), draft, "data", new_value_mode="add-unique")
                field.props["hint"] = "A file of this folder; or type a path, or FILE.duckdb::TABLE, and Enter"
                uri = "Of a database: variable with its URI (optional)\nVISITS_URI; then a table's name"
                fields(draft, {"target": "Column that models will predict (optional)"})
                with ui.expansion("A database, or an unusual file").classes("full").props("dense"):
                    ui.label("An empty field means: as the file suggests. The review shows values as they are read.")
                    fields(draft, DIALECT | {"uri_env": uri})
                self._look()

    def _look(self) -> None:
        """Makes the button that proposes a policy for a table; if the file is ambiguous, a button for each reading."""
        draft = self.drafts[""]

        def show(outcome: str | list[dict[str, str]]) -> None:
            if isinstance(outcome, str):
                self.drafts[""] = Inputs()
                ui.navigate.to(f"/policy/{outcome}")
                return
            ui.label("The file can be read in several ways. Which one is right?")
            with row():
                for way in outcome:
                    ui.button(way_label(way), on_click=partial(again, way)).props("no-caps outline")

        async def again(way: Mapping[str, str]) -> None:
            draft.update(way)
            await button.run()

        button = ActionButton("Look at it", lambda: self.propose(draft), show)

    def _delete(self, name: str) -> None:
        """Deletes a draft; raises ``PolicyError`` for a policy with a ledger."""
        if not self._state(name)[1]:
            raise PolicyError(f"{name} has a ledger by now, so it is no draft.")
        self._file(name).unlink()
        self._reviews.pop(name, None)
        self.drafts.pop(name, None)

    def _state(self, name: str) -> tuple[str, bool]:
        """The state of a policy in one line, and whether it is a draft (without a ledger)."""
        try:
            waiting = len(waiting_in(self.path / name))
            status = grants.show(self.path / name)
        except NoLedger:
            return (f"Values to review: {waiting}" if waiting else "Reviewed; nobody was granted anything yet"), True
        except PinqError as error:
            return page_words(str(error)), False
        return f"{status.spent} of {status.cap} spent, {len(status.accounts)} granted", False

    def propose(self, draft: Inputs) -> str | list[dict[str, str]]:
        """Writes a proposal for a table into the folder.

        Returns:
            The name of the file; or, for an ambiguous file, the keys of each possible reading.

        Raises:
            PolicyError: No table was chosen, or ``pinq.provider.proposal.look`` raises it.
        """
        data, uri_env = draft.text("data"), draft.text("uri_env")
        dialect_keys = {key: value for key in DIALECT if (value := draft.text(key))}
        if data is None:
            raise PolicyError("Choose a table first, or write where it is.")
        place = data if uri_env or Path(data.split("::")[0]).is_absolute() else str(self.path / data)
        options = {"target": draft.text("target"), "folder": self.path, "uri_env": uri_env}
        try:
            text = look(place, csv=dialect_of(**dialect_keys), **options).text
        except typer.BadParameter as error:
            raise PolicyError(error.message) from None
        except WholeDoubt as doubt:
            if len(doubt.choices) > 1:
                ways = list(map(typed, doubt.choices))
                common = set.intersection(*(set(way.items()) for way in ways))
                return [dict(item for item in way.items() if item not in common) for way in ways]
            if doubt.look is None:
                raise
            text = doubt.look.text
        name = f"{parse_policy(text, self.path / 'proposed').dataset}.yaml"
        with (self.path / name).open("x", encoding="utf-8") as file:
            file.write(text)
        return name

    # The review of a policy

    def review(self, name: str) -> Review:
        """The review of a policy, with its typed values and undo steps; raises ``PolicyError`` without a file."""
        file = self._file(name)
        if name not in self._reviews:
            self._reviews[name] = Review(name, file, self.drafts[name])
        return self._reviews[name]

    async def _review(self, name: str) -> None:
        with frame(f"Review {Path(name).stem}", self._links(name)):
            review = await attempt(tell(), lambda: self.review(name))
            if review is not None:
                await review.show()

    # Its grants

    async def _grants(self, name: str) -> None:
        with frame(f"Grants of {Path(name).stem}", self._links(name)):
            policy = await attempt(tell(), lambda: load_policy(self._file(name)))
            if policy is None:
                return
            file, draft = self._file(name), self.drafts[f"{name} grant"]
            self._accounts(name)
            with section("A new grant"):
                end = {"expires": "Until (optional)\n2030-01-31"}
                fields(
                    draft,
                    {"analyst": "Analyst", "epsilon": "Epsilon\nthe whole budget"} | end,
                    changed=lambda: _meaning.refresh(),
                )
                limits = {"most": "Most that one query may ask (optional)", "pace": "Queries a minute (optional)"}
                fields(draft, limits)
                fields(draft, {"because": "Because\na contract, a purpose; it stands in the log"})
                _meaning(draft, policy.schema_)

                def granted(account: grants.GrantReport) -> None:
                    self._show_token(account, policy)
                    self._accounts.refresh()

                ActionButton("Grant", partial(_grant, file, draft), granted)
            with section("The cap over all analysts together", f"The policy says {policy.cap:f}. They may collude."):
                cap = {"cap": "Cap\na lower one counts from the next grant or start on"}
                fields(draft, cap | {"why cap": "Because (of the cap)\nit stands in the log"})

                def change() -> None:
                    change_in(file, "cap", draft.text("cap") or "", draft.text("why cap") or "")

                ActionButton("Change the cap", change, lambda _: ui.navigate.reload(), main=False)

    @ui.refreshable_method
    def _accounts(self, name: str) -> None:
        """Shows all grants, with the controls that change them."""
        try:
            status = grants.show(self._file(name))
        except NoLedger:
            tell("Nobody was granted anything yet.", "quiet")
            return
        except PinqError as error:
            tell(str(error))
            return
        ui.label(f"{status.spent} of {status.cap} spent by all together; {status.remaining} remains under the cap.")
        rows = [
            [one.analyst, one.state, one.limit, one.spent, one.remaining, when(one.expires or "never"), one.terms]
            for one in status.accounts
        ]
        table("Grants", ["analyst", "state", "limit >", "spent >", "remaining >", "until", "allowed"], rows)
        if names := [one.analyst for one in status.accounts if one.state != "revoked"]:
            with section("Change a grant"):
                self._changes(name, names)

    def _changes(self, name: str, names: list[str]) -> None:
        """Makes the controls that extend a grant, revoke it, change its terms or replace its token."""
        draft, file = self.drafts[f"{name} grants"], self._file(name)
        choice("Whose", names, draft, "whose")
        fields(draft, {"more": "Epsilon to add\nleft empty: the budget stays", "end": "New end\n2030-01-31"})
        limits = {"new most": "Now: most that one query may ask", "new pace": "Now: queries a minute"}
        fields(draft, {key: f"{label}\nleft empty: no limit" for key, label in limits.items()})
        fields(draft, {"why now": "Because (of this change)\nit stands in the log"})

        def limit(analyst: str, by: Signature) -> grants.GrantReport:
            max_epsilon, pace = draft.text("new most"), draft.text("new pace")
            new_terms = grants.make_terms(file, max_epsilon_per_query=max_epsilon, queries_per_minute=pace)
            present_terms = next((one.terms for one in grants.show(file).accounts if one.analyst == analyst), FREE)
            epsilon, queries = new_terms.max_epsilon_per_query, new_terms.queries_per_minute
            terms = replace(present_terms, max_epsilon_per_query=epsilon, queries_per_minute=queries)
            return grants.set_terms(file, analyst, terms, by=by)

        def done(account: grants.GrantReport) -> None:
            if account.token:
                self._show_token(account, load_policy(file))
            else:
                self._accounts.refresh()

        changes: dict[str, Callable[[str, Signature], grants.GrantReport]] = {
            "Extend": lambda who, by: grants.extend(file, who, draft.text("more"), draft.text("end"), by=by),
            "Set these limits": limit,
            "Issue another token": lambda who, by: grants.reissue(file, who, by=by),
            "Revoke": lambda who, by: grants.revoke(file, who, by=by),
        }

        def change(text: str) -> grants.GrantReport:
            return changes[text](draft.text("whose") or "", here(draft.text("why now") or ""))

        def ask(text: str) -> str:
            return f"{text} of {draft.text('whose')}? It counts at once." if text in AT_ONCE else ""

        with row():
            for text in changes:
                ActionButton(text, partial(change, text), done, main=False, ask=partial(ask, text))

    def _show_token(self, account: grants.GrantReport, policy: Policy) -> None:
        """Shows a token once, with the address and the letter for its analyst."""
        dataset = first_allowed(policy, account.terms)
        message = (
            f"{account.analyst} may spend epsilon {account.limit}. This token is shown only now, and kept nowhere:"
        )
        tell(message, "good")
        ui.label(account.token).classes("token")
        for warning in account.warnings:
            ui.label(page_words(warning)).classes("quiet")
        url, authority = self._address(dataset)
        letter = Letter(account.analyst, dataset, url, authority)
        with row():
            ui.button("Copy the token", on_click=lambda: ui.clipboard.write(account.token)).props("no-caps outline")
            save = partial(ui.download.content, filename=letter.name)
            ActionButton("Keep the letter to the analyst", letter.packed, save, main=False)
        tell("The letter has the address, the certificate and the first lines. Send the token by another way.", "quiet")
        if not self.serving.running():
            tell("No server runs yet: start one under Serve, and look there whether the address is right.", "quiet")
        ui.label(f"Address: {url}")
        command(letter.lines, "The analyst's first lines", shown=True)

    def _address(self, dataset: str) -> tuple[str, Path | None]:
        """The address of a dataset, and the certificate of the provider's own authority, if there is one."""
        words, draft = shlex.split(self.serving.running()), self.drafts[""]
        port = dict(pairwise(words)).get("--port", draft.text("port") or PORT)
        authority = Path(path) if (path := draft.text("authority")) else None
        if "--insecure-http" in words:
            return f"http://127.0.0.1:{port}/{dataset}", None
        return f"https://{draft.text('host') or socket.gethostname()}:{port}/{dataset}", authority

    # The server

    def _serve(self) -> None:
        draft = self.drafts[""]
        with frame("Serve", self._links()), section("The server of this folder"):
            ui.label("Analysts ask over HTTPS, with a certificate. Without one, this machine alone can ask.")
            is_running = bool(self.serving.running())
            tell("It runs. Analysts ask at:" if is_running else "It does not run.", "good" if is_running else "quiet")
            for name in self._files(".yaml", ".yml") if is_running else ():
                ui.label(self._address(Path(name).stem)[0]).classes("token")
            draft.setdefault("port", PORT)
            draft.setdefault("host", socket.gethostname())
            fields(draft, {"host": "Name of this machine for analysts", "port": "Port"})
            fields(draft, {"cert": "Certificate (a PEM file)", "key": "Its key (a PEM file)"})
            fields(
                draft, {"authority": "Certificate that analysts need (a PEM file)\nof your own authority; else empty"}
            )

            def start() -> None:
                cert, key = draft.text("cert"), draft.text("key")
                words = ["--tls-cert", cert or "", "--tls-key", key or ""] if cert or key else ["--insecure-http"]
                self.serving.start(["--port", draft["port"], *words])

            with row():
                ActionButton("Start", start, lambda _: ui.navigate.reload())
                ActionButton("Stop", self.serving.stop, lambda _: ui.navigate.reload(), main=False)
            about = f"Its log is in {self.serving.log.name}. It keeps running when the workbench stops."
            ui.label(about).classes("quiet")

    # The log

    async def _log(self, name: str) -> None:
        with frame(f"Log of {Path(name).stem}", self._links(name)):
            file = await attempt(tell(), lambda: self._file(name))
            if file is not None:
                await show_report(self.drafts[f"{name} log"], file, None)


@dataclass(frozen=True)
class Letter:
    """The files for an analyst, without the token.

    Attributes:
        analyst: The analyst's name.
        dataset: The dataset's name.
        url: The address.
        authority: The file with the certificate of the provider's own authority.
    """

    analyst: str
    dataset: str
    url: str
    authority: Path | None

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.dataset}-for-{re.sub(r'[^A-Za-z0-9_.-]+', '_', self.analyst)}.zip"

    @property
    def lines(self) -> str:
        """The analyst's first lines of Python."""
        verify = ", verify=pathlib.Path('certificate.pem')" if self.authority else ""
        plain = ", insecure_http=True" if self.url.startswith("http://") else ""
        return (
            "import pathlib, pinq\nfrom miners.tables import summary\n\n"
            f"h = pinq.connect({self.url!r}, token=pathlib.Path('token.txt'){verify}{plain})\n"
            "print(h.schema)\nprint(h.budget)\nprint(summary.plan(h, epsilon=0.1))  # free; without .plan it asks"
        )

    def packed(self) -> bytes:
        """The ZIP archive: instructions, a program with the lines, and the certificate."""
        page = (
            f"{self.dataset}, for {self.analyst}\n\nAddress: {self.url}\n\n1. Install Python, then: pip install "
            "pinq-miners\n2. Save the token, which you get by another way, in this folder as token.txt; show it to "
            f"nobody.\n3. Run first.py:\n\n{self.lines}\n\nOr without code: pinq workbench {self.url} --token-file "
            f"token.txt{' --verify certificate.pem' if self.authority else ''}\n"
        )
        archive_bytes = io.BytesIO()
        with ZipFile(archive_bytes, "w") as archive:
            archive.writestr("read-me.txt", page)
            archive.writestr("first.py", self.lines + "\n")
            if self.authority:
                archive.write(self.authority, "certificate.pem")
        return archive_bytes.getvalue()


def way_label(way: Mapping[str, str]) -> str:
    """The label of a button for one reading of a file; a format of dates is shown by 31 December."""
    texts = [
        ", ".join(f"{date(2024, 12, 31):{form}}" for form in value.split(",")) if key == "dates" else value
        for key, value in way.items()
    ]
    names = ("" if key in ("sheet", "dates") else f"{DIALECT[key]}: " for key in way)
    return ", ".join(map("".join, zip(names, texts, strict=True)))


@ui.refreshable
def _meaning(draft: Inputs, schema: Schema) -> None:
    """Explains an epsilon: the certainty that it permits about a person, and its noise in counts."""
    try:
        epsilon = Epsilon.exactly(draft.text("epsilon") or "1")
    except PinqError as error:
        tell(str(error))
        return
    loss, who = float(epsilon.exact), "a row" if schema.privacy_unit == "row" else "a person"
    ui.label(
        f"With epsilon {epsilon} in all: somebody who was 50 % sure that {who} is in the table can become "
        f"{100 * max_belief(loss, 0.5):.1f} % sure at most, and {100 * max_belief(loss, 0.01):.1f} % where it was 1 %, "
        "whatever else they know."
    )
    for count in (100, 10_000):
        half = laplace_interval(1 / float(epsilon.per_row(schema.distance)), 0.95)
        ui.label(f"A count of {count:,} for all of it: {max(0, count - half):,} to {count + half:,} in 95 % of cases.")
        write(_noise(count, half))


def _noise(count: int, half: int) -> Html:
    """Draws a count and the interval of its noise, on a line from 0 to twice the count."""
    low, high = (300 * min(max(0, end), 2 * count) / (2 * count) for end in (count - half, count + half))
    width = max(2.0, high - low)
    return Html(
        f"<svg class='noise' viewBox='0 0 320 34' width='320' role='img'><title>{count:,} within {half:,}</title>"
        f"<line x1='0' y1='12' x2='300' y2='12'/><rect x='{low:.1f}' y='6' width='{width:.1f}' height='12'/>"
        f"<text x='0' y='32'>0</text><text x='135' y='32'>{count:,}</text>"
        f"<text x='265' y='32'>{2 * count:,}</text></svg>"
    )


def first_allowed(policy: Policy, terms: Terms) -> str:
    """The name of the first table that a grant's terms allow."""
    return next(table.name for table in policy.each if terms.tables is None or table.table in terms.tables)


def _grant(file: Path, draft: Inputs) -> grants.GrantReport:
    """Makes the grant of the form, as ``pinq grant`` does."""
    terms = grants.make_terms(file, max_epsilon_per_query=draft.text("most"), queries_per_minute=draft.text("pace"))
    signature, epsilon = here(draft.text("because") or ""), draft.text("epsilon") or ""
    return grants.grant(file, draft.text("analyst") or "", epsilon, draft.text("expires"), terms, by=signature)
