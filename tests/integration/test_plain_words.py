# SPDX-License-Identifier: Apache-2.0
"""A mistake is answered in our words: never in those of a library behind, in a line that can be read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners.tables import correlation, histogram, where
from pinq import Categorical, Cross, Cuts, Date, DateTime, Numeric, PrivacyUnit, Schema, Values
from pinq.analyst.queryable import PrivateQueryable
from pinq.cli import base
from pinq.errors import PinqError, PolicyError, QueryError
from pinq.language.queries import Request
from pinq.policy.dialect import Dialect
from pinq.policy.policy import Policy
from pinq.public.plugins import EXTRAS, install_line
from tests.support.processes.commands import failed, run

FOREIGN = re.compile(
    r"Input should|Value error|pydantic|valid (dictionary|tuple|string|integer)|Field required|<unicode string>|Errno|"
    r"<class|<function|object at 0x|unable to|Extra inputs|: : |_ssl\.c|PEM lib|[A-Z][a-z]+ Error: |not a database"
)
WRONG: tuple[Any, ...] = (
    None,
    "x",
    "",
    0,
    -1,
    1.5,
    math.nan,
    math.inf,
    True,
    [],
    ["a", "a"],
    {},
    {"a": 1},
    object,
    b"",
)
VALID: dict[type, dict[str, Any]] = {
    Numeric: {"lower": 0, "upper": 9},
    Categorical: {"values": ("a", "b")},
    Date: {"lower": "2024-01-01", "upper": "2024-12-31"},
    DateTime: {"lower": "2024-01-01 00:00", "upper": "2024-12-31 00:00"},
    PrivacyUnit: {"column": "person", "max_rows": 2},
    Schema: {"columns": {"a": Numeric(lower=0, upper=1)}, "max_rows": 3},
    Policy: {"dataset": "d", "cap": 1, "columns": {"a": Numeric(lower=0, upper=1)}, "max_rows": 3},
}


def _said(wrong: Callable[[], object]) -> str:
    """The error of a mistake; empty where it is none."""
    try:
        wrong()
    except PinqError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", VALID, ids=lambda kind: kind.__name__)
def test_no_declaration_is_refused_in_the_words_of_its_model(kind: Any) -> None:
    """Each field with each kind of wrong value, without it, and with a key that there is not."""
    valid = VALID[kind]
    changes = [valid | {name: value} for name in kind.model_fields for value in WRONG]
    changes += [{name: value for name, value in valid.items() if name != left} for left in valid]
    for change in [*changes, valid | {"sorce": 1}]:
        said = _said(partial(kind, **change))
        assert not FOREIGN.search(said), said
    assert _said(lambda: kind(**valid)) == ""


@pytest.mark.parametrize("field", Dialect.model_fields)
def test_no_policy_is_refused_in_the_words_of_its_model(tmp_path: Path, field: str) -> None:
    for value in ("{}", "[]", "-1", "1.5", "x y", "[[1]]", "~"):
        text = f"dataset: d\nsource: d.csv\ncap: 1\nmax_rows: 3\ncolumns: {{a: {{type: numeric, lower: 0, upper: 1}}}}\ncsv: {{{field}: {value}}}\n"
        (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
        said = _said(lambda: pinq.load_policy(tmp_path / "p.yaml"))
        assert not FOREIGN.search(said), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: 'x\nb: 3",
            "line 2, column 5: found unexpected end of stream (while scanning a quoted scalar, from line 1).",
        ),
        ("a: x\n  b: 3", "line 2, column 4: mapping values are not allowed"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' stands twice."),
        ("\ta: b\n", "line 1, column 1: found character"),
        ("a: *b\n", "line 1, column 4: found undefined alias"),
        ("a: 1\n---\nb: 1\n", "line 2, column 1: but found another document"),
    ],
)
def test_a_fault_of_yaml_has_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=re.escape(f"is not valid YAML: {said}")) as raised:
        pinq.load_policy(tmp_path / "p.yaml")
    assert not FOREIGN.search(str(raised.value))


def test_what_is_no_policy_is_told_what_may_be_meant(tmp_path: Path) -> None:
    """A folder, an address, a table behind the file, a name that is nearly right; arguments in the wrong order too."""
    (tmp_path / "clinic.yaml").write_text("", encoding="utf-8")
    for given, said in (
        (tmp_path, f"{tmp_path} is a folder; name a policy in it: clinic.yaml."),
        ("https://h:8443/clinic", "the address of a server is for pinq.connect"),
        (tmp_path / "clinic.yaml#visits", f"Name {tmp_path / 'clinic.yaml'}; here its table 'visits'"),
        (tmp_path / "klinik.yaml", "proposes one; there are: clinic.yaml."),
        (tmp_path / "none" / "x.yaml", "x.yaml` proposes one."),
    ):
        failed(run("check", given), said)


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_module_that_is_missing_is_told_its_line(extra: str) -> None:
    """The command has no list of its own that could lack one."""
    for package in EXTRAS[extra]:
        said = base._missing(ModuleNotFoundError(f"No module named {package!r}", name=package))
        assert said.startswith(f"This needs {package}: pip install ")
    own = f"reading needs it: {install_line(extra)}"
    assert base._missing(ModuleNotFoundError(own, name=EXTRAS[extra][0])) in (own, said)
    assert base._missing(ModuleNotFoundError("no", name="unknown")) == ""


COLUMNS = {name: Numeric(lower=0, upper=100) for name in ("x", "y")} | {"z": Categorical(values=("a", "b"))}


@pytest.fixture
def handle() -> PrivateQueryable:
    """A handle on invented rows."""
    return pinq.simulate(Schema(columns=COLUMNS, max_rows=100), rows=50, epsilon=10)


@pytest.mark.parametrize(
    "given",
    [
        Values,
        len,
        lambda row: row,
        pd.Series([0.1, 0.2]),
        np.arange(5000),
        pd.DataFrame({"x": range(300)}),
        "x" * 5000,
        {"x": [1] * 3000},
        Cross((Cuts("x", tuple(np.linspace(1, 99, 1500))), Cuts("y", tuple(np.linspace(1, 99, 1500))))),
        Cross((Values("z"), Values("z"))),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_does_not_fit_is_named_in_one_short_line(handle: PrivateQueryable, given: Any) -> None:
    """In any place, whatever it is: a function, a table, a spec of thousands of cuts."""
    for wrong in (
        lambda: handle.partition(given).noisy_count(epsilon=0.1),
        lambda: handle.exp_mech([given], score=pinq.Gini("z"), epsilon=0.1),
        lambda: handle.noisy_avg(given, epsilon=0.1),
        lambda: handle.noisy_count(epsilon=given),
        lambda: handle.partition(Values("z"))[given],
        lambda: handle.preview(given, epsilon=0.1),
        lambda: handle.history(start=given),
        lambda: handle.cohort(given),
        lambda: pinq.simulate(handle.schema, rows=given, epsilon=1),
    ):
        with pytest.raises(QueryError) as raised:
            wrong()
        said = str(raised.value)
        assert len(said) < 420, said
        assert "\n" not in said
        assert not FOREIGN.search(said), said
    assert handle.budget.spent == 0


def test_a_call_that_lacks_something_is_told_what_to_write(handle: PrivateQueryable) -> None:
    """Also through ``preview``; and a verb that is called otherwise elsewhere is its own, not one that is spelled alike."""
    for verb, lacks in (("noisy_count", "epsilon"), ("noisy_avg", "column"), ("exp_mech", "score")):
        words = {} if lacks == "epsilon" else {"epsilon": 0.1}
        with pytest.raises(QueryError, match=f"{verb}: missing a required .*argument: '{lacks}'; write preview"):
            handle.preview(verb, **words)
    for name, verb in (("noisy_mean", "noisy_avg"), ("noisy_size", "noisy_count"), ("noisy_total", "noisy_sum")):
        with pytest.raises(QueryError, match=rf"has no `{name}`\. To .*\n.*h\.{verb}\("):
            getattr(handle, name)
    with pytest.raises(QueryError, match="'x' is named twice; name each column once"):
        correlation(handle, ["x", "x"], epsilon=0.1)
    for given in ({"x": (20, 30)}, "x > 30", pd.Series([True])):
        with pytest.raises(QueryError, match=r"takes 1 positional argument.*write where\(handle, \*\*conditions\)"):
            where(handle, given)  # type: ignore[call-arg]
    kinds: tuple[tuple[Any, str], ...] = ((Categorical, r"values=\.\.\."), (Numeric, r"lower=\.\.\., upper=\.\.\."))
    for kind, needed in kinds:
        with pytest.raises(QueryError, match=rf"^{kind.__name__} takes each value by its name: \({needed}\)\.$"):
            kind(("a", "b"))
    table = histogram(handle, "x", bins=2, epsilon=0.1)
    with pytest.raises(QueryError, match="`ax` is 'bars'; it must be axes of matplotlib"):
        table.plot("bars")  # type: ignore[arg-type]
    for wrong in ("vlaue", 0, None):
        with pytest.raises(KeyError, match=r"is no column of this table.*it has x, value, low, high"):
            table[wrong]  # type: ignore[index]


REQUEST: dict[str, Any] = {"id": "a" * 16, "verb": "noisy_avg", "column": "x", "epsilon": "0.1"}


@pytest.mark.parametrize("field", [*REQUEST, "path", "specs", "candidates", "score", "eps"])
def test_no_request_is_refused_in_the_words_of_its_model(field: str) -> None:
    """Also one that is no JSON at all: other clients read these texts."""
    for value in (*WRONG[:-2], {"kind": "new"}, [[{"kind": "values"}]], [{"kind": "cuts", "column": 3}]):
        said = _said(partial(Request.received, json.dumps(REQUEST | {field: value})))
        assert not FOREIGN.search(said), said
    for text in ("", "hello", "[1]", "3", "{}", "\x00"):
        said = _said(partial(Request.received, text))
        assert said.startswith("the request is malformed: ")
        assert not FOREIGN.search(said), said


def test_a_part_of_a_request_is_missed_by_its_own_name() -> None:
    """Not by that of another declaration's."""
    for field, value in (("score", {"x": 1}), ("candidates", [[{"x": 1}]]), ("parts", {"specs": [{}]})):
        assert "`kind` is missing" in _said(partial(Request.received, json.dumps(REQUEST | {field: value})))
    wrong = REQUEST | {"score": {"kind": "new"}}
    assert "`kind` is 'new'; it must be one of '" in _said(partial(Request.received, json.dumps(wrong)))


