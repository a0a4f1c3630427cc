# SPDX-License-Identifier: Apache-2.0
"""``Reload`` is what SIGHUP does: the log's file, the policies and the certificate are read again.

Grants, tokens and terms need none of it: they are in the ledger, and count at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pinq.errors import PinqError
from pinq.server.datasets import Datasets
from pinq.server.log import RequestLog

__all__ = ["Reload"]

_log = logging.getLogger("pinq.server")


class Reload:
    """Reads again what an operator may change while a server runs; one line says what changed.

    Args:
        datasets: What is served.
        log: The provider's.
    """

    def __init__(self, datasets: Datasets, log: RequestLog) -> None:
        self._datasets, self._log = datasets, log
        self._lock = threading.Lock()
        self._others: dict[str, Callable[[], bool]] = {}
        self._waiting, self._running = False, False

    def also(self, name: str, read: Callable[[], bool]) -> None:
        """Adds something to be read again.

        Args:
            name: What the log calls it.
            read: Reads it; says whether it changed. What it raises leaves the old one in force.
        """
        self._others[name] = read

    def ask(self) -> None:
        """Begins to read, in a thread of its own; where one reads already, it begins once more."""
        self._log.reopen()
        with self._lock:
            self._waiting = True
            if not self._running:
                self._running = True
                # A source may take minutes to encode, and no shutdown waits for that.
                threading.Thread(target=self._read, name="pinq-reload", daemon=True).start()

    def _read(self) -> None:
        while self._is_wanted():
            try:
                self.now()
            except Exception:  # whose text may quote data
                _log.exception("a reload failed")
                self._log.write("reload failed")

    def _is_wanted(self) -> bool:
        with self._lock:
            self._running, self._waiting = self._waiting, False
            return self._running

    def now(self) -> None:
        """Reads everything again, and logs one line."""
        changed, failed = self._read_others()
        reloaded = self._datasets.reload()
        self._datasets.failed = (*failed, *reloaded.failed)
        self._log.write(
            "reloaded",
            changed=[*changed, *reloaded.changed],
            added=reloaded.added or None,
            removed=reloaded.removed or None,
            failed=self._datasets.failed or None,
            drafts=[str(file) for file in self._datasets.drafts] or None,
        )

    def _read_others(self) -> tuple[list[str], list[str]]:
        changed, failed = list[str](), list[str]()
        for name, read in self._others.items():
            try:
                changed += [name] if read() else []
            except (PinqError, OSError) as error:
                failed.append(f"{name}: {error}")
        return changed, failed
