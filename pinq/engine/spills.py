# SPDX-License-Identifier: Apache-2.0
"""Folders for rows that exceed the memory limit.

They contain raw rows, so they must not outlive their process; each is locked while it is used.

The system unlocks the folder of a process that was killed, and the next process that makes a folder deletes the
unlocked ones of its user. Empty ones stay: there is nothing in them, and a new folder is empty until it is locked.
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

PREFIX = "pinq-spill-"


def lock(descriptor: int, *, fails: bool = False) -> None:
    """Locks a file or folder until it is closed. Waits for another process, or raises ``OSError`` if it ``fails``."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if fails else 0))


@contextmanager
def spill_folder() -> Iterator[Path]:
    """Makes a folder that only this user can read; deletes it at the end, and first those of killed processes."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name, _locked(Path(name)):
        yield Path(name)


def sweep() -> None:
    """Deletes the folders of killed processes of this user."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if fcntl is not None else ():
        with suppress(OSError):  # in use, or deleted by another process at any moment
            if folder.lstat().st_uid == os.getuid() and any(folder.iterdir()):
                with _locked(folder, fails=True):
                    shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path, *, fails: bool = False) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor, fails=fails)
        yield
    finally:
        os.close(descriptor)
