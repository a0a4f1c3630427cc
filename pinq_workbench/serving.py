# SPDX-License-Identifier: Apache-2.0
"""``pinq serve`` beside the workbench: started, found again after a crash, and stopped.

A server that runs holds a lock on a file of the folder; so the next workbench finds the server of a
killed one, and never takes another process with the same number for it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from pinq.errors import PolicyError

STOP_SECONDS = 40.0  # a server finishes what runs, then ends


class Serving:
    """The server of a folder, if there is one.

    Args:
        folder: The folder of policies; its files ``.pinq-serve`` and ``pinq-serve.log`` are the server's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self.log = folder, folder / ".pinq-serve", folder / "pinq-serve.log"
        self._process: subprocess.Popen[bytes] | None = None

    def running(self) -> str:
        """The command line with which it was started; empty if no server runs."""
        if self._process is not None:
            self._process.poll()  # one of ours that ended must not stay a zombie
        with suppress(FileNotFoundError), self._lock.open() as file:
            if not _locked(file.fileno()):
                return file.read().partition("\n")[2]
        return ""

    def start(self, words: list[str]) -> None:
        """Starts it for the reviewed policies of the folder.

        Args:
            words: Further options of ``pinq serve``.

        Raises:
            PolicyError: One runs already, or it ends at once; the text is the server's own.
        """
        if self.running():
            raise PolicyError("A server of this folder runs already; stop it first.")
        command = [sys.executable, "-m", "pinq.cli.main", "serve", str(self._folder), *words]
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _locked(descriptor):
                raise PolicyError("A server of this folder starts already.")
            said = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as log:
                # The server inherits the lock with the descriptor, and holds it as long as it
                # lives.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[descriptor],
                    start_new_session=True,  # Ctrl-C ends the workbench and not the server
                )
            os.ftruncate(descriptor, 0)
            os.write(
                descriptor, f"{self._process.pid}\n{shlex.join(['pinq', 'serve', self._folder.name, *words])}".encode()
            )
        finally:
            os.close(descriptor)
        while b"Serving" not in (text := self._written(said)):
            if self._process.poll() is not None:
                lines = text.decode(errors="replace").splitlines()
                boxed = [line.strip("│ ") for line in lines if line.startswith("│")]  # what is wrong in the options
                raise PolicyError(" ".join(boxed) or "\n".join(lines).strip() or "The server ended at once.")
            time.sleep(0.05)

    def stop(self) -> None:
        """Asks it to end, and waits until it has. Raises ``PolicyError`` if it does not."""
        if not self.running():
            return
        os.kill(int(self._lock.read_text().partition("\n")[0]), signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        while self.running():
            if time.monotonic() > end:
                raise PolicyError("The server has not ended yet: it finishes what runs. Look again in a moment.")
            time.sleep(0.05)

    def _written(self, start: int) -> bytes:
        with self.log.open("rb") as log:
            log.seek(start)
            return log.read()


def _locked(descriptor: int) -> bool:
    """Takes the lock if it is free; returns whether it was."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
