# SPDX-License-Identifier: Apache-2.0
"""``pinq init`` proposes a policy for a table; values that come from the rows await review.

Order: which columns look as if they name persons, and so may be the privacy unit (the provider
decides); the proposal as YAML, with comments that say where each value is from; the guess itself.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import duckdb
from pydantic import TypeAdapter, ValidationError

from pinq.engine import ColumnProfile, Lines, count_rows, date_range, group_sizes, profile, read_columns
from pinq.engine.looks import SHOWN, looks_like, missing_codes, missing_words, some_texts
from pinq.engine.numbers import date_forms
from pinq.engine.sources import is_sqlite, quoted, require_columns, source_dialect, source_path
from pinq.errors import InternalError, PolicyError, printable
from pinq.policy.plain_yaml import plain_number, read_yaml, write_yaml
from pinq.policy.policy import Dialect, Policy, is_text
from pinq.provider.policy_file import load_policy
from pinq.public.checks import closest, text_of
from pinq.public.columns import REAL_CELLS, number_of_text, problems, round_up
from pinq.public.dates import DAY, write_moment
from pinq.public.schema import Categorical, Column

FEW = 20  # so many different values are categories, whatever the column is called
MOSTLY = 0.8  # so large a share of numbers or dates makes a column; other texts, such as "n/a", are missing values
_IDENTITY = r"(^|[\W_])(id|ids|uuid|guid|ssn|key|index|rowid|unnamed)([\W_]|$)|[a-z]I[Dd]$|(nummer|kennung|[\W_]nr)$"
_PERSON = (
    r"(person|patient|user|customer|client|member|household|family)[\W_]?id$|"
    r"^(person|patient|customer|client|member|household)([\W_]?(no|nr|number))?$|"
    r"^(person|patient|versichert|kund|mitglied|haushalt)(en|s)?[\W_]?(nr|nummer|kennung)$"
)
_QUANTITY = (
    r"(^|[\W_])(age|num|number|count|n|years?|hours?|days?|weeks?|months?|minutes?|amount|income|salary|price|cost|"
    r"gain|loss|score|weight|height|size|total|sum|qty|quantity|alter|anzahl|jahre?|tage?|stunden|dauer|kosten|"
    r"betrag|preis|gehalt|einkommen|gewicht|summe)([\W_]|$)"
)


@dataclass(frozen=True)
class Unit:
    """A column that may name the units whose presence is to be hidden.

    Exact numbers: for the provider's eyes only.
    """

    column: str
    values: int
    rows: int
    largest: int

    def __str__(self) -> str:
        return f"{self.column}: {self.values:,} values in {self.rows:,} rows; the commonest stands in {self.largest:,}"


def is_quantity(name: str) -> bool:
    """Whether a column's name says that it counts or measures."""
    return re.search(_QUANTITY, name.casefold()) is not None


def may_be_unit(name: str, seen: ColumnProfile) -> bool:
    """Whether a column may name those who have several rows: by its name, or as many texts."""
    texts = seen.numbers < seen.filled or seen.zero_led > 0
    many = seen.distinct > FEW and seen.distinct >= seen.filled / 10
    return _is_named(name, seen) or (texts and many and not is_quantity(name))


def _is_named(name: str, seen: ColumnProfile) -> bool:
    """Whether its name is an identifier's, and its values are neither few nor measured."""
    named = re.search(_IDENTITY, name) or re.search(f"{_IDENTITY}|{_PERSON}", name.casefold())
    return named is not None and seen.distinct > FEW and (seen.whole or seen.numbers < seen.filled)


@dataclass
class Proposed:
    """The facts about a table, and the proposal for it.

    Attributes:
        lost_lines: Lines of a text file that cannot be read; not among the rows.
        columns: Each column's declaration.
        notes: The basis of each guess, for a column's keys.
        left_out: Columns without a declaration, and why.
        units: Columns that may name the privacy units.
    """

    rows: int
    lost_lines: int = 0
    columns: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)


