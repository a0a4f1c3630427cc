# SPDX-License-Identifier: Apache-2.0
"""What ``pinq init`` writes: a policy guessed from a table, in which everything read off the rows waits for review."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pinq.engine import ColumnProfile, Lines, count_rows, largest_group, profile, read_columns
from pinq.engine.sources import source_dialect
from pinq.errors import InternalError, PolicyError
from pinq.provider.identifiers import FEW, Unit, is_identifier, is_quantity, may_be_unit
from pinq.provider.policy_file import load_policy
from pinq.provider.report.text import printable
from pinq.public.columns import REAL_CELLS, round_up, text_of
from pinq.public.dialect import Dialect
from pinq.public.plain_yaml import plain_number, read_yaml, write_yaml
from pinq.public.policy import Policy
from pinq.public.schema import Categorical
from pinq.public.spelling import closest

__all__ = ["propose", "propose_like"]

_WHOLE = r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER)"
_REAL = r"(FLOAT|DOUBLE|DECIMAL.*)"
_MOMENT = r"(DATE|TIME.*)"
_TEXT = r"(VARCHAR|UUID|BOOLEAN|ENUM.*)"
_CODE = r"(^|[\W_])(zip|zipcode|postcode|postalcode|postal|plz|code|codes|phone|telephone|fax)([\W_]|$)"

MAX_CATEGORIES = 1000
MAX_TEXT = 200
MAX_STEPS_OF_ONE = 2**17


@dataclass
class _Table:
    """What was seen of a table, and what is proposed for it.

    Attributes:
        lost_lines: Lines of a text file that cannot be read; not among the rows.
        columns: Each column's declaration.
        notes: For a column's keys, what they were guessed from.
        left_out: Columns without a declaration, and why.
        units: Columns that may name the privacy units.
    """

    rows: int
    lost_lines: int = 0
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)


def propose(
    data: str | os.PathLike[str],
    *,
    target: str | None = None,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    csv: Dialect | None = None,
) -> str:
    """Proposes a policy for a table, as YAML with comments. Nothing in it counts before the provider reviewed it.

    Args:
        data: A Parquet or CSV file (or pattern), or ``file.duckdb::table``
            (``file.duckdb::schema::table``).
        target: The column that models will predict; it must be fit for it.
        dataset: The name under which analysts will know it; the file's or table's by default.
        folder: Where the policy will be kept; ``source`` is written relative to it. Absolute by
            default.
        csv: How a file of delimited text is written, where that is not as usual; it goes into the
            policy.

    Raises:
        PolicyError: The source cannot be read, looks as if it were written otherwise, or nothing in
            it, or not the target, can be a column.
    """
    bare = _bare(data, dataset, folder, csv)
    with closing(read_columns(bare)) as raw:
        connection, table, types = raw.connection, raw.name, raw.types
        if target is not None and target not in types:
            raise PolicyError(
                f"The source has no column {target!r}{closest(target, types)}; it has {', '.join(types)}."
            )
        found = _Table(count_rows(connection, table), raw.lines.lost)
        for name, kind in types.items():
            _look(connection, table, name, kind, found, target=name == target, typed=source_dialect(bare) is None)
    if target in found.left_out:
        raise PolicyError(f"The target {target!r} cannot be a column: {found.left_out[target]}.")
    if not found.columns:
        reasons = "; ".join(f"{each}: {why}" for each, why in found.left_out.items()) or "it has no columns"
        raise PolicyError(f"Nothing in the source can be a column. {reasons}.")
    text = _yaml(bare, found, target) + _on_lines(raw.lines)
    content = read_yaml(text)
    Policy.model_validate(content)
    if content["columns"] != found.columns:
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
    """Proposes another holder's policy for a table: the same columns, bounds, adjacency and privacy unit, so that their schemas are equal.

    Nothing is read off the rows of ``data``; only the names of its columns are.

    Args:
        data: As in ``propose``.
        like: The policy that the holders share. What is unreviewed there is unreviewed here.
        dataset: As in ``propose``; by default the name there.
        folder: As in ``propose``.
        csv: How this holder's file of delimited text is written; by default as usual.

    Raises:
        PolicyError: A wrong policy, or a source that cannot be read or lacks one of its columns.
    """
    shared = load_policy(like)
    bare = _bare(data, dataset or shared.dataset, folder, csv)
    with closing(read_columns(bare)) as raw:
        types = raw.types
    for name in [*shared.columns, *([] if isinstance(shared.privacy_unit, str) else [shared.privacy_unit.column])]:
        if name not in types:
            raise PolicyError(
                f"The source has no column {name!r}{closest(name, types)}, which the shared policy has; it "
                f"has {', '.join(types)}."
            )
    own = {"dataset": bare.dataset, "source": bare.source, "folder": bare.folder, "ledger": None, "csv": csv}
    return _HEAD_LIKE + shared.model_copy(update=own).to_yaml()


def _bare(
    data: str | os.PathLike[str], dataset: str | None, folder: str | os.PathLike[str] | None, csv: Dialect | None
) -> Policy:
    """A policy that names the source and declares nothing of it yet."""
    source, stem = _source_of(os.fspath(data), folder)
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


def _look(connection: Any, table: str, name: str, kind: str, found: _Table, *, target: bool, typed: bool) -> None:
    """Notes a column's declaration, or why it has none, and whether it may name the privacy units."""
    if not name or "\x00" in name or any(name.casefold() == other.casefold() for other in found.columns):
        found.left_out[name] = "its name is empty, contains a NUL character, or differs from another only in case"
        return
    if not re.fullmatch(f"{_WHOLE}|{_REAL}|{_MOMENT}|{_TEXT}", kind):
        found.left_out[name] = f"values of type {kind[:40]} are neither categories nor numbers"
        return
    real, moment = bool(re.fullmatch(_REAL, kind)), bool(re.fullmatch(_MOMENT, kind))
    seen = profile(connection, table, name, real=real, moment=moment, most=MAX_CATEGORIES)
    if not moment and may_be_unit(name, seen):
        values, largest = largest_group(connection, table, name)
        found.units += [Unit(name, values, seen.filled, largest)] if largest > 1 else []
    proposed = _propose_column(
        name, kind, seen, found.rows, target=target, says_text=typed and bool(re.fullmatch(_TEXT, kind))
    )
    if isinstance(proposed, str):
        found.left_out[name] = proposed
    else:
        found.columns[name], found.notes[name] = proposed


