# SPDX-License-Identifier: Apache-2.0
"""``Policy`` is the provider's declaration: the public schema, and the places of data and ledger.

It is a YAML file, which ``pinq/provider/policy_file.py`` reads.

A value that ``pinq init`` guessed or read off the data is named in ``unreviewed`` until the provider deletes the name:
a domain that depends on rows would leak them (privacy.md 1.7c).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator
from pydantic.main import IncEx

from pinq.errors import PolicyError, QueryError
from pinq.policy.dialect import Dialect
from pinq.policy.plain_yaml import plain_number, write_yaml
from pinq.public.checks import first_of
from pinq.public.columns import Declared, FiniteDecimal, of_form
from pinq.public.epsilon import Epsilon, is_exact
from pinq.public.schema import Cohorts, Column, PrivacyUnit, Public, Schema


class DatabaseTable(Declared):
    """A table or view of a DuckDB database file."""

    database: str
    table: str
    schema_name: str = Field(default="main", alias="schema")


class SparkTable(Declared):
    """A table that a Spark session knows: ``health.visits``, or ``parquet.`/lake/visits```."""

    spark: str


class AdbcRows(Declared):
    """Rows of a database's table or query, through an ADBC driver."""

    driver: Annotated[
        str,
        of_form("adbc_driver_[a-z0-9_]{1,64}", "a package with an ADBC driver, such as adbc_driver_postgresql"),
    ] = Field(description="a Python package with an ADBC driver")
    uri_env: Annotated[
        str,
        of_form("[A-Za-z_][A-Za-z0-9_]{0,63}", "the name of an environment variable, which holds the URI"),
    ] = Field(description="the environment variable that holds the database's URI, password and all")
    table: Annotated[str, of_form(r"[^\s;]{1,256}", "a table's name, without blanks and semicolons")] | None = Field(
        default=None, description="a table, as SQL names it"
    )
    query: str | None = Field(default=None, min_length=1, max_length=65_536, description="or a query")

    @model_validator(mode="after")
    def _either(self) -> AdbcRows:
        if (self.table is None) == (self.query is None):
            raise ValueError("write `table` or `query`, one of them")
        return self


class AdbcTable(Declared):
    """A table of a database server; an ADBC driver streams it once at each opening."""

    adbc: AdbcRows


class SelectedRows(Declared):
    """Rows of a provider's SELECT over other tables of the policy, joined by the persons' columns."""

    select: str = Field(
        min_length=1, max_length=65_536, description="SELECT ... FROM visits JOIN patients ON visits.pid = patients.id"
    )


class Joined(Declared):
    """A checked and rewritten SELECT of the provider, with the tables and columns that it reads.

    Attributes:
        query: The SELECT, with the names of ``tables``.
        tables: The tables of the policy that it reads.
        columns: The columns of each table that it reads.
    """

    query: str
    tables: dict[str, Policy]
    columns: dict[str, tuple[str, ...]]


class GroupGrant(Declared):
    """The grant of a member of a group at the first sign-in."""

    epsilon: Annotated[FiniteDecimal, Field(gt=0, le=10**6)] = Field(description="each member's budget")
    days: int | None = Field(default=None, ge=1, le=36_500, description="until it expires; by default never")


class SignIn(Declared):
    """The organisation's identity provider (OpenID Connect), for sign-in instead of tokens."""

    issuer: Annotated[
        str,
        of_form(
            r"(https://|http://(localhost|127\.0\.0\.1)[:/])[^\s?#]{1,500}",
            "the URL of an identity provider: https://, or http:// on this machine",
        ),
    ] = Field(description="the provider's URL")
    client: Annotated[str, of_form("[!-~]{1,200}", "1 to 200 characters without blanks")] = Field(
        description="the client id of this server at the provider"
    )
    claim: Annotated[str, of_form("[!-~]{1,100}", "1 to 100 characters without blanks")] = Field(
        default="sub", description="the claim that names a person: sub, email, ...; never one that people can edit"
    )
    groups: dict[str, GroupGrant] = Field(
        default_factory=dict, description="groups whose members get a grant at the first sign-in"
    )


