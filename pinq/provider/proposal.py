# SPDX-License-Identifier: Apache-2.0
"""``pinq init`` proposes a policy for a table; values that come from the rows await review.

Columns of persons are found first (``persons.py``): values are counted over persons.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import duckdb
from pydantic import TypeAdapter, ValidationError

from pinq.engine import ColumnProfile, Lines, count_rows, date_range, profile, read_columns, times_of_day
from pinq.engine.formats import FormatDoubt, HeaderFault, as_options, date_forms, together
from pinq.engine.profile import SHOWN, among_words, codes_note, looks_like, missing_words, some_texts, unusual_dates
from pinq.engine.sources import is_sqlite, quoted, require_columns
from pinq.errors import InternalError, PolicyError, printable
from pinq.policy.dialect import TABLE_FILES, Dialect, has_own_names, is_text
from pinq.policy.files import source_dialect, source_files, source_path
from pinq.policy.plain_yaml import plain_number, read_yaml, write_yaml
from pinq.policy.policy import Policy
from pinq.provider.persons import (
    FEW,
    FEWEST,
    PERSONS,
    Unit,
    counted_over,
    is_quantity,
    may_name_persons,
    person_rank,
    persons_of_values,
    plain,
    rank_units,
    standing_out,
    telling_look,
    telling_name,
)
from pinq.provider.policy_file import load_policy
from pinq.provider.stray_rows import require_names, without_strays
from pinq.public.checks import closest, text_of, whole_number
from pinq.public.columns import REAL_CELLS, problems, round_up
from pinq.public.dates import DAY, write_moment
from pinq.public.schema import Categorical, Column

MOSTLY = 0.8  # the least share of numbers or dates in a column of them; other texts, such as "n/a", are missing values


@dataclass
class Proposed:
    """The facts about a table, and the proposal for it.

    Attributes:
        strays: The numbers of rows that describe no person, by kind; not among the rows.
        notes: The basis of each guess, for a column's keys.
        left_out: Columns without a declaration, with the reasons.
    """

    rows: int
    fewest: int = FEWEST
    lost_lines: int = 0
    strays: dict[str, int] = field(default_factory=dict)
    columns: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    unit: Unit | None = None
    first: dict[str, list[str]] = field(default_factory=dict)


_HEAD = """\
# Proposed by `pinq init`. What is named under `unreviewed` was read off the data, and a domain that follows
# the rows leaks them, so this policy opens nothing yet:
#   1. Put what is publicly known (a code book, a form, a law) in the place of each such value, or confirm it,
#      and delete its name from `unreviewed`. Delete `unreviewed` where nothing is left in it.
#   2. Delete columns that nobody should ask about. Values and bounds are public: every analyst reads them.
#   3. `pinq check` shows what the policy does to the data; `pinq grant` gives an analyst a budget.
"""


HEAD_LIKE = """\
# Proposed by `pinq init --like`: what data owners share is as in their policy, and nothing was read off the rows
# of this source. `pinq check` shows what the policy does to them. `cap` and `max_rows` are each owner's own.
"""


_HINTS = {
    "lower": "smaller numbers count as this one; choose it without looking at the rows",
    "upper": "larger numbers count as this one",
    "step": "width of a grid cell; both bounds are whole numbers of steps",
    "nullable": "whether a missing value is a value of its own; false leaves such rows out",
}


def to_yaml(bare: Policy, proposed: Proposed, target: str | None) -> str:
    """Writes a policy that names dataset and source, with the proposed columns and the target of models."""
    rows = proposed.rows + sum(proposed.strays.values()) + proposed.lost_lines
    keys: dict[str, object] = bare.model_dump(by_alias=True, include={"source"}, exclude_defaults=True)
    if bare.csv is not None and (stated := bare.csv.model_dump(mode="json", exclude_unset=True)):
        keys["csv"] = stated
    lines = [
        _HEAD.rstrip("\n"),
        *_dump({"version": 1, "dataset": bare.dataset} | keys, False),
        "cap: 1.0  # epsilon over all analysts together, for they may collude",
        "adjacency: add-remove  # hides whether a row is in the table; `substitute` hides what is in it, and "
        "costs twice the noise",
        *_units(proposed),
        f"max_rows: {round_up(Decimal(rows + 1)):f}  # no table under this policy will ever have more rows",
        "unreviewed: [privacy_unit, max_rows]",
        *(
            f"# {count} of the rows look like {kind}; nothing below was read off them. They are left out where they\n"
            "# lack a value that every other row has (`pinq check` counts what is left out); delete them from the file."
            for kind, count in proposed.strays.items()
        ),
        "",
        "columns:",
    ]
    hints = dict(_HINTS)  # each hint is written once
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


def _units(proposed: Proposed) -> list[str]:
    """Writes the privacy unit: a clear column of persons, or rows; and other columns that may name persons."""
    unit, repeating = proposed.unit, [candidate for candidate in proposed.units if candidate.largest > 1]
    line = "privacy_unit: row  # whose presence is hidden: a row's, or where a person can have several rows, "
    lines = [f"{line}{{column: person_id, max_rows: 3}}"]
    if sole := [each.column for each in proposed.units if each.rank == PERSONS and each.largest == 1]:
        lines = [printable(f"privacy_unit: row  # one row is one person: {sole[0]} is another one in each row")]
    if unit is not None:
        bound = plain_number(round_up(Decimal(unit.largest)))
        shown = json.dumps(unit.column, ensure_ascii=False)
        lines = [printable(f"privacy_unit: {{column: {shown}, max_rows: {bound}}}  # {asked_about(unit)}")]
    elif not repeating:
        return lines
    others = [candidate for candidate in repeating if candidate != unit]
    if others:
        lines += [
            f"# These columns {'too ' if unit else ''}look as if they name persons or the like, who have several "
            "rows. If one does, declare it, so that",
            "# all their rows are hidden:",
        ]
    for candidate in others:
        lines += [
            f"#   {unit_key(candidate.column)}",
            f"#     {printable(str(candidate))} (read off the rows: for your review alone)",
        ]
    return [
        *lines,
        "# Its `max_rows` is a bound that is publicly known, not the number above: rows of a unit beyond it "
        "are left out,",
        "# and noise grows with it.",
    ]


def asked_about(unit: Unit) -> str:
    """The question to the provider about a column of persons, in words."""
    return (
        f"whose presence must not show? {unit.column} names the person: {unit.values:,} persons, at most "
        f"{unit.largest:,} rows each (read off the rows: for your review alone)"
    )


def unit_key(column: str) -> str:
    """Writes a column as the privacy unit, its bound left open."""
    return printable(f"privacy_unit: {{column: {json.dumps(column, ensure_ascii=False)}, max_rows: ...}}")


def _dump(content: Mapping[str, object], flow: bool | None) -> list[str]:
    """Writes lines of YAML; with ``flow`` None, innermost lists are in brackets."""
    return write_yaml(content, flow).rstrip("\n").split("\n")


_WHOLE = r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER)"
_REAL = r"(FLOAT|DOUBLE|DECIMAL.*)"
_MOMENT = r"(DATE|TIME.*)"
_DATED = r"(DATE|TIMESTAMP.*)"
_TEXT = r"(VARCHAR|UUID|BOOLEAN|ENUM.*)"
_CODE = r"\b(zip|zip ?code|post ?code|postal ?code|postal|plz|code|codes|phone|telephone|fax)\b"

CLOCKS = ("", " %H:%M", " %H:%M:%S")  # possible times behind a date

_COLUMN: TypeAdapter[Column] = TypeAdapter(Column)
MAX_CATEGORIES = 1000
OTHER = "other"
READ_ONLY = ("names of persons", "employers", "free text")  # always texts: a column of numbers has another meaning
MAX_TEXT = 200
FIRST = 10  # rows whose values are shown as read


def propose(
    data: object,
    *,
    target: str | None = None,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    csv: Dialect | None = None,
    uri_env: str | None = None,
    fewest: int = FEWEST,
) -> str:
    """Proposes a policy for a table, as YAML with comments.

    No value in it is valid before the provider has reviewed it.

    Args:
        data: A Parquet or CSV file or a workbook (or pattern), or ``file.duckdb::table``
            (``file.duckdb::schema::table``). Or a table of pandas, polars, Arrow, DuckDB or an object
            with ``__arrow_c_stream__``; then the policy names no source, and the table is passed to
            ``pinq.open(..., data=...)``.
        target: The column that models will predict; it must be suitable.
        dataset: The dataset's name for analysts. By default the name of the file or table, and
            ``table`` for a table that is passed.
        folder: The folder of the policy; ``source`` is relative to it. By default ``source`` is absolute.
        csv: The dialect of a text file or a sheet, if it is unusual; it becomes part of the policy.
        uri_env: The environment variable with the URI of a database server; ``data`` is the SQL name of
            a table there. The URI's scheme decides the driver.
        fewest: The least number of persons of a listed value. Rarer values count as ``other``, and a
            column that tells persons apart is left out.

    Raises:
        PolicyError: The source cannot be read, seems to have another dialect, or has no usable
            column; or the target is not usable.

    Examples:
        >>> import pinq
        >>> proposal = pinq.propose("data/adult.parquet", target="income")
        >>> [line for line in proposal.splitlines() if line.startswith("dataset")]
        ['dataset: adult']
    """
    return look(data, target=target, dataset=dataset, folder=folder, csv=csv, uri_env=uri_env, fewest=fewest).text


@dataclass(frozen=True)
class Look:
    """A look at a table.

    Attributes:
        first: The first values of each declared column of a text file, as read.
    """

    text: str
    first: dict[str, list[str]]


class WholeDoubt(FormatDoubt):
    """All settings that a text file needs to be read.

    Attributes:
        csv: The form with the first of the choices; None if it does not read the file either.
    """

    csv: Dialect | None = None
    look: Look | None = None


def look(data: object, *, csv: Dialect | None = None, **options: Any) -> Look:
    """Proposes a policy as ``propose`` does, and shows the first values.

    Raises:
        PolicyError: As in ``propose``.
    """
    try:
        return _look_at(data, csv=csv, **options)
    except FormatDoubt as doubt:
        doubts, stated, shown = [doubt], csv or Dialect(), None
    while shown is None and doubts[-1].choices and (change := doubts[-1].choices[0]).keys() - stated.model_fields_set:
        if "sheet" in change and len(doubts[-1].choices) > 1:  # each sheet has another form
            break
        try:
            stated = Dialect.model_validate(stated.model_dump(exclude_unset=True) | dict(change))
            shown = _look_at(data, csv=stated, **options)
        except FormatDoubt as more:
            doubts.append(more)
        except (PolicyError, ValidationError):  # the user sees this error after stating the form
            break
    joined = together(doubts)
    several = str(joined).count("try --") > 1
    at_once = f" All at once: {' or '.join(map(as_options, joined.choices))}." if several and joined.choices else ""
    whole = WholeDoubt(f"{joined}{at_once}", joined.choices)
    whole.csv, whole.look = (stated, shown) if shown else (None, None)
    raise whole from None


def _look_at(
    data: object,
    *,
    csv: Dialect | None,
    target: str | None = None,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    uri_env: str | None = None,
    fewest: int = FEWEST,
) -> Look:
    """Proposes a policy for a table in one form."""
    whole_number("fewest", fewest, 1, 10**9)
    path = data if isinstance(data, (str, os.PathLike)) else None
    bare = _bare(path, dataset, folder, csv, uri_env)
    table = data if path is None else None
    try:
        proposed, lines = _read(bare, target, table, fewest)
    except HeaderFault as fault:
        if not (names := fault.with_index):
            raise
        stated = (bare.csv or Dialect()).model_dump(exclude_unset=True)
        skip = stated.get("skip", 0) + 1  # the names replace the header line
        bare = bare.model_copy(update={"csv": Dialect.model_validate(stated | {"skip": skip, "header": names})})
        proposed, lines = _read(bare, target, table, fewest)
    if target in proposed.left_out:
        raise PolicyError(f"The target {target!r} cannot be a column: {proposed.left_out[target]}.")
    if not proposed.columns:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in proposed.left_out.items()) or "it has no columns"
        several = "; where a line has several fields, say what stands between them, such as --delimiter ' '"
        reasons += several if source_dialect(bare) is not None and len(proposed.left_out) == 1 else ""
        raise PolicyError(
            f"Nothing in the source can be a column. {reasons}. Values of fewer than {fewest:,} persons are not "
            "listed: for a small table of nobody's, lower that with --fewest 1."
        )
    text = to_yaml(bare, proposed, target)
    if lines.lost:  # without their number, because others may read the file
        reasons = "; ".join(
            f"lines {printable(reason)}, such as {printable(lines.examples[reason])}" for reason in lines.unreadable
        )
        text += f"\n# Some lines cannot be read and are left out; `pinq check` counts them: {reasons}\n"
    for reason, cells in lines.cells.items():
        text += f"\n# {printable(', '.join(cells))}: {reason}.\n" if cells else ""
    content = read_yaml(text)
    Policy.model_validate(content)
    if content["columns"] != proposed.columns:
        raise InternalError("The proposed policy does not read back as it was written. Please report it.")
    return Look(text, proposed.first)


def propose_like(
    data: str | os.PathLike[str],
    like: str | os.PathLike[str] | Policy,
    *,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    csv: Dialect | None = None,
) -> str:
    """Proposes another data owner's policy for a table, so that their schemas are equal.

    Columns, bounds, adjacency and privacy unit are the same. Only the names of columns are read from
    ``data``, no values.

    Args:
        data: The source, as in ``propose``.
        like: The policy that the data owners share.
        dataset: The dataset's name; by default the name in the shared policy.
        folder: The folder of the policy, as in ``propose``.
        csv: The format of this owner's delimited text; by default the usual one.

    Raises:
        PolicyError: A wrong policy, or a source that cannot be read or lacks one of its columns.
    """
    shared = load_policy(like)
    bare = _bare(data, dataset or shared.dataset, folder, csv)
    with read_columns(bare) as raw:
        types = raw.types
    unit = [] if shared.bounded_unit is None else [shared.bounded_unit.column]
    for name in [*shared.columns, *unit]:
        if name not in types:
            raise PolicyError(
                f"The source has no column {name!r}{closest(name, types)}, which the shared policy has; it "
                f"has {', '.join(types)}."
            )
    changes = {"dataset": bare.dataset, "source": bare.source, "folder": bare.folder, "ledger": None, "csv": csv}
    return HEAD_LIKE + shared.model_copy(update=changes).to_yaml()


def _bare(
    data: str | os.PathLike[str] | None,
    dataset: str | None,
    folder: str | os.PathLike[str] | None,
    csv: Dialect | None,
    uri_env: str | None = None,
) -> Policy:
    """A policy that names the source, if there is one, and declares no column yet."""
    source_and_stem: tuple[object, str] = (None, "table")
    if data is not None:
        path = os.fspath(data)
        source_and_stem = _source_of(path, folder, csv) if uri_env is None else _table_of(path, uri_env)
    source, stem = source_and_stem
    name = dataset if dataset is not None else re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("_.-")[:64] or "dataset"
    try:
        keys = {"dataset": name, "source": source, "csv": csv, "cap": 1, "max_rows": 1, "folder": folder or "."}
        bare = Policy.model_validate(keys | {"columns": {"-": Categorical(values=("-",))}})
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
    if csv is not None and (unread := csv.unread_of(str(source))):
        options = as_options({key: getattr(csv, key) for key in unread})
        raise PolicyError(f"{data} is no file of which {options} says anything: leave it out.")
    return bare


def _read(bare: Policy, target: str | None, data: object, fewest: int) -> tuple[Proposed, Lines]:
    """Looks at every column of a source."""
    with read_columns(bare, data) as raw:
        types = raw.types
        require_columns([] if target is None else [target], types)
        table, strays = without_strays(raw.connection, raw.name, types)
        dialect = source_dialect(bare)
        stated = dialect is not None and "header" in dialect.model_fields_set
        if dialect is not None and not stated and not has_own_names(source_files(bare)[0].name):
            require_names(raw.connection, table, list(types), dialect, raw.lines.before)
        proposed = Proposed(count_rows(raw.connection, table), fewest, raw.lines.lost, strays)
        base = None if bare.database is None else source_path(bare)
        typed = dialect is None and not (base and is_sqlite(base))
        looked = dict[str, _Looked]()
        for name, kind in types.items():
            try:
                facts = _look(raw.connection, table, name, kind, proposed.rows, typed=typed, before=looked)
                declared = raw.categories.get(name, [])
                looked[name] = replace(facts, declared=declared if len(declared) <= MAX_CATEGORIES else [])
            except _LeftOut as reason:
                proposed.left_out[name] = str(reason)
        profiles = {name: facts.profile for name, facts in looked.items()}
        keys = [name for name, facts in looked.items() if facts.dates is None and not facts.moment]
        keys = [name for name in keys if may_name_persons(name, profiles[name])]
        proposed.units = rank_units(raw.connection, table, keys, profiles)
        proposed.unit = standing_out(proposed.units)
        for name, facts in looked.items():
            try:
                _declare(raw.connection, table, name, facts, proposed, target=name == target)
            except _LeftOut as reason:
                proposed.left_out[name] = str(reason)
        if dialect is not None:
            proposed.first = _first(raw.connection, raw.name, proposed.columns)
        return proposed, raw.lines


def _first(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Mapping[str, object]]
) -> dict[str, list[str]]:
    kinds = {
        "numeric": "regexp_replace(number_of({0})::VARCHAR, '[.]0$', '')",
        "date": "moment_of({0})::DATE",
        "datetime": "moment_of({0})",
    }
    values = [kinds.get(str(column["type"]), "{0}").format(quoted(name)) for name, column in columns.items()]
    if not values:
        return {}
    texts = ", ".join(f"({value})::VARCHAR" for value in values)
    rows = connection.execute(f"SELECT {texts} FROM {table} LIMIT {FIRST}").fetchall()
    lists = ([text_of("missing" if value is None else value) for value in column] for column in zip(*rows, strict=True))
    return dict(zip(columns, lists, strict=False))


class _LeftOut(Exception):
    """A column cannot be declared; the text is the reason."""


@dataclass(frozen=True)
class _Looked:
    """The facts about a column.

    Attributes:
        says_text: Whether the source distinguishes its texts from numbers.
        declared: The categories that its type declares.
    """

    kind: str
    profile: ColumnProfile
    dates: tuple[dict[str, object], dict[str, str]] | None
    says_text: bool
    declared: Sequence[str] = ()

    @property
    def moment(self) -> bool:
        return bool(re.fullmatch(_MOMENT, self.kind))


def _look(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    name: str,
    kind: str,
    rows: int,
    *,
    typed: bool,
    before: Mapping[str, object],
) -> _Looked:
    """Reads the facts about a column, or raises ``_LeftOut``."""
    if not name or "\x00" in name or any(name.casefold() == earlier.casefold() for earlier in before):
        raise _LeftOut("its name is empty, contains a NUL character, or differs from another only in case")
    if not re.fullmatch(f"{_WHOLE}|{_REAL}|{_MOMENT}|{_TEXT}", kind):
        raise _LeftOut(f"values of type {kind[:40]} are neither categories nor numbers")
    facts = profile(connection, table, name, kind, limit=MAX_CATEGORIES)
    # '7' in a Parquet column of texts is a text. In a CSV file all values are texts, and 7 is a number.
    says_text = typed and bool(re.fullmatch(_TEXT, kind))
    return _Looked(kind, facts, _propose_dates(connection, table, name, kind, facts, rows, typed=typed), says_text)


def _declare(
    connection: duckdb.DuckDBPyConnection, table: str, name: str, looked: _Looked, proposed: Proposed, *, target: bool
) -> None:
    """Proposes a column, or raises ``_LeftOut``."""
    facts = looked.profile
    if looked.dates is None:
        _require_no_person(name, looked, proposed)
    if (
        looked.dates is None
        and looked.kind == "VARCHAR"
        and facts.distinct > FEW
        and (facts.numbers < MOSTLY * facts.filled or facts.zero_led)
    ):
        texts = facts.texts[:SHOWN] if facts.texts else some_texts(connection, table, quoted(name))
        if form := looks_like(texts):
            raise _LeftOut(f"its values are {form}")
    column, notes = looked.dates or _propose_column(connection, table, name, looked, proposed, target=target)
    try:
        _COLUMN.validate_python(column)
    except ValidationError as error:
        raise _LeftOut(f"as a number it cannot be declared: {problems(error)}") from None
    notes.setdefault("nullable", _lack(proposed.rows - facts.filled, proposed.rows, "value"))
    proposed.columns[name], proposed.notes[name] = column, notes


def _require_no_person(name: str, looked: _Looked, proposed: Proposed) -> None:
    facts, rank = looked.profile, person_rank(name)
    is_key = rank and facts.distinct > FEW and (facts.are_whole or facts.numbers < facts.filled)
    if proposed.unit is not None and proposed.unit.column == name:
        raise _LeftOut("it names the persons, whose presence must not show")
    if is_key and (rank > 1 or facts.distinct >= facts.filled / 100):
        raise _LeftOut(
            f"it seems to name rows or persons; where a person can have several rows, declare {unit_key(name)}"
        )
    kind, numbers = telling_name(name), facts.numbers > facts.filled / 2 and not facts.zero_led
    if kind and facts.distinct > FEW and not is_quantity(name) and not (numbers and kind in READ_ONLY):
        raise _LeftOut(f"it seems to hold {kind}, which tell persons apart")
    cells = facts.high - facts.low + 1 if facts.are_whole and facts.low is not None and facts.high is not None else 0
    numbering = FEW < cells == facts.numbers == proposed.rows and facts.distinct > proposed.rows * 0.9
    if numbering and not is_quantity(name):
        raise _LeftOut("it numbers the rows")


def _lack(missing: int, rows: int, noun: str) -> str:
    return f"guessed: {missing:,} of {rows:,} rows hold no {noun}"


def _unread(connection: duckdb.DuckDBPyConnection, table: str, reading: str, name: str) -> str:
    text = f"{quoted(name)}::VARCHAR"
    query = f"SELECT {text}, count(*) FROM {table} WHERE {reading} IS NULL AND {text} IS NOT NULL GROUP BY 1"
    rows = connection.execute(f"{query} ORDER BY 2 DESC, 1 LIMIT 3").fetchall()
    return printable(f", but texts such as {', '.join(repr(value[:40]) for value, _ in rows)}") if rows else ""


def _propose_dates(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    name: str,
    kind: str,
    profile: ColumnProfile,
    rows: int,
    *,
    typed: bool,
) -> tuple[dict[str, object], dict[str, str]] | None:
    """Returns the declaration of a column of dates, in whole years, and notes; None for another column.

    Texts of a typed source in another form are read by a formula. Raises ``_LeftOut`` if the order of
    day and month is not clear.
    """
    says_date = bool(re.fullmatch(_DATED, kind))
    # No date has fewer than four characters.
    if not profile.filled or not (says_date or (kind == "VARCHAR" and profile.longest >= 4)):
        return None
    value, formula = quoted(name), dict[str, object]()
    count, first, last, timed = date_range(connection, table, value, kind)
    if count < profile.filled and typed and kind == "VARCHAR":
        forms, example = date_forms(connection, table, value)
        if len(forms) > 1:
            raise _LeftOut(
                f"dates such as {example!r} can be read day first or month first; declare a date with a `formula:` "
                f"such as strptime({value}, '{forms[0]}')"
            )
        for form in (forms[0] + clock for clock in CLOCKS) if forms else ():
            formula = {"from": name, "formula": f"strptime({value}, '{form}')"}
            count, first, last, timed = date_range(connection, table, f"try_{formula['formula']}", "TIMESTAMP")
            if count == profile.filled:
                break
    if count < MOSTLY * profile.filled or first is None or last is None:
        return None
    # The range in whole years must have a grid of minutes.
    timed = timed and (last - first) <= (2**24 - 2 * 366 * 1440) / 1440
    years = [write_moment(day * DAY)[:4] for day in (first, last)]
    # Dates from 2019-03-05 to 2021-11-30 give the bounds 2019-01-01 and 2021-12-31.
    bounds = {"lower": f"{years[0]}-01-01", "upper": f"{years[1]}-12-31" + (" 23:59" if timed else "")}
    waiting = (
        ["lower", "upper", "nullable"] if says_date else ["type", *list(formula)[1:], "lower", "upper", "nullable"]
    )
    declared = {"type": "datetime" if timed else "date", **formula, **bounds, "nullable": count < rows}
    guess = f"the source says {kind}" if says_date else f"guessed from about {profile.distinct:,} different dates"
    clocks = times_of_day(connection, table, value, kind) if timed and not formula else []
    if clocks and "00:00" not in clocks:
        guess += f"; all its times are {' or '.join(clocks)} in UTC: where they are midnights of a zone, save dates"
    texts = kind == "VARCHAR" and not formula
    unread = texts and count < profile.filled
    lack = _lack(rows - count, rows, "date") + (
        _unread(connection, table, f"moment_of({value})", name) if unread else ""
    )
    return {**declared, "unreviewed": waiting}, {"type": guess, "nullable": lack} | unusual_dates(first, last)


def _propose_column(
    connection: duckdb.DuckDBPyConnection, table: str, name: str, looked: _Looked, proposed: Proposed, *, target: bool
) -> tuple[dict[str, object], dict[str, str]]:
    """Returns a column's declaration and notes on the guess, or raises ``_LeftOut``."""
    kind, facts, rows = looked.kind, looked.profile, proposed.rows
    low, high, whole, texts = facts.low, facts.high, facts.are_whole, facts.texts
    if not facts.filled:
        raise _LeftOut("it holds no values")
    few = texts is not None and len(texts) <= FEW
    among = facts.distinct > FEW and among_words(connection, table, name, facts)
    enough = among or facts.numbers >= (1 if few else MOSTLY) * facts.filled
    numbers = enough and not facts.zero_led and low is not None and not looked.moment
    # A text of a typed source stays a text, and so do numbers in a column whose name means codes.
    numeric = numbers and not looked.says_text and not looked.declared and not (whole and re.search(_CODE, plain(name)))
    if looked.moment and not few:
        advice = "derive a number or a date by a formula"
        raise _LeftOut(f"times of day are neither categories nor numbers here; {advice}")
    counts = (
        []
        if texts is None
        else persons_of_values(connection, table, name, counted_over(proposed.units), proposed.fewest, len(texts))
    )
    if numeric and low is not None and high is not None:
        # A few common whole numbers are categories if there are two, or if they are dense and no quantity.
        dense = high - low + 1 <= 2 * len(texts or ()) and not is_quantity(name)
        common = all(persons >= proposed.fewest for _, persons in counts)
        coded = few and whole and (target or (common and (dense or len(texts or ()) <= 2)))
        if not coded:
            guess = f"guessed from about {facts.distinct:,} different {'whole ' if whole else ''}numbers"
            lack = _lack(rows - facts.numbers, rows, "number")
            if facts.numbers < facts.filled:
                lack += _unread(connection, table, f"number_of({quoted(name)})", name)
            notes = {"type": guess, "nullable": lack}
            nullable = facts.numbers < rows
            bounds, lone = _without_lone(connection, table, name, low, high)
            return _propose_numeric(*bounds, whole, kind, nullable), {"upper": codes_note(texts)} | notes | lone
    common_texts = _of_many(connection, table, name, counts, proposed.fewest, numbers=numbers)
    nouns = "whole numbers" if numbers and whole else "values"
    return _propose_values(looked, counts, common_texts, f"{len(counts):,} different {nouns}", proposed)


