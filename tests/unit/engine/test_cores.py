# SPDX-License-Identifier: Apache-2.0
"""Threads that take turns share a core; those that count rows roam."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from pinq.engine import cores
from pinq.server.api.lanes import Lanes
from pinq.server.api.limits import Settings

pytestmark = pytest.mark.skipif(len(cores._ALLOWED) < 2, reason="a single core, or a system that binds no threads")

T = TypeVar("T")


def seen() -> set[int]:
    """Which cores the calling thread may run on."""
    return os.sched_getaffinity(0)


def bound(work: Callable[[], set[T]]) -> set[T]:
    """Does work in a thread that shares a core."""
    with ThreadPoolExecutor(1, initializer=cores.share_core, initargs=(1,)) as pool:
        return pool.submit(work).result()


def test_a_thread_and_those_that_it_starts_share_the_core() -> None:
    """And roam again when told so."""

    def begun() -> set[int]:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(seen).result()

    def freed() -> set[int]:
        cores.roam()
        return begun()

    assert bound(begun) == {cores._ALLOWED[1]}
    assert bound(freed) == set(cores._ALLOWED) == seen()


def test_what_counts_rows_roams_whoever_starts_it() -> None:
    """The engine's threads and those of long work."""
    assert bound(lambda: set(cores.side_by_side(lambda _: frozenset(seen()), range(2)))) == {frozenset(cores._ALLOWED)}
    lanes = Lanes(["people"], Settings())
    assert bound(lambda: lanes._long.submit(seen).result()) == set(cores._ALLOWED)


def test_a_long_list_of_work_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads get a few items at a time: while the first is done, most of a hundred have not been asked for."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    asked, seen = list[int](), list[int]()

    def items() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    def work(number: int) -> int:
        if not number:
            seen.append(len(asked))
        return 2 * number

    assert cores.side_by_side(work, items()) == list(range(0, 200, 2))
    assert 2 <= seen[0] <= 1 + cores.AHEAD * cores.thread_count()


def test_what_waits_is_not_begun_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the first item that fails is the caller's, and of a hundred few were begun."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    begun = list[int]()

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        cores.side_by_side(work, range(100))
    assert len(begun) <= 4 + cores.AHEAD * cores.thread_count()
