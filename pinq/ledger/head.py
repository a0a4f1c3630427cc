# SPDX-License-Identifier: Apache-2.0
"""A head: a small file that names the last event of a log.

A log that was cut at its end, or rolled back to an older copy, is a log whose chain holds; only who
remembers a later event can tell. An SQLite ledger has a head beside it, and a server keeps one of
each of its ledgers in its state folder, out of reach of what restores a database or its folder.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Head"]


class Head:
    """The head in one file.

    Args:
        file: Which; it need not be there.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._open: int | None = None

    def write(self, seq: int, chained: str) -> None:
        """Names the last event, after its commit: the head may lag, but never runs ahead."""
        if self._open is None:
            for folder in reversed(self.file.parents):  # a new one is its owner's alone: heads are named after ledgers
                folder.mkdir(exist_ok=True, mode=0o700)
            self._open = os.open(self.file, os.O_CREAT | os.O_WRONLY, 0o600)
        # Every line is of one length, so each covers the whole of the one before.
        os.pwrite(self._open, f"{seq:020d} {chained}\n".encode(), 0)

    def read(self) -> tuple[int, str] | None:
        """The event that the file names; None where there is no such file.

        A line that names none stands for event 0, which no log has.
        """
        if not self.file.exists():
            return None
        text = self.file.read_bytes()
        if not text:  # a process was killed between making the file and writing its first line
            return None
        # A line cut short by a crash of the machine names no event, and that is not the same as no
        # file.
        try:
            number, chained = text.decode().split()
            return int(number), chained
        except ValueError:
            return 0, ""

    def close(self) -> None:
        """Closes the file."""
        if self._open is not None:
            os.close(self._open)
            self._open = None
