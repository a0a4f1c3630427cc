# SPDX-License-Identifier: Apache-2.0
"""Threads that take turns share a core; those that count rows roam."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from pinq.engine import cores
from pinq.provider.simulation import made_up
from pinq.public.policy import Policy
from pinq.server.api.lanes import Lanes
from pinq.server.api.limits import Settings
from tests.handles import engine_on
from tests.people import SCHEMA

pytestmark = pytest.mark.skipif(len(cores._ALLOWED) < 2, reason="a single core, or a system that binds no threads")


def seen() -> set[int]:
    """Which cores the calling thread may run on."""
    return os.sched_getaffinity(0)


def bound(work: Callable[[], set[int]]) -> set[int]:
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
    policy = Policy(dataset="people", cap=1, max_rows=10, columns=SCHEMA.columns, folder=Path())
    with closing(engine_on(policy, made_up(SCHEMA, 10, 0), b"salt")) as engine:
        assert bound(lambda: engine._pool.submit(seen).result()) == set(cores._ALLOWED)
    lanes = Lanes(["people"], Settings())
    assert bound(lambda: lanes._long.submit(seen).result()) == set(cores._ALLOWED)
