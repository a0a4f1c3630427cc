# SPDX-License-Identifier: Apache-2.0
"""``Readiness``: whether a server can answer now, for balancers: disk, ledgers and the log.

What it says is one bit, without names, and follows no rows.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pinq.errors import PinqError
from pinq.server.datasets import Datasets
from pinq.server.log import RequestLog

__all__ = ["Readiness"]

FRESH_SECONDS = 1.0  # whoever asks again sooner is told the same
LOOK_SECONDS = 3.0
LEAST_BYTES = 2**24
SQLITE = "sqlite:///"


class Readiness:
    """Looks at what answers need, on a thread of its own: a ledger that hangs is not ready.

    Args:
        datasets: What is served.
        log: The provider's.
    """

    def __init__(self, datasets: Datasets, log: RequestLog) -> None:
        self._datasets, self._log, self._lost = datasets, log, 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pinq-ready")
        self._looking = asyncio.Lock()
        self._at, self._was = float("-inf"), False

    async def is_ready(self) -> bool:
        """Whether every dataset's ledger can be read and written to, and the log takes lines."""
        async with self._looking:
            if time.monotonic() >= self._at + FRESH_SECONDS:
                self._was = await self._look()
                self._at = time.monotonic()
            return self._was

    def close(self) -> None:
        """Ends its thread, or leaves it with a ledger that hangs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._all_well)
        except (TimeoutError, OSError, PinqError):
            return False

    def _all_well(self) -> bool:
        lost, self._lost = self._log.lost - self._lost, self._log.lost
        ledgers = [dataset.ledger for dataset in self._datasets.values()]
        for ledger in ledgers:
            ledger.together()  # LedgerError where it cannot be read
        return not lost and all(_has_room(ledger.url) for ledger in ledgers)


def _has_room(url: str) -> bool:
    """Whether a ledger's file is there, on a disk with room; true of ledgers that are no files."""
    file = Path(url.removeprefix(SQLITE))
    if not url.startswith(SQLITE) or str(file) == ":memory:":
        return True
    return file.is_file() and shutil.disk_usage(file.parent).free >= LEAST_BYTES
