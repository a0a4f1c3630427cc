# SPDX-License-Identifier: Apache-2.0
"""One at a time for each key: threads that do the same thing take turns, all others do not wait."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Turns"]


@dataclass
class _Turn:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class Turns:
    """A lock for each key, kept while anybody holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[Hashable, _Turn] = {}

    @contextmanager
    def take(self, key: Hashable) -> Iterator[None]:
        """Waits until nobody else is inside with this key."""
        with self._guard:
            turn = self._turns.setdefault(key, _Turn())
            turn.users += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._guard:
                turn.users -= 1
                if not turn.users:
                    del self._turns[key]

    def __len__(self) -> int:
        return len(self._turns)
