# SPDX-License-Identifier: Apache-2.0
"""The review of a proposed policy, for people who write no code, with one question in each step.

Order: the steps, each for similar columns; the page; the persons; the columns of a step, each with a picture of
its rows and the proposed bounds; the check. Pictures and examples are exact: for the provider only.
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
from pinq_workbench.parts import (
    ActionButton,
    Inputs,
    attempt,
    choice,
    fields,
    page_words,
    row,
    section,
    table,
    tell,
    write,
)

SHOWN_ROWS = 10
STEP_COLUMNS = 40  # at most, in one step
DIGITS = re.compile(r"\d+")
REASONS = ("the code book", "the form", "a law or a standard", "everybody knows it")
KINDS = {"numeric": "Numbers", "categorical": "Lists of values", "date": "Dates", "datetime": "Dates with times"}
MISSING = {"true": "A missing value is an answer of its own", "false": "A row without a value is left out"}
PERSONS, CHECK = "Persons", "Check"
EACH_ROW = "Each row is another person"
FURTHER = "Another column names the person"
KNOWN = "Where this is publicly known from"


def steps(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Groups columns into questions: columns with similar names or equal values, and the others by type."""
    by_name, rest = defaultdict[object, list[str]](list), defaultdict[str, list[str]](list)
    for name, column in columns.items():
        by_name[column.type, DIGITS.sub("#", name)].append(name)
    by_values = defaultdict[object, list[str]](list)
    for names in [names for names in by_name.values() if len(names) == 1]:
        column = columns[names[0]]
        by_values[column.values if column.type == "categorical" else names[0]].append(names[0])
    questions: dict[str, list[str]] = {}
    for names in [*(names for names in by_name.values() if len(names) > 1), *by_values.values()]:
        if len(names) == 1:
            rest[columns[names[0]].type].append(names[0])
            continue
        for start in range(0, len(names), STEP_COLUMNS):
            part = names[start : start + STEP_COLUMNS]
            questions[f"{part[0]} to {part[-1]} ({len(part)})"] = part
    for kind, names in rest.items():
        for start in range(0, len(names), STEP_COLUMNS):
            questions[KINDS[kind] + (f" from {names[start]}" if start else "")] = names[start : start + STEP_COLUMNS]
    return questions


@dataclass(frozen=True)
class Inspection:
    """A policy file, with what its review shows of the rows.

    Attributes:
        policy: The present declarations.
        waiting: The unreviewed values.
        examples: Values of each column, in the source and as the policy reads them.
        shapes: The histogram of each column.
        raw: All columns of the source.
    """

    policy: Policy
    waiting: list[Waiting]
    examples: Mapping[str, list[Example]]
    shapes: Mapping[str, Shape]
    raw: list[str]

    @classmethod
    def of_file(cls, file: Path, last: Inspection | None) -> Inspection:
        """Reads a policy, and its rows if a declaration changed; raises ``PolicyError`` if that fails."""
        policy = load_policy(file)
        if policy.tables:
            raise PolicyError(
                f"This page reviews one table, and {policy.dataset} has several: {', '.join(policy.tables)}. Review "
                f"them at the command line: pinq review {file.name}"
            )
        waiting = review.waiting(file)
        declarations = _declared(policy)
        if last is not None and declarations.items() <= _declared(last.policy).items():
            return replace(last, policy=policy, waiting=waiting)
        return cls(policy, waiting, examples(policy, SHOWN_ROWS), shapes(policy), raw_columns(policy))

    def of(self, *names: str) -> list[Waiting]:
        """The unreviewed values of these columns or keys of the policy."""
        return [item for item in self.waiting if column_of(item.name) in names or item.name in names]


def _declared(policy: Policy) -> dict[str, str]:
    """Each column's declaration without its unreviewed values."""
    return {name: column.model_dump_json(exclude={"unreviewed"}) for name, column in policy.columns.items()}


def column_of(name: str) -> str:
    """The column of an unreviewed value, ``age`` of ``columns.age.upper``; empty for a key of the policy."""
    return name.removeprefix("columns.").rpartition(".")[0] if name.startswith("columns.") else ""


