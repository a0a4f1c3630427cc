# SPDX-License-Identifier: Apache-2.0
"""Folders for rows that exceed the memory limit. They contain raw rows, so they must not outlive their process.

A folder has a locked file while it is used. The system unlocks the file of a process that was killed,
and the next process that makes a folder deletes the unlocked ones of its user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

PREFIX, LOCK = "pinq-spill-", "lock"


def lock(descriptor: int, *, fails: bool = False) -> None:
    """Locks a file until it is closed. Waits for a lock of another process, or raises ``OSError`` if it ``fails``."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if fails else 0))


@contextmanager
def spill_folder() -> Iterator[Path]:
    """Makes a folder that only this user can read; deletes it at the end, and first those of killed processes."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / "unlocked").open("wb") as file:
            lock(file.fileno())
            (folder / "unlocked").rename(folder / LOCK)  # so no other process finds it before it is locked
            yield folder


def sweep() -> None:
    """Deletes the folders of killed processes of this user."""
    if fcntl is None:
        return
    for file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # in use, or swept by another process
            if file.parent.lstat().st_uid == os.getuid():
                with file.open("rb") as stream:
                    lock(stream.fileno(), fails=True)
                    shutil.rmtree(file.parent)
