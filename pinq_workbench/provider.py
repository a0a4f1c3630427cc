# SPDX-License-Identifier: Apache-2.0
"""The provider's pages: from a file to a reviewed policy, a grant, a served dataset and its log.

Order: the folder, and a proposal for a table; the review of a policy, a column at a time or many with
one reason; its grants, and what an epsilon means; the server; the log. All that is kept is in the
folder: policies, the ledgers beside their sources, and the lines that ``serving.py`` keeps of a
running server. So a workbench that was stopped or killed continues where it was.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path

import typer
from nicegui import ui

from pinq.cli.prepare import dialect_of
from pinq.errors import PinqError, PolicyError
from pinq.ledger.database import NoLedger
from pinq.ledger.events import FREE, Signature, here
from pinq.policy.policy import Policy
from pinq.provider import grants, review
from pinq.provider.check import CheckReport, Example, RowsPerValue, check, examples, groups, raw_columns
from pinq.provider.policy_file import load_policy, parse_policy
from pinq.provider.proposal import propose
from pinq.provider.report.markup import Html, when
from pinq.provider.review import Waiting
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
    row,
    section,
    table,
    tell,
    write,
)
from pinq_workbench.serving import Serving

TABLES = (".csv", ".tsv", ".parquet", ".xlsx", ".xls", ".ods", ".duckdb")
DIALECT = {
    "delimiter": "Between fields (delimiter)",
    "decimal": "Before decimals (decimal)",
    "thousands": "Between thousands (thousands)",
    "dates": "Dates, as %d.%m.%Y (dates)",
    "encoding": "Encoding (encoding)",
    "sheet": "Sheet of a workbook (sheet)",
    "skip": "Title lines above the header (skip)",
}
SOURCE_HINT = "a code book, a form, a law"
SHOWN_ROWS = 4
AT_ONCE = ("Issue another token", "Revoke")


@dataclass(frozen=True)
class Inspection:
    """A policy file as the review page shows it.

    Attributes:
        policy: Its declarations so far.
        waiting: The values that nobody has reviewed yet.
        examples: Rows as it reads them.
        raw: All columns of the source.
    """

    policy: Policy
    waiting: list[Waiting]
    examples: Mapping[str, list[Example]]
    raw: list[str]

    def of(self, name: str) -> list[Waiting]:
        """The unreviewed values of a column, or of a key of the policy itself."""
        return [item for item in self.waiting if _column_of(item.name) == name or item.name == name]


class Provider:
    """The pages of a folder.

    Args:
        path: The folder of policies and tables.

    Attributes:
        drafts: The typed values, by policy file and page; of the folder's own pages under no name.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.serving, self.drafts = path, Serving(path), defaultdict[str, Inputs](Inputs)
        self._inspections: dict[tuple[Path, int], Inspection] = {}

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
        """The pages of the folder and, with a name, of a policy."""
        own = {"Review": f"/policy/{name}", "Grants": f"/policy/{name}/grants", "Log": f"/policy/{name}/log"}
        return {"Datasets": "/", "Serve": "/serve"} | (own if name else {})

    def _home(self) -> None:
        draft, policies = self.drafts[""], self._files(".yaml", ".yml")
        with frame(f"Datasets in {self.path.name}", self._links()):
            for name in policies:
                with ui.card().props("flat bordered"):
                    ui.link(name, f"/policy/{name}").classes("text-h6")
                    ui.label(self._state(name))
            if not policies:
                ui.label("Nothing here yet. Choose a table below: the workbench proposes a policy for it.")
            with section("A new dataset", "Nothing leaves this machine. What is read off the rows waits for review."):
                chosen = dict.fromkeys([*self._files(*TABLES), *filter(None, [draft.get("data")])])
                made = choice("Table", list(chosen), draft, "data", new_value_mode="add-unique")
                made.props["hint"] = "A file of this folder; or type a path, or FILE.duckdb::TABLE, and Enter"
                uri = "Of a database: variable with its URI (optional)\nVISITS_URI; then a table's name"
                fields(draft, {"target": "Column that models will predict (optional)", "uri_env": uri})
                with ui.expansion("How the file is written: signs, dates, sheet").classes("full").props("dense"):
                    ui.label("Left empty, as the file suggests; the review shows values as they are read.")
                    fields(draft, DIALECT)

                def show(name: str) -> None:
                    self.drafts[""] = Inputs()
                    ui.navigate.to(f"/policy/{name}")

                ActionButton("Look at it", lambda: self.propose(draft), show)
                command("pinq init TABLE --delimiter ';' --decimal , --dates %d.%m.%Y -o NAME.yaml")

    def _state(self, name: str) -> str:
        """Says in one line where a policy stands."""
        try:
            waiting = len(review.waiting(self.path / name))
            if waiting:
                return f"values to review: {waiting}"
            status = grants.show(self.path / name)
            return f"{status.spent} of {status.cap} spent, {len(status.accounts)} granted"
        except PinqError as error:
            return str(error)

    def propose(self, draft: Inputs) -> str:
        """Writes a proposal beside the others, as ``pinq init`` with the options that it says to try.

        Returns:
            The name of the file.

        Raises:
            PolicyError: As in ``propose``; nothing is tried where more than one way to read is left.
        """
        data, uri_env = draft.said("data"), draft.said("uri_env")
        stated = {key: said for key in DIALECT if (said := draft.said(key))}
        if data is None:
            raise PolicyError("Choose a table first, or write where it is.")
        place = data if uri_env or Path(data.split("::")[0]).is_absolute() else str(self.path / data)
        while True:
            try:
                csv = dialect_of(**stated)
                text = propose(place, target=draft.said("target"), folder=self.path, csv=csv, uri_env=uri_env)
                break
            except typer.BadParameter as error:
                raise PolicyError(error.message) from None
            except PolicyError as error:
                advised = _advised(str(error))
                if not advised.keys() - stated.keys():
                    raise
                stated |= advised
        name = f"{parse_policy(text, self.path / 'proposed').dataset}.yaml"
        with (self.path / name).open("x", encoding="utf-8") as file:
            file.write(text)
        return name

    # The review of a policy

    def inspection(self, name: str) -> Inspection:
        """The values to review, read again after a change of the file. Raises ``PolicyError`` as ``examples`` does."""
        file = self._file(name)
        key = file, file.stat().st_mtime_ns
        if key not in self._inspections:
            shown = examples(file, SHOWN_ROWS), raw_columns(file)
            self._inspections = {key: Inspection(load_policy(file), review.waiting(file), *shown)}
        return self._inspections[key]

    async def _review(self, name: str) -> None:
        with frame(f"Review {name}", self._links(name)):
            if await attempt(tell(), lambda: self.inspection(name)) is not None:
                self._columns(name)

    @ui.refreshable_method
    def _columns(self, name: str) -> None:
        """Shows what waits, and each column; drawn again after each act, in all tabs."""
        inspection, file = self.inspection(name), self._file(name)
        if inspection.waiting:
            tell(f"values to review: {len(inspection.waiting)}. Nothing opens before.", "quiet")
        else:
            tell("Nothing waits for review. Check, then grant.", "good")
        if inspection.policy.csv is not None:
            said = inspection.policy.csv.model_dump(exclude_unset=True).items()
            ui.label(
                f"The file is read with {', '.join(f'{key} {json.dumps(value)}' for key, value in said)}."
            ).classes("quiet")
        with section("Whose presence is hidden"):
            self._persons(name, inspection)
        if inspection.waiting:
            self._at_once(name, inspection)
        with section("Check", "What the policy does to the rows, exactly: for your eyes only."):
            ActionButton(
                "Check", lambda: check(file), partial(_show_check, inspection.policy, name), main=not inspection.waiting
            )
            command(f"pinq check {shlex.quote(name)}")
        for column, declared in inspection.policy.columns.items():
            with section(column, declared.describe()):
                shown = inspection.examples[column]
                rows = [["in the table", *(one.raw for one in shown)], ["is read as", *(one.read for one in shown)]]
                table(f"Examples of {column}", ["", *(f"row {number + 1}" for number in range(len(shown)))], rows)
                self._items(name, column, inspection.of(column))
                self._changing(name, f"Leave {column} out", partial(review.leave_out, file, column), main=False)

    def _changing(self, name: str, text: str, change: Callable[[], object], *, main: bool = True) -> None:
        """Makes a button that changes the policy file."""

        def changed() -> None:
            change()
            self.inspection(name)  # read before it is drawn again, so that the page does not jump

        ActionButton(text, changed, lambda _: self._columns.refresh(), main=main)

    def _items(self, name: str, column: str, items: list[Waiting]) -> None:
        """Shows what waits of a column, to be kept or changed with one reason."""
        draft = self.drafts[name]
        if not items:
            return
        ui.label("read off the rows").classes("mark")
        for item in items:
            draft.setdefault(item.name, item.value)
        fields(draft, {item.name: f"{_label(item.name)}\n{item.remark}" for item in items})
        fields(draft, {f"why {column}": f"Where {column} is publicly known from\n{SOURCE_HINT}"})
        self._changing(
            name, f"Confirm {column}", lambda: _confirm(self._file(name), items, draft, f"why {column}"), main=False
        )
        names = " ".join(f"--accept {shlex.quote(item.name)}" for item in items)
        command(f"pinq review {shlex.quote(name)} {names} --because TEXT")

    def _at_once(self, name: str, inspection: Inspection) -> None:
        """Confirms many columns with one reason, as their fields have them."""
        draft = self.drafts[name]
        ticked: set[str] = draft.setdefault("many", set())

        def tick(name: str, on: bool | None) -> None:
            ticked.add(name) if on else ticked.discard(name)

        def confirm() -> None:
            chosen = [item for what in ticked for item in inspection.of(what)]
            _confirm(self._file(name), chosen, draft, "why many")

        with section("Many at once", "As their fields have them, with one reason."):
            with ui.element("fieldset").classes("row-of"):
                write(Html("Columns"), "legend")
                boxes = [
                    ui.checkbox(what, value=what in ticked, on_change=lambda event, what=what: tick(what, event.value))
                    for what in ("max_rows", *inspection.policy.columns)
                    if inspection.of(what)
                ]
            fields(draft, {"why many": f"Where all of this is publicly known from\n{SOURCE_HINT}"})
            with row():
                ui.button("Tick all", on_click=lambda: [box.set_value(True) for box in boxes]).props("no-caps outline")
                self._changing(name, "Confirm what is ticked", confirm)

    def _persons(self, name: str, inspection: Inspection) -> None:
        """Asks whose presence is hidden: a row's, or all rows of a person."""
        draft, unit, file = self.drafts[name], inspection.policy.bounded_unit, self._file(name)
        ui.label(
            "Now: each row by itself." if unit is None else f"All rows of one {unit.column}, at most {unit.max_rows}."
        )
        for item in inspection.of("privacy_unit"):
            if unit is not None:  # proposed, because it stands out; nothing else is chosen before the provider chose
                draft.setdefault("person", unit.column)
                draft.setdefault("most rows", str(unit.max_rows))
            ui.label(item.remark.partition(" (")[0]).classes("quiet")
            label = "Column that names the person; none where each row is another one"
            choice(label, inspection.raw, draft, "person", changed=lambda: counted.refresh(), clearable=True)

            @ui.refreshable
            async def counted() -> None:
                if column := draft.said("person"):
                    found = await attempt(tell(), lambda: groups(file, column))
                    if found is not None:
                        _show_groups(column, found)

            with ui.column().classes("full"):
                ui.timer(0, counted, once=True)
            rows = "Rows of one person that count at most\na bound that is publicly known"
            fields(draft, {"most rows": rows, "why unit": "Why\na case is a stay; a person has at most three a year"})
            self._changing(name, "Confirm who is hidden", lambda: _set_unit(file, draft))
        self._items(name, "max_rows", inspection.of("max_rows"))

    # Its grants

    async def _grants(self, name: str) -> None:
        with frame(f"Grants of {name}", self._links(name)):
            policy = await attempt(tell(), lambda: load_policy(self._file(name)))
            if policy is None:
                return
            file, draft = self._file(name), self.drafts[name]
            self._accounts(name)
            with section("A new grant"):
                end = {"expires": "Until (optional)\n2030-01-31"}
                fields(draft, {"analyst": "Analyst", "epsilon": "Epsilon"} | end, changed=lambda: _meaning.refresh())
                limits = {"most": "Most that one query may ask (optional)", "pace": "Queries a minute (optional)"}
                fields(draft, limits)
                fields(draft, {"because": "Because\na contract, a purpose; it stands in the log"})
                _meaning(draft, policy.schema_)

                def granted(account: grants.GrantReport) -> None:
                    _show_token(account, policy.dataset)
                    self._accounts.refresh()

                ActionButton("Grant", partial(_grant, file, draft), granted)
                command(f"pinq grant {shlex.quote(name)} ANALYST --epsilon 1 --expires 2030-01-31 --because TEXT")
            with section("The cap over all analysts together", f"The policy says {policy.cap:f}. They may collude."):
                cap = {"cap": "Cap\na lower one counts from the next grant or start on"}
                fields(draft, cap | {"why cap": "Because (of the cap)\nit stands in the log"})

                def change() -> None:
                    review.change(file, "cap", draft.said("cap") or "", draft.said("why cap") or "")

                ActionButton("Change the cap", change, lambda _: ui.navigate.reload(), main=False)

    @ui.refreshable_method
    def _accounts(self, name: str) -> None:
        """Shows who has what, and what changes it."""
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
        """Extends, revokes, changes terms, replaces a token."""
        draft, file = self.drafts[f"{name} grants"], self._file(name)
        choice("Whose", names, draft, "whose")
        fields(draft, {"more": "Epsilon more", "end": "New end\n2030-01-31"})
        limits = {"new most": "Now: most that one query may ask", "new pace": "Now: queries a minute"}
        fields(draft, {key: f"{label}\nleft empty: no limit" for key, label in limits.items()})
        fields(draft, {"why now": "Because (of this change)\nit stands in the log"})

        def limit(analyst: str, by: Signature) -> grants.GrantReport:
            asked, pace = draft.said("new most"), draft.said("new pace")
            said = grants.make_terms(file, max_epsilon_per_query=asked, queries_per_minute=pace)
            kept = next((one.terms for one in grants.show(file).accounts if one.analyst == analyst), FREE)
            most, rate = said.max_epsilon_per_query, said.queries_per_minute
            terms = replace(kept, max_epsilon_per_query=most, queries_per_minute=rate)
            return grants.set_terms(file, analyst, terms, by=by)

        def done(account: grants.GrantReport) -> None:
            if account.token:
                _show_token(account, load_policy(file).dataset)
            else:
                self._accounts.refresh()

        changes: dict[str, Callable[[str, Signature], grants.GrantReport]] = {
            "Extend": lambda who, by: grants.extend(file, who, draft.said("more"), draft.said("end"), by=by),
            "Set these limits": limit,
            "Issue another token": lambda who, by: grants.reissue(file, who, by=by),
            "Revoke": lambda who, by: grants.revoke(file, who, by=by),
        }

        def change(text: str) -> grants.GrantReport:
            return changes[text](draft.said("whose") or "", here(draft.said("why now") or ""))

        def ask(text: str) -> str:
            return f"{text} of {draft.said('whose')}? It counts at once." if text in AT_ONCE else ""

        with row():
            for text in changes:
                ActionButton(text, partial(change, text), done, main=False, ask=partial(ask, text))
        acts = {"extend": "--epsilon 0.5", "terms": "--max-epsilon 0.1", "token": "", "revoke": ""}
        command("\n".join(f"pinq {act} {shlex.quote(name)} ANALYST {words}".strip() for act, words in acts.items()))

    # The server

    def _serve(self) -> None:
        draft = self.drafts[""]
        with frame("Serve", self._links()), section(f"pinq serve {self.path.name}"):
            ui.label("Analysts ask over HTTPS, with a certificate. Without one, this machine alone can ask.")
            line = self.serving.running()
            tell("It runs:" if line else "It does not run.", "good" if line else "quiet")
            write(Html(escape(line)), "pre").classes("line")
            draft.setdefault("port", "8443")
            fields(draft, {"port": "Port", "cert": "Certificate (PEM)", "key": "Its key"})

            def start() -> None:
                cert, key = draft.said("cert"), draft.said("key")
                words = ["--tls-cert", cert or "", "--tls-key", key or ""] if cert or key else ["--insecure-http"]
                self.serving.start(["--port", draft["port"], *words])

            with row():
                ActionButton("Start", start, lambda _: ui.navigate.reload())
                ActionButton("Stop", self.serving.stop, lambda _: ui.navigate.reload(), main=False)
            about = f"What it logs is in {self.serving.log.name}. It runs on when the workbench stops."
            ui.label(about).classes("quiet")

    # The log

    async def _log(self, name: str) -> None:
        with frame(f"Log of {name}", self._links(name)):
            file = await attempt(tell(), lambda: self._file(name))
            if file is not None:
                await show_report(self.drafts[f"{name} log"], file, None)


