# SPDX-License-Identifier: Apache-2.0
"""What the documents say is true of the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
import typer
from pydantic import BaseModel
from typer.testing import CliRunner

import miners.statistics
import miners.tables
import pinq
from miners import FitWarning
from pinq import errors
from pinq.analyst.lessons import LESSONS
from pinq.cli.main import app
from pinq.language.wire import STATUSES
from pinq.policy.dialect import Dialect
from pinq.policy.files import source_path
from pinq.policy.policy import DatabaseTable, Policy
from pinq.provider.opening import open_ledger
from pinq.provider.testing import first_difference
from pinq.public.columns import Lookup
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Categorical, Date, DateTime, Numeric, PrivacyUnit
from pinq_secure import Member, Session, load_session
from pinq_secure.id3.task import hold
from pinq_secure.session.party import run_simulation
from tests.support.house.checkout import ROOT
from tests.support.processes.scripts import run_script

README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
PAGES = [
    page for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))] if page.name != "CHANGELOG.md"
]


def number_after(name: str, printed: str) -> float:
    """The share that an example prints behind a name."""
    (number,) = re.findall(rf"{name}\s+(0\.\d+)", printed)
    return float(number)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the README's examples use, so that no ledger is left in the checkout."""
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "data" / "adult.parquet", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readmes_python_runs(project: Path) -> None:
    """The first example works after the commands above it, and leaves something of the budget."""
    mpl.use("Agg")
    (command,) = re.findall(r"```console\n.*\n\$ pinq (.*)\n```\n\n```python", README)
    assert CliRunner().invoke(app, shlex.split(command)).exit_code == 0
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["tree"].cost_ == Epsilon(5 * 10**8).exact
    assert names["h"].budget.spent == Epsilon(7 * 10**8).exact
    assert max(map(len, README.splitlines())) <= 120


def test_a_program_that_was_debugged_on_synthetic_rows_runs_on_the_private_ones(project: Path) -> None:
    """The blocks of the page work one after another, and the rehearsal comes near the real run."""
    page = (ROOT / "docs" / "synthesizer.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "synthesizer.md", "exec"), names)
    expected, found = names["expected"], names["found"]
    assert list(expected) == list(found)
    assert (expected["value"] - found["value"]).abs().sum() < 0.2 * found["value"].sum()


def test_the_python_of_the_page_on_trees_runs(project: Path) -> None:
    """Its blocks work one after another, and what it says of faces exists."""
    page = (ROOT / "docs" / "trees.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "trees.md", "exec"), names)
    miner = names["miner"]
    for face in re.findall(r"miner\.(\w+)\(", page):
        assert callable(getattr(miner, face)), face
    assert set(names["search"].best_params_) == {"estimator__max_depth", "estimator__epsilon"}


def test_the_sums_of_derivatives_on_the_page_of_verbs_run(project: Path) -> None:
    """Its step names a loss that knows more, for the epsilon that it says."""
    page = (ROOT / "docs" / "verbs.md").read_text(encoding="utf-8").partition("## Private gradients")[2]
    names: dict[str, Any] = {}
    block, products = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "verbs.md", "exec"), names)
    assert names["h"].budget.spent == Epsilon(25 * 10**7).exact
    assert names["better"].columns() == {"income"} | names["chosen"].columns()
    assert names["sums"].shape == (len(names["points"].tables[0]), 2)
    exec(compile(products, "verbs.md", "exec"), names)
    assert names["by_income"].shape == (2, *names["sums"].shape) == (2, 10)


