# SPDX-License-Identifier: Apache-2.0
"""The provider's joins: a table of a policy may be a SELECT over its other tables.

The grammar is small, and right by construction. Tables are joined where their persons are equal,
and grouped by their persons and other columns; all other expressions look at one row:

    SELECT   columns, expressions of a row, and in groups count, sum, min, max, bool_and, bool_or
    FROM     tables of the policy, or a SELECT of this grammar in parentheses, with a name
    [LEFT] JOIN ... ON  persons of one = persons of the other [AND ...]
    WHERE    an expression of a row
    GROUP BY columns, one of them a table's persons

So there is no window, limit, order, union, random draw, file or table function, and no subquery
elsewhere. DuckDB parses the SELECT. A new text is written from the parts of its tree that the grammar
has, and only this text runs.

Privacy:
    Adjacency: tables that differ by all rows of one unit. Claim: a row of the result is a function
    of the rows of the unit that it names, so the results differ by that unit's rows alone, and
    ``max_rows`` of these are kept (privacy.md 9.3). Why, by induction over the SELECT: all non-empty
    columns of persons in a row name the same unit, and the row is made of this unit's rows alone; or
    all of them are empty. A table has one such column. A join adds rows of an equal person, and
    nothing equals an empty one; the result of a LEFT JOIN depends on the same unit. An expression
    sees one row, and its error is its missing value. A group has one unit, or no person at all. The
    result must have a column of persons under the name of the privacy unit; rows in which it is
    empty are left out. Persons are compared by the texts that the encoder uses, without a collation,
    and never as numbers. Aggregates are exact in any order of rows: sums are of decimals.
    Held by: tests/integration/provider/test_joined_tables.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from pinq.engine.derived import (
    check_formulas,
    column_of,
    folded,
    growth_of,
    listed,
    nodes,
    parse_tree,
    require_growth,
    row_wise,
    unplaced,
    with_lookups,
)
from pinq.engine.sources import declared_columns, quoted
from pinq.errors import PolicyError
from pinq.policy.policy import Joined, Policy, SelectedRows

AGGREGATES = frozenset(("count", "count_star", "sum", "min", "max", "bool_and", "bool_or"))
"""The functions of a group's rows, in any order, that a SELECT may call."""
EXACT = "DECIMAL(18, 6)"
"""The type of the values of a sum, so that rounding does not depend on the order, and no sum overflows."""

_WORDS = {
    "modifiers": "ORDER BY, LIMIT or DISTINCT",
    "cte_map": "WITH",
    "aggregate_handling": "GROUP BY ALL",
    "group_sets": "several groupings",
    "column_name_alias": "names for the columns of a table",
    "using_columns": "USING: write ON",
    **dict.fromkeys(("ref_type", "join_type", "is_implicit"), "another join than JOIN and LEFT JOIN with ON"),
    "schema_name": "a table with a schema",
}
_UNORDERED = {"type": "ORDER_MODIFIER", "orders": list[object]()}


@dataclass(frozen=True)
class _Relation:
    """A table in FROM.

    Attributes:
        persons: The names of its columns that hold persons.
        reads: The names of its columns that expressions read; filled as they are read.
        growth: The largest number of characters that it makes of one character of a file.
    """

    persons: frozenset[str]
    reads: dict[str, str]
    columns: frozenset[str] | None = None
    growth: int = 1


_Scope = dict[str, _Relation]


def completed(policy: Policy) -> Policy:
    """Checks the formulas of a policy, and reads its lookup tables and its SELECTs.

    Raises:
        PolicyError: One of them is wrong.
    """
    try:
        for table in policy.each:
            check_formulas(table)
        tables = {name: checked_join(with_lookups(table), policy.tables) for name, table in policy.tables.items()}
        main = checked_join(with_lookups(policy), policy.tables)
    except RecursionError:
        raise PolicyError(f"A formula or a SELECT of {policy.dataset!r} is nested too deeply.") from None
    return main.model_copy(update={"tables": tables}) if tables else main


def checked_join(policy: Policy, tables: Mapping[str, Policy]) -> Policy:
    """A table's policy, completed by the checked SELECT if its source is one; reads no source.

    Raises:
        PolicyError: The grammar does not exclude that a row of the SELECT is made of two units.
    """
    if not isinstance(policy.source, SelectedRows) or policy.joined is not None:
        return policy
    with duckdb.connect(config={"enable_external_access": "false", "autoinstall_known_extensions": "false"}) as parser:
        reader = _Reader(parser, policy, tables)
        query, relation = reader.select(reader.parsed(policy.source.select)["node"])
    unit = declared_columns(policy)[-1]
    reader.require(
        folded(unit) in relation.persons,
        f"has no column {unit!r} (the `privacy_unit`) that is a table's column of persons",
    )
    columns = {name: tuple(reader.reads[name].values()) for name in reader.tables}
    return policy.model_copy(update={"joined": Joined(query=query, tables=reader.tables, columns=columns)})


