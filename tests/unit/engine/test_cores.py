# SPDX-License-Identifier: Apache-2.0
"""Threads that take turns share a core; those that count rows roam."""

from __future__ import annotations

import os
from collections.abc import Callable
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