def _advised(error: str) -> dict[str, str]:
    """The options that an error of ``pinq init`` says to try; none where it leaves a choice."""
    advised: dict[str, str] = {}
    for advice in error.split(": try ")[1:]:
        options = advice.partition(" (in a policy")[0].partition(". To keep")[0]
        words = [] if " or " in options else shlex.split(options)
        advised |= {option.removeprefix("--"): value for option, value in zip(words[::2], words[1::2], strict=True)}
    return advised


def _column_of(name: str) -> str:
    """The column of a value that waits, ``age`` of ``columns.age.upper``; empty where it is the policy's own."""
    return name.removeprefix("columns.").rpartition(".")[0] if name.startswith("columns.") else ""


def _label(name: str) -> str:
    """The name of an unreviewed value on the page: ``age upper``."""
    return f"{_column_of(name)} {name.rpartition('.')[2]}".strip()


def _confirm(file: Path, items: list[Waiting], draft: Inputs, why: str) -> None:
    """Confirms what waits as its fields have it, all of it or nothing."""
    if not items:
        raise PolicyError("Tick what is to be confirmed.")
    changed = {item.name: str(draft[item.name]) for item in items if draft[item.name] != item.value}
    review.confirm(file, [item.name for item in items], draft.said(why) or "", changed)