SourcePaths = Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)]
"""Files, patterns and folders whose rows are one table together."""


class Destination(Enum):
    """The destination of a key that analysts do not see. The keys that they see are those of ``Public``."""

    LOGGED = "the ledger's log"
    PRIVATE = "nowhere"


class Policy(Public):
    """The policy of one dataset: its public facts, its source, and the limits of its queries.

    Examples:
        >>> import pinq
        >>> policy = pinq.load_policy("policies/adult.yaml")
        >>> policy.dataset, float(policy.cap), policy.schema_.max_rows
        ('adult', 10.0, 50000)
    """

    version: Annotated[Literal[1], Destination.PRIVATE] = 1
    dataset: Annotated[
        str,
        of_form(
            "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
            "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit",
        ),
        Destination.PRIVATE,
    ] = Field(description="name under which analysts know it")
    source: Annotated[
        str | SourcePaths | DatabaseTable | SparkTable | AdbcTable | SelectedRows | None, Destination.PRIVATE
    ] = Field(
        default=None,
        description="a Parquet or CSV file or a workbook, a pattern or a folder of them, relative to the policy, or a "
        "list of these; or a table of DuckDB, of Spark, or of a database with an ADBC driver; or a SELECT over other "
        "tables of the policy",
    )
    csv: Annotated[Dialect | None, Destination.LOGGED] = Field(
        default=None, description="the format of delimited text or of a sheet; each key has a usual default"
    )
    rows_version: Annotated[
        Annotated[str, of_form(r"[!-~]{1,64}", "1 to 64 characters without blanks, in quotes")] | None,
        Destination.LOGGED,
    ] = Field(
        default=None,
        description="a name of the rows' present state, to be changed when rows change; by default facts of the "
        "files, such as their sizes and times, tell whether rows have changed",
    )
    ledger: Annotated[str | None, Destination.PRIVATE] = Field(
        default=None, description="a file, relative to the policy, or a URL of PostgreSQL; beside the source by default"
    )
    cap: Annotated[FiniteDecimal, Field(gt=0, le=10**6), Destination.LOGGED] = Field(
        description="epsilon over all analysts together, for they may collude"
    )
    cap_rule: Annotated[Literal["sum"], Destination.LOGGED] = Field(
        default="sum", exclude=True, description="a key of earlier versions; only `sum` is left"
    )
    padding: Annotated[
        Annotated[str, of_form(r"[1-9]\d{0,4}(ms|s)", "a time such as 50ms or 1s")] | None, Destination.LOGGED
    ] = Field(
        default=None, description="over the network, answers and errors leave at multiples of this time, such as 50ms"
    )
    memory_limit: Annotated[
        Annotated[str, of_form(r"\d+(\.\d+)? ?(MB|GB|MiB|GiB)", "a size such as 512MB or 2GB")] | None,
        Destination.PRIVATE,
    ] = Field(default=None, description="memory that the engine may use before it spills to disk")
    max_work: Annotated[int | None, Destination.LOGGED] = Field(
        default=None,
        ge=1,
        le=10**9,
        description="work that one request may need, in units of about a millisecond of one core; 600,000 by default",
    )
    sign_in: Annotated[SignIn | None, Destination.LOGGED] = Field(
        default=None, description="the identity provider by which analysts may sign in to a server"
    )
    secure: Annotated[Literal["noise", "exact"], Destination.LOGGED] = Field(
        default="noise",
        description="what computations among several parties may open of the rows: "
        "noisy results only, or exact ones too",
    )
    unreviewed: Annotated[tuple[str, ...], Destination.PRIVATE] = Field(
        default=(), description="fields that were guessed or read off the data and wait for the provider's word"
    )
    reviewed: Annotated[dict[str, str], Destination.LOGGED] = Field(
        default_factory=dict, description="why each reviewed value holds: where it is publicly known from; logged"
    )
    cohorts: Annotated[Cohorts | None, Destination.LOGGED] = Field(
        default=None,
        description="a column that assigns each row to one cohort for ever; closed cohorts together cost their maximum",
    )
    tables: Annotated[dict[str, Policy], Destination.PRIVATE] = Field(
        default_factory=dict,
        exclude=True,
        repr=False,
        description="several tables of the same people under one ledger and one cap: the keys of each, by its name",
    )
    # The name of this table, and the unit that the policy declares for all tables; set from `tables`.
    table: Annotated[str, Destination.PRIVATE] = Field(default="", exclude=True, repr=False)
    unit: Annotated[PrivacyUnit | None, Destination.PRIVATE] = Field(default=None, exclude=True, repr=False)
    # The pairs of each column's lookup table; set when the file is read.
    lookups: Annotated[dict[str, dict[str, str]], Destination.PRIVATE] = Field(
        default_factory=dict, exclude=True, repr=False
    )
    # The checked SELECT of the source; set when it is checked.
    joined: Annotated[Joined | None, Destination.PRIVATE] = Field(default=None, exclude=True, repr=False)
    # The folder of relative paths; set when the file is read.
    folder: Annotated[Path, Destination.PRIVATE] = Field(default=Path("."), exclude=True, repr=False)

    if TYPE_CHECKING:  # keys and values as in a file

        def __init__(self, **declared: Any) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _of_tables(cls, declared: object) -> object:
        """Adds the policy's keys to each table, and the first table's keys to the policy."""
        match declared:
            case {"table": _}:
                return declared
            case {"tables": dict() as tables, **common} if tables:
                _require_tables(common, tables)
                unit = common["privacy_unit"]
                each = {name: {**common, **keys, "table": name, "unit": unit} for name, keys in tables.items()}
                return next(iter(each.values())) | {"tables": each, "table": ""}
        return declared

    @field_validator("cap")
    @classmethod
    def _in_nano(cls, cap: Decimal) -> Decimal:
        if not is_exact(cap):
            raise ValueError("the smallest step of a loss is 0.000000001; write at most nine decimals")
        return cap

    @field_validator("columns")
    @classmethod
    def _of_one_type(cls, columns: dict[str, Column]) -> dict[str, Column]:
        for name, column in columns.items():
            column.require_one_type(name)
        return columns

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        # A unit of several rows could be in several cohorts, and lose more than one.
        if self.cohorts is not None and self.bounded_unit is not None and self.bounded_unit.max_rows > 1:
            raise ValueError("`cohorts` need a `privacy_unit` of one row: a row, or a column with `max_rows: 1`")
        self.schema_.column(next(iter(self.columns)))
        unit = "" if self.bounded_unit is None else self.bounded_unit.column
        if unit in self.columns:
            raise ValueError(f"the privacy unit {unit!r} names people; it cannot be a column that analysts see")
        plain = {
            name: column for name, column in self.columns.items() if column.formula is None and column.lookup is None
        }
        if renamed := [name for name, column in plain.items() if unit and column.sources == (unit,)]:
            raise ValueError(
                f"`from` of {renamed[0]!r} is the privacy unit, which names people; it cannot be a column that "
                "analysts see"
            )
        text = self.named_paths and not any(path.lower().endswith(".parquet") for path in self.named_paths)
        if self.csv is not None and not text:
            raise ValueError(
                "`csv` says how a source of delimited text is written, such as data.csv; this source is none"
            )
        return self

    @property
    def named_paths(self) -> tuple[str, ...]:
        """The files, patterns and folders in ``source``, as written there."""
        match self.source:
            case str() as path:
                return (path,)
            case tuple() as paths:
                return paths
        return ()

    @property
    def database(self) -> DatabaseTable | None:
        """The source, if it is a table of a database file; else None."""
        return self.source if isinstance(self.source, DatabaseTable) else None

    @property
    def spark(self) -> SparkTable | None:
        """The source, if it is a Spark table; else None."""
        return self.source if isinstance(self.source, SparkTable) else None

    @property
    def adbc(self) -> AdbcRows | None:
        """The source, if an ADBC driver streams its rows; else None."""
        return self.source.adbc if isinstance(self.source, AdbcTable) else None

    @property
    def served_by(self) -> str | None:
        """The name by which the ledger of a table without a local file is found; else None."""
        if self.spark is not None:
            return f"spark {self.spark.spark.lower()}"
        if self.adbc is not None:
            return f"adbc {self.adbc.driver} {self.adbc.uri_env} {self.adbc.table or self.adbc.query}"
        return None

    @property
    def each(self) -> tuple[Policy, ...]:
        """The policies of all tables, as ``at`` gives them; for a policy of one table itself."""
        return tuple(map(self.at, self.tables)) or (self,)

    def at(self, table: str | None = None) -> Policy:
        """The policy of one of its tables; a policy of one table itself, without a name.

        Raises ``QueryError`` for an unknown table, and without a name if there are several tables.
        """
        if table is None and (self.table or not self.tables):
            return self
        if table is None:
            raise QueryError(
                f"must be named: {self.dataset!r} has the tables {', '.join(self.tables)}", parameter="table"
            )
        if table not in self.tables:
            choices = f"its tables are {', '.join(self.tables)}" if self.tables else "it is one table, without a name"
            raise QueryError(f"is {table!r}; {self.dataset!r} has no such table: {choices}", parameter="table")
        return self.tables[table].model_copy(update={"tables": self.tables})

    @property
    def all_columns(self) -> dict[str, Column]:
        """The columns of all tables, by their places in the policy: ``columns.age``, ``tables.visits.columns.age``."""
        return {
            f"{f'tables.{table.table}.' if table.table else ''}columns.{name}": column
            for table in self.each
            for name, column in table.columns.items()
        }

    @property
    def name(self) -> str:
        """The name by which analysts know the table: the dataset's, and the table's after a point."""
        return f"{self.dataset}.{self.table}" if self.table else self.dataset

    def __repr__(self) -> str:
        return f"Policy of {self.dataset!r}, cap {self.cap}. {self.schema_!r}"

    def _repr_html_(self) -> str:
        return f"<p>Policy of {self.dataset}, cap {self.cap}</p>{self.schema_._repr_html_()}"

    @cached_property
    def schema_(self) -> Schema:
        """The keys that analysts may see."""
        return Schema(**{name: getattr(self, name) for name in Public.model_fields})

    @classmethod
    def keys_for(cls, destination: Destination) -> set[str]:
        """The names of the keys with this destination."""
        return {name for name, field in cls.model_fields.items() if destination in field.metadata}

    @property
    def logged(self) -> dict[str, JsonValue]:
        """The keys that the ledger records besides the cap and its rule: all that differ from defaults."""
        if self.tables:
            each = {name: table.logged for name, table in self.tables.items()}
            tables = {name: {key: body[key] for key in body.keys() & _OF_TABLES} for name, body in each.items()}
            shared = {key: value for key, value in next(iter(each.values())).items() if key not in _OF_TABLES}
            unit = {} if self.unit is None else {"privacy_unit": self.unit.model_dump(mode="json")}
            return shared | unit | {"tables": tables}
        public = self.schema_.model_dump(mode="json", exclude_defaults=True)
        beside = self.keys_for(Destination.LOGGED) - {"cap", "cap_rule"}
        return public | self.model_dump(mode="json", exclude_defaults=True, include=beside)

    @property
    def reading(self) -> JsonValue:
        """The keys that decide how the source's rows are read, without columns.

        A new key is included unless ``_READS_NOTHING`` lists it. Columns are excluded, because the identity of a
        partition has them. With a privacy unit they also decide which rows are kept, so the digest of a row is
        included.
        """
        row_digest = None if self.bounded_unit is None else self.schema_.row_digest
        tables = () if self.joined is None else self.joined.tables.values()
        joined = [[each.table, each._reads, each.bounded_unit.column if each.bounded_unit else ""] for each in tables]
        return [READING, self._reads, row_digest, *joined]

    @property
    def _reads(self) -> JsonValue:
        keys = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_READS_NOTHING)
        return {key: value for key, value in keys.items() if value}  # `csv: {}` changes nothing

    @property
    def digest(self) -> str:
        """Identifies the schema, or the schemas of all tables."""
        schemas = {name: table.schema_.digest for name, table in self.tables.items()}
        text = json.dumps(schemas, sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=16).hexdigest() if schemas else self.schema_.digest

    @property
    def cap_nano(self) -> int:
        """The cap in nano-epsilons."""
        return Epsilon.of(self.cap, name="cap").nano

    @property
    def padding_seconds(self) -> float:
        """``padding`` in seconds; 0 if there is none."""
        written = self.padding or "0s"
        return int(written.rstrip("ms")) / (1000 if written.endswith("ms") else 1)

    def unreviewed_fields(self) -> list[str]:
        """The fields that the provider has not reviewed yet, for example ``columns.age.upper``."""
        if not self.tables:
            return self.unreviewed_in_table()
        return [f"tables.{name}.{key}" for name, table in self.tables.items() for key in table.unreviewed_in_table()]

    def unreviewed_in_table(self) -> list[str]:
        """The unreviewed fields of this table alone."""
        fields = list(self.unreviewed)
        return fields + [
            f"columns.{name}.{field}" for name, column in self.columns.items() for field in column.unreviewed
        ]

    def require_reviewed(self) -> None:
        """Raises ``PolicyError`` if a field is unreviewed."""
        waiting = self.unreviewed_fields()
        if waiting:
            raise PolicyError(
                f"The policy of {self.dataset!r} has values that were guessed or read off the data and that "
                f"nobody reviewed: {first_of(waiting, 8)}. "
                "Put what is publicly known about each in its place (or confirm it) and delete its name from "
                "`unreviewed`."
            )

    def to_yaml(self) -> str:
        """The text from which ``load_policy`` reads an equal policy."""
        columns = {
            name: {"type": column.type} | _plain(column.model_dump(mode="json", exclude_defaults=True))
            for name, column in self.columns.items()
        }
        keys = _plain(
            self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"columns"})
        )
        return write_yaml({"dataset": self.dataset} | keys | {"columns": columns}, None)


