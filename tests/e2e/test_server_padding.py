# SPDX-License-Identifier: Apache-2.0
"""What one token sees of the time that its own questions take, with padding: whole buckets, whatever it asks meanwhile, when and where."""

from __future__ import annotations

import re
import sqlite3
import statistics
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
from tests.servers import ask, people, publish, serving, token_of

BUCKET = 1.0
COUNT = {"verb": "noisy_count", "epsilon": "0.01"}
SHARDS = {"specs": [{"kind": "shards", "count": 8000}], "asked": [[0, 0]], "shape": [8000]}


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


@pytest.mark.slow
def test_nothing_is_told_beside_a_running_question(tmp_path: Path) -> None:
    """While a question is worked on, history, budget and previews of its token wait: however long it takes, they then say how it ended."""
    policy = publish(tmp_path, frame=people(40_000), padding=f"{BUCKET:g}s")
    token = token_of(policy, "ana", 900)
    ledger = tmp_path / "people.parquet.ledger"
    with (
        serving(policy, folder=tmp_path) as server,
        server.http(Authorization=f"Bearer {token}") as client,
        ThreadPoolExecutor(3) as pool,
    ):
        client.get("/v1/people/budget")  # from now on the server knows the token
        with asking(client, id="slow", parts=SHARDS) as came:
            wait_for(ledger, "charge", "slow")
            with closing(sqlite3.connect(ledger, isolation_level=None, timeout=30)) as log:
                log.execute("BEGIN IMMEDIATE")  # holds the answer back, and so makes the question as slow as we like
                assert not log.execute("SELECT 1 FROM events WHERE kind = 'answer'").fetchone(), (
                    "the question was too fast for this test"
                )
                beside: list[Future[Any]] = [
                    pool.submit(outcomes, client),
                    pool.submit(client.get, "/v1/people/budget"),
                    pool.submit(client.post, "/v1/people/preview", json=COUNT | {"id": "p"}),
                ]
                time.sleep(2.5 * BUCKET)
                assert not came
                assert not any(one.done() for one in beside), "something was told while the question ran"
                log.execute("ROLLBACK")
        assert came[0].status_code == 200
        assert len(beside[0].result()) == 1
        time.sleep(BUCKET)  # the log counts the bucket from the charge, a little later than the answer's own clock
        assert outcomes(client) == ["answered"]


@pytest.mark.slow
def test_another_server_tells_no_more(tmp_path: Path) -> None:
    """Two servers of one ledger: the second one's history shows the first one's answer from the end of its bucket only."""
    policy = publish(tmp_path, padding=f"{BUCKET:g}s")
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


@pytest.mark.slow
def test_padding_of_what_takes_long(tmp_path: Path) -> None:
    """Questions longer than a bucket end with a bucket too; a token's run one at a time; the history dates none of them finer than that."""
    bucket = 0.25
    policy = publish(tmp_path, frame=people(40_000), padding="250ms")
    token = token_of(policy, "ana", 900)
    sex = {"kind": "values", "column": "sex"}
    took: list[float] = []
    begun: list[float] = []
    with serving(policy, folder=tmp_path) as running:

        def work(parts: int) -> None:
            many = {
                "specs": [
                    {
                        "kind": "cross",
                        "specs": [{"kind": "shards", "count": parts}, {"kind": "values", "column": "job"}],
                    }
                ],
                "asked": [[0, 0]],
                "shape": [parts, 4],
            }
            with running.http(Authorization=f"Bearer {token}") as client:
                client.get("/v1/people/budget")
                started = time.monotonic()
                begun.append(started)
                answer = ask(
                    client,
                    verb="exp_mech",
                    parts=many,
                    score={"kind": "gini", "target": "income"},
                    candidates=[[sex]],
                    epsilon="0.01",
                )
                took.append(time.monotonic() - started)
                assert answer.status_code == 200, answer.text

        work(100)  # sorts the shards, once
        took.clear()
        for parts in range(1500, 6000, 500):
            work(parts)
        # Without padding, or with a fixed sleep, what remains beyond whole buckets lies anywhere.
        late = sorted(one % bucket for one in took)
        assert statistics.median(late) < bucket / 3, (late, took)
        begun.clear()
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, [100] * 6))
        assert time.monotonic() - begun[0] > 6 * bucket, "several ran at once"
        with running.http(Authorization=f"Bearer {token}") as client:
            lines, page = list[Any](), {"more": True}
            while page["more"]:
                page = client.get(f"/v1/people/history?start={len(lines)}").json()
                lines += page["lines"]
    assert len(lines) == 16
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line["at"]) for line in lines)


@pytest.mark.parametrize(("bucket", "shown"), [(0, "59"), (0.04, "59"), (0.7, "58"), (2, "58"), (7, "56"), (60, "00")])
def test_times_in_the_history_are_coarse(bucket: float, shown: str) -> None:
    """Whole seconds, and no finer than the bucket."""
    assert coarse("2026-01-01T00:00:59.250+00:00", bucket) == f"2026-01-01T00:00:{shown}+00:00"
