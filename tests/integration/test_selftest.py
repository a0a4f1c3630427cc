# SPDX-License-Identifier: Apache-2.0
"""The test that a provider runs on the installed system: what it asks, what it would see, what it reports."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pinq.curator.mechanisms
from pinq.analyst.queryable import Verbs
from pinq.cli.main import app
from pinq.errors import EngineError
from pinq.language.derivatives import LOSSES
from pinq.language.scores import SCORES
from pinq.provider.selftest import Report, selftest
from pinq.provider.selftest.claims import (
    EPSILON,
    EVERY_KIND,
    Claim,
    claims_of,
    in_process,
    publish,
    through_a_server,
    values_of,
)
from pinq.provider.selftest.run import LESS_NOISE, Canary, Check, DrawLimit, Finding, Law, measure_canary, measure_claim
from pinq.public.plugins import plugin
from pinq.public.schema import Schema
from tests.support.house.assurance import ASSURANCE, thorough
from tests.support.house.checkout import ROOT
from tests.support.processes.servers import publish as publish_people, token_of

DRAWS = 3_000
FEW = 300  # of which one that fails on one table alone has a bound of 2.3
CLAIMS, NOT_ASKED = claims_of(EVERY_KIND)


def claim(name: str) -> Claim:
    return next(one for one in CLAIMS if one.name == name)


def limit(draws: int = DRAWS) -> DrawLimit:
    return DrawLimit(draws, math.inf)


def test_every_verb_and_every_score_is_asked() -> None:
    """A verb or a score that nobody added to the claims fails here."""
    names = " ".join(one.name for one in CLAIMS)
    verbs = [name for name in vars(Verbs) if name.startswith("noisy_") or name == "exp_mech"]
    assert len(verbs) == 4
    assert not NOT_ASKED
    for name in (*verbs, *SCORES, *LOSSES):
        assert name in names, name
    for verb in (
        "noisy_count of nested parts",
        "noisy_sum of z",
        "noisy_avg of z",
        "noisy_sum of logistic",
        "exp_mech, max_class",
    ):
        assert {f"{verb}{sense}" for sense in ("", ", a row replaced", ", a person of three rows")} <= {
            one.name for one in CLAIMS
        }


ENDS = {
    "one value": {"only": {"type": "categorical", "values": ["only"]}},
    "equal bounds": {"same": {"type": "numeric", "lower": 3, "upper": 3, "integer": True}},
    "a large grid": {"big": {"type": "numeric", "lower": -5, "upper": 2**24 - 9, "integer": True, "step": 1}},
    "two columns": {
        "y": {"type": "categorical", "values": [True, False], "nullable": True},
        "d": {"type": "date", "lower": "2024-01-01", "upper": "2024-01-02"},
    },
    "derived": {
        "a": {"type": "categorical", "values": ["u", "v", "w"]},
        "b": {"type": "numeric", "lower": 0, "upper": 1, "nullable": True},
        "c": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-01-01 00:20", "step": 7},
        "d": {"type": "numeric", "lower": -100, "upper": 10, "integer": True, "from": ["b"], "formula": "b * 3"},
    },
}


@pytest.mark.parametrize("name", ENDS)
def test_a_schema_at_its_ends_is_asked_what_it_has_columns_for(name: str, tmp_path: Path) -> None:
    """A sample of the questions that are made is answered on both tables; the report names what no column is there for."""
    schema = Schema.model_validate({"max_rows": 9, "columns": ENDS[name]})
    claims, left_out = claims_of(schema)
    assert claims
    assert left_out
    assert ("the formula of d, which has dummy values" in left_out) == (name == "derived")
    for number, one in enumerate(claims[::6]):  # each takes a second of files
        folder = tmp_path / str(number)
        folder.mkdir()
        worlds = publish(one.pair, one.schema, folder, 3)
        with in_process(worlds) as handles:
            for handle, world in zip(handles, worlds, strict=True):
                assert len(one.ask(handle.partition(world.partition), EPSILON)) == 3, one.name


def test_rows_are_encoded_as_the_codes_that_were_meant(tmp_path: Path) -> None:
    """A made-up row has the first or the last value of each column, also of dates, missing values and coarse grids."""
    codes = [0, *(EVERY_KIND.columns["hour"].cells - 1, 5)]
    for name, column in EVERY_KIND.columns.items():
        own = [min(code, column.codes - 1) for code in codes]
        assert column.encode(values_of([{name: code} for code in own], name, EVERY_KIND).to_pylist()).tolist() == own


def test_all_claims_can_be_asked(tmp_path: Path) -> None:
    """Each question, or a sample of them, is answered for each copy of its table, and both tables differ by what the claim says."""
    for number, one in enumerate(CLAIMS if ASSURANCE else CLAIMS[:: len(CLAIMS) // 8]):  # each takes a second of files
        folder = tmp_path / str(number)
        folder.mkdir()
        worlds = publish(one.pair, one.schema, folder, 20)
        with in_process(worlds) as handles:
            for handle, world in zip(handles, worlds, strict=True):
                assert len(one.ask(handle.partition(world.partition), EPSILON)) == 20, one.name


@pytest.mark.parametrize("name", ["noisy_count", pytest.param("exp_mech, class_count", marks=thorough)])
def test_a_claim_holds_and_half_the_noise_would_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is under the claim, near it, and above it once the mechanisms draw half the noise."""
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    finding, ledger, *_ = measure_claim(claim(name), in_process, tmp_path / "right", limit())
    assert isinstance(finding, Finding)
    assert finding.holds
    assert finding.bound > 0.5 * finding.epsilon
    assert ledger.holds
    right = pinq.curator.mechanisms.scale_of
    monkeypatch.setattr(pinq.curator.mechanisms, "scale_of", lambda span, epsilon: right(span, 2 * epsilon))
    assert not measure_claim(claim(name), in_process, tmp_path / "wrong", limit())[0].holds


