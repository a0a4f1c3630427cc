# SPDX-License-Identifier: Apache-2.0
"""The provider's way: from a file to a reviewed policy, to a grant, to a served dataset, to its log.

All that is kept is the folder: policy files, the ledgers beside their sources, and the lines that
``serving.py`` keeps of a running server. So a workbench that is stopped or killed goes on where it was.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from pinq.cli.prepare import dialect_of
from pinq.errors import PinqError, PolicyError
from pinq.ledger.events import here
from pinq.provider import grants, look, review
from pinq.provider.arguments import make_terms
from pinq.provider.check import CheckReport, check
from pinq.provider.policy_file import load_policy, parse_policy
from pinq.provider.proposal import propose
from pinq.public.accuracy import laplace_interval, max_belief
from pinq.public.epsilon import Epsilon
from pinq_workbench.auditor import declare_report, show_report
from pinq_workbench.parts import Act, Draft, attempt, choice, command, frame, section, table, tell
from pinq_workbench.parts import field as typed

if TYPE_CHECKING:
    from pinq.public.policy import Policy
    from pinq.public.schema import Schema

__all__ = ["Provider"]

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
SHOWN_ROWS = 4


@dataclass(frozen=True)
class Seen:
    """A policy file as the review page shows it.

    Attributes:
        policy: What it declares so far.
        waiting: What nobody reviewed yet.
        examples: Rows as it reads them.
        raw: All columns of the source.
    """

    policy: Policy
    waiting: list[review.Waiting]
    examples: Mapping[str, list[look.Example]]
    raw: list[str]

    def of(self, column: str) -> list[review.Waiting]:
        """What waits of a column; of none, of the policy itself."""
        return [item for item in self.waiting if _column_of(item.name) == column]


@dataclass
class Provider:
    """A folder of policies, and what was typed about each.

    Attributes:
        folder: Where policies and tables are.
        drafts: What was typed, by policy file.
    """

    folder: Path
    drafts: dict[str, Draft] = field(default_factory=dict)
    _seen: dict[tuple[Path, int], Seen] = field(default_factory=dict)

    def draft(self, name: str) -> Draft:
        """What was typed about a policy."""
        return self.drafts.setdefault(name, {})

    def policies(self) -> list[str]:
        """The policy files of the folder, by name."""
        return sorted(file.name for file in self.folder.iterdir() if file.suffix in (".yaml", ".yml"))

    def tables(self) -> list[str]:
        """What looks like a table there, by name."""
        return sorted(file.name for file in self.folder.iterdir() if file.name.lower().endswith(TABLES))

    def file(self, name: str) -> Path:
        """The policy file of a page. ``PolicyError`` where the folder has none of this name."""
        if name not in self.policies():
            raise PolicyError(f"There is no policy {name} in {self.folder}.")
        return self.folder / name

    def seen(self, name: str) -> Seen:
        """What there is to review, read again once the file changed. ``PolicyError`` as in ``look``."""
        file = self.file(name)
        key = file, file.stat().st_mtime_ns
        if key not in self._seen:
            policy = load_policy(file)
            shown = look.examples(file, SHOWN_ROWS), look.raw_columns(file)
            self._seen = {key: Seen(policy, review.waiting(file), *shown)}
        return self._seen[key]

    def propose(self, draft: Draft) -> str:
        """Writes a proposal beside the others; returns its name. Errors as in ``propose``."""
        data, stated = str(draft.get("data") or ""), {key: draft[key] for key in DIALECT if draft.get(key)}
        if not data:
            raise PolicyError("Choose a table first, or write where it is.")
        place = data if Path(data.split("::")[0]).is_absolute() else str(self.folder / data)
        try:
            csv = dialect_of(**stated)
        except typer.BadParameter as error:
            raise PolicyError(error.message) from None
        text = propose(place, target=draft.get("target") or None, folder=self.folder, csv=csv)
        name = f"{parse_policy(text, self.folder / 'proposed').dataset}.yaml"
        with (self.folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
        return name

    def register(self) -> None:
        """Declares the pages."""
        ui.page("/")(self._home)
        ui.page("/policy/{name}")(self._review)
        ui.page("/policy/{name}/grants")(self._grants)
        ui.page("/policy/{name}/log")(self._log)
        declare_report("/policy/{name}/log", lambda name: (self.file(name), None))

    def _links(self, name: str = "") -> dict[str, str]:
        own = {"Review": f"/policy/{name}", "Grants": f"/policy/{name}/grants", "Log": f"/policy/{name}/log"}
        return {"Datasets": "/"} | (own if name else {})

    # The folder

    def _home(self) -> None:
        draft = self.draft("")
        with frame(f"Datasets in {self.folder.name}", self._links()):
            for name in self.policies():
                with ui.card().props("flat bordered"):
                    ui.link(name, f"/policy/{name}").classes("text-h6")
                    ui.label(self._state(name))
            if not self.policies():
                ui.label("Nothing here yet. Choose a table below: the workbench proposes a policy for it.")
            with section("A new dataset", "Nothing leaves this machine. What is read off the rows waits for review."):
                self._new(draft)

    def _state(self, name: str) -> str:
        """Says in one line where a policy stands."""
        try:
            waiting = len(review.waiting(self.folder / name))
            if waiting:
                return f"{waiting} values wait for review"
            status = grants.show(self.folder / name)
            return f"{status.spent} of {status.cap} spent, {len(status.accounts)} granted"
        except PinqError as error:
            return str(error)

    def _new(self, draft: Draft) -> None:
        found = self.tables()
        chosen = {**dict.fromkeys(found), **dict.fromkeys(filter(None, [draft.get("data")]))}
        made = choice("Table", list(chosen), draft, "data", new_value_mode="add-unique")
        made.props["hint"] = "A file of this folder; or type a path, or FILE.duckdb::TABLE, and Enter"
        typed("Column that models will predict (optional)", draft, "target")
        with ui.expansion("How a text file is written").classes("full").props("dense"), ui.row().classes("row-of"):
            for key, label in DIALECT.items():
                typed(label, draft, key)

        async def act(place: ui.label) -> None:
            name = await attempt(place, self.propose, draft)
            if name:
                self.drafts[""] = {}
                ui.navigate.to(f"/policy/{name}")

        Act("Look at it", act)

    # Review

    async def _review(self, name: str) -> None:
        with frame(f"Review {name}", self._links(name)):
            if await attempt(tell(), self.seen, name) is None:
                return
            self._columns(name)
            with section("Check", "What the policy does to the rows, exactly: for your eyes only."):

                async def act(where: ui.label) -> None:
                    report = await attempt(where, check, self.folder / name)
                    shown.clear()
                    if report is not None:
                        with shown:
                            _show_check(report, load_policy(self.folder / name))

                Act("Check", act)
                shown = ui.column().classes("full")
                command(f"pinq check {shlex.quote(name)}")

    @ui.refreshable_method
    def _columns(self, name: str) -> None:
        """Shows what waits, and each column; drawn again after each act, in all tabs."""
        seen = self.seen(name)
        if seen.waiting:
            ui.label(f"{len(seen.waiting)} values wait for review. Nothing opens before.").props("role=status")
        else:
            ui.label("Nothing waits for review. Check, then grant.").classes("good").props("role=status")
        with section("Whose presence is hidden"):
            self._persons(name, seen)
        if seen.waiting:
            self._at_once(name, seen)
        for column, declared in seen.policy.columns.items():
            with section(column, declared.describe()):
                shown = seen.examples[column]
                rows = [["in the table", *(one.raw for one in shown)], ["is read as", *(one.read for one in shown)]]
                table(f"Examples of {column}", ["", *(f"row {row + 1}" for row in range(len(shown)))], rows)
                self._items(name, column, seen.of(column))
                self._changing(
                    name,
                    f"Leave {column} out",
                    partial(review.leave_out, self.file(name), column),
                    main=False,
                )

    def _changing(self, name: str, text: str, change: Callable[[], object], *, main: bool = True) -> None:
        """Makes a button that changes the policy file."""

        async def act(place: ui.label) -> None:
            # What the page shows next is read before it is drawn again, so that it does not jump.
            def changed() -> Seen:
                change()
                return self.seen(name)

            if await attempt(place, changed) is not None:
                self._columns.refresh()

        Act(text, act, main=main)

    def _items(self, name: str, what: str, items: list[review.Waiting]) -> None:
        """Shows what waits of a column, to be kept or changed with one reason."""
        draft = self.draft(name)
        for item in items:
            with ui.row().classes("row-of"):
                draft.setdefault(item.name, item.value)
                typed(f"{_column_of(item.name)} {item.name.rpartition('.')[2]}".strip(), draft, item.name)
                ui.label("read off the rows").classes("mark")
                ui.label(item.remark).classes("quiet")
        if items:
            typed(f"Where {what} is publicly known from", draft, f"why {what}", "a code book, a form, a law")
            self._changing(
                name,
                f"Confirm {what}",
                lambda: _confirm(self.file(name), items, draft, str(draft.get(f"why {what}", ""))),
            )
            names = " ".join(f"--accept {shlex.quote(item.name)}" for item in items)
            command(f"pinq review {shlex.quote(name)} {names} --because TEXT")

    def _at_once(self, name: str, seen: Seen) -> None:
        """Confirms many columns as they stand, with one reason."""
        draft, columns = self.draft(name), [column for column in seen.policy.columns if seen.of(column)]
        ticked: set[str] = draft.setdefault("many", set())
        with section("Many columns at once", "As they stand below, with one reason."):
            with ui.element("fieldset").classes("row-of"):
                ui.html("Columns", tag="legend", sanitize=False)
                boxes = [_box(column, ticked) for column in columns]
            typed("Where all of this is publicly known from", draft, "why many", "a code book, a form, a law")

            def confirm() -> None:
                chosen = [f"columns.{column}" for column in columns if column in ticked]
                review.confirm(self.file(name), chosen, str(draft.get("why many", "")))

            with ui.row().classes("row-of"):
                self._changing(name, "Confirm the ticked columns", confirm)
                ui.button("Tick all", on_click=lambda: [box.set_value(True) for box in boxes]).props("no-caps outline")

    def _persons(self, name: str, seen: Seen) -> None:
        """Asks whose presence is hidden: a row's, or all rows of a person."""
        draft, unit = self.draft(name), seen.policy.bounded_unit
        now = "Each row by itself." if unit is None else f"All rows of one {unit.column}, at most {unit.max_rows}."
        ui.label(now)
        own = seen.of("")
        if any(item.name == "privacy_unit" for item in own):
            choice(
                "Column that names the person; none where each row is another one",
                seen.raw,
                draft,
                "person",
                clearable=True,
            )
            shown = ui.column().classes("full")

            async def look_at(place: ui.label) -> None:
                found = await attempt(place, look.groups, self.file(name), str(draft.get("person") or ""))
                shown.clear()
                if found is not None:
                    with shown:
                        _show_groups(str(draft["person"]), found)

            Act("Show how many rows each has", look_at, main=False)
            typed("Rows of one person that count at most", draft, "rows of one", "a bound that is publicly known")
            typed("Why", draft, "why unit", "a case is a stay, and a person has at most three a year")
            self._changing(name, "Hide this", lambda: _set_unit(self.file(name), draft))
        self._items(name, "max_rows", [item for item in own if item.name != "privacy_unit"])

    # Grants

    async def _grants(self, name: str) -> None:
        with frame(f"Grants of {name}", self._links(name)):
            policy = await attempt(tell(), lambda: load_policy(self.file(name)))
            if policy is None:
                return
            self._accounts(name)
            draft = self.draft(name)
            with section("A new grant"):
                with ui.row().classes("row-of"):
                    typed("Analyst", draft, "analyst")
                    typed("Epsilon", draft, "epsilon", on_change=lambda: _words.refresh())
                    typed("Until (optional)", draft, "expires", "2030-01-31")
                with ui.row().classes("row-of"):
                    typed("Most that one query may ask (optional)", draft, "most")
                    typed("Queries a minute (optional)", draft, "pace")
                typed("Because", draft, "because", "a contract, a purpose; it stands in the log")
                _words(draft, policy.schema_)
                token = ui.column().classes("full")

                async def act(where: ui.label) -> None:
                    account = await attempt(where, _grant, self.file(name), draft)
                    if account is not None:
                        token.clear()
                        with token:
                            _show_token(account, policy.dataset)
                        self._accounts.refresh()

                Act("Grant", act)
                command(f"pinq grant {shlex.quote(name)} ANALYST --epsilon 1 --expires 2030-01-31 --because TEXT")

    @ui.refreshable_method
    def _accounts(self, name: str) -> None:
        """Shows who has what, and what changes it."""
        try:
            status = grants.show(self.file(name))
        except PinqError as error:
            tell(str(error), "quiet")
            return
        ui.label(f"{status.spent} of {status.cap} spent by all together; {status.remaining} remains under the cap.")
        if not status.accounts:
            ui.label("Nobody was granted anything yet. The form below makes a grant.").classes("quiet")
            return
        rows = [
            [one.analyst, one.state, one.limit, one.spent, one.remaining, one.expires or "never", one.terms]
            for one in status.accounts
        ]
        table("Grants", ["analyst", "state", "limit >", "spent >", "remaining >", "until", "allowed"], rows)

    # The log

    async def _log(self, name: str) -> None:
        with frame(f"Log of {name}", self._links(name)):
            file = await attempt(tell(), self.file, name)
            if file is not None:
                await show_report(f"/policy/{name}/log", self.draft(name), (file, None))


