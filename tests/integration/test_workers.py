# SPDX-License-Identifier: Apache-2.0
"""Long work in a server's workers: the same answers and refusals, one ledger, one quota; what is sick is seen."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pinq.analyst.tokens import digest
from pinq.curator.deadline import Stopped
from pinq.engine.formats import HeaderFault
from pinq.errors import (
    BudgetExceeded,
    EngineError,
    InternalError,
    LedgerError,
    NotAuthorised,
    PinqError,
    QueryError,
    TooManyRequests,
    Unavailable,
)
from pinq.language.queries import Answer
from pinq.ledger.events import FREE, Terms
from pinq.provider.grants import revoke
from pinq.server import readiness, replies, workers
from pinq.server.datasets import Dataset, Datasets, DatasetState
from pinq.server.limits import Settings
from pinq.server.log import RequestLog, unexpected
from pinq.server.readiness import Readiness
from pinq.server.replies import Visit, Work, begun
from pinq.server.worker import LOOK_SECONDS, OOM_SCORE, Worker
from pinq.server.workers import Workers
from tests.support.processes.servers import COLUMNS, people, publish, token_of

QUERY = partial(replies.query, schema=None)
LETTERS = {"type": "categorical", "values": [f"v{i}" for i in range(16)]}
MINUTE = 60.0


class Served:
    """A dataset as a server has it open, its workers and its log."""

    def __init__(self, folder: Path) -> None:
        letters = people().assign(letter=[f"v{i % 16}" for i in range(400)])
        self.policy = publish(folder, frame=letters, columns=COLUMNS | {"letter": LETTERS})
        self.datasets, self.file = Datasets.open([self.policy]), folder / "log"
        self.runner = asyncio.Runner()
        self.log = RequestLog(self.file)
        self.workers = self.run(self._made())
        self.tokens: dict[str, str] = {}

    async def _made(self) -> Workers:
        made = Workers(self.datasets, Settings(), self.log)
        await made.start()
        return made

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @property
    def dataset(self) -> Dataset:
        return self.datasets.served["people"]

    def visit(self, analyst: str = "ana", terms: Terms = FREE) -> Visit:
        """A request that was let in."""
        if analyst not in self.tokens:
            self.tokens[analyst] = digest(token_of(self.policy, analyst, terms=terms))
        grant = self.dataset.ledger.grants()[analyst]
        return Visit("people", self.tokens[analyst], leased=self.dataset, dataset=self.dataset, grant=grant)

    async def done(self, work: Work, visit: Visit, body: bytes, *, heavy: bool = True, ends: bool = False) -> str:
        """Does work in a worker; where it ends, once it was charged."""

        async def look(stop: Callable[[float], None]) -> None:
            if ends and self.spent(visit.opened[1].analyst):
                stop(0.0)

        return await self.workers.do(visit, work, body, look, heavy=heavy)

    def there(self, work: Work, visit: Visit, body: bytes, **how: bool) -> str:
        return str(self.run(self.done(work, visit, body, **how)))

    def both(self, work: Work) -> Iterator[Callable[[Visit, bytes], str]]:
        """Does it here, and in a worker."""
        yield partial(begun, work)
        yield partial(self.there, work)

    def spent(self, analyst: str) -> float:
        return float(self.dataset.ledger.accounts()[analyst].spent)

    def pids(self) -> set[int]:
        """The workers that live, once all do."""
        self.run(until(lambda: len(self.workers.alive) == Settings().heavy + 1))
        return {worker.process.pid for worker in self.workers.alive}

    def working(self) -> int:
        """The worker that is at work."""
        (worker,) = (worker for worker in self.workers.alive if worker.outcome)
        return worker.process.pid

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.file.read_text().splitlines())
        return [line for line in lines if line["event"] == event]

    def close(self) -> None:
        self.run(self.workers.close())
        self.datasets.close()
        self.log.close()
        self.runner.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests: what they ask is theirs."""
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.close()


