# SPDX-License-Identifier: Apache-2.0
"""The review of a proposed policy, for people who decide and write no code: a question a step.

Order: the steps, with alike columns in one; the page; the persons; the columns of a step, each with a picture of
its rows against the proposed bounds; the check. Pictures and examples are exact: for the provider only.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nicegui import ui

from pinq.errors import PolicyError
from pinq.policy.plain_yaml import read_yaml, write_yaml
from pinq.policy.policy import Policy
from pinq.provider import review
from pinq.provider.check import CheckReport, Example, RowsPerValue, Shape, check, examples, groups, raw_columns, shapes
from pinq.provider.policy_file import load_policy, read_policy_text
from pinq.provider.report.markup import Html, element
from pinq.provider.review import Waiting
from pinq.public.schema import Column
from pinq_workbench.parts import ActionButton, Inputs, attempt, choice, fields, row, section, spoken, table, tell, write

SHOWN_ROWS = 10
AT_MOST = 40  # columns of a step
DIGITS = re.compile(r"\d+")
REASONS = ("the code book", "the form", "a law or a standard", "everybody knows it")
KINDS = {"numeric": "Numbers", "categorical": "Lists of values", "date": "Dates", "datetime": "Dates with times"}
MISSING = {"true": "A missing value is an answer of its own", "false": "A row without a value is left out"}
PERSONS, CHECK = "Persons", "Check"
EACH_ROW = "Each row is another person"
FURTHER = "Another column names the person"
KNOWN = "Where this is publicly known from"


def steps(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Groups the columns of one question: columns with alike names or the same values, and all others by kind."""
    alike, rest = defaultdict[object, list[str]](list), defaultdict[str, list[str]](list)
    for name, column in columns.items():
        alike[column.type, DIGITS.sub("#", name)].append(name)
    same = defaultdict[object, list[str]](list)
    for names in [names for names in alike.values() if len(names) == 1]:
        column = columns[names[0]]
        same[column.values if column.type == "categorical" else names[0]].append(names[0])
    found: dict[str, list[str]] = {}
    for names in [*(names for names in alike.values() if len(names) > 1), *same.values()]:
        if len(names) == 1:
            rest[columns[names[0]].type].append(names[0])
            continue
        for start in range(0, len(names), AT_MOST):
            some = names[start : start + AT_MOST]
            found[f"{some[0]} to {some[-1]} ({len(some)})"] = some
    for kind, names in rest.items():
        for start in range(0, len(names), AT_MOST):
            found[KINDS[kind] + (f" from {names[start]}" if start else "")] = names[start : start + AT_MOST]
    return found


@dataclass(frozen=True)
class Inspection:
    """A policy file as its review shows it.

    Attributes:
        policy: Its declarations so far.
        waiting: The values that nobody has reviewed yet.
        examples: Rows as it reads them.
        shapes: The rows of each column by bar.
        raw: All columns of the source.
    """

    policy: Policy
    waiting: list[Waiting]
    examples: Mapping[str, list[Example]]
    shapes: Mapping[str, Shape]
    raw: list[str]

    @classmethod
    def of_file(cls, file: Path, last: Inspection | None) -> Inspection:
        """Reads a policy, and its rows where a declaration changed. Raises ``PolicyError`` as ``examples`` does."""
        policy = load_policy(file)
        if policy.tables:
            raise PolicyError(
                f"This page reviews one table, and {policy.dataset} has several: {', '.join(policy.tables)}. Review "
                f"them at the command line: pinq review {file.name}"
            )
        waiting = review.waiting(file)
        declared = _declared(policy)
        if last is not None and declared.items() <= _declared(last.policy).items():
            return replace(last, policy=policy, waiting=waiting)
        return cls(policy, waiting, examples(policy, SHOWN_ROWS), shapes(policy), raw_columns(policy))

    def of(self, *names: str) -> list[Waiting]:
        """The unreviewed values of columns, or keys of the policy itself."""
        return [item for item in self.waiting if column_of(item.name) in names or item.name in names]