def _column_of(name: str) -> str:
    """The column of a value that waits, ``age`` of ``columns.age.upper``; empty where it is the policy's own."""
    return name.removeprefix("columns.").rpartition(".")[0] if name.startswith("columns.") else ""


def _confirm(file: Path, items: list[review.Waiting], draft: Draft, because: str) -> None:
    """Confirms what waits: what was changed in its field one by one, then all that stands as it was."""
    kept = [item.name for item in items if draft[item.name] == item.value]
    for item in items:
        if item.name not in kept:
            review.confirm(file, [item.name], because, str(draft[item.name]))
    if kept:
        review.confirm(file, kept, because)


def _box(column: str, ticked: set[str]) -> ui.checkbox:
    """Makes a box that puts a column into a set."""

    def tick(event: ValueChangeEventArguments[bool | None]) -> None:
        ticked.add(column) if event.value else ticked.discard(column)

    return ui.checkbox(column, value=column in ticked, on_change=tick)


def _set_unit(file: Path, draft: Draft) -> None:
    """Declares whose presence is hidden; the column that names persons is one that nobody asks about."""
    column, because = str(draft.get("person") or ""), str(draft.get("why unit", ""))
    if not column:
        review.confirm(file, ["privacy_unit"], because)
        return
    most = str(draft.get("rows of one", ""))
    if not most.isdecimal():
        raise PolicyError("Say how many rows of one person count at most: a whole number that is publicly known.")
    if not because.strip():
        raise PolicyError("A reason is needed.")
    if column in load_policy(file).columns:
        review.leave_out(file, column)
    unit = f"{{column: {json.dumps(column, ensure_ascii=False)}, max_rows: {most}}}"
    review.confirm(file, ["privacy_unit"], because, unit)