def _propose_values(
    looked: _Looked,
    counts: list[tuple[str, int]],
    texts_and_rare: tuple[list[str], int],
    seen_as: str,
    proposed: Proposed,
) -> tuple[dict[str, object], dict[str, str]]:
    """Returns the declaration of categories and notes on the guess, or raises ``_LeftOut``."""
    kind, facts, (texts, rare) = looked.kind, looked.profile, texts_and_rare
    if facts.longest > MAX_TEXT or any("\x00" in text for text, _ in counts):
        raise _LeftOut(
            f"it holds texts of more than {MAX_TEXT} characters, or with NUL characters, which are no categories"
        )
    if kind == "BOOLEAN":
        texts, rare = [text for text, _ in counts], 0  # the two truth values, known from the type
    elif kind.startswith("ENUM"):
        texts, rare = list(looked.declared), 0
    else:  # also values that the type declares and no row has
        texts = [*texts, *(text for text in looked.declared if text not in dict(counts))]
    values = _categories(texts, kind, looked.says_text or rare > 0)
    guess = f"the source says {kind}" if looked.says_text else f"guessed from {seen_as}"
    waiting = ["values", "nullable"] if looked.says_text else ["type", "values", "nullable"]
    column: dict[str, object] = {"type": "categorical", "values": values, "nullable": facts.filled < proposed.rows}
    words = ", ".join(missing_words(values))
    notes = {"type": guess}
    if words:
        notes["values"] = printable(f"values that look missing: where they are, write `missing: [{words}]`")
    if rare:
        column |= {"values": list(dict.fromkeys([*values, OTHER])), "other": OTHER}
        notes["other"] = f"values of fewer than {proposed.fewest:,} persons are not listed and count as this one"
    return column | {"unreviewed": waiting}, notes


