# SPDX-License-Identifier: Apache-2.0
"""Several processes serve one port over one ledger: signals reach all, and what ends is started again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinq.ledger.ledger import Ledger
from tests.support.processes.forked_processes import run_pinq
from tests.support.processes.servers import Server, publish, serving, token_of

WORKERS = 2
QUERIES = 60
DELAYED_SECONDS = 0.035  # a packet that waits for an acknowledgement waits 40 ms


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 240  # a worker starts slowly where other tests run
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def events(server: Server, event: str) -> list[dict[str, Any]]:
    """The log's lines of one kind."""
    lines = (line for line in server.log.read_text().splitlines() if line.startswith("{"))
    return [line for line in map(json.loads, lines) if line["event"] == event]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def fastest(root: str) -> float:
    """The least that an answer on a kept connection takes."""
    took = list[float]()
    with httpx.Client(base_url=root, trust_env=False) as client:
        for _ in range(20):
            began = time.monotonic()
            client.get("/healthz")
            took.append(time.monotonic() - began)
    return min(took[1:])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Two workers; what is in the log is on the error stream."""
    policy = publish(tmp_path)
    options = ("--workers", str(WORKERS))
    with serving(policy, folder=tmp_path, options=options) as running:
        until(lambda: f"Serving {WORKERS} workers on {running.root}" in running.log.read_text())
        yield running


def ask(root: str, token: str, name: str) -> str:
    """One question on a connection of its own, which any worker may take; as our client does, again where a worker ends with it."""
    body = {"id": name, "verb": "noisy_count", "epsilon": "0.001"}
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=root, headers=headers, timeout=60, trust_env=False) as client:
        try:
            return client.post("/v1/people/query", json=body).raise_for_status().text
        except httpx.TransportError:
            return client.post("/v1/people/query", json=body).raise_for_status().text


def test_workers_share_port_and_ledger_and_are_started_again(server: Server, tmp_path: Path) -> None:
    """Each question is charged once, whoever answers it, and no two workers draw the same noise; a killed one comes back; SIGHUP reaches all; SIGTERM ends all."""
    token = token_of(tmp_path / "people.yaml")
    names = [f"q{number // 2}" for number in range(2 * QUERIES)]  # each id twice
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: ask(server.root, token, name), names))
    assert answers[::2] == answers[1::2]
    assert len({json.loads(answer)["values"][0] for answer in answers}) > 0.9 * QUERIES
    ledger = Ledger(str(tmp_path / "people.parquet.ledger"), create=False, read_only=True)
    assert ledger.accounts()["ana"].answered == QUERIES
    ledger.close()
    assert fastest(server.root) < DELAYED_SECONDS

    pids = [int(line["pid"]) for line in events(server, "started")]
    assert len(pids) == WORKERS
    os.kill(pids[1], signal.SIGKILL)
    until(lambda: len(events(server, "started")) == WORKERS + 1)
    assert any("died" in line["message"] for line in events(server, "server"))
    assert ask(server.root, token, "q0") == answers[0]

    policy, started = tmp_path / "people.yaml", len(events(server, "started"))
    policy.write_text(policy.read_text().replace("cap: 1000", "cap: 900"))
    server.process.send_signal(signal.SIGHUP)  # one after the other is replaced
    until(lambda: len(events(server, "started")) == started + WORKERS)
    assert ask(server.root, token, "q0") == answers[0]
    until(lambda: len(events(server, "stopped")) == WORKERS)
    policy.write_text(policy.read_text().replace("cap: 900", "cap: much"))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: any("keeping worker" in line["message"] for line in events(server, "server")))
    assert ask(server.root, token, "q0") == answers[0]

    workers = [int(line["pid"]) for line in events(server, "started")]
    assert server.stop() == 0
    assert not any(map(alive, workers))
    assert len(events(server, "stopped")) == 2 * WORKERS


def test_workers_end_with_their_parent(server: Server) -> None:
    """Nobody serves on unsupervised."""
    workers = [int(line["pid"]) for line in events(server, "started")]
    server.process.kill()
    server.process.wait()
    until(lambda: not any(map(alive, workers)))


def test_no_process_without_a_dataset_replaces_one_that_serves_it(tmp_path: Path) -> None:
    """A source that could not be read at the start keeps nobody from starting, and is named."""
    served = tmp_path / "served"
    token, source = token_of(publish(served)), served / "people.parquet"
    broken = publish(served, "broken")
    broken.with_suffix(".parquet").write_bytes(b"PAR1 of nobody PAR1")
    with serving(served, folder=tmp_path, options=("--workers", str(WORKERS))) as server:
        until(lambda: len(events(server, "started")) == WORKERS)
        assert f"Not served: {broken}: The source of 'broken' cannot be read" in server.log.read_text()
        assert all(line["datasets"] == ["people"] for line in events(server, "started"))
        whole = source.read_bytes()
        source.write_bytes(b"PAR1 of nobody PAR1")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: any("keeping worker" in line["message"] for line in events(server, "server")))
        assert "people.yaml: The source of 'people' cannot be read" in events(server, "not started")[0]["reason"]
        assert ask(server.root, token, "q0")
        source.write_bytes(whole)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(events(server, "started")) == 2 * WORKERS)


def test_what_is_wrong_at_the_start_ends_all(tmp_path: Path) -> None:
    """One line says what, and nothing is tried again."""
    policy = publish(tmp_path, padding="50ms")
    words = ["serve", str(policy), "--insecure-http", "--port", "0", "--workers", str(WORKERS)]
    done = run_pinq(words)
    assert done.returncode == 1
    assert done.stderr.count("Error:") == 1
    assert "needs one clock" in done.stderr