_HEAD = """\
# Proposed by `pinq init`. What is named under `unreviewed` was read off the data, and a domain that follows
# the rows leaks them, so this policy opens nothing yet:
#   1. Put what is publicly known (a code book, a form, a law) in the place of each such value, or confirm it,
#      and delete its name from `unreviewed`. Delete `unreviewed` where nothing is left in it.
#   2. Delete columns that nobody should ask about. Values and bounds are public: every analyst reads them.
#   3. `pinq check` shows what the policy does to the data; `pinq grant` gives an analyst a budget.
"""


HEAD_LIKE = """\
# Proposed by `pinq init --like`: what holders share is as in their policy, and nothing was read off the rows
# of this source. `pinq check` shows what the policy does to them. `cap` and `max_rows` are each holder's own.
"""


_HINTS = {
    "lower": "smaller numbers count as this one; choose it without looking at the rows",
    "upper": "larger numbers count as this one",
    "step": "width of a grid cell; both bounds are whole numbers of steps",
    "nullable": "whether a missing value is a value of its own; false leaves such rows out",
}


def to_yaml(bare: Policy, proposed: Proposed, target: str | None) -> str:
    """Writes the policy.

    Args:
        bare: It names dataset and source, and declares nothing.
        proposed: The columns and what was seen of them.
        target: The column that models will predict.
    """
    keys: dict[str, object] = bare.model_dump(by_alias=True, include={"source"}, exclude_defaults=True)
    if bare.csv is not None and (stated := bare.csv.model_dump(mode="json", exclude_unset=True)):
        keys["csv"] = stated
    lines = [
        _HEAD.rstrip("\n"),
        *_dump({"version": 1, "dataset": bare.dataset} | keys, False),
        "cap: 1.0  # epsilon over all analysts together, for they may collude",
        "adjacency: add-remove  # hides whether a row is in the table; `substitute` hides what is in it, and "
        "costs twice the noise",
        "privacy_unit: row  # whose presence is hidden: a row's, or where a person can have several rows, "
        "{column: person_id, max_rows: 3}",
        *_units(proposed.units),
        f"max_rows: {round_up(Decimal(proposed.rows + proposed.lost_lines + 1)):f}  # no table under this policy "
        f"will ever have more rows",
        "unreviewed: [privacy_unit, max_rows]",
        "",
        "columns:",
    ]
    hints = dict(_HINTS)  # each is given once
    for column, declared in proposed.columns.items():
        lines += ["  # the target"] if column == target else []
        for line in _dump({column: declared}, None):
            key = line.removeprefix("  ").split(":")[0] if line.startswith("  ") else ""
            notes = "; ".join(filter(None, (proposed.notes[column].get(key), hints.pop(key, None))))
            lines.append(f"  {line}" + (f"  # {notes}" if notes else ""))
    if proposed.left_out:
        lines += [
            "",
            "# Left out:",
            *(f"#   {printable(column)}: {printable(reason)}" for column, reason in proposed.left_out.items()),
        ]
    return "\n".join(lines) + "\n"


def _units(units: list[Unit]) -> list[str]:
    """Writes comments that name the columns which may name persons."""
    if not units:
        return []
    lines = [
        "# These columns look as if they name persons or the like, who have several rows. If one does, "
        "declare it, so that",
        "# all their rows are hidden:",
    ]
    for unit in units:
        lines += [
            f"#   {unit_key(unit.column)}",
            f"#     {printable(str(unit))} (read off the rows: for your review alone)",
        ]
    return [
        *lines,
        "# Its `max_rows` is a bound that is publicly known, not the number above: rows of a unit beyond it "
        "are left out,",
        "# and noise grows with it.",
    ]


def unit_key(column: str) -> str:
    """Writes a column as the privacy unit, its bound left open."""
    return printable(f"privacy_unit: {{column: {json.dumps(column, ensure_ascii=False)}, max_rows: ...}}")


def _dump(content: Mapping[str, object], flow: bool | None) -> list[str]:
    """Writes lines of YAML; with ``flow`` None, innermost lists stand in brackets."""
    return write_yaml(content, flow).rstrip("\n").split("\n")


