# SPDX-License-Identifier: Apache-2.0
"""Derived columns: formulas of one row, and public tables in which values are looked up.

A formula is SQL that reads one row and nothing else. DuckDB parses it. The tree may hold only the
kinds of nodes, the functions and the types that are listed here. All else is refused: subqueries,
windows, aggregates, randomness, clocks, settings, files, macros, and any future feature of DuckDB.

Privacy:
    A formula is a map from a row to a value, so a derived column is encoded row by row like any
    other: stability 1. ``TRY`` turns an error on a row into that row's missing value, if nothing is
    computed outside of it. DuckDB's optimizer would move repeated expressions out of it, so
    ``prepare_formulas`` must first set up the connection. ``TRY`` does not catch the errors of some
    functions, so these are not listed. Nor does it catch exhausted memory, so the growth of texts by
    replacements is bounded. Held by: tests/integration/test_formulas.py, which gives every function
    hostile values, and refuses every other function of DuckDB.

    A lookup table is public: it may be read, checked and refused before private data is read. Each
    key occurs once, so a row finds at most one value, independently of other rows: stability 1.
    The digest of its pairs is part of the column's domain: another table makes another column,
    and the charges of the two add up.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import duckdb

from pinq.engine.sources import literal, quoted, said_by
from pinq.errors import PolicyError
from pinq.policy.policy import Policy
from pinq.public.checks import closest
from pinq.public.columns import Lookup

MAX_PAIRS = 10**6  # of a lookup table

Node = Mapping[str, object]

_ARITHMETIC = (
    "+ - * / // % ** ^ pow power abs sign round trunc floor ceil ceiling sqrt cbrt exp ln log log2 log10 "
    "greatest least isnan isinf isfinite"
)
_TEXT = (
    "|| concat lower upper lcase ucase length trim ltrim rtrim substr substring left right replace reverse "
    "strip_accents contains starts_with ends_with prefix suffix instr strpos position ~~ !~~ ~~* !~~* "
    "regexp_matches regexp_full_match regexp_extract regexp_replace"
)
_DATES = (
    "year quarter month day dayofmonth hour minute second dayname monthname last_day date_part date_trunc date_diff "
    "datediff make_date try_strptime strptime strftime epoch epoch_ms to_years to_quarters to_months to_weeks to_days "
    "to_hours to_minutes to_seconds"
)
FUNCTIONS = frozenset(f"{_ARITHMETIC} {_TEXT} {_DATES}".split())
"""The functions that a formula may call: built into DuckDB, of one row. No macros."""

_OF_PARTS = frozenset(("date_part", "date_trunc", "date_diff", "datediff"))
# An interval has no other parts; asking it for one is an error that TRY does not catch.
PARTS = frozenset(("year", "quarter", "month", "day", "hour", "minute", "second"))
"""The parts of a date that a formula may name."""

_NUMBERS = (
    "tinyint smallint integer int int4 bigint int8 hugeint utinyint usmallint uinteger ubigint float real float4 "
    "double float8 decimal numeric"
)
TYPES = frozenset(f"boolean bool {_NUMBERS} varchar text string date timestamp datetime interval".split())
"""The types that a formula may cast to."""

_OPERATORS = frozenset(
    ("COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_NOT", "OPERATOR_COALESCE")
)
# The largest factor by which all replacements of a formula together lengthen a text.
MAX_GROWTH = 10_000
_REPLACING = frozenset(("replace", "regexp_replace"))
# An unknown zone (%Z) is an error that TRY does not catch.
_PARSING = frozenset(("strptime", "try_strptime"))
_CLASSES = frozenset(
    ("CONSTANT", "COLUMN_REF", "FUNCTION", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "CAST", "BETWEEN", "TYPE")
)


def tried_formula(formula: str) -> str:
    """Returns the SQL of a formula's value; NULL where it fails."""
    return f"TRY((\n{formula}\n))"


def check_formulas(policy: Policy) -> None:
    """Checks the formulas of a policy; looks at no source.

    Raises:
        PolicyError: A formula is no SQL expression over one row of its columns.
    """
    formulas = {name: column for name, column in policy.columns.items() if column.formula is not None}
    if formulas:
        with duckdb.connect(
            config={"enable_external_access": "false", "autoinstall_known_extensions": "false"}
        ) as connection:
            for name, column in formulas.items():
                require_row_wise(connection, name, column.formula or "", column.sources)


