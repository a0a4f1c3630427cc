# SPDX-License-Identifier: Apache-2.0
"""What one token sees of the time that its own questions take, with padding: whole buckets, whatever it asks meanwhile, when and where."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinq.server.replies import coarse
from tests.support.processes.servers import publish, serving, token_of

BUCKET = 1.0
PATIENT = 4.0  # a bucket in which a history is read on any machine
TRIES = 10
COUNT = {"verb": "noisy_count", "epsilon": "0.01"}
PARTS = 8000  # whose noise takes a sixth of a second
SHARDS = {"specs": [{"kind": "shards", "count": PARTS}], "asked": [[0, 0]], "shape": [PARTS]}


@contextmanager
def asking(client: httpx.Client, **question: Any) -> Iterator[list[httpx.Response]]:
    """A question in a thread of its own; the list has its answer once it came."""
    came: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: came.append(client.post("/v1/people/query", json=COUNT | question)))
    thread.start()
    yield came
    thread.join()


def wait_for(ledger: Path, kind: str, request: str) -> None:
    """Waits until the log holds an event of a request."""
    with closing(sqlite3.connect(ledger)) as log:
        end = time.monotonic() + 60
        while not log.execute("SELECT 1 FROM events WHERE kind = ? AND request = ?", (kind, request)).fetchone():
            assert time.monotonic() < end, f"there is no {kind} of {request}"
            time.sleep(0.005)


def outcomes(client: httpx.Client) -> list[str]:
    """How the analyst's requests ended, by the history."""
    return [line["outcome"] for line in client.get("/v1/people/history").json()["lines"]]


def test_nothing_is_told_beside_a_running_question(tmp_path: Path) -> None:
    """While a question is worked on, history, budget and previews of its token wait: however long it takes, they then say how it ended."""
    policy = publish(tmp_path, padding=f"{BUCKET:g}s")
    token = token_of(policy, "ana", 900)
    ledger = tmp_path / "people.parquet.ledger"
    with (
        serving(policy, folder=tmp_path) as server,
        server.http(Authorization=f"Bearer {token}") as client,
        ThreadPoolExecutor(3) as pool,
    ):
        client.get("/v1/people/budget")  # from now on the server knows the token
        for attempt in range(TRIES):
            with asking(client, id=f"slow-{attempt}", parts=SHARDS) as came:
                wait_for(ledger, "charge", f"slow-{attempt}")
                with closing(sqlite3.connect(ledger, isolation_level=None, timeout=30)) as log:
                    log.execute(
                        "BEGIN IMMEDIATE"
                    )  # holds the answer back, and so makes the question as slow as we like
                    answered = log.execute("SELECT count(*) FROM events WHERE kind = 'answer'").fetchone()[0]
                    if answered > attempt:
                        continue  # the question was faster than this test
                    beside: list[Future[Any]] = [
                        pool.submit(outcomes, client),
                        pool.submit(client.get, "/v1/people/budget"),
                        pool.submit(client.post, "/v1/people/preview", json=COUNT | {"id": "p"}),
                    ]
                    time.sleep(2.5 * BUCKET)
                    assert not came
                    assert not any(one.done() for one in beside), "something was told while the question ran"
                    log.execute("ROLLBACK")
            break
        else:
            pytest.fail("the question was always too fast for this test")
        assert came[0].status_code == 200
        assert len(beside[0].result()) == attempt + 1
        time.sleep(BUCKET)  # the log counts the bucket from the charge, a little later than the answer's own clock
        assert outcomes(client) == ["answered"] * (attempt + 1)


def test_another_server_tells_no_more(tmp_path: Path) -> None:
    """Two servers of one ledger: the second one's history shows the first one's answer from the end of its bucket only."""
    policy = publish(tmp_path, padding=f"{PATIENT:g}s")
    token = token_of(policy, "ana", 900)
    with (
        serving(policy, folder=tmp_path) as one,
        serving(policy, folder=tmp_path) as two,
        one.http(Authorization=f"Bearer {token}") as here,
        two.http(Authorization=f"Bearer {token}") as there,
    ):
        with asking(here, id="r"):
            wait_for(tmp_path / "people.parquet.ledger", "answer", "r")
            assert outcomes(there) == ["charged, not answered"]
        assert outcomes(there) == ["answered"]


def test_a_slow_body_does_not_move_the_clock(tmp_path: Path) -> None:
    """Who sends a body late cannot choose where in a bucket the work begins: a whole bucket lies between the body's end and the answer."""
    bucket = 0.8
    policy = publish(tmp_path, padding="800ms")
    ended: list[float] = []

    def late() -> Iterator[bytes]:
        yield b'{"id": "late", "verb": "noisy_count",'
        time.sleep(bucket / 2)
        ended.append(time.monotonic())
        yield b'"epsilon": "0.01"}'

    with serving(policy, folder=tmp_path) as server, server.http(Authorization=f"Bearer {token_of(policy)}") as client:
        assert client.post("/v1/people/query", content=late()).status_code == 200
        assert time.monotonic() - ended[0] >= bucket


def test_questions_of_a_token_run_one_at_a_time(tmp_path: Path) -> None:
    """Six that are sent together take six buckets; the history dates none of them finer than that."""
    policy = publish(tmp_path, padding=f"{1000 * BUCKET / 4:g}ms")
    with (
        serving(policy, folder=tmp_path) as server,
        server.http(Authorization=f"Bearer {token_of(policy)}") as client,
        ThreadPoolExecutor(6) as pool,
    ):
        client.get("/v1/people/budget")
        begun = time.monotonic()
        asked = [pool.submit(client.post, "/v1/people/query", json=COUNT | {"id": f"r{turn}"}) for turn in range(6)]
        assert [one.result().status_code for one in asked] == [200] * 6
        assert time.monotonic() - begun >= 6 * BUCKET / 4, "several ran at once"
        lines = client.get("/v1/people/history").json()["lines"]
    assert len(lines) == 6
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line["at"]) for line in lines)


@pytest.mark.parametrize(("bucket", "shown"), [(0, "59"), (0.04, "59"), (0.7, "58"), (2, "58"), (7, "56"), (60, "00")])
def test_times_in_the_history_are_coarse(bucket: float, shown: str) -> None:
    """Whole seconds, and no finer than the bucket."""
    assert coarse("2026-01-01T00:00:59.250+00:00", bucket) == f"2026-01-01T00:00:{shown}+00:00"