def _set_unit(file: Path, draft: Inputs) -> None:
    """Declares the privacy unit; the column that identifies persons cannot be queried."""
    column, because, most = draft.said("person"), draft.said("why unit"), draft.said("most rows") or ""
    unit = None
    if column is not None:
        if not most.isdecimal():
            raise PolicyError("Say how many rows of one person count at most: a whole number that is publicly known.")
        if because is None:
            raise PolicyError("A reason is needed.")
        if column in load_policy(file).columns:
            review.leave_out(file, column)
        unit = f"{{column: {json.dumps(column, ensure_ascii=False)}, max_rows: {most}}}"
    review.confirm(file, ["privacy_unit"], because or "", unit)


def _show_groups(column: str, group_sizes: RowsPerValue) -> None:
    ui.label(
        f"{group_sizes.values:,} different values of {column}; the commonest stands in {group_sizes.largest:,} rows."
    )
    rows = [[f"{size:,}", f"{values:,}"] for size, values in group_sizes.sizes]
    table("Largest groups, read off the rows: for your review alone", ["rows each >", "how many have so many >"], rows)


def _show_check(policy: Policy, name: str, report: CheckReport) -> None:
    lost = report.source_rows - report.encoded_rows
    ui.label(f"{report.source_rows:,} rows, {report.encoded_rows:,} encoded, {lost:,} left out.")
    rows = [
        [name, column.describe(), f"{report.left_out[name]:,}", f"{report.clamped.get(name, 0):,}"]
        for name, column in policy.columns.items()
    ]
    table("What becomes of each column", ["column", "domain", "left out >", "clamped >"], rows)
    for column, values in report.lost.items():
        ui.label(f"{column}: not declared are " + ", ".join(f"{value} ({rows:,} rows)" for value, rows in values))
    for text in report.advice:
        ui.label(f"Note: {text}").classes("quiet")
    for text in report.problems:
        tell(f"Not ready: {text}")
    if report.ready:
        tell("Ready: it can be granted on.", "good")
        ui.link("Grant", f"/policy/{name}/grants")