def _declared(policy: Policy) -> dict[str, str]:
    """Each column's declaration without its unreviewed values."""
    return {name: column.model_dump_json(exclude={"unreviewed"}) for name, column in policy.columns.items()}


def column_of(name: str) -> str:
    """The column of a value that waits, ``age`` of ``columns.age.upper``; empty where it is the policy's own."""
    return name.removeprefix("columns.").rpartition(".")[0] if name.startswith("columns.") else ""


class Review:
    """The page of one policy file.

    Args:
        name: The name of the file.
        file: Its place.
        draft: The typed values.
    """

    def __init__(self, name: str, file: Path, draft: Inputs) -> None:
        self.name, self.file, self.draft = name, file, draft
        self._seen: dict[int, Inspection] = {}
        self._changes: list[tuple[str, str]] = []

    @property
    def seen(self) -> Inspection:
        """The file and its rows, read again after a change."""
        key = self.file.stat().st_mtime_ns
        if key not in self._seen:
            self._seen = {key: Inspection.of_file(self.file, next(iter(self._seen.values()), None))}
        return self._seen[key]

    async def show(self) -> None:
        """Draws the page, once the rows are read."""
        if await attempt(tell(), lambda: self.seen) is not None:
            self.step()

    @ui.refreshable_method
    def step(self) -> None:
        """Draws the list of steps and the question of the present step; drawn again after each act, in all tabs."""
        seen = self.seen
        asked = steps(seen.policy.columns)
        titles = {PERSONS: ("privacy_unit", "max_rows"), **asked, CHECK: ()}
        here = self.draft.get("step")
        if here not in titles:
            here = next((title for title, names in titles.items() if seen.of(*names)), CHECK)
        with ui.element("nav").classes("row-of steps").props("aria-label=Steps"):
            for title, names in titles.items():
                done = "" if title == CHECK or seen.of(*names) else " ✓"
                made = ui.button(title + done, on_click=partial(self.go, title)).props("no-caps dense")
                made.props("unelevated aria-current=step" if title == here else "outline")
        with row():
            left = len({column_of(item.name) or PERSONS for item in seen.waiting})
            tell(f"To review: {left}. Nothing opens before." if left else "Nothing waits for review.", "quiet")
            if self._changes:
                ActionButton("Undo the last step", self.undo, lambda _: self.step.refresh(), main=False)
        if here == PERSONS:
            self._persons(seen)
        elif here == CHECK:
            self._check(seen)
        else:
            self._columns(here, asked[here], seen)

    def go(self, title: str | None) -> None:
        """Goes to a step; without one to the first that waits."""
        self.draft["step"] = title
        self.step.refresh()

    def undo(self) -> None:
        """Puts the file back as it was before the last change. Raises ``PolicyError`` if others changed it since."""
        before, after = self._changes[-1]
        if read_policy_text(self.file) != after:
            raise PolicyError("Something else changed since that step, so it cannot be undone any more.")
        review.replace_policy(self.file, before)
        self._changes.pop()
        _ = self.seen

    def _change(self, change: Callable[[], object]) -> None:
        """Changes the file, and notes it so that it can be undone."""
        before = read_policy_text(self.file)
        change()
        self._changes.append((before, read_policy_text(self.file)))

    def _button(self, text: str, change: Callable[[], object], *, then: bool = False, main: bool = True) -> None:
        """Makes a button that changes the policy file, and then may go on."""

        def changed() -> None:
            self._change(change)
            _ = self.seen  # read before it is drawn again, so that the page does not jump

        ActionButton(text, changed, lambda _: self.go(None) if then else self.step.refresh(), main=main)

    def _reason(self, key: str, label: str, reasons: Sequence[str]) -> None:
        """Asks for a reason: the usual ones are buttons."""

        @ui.refreshable
        def typed() -> None:
            fields(self.draft, {key: label})

        def say(reason: str) -> None:
            self.draft[key] = reason
            typed.refresh()

        typed()
        with row():
            for reason in reasons:
                ui.button(reason, on_click=partial(say, reason)).props("no-caps outline dense")

    # Whose presence is hidden

    def _persons(self, inspection: Inspection) -> None:
        draft, unit = self.draft, inspection.policy.bounded_unit
        with section("Whose presence must not show?"):
            for item in inspection.of("privacy_unit"):
                likely = list(dict.fromkeys([*([unit.column] if unit else []), *_likely(item.remark)]))
                if unit is not None:  # only a clear suggestion is preselected
                    draft.setdefault("who", unit.column)
                    draft.setdefault("most rows", str(unit.max_rows))
                elif "one row is one person" in item.remark:
                    draft.setdefault("who", EACH_ROW)
                if "who" in draft:
                    ui.label(item.remark.partition(" (")[0].partition("? ")[2] or item.remark).classes("quiet")
                options = {
                    EACH_ROW: EACH_ROW,
                    **{name: f"{name} names the person" for name in likely},
                    FURTHER: FURTHER,
                }
                ui.radio(options, value=draft.get("who"), on_change=self._chosen).props("dense")
                self._person(inspection, draft.said("who"))
                why = "Why\na person has at most three stays a year; a form is one person's"
                each = "one row is one person" if draft.get("who") == EACH_ROW else "the rules of the registry"
                self._reason("why unit", why, [each])
                self._button("Confirm who is hidden", lambda: set_unit(self.file, draft), then=True)
            if not inspection.of("privacy_unit"):
                ui.label("Each row by itself." if unit is None else f"All rows of one {unit.column}, {unit.max_rows}.")
        waiting = inspection.of("max_rows")
        if waiting:
            with section("How many rows can there ever be?", "Public, and without a look at the rows: a round number."):
                draft.setdefault("max_rows", waiting[0].value)
                fields(draft, {"max_rows": "Rows at most"})
                self._reason("why rows", KNOWN, ("the size of the registry", "the number of inhabitants"))
                say = partial(confirm, self.file, waiting, draft, "why rows")
                self._button("Confirm the number of rows", say, then=True)

    def _chosen(self, event: object) -> None:
        self.draft["who"] = event.value  # type: ignore[attr-defined]
        self.step.refresh()

    def _person(self, inspection: Inspection, who: str | None) -> None:
        """Asks for the column that names the person, and shows how many rows persons have."""
        if who in (None, EACH_ROW):
            return
        if who == FURTHER:
            choice(
                "Column that names the person", inspection.raw, self.draft, "person", changed=lambda: counted.refresh()
            )

        @ui.refreshable
        async def counted() -> None:
            column = self.draft.said("person") if who == FURTHER else who
            if column is not None:
                found = await attempt(tell(), lambda: groups(self.file, column))
                if found is not None:
                    _show_groups(column, found)

        with ui.column().classes("full"):
            ui.timer(0, counted, once=True)
        fields(self.draft, {"most rows": "Rows of one person that count at most\na bound that is publicly known"})

    # Columns

    def _columns(self, title: str, names: Sequence[str], inspection: Inspection) -> None:
        items = inspection.of(*names)
        for item in items:
            self.draft.setdefault(item.name, item.value)
        about = "Each picture: all rows, exactly, for your eyes only; the lines are the proposed bounds."
        with section(title, about if items else "All of this is reviewed."):
            with (
                ui.element("div")
                .classes("tiles")
                .props("tabindex=0 role=group")
                .props(f'aria-label="{len(names)} columns"')
            ):
                for name in names:
                    self._tile(name, inspection)
            if items:
                if inspection.policy.columns[names[0]].type == "numeric" and title not in KINDS.values():
                    same = ui.button("The same bounds for all", on_click=lambda: self._same(items))
                    same.props("no-caps outline dense")
                self._reason("why", KNOWN, REASONS)
                text = f"Confirm {names[0]}" if len(names) == 1 else f"Confirm these {len(names)}"
                self._button(text, lambda: confirm(self.file, items, self.draft, "why"), then=True)

    def _same(self, items: Sequence[Waiting]) -> None:
        """Gives numbers the widest of their bounds."""
        for end, widest in (("lower", min), ("upper", max)):
            names = [item.name for item in items if item.name.endswith(f".{end}")]
            for name in names:
                self.draft[name] = widest((str(self.draft[one]) for one in names), key=float)
        self.step.refresh()

    def _tile(self, name: str, inspection: Inspection) -> None:
        """Shows a column: its name, its rows, and the proposed declaration."""
        column = inspection.policy.columns[name]
        with ui.element("div").classes("tile"):
            ui.label(name).classes("name")
            write(picture(name, column, inspection.shapes[name], *self._bounds(name)))
            ui.label(self._says(name, column, inspection.shapes[name])).classes("quiet")
            with ui.element("div"):
                change = ui.button("Look", on_click=partial(self._look, name)).props("flat dense no-caps")
                change.props["aria-label"] = f"Look at {name}"
                out = ui.button("Leave out", on_click=partial(self._leave_out, name)).props("flat dense no-caps")
                out.props["aria-label"] = f"Leave {name} out"

    async def _leave_out(self, name: str) -> None:
        place = tell()

        def change() -> None:
            self._change(partial(review.leave_out, self.file, name))
            _ = self.seen

        await attempt(place, change)
        if not place.text:
            self.step.refresh()

    def _bounds(self, name: str) -> tuple[float | None, float | None]:
        """The typed bounds of a number; None where they are as the file has them, or are none."""
        low, high = (_number(self.draft.get(f"columns.{name}.{end}")) for end in ("lower", "upper"))
        return low, high

    def _says(self, name: str, column: Column, shape: Shape) -> str:
        """Says what is proposed, in few words."""
        if column.type == "categorical":
            values = read_yaml(str(self.draft.get(f"columns.{name}.values") or "[]")) or column.values
            shown = ", ".join(map(str, values))
            said = f"{len(values)} values: {shown}" if len(shown) < 60 else f"{len(values)} values: {shown[:60]} ..."
        else:
            typed = [self.draft.get(f"columns.{name}.{end}") for end in ("lower", "upper")]
            ends = [str(one).strip("'\"") for one in typed if one] or [str(column.lower), str(column.upper)]
            said = " to ".join(ends)
        beyond = shape.below + shape.above
        fate = "without" if column.nullable else "left out"
        facts = [f"{beyond:,} rows beyond" if beyond else "", f"{shape.lost:,} rows {fate}" if shape.lost else ""]
        return "; ".join(filter(None, [said, *facts]))

    def _look(self, name: str) -> None:
        """Opens a column: examples, the picture, and what may be changed."""
        seen, column = self.seen, self.seen.policy.columns[name]
        shown = seen.examples[name]
        rows = [["in the table", *(one.raw for one in shown)], ["is read as", *(one.read for one in shown)]]
        with ui.dialog() as dialog, ui.card() as card:
            card.props.update({"role": "dialog", "aria-label": name})
            write(element("h2", name), "div")
            drawn = write(picture(name, column, seen.shapes[name], *self._bounds(name), wide=True))

            def draw() -> None:
                drawn.set_content(picture(name, column, seen.shapes[name], *self._bounds(name), wide=True))

            table(f"Examples of {name}", ["", *(f"row {number + 1}" for number in range(len(shown)))], rows)
            for item in seen.of(name):
                self._field(item, column, seen.shapes[name], draw)
            if not seen.of(name):
                ui.label(f"Reviewed: {column.describe()}")
            ui.button("Done", on_click=dialog.close).props("no-caps unelevated")
        dialog.on("hide", self.step.refresh)
        dialog.open()

    def _field(self, item: Waiting, column: Column, shape: Shape, draw: Callable[[], object]) -> None:
        """Makes the controls for an unreviewed value: a slider for a bound, ticks for values, buttons for all else."""
        key, draft = item.name.rpartition(".")[2], self.draft
        if key in ("lower", "upper"):
            self._bound(item, column, shape, draw)
        elif key == "nullable":
            ui.radio(MISSING, value=draft[item.name], on_change=lambda event: draft.update({item.name: event.value}))
        elif key == "values" and column.type == "categorical":
            chosen = [str(value) for value in read_yaml(str(draft[item.name]))]
            kept = {str(value): value for value in column.values}

            def pick(event: object) -> None:
                values = [kept.get(value, value) for value in event.value]  # type: ignore[attr-defined]
                draft[item.name] = write_yaml(values, True).strip()

            made = ui.select(chosen, label="Values that are listed", value=chosen, multiple=True, on_change=pick)
            made.props("use-chips outlined stack-label use-input new-value-mode=add-unique")
        elif key == "step":
            fields(draft, {item.name: "Numbers are told apart in steps of"})

    def _bound(self, item: Waiting, column: Column, shape: Shape, draw: Callable[[], object]) -> None:
        """Makes a field for a bound, and for a number a slider beside it."""
        words = {"lower": "From\nsmaller ones count as this one", "upper": "To\nlarger ones count as this one"}
        label, key = words[item.name.rpartition(".")[2]], item.name

        @ui.refreshable
        def typed() -> None:
            fields(self.draft, {key: label}, draw)

        typed()
        if column.type != "numeric":
            return

        def slid(event: object) -> None:
            self.draft[key] = str(event.args)  # type: ignore[attr-defined]
            typed.refresh()
            draw()

        low, high = float(column.lower), float(column.upper)
        room, grain = (high - low) / 2, float(column.step or 1)
        unit = grain * max(1, round((high - low) / grain / 100))
        slider = ui.element("input").classes("slide")
        slider.props.update({"type": "range", "min": low - room, "max": high + room, "step": unit})
        slider.props["value"] = self.draft[key]
        slider.props["aria-label"] = f"{label.partition(chr(10))[0]}, to slide"
        slider.on("input", slid, js_handler="(event) => emit(event.target.value)", throttle=0.1)

    # The check

    def _check(self, inspection: Inspection) -> None:
        left_out = re.findall(r"^#   (.+?: .+)$", read_policy_text(self.file).partition("# Left out:")[2], re.M)
        if left_out:
            with ui.expansion(f"Columns that nobody can ask about: {len(left_out)}").classes("full").props("dense"):
                for text in left_out:
                    ui.label(spoken(text.partition("; where a person")[0])).classes("quiet")
        with section("Check", "What the policy does to the rows, exactly: for your eyes only."):
            ActionButton("Check now", lambda: check(self.file), partial(self._checked, inspection), main=True)

    def _checked(self, inspection: Inspection, report: CheckReport) -> None:
        lost = report.source_rows - report.encoded_rows
        ui.label(f"{report.source_rows:,} rows, {report.encoded_rows:,} encoded, {lost:,} left out.")
        for text in report.problems:
            said, _, asked = text.partition(" Or say why it is right: pinq review --accept ")
            tell(f"Not ready: {spoken(said)}")
            for finding in report.asked if asked else ():
                if finding in asked:
                    why = f"why {finding}"
                    fields(self.draft, {why: f"Why it is right all the same ({column_of(finding) or finding[8:]})"})
                    self._button("Accept", partial(self._accept, finding, why), main=False)
        if report.ready:
            tell("Ready: it can be granted on.", "good")
            ui.link("Grant", f"/policy/{self.name}/grants")
        for text in report.advice:
            ui.label(f"Note: {spoken(text)}").classes("quiet")
        for column, values in report.lost.items():
            ui.label(f"{column}: not declared are " + ", ".join(f"{value} ({rows:,} rows)" for value, rows in values))
        changed = [
            [name, column.describe(), f"{report.left_out[name]:,}", f"{report.clamped.get(name, 0):,}"]
            for name, column in inspection.policy.columns.items()
            if report.left_out[name] or report.clamped.get(name, 0)
        ]
        if changed:
            table("Columns whose rows are changed", ["column", "domain", "left out >", "clamped >"], changed)

    def _accept(self, finding: str, why: str) -> None:
        review.confirm(self.file, [finding], self.draft.said(why) or "")


