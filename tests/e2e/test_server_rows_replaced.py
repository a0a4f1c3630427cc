# SPDX-License-Identifier: Apache-2.0
"""Rows that change under a real server: each version is charged, at SIGHUP and at a restart, and a grant ends."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pinq
from pinq.errors import BudgetExceeded
from pinq.provider.report.audit import audit
from tests.support.processes.servers import Server, publish, serving, token_of

STATUS = [f"s{day}" for day in range(5)]
COLUMNS = {"status": {"type": "categorical", "values": STATUS}}


def rows(day: int) -> pd.DataFrame:
    """One person whose status is another one each day, beside people who stay."""
    return pd.DataFrame({"status": [STATUS[day], *[STATUS[-1]] * 20]})


def reloaded(server: Server, log: Path) -> dict[str, Any]:
    def lines() -> list[dict[str, Any]]:
        return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "reloaded"]

    seen = len(lines())
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 60
    while len(lines()) == seen and time.monotonic() < end:
        time.sleep(0.02)
    return lines()[-1]


def test_who_changes_daily_is_charged_daily_and_the_grant_ends(tmp_path: Path) -> None:
    """By SIGHUP, and once by a restart; the audit lists the versions, and the refusal says that the rows were replaced."""
    policy = publish(tmp_path, frame=rows(0), columns=COLUMNS)
    token, log = token_of(policy, "ana", 3), tmp_path / "requests.log"
    prices = list[tuple[Any, Any]]()

    def asked(server: Server, day: int) -> None:
        with pinq.connect(server.url(), token=token, **server.words()) as handle:
            part = handle.partition(pinq.Values("status"))[day : day + 1]
            price = part.preview("noisy_count", epsilon=1).cost
            part.noisy_count(epsilon=1)
            prices.append((price, handle.budget.spent))

    start: Callable[[], Any] = lambda: serving(policy, folder=tmp_path, options=("--log", str(log)))  # noqa: E731
    with start() as server:
        asked(server, 0)
        rows(1).to_parquet(policy.with_suffix(".parquet"))
        assert reloaded(server, log)["changed"] == ["people (encoded again, version 2 of the rows)"]
        asked(server, 1)
        server.stop()
    rows(2).to_parquet(policy.with_suffix(".parquet"))
    with start() as server:
        asked(server, 2)
        rows(3).to_parquet(policy.with_suffix(".parquet"))
        reloaded(server, log)
        with pytest.raises(BudgetExceeded, match="The rows were replaced"):
            asked(server, 3)
        with pinq.connect(server.url(), token=token, **server.words()) as handle:
            assert handle.budget.replaced.startswith("The rows were replaced, or read otherwise, on 2")
        with server.http(Authorization=f"Bearer {token}") as client:
            assert "replaced" in client.get("/v1/people/budget").json()
            lines = client.get("/v1/people/history").json()["lines"]
            assert [line.get("version") for line in lines] == [1, 2, 3, None]
        server.stop()
    assert prices == [(1, 1), (1, 2), (1, 3)]
    versions = [line for line in audit(policy).changes if line.kind == "version"]
    assert [line.about.split(":")[0] for line in versions] == [f"version {day} of the rows" for day in range(1, 5)]


def test_a_declared_version_whose_rows_changed_is_not_served(tmp_path: Path) -> None:
    """The log and the readiness say so, and what was served goes on from the rows that it has."""
    policy = publish(tmp_path, frame=rows(0), columns=COLUMNS, rows_version="2026-11")
    token, log = token_of(policy, "ana", 3), tmp_path / "requests.log"
    with serving(policy, folder=tmp_path, options=("--log", str(log))) as server:
        rows(1).to_parquet(policy.with_suffix(".parquet"))
        (failed,) = reloaded(server, log)["failed"]
        assert "not those of '2026-11'" in failed
        with server.http() as client:
            assert client.get("/readyz").json() == {"ready": True, "current": False}
        with pinq.connect(server.url(), token=token, **server.words()) as handle:
            handle.noisy_count(epsilon=1)
        policy.write_text(policy.read_text().replace("2026-11", "2026-12"))
        assert "version 2 of the rows" in reloaded(server, log)["changed"][0]
        server.stop()