def _require_tables(policy: Mapping[Any, Any], tables: Mapping[Any, Any]) -> None:
    """Raises ``ValueError`` for keys in the wrong place of a policy of several tables."""
    for name, keys in tables.items():
        if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name)):
            raise ValueError(f"a table is called {name!r}; write letters, digits, `_` and `-`, at most 64")
        if not isinstance(keys, dict):
            raise ValueError(f"the table {name!r} must be keys with values")
        if wrong := [key for key in keys if key not in _OF_TABLES]:
            raise ValueError(f"{first_of(wrong, 3)}: no key of a table ({name!r}), but of the policy")
    if wrong := [key for key in policy if key in _OF_TABLES - {"privacy_unit"}]:
        raise ValueError(f"{first_of(wrong, 3)}: a key of each table, so it cannot stand beside `tables`")
    if policy.get("ledger") is None:
        raise ValueError("name a `ledger`: several tables have one, and it lies beside none of them")
    if any(
        not isinstance(keys.get("privacy_unit"), (dict, PrivacyUnit))
        for keys in [policy, *({**policy, **t} for t in tables.values())]
    ):
        raise ValueError(
            "`privacy_unit` must be a column with people in each table, such as {column: person, max_rows: 3}"
        )


def _plain(fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Writes decimals as YAML numbers if that is exact."""
    return {key: plain_number(value) if key in _NUMBERS else value for key, value in fields.items()}


_OF_TABLES = {"source", "csv", "rows_version", "columns", "max_rows", "privacy_unit", "cohorts", "unreviewed"}
"""The keys of a table among several; all other keys are the policy's."""
READING = 1
"""The version of the reading of source values: a change of it makes other rows of the same file."""
_READS_NOTHING: Mapping[str, IncEx | bool] = {
    **dict.fromkeys(("version", "dataset", "rows_version", "columns", "max_rows", "adjacency", "privacy_unit"), True),
    **dict.fromkeys(("ledger", "cap", "cap_rule", "padding", "memory_limit", "max_work", "sign_in", "secure"), True),
    **dict.fromkeys(("unreviewed", "reviewed", "cohorts"), True),
    "csv": {"max_unreadable"},
}
_NUMBERS = ("lower", "upper", "step", "cap", "cuts")