def test_the_page_on_forests_runs(project: Path) -> None:
    """Its example learns, and costs what it says."""
    page = (ROOT / "docs" / "forests.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "forests.md", "exec"), names)
    assert names["forest"].cost_ == names["hours"].cost_ == 1
    assert names["forest"].score(names["public"]) > 0.76
    assert names["hours"].score(names["public"]) > 0
    assert repr(names["forest"].forest_).startswith(
        "Forest for `income` (<=50K, >50K): depth 4, 3 trees, 48 leaves; splits by "
    )


def test_the_page_of_recommendations_says_what_is_recommended(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its block runs, and prints the line that stands below it."""
    page = (ROOT / "docs" / "which-miner.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "which-miner.md", "exec"), {})
    assert capsys.readouterr().out.startswith(printed)


def test_the_page_on_scorecards_runs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its blocks work one after another, what it shows of the text is so, and what it says of faces exists."""
    page = (ROOT / "docs" / "scorecards.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "scorecards.md", "exec"), names)
    card = names["card"]
    for face in re.findall(r"`card\.(\w+)\(", page):
        assert callable(getattr(card, face)), face
    assert card.cost_ == names["hours"].cost_ == 1
    assert card.score(names["public"]) > 0.84
    assert names["hours"].score(names["public"]) > 0.1
    printed = capsys.readouterr().out
    first, last = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    assert first.splitlines()[1] in printed
    assert all(line in printed for line in last.splitlines())


def test_the_page_on_new_miners_has_a_whole_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file: it has what every miner has, and sees answers only."""
    page, names = (ROOT / "docs" / "new-miner.md").read_text(encoding="utf-8"), dict[str, Any]()
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "new-miner.md", "exec"), names)
    miner, rows = names["miner"], names["rows"]
    assert miner.plan(miner.schema_, "income").total == miner.cost_ == Fraction(1, 2)
    assert miner.score(rows) > 0.78
    assert type(miner).from_json(miner.to_json()).tree_ == miner.tree_
    assert len(miner.certificate().requests) == 2
    assert "## Plan" in miner.card().to_markdown()
    assert "cost 0.5" in miner._repr_html_()
    assert "OneRule for `income`" in capsys.readouterr().out
    with pytest.raises(pinq.BudgetExceeded, match=r"OneRule\.fit needs"):
        names["OneRule"](epsilon=2).fit(names["handle"], "income")
    with pytest.raises(pinq.QueryError, match="`epsilon` is not given"):
        names["OneRule"]().fit(names["handle"], "income")
    here, there = (pinq.simulate("policies/adult.yaml", rows=number, epsilon=1, seed=number) for number in (50, 900))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        assert not first_difference(
            lambda handle: names["OneRule"](epsilon=1).fit(handle, "income").to_json(), here, there
        )


def test_the_page_on_linear_models_runs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its block works, and its report has the lines that it shows; what it says of faces exists."""
    page = (ROOT / "docs" / "linear.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "linear.md", "exec"), names)
    (shown,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    printed = capsys.readouterr().out
    assert all(line.split("  ")[0] in printed for line in shown.splitlines()[3:])
    assert names["line"].score(names["public"]) > 0.82
    assert names["components"].transform(names["public"]).shape[1] == 2
    for name, face in re.findall(r"`(hours|line|components)\.(\w+)\(", page):
        assert callable(getattr(names[name], face)), face


def test_the_page_on_distances_runs(project: Path) -> None:
    """Its example costs what it says and draws what it shows."""
    mpl.use("Agg")
    ledger = open_ledger(pinq.load_policy("policies/adult.yaml"))
    ledger.grant("analyst1", Epsilon.of(1))
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "dilca.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(compile(block, "dilca.md", "exec"), names)
    assert names["miner"].cost_ == names["h"].budget.spent == Epsilon(5 * 10**8).exact


def test_the_page_on_tables_runs(project: Path) -> None:
    """Its blocks work one after another, cost what they say together, and every function is on the page."""
    ledger = open_ledger(pinq.load_policy("policies/adult.yaml"))
    ledger.grant("analyst1", Epsilon.of(2))
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "tables.md", "exec"), names)
    assert float(names["h"].budget.spent) == 1.2
    for function in miners.tables.__all__:
        assert re.search(rf"\b{function}\b", page), function


def test_every_table_and_every_statistic_is_explained() -> None:
    """To analysts on its page, and to readers of the log by the name of its act."""
    acts, page = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("acts.md", "statistics.md"))
    for function in set(miners.statistics.__all__) - {"Result"}:
        assert f"`statistics.{function}`" in acts, function
        assert f"`{function}(" in page, function
    for function in set(miners.tables.__all__) - {"Table", "where"}:
        assert f"`tables.{function}`" in acts, function


def test_the_page_on_sql_runs() -> None:
    """Its blocks work one after another, and cost what they say."""
    page = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "sql.md", "exec"), names)
    assert float(names["h"].budget.spent) == 0.5
    assert names["table"].wide().columns.tolist() == ["mean_cost", "patients"]


def test_the_page_on_policies_runs() -> None:
    """Its blocks work one after another, on dummy rows."""
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "policy.md", "exec"), names)
    assert str(names["mean"]).startswith("19")


