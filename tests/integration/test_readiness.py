# SPDX-License-Identifier: Apache-2.0
"""What `/readyz` looks at: everything that an answer needs, at no charge, and with names for the provider alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinq.server import readiness
from pinq.server.app import create_app
from pinq.server.datasets import Datasets
from pinq.server.log import RequestLog
from tests.support.processes.servers import people, publish, token_of


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Datasets]:
    """One dataset; whoever asks again is told anew."""
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    datasets = Datasets.open([publish(tmp_path)])
    yield datasets
    datasets.close()


def look(datasets: Datasets, log: RequestLog) -> tuple[int, Any]:
    """What a stranger is told."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(datasets, log=log))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/readyz")

    answer = asyncio.run(ask())
    return answer.status_code, answer.json()


def test_a_stranger_learns_two_bits_and_the_log_the_names(datasets: Datasets, tmp_path: Path) -> None:
    """No row is counted, nothing is charged, and whatever is wrong the answer has the same two keys."""
    log, ledger = RequestLog(tmp_path / "log"), datasets.served["people"].ledger
    events = len([*ledger.log.events()])
    datasets.served["people"].engine.tabulate = None  # type: ignore[assignment, method-assign]
    assert look(datasets, log) == (200, {"ready": True, "current": True})
    assert "readiness" not in (tmp_path / "log").read_text()
    people(10).to_parquet(tmp_path / "people.parquet")
    assert look(datasets, log) == (200, {"ready": True, "current": False})
    datasets.served["people"].engine.close()
    assert look(datasets, log) == (503, {"ready": False, "current": False})
    last = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert last["problems"] == ["people: its engine is closed"]
    assert last["outdated"] == ["people: its source changed after it was encoded"]
    assert len([*ledger.log.events()]) == events
    log.close()


def test_a_full_disk_is_not_ready(datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a charge finds out."""
    log = RequestLog(tmp_path / "log")
    monkeypatch.setattr(readiness, "LEAST_BYTES", 2**62)
    assert look(datasets, log)[0] == 503
    assert f"people: the disk of {tmp_path} is full" in (tmp_path / "log").read_text()
    log.close()


def test_a_ledger_that_is_gone_is_not_ready(datasets: Datasets, tmp_path: Path) -> None:
    """Whatever its file's copy in memory could still say."""
    log = RequestLog(tmp_path / "log")
    for file in tmp_path.glob("*.ledger*"):
        file.unlink()
    assert look(datasets, log) == (503, {"ready": False, "current": True})
    log.close()


def test_a_log_that_takes_no_lines_is_not_ready_until_it_does(datasets: Datasets, tmp_path: Path) -> None:
    """Where no questions come, the look itself finds out that the disk has room again."""
    log = RequestLog(Path("/dev/full"))
    log.write("anything")
    assert look(datasets, log)[0] == 503
    assert look(datasets, log)[0] == 503
    log._file = tmp_path / "log"
    log.reopen()
    assert look(datasets, log)[0] == 200
    log.close()


def test_a_ledger_that_turned_read_only_says_so_and_gives_what_it_has(datasets: Datasets, tmp_path: Path) -> None:
    """A new question is refused and an answered one is not; the reason is in readiness, log and metrics, until it can be written again."""
    log, ledger = RequestLog(tmp_path / "log"), datasets.served["people"].ledger
    token = token_of(tmp_path / "people.yaml")
    database: Any = ledger.log.database
    why = "attempt to write a readonly database"

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:

            async def count(name: str) -> httpx.Response:
                body = {"id": name, "verb": "noisy_count", "epsilon": "0.1"}
                return await client.post("/v1/people/query", json=body)

            answered = await count("one")
            database.run("PRAGMA query_only = ON")
            refused = await count("two")
            assert (refused.status_code, refused.json()["code"]) == (503, "ledger")
            assert why not in refused.text
            assert (await client.get("/readyz")).json() == {"ready": False, "current": True}
            again = await count("one")
            assert (again.status_code, again.text) == (200, answered.text)
            assert (await client.get("/v1/people/budget")).status_code == 200
            database.run("PRAGMA query_only = OFF")
            assert (await client.get("/readyz")).status_code == 200
            assert (await count("two")).status_code == 200

    app = create_app(datasets, log=log)
    asyncio.run(ask())
    lines = [*map(json.loads, (tmp_path / "log").read_text().splitlines())]
    assert [why in str(line["problems"]) for line in lines if line["event"] == "readiness"] == [True, False]
    (refused,) = (line for line in lines if line.get("status") == 503)
    assert why in refused["reason"]
    assert float(ledger.accounts()["ana"].spent) == 0.2
    log.close()
