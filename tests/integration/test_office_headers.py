# SPDX-License-Identifier: Apache-2.0
"""Headers and forms of office files: no row becomes the public names of columns, and no value is misread in silence."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import pinq
from pinq.engine.formats import encodings_of
from pinq.engine.profile import unusual_dates
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect
from pinq.policy.plain_yaml import read_yaml
from pinq.provider.proposal import WholeDoubt, look
from tests.support.tables.workbooks import book

RANDOM = random.Random(1)
NAMES = ["Doe, Jane", "Roe, John", "Poe, Ann", "Müller, Eva"]
# Each has lines with more fields than the header, or titles above that could be a header; a skipped line would make a row
# the names of the columns.
ROWS_THAT_LOOK_LIKE_HEADERS = {
    "an unquoted comma": ("name,ward,ill", lambda i: f"{NAMES[i % 4]},{'ABC'[i % 3]},{['yes', 'no'][i % 2]}"),
    "an unquoted comma beside a number": ("name,ward,age", lambda i: f"{NAMES[i % 4]},{'ABC'[i % 3]},{20 + i % 60}"),
    "one column": ("name", lambda i: NAMES[i % 4]),
    "one column with numbers": ("address", lambda i: f"Hill Road, {i}"),
    "names of rows": ('"sex","ward"', lambda i: f'"p{i}","{"mf"[i % 2]}","{"ABC"[i % 3]}"'),
    "numbers of rows": ("sex,ward", lambda i: f"{i},{'mf'[i % 2]},{'ABC'[i % 3]}"),
    "remarks": ("ward,ill", lambda i: f"{'ABC'[i % 3]},yes,phoned Mrs {NAMES[i % 4].split(',')[0]}"),
}


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def columns(path: Path) -> dict[str, dict[str, object]]:
    return dict(read_yaml(pinq.propose(path))["columns"])


@pytest.mark.parametrize("kind", ROWS_THAT_LOOK_LIKE_HEADERS)
@pytest.mark.parametrize("title", [[], ["Patients of 2024"]])
def test_a_row_is_never_advised_or_taken_as_the_header(kind: str, title: list[str], tmp_path: Path) -> None:
    header, row = ROWS_THAT_LOOK_LIKE_HEADERS[kind]
    path = written(tmp_path / "t.csv", [*title, header, *map(row, range(200))])
    try:
        names = set(columns(path))
    except PolicyError as error:
        assert "--skip" not in str(error) or (title and "--skip 1" in str(error) and kind == "remarks"), error
    else:
        assert names <= set(header.replace('"', "").split(","))


@pytest.mark.parametrize("titles", [["Patients of 2024"], ["Clinic", "", "Ward A;;"]])
def test_titles_above_a_header_are_seen(titles: list[str], tmp_path: Path) -> None:
    rows = [f"{'mf'[i % 2]};{20 + i % 50};A{i % 3}" for i in range(100)]
    with pytest.raises(PolicyError, match=f"--delimiter ';' --skip {len(titles)}"):
        pinq.propose(written(tmp_path / "t.csv", [*titles, "sex;age;ward", *rows]))


HEADERLESS: dict[str, Callable[[int], str]] = {
    "codes and a number": lambda i: f"Person{i},{'mf'[i % 2]},{20 + i % 50}",
    "codes alone": lambda i: f"{'ABCDEFGHIJ'[i % 10]}{'klmnopqrst'[i // 10 % 10]},{'mf'[i % 2]},{'ABC'[i % 3]}",
    "numbers alone": lambda i: f"{20 + i % 50},{150 + i % 40}.5",
    "dates": lambda i: f"Person{i},{1950 + i % 40}-03-1{i % 9}",
    "dates of an office": lambda i: f"Person{i},1{i % 9}.03.{1950 + i % 40}",
    "years": lambda i: f"Person{i},{1950 + i % 40}",
    "addresses of mail": lambda i: f"Person{i},p{i}@example.org",
    "a quoted comma": lambda i: f'"Doe, Person{i}",{"mf"[i % 2]}',
}


@pytest.mark.parametrize("kind", HEADERLESS)
def test_a_first_line_that_is_a_row_names_no_columns(kind: str, tmp_path: Path) -> None:
    """It is asked for names, neutral ones come first, and with them the first line is a row like all others."""
    path = written(tmp_path / "t.csv", list(map(HEADERLESS[kind], range(200))))
    with pytest.raises(WholeDoubt, match=r'seems to be a row .* --header "column_1,column_2') as doubt:
        look(path, fewest=1)
    assert "column_2" in str(doubt.value.choices[0]["header"])
    assert len(doubt.value.choices) == 1 + ("Doe" not in HEADERLESS[kind](0))
    assert doubt.value.look is not None
    policy = read_yaml(doubt.value.look.text)
    assert {name[:7] for name in policy["columns"]} == {"column_"}
    assert "of 200 rows" in doubt.value.look.text


def test_names_that_are_asked_for_count_empty_columns(tmp_path: Path) -> None:
    """In a workbook whose table begins at the second column, and has no header."""
    rows = [("fm"[i % 2], 20 + i % 40, "ABC"[i % 3]) for i in range(200)]
    cells = (
        f'<row r="{at}">'
        + "".join(
            f'<c r="{letter}{at}"><v>{value}</v></c>'
            if isinstance(value, int)
            else f'<c r="{letter}{at}" t="str"><v>{value}</v></c>'
            for letter, value in zip("BCD", row, strict=True)
        )
        + "</row>"
        for at, row in enumerate(rows, 1)
    )
    book(tmp_path / "t.xlsx", "".join(cells))
    with pytest.raises(WholeDoubt, match="seems to be a row") as doubt:
        look(tmp_path / "t.xlsx", csv=Dialect(sheet="Hinweise"), fewest=1)
    for number, choice in enumerate(doubt.value.choices):
        found = read_yaml(
            look(tmp_path / "t.xlsx", csv=Dialect.model_validate({"sheet": "Hinweise", **choice}), fewest=1).text
        )["columns"]
        names = ["column_2", "column_3", "column_4"] if number == 0 else ["f", "20", "A"]
        assert [found[name]["type"] for name in names] == ["categorical", "numeric", "categorical"]


def test_no_encoding_is_tried_where_no_letter_was_seen(tmp_path: Path) -> None:
    """Letters far down may be those of any alphabet."""
    (tmp_path / "t.csv").write_bytes(b"ort,n\n" + b"x,1\n" * 40_000 + "Москва,2\n".encode("cp1251") * 20_000)
    with pytest.raises(PolicyError) as refused:
        look(tmp_path / "t.csv", fewest=1)
    assert "windows-1252" not in str(getattr(refused.value, "choices", ()))


def test_a_moment_before_1970_has_its_own_day() -> None:
    """And not the next one, which programs write for none."""
    assert unusual_dates(-0.5, 20_000) == {}
    assert "1900-01-01" in unusual_dates(-25_567.0, 20_000)["lower"]


@pytest.mark.parametrize(
    "row",
    [
        lambda i: f"{'ABC'[i % 3]},{i % 2},{i * 7 % 5000}",
        lambda i: f"other,{['Bus', ''][i % 2]},{i * 7 % 50}",
        lambda i: f"{'ABC'[i % 3]},{i},{i / 7:.3f}",
    ],
)
def test_a_year_or_an_only_value_is_a_name(row: Callable[[int], str], tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ["other,Bus,2019", *map(row, range(200))])
    assert set(columns(path)) <= {"other", "Bus", "2019"}


WORDS_AND_VALUES: dict[str, tuple[str, Callable[[int], str]]] = {
    "months": ("ward,1,2,3,4,5,6", lambda i: f"{'ABC'[i % 3]},{','.join(str(i * k % 90) for k in range(6))}"),
    "the header on each page": (
        "ward,sex,age",
        lambda i: "ward,sex,age" if i % 40 == 0 else f"{'ABC'[i % 3]},{'mf'[i % 2]},{i % 50}",
    ),
}


@pytest.mark.parametrize("kind", WORDS_AND_VALUES)
def test_a_header_that_counts_or_stands_again_is_no_row(kind: str, tmp_path: Path) -> None:
    header, row = WORDS_AND_VALUES[kind]
    assert set(columns(written(tmp_path / "t.csv", [header, *map(row, range(200))]))) == set(header.split(","))


def test_names_of_fields_are_no_row_in_a_folder(tmp_path: Path) -> None:
    """A field of JSON is a name, whatever the folder that holds the files is called."""
    written(tmp_path / "t.jsonl", [f'{{"other": "{["other", "bus"][i % 2]}", "n": {i % 9}}}' for i in range(100)])
    assert set(columns(tmp_path)) == {"other", "n"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16 text.*iconv -f UTF-16LE"),
        ("a,b\n1,2\n".encode("utf-16-be"), "UTF-16 text.*iconv -f UTF-16BE"),
        ("a,b\n1,2\n".encode("utf-32"), "UTF-32 text"),
        (b"PK\x03\x04\x14\0", "name a workbook .xlsx"),
        (b"\x1f\x8b\x08\0", "end its name in .csv.gz"),
        (b"a,b\r1,2\r3,4\r", "where a carriage return does, convert it"),
        (b"'a','b'\n'1','x'\n'2','y'\n", "fields in single quotes: try --quote"),
        (b"ort,n\n\xcc\xee\xf1\xea\xe2\xe0,1\n", "-1251 .Cyrillic."),
    ],
)
def test_other_kinds_of_files_are_named(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(PolicyError, match=said):
        pinq.propose(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("encoding", "word", "tried"),
    [
        ("cp1252", "Köln", ["windows-1252"]),
        ("latin-1", "Orléans", ["windows-1252"]),
        ("cp1252", "España", ["windows-1252", "windows-1250"]),
        ("cp1250", "Łódź", ["windows-1250"]),
        ("cp1254", "İstanbul çocuk", ["windows-1254"]),
        ("cp1251", "Тверь", ["windows-1251"]),
        ("iso-8859-7", "Πάτρα Αθήνα Θεσσαλονίκη", ["windows-1253"]),
        ("cp852", "Łódź", []),
        ("gb18030", "北京", []),
        ("mixed", "Köln", []),
    ],
)
def test_an_encoding_is_tried_where_the_letters_are_its_own(
    encoding: str, word: str, tried: list[str], tmp_path: Path
) -> None:
    """Else no form is chosen by itself, and what is said names the others."""
    lines = ["town,n", *(f"{[word, 'Ulm'][i % 2]},{i % 9}" for i in range(100))]
    encodings = [encoding] if encoding != "mixed" else ["utf-8", "latin-1"]
    content = (line.encode(encodings[i // 2 % len(encodings)]) for i, line in enumerate(lines))
    (tmp_path / "t.csv").write_bytes(b"\n".join(content))
    with pytest.raises(WholeDoubt, match=r"windows-1250 .*-1251 \(Cyrillic\)") as doubt:
        look(tmp_path / "t.csv", fewest=5)
    assert doubt.value.choices == [{"encoding": name} for name in tried]
    assert ("Its letters fit cp" in str(doubt.value)) == (encoding == "cp852")
    for name in tried[:1]:
        shown = look(tmp_path / "t.csv", csv=Dialect.model_validate({"encoding": name}), fewest=5).first["town"]
        assert set(shown) == {word, "Ulm"}


@pytest.mark.parametrize(
    ("encoding", "words", "tried"),
    [
        ("cp1250", "Győr nő", "windows-1252 windows-1250"),
        ("cp1250", "Győr nő férfi özvegy Pécs", "windows-1250"),
        ("iso-8859-2", "Kraków Łódź mężczyzna", "iso-8859-2"),
        ("cp1250", "Třebíč Plzeň žena", "windows-1250"),
        ("cp1254", "Muğla", "windows-1252 windows-1250 windows-1254 windows-1257"),
        ("cp1254", "Muğla Şırnak kadın çocuk", "windows-1254"),
        ("cp1257", "Panevėžys vyras", "windows-1257"),
        ("koi8-r", "Тверь мужской", "koi8-r"),
        ("cp1251", "МОСКВА КАЗАНЬ", "windows-1251 koi8-r"),
        ("cp1251", "Ђорђе мушки", "windows-1251"),
        ("cp1252", "Þórshöfn Ísafjörður", "windows-1252"),
        ("cp1252", "5\u00a0m² 20 °C § 12,50 €", "windows-1252"),
        ("mac-roman", "Köln Gießen männlich", "mac-roman"),
        ("cp850", "Köln Gießen männlich", "cp850"),
        ("cp866", "Москва мужской", "cp866 cp737"),
        ("shift-jis", "東京 大阪", ""),
        ("cp1256", "القاهرة ذكر", ""),
        ("utf-8", "Köln", ""),
    ],
)
def test_letters_decide_between_encodings_as_far_as_they_can(encoding: str, words: str, tried: str) -> None:
    """Several are named where a text of each language may be meant; wrong letters are read by none."""
    assert encodings_of([words.encode(encoding)]) == tried.split()


@pytest.mark.parametrize(
    ("encoding", "usual", "seldom", "tried"),
    [
        ("cp1250", "Köln", "Łódź", "windows-1252 windows-1250"),
        ("cp1250", "Gießen", "Győr", "windows-1252 windows-1250"),
        ("cp1254", "Muğla", "Noël", "windows-1257 windows-1252 windows-1250 windows-1254"),
        ("cp1252", "Köln", "Škoda", "windows-1252"),
        ("cp1250", "Łódź", "Weiß", "windows-1250"),
        ("iso-8859-15", "Noël", "12 €", "iso-8859-15 windows-1257"),
    ],
)
def test_seldom_words_of_another_language_are_looked_at(encoding: str, usual: str, seldom: str, tried: str) -> None:
    """An encoding that reads them otherwise is named beside the one of most words."""
    blocks = [f"{usual}\n" * 95, "Ulm\n", f"{seldom}\n" * 5]
    assert encodings_of(block.encode(encoding) for block in blocks) == tried.split()


def test_letters_of_all_files_decide(tmp_path: Path) -> None:
    """However far from the beginning they stand."""
    for name, word in (("a.csv", "Pécs"), ("b.csv", "Győr")):
        lines = ["town,n", *(f"Ulm,{i % 9}" for i in range(12_000)), *(f"{word},{i % 9}" for i in range(1_000))]
        (tmp_path / name).write_bytes("\n".join(lines).encode("cp1250") + b"\n")
    with pytest.raises(WholeDoubt) as doubt:
        look(tmp_path / "*.csv", fewest=5)
    assert doubt.value.choices == [{"encoding": "windows-1252"}, {"encoding": "windows-1250"}]


def test_a_line_that_is_one_field_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ["age height weight", *(f"{i} {150 + i % 40} {i}.5" for i in range(100))])
    with pytest.raises(PolicyError, match="say what stands between them"):
        pinq.propose(path)


def test_a_header_may_be_any_text(tmp_path: Path) -> None:
    header = "district,2019,2020.5,2024-01-31,true,08:30"
    rows = [f"{'abc'[i % 3]},{i * 7 % 50},{i % 40}.5,{i * 3 % 30},{i % 2},{i * 11 % 60}" for i in range(200)]
    assert list(columns(written(tmp_path / "t.csv", [header, *rows]))) == header.split(",")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("age,sex,", "ends with a delimiter"),
        ("age,,sex", "no name for column 2 of 3"),
        ("age,sex,AGE", "names 'age' more than once"),
    ],
)
def test_a_header_that_names_no_columns_says_why(header: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=said):
        columns(written(tmp_path / "t.csv", [header, "1,m,3", "2,f,4"]))


def test_a_file_whose_header_differs_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    written(tmp_path / "parts" / "a.csv", ["age,sex", "1,m"])
    written(tmp_path / "parts" / "b.csv", ["sex,age", "m,1"])
    with pytest.raises(PolicyError, match=r"b\.csv differs .*its column 1 is 'sex', not 'age'"):
        columns(tmp_path / "parts" / "*.csv")


@pytest.mark.parametrize(
    ("usual", "other", "option"),
    [
        ("{n}", "{k}.{n}", '--decimal "," --thousands "."'),
        ("{n}", "{k},{n}", '--decimal ","'),
        ("{n}", "{k} {n}", '--thousands " "'),
        ("{n}.5", "{k},{n}.50", '--thousands ","'),
        ("2024-01-0{d}", "0{d}.02.2024", "--dates"),
        ("2024-01-0{d}", "2{d}/02/2024", "--dates"),
    ],
)
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_where_another_form_reads_more_it_is_asked_for(
    usual: str, other: str, option: str, share: float, tmp_path: Path
) -> None:
    """One value in a hundred is enough: those in the other form are the large ones, or the late ones, never random ones."""

    def value(i: int) -> str:
        form = other if i < share * 300 else usual
        return form.format(n=RANDOM.randint(100, 999), k=RANDOM.randint(1, 9), d=RANDOM.randint(1, 8))

    rows = [f"{value(i)};{'mf'[i % 2]}" for i in range(300)]
    with pytest.raises(PolicyError) as error:
        pinq.propose(written(tmp_path / "t.csv", ["x;sex", *rows]), csv=Dialect(delimiter=";"))
    assert option in str(error.value)


def test_a_code_with_an_underscore_is_no_number(tmp_path: Path) -> None:
    rows = [f"{i % 9}_{i % 4},{i}" for i in range(300)]
    found = columns(written(tmp_path / "t.csv", ["plot,n", *rows]))
    assert found.get("plot", {"type": "categorical"})["type"] == "categorical"
