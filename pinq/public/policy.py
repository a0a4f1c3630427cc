# SPDX-License-Identifier: Apache-2.0
"""What the provider declares: the public schema, and where data and ledger are. YAML on disk.

A value that ``pinq init`` guessed or read off the data is named in ``unreviewed`` (of the policy or
of a column) until the provider deletes the name: a domain that follows the rows would leak them
(privacy.md 1.7c).
"""

from __future__ import annotations

import json
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from pinq.errors import PolicyError, QueryError
from pinq.public.dialect import Dialect, is_delimited
from pinq.public.epsilon import is_exact, to_nano
from pinq.public.plain_yaml import read_yaml, write_yaml
from pinq.public.schema import Categorical, FiniteDecimal, Numeric, PrivacyUnit, Schema, _Declared

__all__ = ["DatabaseTable", "Policy", "load_policy"]


class DatabaseTable(_Declared):
    """A table or view of a DuckDB database file."""

    database: str
    table: str
    schema_name: str = Field(default="main", alias="schema")


class Policy(_Declared):
    """One dataset: what is public about it, where it is, and how much may be learned of it."""

    version: Literal[1] = 1
    dataset: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", description="name under which analysts know it")
    source: str | DatabaseTable | None = Field(
        default=None, description="Parquet or CSV file(s), relative to the policy, or a DuckDB table"
    )
    csv: Dialect | None = Field(
        default=None, description="how a source of delimited text is written; what is not declared is as usual"
    )
    ledger: str | None = Field(
        default=None, description="a file, relative to the policy, or an SQLAlchemy URL; beside the source by default"
    )
    cap: Annotated[FiniteDecimal, Field(gt=0, le=10**6)] = Field(
        description="epsilon over all analysts together, for they may collude"
    )
    cap_rule: Literal["sum", "union"] = Field(
        default="sum",
        description="whether the cap counts the sum of what each analyst spent, or what they ask alike once",
    )
    adjacency: Literal["add-remove", "substitute"] = "add-remove"
    privacy_unit: Literal["row"] | PrivacyUnit = "row"
    max_rows: int = Field(ge=1, le=2**33)
    padding: str | None = Field(
        default=None,
        pattern=r"^[1-9]\d{0,4}(ms|s)$",
        description="over the network, answers and errors leave at multiples of this time, such as 50ms",
    )
    memory_limit: str | None = Field(
        default=None,
        pattern=r"^\d+(\.\d+)? ?(MB|GB|MiB|GiB)$",
        description="memory that the engine may use before it spills to disk",
    )
    secure: Literal["noise", "exact"] = Field(
        default="noise",
        description="what computations among several parties may open of the rows: noisy results only, or exact ones too",
    )
    unreviewed: tuple[str, ...] = Field(
        default=(), description="fields that were guessed or read off the data and wait for the provider's word"
    )
    columns: dict[str, Annotated[Categorical | Numeric, Field(discriminator="type")]] = Field(min_length=1)
    # Where relative paths start; set by load_policy.
    folder: Path = Field(default=Path("."), exclude=True, repr=False)

    @field_validator("cap")
    @classmethod
    def _in_nano(cls, cap: Decimal) -> Decimal:
        if not is_exact(cap):
            raise ValueError("the smallest step of a loss is 0.000000001; write at most nine decimals")
        return cap

    @field_validator("columns")
    @classmethod
    def _of_one_type(cls, columns: dict[str, Categorical | Numeric]) -> dict[str, Categorical | Numeric]:
        for name, column in columns.items():
            _require_one_type(name, column)
        return columns

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        self.schema_.column(next(iter(self.columns)))
        if not isinstance(self.privacy_unit, str) and self.privacy_unit.column in self.columns:
            raise ValueError(
                f"the privacy unit {self.privacy_unit.column!r} names people; it cannot be a column that analysts see"
            )
        return self

    @model_validator(mode="after")
    def _only_text_has_a_dialect(self) -> Policy:
        if self.csv is not None and (not isinstance(self.source, str) or self.source.lower().endswith(".parquet")):
            raise ValueError(
                "`csv` says how a source of delimited text is written, such as data.csv; this source is none"
            )
        return self

    @property
    def dialect(self) -> Dialect | None:
        """How the source is written, where it is delimited text: by its (first) file's name, or because the policy says so."""
        if self.csv is not None or not isinstance(self.source, str):
            return self.csv
        return Dialect() if any(is_delimited(file.name) for file in self.source_files()[:1]) else None

    @property
    def schema_(self) -> Schema:
        """The part that analysts may see."""
        return Schema(
            columns=self.columns, max_rows=self.max_rows, adjacency=self.adjacency, privacy_unit=self.privacy_unit
        )

    @property
    def cap_nano(self) -> int:
        """The cap in nano-epsilons."""
        return to_nano(self.cap, name="cap")

    @property
    def padding_seconds(self) -> float:
        """The time bucket in seconds, 0 for none."""
        if self.padding is None:
            return 0.0
        return (
            int(self.padding.removesuffix("ms")) / 1000
            if self.padding.endswith("ms")
            else float(self.padding.removesuffix("s"))
        )

    def unreviewed_fields(self) -> list[str]:
        """What still waits for the provider's word, e.g. ``columns.age.upper``."""
        own = list(self.unreviewed)
        return own + [f"columns.{name}.{field}" for name, column in self.columns.items() for field in column.unreviewed]

    def require_reviewed(self) -> None:
        """Raises ``PolicyError`` while anything is unreviewed."""
        waiting = self.unreviewed_fields()
        if waiting:
            listed = ", ".join(waiting[:8]) + (f" and {len(waiting) - 8} more" if len(waiting) > 8 else "")
            raise PolicyError(
                f"The policy of {self.dataset!r} has values that were guessed or read off the data and that "
                f"nobody reviewed: {listed}. "
                "Put what is publicly known about each in its place (or confirm it) and delete its name from "
                "`unreviewed`."
            )

    def source_path(self) -> Path | None:
        """Where the source is, links resolved; for a pattern its folder is resolved. None for data passed by the caller."""
        if self.source is None:
            return None
        path = self.folder / (self.source if isinstance(self.source, str) else self.source.database)
        return (
            Path(os.path.realpath(path.parent)) / path.name
            if any(sign in path.name for sign in "*?[")
            else Path(os.path.realpath(path))
        )

    def source_files(self) -> list[Path]:
        """The real files of the source: what a pattern matches (ledgers and claims never), else the one path, there or not."""
        path = self.source_path()
        if path is None:
            return []
        if not isinstance(self.source, str) or not any(sign in path.name for sign in "*?["):
            return [path]
        found = (
            Path(os.path.realpath(file))
            for file in path.parent.glob(path.name)
            if file.is_file() and not _OWN.search(file.name)
        )
        return sorted(set(found))

    def to_yaml(self) -> str:
        """The policy as ``load_policy`` reads it."""
        columns = {
            name: {"type": column.type} | _plain(column.model_dump(mode="json", exclude_defaults=True))
            for name, column in self.columns.items()
        }
        rest = _plain(
            self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"columns"})
        )
        return write_yaml(rest | {"columns": columns}, None)


