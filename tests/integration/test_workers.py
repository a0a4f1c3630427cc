# SPDX-License-Identifier: Apache-2.0
"""Long work in a server's workers: the same answers and refusals, one ledger, one quota; what is sick is seen."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pinq.analyst.tokens import digest
from pinq.curator.deadline import Stopped
from pinq.errors import (
    EngineError,
    InternalError,
    LedgerError,
    NotAuthorised,
    PinqError,
    TooManyRequests,
    Unavailable,
)
from pinq.language.queries import Answer
from pinq.ledger.events import FREE, Terms
from pinq.provider.grants import revoke
from pinq.server import readiness, replies, workers
from pinq.server.datasets import Dataset, Datasets
from pinq.server.limits import Settings
from pinq.server.log import RequestLog, unexpected
from pinq.server.readiness import Readiness
from pinq.server.replies import Visit, Work, begun
from pinq.server.workers import DatasetState, Workers
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
        return Workers(self.datasets, Settings(), self.log)

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

    def process(self) -> int:
        """The process that did the last work."""
        self.there(QUERY, self.visit(), asked("one"))
        return self.workers._idle[-1]._pid

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


def test_where_a_worker_is_killed_another_goes_on_with_the_request(served: Served) -> None:
    """It was charged before, and is not again; the log says what ended."""
    pid, ends = served.process(), served.workers.ends

    async def ask() -> None:
        working = asyncio.create_task(served.done(QUERY, served.visit("fay"), long("seven"), ends=True))
        await until(lambda: served.spent("fay"))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises((EngineError, Stopped)):
            await working

    served.run(ask())
    assert Answer.from_json(served.there(QUERY, served.visit("fay"), asked("eight"))).id == "eight"
    assert served.spent("fay") == 1.0
    assert served.workers.ends == ends + 1
    assert served.lines("worker ended")[-1]["pid"] == pid
    assert served.workers.problem == ""


def test_signals_that_stop_a_server_pass_by_its_workers(served: Served) -> None:
    """They reach a terminal's whole group: what runs is finished."""
    pid = served.process()
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, sign)
    assert served.process() == pid


def test_a_worker_that_hangs_is_killed_and_the_request_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it was idle when it stopped: its sign of life is missed, which shows until another one works."""
    monkeypatch.setattr(workers, "SICK_SECONDS", 3.0)
    pid, seen = served.process(), list[str]()
    os.kill(pid, signal.SIGSTOP)

    async def ask() -> str:
        answer = asyncio.create_task(served.done(QUERY, served.visit(), asked("twelve")))
        while not answer.done():
            seen.append(served.workers.problem)
            await asyncio.sleep(0.002)
        return await answer

    assert Answer.from_json(served.run(ask())).id == "twelve"
    assert "a worker process does not answer" in seen
    assert (served.workers.problem, served.process() != pid) == ("", True)


@pytest.mark.parametrize("what", ["worker", "fork server"])
def test_what_dies_idle_is_replaced_by_the_next_request(served: Served, what: str) -> None:
    """Nobody has to look first: the request is answered, and the log says what ended."""
    pid, ends = served.process(), served.workers.ends
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid if what == "worker" else parent, signal.SIGKILL)
    if what == "worker":  # its executor finds out, and takes no more work
        served.run(until(lambda: not Path(f"/proc/{pid}").exists()))
    else:  # it is dead once it only waits to be looked at
        served.run(until(lambda: ") Z " in Path(f"/proc/{parent}/stat").read_text()))
        served.workers._idle[-1].end()
    assert Answer.from_json(served.there(QUERY, served.visit(), asked(f"after-{what[0]}"))).id == f"after-{what[0]}"
    assert served.workers.problem == ""
    if what == "worker":
        assert (served.workers.ends, served.lines("worker ended")[-1]["pid"]) == (ends + 1, pid)


def test_idle_workers_are_started_and_replaced_by_a_look(served: Served) -> None:
    """All of them, so that no request waits for it."""
    served.run(served.workers.ping())
    pids = [worker._pid for worker in served.workers.all]
    assert 0 not in pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    served.run(until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids)))
    for _ in ("finds out", "starts"):
        served.run(served.workers.ping())
    assert not {worker._pid for worker in served.workers.all} & {0, *pids}
    assert served.workers.problem == ""


def test_the_start_of_a_worker_holds_nobody_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where it never ends: the loop goes on, and the server says that it is not ready."""
    monkeypatch.setattr(workers, "START_SECONDS", 0.5)
    monkeypatch.setattr(workers, "SICK_SECONDS", 0.0)
    released, worker = threading.Event(), workers.Worker(served.log)
    # Within the lock of the executor, as where its fork server hangs.
    monkeypatch.setattr(ProcessPoolExecutor, "_adjust_process_count", lambda _: released.wait())
    waits = list[float]()

    async def look() -> None:
        starting = asyncio.create_task(worker.ping())
        while not starting.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            waits.append(time.monotonic() - before)

    served.run(look())
    released.set()
    assert max(waits) < 0.5
    assert worker.problem == "a worker process does not answer"


