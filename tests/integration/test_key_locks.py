# SPDX-License-Identifier: Apache-2.0
"""Threads that ask for the same thing take turns, so a request that arrives again while it is worked on is computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pinq.curator.monitor import KeyLocks
from pinq.errors import EngineError
from pinq.language.queries import Request

WAIT = 20


def count(id: str) -> Request:
    return Request(id=id, verb="noisy_count", epsilon="0.001")


def test_one_at_a_time_for_each_key() -> None:
    """Others do not wait; nothing is left, whatever went wrong inside."""
    locks, inside, most = KeyLocks(), dict.fromkeys("ab", 0), dict.fromkeys("ab", 0)

    def work(number: int) -> None:
        key = "ab"[number % 2]
        with locks.take(key):
            inside[key] += 1
            most[key] = max(most[key], inside[key])
            inside[key] -= 1
            if number % 3 == 0:
                raise KeyError

    with ThreadPoolExecutor(8) as pool:
        failed = [future.exception() is not None for future in [pool.submit(work, number) for number in range(600)]]
    assert sum(failed) == 200
    assert most == {"a": 1, "b": 1}
    assert len(locks._locks) == 0
    with locks.take("a"), locks.take("b"):
        assert len(locks._locks) == 2


class Gated:
    """An engine that counts tabulations and holds them until it is told to go on."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.calls, self.fails = engine, 0, 0
        self.arrived, self.go = threading.Semaphore(0), threading.Event()

    def tabulate(self, *args: Any) -> Any:
        self.calls += 1
        self.arrived.release()
        assert self.go.wait(WAIT)
        if self.calls <= self.fails:
            raise RuntimeError("a disk failed")
        return self.engine.tabulate(*args)

    def close(self) -> None:
        self.engine.close()


@pytest.fixture
def session(in_memory: Callable[..., Any]) -> Any:
    session = in_memory(10)._session
    session._curator._engine = Gated(session._curator._engine)
    session._curator._working = Counted()
    return session


class Counted(KeyLocks):
    """Says how many came for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Semaphore(0)

    def take(self, key: Hashable) -> threading.Lock:
        lock = super().take(key)
        self.came.release()
        return lock


def waiting(session: Any, users: int) -> None:
    """Until so many are inside the curator, or wait there."""
    for _ in range(users):
        assert session._curator._working.came.acquire(timeout=WAIT), "they did not come"


def test_a_request_that_comes_twice_is_computed_once(session: Any) -> None:
    """Both get the one answer; another request passes meanwhile."""
    engine = session._curator._engine
    with ThreadPoolExecutor(4) as pool:
        twice = [pool.submit(session.ask, count("same")) for _ in range(2)]
        assert engine.arrived.acquire(timeout=WAIT)
        waiting(session, 2)
        other = pool.submit(session.ask, count("other"))
        assert engine.arrived.acquire(timeout=WAIT), "another request must not wait"
        engine.go.set()
        one, two = (future.result(WAIT) for future in twice)
        other.result(WAIT)
    assert one == two
    assert engine.calls == 2
    assert len(session._curator._working._locks) == 0
    assert float(session.budget().spent) == 0.002


def test_who_waited_for_a_failure_tries_himself(session: Any) -> None:
    """The charge stands and is not made twice."""
    engine = session._curator._engine
    engine.fails = 1
    with ThreadPoolExecutor(2) as pool:
        twice = [pool.submit(session.ask, count("same")) for _ in range(2)]
        assert engine.arrived.acquire(timeout=WAIT)
        waiting(session, 2)
        engine.go.set()
        errors = [future.exception(WAIT) for future in twice]
    assert [type(error) for error in errors if error is not None] == [EngineError]
    assert engine.calls == 2
    assert float(session.budget().spent) == 0.001