def _show_groups(column: str, found: look.Groups) -> None:
    ui.label(f"{found.values:,} different values of {column}; the commonest stands in {found.largest:,} rows.")
    rows = [[f"{size:,}", f"{values:,}"] for size, values in found.sizes]
    table("Largest groups, read off the rows: for your review alone", ["rows each >", "how many have so many >"], rows)


def _show_check(report: CheckReport, policy: Policy) -> None:
    lost = report.source_rows - report.encoded_rows
    ui.label(f"{report.source_rows:,} rows, {report.encoded_rows:,} encoded, {lost:,} left out.")
    rows = [
        [name, column.describe(), f"{report.left_out[name]:,}", f"{report.clamped.get(name, 0):,}"]
        for name, column in policy.columns.items()
    ]
    table("What becomes of each column", ["column", "domain", "left out >", "clamped >"], rows)
    for text in report.advice:
        ui.label(f"Note: {text}").classes("quiet")
    for text in report.problems:
        tell(f"Not ready: {text}")
    if report.ready:
        tell("Ready: it can be granted on.", "good")


@ui.refreshable
def _words(draft: Draft, schema: Schema) -> None:
    """Says what an epsilon means for a person, and draws what its noise does to counts."""
    try:
        epsilon = Epsilon.exactly(draft.get("epsilon") or "1")
    except PinqError as error:
        tell(str(error))
        return
    loss, most = float(epsilon.exact), max_belief(float(epsilon.exact), 0.5)
    who = "a person" if schema.privacy_unit != "row" else "a row"
    ui.label(
        f"With epsilon {epsilon} in all: somebody who gave it even chances that {who} is in the table may become "
        f"{most:.1%} sure at most, and {max_belief(loss, 0.01):.1%} sure from 1 %, whatever else they know."
    )
    for count in (100, 10_000):
        half = laplace_interval(1 / float(epsilon.per_row(schema.distance)), 0.95)
        ui.label(f"A count of {count:,} for all of it: {max(0, count - half):,} to {count + half:,} in 95 % of cases.")
        ui.html(_noise(count, half), sanitize=False)