def test_a_refused_large_body_ends_no_worker(served: Served) -> None:
    """It costs its parsing alone."""
    pid = served.process()
    with pytest.raises(PinqError):
        served.there(QUERY, served.visit(), b" " * (Settings().max_body // 2 + 1))
    assert served.process() == pid


def test_where_nobody_asks_a_look_finds_a_worker_that_hangs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not ready, in the log and in the metrics too, until another one has shown life."""
    monkeypatch.setattr(workers, "SICK_SECONDS", 3.0)
    monkeypatch.setattr(readiness, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    for _ in range(2):  # a worker that another test ended is noticed, and started again
        served.run(served.workers.ping())
    assert served.workers.problem == ""
    os.kill(served.process(), signal.SIGSTOP)
    problem, before = "a worker process does not answer", len(served.lines("readiness"))

    async def watch() -> None:
        looking = Readiness(served.datasets, served.workers, served.log)
        watching = asyncio.create_task(looking.watch())
        await until(lambda: len(served.lines("readiness")) > before or watching.done())
        assert served.lines("readiness")[-1]["problems"] == [problem]
        told = {metric.name: metric.samples[0].value for metric in looking.collect() if metric.samples}
        assert told["pinq_ended_workers"] == served.workers.ends > 0
        await until(lambda: served.lines("readiness")[-1]["problems"] == [])
        watching.cancel()
        looking.close()

    served.run(watch())


def test_workers_that_cannot_start_are_no_secret(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is told to come again, the server is not ready, and the log says so each time."""
    before = len(served.lines("worker ended"))
    for worker in served.workers.all:
        worker.end()
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_start", _fails)
        with pytest.raises(Unavailable, match="may be sent again"):
            served.there(QUERY, served.visit(), asked("thirteen"))
        assert served.workers.problem == "a worker process ended"
    assert len(served.lines("worker ended")) == before + workers.TRIES
    served.there(QUERY, served.visit(), asked("thirteen"))
    assert served.workers.problem == ""


def _fails(*_: object) -> None:
    os._exit(3)


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
    pid = served.process()
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
    assert served.process() == pid
    open_there = (os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists())
    assert not [name for name in open_there if str(tmp_path) in name and name.endswith("(deleted)")]
    served.close()


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
        running = len(served.workers.all) - len(served.workers._idle)
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, EngineError | Stopped)
        return [quick, str(running)]

    for name in ("hal", "ida"):
        served.visit(name)
    quick, running = served.run(ask())
    assert Answer.from_json(quick).id == "one"
    assert int(running) <= 1


def test_workers_end_with_the_server(served: Served) -> None:
    """Also where nothing of it could say so."""
    pid = served.process()
    served.run(served.workers.close())
    end = time.monotonic() + MINUTE
    while any(child.pid == pid for child in multiprocessing.active_children()):
        assert time.monotonic() < end
        time.sleep(0.02)
    with pytest.raises(Unavailable):
        served.there(QUERY, served.visit(), asked("one"))
    served.workers._closed = False
    served.workers = served.run(served._made())


def test_a_worker_keeps_open_what_is_open_in_the_server(served: Served) -> None:
    """How a dataset is open is the same there after it was sent, so it is encoded once."""
    sent: DatasetState = pickle.loads(pickle.dumps(DatasetState.of(served.dataset)))
    opened = Dataset.beside(
        sent.policy, sent.url, sent.salt, sent.source, sent.version, sent.closed, served.dataset.meter
    )
    assert DatasetState.of(opened) == sent
    assert "salt" not in repr(sent)
    with pytest.raises(LedgerError, match="another ledger is in the place"):
        Dataset.beside(sent.policy, sent.url, b"another", sent.source, sent.version, sent.closed, served.dataset.meter)
    opened.close()
