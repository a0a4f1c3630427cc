# SPDX-License-Identifier: Apache-2.0
"""Three providers with a policy, a certificate and a ledger each, three ``pinq secure join`` processes, TLS between them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from miners import FederatedScorecard, FederatedScorecardRegressor, Tree
from pinq.errors import BudgetExceeded
from pinq.provider.grants import show
from pinq.provider.report.audit import audit
from pinq.public.epsilon import ZERO, Epsilon
from pinq_secure.id3.task import Holding, hold
from pinq_secure.provider import join
from tests.support.oracles.id3 import plain_id3, to_tree
from tests.support.processes.secure_parties import NAMES, Consortium

# The command, but killed at a certain point: a signal from here could come too late.
DIES = """
import os, signal, typer
echo = typer.echo

def dying(text, **how):
    echo(text, **how)
    if text.startswith("LINE"):
        os.kill(os.getpid(), signal.SIGKILL)

typer.echo = dying
from pinq.cli.main import main
main()
"""


def result(parties: Consortium, name: str) -> dict[str, Any]:
    return json.loads((parties.folder / name / "result.json").read_text())


def test_three_providers_learn_the_plain_tree(tmp_path: Path) -> None:
    """All get the tree that plain ID3 grows from all rows; each ledger has an event, and no charge; nothing else is written."""
    parties = Consortium(tmp_path, policy={"secure": "exact"})
    before = {file for file in tmp_path.rglob("*") if "ledger" not in file.name and "claim" not in file.name}
    said = parties.run()
    task = parties.session.task
    rows = Holding.joined([hold(task, frame) for frame in parties.frames])
    expected = to_tree(task, plain_id3(task, rows, Epsilon(50_000_000).exact, 8))
    for name, policy, text in zip(NAMES, parties.policies, said, strict=True):
        assert Tree.from_json(json.dumps(result(parties, name)["tree"])) == expected
        assert "all 3 parties agree on session" in text
        assert "level 1:" in text
        log = audit(policy)
        (line,) = [one for one in log.lines if one.kind == "secure"]
        assert (line.outcome, log.joint) == ("exact, no epsilon", ZERO)
        assert "sid3p 'study'" in line.about
    after = {file for file in tmp_path.rglob("*") if "ledger" not in file.name and "claim" not in file.name}
    assert after - before == {tmp_path / name / file for name in NAMES for file in ("result.json", "output", "errors")}
    assert {(tmp_path / name / "result.json").stat().st_mode & 0o777 for name in NAMES} == {0o600}
    assert expected.n_leaves > 2


@pytest.mark.parametrize(
    ("fields", "said", "kind"),
    [
        ({"protocol": "sid3p", "depth": 2}, "level 1:", Tree),
        ({"protocol": "topdown", "depth": 2}, "noisy sums opened in", Tree),
        ({"protocol": "scorecard", "steps": 2}, "round 4:", FederatedScorecard),
        ({"protocol": "scorecard", "steps": 2, "target": "age"}, "round 4:", FederatedScorecardRegressor),
    ],
    ids=["sid3p", "topdown", "scorecard", "scorecard of a mean"],
)
def test_each_ledger_is_charged_for_a_noisy_model(tmp_path: Path, fields: dict[str, Any], said: str, kind: Any) -> None:
    """With noise every party's grant pays epsilon, a round at a time, and each round has its answer; what cannot be paid is refused before anybody is called."""
    parties = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="3", **fields)
    parties.grant(5)
    assert all(said in text for text in parties.run("--analyst", "consortium"))
    models = [json.dumps(result(parties, name)["tree" if kind is Tree else "scorecard"]) for name in NAMES]
    assert len(set(models)) == 1
    learned = kind.from_json(models[0])
    assert len(learned.predict(parties.frames[0])) == len(parties.frames[0])
    if kind is not Tree:  # what the parties' own recursion says is what each ledger says
        assert learned.cost_ == 3
        assert learned.owners_.spent == {"all parties": 3}
    for policy in parties.policies:
        log = audit(policy)
        (account,) = log.accounts.values()
        assert (account.spent, account.answered > 2, account.unanswered) == (Epsilon.of(3), True, 0)
    other = parties.session.model_copy(update={"session": "other"})
    with pytest.raises(BudgetExceeded, match=r"This would cost epsilon 3; 2 of \d+ remains for 'consortium'"):
        join(other, "0", parties.policies[0], agree=other.digest, analyst="consortium")
    assert [one.spent for one in show(parties.policies[0]).accounts] == [Epsilon.of(3)]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"protocol": "sid3"}, "level 0:"),
        ({"protocol": "topdown", "noise": "discrete-laplace", "epsilon": "9"}, "round 1:"),
    ],
    ids=["sid3", "topdown"],
)
def test_the_others_end_soon_after_a_party_is_killed(tmp_path: Path, fields: dict[str, Any], line: str) -> None:
    """kill -9 in the middle: the others say who is gone and end with status 1 within seconds; no result is written."""
    parties = Consortium(tmp_path, rows=60, policy={"secure": "exact"}, **fields)
    parties.grant()
    killed, paying = 2, ("--analyst", "consortium") if "noise" in fields else ()
    running = [
        parties.join(0, *paying),
        parties.join(1, *paying),
        parties.join(killed, *paying, program=DIES.replace("LINE", line)),
    ]
    assert running[killed].wait(timeout=60) == -signal.SIGKILL
    began = time.monotonic()
    for party, process in enumerate(running):
        _, said = process.communicate(timeout=60)
        if party != killed:
            assert process.returncode == 1, said
            assert f"party {killed} ({NAMES[killed]}) is gone, in the middle of the computation" in said
            assert not (tmp_path / NAMES[party] / "result.json").exists()
    assert time.monotonic() - began < 45
