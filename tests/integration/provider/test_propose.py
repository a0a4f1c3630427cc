# SPDX-License-Identifier: Apache-2.0
"""What ``pinq init`` proposes, and what of it waits for a review."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import pinq
from miners import Federation
from pinq.errors import PolicyError
from pinq.policy.policy import Policy
from pinq.provider import grants as provider
from pinq.provider.check import check
from pinq.provider.policy_file import load_policy
from pinq.provider.proposal import propose, propose_like
from pinq.public.schema import Categorical, Numeric
from tests.support.tables.reviewed_policies import reviewed

HOSTILE = ['"; drop table x; --', "[red]x[/red]", "größe: 名前 #1", "select", "a'b\nc", "yes"]


class TestPropose:
    def test_kinds(self, people: Path) -> None:
        columns = Policy(**yaml.safe_load(propose(people))).columns
        assert set(columns) == {"age", "children", "num_visits", "flag", "height", "sex", "smoker", "born"}
        assert isinstance(columns["age"], Numeric)
        assert columns["age"].integer
        assert (columns["age"].lower, columns["age"].upper) == (Decimal(10), Decimal(90))
        assert isinstance(columns["num_visits"], Numeric)  # the name says that it is a quantity
        assert isinstance(columns["children"], Categorical)
        assert columns["children"].values == (0, 1, 2, 3)
        assert isinstance(columns["flag"], Categorical)  # whole numbers that became doubles for a missing value's sake
        assert columns["flag"].values == (0, 1)
        assert columns["flag"].nullable
        assert isinstance(columns["sex"], Categorical)
        assert columns["sex"].nullable
        assert isinstance(columns["smoker"], Categorical)
        assert columns["smoker"].values == (False, True)

    def test_german_names_say_the_same(self, tmp_path: Path) -> None:
        """Of a hospital's export: whole numbers that name cases and persons, and numbers of years."""
        rows = range(300)
        table = {"Fallnummer": list(rows), "Versichertennummer": [7000 + row // 3 for row in rows]}
        pq.write_table(pa.table(table | {"Alter": [60 + row % 6 for row in rows]}), tmp_path / "cases.parquet")
        text = propose(tmp_path / "cases.parquet")
        columns = Policy(**yaml.safe_load(text)).columns
        assert set(columns) == {"Alter"}
        assert isinstance(columns["Alter"], Numeric)  # six whole numbers in a row, and no codes
        assert "Versichertennummer names the person: 100 persons, at most 3 rows each" in text

    def test_real_grid_is_exact_and_round(self, people: Path) -> None:
        height = Policy(**yaml.safe_load(propose(people))).columns["height"]
        assert isinstance(height, Numeric)
        assert (height.lower, height.upper) == (Decimal("1.5"), Decimal(2))
        assert height.step == Decimal("0.0002")
        assert (height.upper - height.lower) % height.step == 0
        assert height.lower % height.step == 0
        assert height.cells <= 4096

    def test_everything_read_off_the_data_is_unreviewed(self, people: Path) -> None:
        content = yaml.safe_load(propose(people))
        assert content["unreviewed"] == ["privacy_unit", "max_rows"]
        assert content["max_rows"] == 500
        for column in content["columns"].values():
            # That numbers are whole, and what is a category, is read off the data only where the type does not say it.
            assert set(column["unreviewed"]) | {"integer", "type"} == set(column) - {"unreviewed"} | {"integer"}
        assert {name for name, column in content["columns"].items() if "type" not in column["unreviewed"]} == {
            "sex",
            "smoker",
            "born",
        }
        with pytest.raises(PolicyError, match="nobody reviewed: privacy_unit, max_rows, columns"):
            Policy(**content).require_reviewed()

    def test_left_out_with_reasons_and_without_values(self, people: Path) -> None:
        text = propose(people)
        for line in (
            "#   name: it seems to hold names of persons, which tell persons apart",
            "#   person_id: it seems to name rows or persons; where a person can have several rows, declare "
            'privacy_unit: {column: "person_id", max_rows: ...}',
            "#   empty: it holds no values",
            "#   tags: values of type VARCHAR[] are neither categories nor numbers",
        ):
            assert line in text
        assert "person 1" not in text

    def test_guesses_say_what_they_were_made_from(self, people: Path) -> None:
        """Category or number, and whether values can be missing: each with what the rows or the source's type said."""
        text = propose(people)
        for line in (
            "    type: categorical  # guessed from 4 different whole numbers",
            "    type: numeric  # guessed from about 6 different whole numbers",
            "    type: categorical  # the source says VARCHAR",
            "    type: categorical  # the source says BOOLEAN",
            "    nullable: true  # guessed: 133 of 400 rows hold no value",
            "    nullable: false  # guessed: 0 of 400 rows hold no value",
        ):
            assert line in text

    def test_marks_of_missing_values_leave_numbers_and_dates(self, tmp_path: Path) -> None:
        """One cell in ten says that there is no value; where every second is a text, the column is one of texts."""
        rows = range(200)
        days = [f"2024-0{1 + i % 9}-{10 + i // 20}" for i in rows]
        frame = pd.DataFrame(
            {
                "crp": ["k.A." if i % 10 == 0 else f"{i % 90}.5" for i in rows],
                "born": ["unknown" if i % 10 == 0 else day for i, day in enumerate(days)],
                "reading": [f"{i % 4}.5" if i % 2 else f"see {i % 4}" for i in rows],
                "grade": ["none" if i % 10 == 0 else str(i % 5) for i in rows],
            }
        )
        frame.to_csv(tmp_path / "t.csv", index=False)
        text = propose(tmp_path / "t.csv")
        columns = yaml.safe_load(text)["columns"]
        assert {name: column["type"] for name, column in columns.items()} == {
            "crp": "numeric",
            "born": "date",
            "reading": "categorical",
            "grade": "categorical",
        }
        assert columns["crp"]["nullable"]
        assert columns["born"]["nullable"]
        assert "20 of 200 rows hold no number" in text
        assert "20 of 200 rows hold no date" in text

    @pytest.mark.parametrize("numbers", [False, True], ids=["texts", "numbers"])
    def test_columns_that_name_persons_are_named(self, tmp_path: Path, numbers: bool) -> None:
        """An identifier that repeats is a candidate for the privacy unit, with its largest group, and no column."""
        names = [i // 2 if i < 1000 else 7 for i in range(1040)]
        pq.write_table(
            pa.table(
                {
                    "person_id": names if numbers else [f"P{i}" for i in names],
                    "sex": ["fm"[i % 2] for i in range(1040)],
                    "paid": [i % 500 for i in range(1040)],
                    "Versicherte": [f"V{i // 3}" for i in range(1040)],
                    "region_id": [i % 12 for i in range(1040)],
                }
            ),
            tmp_path / "t.parquet",
        )
        text = propose(tmp_path / "t.parquet")
        policy = Policy(**yaml.safe_load(text))
        assert policy.bounded_unit is not None
        assert (policy.bounded_unit.column, policy.bounded_unit.max_rows) == ("person_id", 50)
        assert "privacy_unit" in policy.unreviewed
        assert set(policy.columns) == {"sex", "paid", "region_id"}
        for line in (
            "person_id names the person: 500 persons, at most 42 rows each (read off the rows: for your review alone)",
            '#   privacy_unit: {column: "Versicherte", max_rows: ...}',
            "#     Versicherte: 347 values in 1,040 rows; the commonest stands in 3",
        ):
            assert line in text

    def test_few_persons_with_many_rows_each(self, tmp_path: Path) -> None:
        """The fewer persons, the more each has to lose; a column whose values have few of them is none."""
        rows = range(6000)
        pq.write_table(
            pa.table(
                {
                    "patient_id": [i % 30 for i in rows],
                    "clinic_id": [f"C{i % 25}" for i in rows],
                    "y": [i % 2 for i in rows],
                }
            ),
            tmp_path / "t.parquet",
        )
        text = propose(tmp_path / "t.parquet")
        assert set(Policy(**yaml.safe_load(text)).columns) == {"y"}  # each clinic has six patients
        assert "patient_id names the person: 30 persons, at most 200 rows each" in text
        assert "clinic_id: 25 values in 6,000 rows; the commonest stands in 240" in text

    def test_no_candidate_no_word(self, tmp_path: Path) -> None:
        """Identifiers that never repeat are the rows themselves."""
        pq.write_table(
            pa.table({"person_id": [f"P{i}" for i in range(100)], "sex": ["fm"[i % 2] for i in range(100)]}),
            tmp_path / "t.parquet",
        )
        assert "look as if they name persons" not in propose(tmp_path / "t.parquet")

    def test_texts_stay_texts(self, tmp_path: Path) -> None:
        """Where the source tells a text from a number, digits are codes; elsewhere the column's name may say so."""
        codes = [str(1000 + i % 30) for i in range(2000)]
        many = [str(i) for i in range(2000)]
        pq.write_table(
            pa.table(
                {
                    "area": codes,
                    "code": [int(code) for code in codes],
                    "amount": many,
                    "n": [i % 300 for i in range(2000)],
                }
            ),
            tmp_path / "t.parquet",
        )
        (tmp_path / "t.csv").write_text("\n".join(["area,code", *(f"{code},{code}" for code in codes)]) + "\n")
        text = propose(tmp_path / "t.parquet")
        columns = Policy(**yaml.safe_load(text)).columns
        assert set(columns) == {"area", "code", "n"}
        assert isinstance(columns["area"], Categorical)
        assert columns["area"].values[0] == "1000"
        assert isinstance(columns["code"], Categorical)
        assert columns["code"].values[0] == 1000
        assert isinstance(columns["n"], Numeric)
        assert (
            "amount: it has more than 1,000 different values; where they are amounts and not codes, make them numbers in the source;"
            in text
        )
        kinds = {
            name: column.type for name, column in Policy(**yaml.safe_load(propose(tmp_path / "t.csv"))).columns.items()
        }
        assert kinds == {"area": "numeric", "code": "categorical"}

    def test_codes_are_quoted_alike(self, tmp_path: Path) -> None:
        """Every text of digits has quotes, not only the ones that YAML would read as octal, and is read back as it stands in the source."""
        codes = ["01067", "01069", "01070", "no", "1e3", "12:30", "-7"]
        pq.write_table(pa.table({"code": [codes[i % 7] for i in range(700)]}), tmp_path / "t.parquet")
        text = propose(tmp_path / "t.parquet", folder=tmp_path)
        assert "values: ['-7', '01067', '01069', '01070', '12:30', '1e3', 'no']" in text
        (tmp_path / "p.yaml").write_text(reviewed(text))
        assert check(tmp_path / "p.yaml").encoded_rows == 700

    def test_numbers_and_texts_in_one_column_are_texts(self, tmp_path: Path) -> None:
        """A proposal never mixes types in a list."""
        (tmp_path / "t.csv").write_text("v\n" + "1\n2\nother\n03\n" * 50)
        column = Policy(**yaml.safe_load(propose(tmp_path / "t.csv"))).columns["v"]
        assert isinstance(column, Categorical)
        assert column.values == ("03", "1", "2", "other")

    def test_owners_share_one_proposal(self, tmp_path: Path) -> None:
        """Another owner's file gets the same columns, so a federation takes both; nothing is read off its rows."""
        for name, values in {"north": "ab", "south": "abc"}.items():
            (tmp_path / name).mkdir()
            rows = 600 if name == "north" else 300
            table = {
                "age": [20 + i % 60 for i in range(rows)],
                "kind": [values[i % len(values)] for i in range(rows)],
                "ill": [i % 2 == 0 for i in range(rows)],
            }
            pq.write_table(
                pa.table(table | {"own": [f"{i % 5}" for i in range(rows)]} if name == "south" else table),
                tmp_path / name / "t.parquet",
            )
        north, south = tmp_path / "north" / "p.yaml", tmp_path / "south" / "p.yaml"
        north.write_text(propose(tmp_path / "north" / "t.parquet", dataset="census", folder=north.parent))
        south.write_text(propose_like(tmp_path / "south" / "t.parquet", north, folder=south.parent))
        assert load_policy(south).unreviewed_fields() == load_policy(north).unreviewed_fields()
        north.write_text(reviewed(north.read_text(), ledger="north.ledger"))
        south.write_text(propose_like(tmp_path / "south" / "t.parquet", north, folder=south.parent))
        assert load_policy(south).schema_ == load_policy(north).schema_
        assert (load_policy(south).dataset, load_policy(south).source, load_policy(south).ledger) == (
            "census",
            "t.parquet",
            None,
        )
        assert check(south).left_out["kind"] == 100
        for policy in (north, south):
            provider.grant(policy, "ana", 1)
        together = Federation(
            {name: pinq.open(tmp_path / name / "p.yaml", analyst="ana") for name in ("north", "south")}
        )
        assert list(together.schema.columns) == ["age", "kind", "ill"]

    def test_an_owner_without_a_shared_column(self, people: Path, policy: Path) -> None:
        """The source must have every column of the shared policy."""
        pq.write_table(pa.table({"age": [1]}), people.parent / "other.parquet")
        with pytest.raises(
            PolicyError, match="The source has no column 'children', which the shared policy has; it has age"
        ):
            propose_like(people.parent / "other.parquet", policy)

    def test_too_many_values(self, tmp_path: Path) -> None:
        pq.write_table(
            pa.table({"word": [f"w{i % 1500}" for i in range(6000)], "x": [i % 2 for i in range(6000)]}),
            tmp_path / "t.parquet",
        )
        assert "#   word: it has more than 1,000 different values" in propose(tmp_path / "t.parquet")

    def test_csv_kinds_are_those_of_the_text(self, tmp_path: Path) -> None:
        lines = ["zip,size,smoker,n,code,score"]
        lines += [
            f"0{1000 + i % 7},{i / 8},{'True' if i % 2 else 'False'},{i},{i % 3},{'' if i % 10 == 0 else i % 50}"
            for i in range(200)
        ]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (tmp_path / "p.yaml").write_text(reviewed(propose(tmp_path / "t.csv", folder=tmp_path)), encoding="utf-8")
        policy = load_policy(tmp_path / "p.yaml")
        assert isinstance(policy.columns["zip"], Categorical)
        assert policy.columns["zip"].values[0] == "01000"
        assert isinstance(policy.columns["smoker"], Categorical)
        assert policy.columns["smoker"].values == ("False", "True")
        assert isinstance(policy.columns["code"], Categorical)
        assert isinstance(policy.columns["size"], Numeric)
        assert not policy.columns["size"].integer
        assert isinstance(policy.columns["score"], Numeric)
        assert policy.columns["score"].nullable
        report = check(tmp_path / "p.yaml")
        assert report.encoded_rows == 200  # every value found is encoded

    def test_whole_column_is_encoded(self, policy: Path) -> None:
        report = check(policy)
        assert report.ready
        assert report.encoded_rows == report.source_rows == 400
        assert not any(report.left_out.values())
        assert not any(report.clamped.values())

    def test_wide_numbers_get_a_coarse_round_step(self, tmp_path: Path) -> None:
        pq.write_table(
            pa.table(
                {"weight": [12_285 + i * 7_000 for i in range(200)], "huge": [10.0 ** (i % 90) for i in range(200)]}
            ),
            tmp_path / "t.parquet",
        )
        columns = Policy(**yaml.safe_load(propose(tmp_path / "t.parquet"))).columns
        assert isinstance(columns["weight"], Numeric)
        assert columns["weight"].integer
        assert columns["weight"].step == 500
        assert isinstance(columns["huge"], Numeric)
        assert columns["huge"].cells <= 4097

    def test_infinities_and_nan(self, tmp_path: Path) -> None:
        values = [i / 3 for i in range(100)] + [float("inf"), float("-inf"), float("nan")]
        pq.write_table(pa.table({"x": values, "sole": [0.5] * 103}), tmp_path / "t.parquet")
        columns = Policy(**yaml.safe_load(propose(tmp_path / "t.parquet"))).columns
        assert isinstance(columns["x"], Numeric)
        assert columns["x"].nullable
        assert (columns["x"].lower, columns["x"].upper) == (Decimal(0), Decimal(35))
        assert isinstance(columns["sole"], Numeric)
        assert columns["sole"].lower <= Decimal("0.5") < columns["sole"].upper

    def test_database_table(self, tmp_path: Path) -> None:
        file = tmp_path / "d.duckdb"
        with duckdb.connect(str(file)) as connection:
            connection.execute(
                'CREATE TABLE "odd ""name" AS SELECT i % 3 AS kind, i % 100 AS age FROM range(1000) t(i)'
            )
        content = yaml.safe_load(propose(f'{file}::odd "name', folder=tmp_path))
        assert content["source"] == {"database": "d.duckdb", "table": 'odd "name'}
        assert content["dataset"] == "odd_name"
        assert set(content["columns"]) == {"kind", "age"}
        with pytest.raises(PolicyError, match=r"is a database; say which table of it: .*::TABLE"):
            propose(file)

    def test_a_database_that_is_locked(self, tmp_path: Path) -> None:
        """Another process that writes to it has it alone; the error says so, in one sentence, also where no policy exists yet."""
        file = tmp_path / "d.duckdb"
        code = f"import duckdb; c = duckdb.connect({str(file)!r}); c.execute('CREATE TABLE t AS SELECT 1 AS age'); print('up', flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"up\n"
            with pytest.raises(PolicyError) as caught:
                propose(f"{file}::t")
            writer.communicate(b"\n")
        assert (
            str(caught.value)
            == f"The database {file} is open for writing in another program. Close it there, or give `pinq` a copy."
        )

    def test_source_path(self, people: Path, tmp_path: Path) -> None:
        assert yaml.safe_load(propose(people))["source"] == str(people)
        assert (
            yaml.safe_load(propose(people, folder=tmp_path / "deep" / "policies"))["source"] == "../../people.parquet"
        )

    def test_hostile_names_and_values(self, tmp_path: Path) -> None:
        values = [
            *HOSTILE,
            "1",
            "1.0",
            "null",
            "~",
            "- x",
            "# y",
            "\u202e rtl",
            "\x85",
            "\u2028",
            "\ufeffb",
            "\t",
            "\n\n x \n",
            " ",
        ]
        rows = [values[i % len(values)] for i in range(300)]
        pq.write_table(pa.table({name: rows for name in HOSTILE} | {"v" * 300: rows}), tmp_path / "t.parquet")
        text = propose(tmp_path / "t.parquet", target=HOSTILE[0], folder=tmp_path, fewest=1)
        (tmp_path / "p.yaml").write_text(reviewed(text), encoding="utf-8")
        loaded = load_policy(tmp_path / "p.yaml")
        assert list(loaded.columns) == [*HOSTILE, "v" * 300]
        column = loaded.columns[HOSTILE[1]]
        assert isinstance(column, Categorical)
        assert set(column.texts) == set(values)
        assert check(loaded).encoded_rows == 300

    @pytest.mark.parametrize(
        ("target", "text"),
        [
            ("sx", r"no column 'sx' \(did you mean 'sex'\?\); it has age"),
            ("name", "The target 'name' cannot be a column: it seems to hold names"),
        ],
    )
    def test_bad_target(self, people: Path, target: str, text: str) -> None:
        with pytest.raises(PolicyError, match=text):
            propose(people, target=target)

    def test_bad_sources(self, tmp_path: Path) -> None:
        (tmp_path / "junk.parquet").write_bytes(b"not a table, but a secret")
        with pytest.raises(PolicyError, match="There is no source"):
            propose(tmp_path / "gone.parquet")
        with pytest.raises(PolicyError, match="cannot be read") as caught:
            propose(tmp_path / "junk.parquet")
        assert "secret" not in str(caught.value)
        pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "none.parquet")
        with pytest.raises(PolicyError, match=r"Nothing in the source can be a column. x: it holds no values"):
            propose(tmp_path / "none.parquet")
        with pytest.raises(PolicyError, match="must be 1 to 64 letters"):
            propose(tmp_path / "none.parquet", dataset="a b")
