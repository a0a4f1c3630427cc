# SPDX-License-Identifier: Apache-2.0
"""Threads for long work, which all callers share."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, islice
from typing import TypeVar

__all__ = ["side_by_side", "thread_count"]

MAX_THREADS = 8
AHEAD = 2  # items of a caller for each thread, so that none waits for the next
T = TypeVar("T")
U = TypeVar("U")


def thread_count() -> int:
    """Returns how many threads do long work side by side."""
    return max(1, min(MAX_THREADS, os.cpu_count() or 1))


def side_by_side(work: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Does the same work for several items in threads; what comes of each, in order.

    All callers share the threads, so each hands them a few items at a time: who has two items does
    not wait for a thousand of another. Work must not wait for other work that is done so: all
    threads could be waiting.
    """
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2 or thread_count() < 2:
        return [work(item) for item in chain(first, rest)]
    pool, done, waiting = _pool(os.getpid()), list[U](), deque[Future[U]]()
    try:
        for item in chain(first, rest):
            if len(waiting) == AHEAD * thread_count():
                done.append(waiting.popleft().result())
            waiting.append(pool.submit(work, item))
        while waiting:
            done.append(waiting.popleft().result())
    finally:
        for future in waiting:
            future.cancel()
    return done


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process; one that was forked has none of its parent's."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="pinq-count")