def require_row_wise(connection: duckdb.DuckDBPyConnection, name: str, formula: str, sources: tuple[str, ...]) -> None:
    """Checks that a formula is SQL over one row, and reads exactly these columns.

    Raises:
        PolicyError: It is not an SQL expression over one row of these columns.
    """
    value, statement = _parsed(connection, name, tried_formula(formula))
    # A formula that closes the parenthesis and goes on, "1)) FROM other --", changes the statement
    # around it.
    _, template = _parsed(connection, name, tried_formula("1"))
    if statement != template:
        raise PolicyError(f"`formula` of column {name!r} is more than one expression.")
    columns = row_wise(value, f"`formula` of column {name!r}", {(folded(source),) for source in sources})
    if unread := [source for source in sources if (folded(source),) not in columns]:
        raise PolicyError(f"`formula` of column {name!r} does not read {', '.join(unread)}, which `from` names.")


def row_wise(value: object, where: str, sources: Set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Checks the tree of an expression, whose place is ``where``; returns the columns that it reads.

    Raises:
        PolicyError: It is not an expression over one row of ``sources``.
    """
    columns = set[tuple[str, ...]]()
    for node in nodes(value):
        if problem := _problem(node, sources):
            raise PolicyError(f"{where} {problem}; it looks at one row and at nothing else.")
        if node["class"] == "COLUMN_REF":
            columns.add(column_of(node))
    require_growth(growth_of(value), where)
    return columns


def require_growth(growth: int, where: str) -> None:
    """Raises ``PolicyError`` if replacements may lengthen a text beyond ``MAX_GROWTH``."""
    if growth > MAX_GROWTH:
        raise PolicyError(
            f"{where} can make {growth:,} characters of one; at most {MAX_GROWTH:,} are possible. "
            "Replace by shorter texts, or join fewer."
        )


def column_of(node: Node) -> tuple[str, ...]:
    """The column that a node reads: (column,) or (table, column)."""
    return tuple(map(folded, listed(node["column_names"])))


def _parsed(connection: duckdb.DuckDBPyConnection, name: str, tried: str) -> tuple[Node, object]:
    """Parses a formula: the expression in TRY, and the statement around it."""
    parsed = parse_tree(connection, f"SELECT {tried} AS value FROM source", f"`formula` of column {name!r}")
    selected = parsed["statements"][0]["node"].pop("select_list", [])
    # `a)), ((b` would select two columns, and `a)) + ((b` a sum that TRY covers in part.
    if len(selected) != 1 or selected[0]["type"] != "OPERATOR_TRY":
        raise PolicyError(f"`formula` of column {name!r} is more than one expression.")
    return selected[0]["children"][0], unplaced(parsed)


def parse_tree(connection: duckdb.DuckDBPyConnection, query: str, where: str) -> dict[str, Any]:
    """The tree of a query; ``PolicyError`` unless it is a SELECT."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    parsed: dict[str, Any] = json.loads(text)
    if parsed["error"]:
        raise PolicyError(f"{where} is no SQL: {str(parsed['error_message']).splitlines()[0]}.")
    return parsed


def unplaced(value: object) -> object:
    """A parse tree without positions in the text."""
    match value:
        case dict():
            return {name: unplaced(part) for name, part in value.items() if not name.startswith("query_location")}
        case list():
            return [unplaced(part) for part in value]
    return value


def nodes(value: object) -> Iterator[Node]:
    """Yields all nodes of a parse tree."""
    match value:
        case dict():
            if "class" in value:
                yield value
            for part in value.values():
                yield from nodes(part)
        case list():
            for part in value:
                yield from nodes(part)


def _problem(node: Node, sources: Set[tuple[str, ...]]) -> str:
    """The reason why a node is not allowed; empty if it is."""
    match node["class"]:
        case "FUNCTION":
            return _wrong_call(node)
        case "COLUMN_REF":
            names = ".".join(map(str, listed(node["column_names"])))
            return "" if column_of(node) in sources else f"reads {names}, which `from` does not name"
        case "OPERATOR" if node["type"] not in _OPERATORS:
            return f"has a {_plain(node['type'])}"
        case "TYPE" if str(node["type_name"]).casefold() not in TYPES or node["schema"] or node["catalog"]:
            return f"casts to {str(node['type_name']).lower()}, which is none of {', '.join(sorted(TYPES))}"
        case kind if kind not in _CLASSES:
            return f"has a {_plain(kind)}"
    return ""


def _wrong_call(node: Node) -> str:
    part = _text_at(node, 0)
    if node["function_name"] in _OF_PARTS and (part is None or part.casefold() not in PARTS):
        return f"calls {node['function_name']} for something that is none of {', '.join(sorted(PARTS))}"
    if node["function_name"] not in FUNCTIONS:
        return f"calls {node['function_name']}, which is not among the functions that it may call"
    form = _text_at(node, 1)
    if node["function_name"] in _PARSING and (form is None or "%Z" in form):
        return f"calls {node['function_name']} with a format that names zones, or that is no text as it stands"
    if node["function_name"] in _PARSING and form is not None and re.search(r"%-?[yDcx]", form.replace("%%", "")):
        return (
            f"calls {node['function_name']} with a year of two digits, which has no century; "
            "put one before the year, such as CASE WHEN right(x, 2) > '30' THEN '19' ELSE '20' END, and read %Y"
        )
    if node["function_name"] in _REPLACING and _text_at(node, 2) is None:
        return f"calls {node['function_name']} with a replacement that is no text as it stands"
    extras = (node["schema"], node["catalog"], node["filter"], node["distinct"], node["export_state"])
    ordered = node["order_bys"] != {"type": "ORDER_MODIFIER", "orders": []}
    return f"calls {node['function_name']} in a form that is not allowed" if any(extras) or ordered else ""


def growth_of(value: object) -> int:
    """The largest number of characters that the replacements of an expression make of one character.

    replace(replace(x, 'a', 'bb'), 'b', 'ccc') may double a text and then triple it: 6.
    """
    return math.prod(map(_growth, nodes(value)))


def _growth(node: Node) -> int:
    r"""The largest number of characters that a node makes of one character, without concatenation.

    A pattern may match at each character, and a replacement may repeat the match once for every two of
    its own characters: "<\0>", of four characters, makes at most 1 + 4 + 2.
    """
    if node["class"] != "FUNCTION" or node["function_name"] not in _REPLACING:
        return 1
    new = len((_text_at(node, 2) or "").encode())
    if node["function_name"] == "regexp_replace":
        return 1 + new + new // 2
    old = len((_text_at(node, 1) or "").encode()) or 1
    return max(1, -(-new // old))  # rounded up


def _text_at(call: Node, position: int) -> str | None:
    """An argument of a call if it is a literal text; else None."""
    match listed(call["arguments"])[position : position + 1]:
        case [{"expression": {"class": "CONSTANT", "literal": {"text": str() as text}}}]:
            return text
    return None


def folded(name: object) -> str:
    """A name in the form in which SQL compares it: ASCII letters in lower case."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in str(name))


def _plain(kind: object) -> str:
    return str(kind).lower().replace("_", " ")


def listed(value: object) -> list[object]:
    """A value as a list; empty for another value."""
    match value:
        case list():
            return value
    return []


# Lookup tables, read once, with their policy


def with_lookups(policy: Policy) -> Policy:
    """Reads the lookup tables of a policy.

    Returns:
        The policy with their pairs, and in each column the digest of its own pairs.

    Raises:
        PolicyError: A table cannot be read, has a key twice, or has another digest than declared.
    """
    pairs, columns = dict(policy.lookups), dict(policy.columns)
    for name, column in policy.columns.items():
        if column.lookup is not None and name not in pairs:
            pairs[name] = _pairs(policy.folder / column.lookup.file, column.lookup, name)
            digest = hashlib.blake2b(json.dumps(sorted(pairs[name].items())).encode(), digest_size=16).hexdigest()
            if column.lookup.digest not in (None, digest):
                raise PolicyError(
                    f"The lookup table of column {name!r} has the digest {digest}, and the policy declares "
                    f"{column.lookup.digest}. "
                    "With another table it is another column: declare its digest, or leave `digest` out."
                )
            columns[name] = column.model_copy(update={"lookup": column.lookup.model_copy(update={"digest": digest})})
    return policy.model_copy(update={"columns": columns, "lookups": pairs}) if pairs != policy.lookups else policy


def _pairs(file: Path, lookup: Lookup, name: str) -> dict[str, str]:
    """The pairs of a table, as texts. A row without key or value is skipped."""
    where = f"The lookup table {file} of column {name!r}"
    if not os.path.isfile(file):  # also for a name that no file can have
        raise PolicyError(f"{where} is not there.")
    text = f"read_csv({literal(str(file))}, header = true, all_varchar = true)"
    table = f"read_parquet({literal(str(file))})" if file.suffix == ".parquet" else text
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            columns = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()]
            for column in (lookup.key, lookup.value):
                if column not in columns:
                    raise PolicyError(f"{where} has no column {column!r}{closest(column, columns)}.")
            # One row more than allowed shows that a table is too long.
            fields = ", ".join(f"CAST({quoted(column)} AS VARCHAR)" for column in (lookup.key, lookup.value))
            rows = connection.execute(f"SELECT {fields} FROM {table} LIMIT {MAX_PAIRS + 1}").fetchall()
        except duckdb.Error as error:
            raise PolicyError(f"{where} cannot be read: {said_by(error)}") from None
    if len(rows) > MAX_PAIRS:
        raise PolicyError(f"{where} has more than {MAX_PAIRS:,} rows.")
    pairs: dict[str, str] = {}
    for key, value in rows:
        if key is not None and value is not None and pairs.setdefault(key, value) != value:
            raise PolicyError(f"{where} has the key {key!r} twice, with different values.")
    return pairs
