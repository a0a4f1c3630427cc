# SPDX-License-Identifier: Apache-2.0
"""``load_policy`` reads a policy file, and explains faults in the words of the file."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pinq.errors import PolicyError, QueryError
from pinq.language.parts import closed_parts
from pinq.policy.plain_yaml import read_yaml
from pinq.policy.policy import Policy, SelectedRows
from pinq.public.checks import first_of
from pinq.public.columns import said_of


def load_policy(path: str | os.PathLike[str] | Policy) -> Policy:
    """Reads and checks a policy file.

    Raises:
        PolicyError: The file is unreadable or not YAML, has unknown keys, or declares something
            impossible; the message names each place.

    Examples:
        >>> import pinq
        >>> pinq.load_policy("policies/adult.yaml").dataset
        'adult'
    """
    policy = path if isinstance(path, Policy) else _read(path)
    if any(map(_needs_engine, policy.each)):
        from pinq.engine.joins import completed  # most policies are read without DuckDB

        policy = completed(policy)
    for table in policy.each:
        try:
            if table.cohorts is not None:
                closed_parts(table.cohorts, table.schema_)
        except QueryError as error:
            raise PolicyError(f"The cohorts of {table.name!r}: {error}") from None
    return policy


def _needs_engine(table: Policy) -> bool:
    computed = any(column.formula is not None or column.lookup is not None for column in table.columns.values())
    return computed or isinstance(table.source, SelectedRows)


def _read(path: str | os.PathLike[str]) -> Policy:
    if not isinstance(path, (str, os.PathLike)) or "\n" in str(path):
        shown = "the text of one" if isinstance(path, str) else f"a {type(path).__name__}"
        raise PolicyError(
            f"A policy is a file, or what pinq.load_policy gives, not {shown}. For a table, write what "
            "pinq.propose(table) gives to a file, review it, and pass the table as `data`."
        )
    file = Path(path)
    return parse_policy(read_policy_text(file), file)


def read_policy_text(file: Path) -> str:
    """The text of a policy file. Raises ``PolicyError`` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PolicyError(_absent(file)) from None
    except UnicodeDecodeError:
        raise PolicyError(f"The policy file {file} cannot be read: it is no text in UTF-8. {_if_table(file)}") from None
    except IsADirectoryError:
        raise PolicyError(f"{file} is a folder; name a policy in it{_policies_in(file)}.") from None
    except OSError as error:
        raise PolicyError(f"The policy file {file} cannot be read: {error.strerror}.") from None


def _absent(file: Path) -> str:
    """An error text for a missing file, with a likely correction."""
    whole, _, table = str(file).rpartition("#")
    if str(file).startswith(("https:/", "http:/")):
        return "A policy is a file on this machine; the address of a server is for pinq.connect and for questions."
    if Path(whole).is_file():
        return f"There is no policy file {file}. Name {whole}; here its table {table!r} cannot stand behind it."
    beside = _policies_in(file.parent)
    return f"There is no policy file {file}. `pinq init DATA > {file}` proposes one{beside and f'; there are{beside}'}."


def _if_table(file: Path) -> str:
    return f"If it is a table, `pinq init {file} > policy.yaml` proposes a policy."


def _policies_in(folder: Path) -> str:
    names = sorted(file.name for ending in ("yaml", "yml") for file in folder.glob(f"*.{ending}"))
    return f": {first_of(names, 5)}" if names else ""


def parse_policy(text: str, file: Path) -> Policy:
    """Reads the text of a policy file, without formulas and lookup tables.

    Raises:
        PolicyError: Not YAML, or no valid policy.
    """
    try:
        content = read_yaml(text)
    except yaml.YAMLError as error:
        raise PolicyError(f"The policy file {file} is not valid YAML: {_marked(error)}.") from None
    if not isinstance(content, dict):
        keys = "it must be a mapping with keys like `dataset`, `source`, `cap`, `columns`"
        raise PolicyError(f"The policy file {file} is none: {keys}. {_if_table(file)}")
    if internal := [key for key in ("folder", "joined", "lookups", "table", "unit") if key in content]:
        raise PolicyError(f"The policy file {file} is not valid:\n  {internal[0]}: unknown key")
    try:
        return Policy.model_validate(content | {"folder": Path(os.path.realpath(file)).parent})
    except ValidationError as error:
        raise PolicyError(f"The policy file {file} is not valid:\n{_problems(error)}") from None
    except QueryError as error:
        raise PolicyError(f"The policy file {file} is not valid:\n  {error}") from None


def _marked(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    context = f" ({error.context}, from line {error.context_mark.line + 1})" if error.context_mark else ""
    return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}{context}"


def _problems(error: ValidationError) -> str:
    """Writes a line for each problem, with the fields that have it."""
    fields: dict[str, list[str]] = {}
    problems = error.errors(include_url=False)
    missing = {problem["loc"] for problem in problems if problem["type"] == "missing"}
    others = {kind for kind, key in _SOURCES.items() if ("source", kind, key) in missing}
    if len(others) == len(_SOURCES):
        others = set()
    for problem in problems:
        if others.intersection(problem["loc"][1:2]):
            continue
        field = ".".join(str(part) for part in problem["loc"] if part not in (*_BRANCHES, "[key]")) or "policy"
        text = _describe(problem, field)
        if text and field not in fields.setdefault(text, []):
            fields[text].append(field)
    return "\n".join(f"  {first_of(alike, 3)}: {text}" for text, alike in fields.items())


# Names of the model's branches in error locations; the file does not have them.
_BRANCHES = (
    "categorical",
    "numeric",
    "date",
    "datetime",
    "PrivacyUnit",
    "DatabaseTable",
    "SparkTable",
    "AdbcTable",
    "SelectedRows",
    "literal['row']",
    "str",
    "tuple[str, ...]",
)
# The required key of each kind of source in a mapping; without it, another kind is meant.
_SOURCES = {"DatabaseTable": "database", "SparkTable": "spark", "AdbcTable": "adbc", "SelectedRows": "select"}
_EITHER = {
    "privacy_unit": "write `row`, or {column: person_id, max_rows: 3}",
    "source": "write a file, a pattern or a folder, a list of these, or {database: file.duckdb, table: people}",
}


def _describe(problem: ErrorDetails, field: str) -> str:
    """The fault of a field, in the words of the file; empty if another problem describes it."""
    if field in _EITHER and (problem["loc"][-1] in _BRANCHES or problem["type"] == "model_type"):
        return "" if isinstance(problem["input"], dict) else _EITHER[field]
    return said_of(problem)