_WHOLE = r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER)"
_REAL = r"(FLOAT|DOUBLE|DECIMAL.*)"
_MOMENT = r"(DATE|TIME.*)"
_DATED = r"(DATE|TIMESTAMP.*)"
_TEXT = r"(VARCHAR|UUID|BOOLEAN|ENUM.*)"
_CODE = r"(^|[\W_])(zip|zipcode|postcode|postalcode|postal|plz|code|codes|phone|telephone|fax)([\W_]|$)"

CLOCKS = ("", " %H:%M", " %H:%M:%S")  # what may stand behind a date

_COLUMN: TypeAdapter[Column] = TypeAdapter(Column)
MAX_CATEGORIES = 1000
MAX_TEXT = 200


def propose(
    data: object,
    *,
    target: str | None = None,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    csv: Dialect | None = None,
    uri_env: str | None = None,
) -> str:
    """Proposes a policy for a table, as YAML with comments.

    No value in it is valid before the provider has reviewed it.

    Args:
        data: A Parquet or CSV file or a workbook (or pattern), or ``file.duckdb::table``
            (``file.duckdb::schema::table``). Or a table of pandas, polars, Arrow, DuckDB or another
            that has ``__arrow_c_stream__``; then the policy names no source, and the table is passed
            to ``pinq.open(..., data=...)``.
        target: The column that models will predict; it must be suitable.
        dataset: The dataset's name for analysts. By default the name of the file or table, and
            ``table`` for a table that is passed.
        folder: The folder of the policy; ``source`` is relative to it. By default it is absolute.
        csv: The dialect of a text file or a sheet, if it is unusual; it becomes part of the policy.
        uri_env: The environment variable that holds the URI of a database server; ``data`` is a table
            there, as SQL names it. The driver is the one of the URI's scheme.

    Raises:
        PolicyError: The source cannot be read, seems to have another dialect, or has no usable
            column; or the target is not usable.

    Examples:
        >>> import pinq
        >>> proposal = pinq.propose("data/adult.parquet", target="income")
        >>> [line for line in proposal.splitlines() if line.startswith("dataset")]
        ['dataset: adult']
    """
    path = data if isinstance(data, (str, os.PathLike)) else None
    bare = _bare(path, dataset, folder, csv, uri_env)
    proposed, lines = _read(bare, target, data if path is None else None)
    if target in proposed.left_out:
        raise PolicyError(f"The target {target!r} cannot be a column: {proposed.left_out[target]}.")
    if not proposed.columns:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in proposed.left_out.items()) or "it has no columns"
        raise PolicyError(f"Nothing in the source can be a column. {reasons}.")
    text = to_yaml(bare, proposed, target)
    if lines.lost:  # their number stays out of a file that others may come to read
        reasons = "; ".join(
            f"lines {printable(reason)}, such as {printable(lines.examples[reason])}" for reason in lines.unreadable
        )
        text += f"\n# Some lines cannot be read and are left out; `pinq check` counts them: {reasons}\n"
    content = read_yaml(text)
    Policy.model_validate(content)
    if content["columns"] != proposed.columns:
        raise InternalError("The proposed policy does not read back as it was written. Please report it.")
    return text


def propose_like(
    data: str | os.PathLike[str],
    like: str | os.PathLike[str] | Policy,
    *,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    csv: Dialect | None = None,
) -> str:
    """Proposes another holder's policy for a table, so that their schemas are equal.

    Columns, bounds, adjacency and privacy unit are the same. Nothing is read off the rows of ``data``;
    only the names of its columns are.

    Args:
        data: As in ``propose``.
        like: The policy that the holders share. Its unreviewed values are unreviewed here too.
        dataset: As in ``propose``; by default the name there.
        folder: As in ``propose``.
        csv: The format of this owner's delimited text; by default the usual one.

    Raises:
        PolicyError: A wrong policy, or a source that cannot be read or lacks one of its columns.
    """
    shared = load_policy(like)
    bare = _bare(data, dataset or shared.dataset, folder, csv)
    with closing(read_columns(bare)) as raw:
        types = raw.types
    unit = [] if shared.bounded_unit is None else [shared.bounded_unit.column]
    for name in [*shared.columns, *unit]:
        if name not in types:
            raise PolicyError(
                f"The source has no column {name!r}{closest(name, types)}, which the shared policy has; it "
                f"has {', '.join(types)}."
            )
    own = {"dataset": bare.dataset, "source": bare.source, "folder": bare.folder, "ledger": None, "csv": csv}
    return HEAD_LIKE + shared.model_copy(update=own).to_yaml()


