# SPDX-License-Identifier: Apache-2.0
"""Many clients, several servers, one grant: what is answered is what was granted, whoever keeps the ledger. And nobody starves."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import pinq
from pinq import Gini, Shards, Values
from pinq.provider import grants
from pinq.provider.opening import open_ledger
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.postgresql import HERE, SKIPPED, kind_of
from tests.support.processes.servers import Server, people, publish, serving, token_of

SERVERS, CLIENTS = (8, 32) if ASSURANCE else (4, 32)
ANSWERS = 2000 if ASSURANCE else 160


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.skipif(not HERE, reason=SKIPPED))])
def ledger(request: pytest.FixtureRequest) -> str | None:
    """A ledger beside the data, or one in PostgreSQL."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgresql")


def test_thirty_two_clients_and_four_servers_share_one_grant(ledger: str | None, tmp_path: Path) -> None:
    """Exactly the grant is answered; each client sees answers and then BudgetExceeded, and nothing else."""
    declared: dict[str, Any] = {} if ledger is None else {"ledger": ledger}
    policy = publish(tmp_path, **declared)
    token = token_of(policy, epsilon="1")
    epsilon = (Epsilon.of(1) // ANSWERS).exact
    answered, problems = [0] * CLIENTS, []
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(policy, folder=tmp_path)) for _ in range(SERVERS)]
        start = threading.Barrier(CLIENTS)

        def work(number: int) -> None:
            try:
                with pinq.connect(
                    servers[number % SERVERS].url(), token=token, timeout=120, insecure_http=True
                ) as handle:
                    start.wait()
                    while True:
                        handle.noisy_count(epsilon=epsilon)
                        answered[number] += 1
            except pinq.BudgetExceeded as refusal:
                assert refusal.remaining < refusal.asked
            except BaseException as error:
                problems.append(error)
                start.abort()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems, problems[0]
    assert sum(answered) == ANSWERS
    book = open_ledger(pinq.load_policy(policy))
    book.verify()
    kinds = [event.kind for event in book.log.events()]
    assert (kinds.count("charge"), kinds.count("answer"), kinds.count("refusal")) == (ANSWERS, ANSWERS, CLIENTS)
    assert book.grants()["ana"].spent == book.grants()["ana"].limit
    note(f"answers for which {SERVERS} servers raced ({kind_of(ledger)})", ANSWERS, "as many as were granted")
    book.close()


@pytest.mark.skipif(not HERE, reason=SKIPPED)
def test_what_one_server_does_the_other_knows(postgresql: str, tmp_path: Path) -> None:
    """Two servers of one ledger in PostgreSQL: a budget spent, an answer stored, a grant revoked at one counts at the other at once."""
    policy = publish(tmp_path, ledger=postgresql)
    token = token_of(policy, epsilon="1")
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(policy, folder=tmp_path)) for _ in range(2)]
        here, there = (
            stack.enter_context(pinq.connect(server.url(), token=token, insecure_http=True)) for server in servers
        )
        first = here.noisy_count(epsilon=0.75)
        assert there.budget.remaining == Epsilon.of("0.25").exact
        assert there.noisy_count(epsilon=0.75, reuse=True) == first
        with pytest.raises(pinq.BudgetExceeded):
            there.noisy_count(epsilon=0.5)
        grants.revoke(policy, "ana")
        for handle in (here, there):
            with pytest.raises(pinq.NotAuthorised):
                handle.noisy_count(epsilon=0.1)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over enough rows that a large question takes a while."""
    place = tmp_path_factory.mktemp("busy")
    policy = publish(place, frame=people(200_000))
    with serving(policy, folder=place) as running:
        running.tokens = [token_of(policy, name, 999) for name in ("slow", "quick")]  # type: ignore[attr-defined]
        yield running


def test_one_slow_analyst_does_not_starve_another(busy: Server) -> None:
    """While one analyst keeps two dozen large questions going, more than the server has threads, another's counts are answered soon: in the time of a fraction of one of them."""
    slow_token, quick_token = busy.tokens  # type: ignore[attr-defined]
    stop, took = threading.Event(), []

    def ask_much() -> None:
        with pinq.connect(busy.url(), token=slow_token, timeout=120, insecure_http=True) as handle:
            parts = handle.partition(Shards(2000), Values("job"))
            while not stop.is_set():
                started = time.monotonic()
                parts.exp_mech([Values("sex")], score=Gini("income"), epsilon=0.001)
                took.append(time.monotonic() - started)

    threads = [threading.Thread(target=ask_much) for _ in range(24)]
    for thread in threads:
        thread.start()
    quick: list[float] = []
    try:
        with pinq.connect(busy.url(), token=quick_token, timeout=120, insecure_http=True) as handle:
            while len(took) < 2:
                time.sleep(0.05)
            for _ in range(15):
                started = time.monotonic()
                handle.noisy_count(epsilon=0.001)
                quick.append(time.monotonic() - started)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statistics.median(quick) < statistics.median(took) / 3, (quick, took)