def _likely(remark: str) -> list[str]:
    """The columns that a proposal names as possible identifiers of persons."""
    found = re.findall(r'column: ("(?:[^"\\]|\\.)*")', remark)
    return [str(json.loads(name)) for name in found]


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


def confirm(file: Path, items: Sequence[Waiting], draft: Inputs, why: str) -> None:
    """Confirms the unreviewed values with the contents of their fields, all of them or none."""
    changed = {item.name: _written(item, str(draft[item.name])) for item in items if draft[item.name] != item.value}
    review.confirm(file, [item.name for item in items], draft.said(why) or "", changed)


def _written(item: Waiting, typed: str) -> str:
    """A typed value as the file writes it: a date in quotes, as it was before."""
    return json.dumps(typed.strip("'\"")) if item.value[:1] in ("'", '"') else typed


def set_unit(file: Path, draft: Inputs) -> None:
    """Declares whose presence is hidden; the column that names persons cannot be queried."""
    who, because, most = draft.said("who"), draft.said("why unit"), draft.said("most rows") or ""
    column = draft.said("person") if who == FURTHER else None if who == EACH_ROW else who
    if who is None or (who == FURTHER and column is None):
        raise PolicyError("Choose first: is each row another person, or does a column name the person?")
    unit = "row"
    if column is not None:
        if not most.isdecimal():
            raise PolicyError("Say how many rows of one person count at most: a whole number that is publicly known.")
        if because is None:
            raise PolicyError("A reason is needed.")
        if column in load_policy(file).columns:
            review.leave_out(file, column)
        unit = f"{{column: {json.dumps(column, ensure_ascii=False)}, max_rows: {most}}}"
    review.confirm(file, ["privacy_unit"], because or "", unit)


