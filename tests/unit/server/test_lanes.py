# SPDX-License-Identifier: Apache-2.0
"""A server's threads: what reads takes few of them, and what charges never waits for it."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from pinq.server.api.lanes import READERS, Lanes
from pinq.server.api.limits import Settings


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
