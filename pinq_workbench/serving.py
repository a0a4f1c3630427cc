# SPDX-License-Identifier: Apache-2.0
"""Starts and stops ``pinq serve``, and finds a running server after a crash of the workbench.

A running server holds a lock on a file of the folder. So a new workbench finds the server that a killed
one started, and never mistakes another process with the same number for it.
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

STOP_SECONDS = 40.0  # for which a server may finish its running requests


class Serving:
    """The server of a folder, running or not.

    Args:
        folder: The folder of policies; its files ``.pinq-serve`` and ``pinq-serve.log`` are the server's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self.log = folder, folder / ".pinq-serve", folder / "pinq-serve.log"
        self._process: subprocess.Popen[bytes] | None = None

    def running(self) -> str:
        """The command line of the running server; empty if none runs."""
        if self._process is not None:
            self._process.poll()  # reaps our server if it has ended
        with suppress(FileNotFoundError), self._lock.open() as file:
            if not _locked(file.fileno()):
                return file.read().partition("\n")[2]
        return ""

    def start(self, options: list[str]) -> None:
        """Starts it for the reviewed policies of the folder.

        Args:
            options: Further options of ``pinq serve``.

        Raises:
            PolicyError: A server runs already, or the new one ends at once; the text is then the server's own.
        """
        if self.running():
            raise PolicyError("A server of this folder runs already; stop it first.")
        command = [sys.executable, "-m", "pinq.cli.main", "serve", str(self._folder), *options]
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _locked(descriptor):
                raise PolicyError("A server of this folder starts already.")
            log_size = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as log:
                # The server inherits the descriptor, and with it the lock, until it ends.
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
                descriptor,
                f"{self._process.pid}\n{shlex.join(['pinq', 'serve', self._folder.name, *options])}".encode(),
            )
        finally:
            os.close(descriptor)
        while b"Serving" not in (text := self._written(log_size)):
            if self._process.poll() is not None:
                lines = text.decode(errors="replace").splitlines()
                option_errors = [line.strip("│ ") for line in lines if line.startswith("│")]  # in typer's box
                raise PolicyError(" ".join(option_errors) or "\n".join(lines).strip() or "The server ended at once.")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the server and waits for its end; raises ``PolicyError`` after STOP_SECONDS."""
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