def asked(name: str, **fields: object) -> bytes:
    """A count, or what else is said."""
    return json.dumps({"id": name, "verb": "noisy_count", "epsilon": "0.5"} | fields).encode()


def long(name: str) -> bytes:
    """A choice among the members of very many families: a minute of work."""
    families = [{"kind": "any_grouping", "column": "letter", "seed": seed} for seed in range(1_000)]
    score = {"kind": "info_gain", "target": "income"}
    return asked(name, verb="exp_mech", score=score, candidates=[families])


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(MINUTE):
        while not holds():
            await asyncio.sleep(0.02)


def test_what_is_handed_over_is_answered_and_charged_once(served: Served) -> None:
    """Asked again, here or there, it has the same answer."""
    given = {do(served.visit("gil"), asked("one")) for do in [*served.both(QUERY), *served.both(QUERY)]}
    assert [Answer.from_json(text).id for text in given] == ["one"]
    assert served.spent("gil") == 0.5
    visit = served.visit("gil")
    assert served.there(replies.budget, visit, b"") == replies.budget(visit, b"")
    served.there(QUERY, visit, asked("one"))
    assert visit.request == "one"


@pytest.mark.parametrize(
    "body", [b"{", asked("two", verb="noisy_sum", column="height"), asked("three", epsilon="1000")]
)
def test_a_refusal_is_the_same_here_and_there(served: Served, body: bytes) -> None:
    """Class, text and facts, and whether it was charged."""
    errors = list[PinqError]()
    for do in served.both(QUERY):
        with pytest.raises(PinqError) as refused:
            do(served.visit("bob"), body)
        errors.append(refused.value)
    here, there = errors
    assert (type(here), str(here), here.facts, here.charged) == (type(there), str(there), there.facts, there.charged)


def test_both_processes_take_work_from_one_quota(served: Served) -> None:
    """What was taken in one is left in neither."""
    served.visit("cleo", terms=Terms(work_per_minute=8))
    took = 0

    def take() -> None:
        nonlocal took
        for do in [*served.both(QUERY)] * 9:
            do(served.visit("cleo"), asked(f"count{took}"))
            took += 1

    with pytest.raises(TooManyRequests, match="8 a minute"):
        take()
    assert 0 < took < 9
    for do in served.both(QUERY):
        with pytest.raises(TooManyRequests):
            do(served.visit("cleo"), asked("last"))


def test_a_token_that_ended_since_is_looked_at_there(served: Served) -> None:
    """The ledger is what both believe."""
    visit = served.visit("dan")
    revoke(served.policy, "dan")
    with pytest.raises(NotAuthorised):
        served.there(QUERY, visit, asked("five"))


def test_a_request_that_is_ended_here_ends_there(served: Served) -> None:
    """The charge stays, and its failure has the one text."""
    with pytest.raises(EngineError):
        served.there(QUERY, served.visit("eve"), long("six"), ends=True)
    assert served.spent("eve") == 0.5


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_where_a_worker_ends_at_work_another_goes_on_with_the_request(
    served: Served, monkeypatch: pytest.MonkeyPatch, sign: signal.Signals
) -> None:
    """It was charged before, and is not again; the log says what ended, and why."""
    monkeypatch.setattr(workers, "SICK_SECONDS", 3.0)
    pids, ends, name = served.pids(), served.workers.ends, f"fay{sign}"

    async def ask() -> int:
        working = asyncio.create_task(served.done(QUERY, served.visit(name), long("seven"), ends=True))
        await until(lambda: served.spent(name))
        pid = served.working()
        os.kill(pid, sign)
        with pytest.raises((EngineError, Stopped)):
            await working
        return pid

    served.visit(name)
    pid = served.run(ask())
    assert Answer.from_json(served.there(QUERY, served.visit(name), asked("eight"))).id == "eight"
    assert served.spent(name) == 1.0
    assert served.workers.ends == ends + 1
    problem = "a worker process ended" if sign == signal.SIGKILL else "a worker process does not answer"
    last = served.lines("worker ended")[-1]
    assert (last["pid"], last["problem"], served.workers.problem) == (pid, problem, "")
    assert served.pids() & pids == pids - {pid}


