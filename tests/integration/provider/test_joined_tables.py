# SPDX-License-Identifier: Apache-2.0
"""Joins that are the provider's: each row of a SELECT is made of one person's rows, or the SELECT is refused."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pinq
from pinq.cli.main import app
from pinq.engine import open_engine, sources
from pinq.engine.sources import read_columns
from pinq.errors import PolicyError
from pinq.ledger.events import Begun
from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.provider.grants import grant
from pinq.provider.opening import open_ledger
from pinq.server.datasets import Datasets

PATIENTS = [("1", "f", 40), ("2", "m", 50), ("3", "f", 60)]
VISITS = [*[("1", "n", "2.5")] * 2, ("1", "s", "x"), ("2", "s", "1"), (None, "n", "9"), (None, "s", "9")]
EACH = "SELECT p.person, p.sex, v.ward FROM visits v JOIN patients p ON p.person = v.pid"
SUMMED = (
    "SELECT p.person, p.sex, count(v.pid) AS n, sum(v.cost) FILTER (WHERE v.ward = 'n') AS cost "
    "FROM patients p LEFT JOIN visits v ON v.pid = p.person GROUP BY p.person, p.sex"
)
COLUMNS = {
    "sex": {"type": "categorical", "values": ["f", "m"]},
    "ward": {"type": "categorical", "values": ["n", "s"]},
    "n": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
}


def clinic(folder: Path, select: str, *columns: str, rows: int = 1, **keys: Any) -> Path:
    """The policy of two files and of a SELECT over both."""
    patients = {"source": "patients.csv", "max_rows": 100, "columns": {"sex": COLUMNS["sex"]}}
    visits = {"source": "visits.csv", "max_rows": 100, "columns": {"ward": COLUMNS["ward"]}}
    visits["privacy_unit"] = {"column": "pid", "max_rows": 3}
    made: dict[str, Any] = {"source": {"select": select}, "max_rows": 100}
    made["columns"] = {name: COLUMNS[name] for name in columns or ("sex",)}
    made["privacy_unit"] = {"column": "person", "max_rows": rows}
    tables = {"patients": patients | keys.get("patients", {}), "visits": visits | keys.get("visits", {}), "made": made}
    unit = {"column": "person", "max_rows": 1}
    declared = {"dataset": "clinic", "ledger": "clinic.ledger", "cap": 9, "privacy_unit": unit}
    (folder / "clinic.yaml").write_text(json.dumps(declared | {"tables": tables}))
    return folder / "clinic.yaml"


def files(folder: Path, patients: list[Any], visits: list[Any]) -> None:
    """Writes both tables as text."""
    for name, head, rows in (("patients", "person,sex,age", patients), ("visits", "pid,ward,cost", visits)):
        lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
        (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")


def rows_of(policy: Path) -> list[tuple[Any, ...]]:
    """All rows of the SELECT, as they are before they are encoded."""
    with read_columns(pinq.load_policy(policy).at("made")) as raw:
        return raw.connection.execute(f"SELECT * FROM {raw.name}").fetchall()


def refusal(folder: Path, select: str) -> str:
    with pytest.raises(PolicyError) as refused:
        pinq.load_policy(clinic(folder, select))
    return str(refused.value)


def test_a_patients_columns_beside_each_visit_and_visits_summed_beside_each_patient(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    each = rows_of(clinic(tmp_path, EACH))
    assert sorted(each) == [("1", "f", "n"), ("1", "f", "n"), ("1", "f", "s"), ("2", "m", "s")]
    summed = [(*row[:3], row[3] and float(row[3])) for row in rows_of(clinic(tmp_path, SUMMED))]
    assert sorted(summed) == [("1", "f", 3, 5), ("2", "m", 1, None), ("3", "f", 0, None)]


def test_a_joined_table_is_asked_checked_and_served_as_others_are(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    policy = clinic(tmp_path, SUMMED, "sex", "n")
    grant(policy, "ana", 9)
    report = check(pinq.load_policy(policy).at("made"))
    assert (report.encoded_rows, report.problems) == (3, ())
    with pinq.open(policy, analyst="ana", table="made") as handle:
        assert handle.tables == ("patients", "visits", "made")
        assert handle.noisy_count(epsilon=1).scale == 1
    with pinq.open(policy, analyst="ana", table="visits") as handle:
        assert handle.budget.spent == 1
    served = Datasets.open([policy])
    assert [*served.served] == ["clinic.patients", "clinic.visits", "clinic.made"]
    served.close()


@pytest.mark.parametrize(
    ("names", "most", "query", "persons"),
    [
        ("v.ward", 2, "SELECT ward, COUNT(*) FROM made GROUP BY ward", {"n": 2, "s": 2}),
        (
            "count(*) AS n",
            1,
            "SELECT COUNT(DISTINCT person) FROM made",
            {3: 2, 1: 1},
        ),  # visits, and the persons with so many
    ],
)
def test_persons_are_counted_beside_rows(
    names: str, most: int, query: str, persons: dict[Any, int], tmp_path: Path
) -> None:
    """A person counts once in each ward, or once; the noise is that of so many rows."""
    pytest.importorskip("sqlglot")
    files(tmp_path, PATIENTS, [*VISITS, *[("3", "n", "1")] * 3])
    groups = "v.pid, v.ward" if names == "v.ward" else "v.pid"
    select = f"SELECT v.pid AS person, {names} FROM visits v GROUP BY {groups}"
    policy = clinic(tmp_path, select, names.split(".")[-1].split()[-1], rows=most)
    assert Counter(value for person, value in rows_of(policy) if person) == persons
    grant(policy, "ana", 9)
    with pinq.open(policy, analyst="ana", table="made") as handle:
        assert handle.noisy_count(epsilon=1).scale == most
        frame = pinq.sql(handle, query, epsilon=8).frame
        assert len(frame) == most
        assert handle.budget.spent == 9


def test_the_command_check_says_what_is_wrong_with_a_select(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    done = CliRunner().invoke(app, ["check", f"{clinic(tmp_path, EACH.replace('v.pid', 'v.ward'))}"])
    assert done.exit_code == 1
    assert "joins rows of several people" in " ".join(done.output.split())


def test_max_rows_bounds_a_person_after_the_join(tmp_path: Path) -> None:
    """A patient with 100 visits, and two lines in the other file, has 200 rows; what is declared is kept of these."""
    files(tmp_path, [("1", "f", 40), ("1", "m", 40), ("2", "m", 3)], [*[("1", "n", 1)] * 100, ("2", "s", 1)])
    report = check(pinq.load_policy(clinic(tmp_path, EACH, "sex", "ward", rows=7)).at("made"))
    assert (report.source_rows, report.encoded_rows, report.over_unit) == (201, 8, 193)
    assert any("more than max_rows" in problem for problem in report.problems)


def repeated(deep: int, times: int) -> str:
    """A SELECT that repeats a text so many times, at each of its levels."""
    select = "SELECT person, sex FROM patients"
    for _ in range(deep):
        select = f"SELECT t.person, concat({', '.join(['t.sex'] * times)}) AS sex FROM ({select}) t"
    return select


REFUSED = {
    "joins rows of several people": [
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON v.ward = p.sex",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON v.pid = p.sex",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON p.person = p.person",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON v.pid <> p.person",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON v.pid IS NOT DISTINCT FROM p.person",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON v.pid = p.person AND v.ward = p.sex",
        "SELECT v.pid AS person, x.n FROM visits v JOIN (SELECT ward AS pid, 1 AS n FROM visits) x ON x.pid = v.pid",
        "SELECT v.pid AS person, x.n FROM visits v JOIN (SELECT upper(pid) AS pid, 1 AS n FROM visits) x "
        "ON x.pid = v.pid",
    ],
    "an expression where a column must stand": [
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON v.pid = p.person OR true",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON true",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON upper(v.pid) = p.person",
        "SELECT p.person, p.sex FROM patients p JOIN visits v ON NOT v.pid = p.person",
        "SELECT person, count(*) AS n FROM patients GROUP BY 1",
        "SELECT person, count(*) AS n FROM patients GROUP BY upper(person)",
    ],
    "another join than": [
        "SELECT p.person, p.sex FROM patients p, visits v",
        "SELECT p.person, p.sex FROM patients p CROSS JOIN visits v",
        "SELECT p.person, p.sex FROM patients p NATURAL JOIN visits v",
        "SELECT p.person, p.sex FROM patients p POSITIONAL JOIN visits v",
        "SELECT p.person, p.sex FROM patients p RIGHT JOIN visits v ON v.pid = p.person",
        "SELECT p.person, p.sex FROM patients p FULL JOIN visits v ON v.pid = p.person",
        "SELECT p.person, p.sex FROM patients p SEMI JOIN visits v ON v.pid = p.person",
        "SELECT p.person, p.sex FROM patients p ANTI JOIN visits v ON v.pid = p.person",
        "SELECT p.person, p.sex FROM patients p ASOF JOIN visits v ON p.person >= v.pid",
        "SELECT v.pid AS person, x.n FROM visits v, LATERAL (SELECT count(*) AS n FROM visits) x",
    ],
    "counts over rows of several people": [
        "SELECT pid AS person, count(*) AS n FROM visits",
        "SELECT v.pid AS person, x.n FROM visits v JOIN (SELECT count(*) AS n FROM visits) x ON true",
    ],
    "groups rows of several people": [
        "SELECT ward AS person, count(*) AS n FROM visits GROUP BY ward",
        "SELECT v.pid AS person, x.n FROM visits v JOIN (SELECT ward, count(*) AS n FROM visits GROUP BY ward) x "
        "ON x.ward = v.ward",
    ],
    "several groupings": [
        "SELECT person, count(*) AS n FROM patients GROUP BY ROLLUP (person)",
        "SELECT person, count(*) AS n FROM patients GROUP BY GROUPING SETS ((person), ())",
    ],
    "that is a table's column of persons": [
        "SELECT sex AS person, person AS other FROM patients",
        "SELECT upper(person) AS person, sex FROM patients",
        "SELECT min(pid) AS person, ward FROM visits GROUP BY pid, ward",
        "SELECT pid, ward FROM visits",
        "SELECT x.person, x.sex FROM (SELECT sex AS person, person AS sex FROM patients) x",
    ],
    "has a window": [
        "SELECT person, count(*) OVER () AS n FROM patients",
        "SELECT person, count(*) OVER () AS n FROM patients GROUP BY person",
        "SELECT person, sum(age) OVER (ORDER BY sex) AS n FROM patients",
        "SELECT person, row_number() OVER () AS n FROM patients",
        "SELECT x.pid AS person, x.n FROM (SELECT pid, lag(ward) OVER () AS n FROM visits) x",
    ],
    "has a subquery": [
        "SELECT person, (SELECT count(*) FROM visits) AS n FROM patients",
        "SELECT person, sex FROM patients WHERE sex IN (SELECT ward FROM visits)",
        "SELECT person, sex FROM patients WHERE EXISTS (SELECT 1 FROM visits)",
        "SELECT person, count(*) FILTER (WHERE sex = (SELECT min(ward) FROM visits)) AS n FROM patients GROUP BY person",
    ],
    "not among the functions": [
        "SELECT person, random() AS n FROM patients",
        "SELECT person, sex FROM patients WHERE random() < 0.5",
        "SELECT person, now() AS n FROM patients",
        "SELECT person, getenv('HOME') AS n FROM patients",
        "SELECT person, nextval('s') AS n FROM patients",
        "SELECT person, first(sex) AS n FROM patients GROUP BY person",
        "SELECT person, string_agg(sex) AS n FROM patients GROUP BY person",
        "SELECT person, count(*) + 1 AS n FROM patients GROUP BY person",
        "SELECT person, sum(count(*)) AS n FROM patients GROUP BY person",
        "SELECT person, avg(age) AS n FROM patients GROUP BY person",
        "SELECT person, unnest([1, 2]) AS n FROM patients",
    ],
    "ORDER BY, LIMIT or DISTINCT": [
        "SELECT person, sex FROM patients ORDER BY age",
        "SELECT person, sex FROM patients LIMIT 1",
        "SELECT DISTINCT sex, person FROM patients",
        "SELECT x.person, x.sex FROM (SELECT person, sex FROM patients LIMIT 1) x",
    ],
    "none of the policy's tables": [
        "SELECT person, sex FROM 'patients.csv'",
        "SELECT person, sex FROM duckdb_settings",
        "SELECT person, sex FROM joined0",
        "SELECT person, sex FROM PATIENTS",
    ],
    "no table of the policy, beside FROM or in it": [
        "SELECT person, sex FROM read_csv('patients.csv')",
        "SELECT 1 AS person",
        "VALUES (1)",
    ],
    "neither files nor a table": ["SELECT person, sex FROM made"],
    "of a table in FROM": [
        "SELECT v.pid AS person, x.n FROM visits v JOIN LATERAL "
        "(SELECT w.pid, 1 AS n FROM visits w WHERE w.ward = v.ward) x ON x.pid = v.pid",
        "SELECT p.person, sex FROM patients p JOIN visits v ON v.pid = p.person",
        "SELECT patients.person, sex FROM patients p",
        "SELECT main.patients.person, sex FROM patients",
    ],
    "is no SQL": ["DELETE FROM patients", "COPY patients TO 'x'", "SELECT person FROM", "PIVOT patients ON sex", ""],
    "more than one statement": ["SELECT person, sex FROM patients; SELECT 1"],
    "is a UNION": ["SELECT person, sex FROM patients UNION ALL SELECT pid, ward FROM visits"],
    "has WITH": ["WITH a AS (SELECT * FROM patients) SELECT person, sex FROM a"],
    "has sample": ["SELECT person, sex FROM patients TABLESAMPLE 50%", "SELECT person FROM patients USING SAMPLE 1"],
    "has having": ["SELECT person, count(*) AS n FROM patients GROUP BY person HAVING count(*) > 1"],
    "has qualify": ["SELECT person, sex FROM patients QUALIFY row_number() OVER () < 3"],
    "GROUP BY ALL": ["SELECT person, count(*) AS n FROM patients GROUP BY ALL"],
    "USING: write ON": ["SELECT person, x.sex FROM patients x JOIN patients y USING (person)"],
    "a table with a schema": ["SELECT person, sex FROM temp.patients", "SELECT person, sex FROM main.patients"],
    "names for the columns": ["SELECT t.person, t.s FROM patients AS t(s, person)"],
    "gives two tables one name": ["SELECT a.person, a.sex FROM patients a JOIN patients A ON a.person = A.person"],
    "without a name": ["SELECT * FROM patients", "SELECT p.* FROM patients p", "SELECT COLUMNS(*) FROM patients"],
    "two columns called": ["SELECT person, sex, sex FROM patients", "SELECT person, age AS SEX, sex FROM patients"],
    "in a form that is not allowed": ["SELECT person, count(sex ORDER BY age) AS n FROM patients GROUP BY person"],
    "with 2 values": ["SELECT person, min(sex, 2) AS n FROM patients GROUP BY person"],
    "characters of one": [
        "SELECT x.person, replace(x.sex, 'f', '" + "f" * 200 + "') AS sex FROM "
        "(SELECT person, replace(sex, 'f', '" + "f" * 200 + "') AS sex FROM patients) x",
        repeated(4, 12),
        repeated(14, 2),
    ],
    "nested too deeply": [
        f"SELECT person, {'lower(' * 900}sex{')' * 900} AS sex FROM patients",
        repeated(600, 1),
    ],
    "has a lambda": ["SELECT person, x -> x AS n FROM patients"],
    "has a parameter": ["SELECT person, $1 AS n FROM patients"],
    "has a operator try": ["SELECT person, TRY(1) AS n FROM patients"],
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_select_whose_rows_may_be_of_two_people_is_refused_with_a_sentence(said: str, tmp_path: Path) -> None:
    """Before any file is read, so nothing is checked, granted or served under it."""
    for select in REFUSED[said]:
        if select:
            assert said in refusal(tmp_path, select), select
    single = clinic(tmp_path, EACH).read_text()
    body = json.loads(single)["tables"]["made"] | {"dataset": "clinic", "cap": 1}
    (tmp_path / "single.yaml").write_text(json.dumps(body))
    with pytest.raises(PolicyError, match="none of the policy's tables"):
        pinq.load_policy(tmp_path / "single.yaml")


def generated(draw: random.Random, deep: int = 2) -> str:
    """A SELECT that may be right or wrong: joins, groups, aggregates, conditions and derived tables by chance."""

    def source(alias: str) -> tuple[str, list[str], str]:
        if deep and draw.random() < 0.3:
            persons = draw.choice(["person", "pid", "k"])
            return (
                f"({generated(draw, deep - 1).replace(' AS person', f' AS {persons}')}) {alias}",
                [persons, "a"],
                persons,
            )
        return draw.choice(
            [
                (f"patients {alias}", ["sex", "age", "person"], "person"),
                (f"visits {alias}", ["ward", "cost", "pid"], "pid"),
            ]
        )

    def column(alias: str) -> str:
        return f"{alias}.{draw.choice(columns[alias])}"

    text, own, persons = source("t")
    columns, keys = {"t": own}, {"t": f"t.{persons}"}
    for alias in ("u", "v")[: draw.choice([0, 1, 1, 2])]:
        more, own, persons = source(alias)
        columns[alias], keys[alias] = own, f"{alias}.{persons}"
        earlier = draw.choice(["t", *([] if alias == "u" else ["u"])])
        on = f"{keys[earlier]} = {keys[alias]}" if draw.random() < 0.9 else f"{column(earlier)} = {column(alias)}"
        text += f" {draw.choice(['JOIN', 'LEFT JOIN'])} {more} ON {on}"
    first = keys[draw.choice([*columns])] if draw.random() < 0.9 else column("t")
    alias = draw.choice([*columns])
    groups = [first, *draw.sample([column(alias)], draw.randint(0, 1))] if draw.random() < 0.6 else []
    value = column(draw.choice([*columns]))
    if groups:
        value = draw.choice(
            [f"count({value})", f"min({value})", f"sum({value})", "count(*)", f"count(DISTINCT {value})"]
        )
        value += f" FILTER (WHERE {column(alias)} > '2')" if draw.random() < 0.3 else ""
    where = f" WHERE {column(alias)} {draw.choice(['>', '=', '<>'])} {draw.choice([column(alias), chr(39) + 's' + chr(39)])}"
    where = where if draw.random() < 0.3 else ""
    return f"SELECT {first} AS person, {value} AS a FROM {text}{where}" + (
        f" GROUP BY {', '.join(groups)}" if groups else ""
    )


def test_a_text_may_be_repeated_in_each_of_several_selects(tmp_path: Path) -> None:
    files(tmp_path, [("1", "f", 1)], [])
    assert rows_of(clinic(tmp_path, repeated(3, 12))) == [("1", "f" * 12**3)]


@pytest.mark.parametrize("seed", range(4))
def test_without_a_person_no_row_of_others_changes(seed: int, tmp_path: Path) -> None:
    """Random SELECTs over random files: whoever is removed from all files takes away rows that name them, and no others."""
    draw, asked = random.Random(seed), Counter[str]()
    while asked["answered"] < 5:
        people = ["1", "2", "3", None, "n"]
        patients = [(draw.choice(people), draw.choice(["f", "n", "1"]), draw.randint(1, 3)) for _ in range(6)]
        visits = [(draw.choice(people), draw.choice(["n", "s", "2"]), draw.choice([1, "x", "2.5"])) for _ in range(8)]
        policy = clinic(tmp_path, generated(draw))
        try:
            pinq.load_policy(policy)
        except PolicyError:
            asked["refused"] += 1
            continue
        results = list[Counter[tuple[Any, ...]]]()
        for gone in ("", "1", "n"):
            files(tmp_path, *([row for row in rows if row[0] != gone] for rows in (patients, visits)))
            try:
                results.append(Counter(rows_of(policy)))
            except PolicyError as error:  # by types alone, so all three are
                assert "Binder Error" in str(error)
        if results:
            asked["answered"] += 1
            for gone, less in zip(("1", "n"), results[1:], strict=True):
                kept = {row: count for row, count in results[0].items() if row[0] not in (gone, None)}
                assert kept == {row: count for row, count in less.items() if row[0] is not None}
    assert asked["refused"]


def test_persons_are_compared_by_their_texts_whatever_a_database_says(tmp_path: Path) -> None:
    """A collation takes A for a, and numbers 7 for 007; the encoder does neither."""
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as base:
        base.execute("CREATE TABLE patients (person VARCHAR COLLATE NOCASE, sex VARCHAR COLLATE NOCASE)")
        base.execute("CREATE TABLE visits (pid INTEGER, ward VARCHAR)")
        base.execute("INSERT INTO patients VALUES ('a', 'f'), ('A', 'F'), ('7', 'm'), ('007', 'f')")
        base.execute("INSERT INTO visits VALUES (7, 'n'), (NULL, 's')")
    tables: dict[str, Any] = {
        name: {"source": {"database": "clinic.duckdb", "table": name}} for name in ("patients", "visits")
    }
    joined = (
        "SELECT p.person, count(q.sex) AS n FROM patients p JOIN patients q ON q.person = p.person GROUP BY p.person"
    )
    policy = clinic(tmp_path, joined, "n", **tables)
    assert sorted(rows_of(policy)) == [("007", 1), ("7", 1), ("A", 1), ("a", 1)]
    assert rows_of(clinic(tmp_path, EACH, **tables)) == [("7", "m", "n")]
    grant(clinic(tmp_path, EACH, **tables), "ana", 9)
    with pinq.open(tmp_path / "clinic.yaml", analyst="ana", table="made") as handle:
        handle.noisy_count(epsilon=1)


def test_files_of_each_kind_can_be_joined(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    expected = sorted(rows_of(clinic(tmp_path, EACH)))
    pq.write_table(
        pa.table(dict(zip(("person", "sex", "age"), zip(*PATIENTS, strict=True), strict=True))), tmp_path / "p.parquet"
    )
    with closing(sqlite3.connect(tmp_path / "v.sqlite")) as base:
        base.execute("CREATE TABLE visits (pid, ward, cost)")
        base.executemany("INSERT INTO visits VALUES (?, ?, ?)", VISITS)
        base.commit()
    sources: dict[str, Any] = {
        "patients": {"source": "p.parquet"},
        "visits": {"source": {"database": "v.sqlite", "table": "visits"}},
    }
    for changed in ({"patients": sources["patients"]}, {"visits": sources["visits"]}, sources):
        assert sorted(rows_of(clinic(tmp_path, EACH, **changed))) == expected


@pytest.mark.parametrize(
    ("persons", "said"),
    [
        (pa.array([1.0, 2.0]), "has the type DOUBLE"),
        (pa.array([["1"], ["2"]]), "may have different texts"),
        (pa.array([1, 2], pa.date32()), "one person would be known by two texts"),
    ],
)
def test_persons_by_whose_types_two_may_be_one_are_refused(persons: pa.Array, said: str, tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    pq.write_table(pa.table({"person": persons, "sex": ["f", "m"]}), tmp_path / "p.parquet")
    with pytest.raises(PolicyError, match=said):
        check(pinq.load_policy(clinic(tmp_path, EACH, patients={"source": "p.parquet"})).at("made"))


def test_sources_that_cannot_be_joined_are_refused_with_a_sentence(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    for source in ({"spark": "x"}, {"adbc": {"driver": "adbc_driver_x", "uri_env": "A", "table": "t"}}):
        with pytest.raises(PolicyError, match="reads 'patients', which is neither files nor"):
            pinq.load_policy(clinic(tmp_path, EACH, patients={"source": source}))
    with pytest.raises(PolicyError, match="write numbers or dates differently"):
        rows_of(clinic(tmp_path, EACH, patients={"csv": {"decimal": ","}}))
    with pytest.raises(PolicyError, match="no column 'wart'"):
        rows_of(clinic(tmp_path, EACH.replace("ward", "wart")))
    (tmp_path / "visits.csv").unlink()
    with pytest.raises(PolicyError, match=r"no source .*visits.csv"):
        grant(clinic(tmp_path, EACH), "ana", 1)
    for name in ("a", "b"):
        pq.write_table(pa.table({"person": ["1"], name: ["f"]}), tmp_path / f"{name}.parquet")
    with pytest.raises(PolicyError, match="declare different columns"):
        rows_of(clinic(tmp_path, "SELECT person, a FROM patients", patients={"source": "*.parquet"}))


def test_too_many_lines_that_cannot_be_read_are_refused_for_the_join_too(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    with (tmp_path / "visits.csv").open("a") as file:
        file.write("1,n,3,4,5\n" * 20)
    with pytest.raises(PolicyError, match="cannot be read than its policy allows"):
        rows_of(clinic(tmp_path, EACH))


def test_whatever_changes_the_rows_of_a_join_begins_a_version(tmp_path: Path) -> None:
    """Another text of the SELECT, another file of any of its tables, and another reading of one."""
    files(tmp_path, PATIENTS, VISITS)
    grant(clinic(tmp_path, EACH), "ana", 9)

    def version(policy: Path) -> int:
        with pinq.open(policy, analyst="ana", table="made") as handle:
            handle.noisy_count(epsilon="0.1")
        with closing(open_ledger(pinq.load_policy(policy))) as ledger:
            begun = [event.record for event in ledger.log.events() if isinstance(event.record, Begun)]
            return len([rows for rows in begun if rows.table == "made"])

    assert [version(clinic(tmp_path, EACH)) for _ in range(2)] == [1, 1]
    assert version(clinic(tmp_path, EACH + " WHERE v.ward = 'n'")) == 2
    for number, name in ((3, "patients"), (4, "visits")):
        file = tmp_path / f"{name}.csv"
        file.write_text(file.read_text() + "\n")
        assert version(clinic(tmp_path, EACH + " WHERE v.ward = 'n'")) == number
    assert version(clinic(tmp_path, EACH + " WHERE v.ward = 'n'", visits={"csv": {"quote": "'"}})) == 5


def test_no_row_decides_whether_a_condition_fails(tmp_path: Path) -> None:
    """A condition of text is read as true or false outside of what it computes; what is neither is missing."""
    files(tmp_path, [("1", "true", 1), ("2", "m", 2), ("3", None, 3)], VISITS)
    for condition in ("sex", "lower(sex)", "CAST(sex AS VARCHAR)", "CASE WHEN age > '0' THEN sex END"):
        assert rows_of(clinic(tmp_path, f"SELECT person, sex FROM patients WHERE {condition}")) == [("1", "true")]
        counted = f"SELECT person, count(*) FILTER (WHERE {condition}) AS n FROM patients GROUP BY person"
        assert sorted(rows_of(clinic(tmp_path, counted))) == [("1", 1), ("2", 0), ("3", 0)]
    assert rows_of(clinic(tmp_path, "SELECT person, sex FROM patients WHERE 'x'")) == []


def test_an_expression_that_fails_on_a_row_is_missing_there_wherever_it_stands(tmp_path: Path) -> None:
    """Also where it stands twice, which an optimizer computes once, before both; and by no infinite number."""
    files(tmp_path, [("1", "m", 0), ("2", "4", 2)], [])
    number = "CAST(sex AS INTEGER)"
    twice = f"SELECT person, {number} AS n, {number} + 1 AS more, 1 / CAST(age AS DOUBLE) AS part FROM patients"
    assert sorted(rows_of(clinic(tmp_path, twice))) == [("1", None, None, None), ("2", 4, 5, 0.5)]
    inner = f"SELECT x.person, x.n FROM (SELECT person, {number} AS n FROM patients) x WHERE x.n > 3"
    assert rows_of(clinic(tmp_path, inner)) == [("2", 4)]


def test_a_sum_is_exact_in_whatever_order_its_rows_come(tmp_path: Path) -> None:
    summed = "SELECT pid AS person, sum(cost) AS n FROM visits GROUP BY pid"
    for costs in itertools.permutations(("100000000000", "0.1", "-100000000000")):
        files(tmp_path, [], [("1", "n", cost) for cost in costs])
        assert rows_of(clinic(tmp_path, summed)) == [("1", Decimal("0.1"))]


def test_numbers_that_sql_takes_for_one_have_one_text(tmp_path: Path) -> None:
    """Else the order of a person's rows would say by which of both texts their group is known."""
    for kind in (pa.float64(), pa.float32()):
        pq.write_table(pa.table({"person": ["1", "2"], "x": pa.array([-0.0, 0.0], kind)}), tmp_path / "p.parquet")
        grouped = "SELECT person, CAST(x AS VARCHAR) AS sex FROM patients"
        policy = clinic(tmp_path, grouped, patients={"source": "p.parquet"})
        assert sorted(rows_of(policy)) == [("1", "0.0"), ("2", "0.0")]