def test_an_error_that_follows_a_row_refutes_the_claim(tmp_path: Path) -> None:
    """What fails is an outcome too: a question that fails on one of the tables alone loses everything."""
    answers = iter([False, True] * 2)

    def ask(parts: object, epsilon: Fraction) -> list[int]:
        if next(answers):
            raise EngineError
        return [0] * FEW

    assert not measure_claim(Claim("fails", claim("noisy_count").pair, ask), in_process, tmp_path, limit(FEW))[0].holds


def test_tables_and_epsilons_are_asked_in_turns(tmp_path: Path) -> None:
    """However early the time is over, each table was asked as often at each epsilon."""
    asked: list[Fraction] = []

    def ask(parts: object, epsilon: Fraction) -> list[int]:
        asked.append(epsilon)
        return [0] * FEW

    constant, wanted = Claim("constant", claim("noisy_count").pair, ask), DrawLimit(3 * FEW, math.inf)
    finding, ledger = measure_claim(constant, in_process, tmp_path, wanted)
    assert isinstance(finding, Finding)
    assert asked == 3 * [*2 * [EPSILON], *2 * [EPSILON / LESS_NOISE]]
    assert finding.draws == 3 * FEW
    assert not ledger.holds, "it charged nothing of what was asked"


def test_a_claim_can_be_asked_through_a_server(tmp_path: Path) -> None:
    """The same question by way of ``pinq serve`` has the same bound, about."""
    finding, ledger, law = measure_claim(claim("noisy_count"), through_a_server, tmp_path, limit(2_000))
    assert isinstance(finding, Finding)
    assert 0.5 * finding.epsilon < finding.bound <= finding.epsilon
    assert ledger.holds
    assert law.holds


