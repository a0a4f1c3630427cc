# SPDX-License-Identifier: Apache-2.0
"""A server's threads: what reads takes few of them, and what charges never waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest
from starlette.requests import Request
from starlette.types import Message

from pinq.curator.turn import Stopped
from pinq.errors import LedgerError
from pinq.server.api.lanes import READERS, Lanes
from pinq.server.api.limits import Settings
from pinq.server.api.visit import Visit


def test_of_what_reads_two_are_worked_on_at_a_time_and_a_charge_goes_beside_them() -> None:
    """However many wait, whoever they are; and those of another dataset have two of their own."""
    begun, over = list[str](), threading.Event()

    def read(dataset: str) -> None:
        begun.append(dataset)
        over.wait()

    async def go() -> None:
        lanes = Lanes(("a", "b"), Settings())
        readers = [
            asyncio.create_task(lanes.soon(dataset, f"reader{number}", partial(read, dataset)))
            for dataset in ("a", "a", "a", "a", "a", "b", "b", "b", "unknown", "names", "share")
            for number in (0, 1)
        ]
        assert await lanes.soon("a", "reader0", lambda: "charged", charges=True) == "charged"
        while len(begun) < 3 * READERS:
            await asyncio.sleep(0.001)
        assert (begun.count("a"), begun.count("b"), len(begun)) == (READERS, READERS, 3 * READERS)
        over.set()
        await asyncio.gather(*readers)
        await lanes.close()

    asyncio.run(go())
    assert len(begun) == 22


def test_a_grant_is_looked_at_again_after_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that is out of reach for a moment does not let work go on for an ended grant."""
    monkeypatch.setattr("pinq.server.api.lanes.LOOK_SECONDS", 0.001)
    visit, looks = Visit("a", "query", "-"), list[int]()

    def opens() -> bool:
        looks.append(1)
        if len(looks) == 1:
            raise LedgerError("out of reach")
        return False

    def work() -> None:
        while True:
            visit.turn.check()
            time.sleep(0.001)

    async def silence() -> Message:
        return await asyncio.get_running_loop().create_future()

    async def go() -> None:
        lanes = Lanes(("a",), Settings(work_seconds=20))
        with pytest.raises(Stopped):
            await lanes.run(Request({"type": "http"}, silence), visit, "holder", work, opens, heavy=True)
        await lanes.close()

    asyncio.run(go())
    assert len(looks) > 1
