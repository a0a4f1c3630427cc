# SPDX-License-Identifier: Apache-2.0
"""Delimited text at its edges: dialects, headers, broken files. That lines do not concern each other: tests/property/test_lines.py."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import pinq
from pinq.engine import Lines, open_engine, sources
from pinq.engine.delimited import MAX_LINE, DelimitedFiles
from pinq.engine.sources import OpenSource, Piece
from pinq.errors import PolicyError, QueryError
from pinq.policy.dialect import Dialect
from pinq.policy.policy import Policy
from pinq.provider import grants as provider
from pinq.provider.check import check
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.proposal import propose
from pinq.server.datasets import Dataset
from tests.support.requests.handles import encoded_rows, engine_over

COLUMNS = {"a": {"type": "categorical", "values": ["x", "other"]}, "b": {"type": "categorical", "values": [0, 1]}}


def policy(folder: Path, source: str = "t.csv", columns: dict[str, Any] = COLUMNS, **fields: Any) -> Policy:
    return Policy(
        **{"dataset": "t", "source": source, "cap": 10, "max_rows": 10_000, "columns": columns, "folder": folder}
        | fields
    )


def rows_of(file: Path, content: bytes, **dialect: Any) -> tuple[list[list[str | None]], Lines]:
    file.write_bytes(content)
    files, lines = DelimitedFiles([file], Dialect(**dialect)), Lines()
    return [
        list(row)
        for table in files.read(files.names, lines)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ], lines


def codes(loaded: Policy) -> list[tuple[int, ...]]:
    engine = engine_over(loaded, salt=b"")
    found = encoded_rows(engine)
    engine.close()
    return sorted(found)


class TestOneStrayQuote:
    """Five hundred lines, of which one begins with a quote that nothing closes."""

    @pytest.fixture(params=[("t.csv", ","), ("t.tsv", "\t")])
    def broken(self, request: Any, tmp_path: Path) -> Policy:
        name, sign = request.param
        lines = [f"a{sign}b", *(f"x{sign}{i % 2}" for i in range(500))]
        lines[100] = f'"x{sign}0'
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return policy(tmp_path, name)

    def test_costs_its_own_row_and_is_counted(self, broken: Policy) -> None:
        report = check(broken)
        assert (report.source_rows, report.encoded_rows, sum(report.unreadable.values())) == (500, 499, 1)
        assert report.ready
        assert (
            "1 of 500 lines cannot be read (0.2 %): 1 with a quote that is not closed, or that text follows (such as line 101 of t."
            in report.advice[0]
        )
        assert len(codes(broken)) == 499

    def test_is_refused_beyond_the_share(self, broken: Policy) -> None:
        strict = broken.model_copy(update={"csv": Dialect(max_unreadable=0.001)})
        report = check(strict)
        assert not report.ready
        assert "the policy allows 0.1 % (`csv: {max_unreadable: 0.001}`)" in report.problems[0]
        with pytest.raises(PolicyError, match="cannot be read than its policy allows") as refused:
            provider.grant(strict, "ana", 1)
        with pytest.raises(PolicyError, match="The source has no column 'c'"):
            provider.grant(broken.model_copy(update={"columns": COLUMNS | {"c": COLUMNS["a"]}}), "ana", 1)
        assert not list(broken.folder.glob("*.ledger"))
        provider.grant(broken, "ana", 1)
        for opening in (
            lambda: pinq.open(strict, analyst="ana"),
            lambda: Dataset.open(strict),
            lambda: open_engine(strict, salt=b""),
        ):
            with pytest.raises(PolicyError) as error:
                opening()
            assert str(error.value) == str(refused.value)
            assert not any(sign.isdigit() for sign in str(error.value))


def test_the_share_is_of_all_lines(tmp_path: Path) -> None:
    """Exactly the allowed share opens; one line more does not, and empty lines count for nothing."""
    for lost, ready in ((2, True), (3, False)):
        (tmp_path / "t.csv").write_text("a,b\n" + "x,1\n\n" * (200 - lost) + "x\n" * lost)
        assert check(policy(tmp_path)).ready is ready


def test_a_line_may_be_so_long_and_no_longer(tmp_path: Path) -> None:
    """Across blocks, with and without a carriage return where the reader cuts, and after it all goes on as before."""
    fits = b"y" * (MAX_LINE - len(b",1\n")) + b",1\n"
    longer = [
        b"y" + fits,
        b"y" * (MAX_LINE - 1) + b"\r,1\n",
        b"y" * 3 * MAX_LINE + b",1\n",
        b'"' + b"y" * 20 * MAX_LINE + b",1\n",
        b"," * 3 * MAX_LINE + b"\n",
        b"y" * MAX_LINE + b"\r\r\n",
    ]
    content = b"a,b\n" + b"".join(fits + line + b"x,0\n" for line in longer)
    rows, lines = rows_of(tmp_path / "t.csv", content)
    assert [row[1] for row in rows] == ["1", "0"] * len(longer)
    assert (lines.total, lines.lost) == (3 * len(longer), len(longer))
    rows, lines = rows_of(tmp_path / "t.csv", b"a,b\n" + b"\xe9" * (MAX_LINE // 2) + b",1\nx,0\n", encoding="latin-1")
    assert (rows, lines.lost) == ([["x", "0"]], 1)


@pytest.mark.parametrize(
    ("content", "dialect", "want"),
    [
        (b"a;b\n1,5;x\n", {"delimiter": ";"}, [["1,5", "x"]]),
        ("a,b\né,ß\n".encode("latin-1"), {"encoding": "latin-1"}, [["é", "ß"]]),
        ("größe,b\n€,2\n".encode("windows-1252"), {"encoding": "windows-1252"}, [["€", "2"]]),
        (b"a,b\n'x,y','it''s'\n\"x,1\n", {"quote": "'"}, [["x,y", "it's"], ['"x', "1"]]),
        (b'a,b\n"x,1\n', {"quote": ""}, [['"x', "1"]]),
        (b"\xef\xbb\xbfx,1\ny,\n", {"header": ["a", "b"]}, [["x", "1"], ["y", None]]),
        (b'a\r\nx\r\n\r\n""\r\ny', {}, [["x"], [None], ["y"]]),
        (b'\xef\xbb\xbf"a,""1""",b\nx,1\n', {}, [["x", "1"]]),
        (b"a,b\n\xef\xbb\xbfx,NULL\n", {}, [["\ufeffx", "NULL"]]),
        (b"a,b\n", {}, []),
    ],
)
def test_dialects(content: bytes, dialect: dict[str, Any], want: list[list[str | None]], tmp_path: Path) -> None:
    """Each part of a dialect does what it says."""
    rows, lines = rows_of(tmp_path / "t.csv", content, **dialect)
    assert (rows, lines.lost) == (want, 0)