def _bare(
    data: str | os.PathLike[str] | None,
    dataset: str | None,
    folder: str | os.PathLike[str] | None,
    csv: Dialect | None,
    uri_env: str | None = None,
) -> Policy:
    """A policy that names the source, if it has one, and declares nothing of it yet."""
    named: tuple[object, str] = (None, "table")
    if data is not None:
        path = os.fspath(data)
        named = _source_of(path, folder, csv) if uri_env is None else _table_of(path, uri_env)
    source, stem = named
    name = dataset if dataset is not None else re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("_.-")[:64] or "dataset"
    try:
        column = Categorical(values=("-",))
        return Policy.model_validate(
            {
                "dataset": name,
                "source": source,
                "csv": csv,
                "cap": 1,
                "max_rows": 1,
                "columns": {"-": column},
                "folder": folder or ".",
            }
        )
    except ValidationError as error:
        if "`csv`" in str(error):
            raise PolicyError(
                f"{data} is no delimited text, so nothing can be said of its delimiter, quotes, header, "
                f"encoding or numbers."
            ) from None
        raise PolicyError(
            f"The dataset name {name[:80]!r} must be 1 to 64 letters, digits, `_`, `.` and `-`, the first a "
            f"letter or digit."
        ) from None


def _read(bare: Policy, target: str | None, data: object) -> tuple[Proposed, Lines]:
    """Looks at every column of a source. Raises ``PolicyError`` if the target is none of them."""
    with closing(read_columns(bare, data)) as raw:
        connection, table, types = raw.connection, raw.name, raw.types
        require_columns([] if target is None else [target], types)
        base = None if bare.database is None else source_path(bare)
        typed = source_dialect(bare) is None and not (base and is_sqlite(base))
        proposed = Proposed(count_rows(connection, table), raw.lines.lost)
        for name, kind in types.items():
            try:
                _look(connection, table, name, kind, proposed, target=name == target, typed=typed)
            except _LeftOut as reason:
                proposed.left_out[name] = str(reason)
        return proposed, raw.lines


class _LeftOut(Exception):
    """A column cannot be declared; the text says why."""


def _look(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    name: str,
    kind: str,
    proposed: Proposed,
    *,
    target: bool,
    typed: bool,
) -> None:
    """Proposes a column, and notes whether it may name the privacy units. Raises ``_LeftOut``."""
    if not name or "\x00" in name or any(name.casefold() == other.casefold() for other in proposed.columns):
        raise _LeftOut("its name is empty, contains a NUL character, or differs from another only in case")
    if not re.fullmatch(f"{_WHOLE}|{_REAL}|{_MOMENT}|{_TEXT}", kind):
        raise _LeftOut(f"values of type {kind[:40]} are neither categories nor numbers")
    real, moment = bool(re.fullmatch(_REAL, kind)), bool(re.fullmatch(_MOMENT, kind))
    seen = profile(connection, table, name, real=real, moment=moment, most=MAX_CATEGORIES)
    dates = _propose_dates(connection, table, name, kind, seen, proposed.rows, typed=typed)
    if not moment and dates is None and may_be_unit(name, seen):
        values, [(largest, _)] = group_sizes(connection, table, name)
        proposed.units += [Unit(name, values, seen.filled, largest)] if largest > 1 else []
    if dates is None and kind == "VARCHAR" and seen.distinct > FEW and seen.numbers < MOSTLY * seen.filled:
        texts = seen.texts[:SHOWN] if seen.texts else some_texts(connection, table, quoted(name))
        if said := looks_like(texts):
            raise _LeftOut(f"its values are {said}")
    # '007' of a Parquet column of texts is a text; in a CSV file everything is text, and 7 a
    # number.
    says_text = typed and bool(re.fullmatch(_TEXT, kind))
    column, notes = dates or _propose_column(name, kind, seen, proposed.rows, target=target, says_text=says_text)
    try:
        _COLUMN.validate_python(column)
    except ValidationError as error:
        raise _LeftOut(f"as a number it cannot be declared: {problems(error)}") from None
    notes.setdefault("nullable", _lack(proposed.rows - seen.filled, proposed.rows, "value"))
    proposed.columns[name], proposed.notes[name] = column, notes


