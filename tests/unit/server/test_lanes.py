# SPDX-License-Identifier: Apache-2.0
"""A server's threads: what reads takes few of them, and what charges never waits for it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from functools import partial

import pytest
from starlette.requests import Request
from starlette.types import Message

from pinq.curator.work import Stopped
from pinq.errors import LedgerError, QueryError
from pinq.server.api.lanes import READERS, Job, Lanes
from pinq.server.api.limits import Settings
from pinq.server.api.visit import Visit


async def _silence() -> Message:
    return await asyncio.get_running_loop().create_future()


def test_of_what_reads_one_is_worked_on_at_a_time_and_a_charge_goes_beside_it() -> None:
    """However many wait, whoever they are; and those of another dataset have a place of their own."""
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

    def work() -> str:
        while True:
            visit.turn.check()
            time.sleep(0.001)

    async def go() -> None:
        lanes = Lanes(("a",), Settings(work_seconds=20))
        with pytest.raises(Stopped):
            await lanes.run(Request({"type": "http"}, _silence), visit, "holder", Job(work, work, math.inf), opens)
        await lanes.close()

    asyncio.run(go())
    assert len(looks) > 1


@pytest.mark.parametrize(("size", "work", "begun"), [(0, 5, ["here 20"]), (0, 50, ["here 20", "aside 100"]),
    (0, 500, ["here 20", "aside 100", "aside inf"]), (2**15, 5, ["aside 100"]), (math.inf, 5, ["aside inf"])])  # fmt: skip
def test_only_small_work_is_begun_in_the_servers_own_process(size: float, work: int, begun: list[str]) -> None:
    """What is more, or comes in a long body, begins again in a lane that does it aside."""
    visit, did = Visit("a", "query", "-"), list[str]()

    def do(where: str) -> str:
        did.append(f"{where} {visit.turn.most}")
        visit.turn.admit(work)
        return where

    async def go() -> None:
        lanes = Lanes(("a",), Settings())
        job = Job(partial(do, "here"), partial(do, "aside"), size, charges=True)
        await lanes.run(Request({"type": "http"}, _silence), visit, "holder", job, lambda: True)
        await lanes.close()

    asyncio.run(go())
    assert did == begun


def test_of_the_largest_bodies_one_is_worked_on_at_a_time() -> None:
    """Whatever their datasets and holders; a smaller one goes before it, also in the dataset of one that waits."""
    begun, over = list[str](), threading.Event()

    def work(name: str) -> str:
        begun.append(name)
        over.wait()
        return name

    async def go() -> None:
        lanes, most = Lanes(("a", "b"), Settings()), Settings().max_body

        def run(dataset: str, name: str, size: float) -> asyncio.Task[str]:
            do = partial(work, name)
            visit, http = Visit(dataset, "query", "-"), Request({"type": "http"}, _silence)
            return asyncio.create_task(lanes.run(http, visit, name, Job(do, do, size, charges=True), lambda: True))

        asked = [run("a", "first", most), run("b", "second", most), run("b", "small", most / 2)]
        while len(begun) < 2:
            await asyncio.sleep(0.001)
        assert begun == ["first", "small"]
        over.set()
        await asyncio.gather(*asked)
        await lanes.close()

    asyncio.run(go())
    assert begun == ["first", "small", "second"]


def test_what_large_bodies_leave_is_given_back_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that is refused; small ones leave nothing."""
    given = list[int]()
    monkeypatch.setattr("pinq.server.api.lanes.TIDY_SECONDS", 0.2)
    monkeypatch.setattr("pinq.server.api.lanes.give_back", lambda: given.append(1))

    async def refuse(lanes: Lanes, size: float) -> None:
        with pytest.raises(QueryError):
            async with lanes.room("a", "holder", size):
                raise QueryError("this body means nothing.")

    async def go() -> None:
        lanes = Lanes(("a",), Settings())
        await refuse(lanes, 1000)
        assert not lanes._tidying
        await asyncio.gather(*(refuse(lanes, math.inf) for _ in range(3)))
        while not given:
            await asyncio.sleep(0.01)
        assert not lanes._tidying
        await lanes.close()

    asyncio.run(go())
    assert given == [1]


def test_work_whose_client_went_while_it_waited_is_not_begun() -> None:
    """Its turn is over when it comes."""
    visit = Visit("a", "query", "-")

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def go() -> None:
        lanes = Lanes(("a",), Settings())

        def work() -> str:
            visit.turn.check()
            return "begun"

        with pytest.raises(Stopped):
            await lanes.run(Request({"type": "http"}, gone), visit, "holder", Job(work, work, math.inf), lambda: True)
        await lanes.close()

    asyncio.run(go())