def _show_groups(column: str, persons: RowsPerValue) -> None:
    ui.label(f"{persons.values:,} different values of {column}; the commonest stands in {persons.largest:,} rows.")
    rows = [[f"{size:,}", f"{values:,}"] for size, values in persons.sizes]
    table("Largest groups, read off the rows: for your review alone", ["rows each >", "how many have so many >"], rows)


WIDE, HIGH, ROOM = 180, 48, 24  # of a picture: units, and the room at each side for rows beyond a bound


def picture(
    name: str, column: Column, shape: Shape, lower: float | None, upper: float | None, *, wide: bool = False
) -> Html:
    """Draws the rows of a column as bars, with lines at the bounds of a number; rows beyond them are red."""
    bars = [*shape.bars] if shape.width else sorted(shape.bars, reverse=True)
    tallest, each = max([*bars, shape.below, shape.above, 1]), (WIDE - 2 * ROOM) / max(1, len(bars))
    ends = [0.0, 1.0]  # shares of the pictured range
    if column.type != "categorical":
        whole = shape.width * len(bars)
        ends = [
            own if typed is None else (typed - float(column.lower)) / whole
            for own, typed in zip(ends, (lower, upper), strict=True)
        ]
    kinds = ["in" if ends[0] <= (number + 0.5) / len(bars) <= ends[1] else "out" for number in range(len(bars))]
    drawn = [
        _bar(ROOM + each * number, each, rows / tallest, kind)
        for number, (rows, kind) in enumerate(zip(bars, kinds, strict=True))
    ]
    drawn += [_bar(at, ROOM / 2, rows / tallest, "out") for at, rows in ((4, shape.below), (WIDE - 16, shape.above))]
    for share in ends if shape.width else ():
        x = round(min(WIDE - 1.0, max(1.0, ROOM + share * (WIDE - 2 * ROOM))), 1)
        drawn.append(element("path", d=f"M{x} 0V{HIGH}", class_="bound"))
    title = element("title", f"Rows of {name}; the longest bar has {tallest:,}")
    size = WIDE * (2 if wide else 1)
    return element("svg", title, *drawn, class_="shape", viewBox=f"0 0 {WIDE} {HIGH}", width=size, role="img")


def _bar(x: float, width: float, share: float, kind: str) -> Html:
    tall = round(share * (HIGH - 2) + (0.8 if share else 0), 1)
    return element(
        "rect", x=round(x, 1), y=HIGH - tall, width=round(max(0.8, width - 0.6), 1), height=tall, class_=kind
    )