@pytest.mark.parametrize("name", [one.name for one in CLAIMS if one.law is not None])
def test_laws_hold_and_would_not_with_less_noise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise and choices follow their laws; half the noise does not."""
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()

    def law(folder: str) -> Law:
        results = measure_claim(claim(name), in_process, tmp_path / folder, limit(1_000))
        return next(result for result in results if isinstance(result, Law))

    assert law("right").holds
    right = pinq.curator.mechanisms.scale_of
    monkeypatch.setattr(pinq.curator.mechanisms, "scale_of", lambda span, epsilon: right(span, 2 * epsilon))
    assert not law("wrong").holds


def test_canaries_see_a_miner_with_a_tenth_of_the_noise(tmp_path: Path) -> None:
    """A scorecard's points give away less than its epsilon, and more than that at ten times epsilon."""
    fits = plugin("pinq.selftest", "miners", "")
    assert set(fits) >= {"DiffPID3", "SuLQID3", "DiffPC45", "Scorecard"}
    (canary,) = measure_canary("Scorecard", fits["Scorecard"], tmp_path)
    assert isinstance(canary, Canary)
    assert canary.holds
    assert canary.sharp


def test_the_command_reports_what_there_was_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some claims, the rest named as left out; JSON and page agree, nothing is fetched from elsewhere.

    Of three seconds each look at the clock takes half a second.
    """
    monkeypatch.setattr("pinq.provider.selftest.run.monotonic", partial(next, itertools.count(0.0, 0.5)))
    page = tmp_path / "selftest.html"
    done = CliRunner().invoke(app, ["selftest", "--minutes", "0.05", "--json", "--report", str(page)])
    assert done.exit_code == 0, done.output
    seen = json.loads(done.stdout)
    assert seen["holds"]
    assert seen["laws"]
    assert seen["left_out"]
    text = page.read_text(encoding="utf-8")
    assert "Nothing was refuted." in text
    assert "NIST SP 800-226" in text
    assert "<script" not in text
    assert CliRunner().invoke(app, ["selftest", "--minutes", "0"]).exit_code == 1
    assert CliRunner().invoke(app, ["selftest", "--report", "x.txt"]).exit_code == 2


def test_one_refuted_claim_refutes_the_whole(tmp_path: Path) -> None:
    """Whatever kind of result it is."""
    held = (
        Finding("q", "a row comes", 1.5, 10, 1.4, 1.6),
        Law("noise", 10, 0.3),
        Canary("m", 2, 10, 5, 0.1, 3),
        Check("l", True),
    )
    broken = (
        Finding("q", "a row comes", 1.5, 10, 1.6),
        Law("noise", 10, 1e-9),
        Canary("m", 2, 9, 9, 2.1, 3),
        Check("l", False),
    )
    for number in range(4):
        results = [(broken if number == kind else held)[kind] for kind in range(4)]
        report = Report("1", "now", 1.0, "in this process", *((result,) for result in results))  # type: ignore[arg-type]
        assert not report.holds
        assert "REFUTED" in report.to_html()
        assert not json.loads(report.to_json())["holds"]
    assert Report("1", "now", 1.0, "in this process", *((result,) for result in held)).holds  # type: ignore[arg-type]


def test_the_page_on_assurance_runs() -> None:
    """Its Python gives a report, and its command exists."""
    page = (ROOT / "docs" / "assurance.md").read_text(encoding="utf-8")
    block, _ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "assurance.md", "exec"), names)
    assert "nothing refuted" in repr(names["report"])
    (command,) = re.findall(r"\$ pinq (selftest .*)", page)
    helped = CliRunner().invoke(app, ["selftest", "--help"]).output
    assert all(word in helped for word in command.split() if word.startswith("--"))


def test_a_policy_without_a_ledger_refutes_nothing_and_a_lost_ledger_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first grant there is nothing to replay, and the report says so; a head without its ledger is a loss."""
    monkeypatch.setattr("pinq.provider.selftest.run._steps", lambda *_: [])
    policy = publish_people(tmp_path)
    report = selftest(policy, minutes=0.05)
    assert report.holds
    assert "policy people" in [check.name for check in report.checks]
    assert report.left_out[0] == "the ledger of people, for there is none"
    token_of(policy)
    (ledger,) = tmp_path.glob("*.ledger")
    assert [check.holds for check in selftest(policy, minutes=0.05).checks[:2]] == [True, True]
    ledger.unlink()
    assert not any(check.holds for check in selftest(policy, minutes=0.05).checks[1:3])