def _propose_column(
    name: str, kind: str, seen: ColumnProfile, rows: int, *, target: bool, says_text: bool
) -> tuple[dict[str, Any], dict[str, str]] | str:
    """A column's declaration and what it was guessed from, or why it has none."""
    filled, low, high, whole, texts = seen.filled, seen.low, seen.high, seen.whole, seen.texts
    moment = bool(re.fullmatch(_MOMENT, kind))
    if not filled:
        return "it holds no values"
    numbers = seen.numbers == filled and not seen.zero_led and low is not None and not moment
    # A text stays a text where the source can tell it from a number, and so does a code that its
    # name gives away.
    numeric = numbers and not says_text and not (whole and re.search(_CODE, name.casefold()))
    few = texts is not None and len(texts) <= FEW
    if moment and not few:
        return "dates and times are neither categories nor numbers here; add a column such as a year or an age to the source"
    if is_identifier(name, seen):
        return f"it seems to name rows or persons; where a person can have several rows, declare {_unit(name)}"
    notes = {"nullable": f"guessed: {rows - filled:,} of {rows:,} rows hold no value"}
    if (
        numeric
        and low is not None
        and high is not None
        and not (few and whole and (target or _are_codes(name, len(texts or ()), low, high)))
    ):
        notes["type"] = f"guessed from about {seen.distinct:,} different {'whole ' if whole else ''}numbers"
        return _propose_numeric(low, high, whole, kind, filled < rows), notes
    if texts is None or len(texts) > MAX_CATEGORIES:
        amounts = "; where they are amounts and not codes, make them numbers in the source" if numbers else ""
        return f"it has more than {MAX_CATEGORIES:,} different values{amounts}; group them in the source, or declare those that are publicly known"
    if len(texts) > FEW and len(texts) > rows / 2 and not numeric:
        return "its values hardly repeat, so they may name persons"
    finite = [text for text in texts if kind not in ("DOUBLE", "FLOAT") or text.lower() not in ("nan", "inf", "-inf")]
    values = _categories(finite, kind, says_text)
    if seen.longest > MAX_TEXT or any("\x00" in str(value) for value in values):
        return f"it holds texts of more than {MAX_TEXT} characters, or with NUL characters, which are no categories"
    nouns = "whole numbers" if numbers and whole else "values"
    notes["type"] = f"the source says {kind}" if says_text else f"guessed from {len(values):,} different {nouns}"
    waiting = ["values", "nullable"] if says_text else ["type", "values", "nullable"]
    return {"type": "categorical", "values": values, "nullable": filled < rows, "unreviewed": waiting}, notes


