# SPDX-License-Identifier: Apache-2.0
"""``KeyLocks`` lets one thread at a time do what has the same key; others do not wait."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["KeyLocks"]


@dataclass
class _Lock:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class KeyLocks:
    """A lock for each key, kept while anybody holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[Hashable, _Lock] = {}

    @contextmanager
    def take(self, key: Hashable) -> Iterator[None]:
        """Waits until nobody else is inside with this key."""
        with self._guard:
            held = self._locks.setdefault(key, _Lock())
            held.users += 1
        try:
            with held.lock:
                yield
        finally:
            with self._guard:
                held.users -= 1
                if not held.users:
                    del self._locks[key]

    def __len__(self) -> int:
        return len(self._locks)