def test_the_codes_that_are_kept_of_a_join_are_those_of_its_select(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sources, "IN_MEMORY_BYTES", 0)
    files(tmp_path, PATIENTS, VISITS)
    for condition, rows in (("", 2), ("", 2), (" WHERE p.sex = 'f'", 1)):
        engine, _ = open_engine(pinq.load_policy(clinic(tmp_path, EACH + condition)).at("made"), salt=b"salt")
        with closing(engine):
            assert engine.rows() == rows
    assert len([*(tmp_path / "state").rglob("*.codes")]) == 1


def test_the_page_on_joined_tables_is_a_policy(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")
    several, joined = page.split("\n## Several tables")[1].split("```yaml\n")[1:3]
    (tmp_path / "clinic.yaml").write_text(several.partition("```")[0] + joined.partition("```")[0])
    pq.write_table(pa.table({"person_id": ["1", "2"], "sex": ["f", "m"]}), tmp_path / "patients.parquet")
    (tmp_path / "visits.csv").write_text("patient,ward\n1,north\n1,south\n3,north\n")
    report = check(pinq.load_policy(tmp_path / "clinic.yaml").at("stays"))
    assert (report.encoded_rows, report.problems) == (2, ())


def test_a_policy_with_a_join_is_one_act_that_another_policy_can_be_told_from(tmp_path: Path) -> None:
    files(tmp_path, PATIENTS, VISITS)
    loaded = pinq.load_policy(clinic(tmp_path, EACH)).at("made")
    assert isinstance(loaded, Policy)
    assert loaded.joined is not None
    assert pinq.load_policy(loaded) == loaded
    (tmp_path / "own.yaml").write_text(json.dumps(json.loads((tmp_path / "clinic.yaml").read_text()) | {"joined": {}}))
    with pytest.raises(PolicyError, match="joined: unknown key"):
        pinq.load_policy(tmp_path / "own.yaml")