def test_what_is_left_out_names_what_there_is() -> None:
    """Each name that the page offers instead exists, and lessons lead to the page."""
    page = (ROOT / "docs" / "left-out.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*.*\|$", page, flags=re.MULTILINE)
    assert len(rows) >= 10
    assert all(len(row.split(" | ")) == 3 for row in rows)
    for name in re.findall(r"`(Cuts|Groups|Logistic|Residuals)`", page):
        assert hasattr(pinq, name)
    assert "docs/left-out.md" in LESSONS["join"].wish


def test_the_page_on_secure_computation_runs(project: Path) -> None:
    """Its first example learns a tree, and a private one at the cost that it names."""
    block, _ = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "secure.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(compile(block, "secure.md", "exec"), names)
    assert names["tree"].depth >= 1
    assert names["private"].cost_ == 1
    assert names["private"].opened_[0].what == "noisy rows"


def test_the_page_on_secure_computation_learns_a_scorecard(project: Path) -> None:
    """Its commands draft, show and try a session; `show` prints the questions that it shows; its example reads what a party writes."""
    page = (ROOT / "docs" / "secure.md").read_text(encoding="utf-8").split("## A scorecard\n")[1].split("\n## ")[0]
    rows = pd.read_parquet("data/adult.parquet").head(3000)
    for start, name in enumerate("abc"):
        rows[start::3].to_csv(f"{name}.csv", index=False)
    printed = ""
    for line in re.findall(r"^\$ pinq (.*)$", page, flags=re.MULTILINE):
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, done.output
        printed += done.output
    (shown,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    assert shown in printed
    assert "Scorecard for `income` (<=50K, >50K)" in printed
    session = load_session("card.yaml")
    (learned, *_) = run_simulation(session, [hold(session.task, rows[start::3]) for start in range(3)])
    assert learned.scorecard is not None
    Path("card.json").write_text(json.dumps({"scorecard": json.loads(learned.scorecard.to_json())}), encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "secure.md", "exec"), names)
    assert names["card"].cost_ == 1


def test_the_page_on_federations_runs_under_encryption(project: Path) -> None:
    """Its example on made-up parties costs what it says; the other needs servers, and runs as examples/three_owners.py."""
    (block,) = [
        example
        for example in re.findall(
            r"```python\n(.*?)```", (ROOT / "docs" / "federation.md").read_text(encoding="utf-8"), flags=re.DOTALL
        )
        if "SecureFederation" in example
    ]
    names: dict[str, Any] = {}
    exec(compile(block, "federation.md", "exec"), names)
    assert names["together"].spent() == {"all parties": 1}


def test_the_example_of_distances_runs(tmp_path: Path) -> None:
    """Learned distances classify at least as well as the larger class, and the pictures are there; few records, so that it is quick."""
    for name in ("examples", "policies", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    printed = run_script(tmp_path / "examples" / "dilca.py", "--records", "1200")
    near, larger = (number_after(name, printed) for name in ("learned distances", "larger class"))
    assert near > larger - 0.05
    assert "remaining=0" in printed
    for name in ("education.png", "context.png"):
        assert (tmp_path / "build" / "dilca-example" / name).stat().st_size > 5000


def test_the_example_of_three_owners_runs(tmp_path: Path) -> None:
    """Three servers, one tree, three audits: together the owners know more than the smallest, and each ledger says what was claimed."""
    for name in ("examples", "policies", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    printed = run_script(tmp_path / "examples" / "three_owners.py")
    together, larger = (number_after(name, printed) for name in ("three owners together", "larger class"))
    assert together > larger + 0.02
    assert len(re.findall(r"(?:north|south|west): spent 1, \d+ requests", printed)) == 3
    assert len(re.findall(r"chain: verified", printed)) == 3


def commands_below(command: Any, name: str = "") -> dict[str, Any]:
    """The commands of the command line by name, those of groups too."""
    if not hasattr(command, "commands"):
        return {name: command}
    return {
        key: one
        for word, each in command.commands.items()
        for key, one in commands_below(each, f"{name} {word}".strip()).items()
    }


def test_the_commands_of_the_pages_exist() -> None:
    """Each `pinq` command has the options that a page gives it, and no argument too many; each target of make is one."""
    commands = commands_below(typer.main.get_command(app))
    options = {option for command in commands.values() for each in command.params for option in each.opts}
    makefiles = "".join((ROOT / room / "Makefile").read_text(encoding="utf-8") for room in ("", "tests", "benchmarks"))
    targets = set(re.findall(r"^([a-z-]+):", makefiles, flags=re.MULTILINE))
    parsed = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"`(--[a-z-]+)", text)) <= options, page.name
        assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets, page.name
        for line in re.findall(r"(?:\$ |`)pinq ([a-z][^`\n|&>]*)", text):
            words = shlex.split(line.split(" # ")[0])
            name = next((name for name in (" ".join(words[:2]), words[0]) if name in commands), None)
            if name is None:
                assert words == ["secure"], (page.name, line)  # the group
                continue
            takes = {
                option: not getattr(each, "is_flag", False) for each in commands[name].params for option in each.opts
            }
            given = iter(words[len(name.split()) :])
            loose = []
            for word in given:
                if not word.startswith("-"):
                    loose.append(word)
                    continue
                assert word in takes or word == "--help", (page.name, line)
                if takes.get(word):
                    next(given, None)  # prose may name an option without its value
            arguments = [each.nargs for each in commands[name].params if each.param_type_name == "argument"]
            assert -1 in arguments or len(loose) <= len(arguments), (page.name, line)
            parsed += 1
    assert parsed > 150