def test_an_encoding_has_pythons_other_names_too() -> None:
    assert Dialect(encoding="cp1252") == Dialect(encoding="windows-1252")  # type: ignore[arg-type]
    assert Dialect(encoding="ISO-8859-1").encoding == "latin-1"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ({"delimiter": "ab"}, "must be a tab, or one sign of ASCII"),
        ({"delimiter": "a"}, "must be a tab, or one sign of ASCII"),
        ({"delimiter": '"'}, "must be a tab"),
        ({"delimiter": "\n"}, "must be a tab"),
        ({"delimiter": "é"}, "must be a tab"),
        ({"quote": "`"}, "quote"),
        ({"decimal": ";"}, "decimal"),
        ({"decimal": ",", "thousands": ","}, "must differ"),
        ({"encoding": "utf-16"}, "encoding"),
        ({"header": False}, "name the columns"),
        ({"header": []}, "header"),
        ({"header": ["a", ""]}, "a name is empty"),
        ({"max_unreadable": 1.5}, "max_unreadable"),
        ({"max_unreadable": float("nan")}, "max_unreadable"),
        ({"escape": "\\"}, "escape"),
    ],
)
def test_wrong_dialects(dialect: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Each key has its bound, in a policy as in Python."""
    with pytest.raises(QueryError, match=text):
        Dialect(**dialect)
    (tmp_path / "p.yaml").write_text(
        yaml.safe_dump({"dataset": "t", "source": "t.csv", "cap": 1, "max_rows": 9, "csv": dialect, "columns": COLUMNS})
    )
    with pytest.raises(PolicyError, match=text):
        load_policy(tmp_path / "p.yaml")


@pytest.mark.parametrize("source", [None, "t.parquet", {"database": "t.duckdb", "table": "t"}])
def test_only_text_has_a_dialect(source: Any, tmp_path: Path) -> None:
    """A key that nothing reads would say what is not so."""
    with pytest.raises(QueryError, match="this source is none"):
        policy(tmp_path, source, csv={"delimiter": ";"})


def test_any_name_of_a_text_file_will_do_under_a_dialect(tmp_path: Path) -> None:
    """Such as adult.data, which names no columns."""
    (tmp_path / "t.data").write_text("x, 1\nx, 0\n")
    columns = {"a": COLUMNS["a"], "b": {"type": "numeric", "lower": 0, "upper": 1, "integer": True}}
    assert codes(policy(tmp_path, "t.data", columns, csv={"header": ["a", "b"]})) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty; its first line must name the columns"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\n\n", "begins with an empty line"),
        ("é,b\n1,2\n".encode("latin-1"), "no utf-8; try --encoding latin-1"),
        ("a,b\n".encode("utf-16"), "UTF-16 text, which is not read"),
        (b"a,b\r1,2\r", "carriage return"),
        (b'"a,b\n1,2\n', "a quote that is not closed"),
        (b"a,A\n", "names .a. more than once"),
        (b"a,,b\n", "no name for column 2 of 3"),
        (b"a" * MAX_LINE + b"\n", "longer than"),
    ],
)
def test_headers_that_name_no_columns(content: bytes, text: str, tmp_path: Path) -> None:
    """A header is the file's and nobody's row, so it may be an error for all."""
    (tmp_path / "t.csv").write_bytes(content)
    for action in (
        lambda: open_engine(policy(tmp_path), salt=b""),
        lambda: propose(tmp_path / "t.csv"),
        lambda: check(policy(tmp_path)),
    ):
        with pytest.raises(PolicyError, match=text):
            action()


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(b"a,b\nx,1\n" * 9999)[:-20]])
def test_archives_that_cannot_be_unpacked(content: bytes, tmp_path: Path) -> None:
    """The file is named, and what is wrong with it."""
    (tmp_path / "t.csv.gz").write_bytes(content)
    with pytest.raises(PolicyError, match=r"t\.csv\.gz cannot be read"):
        open_engine(policy(tmp_path, "t.csv.gz"), salt=b"")


def test_what_a_file_is_called_decides(tmp_path: Path) -> None:
    """The real name of the first file, behind links and patterns."""
    (tmp_path / "people.CSV").write_text("a,b\nx,1\n")
    (tmp_path / "link").symlink_to("people.CSV")
    for source in ("people.CSV", "link", "peo*", "*.CSV"):
        assert codes(policy(tmp_path, source)) == [(0, 1)]
    (tmp_path / "csv").write_text("a,b\nx,1\n")
    with pytest.raises(PolicyError, match="cannot be read"):
        open_engine(policy(tmp_path, "csv"), salt=b"")


def test_files_of_one_source_share_a_header(tmp_path: Path) -> None:
    """Rows of both are read, and lines are named by their own file."""
    (tmp_path / "p-1.csv").write_text("a,b\nx,1\n")
    (tmp_path / "p-2.csv").write_text("a,b\nx,0\n\n\nx\nx,1")
    assert codes(policy(tmp_path, "p-*.csv", csv={"max_unreadable": 0.5})) == [(0, 0), (0, 1), (0, 1)]
    assert "such as line 5 of p-2.csv" in check(policy(tmp_path, "p-*.csv")).problems[0]
    (tmp_path / "p-2.csv").write_text("b,a\n1,x\n")
    with pytest.raises(PolicyError, match="all files of a source must share it"):
        open_engine(policy(tmp_path, "p-*.csv"), salt=b"")


def test_large_files_are_never_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same codes as in memory; no raw row is written while they are encoded, and where a proposal spills goes with it."""
    (tmp_path / "t.csv").write_text("a,b,c\n" + "x,1,secret-word\nother,0,secret-word\n" * 5000)
    small = codes(policy(tmp_path, csv={"delimiter": ","}))
    text = propose(tmp_path / "t.csv")
    scratch: list[Path] = []
    made, forget = tempfile.TemporaryDirectory, OpenSource.pieces

    def noted(**words: Any) -> Any:
        folder = made(**words)
        scratch.append(Path(folder.name))
        return folder

    def watched(source: OpenSource, files: Sequence[Path]) -> Iterator[Piece]:
        for piece in forget(source, files):
            yield piece
            written = [file for folder in scratch for file in folder.rglob("*") if file.is_file()]
            assert not any(b"secret-word" in file.read_bytes() for file in written)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sources, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(sources, "SMALL_BYTES", 0)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", noted)
    monkeypatch.setattr(OpenSource, "pieces", watched)
    columns = COLUMNS | {
        "c": {"type": "numeric", "lower": 0, "upper": 1, "nullable": True}
    }  # the word is no number, so missing
    engine, report = open_engine(policy(tmp_path, columns=columns), salt=b"", report=True)
    assert report is not None
    assert (report.source_rows, report.encoded_rows) == (10_000, 10_000)
    engine.close()
    assert codes(policy(tmp_path)) == small
    assert propose(tmp_path / "t.csv") == text
    assert scratch
    assert not any(folder.exists() for folder in scratch)


NUMBERS = [
    "3",
    "3,5",
    "3.5",
    "1.234,5",
    "1,234.5",
    "1.234",
    "1,234",
    "1.234.567",
    "1.23.4",
    "-1.234,5",
    " 7 ",
    "1'234",
    "12.34,5",
    "1.234,5.6",
    "nan",
    "x",
    "",
]


@pytest.mark.parametrize(
    ("dialect", "want"),
    [
        ({}, [3, None, 3.5, None, None, 1.234, None, None, None, None, 7, None, None, None, None, None, None]),
        (
            {"decimal": ","},
            [3, 3.5, None, None, None, None, 1.234, None, None, None, 7, None, None, None, None, None, None],
        ),
        (
            {"decimal": ",", "thousands": "."},
            [3, 3.5, None, 1234.5, None, 1234, 1.234, 1234567, None, -1234.5, 7, None, None, None, None, None, None],
        ),
        (
            {"thousands": ","},
            [3, None, 3.5, None, 1234.5, 1.234, 1234, None, None, None, 7, None, None, None, None, None, None],
        ),
        (
            {"thousands": "'"},
            [3, None, 3.5, None, None, 1.234, None, None, None, None, 7, 1234, None, None, None, None, None],
        ),
    ],
)
def test_numbers_are_spelled_as_declared(dialect: dict[str, Any], want: list[float | None], tmp_path: Path) -> None:
    """What another spelling would read is no number, and counts as missing."""
    (tmp_path / "t.csv").write_text("a;b\n" + "".join(f"{number};1\n" for number in NUMBERS))
    columns = {"a": {"type": "numeric", "lower": -2_000, "upper": 1_300_000, "step": "0.5", "nullable": True}}
    loaded = policy(tmp_path, columns=columns, csv={"delimiter": ";"} | dialect)
    found = sorted(code for (code,) in codes(loaded))
    column = loaded.schema_.numeric("a")
    missing = column.null_code
    assert missing is not None
    assert found == sorted(missing if number is None else int((number + 2_000) * 2) for number in want)


class TestInit:
    """What ``pinq init`` says of text that seems to be written otherwise, and what it writes down."""

    def propose(self, tmp_path: Path, content: str, csv: Dialect | None = None) -> str:
        (tmp_path / "t.csv").write_text(content)
        return propose(tmp_path / "t.csv", folder=tmp_path, csv=csv, fewest=1)

    def test_names_the_delimiter_between_quoted_names(self, tmp_path: Path) -> None:
        """To the comma that is taken for granted, such a header is a quote that text follows."""
        with pytest.raises(PolicyError, match=r"that text follows; it looks like fields separated by ';': try"):
            self.propose(tmp_path, '"name";"age"\n"Ada";"3"\n')

    @pytest.mark.parametrize("sign", [";", "\t", "|"])
    def test_names_the_delimiter(self, sign: str, tmp_path: Path) -> None:
        shown = "tab" if sign == "\t" else f"'{sign}'"
        with pytest.raises(PolicyError) as error:
            self.propose(tmp_path, f"name{sign}age\nAda{sign}3\n")
        assert f"it looks like fields separated by {shown}: try --delimiter {shown}" in str(error.value)
        with pytest.raises(PolicyError, match="it looks like fields separated by"):
            open_engine(policy(tmp_path), salt=b"")
        assert "  age:" in self.propose(tmp_path, f"name{sign}age\nAda{sign}3\n", Dialect(delimiter=sign))

    @pytest.mark.parametrize(
        ("values", "stated", "options"),
        [
            (["3,5", "4,25"], {}, '--decimal ","'),
            (["1.234,5", "3,5"], {}, '--decimal "," --thousands "."'),
            (["1.234,5", "3,5"], {"decimal": ","}, '--thousands "."'),
            (["1,234,567", "12"], {}, '--thousands ","'),
            (["1 234", "12 000"], {}, '--thousands " "'),
        ],
    )
    def test_names_the_spelling_of_numbers(
        self, values: list[str], stated: dict[str, Any], options: str, tmp_path: Path
    ) -> None:
        content = "a;b\n" + "".join(f"{value};x\n" for value in values)
        with pytest.raises(PolicyError) as error:
            self.propose(tmp_path, content, Dialect(delimiter=";", **stated))
        assert f'The values of "a" look like numbers in another spelling: try {options}.' in str(error.value)
        kept = self.propose(tmp_path, content, Dialect(delimiter=";", decimal=".", thousands=None))
        assert yaml.safe_load(kept)["columns"]["a"]["type"] == "categorical"

    def test_one_column_may_have_any_name(self, tmp_path: Path) -> None:
        assert "  a,b:" in self.propose(tmp_path, '"a,b"\n3\n4\n')
        assert "  a;b:" in self.propose(tmp_path, "a;b\n3\n4\n", Dialect(delimiter=","))

    def test_a_few_such_texts_are_texts(self, tmp_path: Path) -> None:
        assert "csv:" not in self.propose(tmp_path, "a,b\n" + '"1,5",x\n' + "word,y\n" * 9)

    def test_writes_what_was_stated_and_check_agrees(self, tmp_path: Path) -> None:
        content = "name;income\n" + "".join(f"{name};1.{i:03},50\n" for i, name in enumerate(["Ada", "Bo"] * 100))
        stated = Dialect(delimiter=";", decimal=",", thousands=".", encoding="latin-1")
        text = self.propose(tmp_path, content, stated)
        assert yaml.safe_load(text)["csv"] == {
            "delimiter": ";",
            "decimal": ",",
            "thousands": ".",
            "encoding": "latin-1",
        }
        (tmp_path / "p.yaml").write_text(text)
        loaded = load_policy(tmp_path / "p.yaml")
        assert loaded.csv == stated
        assert loaded.columns["income"].type == "numeric"
        report = check(loaded)
        assert (report.encoded_rows, report.left_out["income"], report.clamped["income"]) == (200, 0, 0)

    def test_counts_lines_that_cannot_be_read(self, tmp_path: Path) -> None:
        content = "a,b\n" + "x,1\n" * 196 + 'y,0\n"x,1\n'
        text = self.propose(tmp_path, content)
        assert (
            "# Some lines cannot be read and are left out; `pinq check` counts them: lines with a quote that is not closed"
            in text
        )
        (tmp_path / "p.yaml").write_text(text)
        report = check(tmp_path / "p.yaml")
        assert (report.source_rows, report.encoded_rows, sum(report.unreadable.values())) == (198, 197, 1)
        assert not any("max_rows (" in problem for problem in report.problems)
        with pytest.raises(
            PolicyError,
            match=r"2 of 4 lines cannot be read \(50 %\): 2 with another number of fields than 2 \(such as line 3 of t.csv\)",
        ):
            self.propose(tmp_path, "a,b\nx,1\nx\nx,1,2\nx,0\n")
        assert "max_unreadable: 0.5" in self.propose(tmp_path, "a,b\nx,1\nx\nx,1,2\nx,0\n", Dialect(max_unreadable=0.5))

    def test_names_the_encoding(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes("a,b\nx,é\n".encode("latin-1"))
        with pytest.raises(PolicyError, match=r"1 whose bytes are no utf-8 .* try --encoding latin-1"):
            propose(tmp_path / "t.csv")

    def test_a_dialect_is_for_text(self, tmp_path: Path) -> None:
        with pytest.raises(PolicyError, match=r"t\.parquet is no delimited text"):
            propose(tmp_path / "t.parquet", csv=Dialect(delimiter=";"))


def test_changing_the_dialect_keeps_the_ledger(tmp_path: Path) -> None:
    """The schema is what a ledger knows; how a file is written is not part of it."""
    (tmp_path / "t.csv").write_text("a,b\nx,1\n")
    open_ledger(policy(tmp_path)).close()
    assert policy(tmp_path).schema_.digest == policy(tmp_path, csv={"quote": ""}).schema_.digest
    open_ledger(policy(tmp_path, csv={"quote": ""})).close()