def _noise(count: int, half: int) -> str:
    """Draws a count and the interval of its noise, on a line from nothing to twice the count."""
    low, high = (300 * min(max(0, end), 2 * count) / (2 * count) for end in (count - half, count + half))
    wide = max(2.0, high - low)
    return (
        f"<svg class='noise' viewBox='0 0 320 34' width='320' role='img'><title>{count:,} within {half:,}</title>"
        f"<line x1='0' y1='12' x2='300' y2='12'/><rect x='{low:.1f}' y='6' width='{wide:.1f}' height='12'/>"
        f"<text x='0' y='32'>0</text><text x='135' y='32'>{count:,}</text>"
        f"<text x='265' y='32'>{2 * count:,}</text></svg>"
    )


def _grant(file: Path, draft: Draft) -> grants.GrantReport:
    """Grants what the form says, as ``pinq grant`` does."""
    said = {name: str(draft.get(name) or "").strip() or None for name in ("expires", "most", "pace", "epsilon")}
    terms = make_terms(file, max_epsilon_per_query=said["most"], queries_per_minute=said["pace"])
    because = here(str(draft.get("because", "")))
    return grants.grant(file, str(draft.get("analyst", "")), said["epsilon"] or "", said["expires"], terms, by=because)


def _show_token(account: grants.GrantReport, dataset: str) -> None:
    tell(
        f"{account.analyst} was granted epsilon {account.limit}. This token is shown only now, and kept nowhere:",
        "good",
    )
    ui.label(account.token).classes("token")
    ui.button("Copy the token", on_click=lambda: ui.clipboard.write(account.token)).props("no-caps outline")
    for warning in account.warnings:
        ui.label(warning).classes("quiet")
    lines = f"pinq workbench https://HOST:8443/{dataset} --token-file FILE"
    command(lines, "How the analyst uses it")
