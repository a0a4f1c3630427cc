# SPDX-License-Identifier: Apache-2.0
"""The provider's logs: one line for each request, and the causes of inner failures.

The log of requests has one JSON object a line: the analyst, the route and the result of each request, and never a
value, a row or a token. The causes of inner failures may quote rows: they go to a file, or to none.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from pinq.errors import InternalError

LOG = logging.getLogger("pinq.server")


class _LineHandler(logging.Handler):
    def __init__(self, log: RequestLog, level: int) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.write("server", level=record.levelname.lower(), message=record.getMessage()[:200])


class RequestLog:
    """Writes to a file that only the provider can read, else to the standard error stream.

    A line that cannot be written (a full disk, a reader that has gone) is lost and counted: an
    answer that was paid for must not be lost with it.

    Args:
        file: The file; made with mode 0600, appended to.

    Attributes:
        lost: Lines that could not be written.
        failing: Whether the last line was one of them.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._lock, self._file = threading.Lock(), file
        self.lost, self.failing = 0, False
        self._out: TextIO = self._opened()

    def write(self, event: str, **facts: str | int | float | Sequence[str] | None) -> None:
        """One line; facts that are None are left out."""
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | {
            name: value for name, value in facts.items() if value is not None
        }
        with self._lock:
            try:
                self._out.write(json.dumps(line) + "\n")
                self._out.flush()
                self.failing = False
            except (OSError, ValueError):
                self.lost += 1
                self.failing = True

    def reopen(self) -> None:
        """Goes on in a new file where the old one was renamed; where it cannot, in the old one."""
        with self._lock, suppress(OSError):
            out, self._out = self._out, self._opened()
            if out is not sys.stderr:
                out.close()

    def _opened(self) -> TextIO:
        if self._file is None:
            return sys.stderr
        opened = os.open(self._file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        return os.fdopen(opened, "a", encoding="utf-8")

    def capture(self, name: str, level: int = logging.WARNING) -> None:
        """Takes what a library logs from a level on, as lines of our own: its message, never a trace."""
        logger = logging.getLogger(name)
        logger.handlers = [_LineHandler(self, level)]
        logger.setLevel(level)
        logger.propagate = False

    def close(self) -> None:
        """Closes the file."""
        if self._out is not sys.stderr:
            with suppress(OSError):  # what is left in the buffer of a full disk
                self._out.close()


def log_details() -> None:
    """Sends what the package logs to the file that ``PINQ_LOG`` names, never to a terminal."""
    file = os.environ.get("PINQ_LOG")
    if file:  # it may quote the data: readable by the provider alone, from the first byte
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    # Without a handler, logging would print the engine's errors, and with them perhaps values, to
    # the terminal.
    logging.getLogger("pinq").addHandler(logging.FileHandler(file, delay=True) if file else logging.NullHandler())


def unexpected() -> InternalError:
    """Sends the exception that is being handled there; returns what an analyst is told instead."""
    LOG.exception("a request failed")
    return InternalError("Something unexpected went wrong in the server. Please tell the data provider.")
