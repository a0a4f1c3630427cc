# SPDX-License-Identifier: Apache-2.0
"""``Readiness``: whether a server can answer now, and whether what it serves is what the disk says.

Strangers learn two bits, without names; the log and the metrics, which only the provider sees, say
which dataset it is and what is wrong. It costs the same whatever the rows are, and charges nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pinq.errors import PinqError
from pinq.provider.backup import heads_folder
from pinq.server.datasets import Dataset, Datasets
from pinq.server.log import RequestLog

__all__ = ["Readiness", "State", "problem_of"]

FRESH_SECONDS = 1.0  # whoever asks again sooner is told the same
LOOK_SECONDS = 3.0
LEAST_BYTES = 2**24
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class State:
    """What a look found, each line with the name of what it is about.

    Attributes:
        problems: What keeps questions from being answered.
        outdated: Where what is served is not what policies and sources say by now.
    """

    problems: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


class Readiness:
    """Looks at what answers need, on a thread of its own: a ledger that hangs is not ready.

    Args:
        datasets: What is served.
        log: The provider's.
    """

    def __init__(self, datasets: Datasets, log: RequestLog) -> None:
        self._datasets, self._log = datasets, log
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pinq-ready")
        self._looking = asyncio.Lock()
        self._at, self._state = float("-inf"), State()

    async def state(self) -> State:
        """What the last look found; it is a second old at most."""
        async with self._looking:
            if time.monotonic() >= self._at + FRESH_SECONDS:
                before, self._state = self._state, await self._look()
                self._at = time.monotonic()
                if self._state != before:
                    self._log.write("readiness", problems=self._state.problems, outdated=self._state.outdated)
            return self._state

    def close(self) -> None:
        """Ends its thread, or leaves it with a ledger that hangs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _look(self) -> State:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._now)
        except TimeoutError:
            return State(("a ledger or a disk does not answer",))

    def _now(self) -> State:
        if self._log.failing:  # where no questions come, this line finds out whether it takes lines again
            self._log.write("trying the log")
        log = ("the log takes no lines",) if self._log.failing else ()
        looks = [(dataset.name, problem_of(dataset), dataset.outdated()) for dataset in self._datasets.values()]
        return State(
            (*log, *(f"{name}: {problem}" for name, problem, _ in looks if problem)),
            (*self._datasets.failed, *(f"{name}: {outdated}" for name, _, outdated in looks if outdated)),
        )


def problem_of(dataset: Dataset) -> str:
    """Says what keeps a dataset's questions from being answered; empty for nothing."""
    try:
        dataset.ledger.together()
        full = [str(folder) for folder in _folders(dataset.ledger.url) if _is_full(folder)]
    except (OSError, PinqError) as error:
        return f"its ledger or a disk: {error}"
    return f"the disk of {full[0]} is full" if full else dataset.engine.problem()


def _folders(url: str) -> list[Path]:
    """Where charges are written: an SQLite ledger's folder, and that of the heads.

    Raises:
        FileNotFoundError: The ledger's file has gone.
    """
    file = Path(url.removeprefix(SQLITE))
    if not url.startswith(SQLITE) or str(file) == ":memory:":
        return [heads_folder()]
    file.stat()
    return [file.parent, heads_folder()]


def _is_full(folder: Path) -> bool:
    return folder.exists() and shutil.disk_usage(folder).free < LEAST_BYTES