def test_a_server_that_stood_still_keeps_its_workers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stopped for longer than a worker may be silent, and they lived."""
    monkeypatch.setattr(workers, "SICK_SECONDS", 5.0)
    pids = served.pids()

    async def stand_still() -> None:
        await asyncio.sleep(2 * LOOK_SECONDS)
        time.sleep(7.0)
        await asyncio.sleep(2 * LOOK_SECONDS)

    served.run(stand_still())
    assert served.pids() == pids


def naps(_: Visit, __: bytes) -> str:
    """Works long enough to be looked at once."""
    time.sleep(1.5 * LOOK_SECONDS)
    return "slept"


def waits(visit: Visit, _: bytes) -> str:
    """Works in steps, each of which may be stopped."""
    for _step in range(20):
        visit.deadline.check()
        time.sleep(0.1)
    return "done"


def test_the_end_of_a_request_stops_no_later_request_of_its_worker(served: Served) -> None:
    """A client may go while its outcome arrives, and the worker has the next request by then."""
    served.pids()
    visits = [served.visit() for _ in served.workers.alive]

    async def ask() -> list[str]:
        looks, others = iter(range(9)), list[asyncio.Task[str]]()

        async def look(stop: Callable[[float], None]) -> None:
            if next(looks) == 1:
                await until(lambda: not any(worker.outcome for worker in served.workers.alive))
                others.extend(asyncio.create_task(served.done(waits, visit, b"", heavy=False)) for visit in visits)
                await until(lambda: all(worker.outcome for worker in served.workers.alive))
                stop(0.0)

        await served.workers.do(served.visit(), naps, b"", look, heavy=False)
        return await asyncio.gather(*others)

    assert served.run(ask()) == ["done"] * len(visits)


def test_signals_that_stop_a_server_pass_by_its_workers(served: Served) -> None:
    """They reach a terminal's whole group: what runs is finished."""
    pids = served.pids()
    for pid in pids:
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, sign)
    served.there(QUERY, served.visit(), asked("one"))
    assert served.pids() == pids


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="no Linux")
def test_a_system_without_memory_ends_a_worker_before_its_server(served: Served) -> None:
    """Its score is higher."""
    scores = {int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in served.pids()}
    assert scores == {int(OOM_SCORE)}
    assert int(Path("/proc/self/oom_score_adj").read_text()) < int(OOM_SCORE)


