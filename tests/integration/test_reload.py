# SPDX-License-Identifier: Apache-2.0
"""What a reload changes of a server's datasets, and what it leaves."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request as HTTPRequest

from pinq.curator.deadline import Deadline
from pinq.engine import open_engine
from pinq.errors import PolicyError
from pinq.language.queries import Request
from pinq.policy.policy import Policy
from pinq.provider.policy_file import load_policy
from pinq.server import replies
from pinq.server.app import Reload
from pinq.server.datasets import Datasets
from pinq.server.gate import Gate
from pinq.server.limits import Settings
from pinq.server.log import RequestLog
from pinq.server.readiness import problem_of
from tests.support.processes.servers import people, publish, token_of


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return publish(tmp_path / "served")


@pytest.fixture
def datasets(policy: Path) -> Iterator[Datasets]:
    """A folder with one policy, open."""
    datasets = Datasets.open([policy.parent])
    yield datasets
    datasets.close()


def edit(policy: Path, change: Callable[[str], str]) -> None:
    policy.write_text(change(policy.read_text(encoding="utf-8")), encoding="utf-8")


def count(datasets: Datasets, name: str) -> None:
    datasets.served["people"].curator.ask("ana", Request(id=name, verb="noisy_count", epsilon="0.1"))


def test_without_a_change_nothing_is_opened_again(datasets: Datasets) -> None:
    """The same dataset answers, under the same codes."""
    before = datasets.served["people"]
    reloaded = datasets.reload()
    assert (reloaded.changed, reloaded.added, reloaded.removed, reloaded.failed) == ((), (), (), ())
    assert datasets.served["people"] is before


def test_another_cap_counts_at_once_and_keeps_codes_and_ledger(datasets: Datasets, policy: Path) -> None:
    """What is changed is named; what is metered goes on."""
    before = datasets.served["people"]
    edit(policy, lambda text: text.replace("cap: 1000", "cap: 7"))
    assert datasets.reload().changed == ("people (cap)",)
    after = datasets.served["people"]
    assert (after.engine, after.ledger) == (before.engine, before.ledger)
    assert after.curator._meter is before.curator._meter
    assert str(after.ledger.together().cap) == "7"


def test_a_policy_that_no_longer_reads_leaves_the_old_one_in_force(datasets: Datasets, policy: Path) -> None:
    """It says which file and why, until the file reads again."""
    before, text = datasets.served["people"], policy.read_text(encoding="utf-8")
    for broken in (text + "cap: 8\n", text.replace("cap: 1000", "cap: much"), "", text + "unreviewed: [cap]\n"):
        policy.write_text(broken, encoding="utf-8")
        (why,) = datasets.reload().failed
        assert str(policy) in why
        assert datasets.served["people"] is before
    policy.write_text(text, encoding="utf-8")
    assert datasets.reload().failed == ()


def test_what_a_start_refuses_a_reload_refuses_and_the_log_hears_nothing(datasets: Datasets, policy: Path) -> None:
    """Another adjacency under which budgets were granted, another ledger, another dataset's name, a source that is gone."""
    token_of(policy)
    before, text = datasets.served["people"], policy.read_text(encoding="utf-8")
    last = len([*before.ledger.log.events()])
    for wrong, why in (
        (text + "adjacency: substitute\n", "adjacency"),
        (text + "ledger: other.ledger\n", "guarded"),
        (text.replace("dataset: people", "dataset: others"), "belongs to"),
        (text.replace("people.parquet", "nothing.parquet"), "nothing.parquet"),
    ):
        policy.write_text(wrong, encoding="utf-8")
        (problem,) = datasets.reload().failed
        assert why in problem
        assert datasets.served["people"] is before
    assert len([*before.ledger.log.events()]) == last


