# SPDX-License-Identifier: Apache-2.0
"""Formulas of derived columns under attack: they see one row, and whatever fails on a row is that row's missing value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import duckdb
import pytest

from pinq.engine.derived import FUNCTIONS, PARTS, TYPES, require_row_wise, tried_formula
from pinq.engine.numbers import define_readings
from pinq.engine.sources import prepare_formulas
from pinq.errors import PolicyError

HOSTILE = {
    "VARCHAR": [
        "''",
        "'x'",
        "'1'",
        "'('",
        "'\\9'",
        "'%'",
        "'year'",
        "'2024-02-30'",
        "'%Y'",
        "'-1e999'",
        "repeat('é', 99)",
    ],
    "BIGINT": ["0", "-1", "1", "9223372036854775807", "-9223372036854775808"],
    "INTEGER": ["0", "2147483647", "-2147483648"],
    "HUGEINT": ["0", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728"],
    "DOUBLE": ["0", "-0.0", "1e308", "-1e308", "5e-324", "'nan'", "'inf'", "'-inf'"],
    "DECIMAL(38,10)": ["0", "9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999"],
    "DATE": ["'1970-01-01'", "'5877642-06-25 (BC)'", "'5881580-07-10'", "'infinity'", "'-infinity'"],
    "TIMESTAMP": ["'1970-01-01'", "'290309-12-22 (BC) 00:00:00'", "'294247-01-10 04:00:54.775806'", "'infinity'"],
    "INTERVAL": ["'0 days'", "'178956970 years 7 months'", "'-178956970 years'"],
    "BOOLEAN": ["true", "false"],
}
"""Values of each type that functions may choke on; NULL beside them."""
KINDS = {"FLOAT": "DOUBLE", "DECIMAL": "DECIMAL(38,10)", "ANY": "VARCHAR", "T": "DOUBLE", "SMALLINT": "INTEGER"}
COLUMNS = {kind: f"c{number}" for number, kind in enumerate(HOSTILE)}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A table ``source`` with hostile values of each type, each in a row of its own."""
    with duckdb.connect(config={"enable_external_access": "false", "threads": 1}) as opened:
        define_readings(opened, None)
        prepare_formulas(opened)
        longest = max(map(len, HOSTILE.values()))
        rows = []
        for values in itertools.zip_longest(*HOSTILE.values(), fillvalue="NULL"):
            rows.append([f"CAST({value} AS {kind})" for value, kind in zip(values, HOSTILE, strict=True)])
        assert len(rows) == longest
        names = ", ".join(COLUMNS.values())
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        opened.execute(f"CREATE TABLE source AS SELECT * FROM (VALUES {listed}) AS rows({names})")
        yield opened


def refused(connection: duckdb.DuckDBPyConnection, formula: str, *sources: str) -> str:
    """What is said of a formula; empty where it is taken."""
    try:
        require_row_wise(connection, "made", formula, sources or ("a", "b"))
    except PolicyError as error:
        return str(error)
    return ""


def test_every_function_of_duckdb_that_is_not_listed_is_refused(connection: duckdb.DuckDBPyConnection) -> None:
    names = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    others = [name for (name,) in names if name not in FUNCTIONS]
    assert len(others) > 800
    for name in others:
        called = '"' + name.replace('"', '""') + '"(a, b)'
        assert refused(connection, called), name