def test_a_number_of_thousands_of_digits_is_refused_like_any_other() -> None:
    """Python does not write it."""
    schema, huge = Schema(**VALID[Schema]), 10**5000
    for call in (partial(schema.column, huge), partial(Schema, columns=schema.columns, max_rows=huge)):
        assert "a number of thousands of digits" in _said(call)
    for cut in (huge, -huge):
        assert "a number of thousands of digits" in _said(partial(Cuts, "a", (cut,)))
        assert "a number of thousands of digits" in _said(partial(schema.numeric("a").threshold, cut, "a"))
    assert "a number of thousands of digits" in _said(partial(Categorical(values=("a", "b")).code_of, huge, "z"))


def test_nothing_is_set_on_a_handle(handle: PrivateQueryable) -> None:
    """A mistyped name would change nothing, and nobody would see it."""
    for target in (handle, handle.partition(Values("z"))):
        for name in ("anything", "budget", "epsilon"):
            with pytest.raises(QueryError, match=f"`{name}` cannot be set on it"):
                setattr(target, name, 3)


SECRET = "hush-hush"


@pytest.mark.parametrize(
    "url",
    [
        f"https://ana:{SECRET}@host:8443/stays",
        f"https://{SECRET}@host:8443/stays",
        f"https://host:8443/stays?token={SECRET}",
        f"https://host:8443/stays#{SECRET}",
        f"https://host:{SECRET}/stays",
        f"{SECRET}",
        f"ana:{SECRET}@host/stays",
        f"postgresql+psycopg://ana:{SECRET}@127.0.0.1:1/db",
        f"postgresql+psycopg://ana:{SECRET}@x@127.0.0.1:1/db",
    ],
)
def test_no_secret_of_an_address_is_said_again(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password, a token in the place of an address: errors are copied into mails, and logs keep them."""
    monkeypatch.setenv("PINQ_TOKEN", "pinq_" + "x" * 43)
    monkeypatch.setenv("SECRET_URI", url)
    said = [_said(partial(pinq.connect, url)), _said(partial(pinq.connect, url, insecure_http=True))]
    for words in (
        ("query", url, "count", "--epsilon", "1", "--analyst", "a"),
        ("mcp", url, "--per-call", "1", "--per-session", "1"),
        ("audit", "--ledger", url),
        ("init", "visits", "--uri-env", "SECRET_URI"),
    ):
        said.append(run(*words).output if "://" in url or words[0] == "init" else "")
    assert SECRET not in "".join(said)
    assert FOREIGN.search("".join(said)) is None


def test_options_that_say_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file of another kind, of a target without an address, of an output of another form."""
    monkeypatch.chdir(tmp_path)
    Path("d.csv").write_text("a,b\n" + "1,x\n2,y\n" * 40, encoding="utf-8")
    Path("d.jsonl").write_text('{"a": 1}\n' * 40, encoding="utf-8")
    for file, option, value in (("d.csv", "--sheet", "A"), ("d.jsonl", "--delimiter", ";"), ("d.jsonl", "--skip", "1")):
        failed(run("init", file, option, value), f"{file} is no file of which {option}")
    failed(run("init", "d.csv", "--delimiter", ";"), "it looks like fields separated by ',': try --delimiter ','")
    failed(run("init", "d.CSV"), "d.CSV (did you mean 'd.csv'?).")
    failed(run("init", "d.csv", "--fewest", "0"), "--fewest is 0; it must be a whole number from 1")
    refused: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("p.pdf must end in .yaml or .yml", ("init", "d.csv", "-o", "p.pdf")),
        ("p.pdf must end in .txt or .json or .csv or .html", ("audit", "p.yaml", "-o", "p.pdf")),
        ("p.html must end in .json", ("audit", "p.yaml", "--json", "-o", "p.html")),
        ("--key goes with --expect FILE or with --head", ("audit", "p.yaml", "--key", "k.pub")),
        ("p.pdf must end in .html or .htm", ("statement", "p.yaml", "-o", "p.pdf")),
        ("--name hospital.example", ("head-key", "k.key")),
        ("it is 'x'; it must be a whole number", ("init", "d.csv", "--skip", "x")),
        ("begins with https://", ("query", "host:8443/stays", "count", "--epsilon", "1")),
    )
    for said, line in refused:
        failed(run(*line), said, status=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "d.jsonl"]


def test_a_policy_in_a_folder_with_points_is_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study-2024.05.v2").mkdir()
    failed(run("query", "study-2024.05.v2/people.yaml", "count", "--epsilon", "1", "--analyst", "a"), "There is no", 1)


def test_each_file_that_is_no_ledger_and_no_certificate_is_named_so(tmp_path: Path) -> None:
    other = tmp_path / "d.csv"
    other.write_text("a,b\n1,x\n", encoding="utf-8")
    for words in (
        ("audit", "--ledger", other),
        ("check", other),
        ("serve", other, "--tls-cert", other, "--tls-key", other),
        ("query", "https://host/d", "count", "--epsilon", "1", "--verify", other, "--token-file", other),
        ("workbench", other),
        ("workbench", tmp_path / "nowhere"),
        ("workbench", tmp_path, "--origin", "nonsense"),
        ("workbench", tmp_path, "--token-file", other),
        ("audit", "--ledger", other, "--since", "2025-01-01", "--until", "2024-01-01"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
        assert not FOREIGN.search(result.output), result.output