class Review:
    """The page of one policy file.

    Args:
        name: The name of the file.
        file: The path of the file.
        draft: The typed values.
    """

    def __init__(self, name: str, file: Path, draft: Inputs) -> None:
        self.name, self.file, self.draft = name, file, draft
        self._inspections: dict[int, Inspection] = {}
        self._changes: list[tuple[str, str]] = []

    @property
    def inspection(self) -> Inspection:
        """The file and its rows, read again after a change."""
        key = self.file.stat().st_mtime_ns
        if key not in self._inspections:
            self._inspections = {key: Inspection.of_file(self.file, next(iter(self._inspections.values()), None))}
        return self._inspections[key]

    async def show(self) -> None:
        """Draws the page, once the rows are read."""
        if await attempt(tell(), lambda: self.inspection) is not None:
            self.step()

    @ui.refreshable_method
    def step(self) -> None:
        """Draws the list of steps and the present question, in all tabs, again after each act."""
        inspection = self.inspection
        questions = steps(inspection.policy.columns)
        titles = {PERSONS: ("privacy_unit", "max_rows"), **questions, CHECK: ()}
        present = self.draft.get("step")
        if present not in titles:
            present = next((title for title, names in titles.items() if inspection.of(*names)), CHECK)
        with ui.element("nav").classes("row-of steps").props("aria-label=Steps"):
            for title, names in titles.items():
                mark = "" if title == CHECK or inspection.of(*names) else " ✓"
                button = ui.button(title + mark, on_click=partial(self.go, title)).props("no-caps dense")
                button.props("unelevated aria-current=step" if title == present else "outline")
        with row():
            waiting_columns = len({column_of(item.name) or PERSONS for item in inspection.waiting})
            tell(
                f"To review: {waiting_columns}. The dataset opens after the review."
                if waiting_columns
                else "Nothing waits for review.",
                "quiet",
            )
            if self._changes:
                ActionButton("Undo the last step", self.undo, lambda _: self.step.refresh(), main=False)
        if present == PERSONS:
            self._persons(inspection)
        elif present == CHECK:
            self._check(inspection)
        else:
            self._columns(present, questions[present], inspection)

    def go(self, title: str | None) -> None:
        """Goes to a step; None for the first step with unreviewed values."""
        self.draft["step"] = title
        self.step.refresh()

    def undo(self) -> None:
        """Restores the file before the last change; raises ``PolicyError`` if it has been changed since."""
        before, after = self._changes[-1]
        if read_policy_text(self.file) != after:
            raise PolicyError("Something else changed since that step, so it cannot be undone any more.")
        review.replace_policy(self.file, before)
        self._changes.pop()
        _ = self.inspection

    def _change(self, change: Callable[[], object]) -> None:
        """Changes the file, and stores its old text for ``undo``."""
        before = read_policy_text(self.file)
        change()
        self._changes.append((before, read_policy_text(self.file)))

    def _button(self, text: str, change: Callable[[], object], *, then: bool = False, main: bool = True) -> None:
        """Makes a button that changes the policy file; with ``then`` it also goes to the next step."""

        def changed() -> None:
            self._change(change)
            _ = self.inspection  # reads the rows before the page is drawn again, so that it does not jump

        ActionButton(text, changed, lambda _: self.go(None) if then else self.step.refresh(), main=main)

    def _reason(self, key: str, label: str, reasons: Sequence[str]) -> None:
        """Makes a field for a reason, with buttons for usual reasons."""

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

    # The privacy unit

    def _persons(self, inspection: Inspection) -> None:
        draft, unit = self.draft, inspection.policy.bounded_unit
        with section("Whose presence must not show?"):
            for item in inspection.of("privacy_unit"):
                candidates = list(dict.fromkeys([*([unit.column] if unit else []), *_person_columns(item.remark)]))
                if unit is not None:  # only a clear suggestion is preselected
                    draft.setdefault("who", unit.column)
                    draft.setdefault("most rows", str(unit.max_rows))
                elif "one row is one person" in item.remark:
                    draft.setdefault("who", EACH_ROW)
                if "who" in draft:
                    ui.label(item.remark.partition(" (")[0].partition("? ")[2] or item.remark).classes("quiet")
                options = {
                    EACH_ROW: EACH_ROW,
                    **{name: f"{name} names the person" for name in candidates},
                    FURTHER: FURTHER,
                }
                ui.radio(options, value=draft.get("who"), on_change=self._chosen).props("dense")
                self._person(inspection, draft.text("who"))
                label = "Why\na person has at most three stays a year; a form is one person's"
                usual_reason = "one row is one person" if draft.get("who") == EACH_ROW else "the rules of the registry"
                self._reason("why unit", label, [usual_reason])
                self._button("Confirm who is hidden", lambda: set_unit(self.file, draft), then=True)
            if not inspection.of("privacy_unit"):
                ui.label("Each row by itself." if unit is None else f"All rows of one {unit.column}, {unit.max_rows}.")
        waiting = inspection.of("max_rows")
        if waiting:
            with section("How many rows can there ever be?", "Public, and without a look at the rows: a round number."):
                draft.setdefault("max_rows", waiting[0].value)
                fields(draft, {"max_rows": "Rows at most"})
                self._reason("why rows", KNOWN, ("the size of the registry", "the number of inhabitants"))
                confirm_rows = partial(confirm, self.file, waiting, draft, "why rows")
                self._button("Confirm the number of rows", confirm_rows, then=True)

    def _chosen(self, event: object) -> None:
        self.draft["who"] = event.value  # type: ignore[attr-defined]
        self.step.refresh()

    def _person(self, inspection: Inspection, who: str | None) -> None:
        """Makes the field for the column that names the person, and shows the rows of each person."""
        if who in (None, EACH_ROW):
            return
        if who == FURTHER:
            choice(
                "Column that names the person", inspection.raw, self.draft, "person", changed=lambda: counted.refresh()
            )

        @ui.refreshable
        async def counted() -> None:
            column = self.draft.text("person") if who == FURTHER else who
            if column is not None:
                groups_of_column = await attempt(tell(), lambda: groups(self.file, column))
                if groups_of_column is not None:
                    _show_groups(column, groups_of_column)

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
                    button = ui.button("The same bounds for all", on_click=lambda: self._same(items))
                    button.props("no-caps outline dense")
                self._reason("why", KNOWN, REASONS)
                text = f"Confirm {names[0]}" if len(names) == 1 else f"Confirm these {len(names)}"
                self._button(text, lambda: confirm(self.file, items, self.draft, "why"), then=True)

    def _same(self, items: Sequence[Waiting]) -> None:
        """Sets all lower bounds to the smallest, and all upper bounds to the largest of them."""
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
            ui.label(self._summary(name, column, inspection.shapes[name])).classes("quiet")
            with ui.element("div"):
                look = ui.button("Look", on_click=partial(self._look, name)).props("flat dense no-caps")
                look.props["aria-label"] = f"Look at {name}"
                leave_out = ui.button("Leave out", on_click=partial(self._leave_out, name)).props("flat dense no-caps")
                leave_out.props["aria-label"] = f"Leave {name} out"

    async def _leave_out(self, name: str) -> None:
        message = tell()

        def change() -> None:
            self._change(partial(review.leave_out, self.file, name))
            _ = self.inspection

        await attempt(message, change)
        if not message.text:
            self.step.refresh()

    def _bounds(self, name: str) -> tuple[float | None, float | None]:
        """The typed bounds of a numeric column; None for a bound that was not typed or is no number."""
        low, high = (_number(self.draft.get(f"columns.{name}.{end}")) for end in ("lower", "upper"))
        return low, high

    def _summary(self, name: str, column: Column, shape: Shape) -> str:
        """The proposed declaration and the rows outside of it, in few words."""
        if column.type == "categorical":
            values = read_yaml(str(self.draft.get(f"columns.{name}.values") or "[]")) or column.values
            list_text = ", ".join(map(str, values))
            summary = (
                f"{len(values)} values: {list_text}"
                if len(list_text) < 60
                else f"{len(values)} values: {list_text[:60]} ..."
            )
        else:
            typed_bounds = [self.draft.get(f"columns.{name}.{end}") for end in ("lower", "upper")]
            bounds = [str(one).strip("'\"") for one in typed_bounds if one] or [str(column.lower), str(column.upper)]
            summary = " to ".join(bounds)
        outside = shape.below + shape.above
        fate = "without" if column.nullable else "left out"
        facts = [f"{outside:,} rows beyond" if outside else "", f"{shape.lost:,} rows {fate}" if shape.lost else ""]
        return "; ".join(filter(None, [summary, *facts]))

    def _look(self, name: str) -> None:
        """Opens the dialog of a column: examples, the picture, and fields for unreviewed values."""
        inspection, column = self.inspection, self.inspection.policy.columns[name]
        sample_rows = inspection.examples[name]
        rows = [["in the table", *(one.raw for one in sample_rows)], ["is read as", *(one.read for one in sample_rows)]]
        with ui.dialog() as dialog, ui.card() as card:
            card.props.update({"role": "dialog", "aria-label": name})
            write(element("h2", name), "div")
            picture_html = write(picture(name, column, inspection.shapes[name], *self._bounds(name), wide=True))

            def draw() -> None:
                picture_html.set_content(picture(name, column, inspection.shapes[name], *self._bounds(name), wide=True))

            table(f"Examples of {name}", ["", *(f"row {number + 1}" for number in range(len(sample_rows)))], rows)
            for item in inspection.of(name):
                self._field(item, column, inspection.shapes[name], draw)
            if not inspection.of(name):
                ui.label(f"Reviewed: {column.describe()}")
            ui.button("Done", on_click=dialog.close).props("no-caps unelevated")
        dialog.on("hide", self.step.refresh)
        dialog.open()

    def _field(self, item: Waiting, column: Column, shape: Shape, draw: Callable[[], object]) -> None:
        """Makes the control for an unreviewed value."""
        key, draft = item.name.rpartition(".")[2], self.draft
        match key:
            case "lower" | "upper":
                self._bound(item, column, shape, draw)
            case "nullable":
                ui.radio(
                    MISSING, value=draft[item.name], on_change=lambda event: draft.update({item.name: event.value})
                )
            case "values" if column.type == "categorical":
                chosen = [str(value) for value in read_yaml(str(draft[item.name]))]
                by_text = {str(value): value for value in column.values}

                def pick(event: object) -> None:
                    values = [by_text.get(value, value) for value in event.value]  # type: ignore[attr-defined]
                    draft[item.name] = write_yaml(values, True).strip()

                field = ui.select(chosen, label="Values that are listed", value=chosen, multiple=True, on_change=pick)
                field.props("use-chips outlined stack-label use-input new-value-mode=add-unique")
            case "step":
                fields(draft, {item.name: "Numbers are read in steps of"})

    def _bound(self, item: Waiting, column: Column, shape: Shape, draw: Callable[[], object]) -> None:
        """Makes a field for a bound; a numeric column gets a slider too."""
        labels = {"lower": "From\nsmaller ones count as this one", "upper": "To\nlarger ones count as this one"}
        label, key = labels[item.name.rpartition(".")[2]], item.name

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
        margin, step = (high - low) / 2, float(column.step or 1)
        unit = step * max(1, round((high - low) / step / 100))
        slider = ui.element("input").classes("slide")
        slider.props.update({"type": "range", "min": low - margin, "max": high + margin, "step": unit})
        slider.props["value"] = self.draft[key]
        slider.props["aria-label"] = f"{label.partition(chr(10))[0]}, to slide"
        slider.on("input", slid, js_handler="(event) => emit(event.target.value)", throttle=0.1)

    # The check

    def _check(self, inspection: Inspection) -> None:
        left_out = re.findall(r"^#   (.+?: .+)$", read_policy_text(self.file).partition("# Left out:")[2], re.M)
        if left_out:
            with ui.expansion(f"Columns left out of the policy: {len(left_out)}").classes("full").props("dense"):
                for text in left_out:
                    ui.label(page_words(text.partition("; where a person")[0])).classes("quiet")
        with section("Check", "What the policy does to the rows, exactly: for your eyes only."):
            ActionButton("Check now", lambda: check(self.file), partial(self._checked, inspection), main=True)

    def _checked(self, inspection: Inspection, report: CheckReport) -> None:
        rows_left_out = report.source_rows - report.encoded_rows
        ui.label(f"{report.source_rows:,} rows, {report.encoded_rows:,} encoded, {rows_left_out:,} left out.")
        for text in report.problems:
            problem, _, findings = text.partition(" Or say why it is right: pinq review --accept ")
            tell(f"Not ready: {page_words(problem)}")
            for finding in report.asked if findings else ():
                if finding in findings:
                    reason_key = f"why {finding}"
                    fields(
                        self.draft, {reason_key: f"Why it is right nevertheless ({column_of(finding) or finding[8:]})"}
                    )
                    self._button("Accept", partial(self._accept, finding, reason_key), main=False)
        if report.ready:
            tell("Ready: it can be granted on.", "good")
            ui.link("Grant", f"/policy/{self.name}/grants")
        for text in report.advice:
            ui.label(f"Note: {page_words(text)}").classes("quiet")
        for column, values in report.lost.items():
            ui.label(f"{column}: not declared are " + ", ".join(f"{value} ({rows:,} rows)" for value, rows in values))
        changed_columns = [
            [name, column.describe(), f"{report.left_out[name]:,}", f"{report.clamped.get(name, 0):,}"]
            for name, column in inspection.policy.columns.items()
            if report.left_out[name] or report.clamped.get(name, 0)
        ]
        if changed_columns:
            table("Columns whose rows are changed", ["column", "domain", "left out >", "clamped >"], changed_columns)

    def _accept(self, finding: str, why: str) -> None:
        review.confirm(self.file, [finding], self.draft.text(why) or "")


