# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a worker, whenever: others do not wait, no request fails for good, and it is replaced and said."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinq.server.limits import Settings
from tests.support.processes.servers import COLUMNS, Server, people, publish, serving, token_of

WORKERS = Settings.heavy + 1
WAIT_SECONDS = 0.5  # how much longer somebody else may wait than at a server whose workers live
MINUTES = 180.0
LETTERS = {"type": "categorical", "values": [f"v{i}" for i in range(16)]}
# As the command does, but it gives up a worker that starts after half a minute, and each takes seconds longer to start,
# so that there is time for harm, and readiness, which is looked at once a second, is seen to be false.
PATIENCE = """
from pinq.server import workers
workers.START_SECONDS = 30.0
workers.COMMAND = (*workers.COMMAND[:-1], "import time; time.sleep(3); " + workers.COMMAND[-1])
from pinq.cli.main import main
main()
"""


@dataclass
class Office:
    """A server, its policy, the connections of its analysts and that of a stranger."""

    server: Server
    policy: Path
    strange: httpx.Client
    clients: dict[str, httpx.Client] = field(default_factory=dict)

    def workers(self) -> dict[int, int]:
        """The worker processes, each with the ticks of the processor's clock that it used.

        A child that is still a copy of the server is no worker yet: the server waits until it is one.
        """
        found = dict[int, int]()
        for threads in Path(f"/proc/{self.server.process.pid}/task").glob("*/children"):
            for pid in threads.read_text().split():
                with suppress(OSError):
                    if b"pinq.server.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found[int(pid)] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
        return found

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = (line for line in self.server.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def ask(self, analyst: str, **request: Any) -> tuple[int, float]:
        """Asks until the answer is one that a client does not ask for again; its status, and how long that took."""
        if analyst not in self.clients:
            token = token_of(self.policy, analyst, 1000)
            self.clients[analyst] = self.server.http(Authorization=f"Bearer {token}")
        body = {"id": os.urandom(8).hex(), "verb": "noisy_count", "epsilon": "0.001"} | request
        began = time.monotonic()
        while True:
            answer = self.clients[analyst].post("/v1/people/query", json=body, timeout=MINUTES)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return answer.status_code, time.monotonic() - began
            time.sleep(0.1)

    def kept_waiting(self) -> float:
        """The seconds for which the server, and who asks here, were kept waiting for a processor."""
        nanoseconds = 0
        for process in ("self", self.server.process.pid):
            for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
                with suppress(OSError):
                    nanoseconds += int(thread.read_text().split()[1])
        return nanoseconds / 1e9

    def ready(self) -> bool:
        return bool(self.strange.get("/readyz").json()["ready"])


@contextmanager
def opened(folder: Path) -> Iterator[Office]:
    letters = people().assign(letter=[f"v{i % 16}" for i in range(400)])
    policy = publish(folder, frame=letters, columns=COLUMNS | {"letter": LETTERS}, cap=10**5)
    with serving(policy, folder=folder, program=PATIENCE) as server, server.http() as strange:
        office = Office(server, policy, strange)
        yield office
        for client in office.clients.values():
            client.close()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """One for all cases."""
    with opened(tmp_path_factory.mktemp("office")) as office:
        yield office


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Another server, whose workers live: its analysts wait as long as anybody does on this machine now."""
    with opened(tmp_path_factory.mktemp("quiet")) as office:
        yield office


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + MINUTES
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


# A choice among many families: some seconds of work.
LONG = {
    "verb": "exp_mech",
    "score": {"kind": "info_gain", "target": "income"},
    "candidates": [[{"kind": "any_grouping", "column": "letter", "seed": seed} for seed in range(200)]],
}


@contextmanager
def others(office: Office, quiet: Office) -> Iterator[list[int]]:
    """Analysts who count meanwhile: their statuses; none waited much longer than at the quiet server.

    This machine has other work, too: a wait for a processor is not counted.
    """
    statuses, waits, over = list[int](), {"here": [0.0], "there": [0.0]}, threading.Event()

    def count(where: str, server: Office) -> None:
        while not over.wait(0.05):
            before = server.kept_waiting()
            status, took = server.ask("light")
            statuses.append(status)
            waits[where].append(
                took - max(0.0, server.kept_waiting() - before)
            )  # a thread that ends takes its own along

    places = {"here": office, "there": quiet}
    for server in places.values():
        server.ask("light")
    threads = [threading.Thread(target=count, args=place) for place in places.items()]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()
    here, there = (max(waits[where]) for where in places)
    print(f"worst wait {here:.3f} s here, {there:.3f} s there")
    assert here < WAIT_SECONDS + there


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def starve(pid: int) -> None:
    """Leaves a process no memory that it does not have."""
    resource.prlimit(pid, resource.RLIMIT_AS, (2**20, 2**20))


def at_work(office: Office) -> int:
    """The worker that uses the processor most."""

    before = office.workers()

    def busiest() -> int:
        most = max((ticks - before[pid], pid) for pid, ticks in office.workers().items())
        return most[1] if most[0] > 5 else 0

    return int(until(busiest))


@pytest.mark.parametrize(
    ("when", "harm"),
    [(when, harm) for when in ("idle", "starting", "at work") for harm in (kill, stop)] + [("starting", starve)],
)
def test_a_worker_is_replaced_and_nobody_else_waits(
    office: Office, quiet: Office, when: str, harm: Callable[[int], None]
) -> None:
    """Its request is answered by another one, charged once."""
    before = until(lambda: len(office.workers()) == WORKERS and office.ready() and office.workers())
    analyst, answers = f"{when[0]}-{harm.__name__}", list[tuple[int, float]]()
    office.ask(analyst)
    asking = threading.Thread(target=lambda: answers.append(office.ask(analyst, **LONG)))
    with others(office, quiet) as statuses:
        if when == "starting":
            kill(next(iter(before)))
            (pid,) = until(lambda: office.workers().keys() - before.keys())
        elif when == "at work":
            asking.start()
            pid = at_work(office)
        else:
            pid = next(iter(before))
        harm(pid)
        if not asking.ident:
            asking.start()
        until(lambda: any(line.get("pid") == pid for line in office.lines("worker ended")))
        asking.join()
        until(lambda: pid not in office.workers() and len(office.workers()) == WORKERS)
        assert office.ready()
    assert [status for status, _ in answers] == [httpx.codes.OK]
    assert {*statuses} == {httpx.codes.OK}


@pytest.mark.parametrize("harm", [kill, stop])
def test_where_none_works_the_server_says_so_until_one_does(
    office: Office, quiet: Office, harm: Callable[[int], None]
) -> None:
    """What is light is answered meanwhile; what takes long is sent again."""
    before = until(lambda: len(office.workers()) == WORKERS and office.ready() and office.workers())
    with others(office, quiet) as statuses:
        for pid in before:
            harm(pid)
        until(lambda: not office.ready())
        assert office.ask("large", **LONG)[0] == httpx.codes.OK
        until(office.ready)
        # A worker that was stopped while it started is given up after a minute.
        until(lambda: {line.get("pid") for line in office.lines("worker ended")} >= {*before})
        until(lambda: len(office.workers()) == WORKERS)
    assert {*statuses} == {httpx.codes.OK}