class _Reader:
    def __init__(self, parser: duckdb.DuckDBPyConnection, policy: Policy, every: Mapping[str, Policy]) -> None:
        self._parser, self._where, self._every = parser, f"`select` of {policy.name!r}", every
        self.tables, self.reads = dict[str, Policy](), dict[str, dict[str, str]]()
        self._plain = self.parsed("SELECT 1 FROM a JOIN (SELECT 1 FROM b) c ON true GROUP BY 1")["node"]

    def require(self, fulfilled: object, fault: str) -> None:
        if not fulfilled:
            raise PolicyError(f"{self._where} {fault}. Each row must be made of rows of one person.")

    def parsed(self, text: str) -> dict[str, Any]:
        statements = parse_tree(self._parser, text, self._where)["statements"]
        self.require(len(statements) == 1, "is more than one statement")
        statement: Any = unplaced(statements[0])
        return dict(statement)

    def select(self, node: dict[str, Any]) -> tuple[str, _Relation]:
        """Reads a SELECT; returns its new text, and the table that it makes."""
        self.require(node["type"] == "SELECT_NODE", "is a UNION, or no SELECT with FROM")
        keys = ("select_list", "from_table", "where_clause", "group_expressions", "group_sets")
        self._require_plain(node, self._plain, keys)
        source, scope = self._from(node["from_table"])
        groups = [self._column(group, scope) for group in node["group_expressions"]]
        self.require(node["group_sets"] == ([[*range(len(groups))]] if groups else []), f"has {_WORDS['group_sets']}")
        self.require(
            not groups or any(column in scope[name].persons for name, column in groups),
            "groups rows of several people: GROUP BY a table's column of persons, too",
        )
        items, persons = dict[str, str](), set[str]()
        for item in node["select_list"]:
            column = self._column(item, scope) if item["class"] == "COLUMN_REF" else None
            name = item["alias"] or (item["column_names"][-1] if column else "")
            self.require(name, "has an expression without a name: write AS")
            self.require(folded(name) not in map(folded, items), f"has two columns called {name}")
            if column and column[1] in scope[column[0]].persons:
                persons.add(folded(name))
            items[name] = self._value(item, scope, grouped=bool(groups))
        query = f"SELECT {', '.join(f'{value} AS {quoted(name)}' for name, value in items.items())} FROM {source}"
        if node["where_clause"]:
            query += f" WHERE {self._condition(node['where_clause'], scope)}"
        if groups:
            query += f" GROUP BY {', '.join(f'{quoted(name)}.{quoted(column)}' for name, column in groups)}"
        parts = [node["where_clause"], *node["select_list"]]
        growth = max(map(_growth, parts)) * max(relation.growth for relation in scope.values())
        require_growth(growth, self._where)
        return query, _Relation(frozenset(persons), {}, frozenset(map(folded, items)), growth)

    def _require_plain(self, node: dict[str, Any], plain: dict[str, Any], read: tuple[str, ...]) -> None:
        """Requires that all keys of a node have the values of a plain one, except keys that are read elsewhere."""
        for key in sorted(node.keys() | plain.keys()):
            if key not in read:
                same = key in node and node[key] == plain.get(key)
                self.require(same, f"has {_WORDS.get(key, key.replace('_', ' '))}")

    def _from(self, node: dict[str, Any]) -> tuple[str, _Scope]:
        """Reads a FROM clause; returns its new text, and its tables by their names in it."""
        plain = self._plain["from_table"]
        match node["type"]:
            case "BASE_TABLE":
                self._require_plain(node, plain["left"], ("alias", "table_name", "qualified_name"))
                return self._table(node["table_name"], node["alias"] or node["table_name"])
            case "SUBQUERY":
                self._require_plain(node, plain["right"], ("alias", "subquery"))
                self.require(node["alias"], "has a SELECT in FROM without a name")
                query, relation = self.select(node["subquery"]["node"])
                return f"({query}) AS {quoted(node['alias'])}", {folded(node["alias"]): relation}
            case "JOIN":
                self._require_plain(node, plain, ("left", "right", "condition", "join_type"))
                return self._join(node)
        raise PolicyError(f"{self._where} reads something that is no table of the policy, beside FROM or in it.")

    def _table(self, name: str, alias: str) -> tuple[str, _Scope]:
        names = ", ".join(key for key, table in self._every.items() if not isinstance(table.source, SelectedRows))
        self.require(name in self._every, f"reads {name!r}, which is none of the policy's tables: {names}")
        table = self._every[name]
        self.require(
            table.named_paths or table.database,
            f"reads {name!r}, which is neither files nor a table of a database file",
        )
        unit = declared_columns(table)[-1]
        view = next((view for view, policy in self.tables.items() if policy is table), f"joined{len(self.tables)}")
        self.tables[view] = table
        reads = self.reads.setdefault(view, {folded(unit): unit})
        return f"{view} AS {quoted(alias)}", {folded(alias): _Relation(frozenset([folded(unit)]), reads)}

    def _join(self, node: dict[str, Any]) -> tuple[str, _Scope]:
        self.require(node["join_type"] in ("INNER", "LEFT"), f"has {_WORDS['join_type']}")
        (left, left_scope), (right, right_scope) = self._from(node["left"]), self._from(node["right"])
        self.require(not left_scope.keys() & right_scope.keys(), "gives two tables one name")
        scope, pairs = left_scope | right_scope, list[str]()
        for equal in _conjuncts(node["condition"]):
            columns = [self._column(side, scope) for side in (equal.get("left"), equal.get("right"))]
            persons = all(column in scope[name].persons for name, column in columns)
            sides = {name in left_scope for name, _ in columns}
            self.require(
                equal["type"] == "COMPARE_EQUAL" and persons and len(sides) == 2,
                "joins rows of several people: ON must say that persons of a table are those of another, and no more",
            )
            pairs.append(" = ".join(f"{quoted(name)}.{quoted(column)}" for name, column in columns))
        right = f"({right})" if node["right"]["type"] == "JOIN" else right
        return f"{left} {node['join_type']} JOIN {right} ON {' AND '.join(pairs)}", scope

    def _column(self, node: Any, scope: _Scope) -> tuple[str, str]:
        """Resolves a column's name in place; returns the names of its table and of the column, folded."""
        self.require(node and node["class"] == "COLUMN_REF", "has an expression where a column must stand")
        names = column_of(node)
        if len(names) == 1 and len(scope) == 1:
            names = (*scope, *names)
            node["column_names"] = [next(iter(scope)), *node["column_names"]]
        written = ".".join(map(str, node["column_names"]))
        self.require(len(names) == 2 and names[0] in scope, f"reads {written}: write TABLE.COLUMN, of a table in FROM")
        table, column = names
        relation = scope[table]
        self.require(relation.columns is None or column in relation.columns, f"reads {written}, which is not there")
        relation.reads.setdefault(column, node["column_names"][-1])
        return table, column

    def _value(self, node: dict[str, Any], scope: _Scope, *, grouped: bool) -> str:
        """Writes a value: an aggregate of a group, or an expression of a row."""
        name = node.get("function_name")
        if node["class"] != "FUNCTION" or name not in AGGREGATES:  # a window may have the name of an aggregate
            return self._scalar(node, scope)
        self.require(grouped, "counts over rows of several people: GROUP BY a table's column of persons")
        values = [argument["expression"] for argument in node["arguments"]]
        self.require(len(values) == (name != "count_star"), f"calls {name} with {len(values)} values")
        plain = {"schema": "", "catalog": "", "export_state": False, "order_bys": _UNORDERED}
        self.require(all(node[key] == plain[key] for key in plain), f"calls {name} in a form that is not allowed")
        value = self._scalar(values[0], scope) if values else "*"
        value = f"TRY_CAST({value} AS {EXACT})" if name == "sum" else value
        call = f"{'count' if name == 'count_star' else name}({'DISTINCT ' if node['distinct'] else ''}{value})"
        return f"{call} FILTER (WHERE {self._condition(node['filter'], scope)})" if node["filter"] else call

    def _condition(self, node: dict[str, Any], scope: _Scope) -> str:
        """Writes a condition; a text that is neither true nor false is missing, because WHERE would fail."""
        return f"TRY_CAST({self._scalar(node, scope)} AS BOOLEAN)"

    def _scalar(self, node: dict[str, Any], scope: _Scope) -> str:
        """Writes an expression of one row; an error becomes its missing value."""
        columns = {self._column(part, scope) for part in nodes(node) if part["class"] == "COLUMN_REF"}
        row_wise(node, self._where, columns)
        if node["class"] == "COLUMN_REF":
            return ".".join(map(quoted, node["column_names"]))
        statement = self.parsed("SELECT 1")
        statement["node"]["select_list"] = [node | {"alias": ""}]
        text = json.dumps({"error": False, "statements": [statement]})
        ((query,),) = self._parser.execute("SELECT json_deserialize_sql(?::JSON)", [text]).fetchall()
        return f"TRY(({query.removeprefix('SELECT ')}))"


def _growth(part: dict[str, Any]) -> int:
    """The largest number of characters that concatenation and replacements of an expression make of one."""
    joined = [node for node in nodes(part) if node.get("function_name") in ("||", "concat")]
    return growth_of(part) * (1 + sum(len(listed(node["arguments"])) - 1 for node in joined))


def _conjuncts(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a condition that AND joins."""
    if node["type"] == "CONJUNCTION_AND":
        for part in node["children"]:
            yield from _conjuncts(part)
    else:
        yield node