def _of_many(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    name: str,
    counts: list[tuple[str, int]],
    fewest: int,
    *,
    numbers: bool,
) -> tuple[list[str], int]:
    """Returns the texts of many persons, and the number of others. Raises ``_LeftOut`` if they tell persons apart."""
    if not counts or len(counts) > MAX_CATEGORIES:
        amounts = "; where they are amounts and not codes, make them numbers in the source" if numbers else ""
        advice = "group them in the source, or declare those that are publicly known"
        raise _LeftOut(f"it has more than {MAX_CATEGORIES:,} different values{amounts}; {advice}")
    common = [text for text, persons in counts if persons >= fewest]
    rare = len(counts) - len(common)
    look = telling_look(connection, table, name) if rare * 4 >= len(counts) or len(counts) > FEW else ""
    if rare and telling_name(name):
        raise _LeftOut(f"it seems to hold {telling_name(name)}, which tell persons apart")
    if look and (rare or "mail" in look):
        raise _LeftOut(f"its values look like {look}, which tell persons apart")
    covered = sum(persons for _, persons in counts if persons >= fewest)
    if not common or 2 * covered < sum(persons for _, persons in counts) or rare > max(FEW, 10 * len(common)):
        raise _LeftOut(
            f"most of its values are of fewer than {fewest:,} persons, so they tell persons apart; declare those that "
            "are publicly known"
        )
    return common, rare