def _person_columns(remark: str) -> list[str]:
    """The columns that a proposal names as possible identifiers of persons."""
    names = re.findall(r'column: ("(?:[^"\\]|\\.)*")', remark)
    return [str(json.loads(name)) for name in names]


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


def confirm(file: Path, items: Sequence[Waiting], draft: Inputs, why: str) -> None:
    """Confirms unreviewed values with the texts of their fields; either all or, after an error, none."""
    changes = {item.name: _written(item, str(draft[item.name])) for item in items if draft[item.name] != item.value}
    review.confirm(file, [item.name for item in items], draft.text(why) or "", changes)


def _written(item: Waiting, typed: str) -> str:
    """A typed value as YAML; a date has quotes if the old value had them."""
    return json.dumps(typed.strip("'\"")) if item.value[:1] in ("'", '"') else typed


def set_unit(file: Path, draft: Inputs) -> None:
    """Declares the privacy unit, and removes the column that names persons from the queryable ones."""
    who, because, max_rows = draft.text("who"), draft.text("why unit"), draft.text("most rows") or ""
    column = draft.text("person") if who == FURTHER else None if who == EACH_ROW else who
    if who is None or (who == FURTHER and column is None):
        raise PolicyError("Choose first: is each row another person, or does a column name the person?")
    unit = "row"
    if column is not None:
        if not max_rows.isdecimal():
            raise PolicyError("Say how many rows of one person count at most: a whole number that is publicly known.")
        if because is None:
            raise PolicyError("A reason is needed.")
        if column in load_policy(file).columns:
            review.leave_out(file, column)
        unit = f"{{column: {json.dumps(column, ensure_ascii=False)}, max_rows: {max_rows}}}"
    review.confirm(file, ["privacy_unit"], because or "", unit)