def test_a_worker_whose_call_of_c_does_not_end_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told the end of its request, and is killed where it goes on; one that is done is left alone."""
    monkeypatch.setattr(workers, "OVERDUE_SECONDS", 5.0)
    served.visit("guy")
    pids, ends = served.pids(), served.workers.ends
    with pytest.raises(Stopped):  # by the next one, which looks first
        served.there(sleeps, served.visit("guy"), asked("nine"), ends=True)
    assert served.workers.ends == ends + 1
    assert served.lines("worker ended")[-1]["problem"] == "a worker process does not answer"
    assert len(served.pids() & pids) == len(pids) - 1
    pids = served.pids()
    for worker in served.workers.alive:
        worker.connection.send(0.0)  # the end of a request that is done by then
    served.run(asyncio.sleep(7.0))
    assert served.pids() == pids


def hungry(_: Visit, __: bytes) -> str:
    """Needs more memory than there is."""
    return str(bytearray(2**60))


def hungry_engine(_: Visit, __: bytes) -> str:
    """The same, as what is charged says it."""
    try:
        bytearray(2**60)
    except MemoryError:
        raise EngineError() from None
    return ""


@pytest.mark.parametrize("work", [hungry, hungry_engine])
def test_a_worker_without_memory_ends(served: Served, work: Work) -> None:
    """Another one tries; then the request may be sent again, and the log says what ended."""
    pids, ends = served.pids(), served.workers.ends
    with pytest.raises(Unavailable, match="may be sent again"):
        served.there(work, served.visit("ivo"), asked("ten"))
    assert served.workers.ends == ends + workers.TRIES
    assert len(served.pids() & pids) == len(pids) - workers.TRIES
    assert {line["pid"] for line in served.lines("worker ended")[-workers.TRIES :]} <= pids


def sleeps(visit: Visit, body: bytes) -> str:
    """Charges, and then does nothing for a minute."""
    QUERY(visit, body)
    time.sleep(MINUTE)
    return ""


def test_a_refused_large_body_ends_no_worker(served: Served) -> None:
    """It costs its parsing alone."""
    pids = served.pids()
    with pytest.raises(PinqError):
        served.there(QUERY, served.visit(), b" " * (Settings().max_body // 2 + 1))
    assert served.pids() == pids


def test_where_no_worker_lives_the_server_is_not_ready(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log and the metrics say so; each request is told to come again; it is over once one lives."""
    monkeypatch.setattr(readiness, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(workers, "PAUSE_SECONDS", 0.5)
    pids, before, ends = served.pids(), len(served.lines("readiness")), served.workers.ends

    async def watch(patch: pytest.MonkeyPatch) -> None:
        looking = Readiness(served.datasets, served.workers, served.log)
        watching = asyncio.create_task(looking.watch())
        patch.setattr(workers, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: len(served.lines("readiness")) > before or watching.done())
        assert served.lines("readiness")[-1]["problems"] == ["a worker process ended"]
        told = {metric.name: metric.samples[0].value for metric in looking.collect() if metric.samples}
        assert told["pinq_ended_workers"] >= ends + len(pids)
        assert told["pinq_workers_ready"] == 0
        with pytest.raises(Unavailable, match="may be sent again"):
            await served.done(QUERY, served.visit(), asked("thirteen"))
        await until(lambda: served.workers.ends > ends + 2 * len(pids))  # tried again, and again
        patch.undo()
        await until(lambda: served.lines("readiness")[-1]["problems"] == [])
        watching.cancel()
        looking.close()

    with monkeypatch.context() as patch:
        served.run(watch(patch))
    served.there(QUERY, served.visit(), asked("thirteen"))
    assert not served.pids() & pids


def test_what_a_worker_would_read_otherwise_is_done_here(tmp_path: Path) -> None:
    """A source that changed after the server encoded it is not encoded anew beside it; the log says where work stays."""
    changed = Served(tmp_path)
    source = tmp_path / "people.parquet"
    source.write_bytes(source.read_bytes())
    assert Answer.from_json(changed.there(QUERY, changed.visit(), asked("nine"))).id == "nine"
    assert "changed since" in changed.lines("work stays in the server")[0]["reason"]
    changed.close()


def test_what_is_unexpected_has_one_text(served: Served) -> None:
    """Whichever process it happened in."""
    with pytest.raises(InternalError) as failed:
        served.there(os.path.join, served.visit(), b"")  # type: ignore[arg-type]
    assert str(failed.value) == str(unexpected())


def test_a_reload_reaches_the_workers_and_a_new_ledger_too(tmp_path: Path) -> None:
    """A policy that changed counts there; where a dataset was removed and added again, its old ledger is let go."""
    served = Served(tmp_path)
    pids = served.pids()
    for _ in pids:
        served.there(QUERY, served.visit(), asked("one"))
    assert sum(any(name.endswith(".ledger") for name in open_by(pid)) for pid in pids) < len(pids)  # one does them all
    served.policy.write_text(served.policy.read_text().replace("upper: 99", "upper: 120"))
    served.datasets.reload()
    body = asked(
        "cut", parts={"specs": [{"kind": "cuts", "column": "age", "points": [110]}], "asked": [[0, 0]], "shape": [2]}
    )
    assert len(Answer.from_json(served.there(QUERY, served.visit(), body)).values) == 2
    other = publish(tmp_path, "other")
    served.datasets._paths = [other]
    served.datasets.reload()
    for file in [*tmp_path.glob("people*ledger*"), *tmp_path.glob("people*claim")]:
        file.unlink()
    served.tokens.clear()
    served.datasets._paths = [served.policy]
    served.datasets.reload()
    assert Answer.from_json(served.there(QUERY, served.visit(), asked("one"))).id == "one"
    assert served.spent("ana") == 0.5
    assert served.pids() == pids
    held = {pid: [name for name in open_by(pid) if str(tmp_path) in name] for pid in pids}
    new = [pid for pid, names in held.items() if any(name.endswith(".ledger") for name in names)]
    assert new  # the last request's worker
    assert not [name for pid in new for name in held[pid] if name.endswith("(deleted)")]
    served.close()


def open_by(pid: int) -> list[str]:
    """The files that a process has open."""
    return [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists()]


def test_one_heavy_request_of_a_token_and_of_a_dataset_at_a_time(served: Served) -> None:
    """And a worker is always left for what takes a moment."""

    async def ask() -> list[str]:
        tasks = [
            asyncio.create_task(served.done(QUERY, served.visit(name), long(f"{name}{number}"), ends=True))
            for number in range(2)
            for name in ("hal", "ida")
        ]
        await until(lambda: served.spent("hal") + served.spent("ida"))
        quick = await served.done(QUERY, served.visit(), asked("one"), heavy=False)
        running = len([worker for worker in served.workers.alive if worker.outcome])
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, EngineError | Stopped)
        return [quick, str(running)]

    for name in ("hal", "ida"):
        served.visit(name)
    quick, running = served.run(ask())
    assert Answer.from_json(quick).id == "one"
    assert int(running) <= 1


