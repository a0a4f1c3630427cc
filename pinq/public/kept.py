# SPDX-License-Identifier: Apache-2.0
"""``Kept`` remembers computed values within so many bytes: the one cache of schemas and engines."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

__all__ = ["ENTRY_BYTES", "Kept"]

ENTRY_BYTES = 512  # of a key


class Kept:
    """Values by key, within so many bytes; those that were not asked for longest make room.

    Args:
        room: Bytes.
    """

    def __init__(self, room: int) -> None:
        self.room, self._taken, self._lock = room, 0, threading.Lock()
        self._values: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable) -> Any:
        """The value; None where there is none."""
        with self._lock:
            if key not in self._values:
                return None
            self._values[key] = self._values.pop(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: object, nbytes: int) -> None:
        """Keeps a value, unless it is larger than all room."""
        nbytes += ENTRY_BYTES
        with self._lock:
            self._taken += nbytes - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, nbytes
            while self._taken > self.room:
                self._taken -= self._values.pop(next(iter(self._values)))[1]

    def values(self) -> list[Any]:
        """All values, those that were asked for last at the end."""
        with self._lock:
            return [value for value, _ in self._values.values()]

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._values, self._taken = {}, 0