def _are_codes(name: str, count: int, low: float, high: float) -> bool:
    """Whether a few whole numbers are categories: two of them, or dense ones under a name that is no quantity's."""
    return count <= 2 or (not is_quantity(name) and high - low + 1 <= 2 * count)


def _categories(texts: list[str], kind: str, says_text: bool) -> list[str | int | bool]:
    """The declared form of a list of values: numbers where all of them are and the source does not say otherwise."""
    values = [text if says_text and kind != "BOOLEAN" else _category(text, kind) for text in texts]
    return sorted(values if len({type(value) for value in values}) == 1 else [text_of(value) for value in values])


def _category(text: str, kind: str) -> str | int | bool:
    """The declared form of a value, whose text is the one that encoding compares."""
    if kind == "BOOLEAN":
        return text == "true"
    if kind in ("DOUBLE", "FLOAT") and float(text).is_integer():
        return int(float(text))
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def _propose_numeric(low: float, high: float, whole: bool, kind: str, nullable: bool) -> dict[str, Any]:
    """Bounds rounded outward to a round unit, and a round step: each bound is a whole number of steps, so the grid is exact."""
    least, most = Decimal(repr(low)), Decimal(repr(high))
    unit = round_up((most - least) / 10 or abs(most) / 10 or Decimal(1))
    unit = max(Decimal(1), unit) if whole else unit
    lower, upper = (
        (least / unit).to_integral_value(ROUND_FLOOR) * unit,
        (most / unit).to_integral_value(ROUND_CEILING) * unit,
    )
    upper += unit if lower == upper else 0
    declared: dict[str, Any] = {"type": "numeric", "lower": plain_number(lower), "upper": plain_number(upper)}
    waiting = ["type", "lower", "upper"]
    if whole:
        declared["integer"] = True
        waiting += [] if re.fullmatch(_WHOLE, kind) else ["integer"]
    if not whole or upper - lower > MAX_STEPS_OF_ONE:
        declared["step"] = plain_number(round_up((upper - lower) / REAL_CELLS))
        waiting.append("step")
    return declared | {"nullable": nullable, "unreviewed": [*waiting, "nullable"]}


def _source_of(data: str, folder: str | os.PathLike[str] | None) -> tuple[str | dict[str, str], str]:
    """The policy's ``source`` and a name for the dataset."""
    path, *inside = data.split("::")
    if len(inside) > 2 or not path or not all(inside):
        raise PolicyError(f"{data!r} is no source; write data.parquet, data.csv, or file.duckdb::table.")
    if not inside and path.endswith((".duckdb", ".db", ".ddb")):
        raise PolicyError(f"{path} is a database; say which table of it: {path}::TABLE.")
    shown = os.path.abspath(path)
    if folder is not None:
        shown = os.path.relpath(
            os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)),
            os.path.realpath(folder),
        )
    if not inside:
        return shown, Path(path).name.split(".")[0]
    return {"database": shown, "table": inside[-1]} | ({"schema": inside[0]} if len(inside) == 2 else {}), inside[-1]


