# SPDX-License-Identifier: Apache-2.0
"""What ``pinq init`` writes: a policy guessed from a table, in which everything read off the rows waits for review."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pinq.engine import count_rows, profile, read_columns
from pinq.errors import InternalError, PolicyError
from pinq.provider.report.html import printable
from pinq.public.policy import Policy, _number
from pinq.public.schema import REAL_CELLS, Categorical, closest

__all__ = ["propose"]

_WHOLE = r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER)"
_REAL = r"(FLOAT|DOUBLE|DECIMAL.*)"
_MOMENT = r"(DATE|TIME.*)"
_TEXT = r"(VARCHAR|UUID|BOOLEAN|ENUM.*)"
_QUANTITY = (
    r"(^|[\W_])(age|num|number|count|n|years?|hours?|days?|weeks?|months?|minutes?|amount|income|salary|price|cost|gain|loss|score|"
    r"weight|height|size|total|sum|qty|quantity)([\W_]|$)"
)
_IDENTITY = r"(^|[\W_])(id|ids|uuid|guid|ssn|key|index|rowid|unnamed)([\W_]|$)|id$"

MAX_CATEGORIES = 1000
FEW = 20
MAX_TEXT = 200
MAX_STEPS_OF_ONE = 2**17


def propose(
    data: str | os.PathLike[str],
    *,
    target: str | None = None,
    dataset: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> str:
    """Proposes a policy for a table, as YAML with comments. Nothing in it counts before the provider reviewed it.

    Args:
        data: A Parquet or CSV file (or pattern), or ``file.duckdb::table``
            (``file.duckdb::schema::table``).
        target: The column that models will predict; it must be fit for it.
        dataset: The name under which analysts will know it; the file's or table's by default.
        folder: Where the policy will be kept; ``source`` is written relative to it. Absolute by
            default.

    Raises:
        PolicyError: The source cannot be read, or nothing in it, or not the target, can be a
            column.
    """
    source, stem = _source_of(os.fspath(data), folder)
    name = dataset if dataset is not None else re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("_.-")[:64] or "dataset"
    try:
        column = Categorical(values=("-",))
        bare = Policy.model_validate(
            {
                "dataset": name,
                "source": source,
                "cap": 1,
                "max_rows": 1,
                "columns": {"-": column},
                "folder": folder or ".",
            }
        )
    except ValidationError:
        raise PolicyError(
            f"The dataset name {name[:80]!r} must be 1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit."
        ) from None
    connection, table, types = read_columns(bare)
    with closing(connection):
        if target is not None and target not in types:
            raise PolicyError(
                f"The source has no column {target!r}{closest(target, types)}; it has {', '.join(types)}."
            )
        rows = count_rows(connection, table)
        columns: dict[str, dict[str, Any]] = {}
        left_out: dict[str, str] = {}
        for each, kind in types.items():
            found = _propose_column(connection, table, each, kind, rows, each == target, columns)
            if isinstance(found, str):
                left_out[each] = found
            else:
                columns[each] = found
    if target in left_out:
        raise PolicyError(f"The target {target!r} cannot be a column: {left_out[target]}.")
    if not columns:
        reasons = "; ".join(f"{each}: {why}" for each, why in left_out.items()) or "it has no columns"
        raise PolicyError(f"Nothing in the source can be a column. {reasons}.")
    text = _yaml(name, source, rows, columns, left_out, target)
    Policy(**yaml.safe_load(text))
    if yaml.safe_load(text)["columns"] != columns:
        raise InternalError("The proposed policy does not read back as it was written. Please report it.")
    return text


def _propose_column(
    connection: Any, table: str, name: str, kind: str, rows: int, target: bool, known: dict[str, Any]
) -> dict[str, Any] | str:
    """A column's declaration, or why it has none."""
    if not name or "\x00" in name or any(name.casefold() == other.casefold() for other in known):
        return "its name is empty, contains a NUL character, or differs from another only in case"
    if not re.fullmatch(f"{_WHOLE}|{_REAL}|{_MOMENT}|{_TEXT}", kind):
        return f"values of type {kind[:40]} are neither categories nor numbers"
    real, moment = bool(re.fullmatch(_REAL, kind)), bool(re.fullmatch(_MOMENT, kind))
    seen = profile(connection, table, name, real=real, moment=moment, most=MAX_CATEGORIES)
    filled, parsed, low, high, whole, distinct, texts = (
        seen.filled,
        seen.numbers,
        seen.low,
        seen.high,
        seen.whole,
        seen.distinct,
        seen.texts,
    )
    if not filled:
        return "it holds no values"
    numeric = parsed == filled and not seen.zero_led and low is not None and not moment and kind != "BOOLEAN"
    few = texts is not None and len(texts) <= FEW
    if moment and not few:
        return "dates and times are neither categories nor numbers here; add a column such as a year or an age to the source"
    if re.search(_IDENTITY, name.casefold()) and distinct > 0.9 * rows > FEW and (whole or not numeric):
        unit = f"privacy_unit: {{column: {json.dumps(name, ensure_ascii=False)}, max_rows: ...}}"
        return f"it seems to name rows or persons; where a person can have several rows, declare {unit}"
    if (
        numeric
        and low is not None
        and high is not None
        and not (few and whole and (target or _are_codes(name, len(texts or ()), low, high)))
    ):
        return _propose_numeric(low, high, whole, kind, parsed < rows)
    if texts is None or len(texts) > MAX_CATEGORIES:
        return f"it has more than {MAX_CATEGORIES:,} different values; group them in the source, or declare those that are publicly known"
    if len(texts) > FEW and len(texts) > rows / 2 and not numeric:
        return "its values hardly repeat, so they may name persons"
    values = [_category(text, kind) for text in texts if not (real and text.lower() in ("nan", "inf", "-inf"))]
    if seen.longest > MAX_TEXT or any("\x00" in str(value) for value in values):
        return f"it holds texts of more than {MAX_TEXT} characters, or with NUL characters, which are no categories"
    values.sort(key=lambda value: (isinstance(value, str), value))
    return {"type": "categorical", "values": values, "nullable": filled < rows, "unreviewed": ["values", "nullable"]}