def _lack(missing: int, rows: int, noun: str) -> str:
    return f"guessed: {missing:,} of {rows:,} rows hold no {noun}"


def _propose_dates(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    name: str,
    kind: str,
    seen: ColumnProfile,
    rows: int,
    *,
    typed: bool,
) -> tuple[dict[str, object], dict[str, str]] | None:
    """Returns the declaration of a column of dates, in whole years; None where it holds others.

    Of a typed source, texts in another form are read by a formula. Raises ``_LeftOut`` where their
    day and month may be either.
    """
    says_date = bool(re.fullmatch(_DATED, kind))
    if not seen.filled or not (says_date or kind == "VARCHAR"):
        return None
    value, made = quoted(name), dict[str, object]()
    count, first, last, timed = date_range(connection, table, value, kind)
    if count < seen.filled and typed and kind == "VARCHAR":
        forms, example = date_forms(connection, table, value)
        if len(forms) > 1:
            raise _LeftOut(
                f"dates such as {example!r} can be read day first or month first; declare a date with a `formula:` "
                f"such as strptime({value}, '{forms[0]}')"
            )
        for form in (forms[0] + clock for clock in CLOCKS) if forms else ():
            made = {"from": name, "formula": f"strptime({value}, '{form}')"}
            count, first, last, timed = date_range(connection, table, f"try_{made['formula']}", "TIMESTAMP")
            if count == seen.filled:
                break
    if count < MOSTLY * seen.filled or first is None or last is None:
        return None
    # In whole years the range then still has a grid of minutes.
    timed = timed and (last - first) <= (2**24 - 2 * 366 * 1440) / 1440
    years = [write_moment(day * DAY)[:4] for day in (first, last)]
    # Dates from 2019-03-05 to 2021-11-30: declared from 2019-01-01 to 2021-12-31.
    bounds = {"lower": f"{years[0]}-01-01", "upper": f"{years[1]}-12-31" + (" 23:59" if timed else "")}
    waiting = ["lower", "upper", "nullable"] if says_date else ["type", *list(made)[1:], "lower", "upper", "nullable"]
    declared = {"type": "datetime" if timed else "date", **made, **bounds, "nullable": count < rows}
    guess = f"the source says {kind}" if says_date else f"guessed from about {seen.distinct:,} different dates"
    return {**declared, "unreviewed": waiting}, {"type": guess, "nullable": _lack(rows - count, rows, "date")}