def load_policy(path: str | os.PathLike[str] | Policy) -> Policy:
    """Reads and checks a policy file.

    Raises:
        PolicyError: Unreadable, not YAML, unknown keys, or a declaration that cannot be; the
            message names each place.
    """
    if isinstance(path, Policy):
        return path
    file = Path(path)
    try:
        content = read_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PolicyError(f"There is no policy file {file}. `pinq init DATA > {file}` proposes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"The policy file {file} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        raise PolicyError(f"The policy file {file} is not valid YAML: {error}.") from None
    if not isinstance(content, dict):
        raise PolicyError(
            f"The policy file {file} must be a mapping with keys like `dataset`, `source`, `cap`, `columns`."
        )
    if "folder" in content:
        raise PolicyError(f"The policy file {file} is not valid:\n  folder: unknown key")
    try:
        return Policy.model_validate(content | {"folder": Path(os.path.realpath(file)).parent})
    except (ValidationError, QueryError) as error:
        raise PolicyError(f"The policy file {file} is not valid:\n{_problems(error)}") from None


_OWN = re.compile(r"\.(ledger(-wal|-shm|\.head)?|claim)$")


def _require_one_type(name: str, column: Categorical | Numeric) -> None:
    """``ValueError`` where a list mixes types: then a value was read as something else than was meant."""
    values = column.values if isinstance(column, Categorical) else ()
    first = {type(value): value for value in reversed(values)}
    if len(first) > 1:
        examples = " and ".join(
            f"{noun} ({json.dumps(first[kind], ensure_ascii=False)})" for kind, noun in _TYPES.items() if kind in first
        )
        raise ValueError(f"the values of {name!r} mix {examples}; put each of them in quotes, written as in the source")


_TYPES = {str: "texts", int: "whole numbers", bool: "truth values"}


def _problems(error: Exception) -> str:
    """A line for each problem, with the places that have it."""
    if not isinstance(error, ValidationError):
        return f"  {error}"
    places: dict[str, list[str]] = {}
    for problem in error.errors(include_url=False):
        place = ".".join(str(part) for part in problem["loc"] if part not in (*_BRANCHES, "[key]")) or "policy"
        text = _said(problem, place)
        if text and place not in places.setdefault(text, []):
            places[text].append(place)
    return "\n".join(f"  {_listed(found)}: {text}" for text, found in places.items())


def _listed(places: list[str]) -> str:
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return ", ".join(places[:3]) + more


# How the model's own branches are called, which the file does not know.
_BRANCHES = ("categorical", "numeric", "PrivacyUnit", "DatabaseTable", "literal['row']", "str")
_EITHER = {
    "privacy_unit": "write `row`, or {column: person_id, max_rows: 3}",
    "source": "write a file or a pattern, or {database: file.duckdb, table: people}",
}
_SIMPLE = {
    "extra_forbidden": "unknown key",
    "missing": "it is missing",
    "too_short": "it is empty",
    "union_tag_not_found": "`type` is missing; it must be categorical or numeric",
    "invalid_key": "the name must be text; put it in quotes",
}
_FORMS = {
    "dataset": "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit",
    "padding": "a time such as 50ms or 1s",
    "memory_limit": "a size such as 512MB or 2GB",
}
_KINDS = {
    "int": "a whole number",
    "bool": "true or false",
    "decimal": "a number",
    "finite": "a finite number",
    "string": "text",
    "tuple": "a list, such as [a, b]",
    "dict": "keys with values",
    "model": "keys with values",
}


def _said(problem: Any, place: str) -> str:
    """What is wrong at a place of the file, without the words of the model behind it; empty where another problem says it."""
    kind, given = problem["type"], problem["input"]
    if place in _EITHER and (problem["loc"][-1] in _BRANCHES or kind == "model_type"):
        return "" if isinstance(given, dict) else _EITHER[place]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "union_tag_invalid":
        return f"`type` is {given['type']!r}; it must be categorical or numeric"
    if problem["loc"][-1:] == ("[key]",):
        return _SIMPLE["invalid_key"]
    if kind == "too_long":
        return (
            f"it has {problem['ctx']['actual_length']:,} entries; at most {problem['ctx']['max_length']:,} are possible"
        )
    if kind == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    plain = re.sub(r"^Input should be ", "", problem["msg"])
    wanted = _FORMS[place] if kind == "string_pattern_mismatch" else _KINDS.get(kind.split("_")[0], plain)
    shown = "" if isinstance(given, (dict, list)) or len(repr(given)) > 40 else f"it is {given!r}; "
    return f"{shown}it must be {wanted}"


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with decimals as YAML numbers where that is exact."""
    return {
        key: [_number(item) for item in entry] if key == "cuts" else _number(entry) if key in _NUMBERS else entry
        for key, entry in fields.items()
    }


_NUMBERS = ("lower", "upper", "step", "cap")


def _number(text: Any) -> Any:
    number = Decimal(str(text))
    if number == number.to_integral_value() and abs(number) < 10**15:
        return int(number)
    return float(number) if Decimal(repr(float(number))) == number else str(text)