def _without_lone(
    connection: duckdb.DuckDBPyConnection, table: str, name: str, low: float, high: float
) -> tuple[tuple[float, float], dict[str, str]]:
    """The range of a column's numbers, without one row whose distance to the others exceeds their range."""
    number = f"number_of({quoted(name)})"
    numbers = f"SELECT {number} AS n FROM {table} WHERE isfinite({number})"
    smallest, largest = connection.execute(f"SELECT min(n, 2), max(n, 2) FROM ({numbers})").fetchall()[0]
    if len(smallest or ()) < 2:
        return (low, high), {}
    bottom, top = float(smallest[1]), float(largest[1])
    note = "one row alone is far {} this bound and counts as the bound: a total, or a slip of the pen?"
    notes = dict[str, str]()
    if low < bottom < top and bottom - low > top - bottom:
        low, notes["lower"] = bottom, note.format("below")
    if bottom < top < high and high - top > top - bottom:
        high, notes["upper"] = top, note.format("above")
    return (low, high), notes


def _categories(texts: list[str], kind: str, says_text: bool) -> list[str | int | bool]:
    if kind in ("DOUBLE", "FLOAT"):
        texts = [text for text in texts if text.lower() not in ("nan", "inf", "-inf")]
    values = [text if says_text and kind != "BOOLEAN" else _category(text, kind) for text in texts]
    return sorted(values if len({type(value) for value in values}) == 1 else [text_of(value) for value in values])