def _propose_column(
    name: str, kind: str, seen: ColumnProfile, rows: int, *, target: bool, says_text: bool
) -> tuple[dict[str, object], dict[str, str]]:
    """Returns a column's declaration and what it was guessed from. Raises ``_LeftOut``."""
    low, high, whole, texts = seen.low, seen.high, seen.whole, seen.texts
    moment = bool(re.fullmatch(_MOMENT, kind))
    if not seen.filled:
        raise _LeftOut("it holds no values")
    few = texts is not None and len(texts) <= FEW
    enough = seen.numbers >= (1 if few else MOSTLY) * seen.filled
    numbers = enough and not seen.zero_led and low is not None and not moment
    # A text stays a text where the source can tell it from a number, and so does a code that its
    # name gives away.
    numeric = numbers and not says_text and not (whole and re.search(_CODE, name.casefold()))
    if moment and not few:
        advice = "derive a number or a date by a formula"
        raise _LeftOut(f"times of day are neither categories nor numbers here; {advice}")
    person = re.search(_PERSON, name.casefold()) is not None
    if _is_named(name, seen) and (person or seen.distinct >= seen.filled / 100):
        raise _LeftOut(
            f"it seems to name rows or persons; where a person can have several rows, declare {unit_key(name)}"
        )
    if numeric and low is not None and high is not None:
        # A few whole numbers are categories where there are two of them, or dense ones of no quantity.
        dense = high - low + 1 <= 2 * len(texts or ()) and not is_quantity(name)
        coded = few and whole and (target or dense or len(texts or ()) <= 2)
        if not coded:
            guess = f"guessed from about {seen.distinct:,} different {'whole ' if whole else ''}numbers"
            lack = _lack(rows - seen.numbers, rows, "number")
            column = _propose_numeric(low, high, whole, kind, seen.numbers < rows)
            return column, {"type": guess, "nullable": lack, "upper": _codes_note(texts)}
    values = _categories(_repeating(seen, rows, numbers=numbers, numeric=bool(numeric)), kind, says_text)
    if seen.longest > MAX_TEXT or any("\x00" in str(value) for value in values):
        raise _LeftOut(
            f"it holds texts of more than {MAX_TEXT} characters, or with NUL characters, which are no categories"
        )
    nouns = "whole numbers" if numbers and whole else "values"
    guess = f"the source says {kind}" if says_text else f"guessed from {len(values):,} different {nouns}"
    waiting = ["values", "nullable"] if says_text else ["type", "values", "nullable"]
    nullable = seen.filled < rows
    words = ", ".join(missing_words(values))
    note = f"values that look missing: where they are, write `missing: [{words}]`" if words else ""
    notes = {"type": guess, "values": printable(note)}
    return {"type": "categorical", "values": values, "nullable": nullable, "unreviewed": waiting}, notes


def _codes_note(texts: list[str] | None) -> str:
    """Names numbers that look like codes for missing values; empty for none."""
    numbers = filter(math.isfinite, map(number_of_text, texts or ()))
    codes = ", ".join(f"{code:g}" for code in missing_codes(numbers))
    return f"far from all others: where they stand for missing values, write `missing: [{codes}]`" if codes else ""


def _repeating(seen: ColumnProfile, rows: int, *, numbers: bool, numeric: bool) -> list[str]:
    """Returns a column's texts. ``_LeftOut`` where they are too many to be categories."""
    texts = seen.texts
    if texts is None or len(texts) > MAX_CATEGORIES:
        amounts = "; where they are amounts and not codes, make them numbers in the source" if numbers else ""
        advice = "group them in the source, or declare those that are publicly known"
        raise _LeftOut(f"it has more than {MAX_CATEGORIES:,} different values{amounts}; {advice}")
    if len(texts) > FEW and len(texts) > rows / 2 and not numeric:
        raise _LeftOut("its values hardly repeat, so they may name persons")
    return texts


def _categories(texts: list[str], kind: str, says_text: bool) -> list[str | int | bool]:
    """Returns the declared form of a list of values.

    That is numbers where all of them are and the source does not say otherwise.
    """
    if kind in ("DOUBLE", "FLOAT"):
        texts = [text for text in texts if text.lower() not in ("nan", "inf", "-inf")]
    values = [text if says_text and kind != "BOOLEAN" else _category(text, kind) for text in texts]
    return sorted(values if len({type(value) for value in values}) == 1 else [text_of(value) for value in values])


