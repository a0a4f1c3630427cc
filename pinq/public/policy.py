# SPDX-License-Identifier: Apache-2.0
"""What the provider declares: the public schema, and where data and ledger are. YAML on disk.

A value that ``pinq init`` read off the data is named in ``unreviewed`` (of the policy or of a
column) until the provider deletes the name: a domain that follows the rows would leak them
(privacy.md 1.7c).
"""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from pinq.errors import PolicyError, QueryError
from pinq.public.epsilon import to_nano
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
    ledger: str | None = Field(
        default=None, description="a file, relative to the policy, or an SQLAlchemy URL; beside the source by default"
    )
    cap: Annotated[FiniteDecimal, Field(gt=0, le=10**6)] = Field(
        description="epsilon over all analysts together, for they may collude"
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
        default=(), description="fields that were read off the data and wait for the provider's word"
    )
    columns: dict[str, Annotated[Categorical | Numeric, Field(discriminator="type")]] = Field(min_length=1)
    # Where relative paths start; set by load_policy.
    folder: Path = Field(default=Path("."), exclude=True, repr=False)

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        self.schema_.column(next(iter(self.columns)))
        if not isinstance(self.privacy_unit, str) and self.privacy_unit.column in self.columns:
            raise ValueError(
                f"the privacy unit {self.privacy_unit.column!r} names people; it cannot be a column that analysts see"
            )
        return self

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
                f"The policy of {self.dataset!r} has values that were read off the data and that nobody reviewed: {listed}. "
                "Put what is publicly known about each in its place (or confirm it) and delete its name from `unreviewed`."
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
        return yaml.dump(rest | {"columns": columns}, Dumper=_Exact, sort_keys=False, allow_unicode=True, width=110)


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
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_Strict)
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
        return Policy(**content, folder=Path(os.path.realpath(file)).parent)
    except (ValidationError, TypeError, QueryError) as error:
        raise PolicyError(f"The policy file {file} is not valid:\n{_problems(error)}") from None


class _Exact(yaml.SafeDumper):
    """Writes unicode line breaks escaped: read back raw, they would be blanks."""


_Exact.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if set(text) & set("\x85\u2028\u2029\ufeff") else None
    ),
)


_OWN = re.compile(r"\.(ledger(-wal|-shm|\.head)?|claim)$")


class _Strict(yaml.SafeLoader):
    """YAML in which a repeated key is an error: the second one would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _problems(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"  {error}"
    lines = []
    for problem in error.errors(include_url=False):
        place = ".".join(
            str(part)
            for part in problem["loc"]
            if part not in ("categorical", "numeric", "PrivacyUnit", "literal['row']", "str")
        )
        text = "unknown key" if problem["type"] == "extra_forbidden" else problem["msg"].removeprefix("Value error, ")
        lines.append(f"  {place or 'policy'}: {text}")
    return "\n".join(dict.fromkeys(lines))


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
