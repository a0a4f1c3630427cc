# SPDX-License-Identifier: Apache-2.0
"""What was written before can be read now: ledgers, requests and answers, models, names (``golden/README.md``)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import miners
import pinq
from benchmarks.papers.diprime import baselines
from pinq.language.queries import Answer, Request
from pinq.ledger.ledger import Ledger
from tests.contract.golden_table import COLUMNS, rows
from tests.support.house.checkout import ROOT
from tests.support.processes.commands import process

GOLDEN = Path(__file__).resolve().parent / "golden"
BALANCES = json.loads((GOLDEN / "balances.json").read_text(encoding="utf-8"))
EXCHANGES = json.loads((GOLDEN / "exchanges.json").read_text(encoding="utf-8"))
MODELS = sorted((GOLDEN / "models").glob("*.json"))
BASELINES = {"DPDecisionForest", "DPExtraTrees", "DPExtraTreesRegressor"}  # of experiments, beside which they stand now
NAMES = json.loads((GOLDEN / "names.json").read_text(encoding="utf-8"))


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    """A copy of the old ledger, open."""
    shutil.copy(GOLDEN / "ledger.sqlite3", tmp_path / "ledger.sqlite3")
    opened = Ledger(tmp_path / "ledger.sqlite3", "golden", create=False)
    yield opened
    opened.close()


def test_an_old_ledger_replays_to_the_same_balances(ledger: Ledger) -> None:
    """Grants, their terms, what was spent and what is left are what they were, and so is the chain."""
    assert ledger.verify() == BALANCES["events"]
    assert list(ledger.log.events())[-1].hash == BALANCES["hash"]
    found = ledger.grants()
    assert set(found) == set(BALANCES["grants"])
    for name, before in BALANCES["grants"].items():
        grant = found[name]
        sums = (grant.limit.nano, grant.spent.nano, grant.remaining.nano)
        assert sums == (before["limit"], before["spent"], before["remaining"])
        assert (grant.revoked, grant.token, grant.terms.to_body()) == (
            before["revoked"],
            before["token"],
            before["terms"],
        )
        assert (grant.expires.isoformat() if grant.expires else None) == before["expires"]
    together = ledger.together()
    assert (together.spent.nano, together.cap.nano) == (BALANCES["joint"], BALANCES["cap"])


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange["about"])
def test_requests_and_answers_are_the_same_text(exchange: dict[str, str]) -> None:
    """What crossed the wire is read, and written again byte for byte."""
    assert Request.received(exchange["request"]).to_json() == exchange["request"]
    assert Answer.from_json(exchange["answer"]).text == exchange["answer"]


def test_an_old_request_id_finds_the_answer_that_was_paid(tmp_path: Path) -> None:
    """Every request of the old ledger, sent again, gets its old answer at no cost, whatever the table holds by now."""
    shutil.copy(GOLDEN / "ledger.sqlite3", tmp_path / "ledger.sqlite3")
    policy = pinq.Policy(
        dataset="golden",
        cap=1000,
        max_rows=1000,
        columns=COLUMNS,
        folder=tmp_path,
        ledger=str(tmp_path / "ledger.sqlite3"),
    )
    assert policy.schema_.digest == BALANCES["digest"]
    for analyst in {exchange["analyst"] for exchange in EXCHANGES}:
        handle = pinq.open(policy, analyst=analyst, data=rows(10))
        for exchange in EXCHANGES:
            if exchange["analyst"] == analyst:
                assert handle._session.ask(Request.received(exchange["request"])).text == exchange["answer"]
        assert int(handle.budget.spent * 10**9) == BALANCES["grants"][analyst]["spent"]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_an_old_model_is_read_and_predicts_as_before(path: Path) -> None:
    """A stored model is the same text again, and gives the same predictions."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    home: Any = baselines if path.stem in BASELINES else miners
    model = getattr(home, path.stem.replace("DPTopDown", "FederatedTopDown")).from_json(kept["model"])
    assert json.loads(model.to_json()) == json.loads(kept["model"])
    if "predicted" in kept:
        table = pd.DataFrame(json.loads((GOLDEN / "rows.json").read_text(encoding="utf-8")))
        assert np.asarray(model.predict(table)).tolist() == pytest.approx(kept["predicted"])


