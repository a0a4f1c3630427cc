# SPDX-License-Identifier: Apache-2.0
"""The page on which a provider reviews a policy: a column at a time, or many with one reason."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from pinq.errors import PolicyError
from pinq.provider import policy_file
from pinq.provider.check import CheckReport, Example, Groups, check, examples, groups, raw_columns
from pinq.provider.policy_file import load_policy
from pinq_workbench.folder import Folder
from pinq_workbench.parts import Act, Draft, attempt, choice, command, field, frame, page, section, table, tell

if TYPE_CHECKING:
    from pinq.public.policy import Policy


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
    waiting: list[policy_file.Waiting]
    examples: Mapping[str, list[Example]]
    raw: list[str]

    def of(self, column: str) -> list[policy_file.Waiting]:
        """What waits of a column; of none, of the policy itself."""
        return [item for item in self.waiting if _column_of(item.name) == column]


class Reviewing:
    """The page of each policy.

    Args:
        folder: Whose policies.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._seen: dict[tuple[Path, int], Seen] = {}

    def register(self) -> None:
        """Declares the page."""
        page("/policy/{name}")(self._review)

    def seen(self, name: str) -> Seen:
        """What there is to review, read again once the file changed. ``PolicyError`` as in ``look``."""
        file = self.folder.file(name)
        key = file, file.stat().st_mtime_ns
        if key not in self._seen:
            policy = load_policy(file)
            shown = examples(file, SHOWN_ROWS), raw_columns(file)
            self._seen = {key: Seen(policy, policy_file.waiting(file), *shown)}
        return self._seen[key]

    async def _review(self, name: str) -> None:
        with frame(f"Review {name}", self.folder.links(name)):
            if await attempt(tell(), self.seen, name) is None:
                return
            self._columns(name)
            with section("Check", "What the policy does to the rows, exactly: for your eyes only."):

                async def act(where: ui.label) -> None:
                    report = await attempt(where, check, self.folder.path / name)
                    shown.clear()
                    if report is not None:
                        with shown:
                            _show_check(report, load_policy(self.folder.path / name))

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
                    partial(policy_file.leave_out, self.folder.file(name), column),
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

    def _items(self, name: str, what: str, items: list[policy_file.Waiting]) -> None:
        """Shows what waits of a column, to be kept or changed with one reason."""
        draft = self.folder.draft(name)
        for item in items:
            with ui.row().classes("row-of"):
                draft.setdefault(item.name, item.value)
                field(f"{_column_of(item.name)} {item.name.rpartition('.')[2]}".strip(), draft, item.name)
                ui.label("read off the rows").classes("mark")
                ui.label(item.remark).classes("quiet")
        if items:
            field(f"Where {what} is publicly known from", draft, f"why {what}", "a code book, a form, a law")
            self._changing(
                name,
                f"Confirm {what}",
                lambda: _confirm(self.folder.file(name), items, draft, str(draft.get(f"why {what}", ""))),
            )
            names = " ".join(f"--accept {shlex.quote(item.name)}" for item in items)
            command(f"pinq review {shlex.quote(name)} {names} --because TEXT")

    def _at_once(self, name: str, seen: Seen) -> None:
        """Confirms many columns as they stand, with one reason."""
        draft, columns = self.folder.draft(name), [column for column in seen.policy.columns if seen.of(column)]
        ticked: set[str] = draft.setdefault("many", set())
        with section("Many columns at once", "As they stand below, with one reason."):
            with ui.element("fieldset").classes("row-of"):
                ui.html("Columns", tag="legend", sanitize=False)
                boxes = [_box(column, ticked) for column in columns]
            field("Where all of this is publicly known from", draft, "why many", "a code book, a form, a law")

            def confirm() -> None:
                chosen = [f"columns.{column}" for column in columns if column in ticked]
                policy_file.confirm(self.folder.file(name), chosen, str(draft.get("why many", "")))

            with ui.row().classes("row-of"):
                self._changing(name, "Confirm the ticked columns", confirm)
                ui.button("Tick all", on_click=lambda: [box.set_value(True) for box in boxes]).props("no-caps outline")

    def _persons(self, name: str, seen: Seen) -> None:
        """Asks whose presence is hidden: a row's, or all rows of a person."""
        draft, unit = self.folder.draft(name), seen.policy.bounded_unit
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
                found = await attempt(place, groups, self.folder.file(name), str(draft.get("person") or ""))
                shown.clear()
                if found is not None:
                    with shown:
                        _show_groups(str(draft["person"]), found)

            Act("Show how many rows each has", look_at, main=False)
            field("Rows of one person that count at most", draft, "rows of one", "a bound that is publicly known")
            field("Why", draft, "why unit", "a case is a stay, and a person has at most three a year")
            self._changing(name, "Hide this", lambda: _set_unit(self.folder.file(name), draft))
        self._items(name, "max_rows", [item for item in own if item.name != "privacy_unit"])


def _column_of(name: str) -> str:
    """The column of a value that waits, ``age`` of ``columns.age.upper``; empty where it is the policy's own."""
    return name.removeprefix("columns.").rpartition(".")[0] if name.startswith("columns.") else ""


def _confirm(file: Path, items: list[policy_file.Waiting], draft: Draft, because: str) -> None:
    """Confirms what waits: what was changed in its field one by one, then all that stands as it was."""
    kept = [item.name for item in items if draft[item.name] == item.value]
    for item in items:
        if item.name not in kept:
            policy_file.confirm(file, [item.name], because, str(draft[item.name]))
    if kept:
        policy_file.confirm(file, kept, because)


def _box(column: str, ticked: set[str]) -> ui.checkbox:
    """Makes a box that puts a column into a set."""

    def tick(event: ValueChangeEventArguments[bool | None]) -> None:
        ticked.add(column) if event.value else ticked.discard(column)

    return ui.checkbox(column, value=column in ticked, on_change=tick)


def _set_unit(file: Path, draft: Draft) -> None:
    """Declares whose presence is hidden; the column that names persons is one that nobody asks about."""
    column, because = str(draft.get("person") or ""), str(draft.get("why unit", ""))
    if not column:
        policy_file.confirm(file, ["privacy_unit"], because)
        return
    most = str(draft.get("rows of one", ""))
    if not most.isdecimal():
        raise PolicyError("Say how many rows of one person count at most: a whole number that is publicly known.")
    if not because.strip():
        raise PolicyError("A reason is needed.")
    if column in load_policy(file).columns:
        policy_file.leave_out(file, column)
    unit = f"{{column: {json.dumps(column, ensure_ascii=False)}, max_rows: {most}}}"
    policy_file.confirm(file, ["privacy_unit"], because, unit)


def _show_groups(column: str, found: Groups) -> None:
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