def _show_groups(column: str, persons: RowsPerValue) -> None:
    ui.label(f"{persons.values:,} different values of {column}; the commonest stands in {persons.largest:,} rows.")
    rows = [[f"{size:,}", f"{values:,}"] for size, values in persons.sizes]
    table(
        "Largest groups, read off the rows: for your review alone", ["rows each >", "values with so many rows >"], rows
    )


WIDE, HIGH, ROOM = 180, 48, 24  # width and height of a picture, and its margin for rows beyond a bound; in SVG units


def picture(
    name: str, column: Column, shape: Shape, lower: float | None, upper: float | None, *, wide: bool = False
) -> Html:
    """Draws the histogram of a column, with lines at the bounds of a numeric one; rows beyond them are red."""
    bars = [*shape.bars] if shape.width else sorted(shape.bars, reverse=True)
    tallest, each = max([*bars, shape.below, shape.above, 1]), (WIDE - 2 * ROOM) / max(1, len(bars))
    ends = [0.0, 1.0]  # shares of the pictured range
    if column.type != "categorical":
        range_width = shape.width * len(bars)
        ends = [
            default if bound is None else (bound - float(column.lower)) / range_width
            for default, bound in zip(ends, (lower, upper), strict=True)
        ]
    kinds = ["in" if ends[0] <= (number + 0.5) / len(bars) <= ends[1] else "out" for number in range(len(bars))]
    shapes = [
        _bar(ROOM + each * number, each, rows / tallest, kind)
        for number, (rows, kind) in enumerate(zip(bars, kinds, strict=True))
    ]
    shapes += [_bar(at, ROOM / 2, rows / tallest, "out") for at, rows in ((4, shape.below), (WIDE - 16, shape.above))]
    for share in ends if shape.width else ():
        x = round(min(WIDE - 1.0, max(1.0, ROOM + share * (WIDE - 2 * ROOM))), 1)
        shapes.append(element("path", d=f"M{x} 0V{HIGH}", class_="bound"))
    title = element("title", f"Rows of {name}; the longest bar has {tallest:,}")
    size = WIDE * (2 if wide else 1)
    return element("svg", title, *shapes, class_="shape", viewBox=f"0 0 {WIDE} {HIGH}", width=size, role="img")


def _bar(x: float, width: float, share: float, kind: str) -> Html:
    height = round(share * (HIGH - 2) + (0.8 if share else 0), 1)
    return element(
        "rect", x=round(x, 1), y=HIGH - height, width=round(max(0.8, width - 0.6), 1), height=height, class_=kind
    )