@pytest.mark.parametrize("raised", [OverflowError, MemoryError, type("Panic", (BaseException,), {})])
def test_whatever_is_raised_the_old_dataset_stays_and_a_start_serves_the_others(
    datasets: Datasets, policy: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """Its text, which may quote a value, is told nowhere."""
    before, other = datasets.served["people"], publish(policy.parent, "others")
    people(300).to_parquet(policy.with_name("people.parquet"))

    def broken(policy: Policy, *given: Any, **named: Any) -> Any:
        if policy.dataset == "people":
            raise raised("of 17 persons")
        return open_engine(policy, *given, **named)

    monkeypatch.setattr("pinq.provider.versions.open_engine", broken)
    reloaded = datasets.reload()
    assert (reloaded.added, datasets.served["people"]) == (("others",), before)
    (why,) = reloaded.failed
    assert str(policy) in why
    assert "of 17" not in why
    anew = Datasets.open([policy.parent])
    anew.close()
    assert (list(anew.served), anew.failed, [*anew.files.values()]) == (["others"], (why,), [other])
    with pytest.raises(PolicyError, match="unexpected"):
        Datasets.open([policy])
    with pytest.raises(PolicyError, match="unexpected"):  # a process that would replace one which serves it
        Datasets.open([policy.parent], required=[policy])


def test_questions_in_flight_end_under_the_policy_that_let_them_in(datasets: Datasets, policy: Path) -> None:
    """Other columns make other codes; the old ones are freed once the last question has ended."""
    token_of(policy)
    with datasets.leased("people") as before:
        edit(policy, lambda text: text.replace("upper: 99", "upper: 120"))
        assert datasets.reload().changed == ("people (columns, encoded again)",)
        after = datasets.served["people"]
        request = Request(id="old", verb="noisy_count", epsilon="0.1")
        answer = before.curator.ask("ana", request, Deadline())
        given = after.curator.stored_answer("ana", request, before.curator.schema.digest)
        assert given is not None
        assert given.text == answer.text
        assert before.engine.problem() == ""
    assert before.engine.problem() == "its engine is closed"
    count(datasets, "new")


def test_a_question_in_flight_outlives_two_reloads(datasets: Datasets, policy: Path) -> None:
    """The second retires codes and ledger that the first took over; charged, it would stay without an answer."""
    token_of(policy)
    with datasets.leased("people") as before:
        edit(policy, lambda text: text.replace("cap: 1000", "cap: 900"))
        datasets.reload()
        edit(policy, lambda text: text.replace("upper: 99", "upper: 120"))
        assert datasets.reload().changed == ("people (columns, encoded again)",)
        assert before.engine.problem() == ""
        assert before.curator.ask("ana", Request(id="old", verb="noisy_count", epsilon="0.1"), Deadline()).values
    assert before.engine.problem() == "its engine is closed"
    assert datasets.served["people"].engine.problem() == ""


def test_policies_of_a_folder_come_and_go(datasets: Datasets, policy: Path) -> None:
    """A new file is served, a draft is not, one that went away is closed; one whose name is taken changes nothing."""
    other, draft = publish(policy.parent, "others"), publish(policy.parent, "drafts", unreviewed=["cap"])
    reloaded = datasets.reload()
    assert (reloaded.added, reloaded.failed, datasets.drafts) == (("others",), (), (draft,))
    assert set(datasets.served) == {"people", "others"}
    taken = policy.with_name("zz.yaml")
    taken.write_text(policy.read_text(encoding="utf-8"), encoding="utf-8")
    assert "need" in datasets.reload().failed[0]
    taken.unlink()
    policy.rename(taken)  # under another file's name it is the same dataset
    before = datasets.served["people"]
    assert datasets.reload().failed == ()
    assert datasets.served["people"] is before
    other.unlink()
    assert datasets.reload().removed == ("others",)
    with datasets.leased("others") as another:  # whose ledger is looked at all the same
        assert another.name == "people"
    taken.unlink()
    draft.unlink()
    assert "has no policy" in datasets.reload().failed[0]
    assert datasets.served["people"] is before


def test_a_source_that_changed_or_vanished_is_named_until_it_is_read_again(datasets: Datasets, policy: Path) -> None:
    """Questions are answered from the codes meanwhile."""
    token_of(policy)
    source = policy.with_name("people.parquet")
    assert datasets.served["people"].outdated() == ""
    people(300).to_parquet(source)
    assert datasets.served["people"].outdated() == "its source changed after it was encoded"
    source.unlink()
    assert datasets.served["people"].outdated() == "its source is not there any more"
    assert problem_of(datasets.served["people"]) == ""
    count(datasets, "from-codes")
    assert "people.parquet" in datasets.reload().failed[0]
    people(200).to_parquet(source)
    assert datasets.reload().changed == ("people (encoded again, version 2 of the rows)",)
    assert datasets.served["people"].outdated() == ""
    engine: Any = datasets.served["people"].engine
    assert engine.rows() == 200


def test_mapped_codes_that_were_cut_are_a_problem(
    policy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before a question finds out."""
    monkeypatch.setattr("pinq.engine.opening.is_large", lambda _: True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    datasets = Datasets.open([policy])
    assert problem_of(datasets.served["people"]) == ""
    (codes,) = (tmp_path / "state" / "pinq").glob("*.codes")
    codes.chmod(0o600)
    with codes.open("r+b") as file:
        file.truncate(64)
    assert problem_of(datasets.served["people"]) == "the file of its codes was cut"
    datasets.close()


def test_several_processes_pad_nothing(policy: Path) -> None:
    """Each would have a clock of its own for a token: refused at a start, and at a reload."""
    datasets = Datasets.open([policy], processes=2)
    edit(policy, lambda text: text + "padding: 50ms\n")
    assert "one clock" in datasets.reload().failed[0]
    assert datasets.served["people"].policy.padding is None
    datasets.close()
    with pytest.raises(PolicyError, match="one clock"):
        Datasets.open([policy], processes=2)


def test_a_reload_says_in_one_line_what_changed(datasets: Datasets, policy: Path, tmp_path: Path) -> None:
    """Names of keys and of what else is read, never values."""

    def broken() -> bool:
        raise PolicyError("it is no certificate.")

    log = RequestLog(tmp_path / "log")
    reload = Reload(datasets, log)
    reload.certificate = broken
    edit(policy, lambda text: text.replace("cap: 1000", "cap: 7"))
    assert load_policy(policy).cap == 7
    reload.now()
    line = json.loads((tmp_path / "log").read_text())
    del line["at"]
    assert line == {
        "event": "reloaded",
        "changed": ["people (cap)"],
        "failed": ["certificate: it is no certificate."],
    }
    assert datasets.failed == ("certificate: it is no certificate.",)
    log.close()


def test_of_many_signals_one_read_begins_and_one_waits(datasets: Datasets, tmp_path: Path) -> None:
    """What came while a source was encoded is read once more, however often it was asked for."""
    log, begun, read = RequestLog(tmp_path / "log"), threading.Semaphore(0), threading.Semaphore(0)
    reload = Reload(datasets, log)

    def slow() -> bool:
        begun.release()
        return read.acquire(timeout=30)

    reload.certificate = slow
    reload.ask()
    assert begun.acquire(timeout=30)
    for _ in range(20):
        reload.ask()
    asked = [thread for thread in threading.enumerate() if thread.name == "pinq-reload"]
    read.release(3)
    for thread in asked:
        thread.join(30)
    assert len(asked) == len((tmp_path / "log").read_text().splitlines()) == 2
    reload.ask()
    for thread in threading.enumerate():
        if thread.name == "pinq-reload":
            thread.join(30)
    assert len((tmp_path / "log").read_text().splitlines()) == 3
    log.close()


def test_what_was_opened_for_a_policy_that_is_refused_is_closed(
    datasets: Datasets, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new codes are freed at once; those that are served are not."""
    token_of(policy)
    opened: list[Any] = []

    def noted(*given: Any, **named: Any) -> Any:
        opened.append(open_engine(*given, **named))
        return opened[-1]

    monkeypatch.setattr("pinq.provider.versions.open_engine", noted)
    served = datasets.served["people"]
    edit(policy, lambda text: text.replace("upper: 99", "upper: 120") + "adjacency: substitute\n")
    (why,) = datasets.reload().failed
    assert "adjacency" in why
    ((engine, _),) = opened
    assert engine.problem() == "its engine is closed"
    assert (datasets.served["people"], served.engine.problem()) == (served, "")


def test_a_request_keeps_no_codes_once_it_was_answered(datasets: Datasets, policy: Path) -> None:
    """They are freed at once, not when Python next looks for what keeps itself."""
    token, engine = token_of(policy), datasets.served["people"].engine
    query = partial(replies.query, schema=None)

    async def made() -> Gate:
        return Gate(datasets, Settings(), RequestLog())

    async def ask(epsilon: str) -> int:
        body = json.dumps({"id": epsilon, "verb": "noisy_count", "epsilon": epsilon}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-length", str(len(body)).encode())]
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "headers": headers,
            "path": "/",
            "client": ("127.0.0.1", 1),
        }
        scope["path_params"] = {"dataset": "people"}
        response = await gate.run(HTTPRequest(scope, receive), "query", query, charges=True)
        return response.status_code

    with asyncio.Runner() as runner:
        gate = runner.run(made())
        gc.collect()
        gc.disable()
        try:
            assert [runner.run(ask(epsilon)) for epsilon in ("0.1", "1000", "x")] == [200, 402, 400]
            edit(policy, lambda text: text.replace("upper: 99", "upper: 120"))
            datasets.reload()
            assert engine.problem() == "its engine is closed"
        finally:
            gc.enable()
        runner.run(gate.close())


def test_codes_are_encoded_again_where_their_engine_reports_a_problem(datasets: Datasets) -> None:
    """A reload mends what readiness complains of, though neither policy nor source changed."""
    before = datasets.served["people"]
    before.engine.close()
    assert problem_of(before)
    datasets.reload()
    after = datasets.served["people"]
    assert after.engine is not before.engine
    assert after.ledger is before.ledger
    assert problem_of(after) == ""