def test_workers_end_with_the_server(served: Served) -> None:
    """Whatever they do, and also where nothing of the server could say so: their input ends."""
    pids = served.pids()
    stopped = min(pids)
    os.kill(stopped, signal.SIGSTOP)
    served.run(served.workers.close())
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with pytest.raises(Unavailable):
        served.there(QUERY, served.visit(), asked("one"))
    served.workers = served.run(served._made())


def test_a_worker_keeps_open_what_is_open_in_the_server(served: Served) -> None:
    """How a dataset is open is the same there after it was sent, so it is encoded once."""
    sent: DatasetState = pickle.loads(pickle.dumps(served.dataset.state))
    opened = Dataset.beside(sent, served.dataset.meter)
    assert opened.state == sent
    assert "salt" not in repr(sent)
    with pytest.raises(LedgerError, match="another ledger is in the place"):
        Dataset.beside(replace(sent, salt=b"another"), served.dataset.meter)
    opened.close()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (HeaderFault(["", "b"], "the header names no columns", []), "the header names no columns"),
        (OSError(24, "Too many open files"), str(unexpected())),
    ],
)
def test_a_dataset_that_a_worker_cannot_open_is_named_to_its_server(
    served: Served, monkeypatch: pytest.MonkeyPatch, fault: Exception, reason: str
) -> None:
    """Also by an error whose class takes more than a text, and by one that nobody expected."""
    monkeypatch.setattr(Dataset, "beside", Mock(side_effect=fault))
    worker, state = Worker(Mock()), (1, served.dataset.packed)
    named = workers.outcome_beside(QUERY, Visit("people", "token"), b"", state, frozenset(), worker)
    assert named == reason


@pytest.mark.parametrize(
    "error",
    [
        BudgetExceeded("too much", asked=Fraction(1, 3), remaining=Fraction(0), scope="cap"),
        QueryError("is 0", parameter="epsilon", allowed="more"),
        TooManyRequests("wait", 3.0),
        NotAuthorised(),
        EngineError(),
    ],
)
def test_an_error_passes_between_processes(error: PinqError) -> None:
    """Whatever its class takes: text, facts and charge."""
    error.charged = Fraction(1, 7)
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), vars(there), there.facts) == (type(error), str(error), vars(error), error.facts)