_HEAD = """\
# Proposed by `pinq init`. What is named under `unreviewed` was read off the data, and a domain that follows the rows leaks them,
# so this policy opens nothing yet:
#   1. Put what is publicly known (a code book, a form, a law) in the place of each such value, or confirm it, and delete
#      its name from `unreviewed`. Delete `unreviewed` where nothing is left in it.
#   2. Delete columns that nobody should ask about. Values and bounds are public: every analyst reads them.
#   3. `pinq check` shows what the policy does to the data; `pinq grant` gives an analyst a budget.
"""


_HEAD_LIKE = """\
# Proposed by `pinq init --like`: what holders share is as in their policy, and nothing was read off the rows of this source.
# `pinq check` shows what the policy does to them. `cap` and `max_rows` are each holder's own.
"""


_HINTS = {
    "lower": "smaller numbers count as this one; choose it without looking at the rows",
    "upper": "larger numbers count as this one",
    "step": "width of a grid cell; both bounds are whole numbers of steps",
    "nullable": "whether a missing value is a value of its own; false leaves such rows out",
}


def _on_lines(lines: Lines) -> str:
    """A remark on lines that cannot be read. Their number stays out of a file that others may come to read."""
    if not lines.lost:
        return ""
    reasons = "; ".join(
        f"lines {printable(reason)}, such as {printable(lines.examples[reason])}" for reason in lines.unreadable
    )
    return f"\n# Some lines cannot be read and are left out; `pinq check` counts them: {reasons}\n"


def _yaml(bare: Policy, found: _Table, target: str | None) -> str:
    keys: dict[str, Any] = {"source": bare.model_dump(by_alias=True, exclude_defaults=True)["source"]}
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
        *_units(found.units),
        f"max_rows: {round_up(Decimal(found.rows + found.lost_lines + 1)):f}  # no table under this policy "
        f"will ever have more rows",
        "unreviewed: [privacy_unit, max_rows]",
        "",
        "columns:",
    ]
    hints = dict(_HINTS)  # each is given once
    for column, declared in found.columns.items():
        lines += ["  # the target"] if column == target else []
        for line in _dump({column: declared}, None):
            key = line.removeprefix("  ").split(":")[0] if line.startswith("  ") else ""
            said = "; ".join(filter(None, (found.notes[column].get(key), hints.pop(key, None))))
            lines.append(f"  {line}" + (f"  # {said}" if said else ""))
    if found.left_out:
        lines += [
            "",
            "# Left out:",
            *(f"#   {printable(column)}: {printable(why)}" for column, why in found.left_out.items()),
        ]
    return "\n".join(lines) + "\n"


def _units(units: list[Unit]) -> list[str]:
    """Comments that name the columns which may name persons."""
    if not units:
        return []
    lines = [
        "# These columns look as if they name persons or the like, who have several rows. If one does, "
        "declare it, so that",
        "# all their rows are hidden:",
    ]
    for unit in units:
        lines += [
            f"#   {_unit(unit.column)}",
            f"#     {printable(str(unit))} (read off the rows: for your review alone)",
        ]
    return [
        *lines,
        "# Its `max_rows` is a bound that is publicly known, not the number above: rows of a unit beyond it "
        "are left out,",
        "# and noise grows with it.",
    ]


def _unit(column: str) -> str:
    return printable(f"privacy_unit: {{column: {json.dumps(column, ensure_ascii=False)}, max_rows: ...}}")


def _dump(content: dict[str, Any], flow: bool | None) -> list[str]:
    """Lines of YAML; with ``flow`` None, innermost lists stand in brackets."""
    return write_yaml(content, flow).rstrip("\n").split("\n")