def _category(text: str, kind: str) -> str | int | bool:
    if kind == "BOOLEAN":
        return text == "true"
    if kind in ("DOUBLE", "FLOAT") and float(text).is_integer():
        return int(float(text))
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def _propose_numeric(low: float, high: float, integer: bool, kind: str, nullable: bool) -> dict[str, object]:
    """Declares bounds that are rounded outward to whole steps of a round size, so the grid is exact."""
    # Ages from 17 to 90: a tenth of the range is 7.3, so the unit is 10, and the bounds are 10 and 90.
    smallest, largest = Decimal(repr(low)), Decimal(repr(high))
    unit = round_up((largest - smallest) / 10 or abs(largest) / 10 or Decimal(1))
    unit = max(Decimal(1), unit) if integer else unit
    lower, upper = (
        (smallest / unit).to_integral_value(ROUND_FLOOR) * unit,
        (largest / unit).to_integral_value(ROUND_CEILING) * unit,
    )
    upper += unit if lower == upper else 0
    declared: dict[str, object] = {"type": "numeric", "lower": plain_number(lower), "upper": plain_number(upper)}
    waiting = ["type", "lower", "upper"]
    if integer:
        declared["integer"] = True
        waiting += [] if re.fullmatch(_WHOLE, kind) else ["integer"]
    if not integer or upper - lower > 2**17:
        declared["step"] = plain_number(round_up((upper - lower) / REAL_CELLS))
        waiting.append("step")
    return declared | {"nullable": nullable, "unreviewed": [*waiting, "nullable"]}