@pytest.mark.parametrize("package", [pinq, miners], ids=lambda package: package.__name__)
def test_no_public_name_is_gone(package: Any) -> None:
    """What could be imported can be imported; a name that is another now says so."""
    former = set(NAMES[package.__name__]) - set(package.__all__) - BASELINES
    assert former == ({"DPScorecard", "DPScorecardRegressor", "DPTopDown"} & former)
    for name in former:
        with pytest.warns(DeprecationWarning, match="Federated"):
            assert getattr(package, name).__name__ in package.__all__


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What ``make demo`` prints, run once, and the folder that it wrote."""
    folder = tmp_path_factory.mktemp("demo")
    done = process("demo", "--folder", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


def test_the_demo_leaves_the_same_log(demo: tuple[str, Path]) -> None:
    """``make demo`` asks what it asked, in this order, at these epsilons."""
    ledger = Ledger(demo[1] / "adult.parquet.ledger", create=False)
    bodies = [(event.kind, event.record.to_body()) for event in ledger.log.events()]
    log = [[kind, body.get("verb", ""), body.get("epsilon", body.get("asked"))] for kind, body in bodies]
    ledger.close()
    assert log == json.loads((GOLDEN / "demo.json").read_text(encoding="utf-8"))


def test_the_demo_does_the_main_job(demo: tuple[str, Path]) -> None:
    """The private tree is nearly as good as one of the bare rows, the budget ends in a refusal, and what there is to look at is there."""
    printed, folder = demo
    private, exact = (
        float(re.findall(rf"{name}\s+(0\.\d+)", printed)[0]) for name in ("DiffPC45, epsilon 1", "not private")
    )
    assert exact - 0.06 < private <= exact + 0.02
    assert "Refused: This would cost epsilon 0.3" in printed
    for name in ("tree.png", "tree.txt", "tree.json", "audit.html"):
        assert (folder / name).stat().st_size > 500


NOISE = {"counts": 100, "average": 1.0, "accuracy": 0.03}  # ten times the scale, or what fits differ by


def test_the_story_tells_what_the_demo_prints(demo: tuple[str, Path]) -> None:
    """Each line that docs/start/demo.md shows is printed as it stands; its noisy numbers are as near as their noise."""
    printed = " ".join(demo[0].split())
    story = (ROOT / "docs" / "start" / "demo.md").read_text(encoding="utf-8")
    noisy = {
        r"((?:Fe)?[Mm]ale [<>]=?50K) (\d+)": NOISE["counts"],
        r"(Average hours per week:) (\d+\.\d+)": NOISE["average"],
        r"(DiffPC45, epsilon 1) (0\.\d+)": NOISE["accuracy"],
    }
    shown = [" ".join(block.split()) for block in re.findall(r"```text\n(.*?)```", story, flags=re.DOTALL)]
    assert len(shown) == 4
    for pattern, apart in noisy.items():
        here, there = (dict(re.findall(pattern, text)) for text in (" ".join(shown), printed))
        assert here
        assert here.keys() <= there.keys()
        assert all(abs(float(number) - float(there[name])) <= apart for name, number in here.items()), (here, there)
    exact = [re.sub("|".join(noisy), "#", block) for block in [*shown, "24,420 rows, 24,420 encoded, 0 left out"]]
    known = re.sub("|".join(noisy), "#", printed)
    for block in exact:
        assert block.removesuffix("...").strip() in known, block
    for told, number in (("0.119", "0.119047619"), ("0.167", "0.166666667"), ("1.8 of the cap of 5", "1.8 of 5 spent")):
        assert told in " ".join(story.split())
        assert number in printed
