# SPDX-License-Identifier: Apache-2.0
"""While a tree grows, nothing looks for garbage in cycles; afterwards everything is as it was."""

from __future__ import annotations

import gc
import threading

import pytest

import pinq
from miners import DiffPID3
from miners.growth.frontier import cycle_search_paused
from tests.tiny import COLUMNS


def test_a_fit_makes_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects it makes; one that ends with an error leaves the search on."""
    schema = pinq.Schema(columns=COLUMNS, max_rows=1000)
    handle = pinq.simulate(schema, rows=100, seed=1)
    inside: list[bool] = []
    monkeypatch.setattr("miners.trees.tree_miner.grow", _noting(inside))
    with pytest.raises(RuntimeError, match="grown"):
        DiffPID3(epsilon=1.0, max_depth=1).fit(handle, "income")
    assert inside == [False]
    assert gc.isenabled()


def _noting(inside: list[bool]) -> object:
    def grow(*_: object) -> None:
        inside.append(gc.isenabled())
        raise RuntimeError("grown")

    return grow


def test_pauses_nest_over_threads() -> None:
    """The last one to end turns the search on again; where it was off before, it stays off."""
    entered, leave = threading.Event(), threading.Event()

    def paused() -> None:
        with cycle_search_paused():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=paused)
    with cycle_search_paused():
        thread.start()
        assert entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
    gc.disable()
    try:
        with cycle_search_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