# Code that converts other kinds of files to Parquet.
_CONVERTED = {
    ".json": "import duckdb; duckdb.read_json({0!r}).write_parquet({1!r})",
    ".feather": "import pandas; pandas.read_feather({0!r}).to_parquet({1!r})",
    ".arrow": "import pandas; pandas.read_feather({0!r}).to_parquet({1!r})",
}


def _require_kind(path: str) -> None:
    try:
        with open(path, "rb") as file:
            begin = file.read(4)
    except OSError:  # the reader of the file reports the error
        return
    if begin == b"PAR1" or is_text(path) or path.lower().endswith(".parquet"):
        return
    advice = "If it is text, say what stands between its fields, such as --delimiter tab; else save it as CSV or .xlsx."
    if code := _CONVERTED.get(Path(path).suffix.lower()):
        target = f"{Path(path).stem}.parquet"
        advice = f'Write its table as Parquet: python -c "{code.format(path, target)}"'
    raise PolicyError(f"{path} is no table of a kind that is read: {TABLE_FILES}. {advice}")


def _table_of(table: str, uri_env: str) -> tuple[dict[str, dict[str, str]], str]:
    """The policy's ``source`` for a server's table, and a name for the dataset."""
    scheme, separator, _ = os.environ.get(uri_env, "").partition("://")
    if not separator:
        raise PolicyError(
            f"The environment variable {uri_env} is not set to the URI of a database, such as postgresql://..."
        )
    scheme = scheme.partition("+")[0].lower()
    driver = f"adbc_driver_{'postgresql' if scheme == 'postgres' else re.sub('[^a-z0-9]', '_', scheme)[:40]}"
    return {"adbc": {"driver": driver, "uri_env": uri_env, "table": table}}, table.rpartition(".")[2]


def _source_of(
    data: str, folder: str | os.PathLike[str] | None, csv: Dialect | None
) -> tuple[str | dict[str, str], str]:
    """The policy's ``source`` and a name for the dataset."""
    if "://" in data:
        raise PolicyError(
            "A table is read from a file of this machine: download it first. For a database server name the table, "
            "and with `uri_env` the environment variable that holds its URI."
        )
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