@ui.refreshable
def _meaning(draft: Inputs, schema: Schema) -> None:
    """Says what an epsilon means for a person, and draws what its noise does to counts."""
    try:
        epsilon = Epsilon.exactly(draft.said("epsilon") or "1")
    except PinqError as error:
        tell(str(error))
        return
    loss, who = float(epsilon.exact), "a row" if schema.privacy_unit == "row" else "a person"
    ui.label(
        f"With epsilon {epsilon} in all: somebody who gave it even chances that {who} is in the table may become "
        f"{max_belief(loss, 0.5):.1%} sure at most, and {max_belief(loss, 0.01):.1%} sure from 1 %, whatever else "
        "they know."
    )
    for count in (100, 10_000):
        half = laplace_interval(1 / float(epsilon.per_row(schema.distance)), 0.95)
        ui.label(f"A count of {count:,} for all of it: {max(0, count - half):,} to {count + half:,} in 95 % of cases.")
        write(_noise(count, half))


def _noise(count: int, half: int) -> Html:
    """Draws a count and the interval of its noise, on a line from nothing to twice the count."""
    low, high = (300 * min(max(0, end), 2 * count) / (2 * count) for end in (count - half, count + half))
    wide = max(2.0, high - low)
    return Html(
        f"<svg class='noise' viewBox='0 0 320 34' width='320' role='img'><title>{count:,} within {half:,}</title>"
        f"<line x1='0' y1='12' x2='300' y2='12'/><rect x='{low:.1f}' y='6' width='{wide:.1f}' height='12'/>"
        f"<text x='0' y='32'>0</text><text x='135' y='32'>{count:,}</text>"
        f"<text x='265' y='32'>{2 * count:,}</text></svg>"
    )


def _grant(file: Path, draft: Inputs) -> grants.GrantReport:
    """Grants what the form says, as ``pinq grant`` does."""
    terms = grants.make_terms(file, max_epsilon_per_query=draft.said("most"), queries_per_minute=draft.said("pace"))
    because, asked = here(draft.said("because") or ""), draft.said("epsilon") or ""
    return grants.grant(file, draft.said("analyst") or "", asked, draft.said("expires"), terms, by=because)


def _show_token(account: grants.GrantReport, dataset: str) -> None:
    done = f"{account.analyst} was granted epsilon {account.limit}. This token is shown only now, and kept nowhere:"
    tell(done, "good")
    ui.label(account.token).classes("token")
    ui.button("Copy the token", on_click=lambda: ui.clipboard.write(account.token)).props("no-caps outline")
    for warning in account.warnings:
        ui.label(warning).classes("quiet")
    url = f"https://HOST:8443/{dataset}"
    python = f"import pathlib, pinq\nh = pinq.connect('{url}', token=pathlib.Path('FILE'))"
    command(f"pinq workbench {url} --token-file FILE\n\n{python}", "How the analyst uses it")
