# SPDX-License-Identifier: Apache-2.0
"""The provider's logs: one line for each request, and the causes of internal errors.

The log of requests has one JSON object a line: the analyst, the route and the result of each request, never a value, a
row or a token. The causes of internal errors may quote rows, so they go to a file or are dropped.
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

    A line that cannot be written (a full disk, a closed pipe) is dropped and counted, so that no paid
    answer is lost with it.

    Attributes:
        lost: The number of lines that could not be written.
        failing: Whether the last line could not be written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._lock, self._file = threading.Lock(), file
        self.lost, self.failing = 0, False
        self._out: TextIO = self._opened()

    def write(self, event: str, **facts: str | int | float | Sequence[str] | None) -> None:
        """Writes one line; facts that are None are left out."""
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
        """Opens the file again, after it was renamed; if that fails, the old one stays open."""
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
        """Writes a library's log messages from a level on as lines here, without traces."""
        logger = logging.getLogger(name)
        logger.handlers = [_LineHandler(self, level)]
        logger.setLevel(level)
        logger.propagate = False

    def close(self) -> None:
        if self._out is not sys.stderr:
            with suppress(OSError):  # the disk may be full
                self._out.close()


def log_details() -> None:
    """Sends the package's log messages to the file that ``PINQ_LOG`` names, never to a terminal."""
    file = os.environ.get("PINQ_LOG")
    if file:  # may quote data, so only its owner can read it from the first byte on
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    # Without a handler, logging would print errors, which may quote values, to the terminal.
    logging.getLogger("pinq").addHandler(logging.FileHandler(file, delay=True) if file else logging.NullHandler())


def unexpected() -> InternalError:
    """Logs the exception that is being handled; returns the error for the analyst."""
    LOG.exception("a request failed")
    return InternalError("Something unexpected went wrong in the server. Please tell the data provider.")
