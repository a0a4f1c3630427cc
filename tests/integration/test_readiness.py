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
from tests.servers import people, publish


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
    log, ledger = RequestLog(tmp_path / "log"), datasets["people"].ledger
    events = len([*ledger.events()])
    datasets["people"].engine.tabulate = None  # type: ignore[assignment, method-assign]
    assert look(datasets, log) == (200, {"ready": True, "current": True})
    assert "readiness" not in (tmp_path / "log").read_text()
    people(10).to_parquet(tmp_path / "people.parquet")
    assert look(datasets, log) == (200, {"ready": True, "current": False})
    datasets["people"].engine.close()
    assert look(datasets, log) == (503, {"ready": False, "current": False})
    last = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert last["problems"] == ["people: its engine is closed"]
    assert last["outdated"] == ["people: its source changed after it was encoded"]
    assert len([*ledger.events()]) == events
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