@pytest.mark.parametrize(
    "model", [Policy, DatabaseTable, Dialect, PrivacyUnit, Categorical, Numeric, Date, DateTime, Lookup]
)
def test_every_policy_key_is_documented(model: type[BaseModel]) -> None:
    """The reference names every key that a policy may have."""
    for name, field in model.model_fields.items():
        if not field.exclude:
            assert re.search(rf"\b{field.alias or name}\b", REFERENCE), name


@pytest.mark.parametrize("model", [Session, Member])
def test_every_key_of_a_session_is_documented(model: type[BaseModel]) -> None:
    """The page on secure computation names every key that a session may have."""
    page = (ROOT / "docs" / "secure.md").read_text(encoding="utf-8")
    for name in model.model_fields:
        assert f"`{name}`" in page, name


def test_what_is_installed_exists() -> None:
    """Every `pip install` of the documents is a clone's; the README has each extra that is for users."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    commands, install = 0, r"'?(?:\.|(pinq-miners))(?:\[([\w,]+)\])?'?"
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for what in re.findall(r"pip install ('[^']*'|[^\s`]+)", page.read_text(encoding="utf-8")):
            command = re.fullmatch(install, what)
            assert command, f"{page.name}: pip install {what}"
            assert not command[1] or page.name == "README.md", f"{page.name}: pip install {what} works once released"
            assert set(filter(None, (command[2] or "").split(","))) <= set(extras), what
            commands += 1
    assert commands >= 5
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", README, flags=re.MULTILINE)
    users = set(extras) - {"all", "test", "oracles", "dev", "docs", "release"}
    assert set(re.findall(r"\w+", " ".join(rows))) == users
    # "everything but Spark and ADBC"
    brought = {name for extra in ("all", "demo") for name in re.findall(r"\w+", extras[extra][0].partition("[")[2])}
    assert brought | {"demo"} == users - {"spark", "adbc"}


def test_every_promise_names_a_test() -> None:
    """The threat model's tests exist, by file and by name."""
    named = re.findall(
        r"`(tests/[\w/]+(?:\.py)?/?)(?:::(\w+))?`", (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    )
    assert len(named) > 20
    for file, test in named:
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_every_cited_section_of_the_privacy_argument_exists() -> None:
    """Docstrings, tests and pages cite it by numbers."""
    argument = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^(?:\*\*|## )(\d+(?:\.\d+)?)", argument, re.MULTILINE))
    for place in ("pinq", "miners", "tests", "docs"):
        for file in [*(ROOT / place).rglob("*.py"), *(ROOT / place).rglob("*.md")]:
            for cited in re.findall(
                r"privacy\.md[\])]*[ ,]\s*((?:\d+(?:\.\d+)?(?:, | and )?)+)", file.read_text(encoding="utf-8")
            ):
                assert set(re.findall(r"\d+(?:\.\d+)?", cited)) <= sections, (file, cited)


def test_every_status_is_documented() -> None:
    """The page about servers has every error that can cross the wire, with its status."""
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    for kind, status in STATUSES.items():
        assert re.search(rf"\| {status} \| .*`{kind.code}`.*`{kind.__name__}`", page), kind


def test_every_error_is_drawn() -> None:
    """The tree in errors.py names every error class, and codes differ."""
    assert errors.__doc__ is not None
    classes = [getattr(errors, name) for name in errors.__all__]
    assert all(kind.__name__ in errors.__doc__ for kind in classes)
    assert len({kind.code for kind in classes}) == len(classes)


@pytest.mark.parametrize("policy", sorted((ROOT / "policies").glob("*.yaml")), ids=lambda path: path.name)
def test_every_policy_loads(policy: Path) -> None:
    """Example policies are reviewed and fit their source."""
    loaded = pinq.load_policy(policy)
    assert loaded.unreviewed_fields() == []
    path = source_path(loaded)
    assert path is not None
    assert path.exists()


def test_links_and_paths_lead_somewhere() -> None:
    """Relative links of the pages exist, and so do the files and folders that they name."""
    rooms = (
        "benchmarks|clients|deploy|docs|examples|miners|pinq|pinq_demo|pinq_secure|pinq_workbench|proofs|tests|tools"
    )
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
        for link, place in re.findall(r"\]\(([^)#:]*\.md|)#([^)]+)\)", text):
            headings = re.findall(r"^#+ (.*)$", (page.parent / link if link else page).read_text("utf-8"), re.MULTILINE)
            places = {re.sub(r"\]\(.*?\)|[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            # The site makes one dash of two, so a heading with "&" would have two addresses.
            assert place in {own for own in places if "--" not in own}, f"{page.name}: {link}#{place}"
        for path in re.findall(rf"`((?:{rooms})/[\w./*-]+)`", text):
            assert [*ROOT.glob(path.rstrip("/"))], f"{page.name}: {path}"


def test_every_commit_that_a_page_names_is_one() -> None:
    """A figure's commit can be looked at, in a clone with its history."""
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("there is no history")
    sign = r"(?:`|commits? |\| )(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)([0-9a-f]{7,12})\+?\b(?!\.\.)"
    results = (ROOT / "benchmarks" / "results").rglob("*.md")
    named = {name for page in [*PAGES, *results] for name in re.findall(sign, page.read_text(encoding="utf-8"))}
    found = git("cat-file", "--batch-check", given="".join(f"{name}^{{commit}}\n" for name in sorted(named)))
    assert len(named) > 30
    assert [line for line in found.splitlines() if line.endswith("missing")] == []


def git(*words: str, given: str = "") -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], input=given, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_page_of_papers_has_no_empty_cell_and_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("|"):
            assert all(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]), line
    for file in re.findall(r"`((?:miners|pinq|benchmarks|tests)/[\w/]+\.py)`", text):
        assert (ROOT / file).is_file(), file


def test_sections_of_the_privacy_argument_that_docstrings_name_exist() -> None:
    """So a claim leads to its proof."""
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    sections = {*re.findall(r"^## (\d+)\.", page, re.MULTILINE), *re.findall(r"^\*\*(\d+\.\d+)", page, re.MULTILINE)}
    files = (file for package in ("pinq", "miners", "pinq_secure") for file in (ROOT / package).rglob("*.py"))
    named = {
        number
        for file in files
        for listed in re.findall(r"privacy\.md,?\s(?:section )?((?:\d+(?:\.\d+)?(?:, | and )?)+)", _prose(file))
        for number in re.findall(r"\d+(?:\.\d+)?", listed)
    }
    assert named <= sections
    assert len(named) > 20


def _prose(file: Path) -> str:
    """The text of a file, with each comment's and docstring's lines joined."""
    return re.sub(r"\n\s*(?:# )?", " ", file.read_text(encoding="utf-8"))


def test_files_that_docstrings_name_exist() -> None:
    """A test that holds a claim, a page that explains it, and the file to read first."""
    rooms, missing = "docs|miners|pinq|pinq_secure|pinq_workbench|tests|tools", set[str]()
    for file in (
        file for room in ("pinq", "miners", "pinq_secure", "tests/support") for file in (ROOT / room).rglob("*.py")
    ):
        text = _prose(file)
        missing |= {
            name for name in re.findall(rf"\b(?:{rooms})/[\w/.-]+\.(?:py|md)\b", text) if not (ROOT / name).exists()
        }
        missing |= {name for name in re.findall(r"Read ``([\w/]+\.py)``", text) if not (file.parent / name).exists()}
    assert not missing
