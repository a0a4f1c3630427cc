# SPDX-License-Identifier: Apache-2.0
"""Work that takes minutes holds one thread, and ends when nobody may or wants to have it."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

import pinq
from pinq.provider.grants import revoke
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from tests.support.processes.servers import Certificate, Server, publish, serving, token_of

ATTACKERS, EACH = 4, 4
SHUTDOWN_SECONDS = 2  # a server that is meant to be used takes ten times as long before it breaks off
COLUMNS: dict[str, Any] = {
    "letter": {"type": "categorical", "values": [f"v{i}" for i in range(16)]},
    "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
}


def _letters(rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"letter": [f"v{i % 16}" for i in range(rows)], "income": [("<=50K", ">50K")[i % 3 == 0] for i in range(rows)]}
    )


def _minutes(name: str) -> bytes:
    """A request of minutes of work, at the least epsilon there is."""
    seeds = [{"kind": "any_grouping", "column": "letter", "seed": seed} for seed in range(8_000)]
    score = {"kind": "info_gain", "target": "income"}
    request = {"id": name, "verb": "exp_mech", "epsilon": "0.000000001", "score": score, "candidates": [seeds]}
    return json.dumps(request | {"each": True}).encode()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[Server, Path, list[int], list[threading.Thread]]]:
    """A server under sixteen such requests of four tokens; what they get goes into the list."""
    policy = publish(tmp_path, "letters", _letters(400), columns=COLUMNS)
    publish(tmp_path, "people")
    tokens = [token_of(policy, f"attacker{number}", epsilon=1) for number in range(ATTACKERS)]
    statuses: list[int] = []
    with serving(
        tmp_path, folder=tmp_path, certificate=Certificate.make(tmp_path), shutdown_seconds=SHUTDOWN_SECONDS
    ) as server:

        def attack(token: str, name: str) -> None:
            try:
                with server.http(Authorization=f"Bearer {token}") as client:
                    answer = client.post("/v1/letters/query", content=_minutes(name), timeout=300)
                statuses.append(answer.status_code)
            except httpx.TransportError:
                statuses.append(0)

        threads = [
            threading.Thread(target=attack, args=(token, f"a{number}")) for token in tokens for number in range(EACH)
        ]
        for thread in threads:
            thread.start()
        _until(lambda: open_ledger(load_policy(policy)).together().spent.nano >= 1)
        yield server, policy, statuses, threads
        server.process.kill()
        for thread in threads:
            thread.join()


def _until(holds: Any, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_others_are_answered_revoking_gives_the_server_back_and_the_charge_stays(busy: Any, tmp_path: Path) -> None:
    """Counts of the same and of another dataset go on beside minutes of work, which revoking ends."""
    server, policy, statuses, threads = busy
    for dataset, file in (("letters", policy), ("people", tmp_path / "people.yaml")):
        with pinq.connect(server.url(dataset), token=token_of(file, "victim"), **server.words()) as handle:
            for _ in range(5):
                handle.noisy_count(epsilon=0.1)
    assert not statuses
    for number in range(ATTACKERS):
        revoke(load_policy(policy), f"attacker{number}")
    for thread in threads:
        thread.join(60)
    assert set(statuses) == {401, 500}  # those that waited, and what ran and was charged
    ledger = open_ledger(load_policy(policy))
    spent = [ledger.accounts()[f"attacker{number}"].spent.nano for number in range(ATTACKERS)]
    assert sum(spent) == statuses.count(500)


def test_a_server_that_is_told_to_stop_does_not_wait_for_minutes_of_work(busy: Any) -> None:
    """It exits by itself, while requests of minutes run and wait."""
    server, _, _, _ = busy
    assert server.stop() in (0, -signal.SIGTERM)