def test_every_listed_function_is_built_in_and_a_function_of_its_arguments(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Forms for times with a zone may follow the connection's zone, too, which is the same on each machine."""
    assert connection.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
    kinds = connection.execute(
        "SELECT function_name, function_type, internal, has_side_effects, stability, parameter_types::VARCHAR "
        "FROM duckdb_functions()"
    ).fetchall()
    own = {name: [rest for other, *rest in kinds if other == name] for name in FUNCTIONS}
    for name, forms in own.items():
        assert forms, name
        for function_type, internal, has_side_effects, stability, types in forms:
            assert (function_type, internal, bool(has_side_effects)) == ("scalar", True, False), name
            zoned = "WITH TIME ZONE" in types or "TIMESTAMPTZ" in types
            assert stability == "CONSISTENT" or (zoned and stability == "CONSISTENT_WITHIN_QUERY"), (name, types)


@pytest.mark.parametrize(
    "formula",
    [
        *("(SELECT 1)", "a IN (SELECT b)", "EXISTS (SELECT 1)", "a = ANY ([1, 2])", "a + (SELECT max(b) FROM source)"),
        *("sum(a)", "count(*)", "sum(a) OVER ()", "row_number() OVER (ORDER BY a)", "lag(a) OVER ()", "first(a)"),
        *("random()", "now()", "current_date", "current_timestamp", "today()", "uuid()", "age(a)", "nextval('s')"),
        *("getvariable('x')", "current_setting('threads')", "getenv('HOME')", "current_user", "version()", "error(a)"),
        *("read_text('/etc/passwd')", "md5(a)", "hash(a)", "repeat(a, 9)", "lpad(a, 9, b)", "number_of(a)"),
        *("a COLLATE nocase", "COLUMNS('a')", "*", "a.*", "?", "$1", "#1", "x -> x", "[a]", "{'x': a}", "a[1]", "a.b"),
        *("source.a", "rowid", "c", "DEFAULT", "GROUPING(a)", "unnest([1])", "struct_pack(x := a)", "TRY(a)"),
        *(
            "a::JSON",
            "a::INTEGER[]",
            "CAST(a AS mine)",
            "a::UUID",
            "a::TIMESTAMPTZ",
            "a::STRUCT(x INT)",
            "a AT TIME ZONE b",
        ),
        *(
            "main.upper(a)",
            "date_part(a, b)",
            "date_part('isodow', a)",
            "date_trunc(upper('year'), a)",
            "extract(week FROM a)",
            "date_part()",
            "lower(DISTINCT a)",
            "lower(a ORDER BY b)",
            "lower(a) FILTER (WHERE true)",
            "a LIKE b ESCAPE b",
        ),
        *("strptime(a, '%Y %Z')", "try_strptime(a, '%Z')", "strptime(a, b)", "strptime(a, lower('%Y'))"),
        *("replace(a, b, b)", "regexp_replace(a, 'x', b)", "replace(a, 'x', lower('xx'))"),
        *(
            "1) FROM source; --",
            "a)) AS v, TRY((b",
            "a)), TRY((b",
            "a; SELECT 1",
            "a -- ",
            "a /*",
            "",
            "a AS x",
            "DISTINCT a",
        ),
        *("a)) FROM source UNION SELECT TRY((b", "a)) AS v FROM source WHERE ((true", "a, b"),
    ],
)
def test_what_sees_more_than_a_row_is_refused(connection: duckdb.DuckDBPyConnection, formula: str) -> None:
    assert refused(connection, formula), formula


@pytest.mark.parametrize(
    "formula",
    [
        "CASE WHEN a::INTEGER > 3 THEN 'x' ELSE b END",
        "a::DOUBLE / b::DOUBLE",
        "a IN ('x', b) OR a LIKE 'y%' AND NOT b IS NULL",
        "coalesce(try_cast(a AS DATE), DATE '2024-01-01') + INTERVAL 3 DAY < b::TIMESTAMP",
        "extract(year FROM a::DATE) - extract(year FROM b::DATE)",
        "a BETWEEN 'x' AND b",
        "greatest(a::DECIMAL(10, 2), b::DECIMAL(10, 2)) -- the larger one\n",
        '"A" || b',
    ],
)
def test_everyday_formulas_are_taken(connection: duckdb.DuckDBPyConnection, formula: str) -> None:
    assert refused(connection, formula) == ""


def test_replacements_grow_a_text_by_a_bounded_factor(connection: duckdb.DuckDBPyConnection) -> None:
    """Else one row's text takes all memory, which TRY does not catch. What cleans a text is no growth."""
    grown, cleaned = "a", "a"
    for _ in range(5):
        grown = f"replace({grown}, 'a', 'aaaaaaaaaa')"
        cleaned = f"regexp_replace(replace({cleaned}, '.', ','), '[^0-9]', '', 'g')"
    assert "can make 100,000 characters of one; at most 10,000" in refused(connection, grown, "a")
    assert "characters of one" in refused(
        connection, r"regexp_replace(" * 5 + "a" + r", '.*', '\0\0\0\0', 'g')" * 5, "a"
    )
    assert refused(connection, cleaned, "a") == ""


@pytest.mark.parametrize(("named", "read"), [("K", "k"), ("stra\u00dfe", "strasse"), ("\u00e9", "\u00c9")])
def test_names_are_compared_as_duckdb_does(connection: duckdb.DuckDBPyConnection, named: str, read: str) -> None:
    """Only plain letters have a second form: another column's name is another name."""
    named = named.replace("K", "\u212a")  # Kelvin's sign, which Python folds to k
    assert "which `from` does not name" in refused(connection, f'"{read}"', named)


def test_a_formula_reads_what_from_names_and_all_of_it(connection: duckdb.DuckDBPyConnection) -> None:
    assert "reads c, which `from` does not name" in refused(connection, "a || b || c")
    assert "does not read b, which `from` names" in refused(connection, "a")


def failures(connection: duckdb.DuckDBPyConnection, formula: str) -> str:
    """What goes wrong while rows are computed: nothing that TRY does not catch. Errors of types alone do not count."""
    tried = tried_formula(formula)
    try:
        connection.execute(f"DESCRIBE SELECT {tried} FROM source")
    except duckdb.Error:
        return ""
    try:
        connection.execute(f"SELECT {tried}, TRY(({formula}) IS NULL) FROM source WHERE {tried} IS NOT NULL")
        connection.execute(f"SELECT count(v), count({tried}) FROM (SELECT *, {tried} AS v FROM source)").fetchall()
    except duckdb.Error as error:
        return f"{formula}: {error}"
    return ""


def test_no_value_makes_a_listed_function_fail(connection: duckdb.DuckDBPyConnection) -> None:
    """Each signature with each column of its types; where a constant is asked for, errors are those of the formula."""
    signatures = connection.execute(
        "SELECT DISTINCT function_name, parameter_types::VARCHAR[] FROM duckdb_functions() WHERE len(parameter_types) < 4"
    ).fetchall()
    wrong, tested = [], set()
    for name, types in signatures:
        columns = [COLUMNS.get(KINDS.get(kind, kind)) for kind in types]
        if name in FUNCTIONS and all(columns):
            for arguments in itertools.product(*([column, COLUMNS["VARCHAR"]] for column in columns)):
                formula = f'"{name}"({", ".join(map(str, arguments))})'
                tested.add(name)
                wrong.append(failures(connection, formula))
    assert "\n".join(sorted(text for text in wrong if text)) == ""
    of_parts = [f"date_part('{part}', {column})" for part in PARTS for column in COLUMNS.values()]
    of_parts += [f"date_trunc('{part}', {column})" for part in PARTS for column in COLUMNS.values()]
    dates = [COLUMNS["DATE"], COLUMNS["TIMESTAMP"]]
    of_parts += [f"date_diff('{part}', {a}, {b})" for part in PARTS for a in dates for b in dates]
    assert [text for formula in of_parts if (text := failures(connection, formula))] == []
    assert len(tested) > 0.9 * len(FUNCTIONS), FUNCTIONS - tested


def test_no_value_makes_a_cast_or_an_operator_fail(connection: duckdb.DuckDBPyConnection) -> None:
    columns = list(COLUMNS.values())
    formulas = [f"{column}::{kind}" for column in columns for kind in TYPES]
    pairs = list(itertools.product(columns, columns))
    formulas += [f"{a} {sign} {b}" for a, b in pairs for sign in ("+", "-", "*", "/", "//", "%", "**", "||", "<", "~~")]
    formulas += [f"{a} IN ({b}, {a}) OR coalesce({a}, {b}) BETWEEN {b} AND {a}" for a, b in pairs]
    assert [text for formula in formulas if (text := failures(connection, formula))] == []


def test_what_stands_in_two_places_is_not_computed_before_it_is_tried(connection: duckdb.DuckDBPyConnection) -> None:
    """The optimizer of DuckDB 2.0.0 would take a cast that occurs twice out of TRY, so that one row's text stops all."""
    text = COLUMNS["VARCHAR"]
    for formula in (
        f"{text}::INTEGER + {text}::INTEGER",
        f"CASE WHEN {text}::INTEGER > 0 THEN {text}::INTEGER ELSE {text}::INTEGER END",
        f"coalesce({text}::DATE, {text}::DATE)",
    ):
        assert failures(connection, formula) == ""


def test_division_by_zero_overflow_and_texts_that_are_none_are_missing(connection: duckdb.DuckDBPyConnection) -> None:
    for formula in ("1.0 / 0", "1 // 0", "1 % 0", "ln(0)", "sqrt(-1)", "9223372036854775807 + 1::BIGINT"):
        assert connection.execute(f"SELECT {tried_formula(formula)}").fetchall() == [(None,)], formula