def _are_codes(name: str, count: int, low: float, high: float) -> bool:
    """Whether a few whole numbers are categories: two of them, or dense ones under a name that is no quantity's."""
    return count <= 2 or (not re.search(_QUANTITY, name.casefold()) and high - low + 1 <= 2 * count)


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
    unit = _round_up((most - least) / 10 or abs(most) / 10 or Decimal(1))
    unit = max(Decimal(1), unit) if whole else unit
    lower, upper = (
        (least / unit).to_integral_value(ROUND_FLOOR) * unit,
        (most / unit).to_integral_value(ROUND_CEILING) * unit,
    )
    upper += unit if lower == upper else 0
    declared: dict[str, Any] = {"type": "numeric", "lower": _number(lower), "upper": _number(upper)}
    waiting = ["lower", "upper"]
    if whole:
        declared["integer"] = True
        waiting += [] if re.fullmatch(_WHOLE, kind) else ["integer"]
    if not whole or upper - lower > MAX_STEPS_OF_ONE:
        declared["step"] = _number(_round_up((upper - lower) / REAL_CELLS))
        waiting.append("step")
    return declared | {"nullable": nullable, "unreviewed": [*waiting, "nullable"]}


def _round_up(number: Decimal) -> Decimal:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``number``."""
    power = Decimal(1).scaleb(number.adjusted())
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number)


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


_HINTS = {
    "lower": "smaller numbers count as this one; choose it without looking at the rows",
    "upper": "larger numbers count as this one",
    "step": "width of a grid cell; both bounds are whole numbers of steps",
    "nullable": "whether a missing value is a value of its own; false leaves such rows out",
}


def _yaml(
    name: str, source: Any, rows: int, columns: dict[str, dict[str, Any]], left_out: dict[str, str], target: str | None
) -> str:
    lines = [
        _HEAD.rstrip("\n"),
        *_dump({"version": 1, "dataset": name, "source": source}, False),
        "cap: 1.0  # epsilon over all analysts together, for they may collude",
        "adjacency: add-remove  # hides whether a row is in the table; `substitute` hides what is in it, and costs twice the noise",
        "privacy_unit: row  # or {column: person_id, max_rows: 3}, where a person can have several rows",
        f"max_rows: {_round_up(Decimal(rows + 1)):f}  # no table under this policy will ever have more rows",
        "unreviewed: [max_rows]",
        "",
        "columns:",
    ]
    hints = dict(_HINTS)  # each is given once
    for column, declared in columns.items():
        lines += ["  # the target"] if column == target else []
        for line in _dump({column: declared}, None):
            key = line.removeprefix("  ").split(":")[0]
            hint = hints.pop(key, None) if line.startswith("  ") else None
            lines.append(f"  {line}" + (f"  # {hint}" if hint else ""))
    if left_out:
        lines += [
            "",
            "# Left out:",
            *(f"#   {printable(column)}: {printable(why)}" for column, why in left_out.items()),
        ]
    return "\n".join(lines) + "\n"


def _dump(content: dict[str, Any], flow: bool | None) -> list[str]:
    """Lines of YAML; with ``flow`` None, innermost lists stand in brackets."""
    # PyYAML folds Unicode's own line breaks into blanks unless they are escaped.
    plain = not re.search("[\x85\u2028\u2029\ufeff]", json.dumps(content, ensure_ascii=False))
    return (
        str(yaml.safe_dump(content, sort_keys=False, allow_unicode=plain, width=110, default_flow_style=flow))
        .rstrip("\n")
        .split("\n")
    )