def _category(text: str, kind: str) -> str | int | bool:
    """Returns the declared form of a value, whose text is the one that encoding compares."""
    if kind == "BOOLEAN":
        return text == "true"
    if kind in ("DOUBLE", "FLOAT") and float(text).is_integer():
        return int(float(text))
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def _propose_numeric(low: float, high: float, whole: bool, kind: str, nullable: bool) -> dict[str, object]:
    """Declares bounds that are rounded outward, and a round step.

    Each bound is a whole number of steps, so the grid is exact.
    """
    # Ages from 17 to 90: a tenth of the range is 7.3, so the unit is 10, and the bounds are 10 and
    # 90.
    least, most = Decimal(repr(low)), Decimal(repr(high))
    unit = round_up((most - least) / 10 or abs(most) / 10 or Decimal(1))
    unit = max(Decimal(1), unit) if whole else unit
    lower, upper = (
        (least / unit).to_integral_value(ROUND_FLOOR) * unit,
        (most / unit).to_integral_value(ROUND_CEILING) * unit,
    )
    upper += unit if lower == upper else 0
    declared: dict[str, object] = {"type": "numeric", "lower": plain_number(lower), "upper": plain_number(upper)}
    waiting = ["type", "lower", "upper"]
    if whole:
        declared["integer"] = True
        waiting += [] if re.fullmatch(_WHOLE, kind) else ["integer"]
    if not whole or upper - lower > 2**17:
        declared["step"] = plain_number(round_up((upper - lower) / REAL_CELLS))
        waiting.append("step")
    return declared | {"nullable": nullable, "unreviewed": [*waiting, "nullable"]}


# What writes the table of another kind of file as Parquet.
_CONVERTED = {
    (".json", ".ndjson", ".jsonl"): "import duckdb; duckdb.read_json({0!r}).write_parquet({1!r})",
    (".sas7bdat", ".xpt"): "import pandas; pandas.read_sas({0!r}, encoding='latin-1').to_parquet({1!r})",
    (".dta",): "import pandas; pandas.read_stata({0!r}).to_parquet({1!r})",
    (".sav", ".zsav"): "import pandas; pandas.read_spss({0!r}).to_parquet({1!r})",
    (".feather", ".arrow"): "import pandas; pandas.read_feather({0!r}).to_parquet({1!r})",
}


def _require_kind(path: str) -> None:
    """``PolicyError`` for a file that is no Parquet file, text or workbook; it says how to make one of it."""
    try:
        with open(path, "rb") as file:
            begin = file.read(4)
    except OSError:  # who reads it says what is wrong
        return
    if begin == b"PAR1" or is_text(path) or path.lower().endswith(".parquet"):
        return
    suffixes, made = "".join(Path(path).suffixes[-1:]).lower(), f"{Path(path).stem}.parquet"
    advice = "If it is text, say what stands between its fields, such as --delimiter tab; else save it as CSV or .xlsx."
    for kinds, code in _CONVERTED.items():
        if suffixes in kinds:
            advice = f'Write its table as Parquet: python -c "{code.format(path, made)}"'
    raise PolicyError(f"{path} is neither Parquet nor named as CSV (.csv, .tsv) or a workbook (.xlsx, .ods). {advice}")


def _table_of(table: str, uri_env: str) -> tuple[dict[str, dict[str, str]], str]:
    """The policy's ``source`` for a database server's table, and a name for the dataset."""
    scheme = os.environ.get(uri_env, "").partition(":")[0].partition("+")[0].lower()
    if not scheme:
        raise PolicyError(f"The environment variable {uri_env} is not set; it must hold the URI of the database.")
    driver = f"adbc_driver_{'postgresql' if scheme == 'postgres' else re.sub('[^a-z0-9]', '_', scheme)[:40]}"
    return {"adbc": {"driver": driver, "uri_env": uri_env, "table": table}}, table.rpartition(".")[2]


def _source_of(
    data: str, folder: str | os.PathLike[str] | None, csv: Dialect | None
) -> tuple[str | dict[str, str], str]:
    """The policy's ``source`` and a name for the dataset."""
    path, *inside = data.split("::")
    if len(inside) > 2 or not path or not all(inside):
        raise PolicyError(f"{data!r} is no source; write data.parquet, data.csv, or file.duckdb::table.")
    if not inside and path.endswith((".duckdb", ".db", ".ddb", ".sqlite", ".sqlite3")):
        raise PolicyError(f"{path} is a database; say which table of it: {path}::TABLE.")
    if not inside and csv is None:
        _require_kind(path)
    shown = os.path.abspath(path)
    if folder is not None:
        shown = os.path.relpath(
            os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)),
            os.path.realpath(folder),
        )
    if not inside:
        return shown, Path(path).name.split(".")[0]
    return {"database": shown, "table": inside[-1]} | ({"schema": inside[0]} if len(inside) == 2 else {}), inside[-1]
