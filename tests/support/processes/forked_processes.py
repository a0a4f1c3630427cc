# SPDX-License-Identifier: Apache-2.0
"""Processes of the ``pinq`` command that share one start: each is forked from a process that has imported everything.

The imports of a server take 1.5 seconds of a core, a fork a few milliseconds. The forked process is the command
itself, with its own environment and streams, and can be stopped and killed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

# All modules that commands import late. A missing entry makes each process slower, and changes nothing else.
IMPORTED = [
    "pinq.cli.main",
    "pinq.engine",
    "pinq.provider.grants",
    "pinq.provider.local",
    "pinq.provider.report.audit",
    "pinq.provider.report.markup",
    "pinq.server.app",
    "pinq.server.run",
    "pinq_secure.provider",
    "pydantic.v1",
    "rich",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
    "tests.support.processes.killed_process",
    "tests.support.processes.frozen_heap",  # the last, because it excludes all earlier objects from garbage collection
]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(IMPORTED)


class PinqProcess:
    """A running ``pinq`` command, with the methods of ``subprocess.Popen`` that tests use.

    Args:
        words: The words after ``pinq`` on the command line.
        output: The file to which its standard output is appended.
        errors: The file to which its standard error is appended.
        environment: All of its environment variables; by default those of this process.
        shutdown_seconds: The seconds in which a stopped server finishes its requests; None for the product's.
        program: A Python program to run instead of the command.
        typed: The file of its standard input; None for an empty input.
    """

    def __init__(
        self,
        words: list[str],
        *,
        output: Path,
        errors: Path,
        environment: dict[str, str] | None = None,
        shutdown_seconds: float | None = None,
        program: str = "",
        typed: Path | None = None,
    ) -> None:
        settings = dict(os.environ) if environment is None else environment
        self._output, self._errors = output, errors
        for file in (output, errors):  # also of a process that is killed before it says anything
            file.touch(0o600)
        self._process = FORKS.Process(
            target=_run, args=(words, output, errors, settings, shutdown_seconds, os.getcwd(), program, typed)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return cast(int, self._process.pid)

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def send_signal(self, sign: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the process that forks has not said so yet
                os.kill(self.pid, sign)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended; ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("pinq", cast(float, timeout))
        return status

    @property
    def returncode(self) -> int | None:
        """As ``poll``."""
        return self.poll()

    def communicate(self, _input: None = None, timeout: float | None = None) -> tuple[str, str]:
        """Waits for its end. Returns all of its standard output and standard error."""
        self.wait(timeout)
        return self._output.read_text(encoding="utf-8"), self._errors.read_text(encoding="utf-8")


def run_pinq(
    words: list[str], environment: dict[str, str] | None = None, *, program: str = "", typed: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a ``pinq`` command to its end, two minutes at most; arguments as those of ``PinqProcess``."""
    with tempfile.TemporaryDirectory() as folder:
        process = PinqProcess(
            words,
            output=Path(folder, "output"),
            errors=Path(folder, "errors"),
            environment=environment,
            program=program,
            typed=typed,
        )
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.wait(), output, errors)


# The program that a shell starts instead of `pinq`: it requests a process with its own words, folder, environment and
# streams, passes signals on to it, and ends with its exit status.
STARTER = """#!{python} -IS
import json, os, signal, socket, sys
signals = signal.SIGTERM, signal.SIGHUP, signal.SIGINT
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    asked.sendall(json.dumps([sys.argv[1:], os.getpid(), dict(os.environ), os.getcwd()]).encode() + b"\\n")
    told = asked.makefile()
    pid = int(told.readline())
    for sign in signals:
        signal.signal(sign, lambda sign, _: os.kill(pid, sign))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    status = int(told.readline())
sys.exit(status if status >= 0 else 128 - status)
"""


@contextmanager
def starting(command: Path) -> Iterator[None]:
    """Makes a command of this path that a shell starts as it would start ``pinq``."""
    address = command.with_suffix(".socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        command.write_text(STARTER.format(python=sys.executable, address=str(address)), encoding="utf-8")
        command.chmod(0o755)
        threading.Thread(target=_start_each, args=(listening,), daemon=True).start()
        yield
        listening.shutdown(socket.SHUT_RDWR)


def _start_each(listening: socket.socket) -> None:
    with suppress(OSError):  # it is shut down
        while True:
            threading.Thread(target=_start, args=(listening.accept()[0],), daemon=True).start()


def _start(asked: socket.socket) -> None:
    with asked, asked.makefile("r") as told:
        words, starter, environment, folder = json.loads(told.readline())
        streams = (Path(f"/proc/{starter}/fd/{number}") for number in (1, 2))
        process = FORKS.Process(target=_run, args=(words, *streams, environment, None, folder))
        process.start()
        asked.sendall(f"{process.pid}\n".encode())
        process.join()
        asked.sendall(f"{process.exitcode}\n".encode())


def _run(
    words: list[str],
    output: Path,
    errors: Path,
    environment: dict[str, str],
    shutdown_seconds: float | None,
    folder: str,
    program: str = "",
    typed: Path | None = None,
) -> None:
    """Becomes the command; runs in the forked process."""
    for stream, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), stream)
    # Descriptor 0, as in a command, so that child processes inherit it.
    sys.stdin = os.fdopen(os.dup2(os.open(typed or os.devnull, os.O_RDONLY | os.O_NOCTTY), 0))
    os.chdir(folder)  # the process that forks is where it was started
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["pinq", *words]
    if program:
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        return
    from pinq.cli.main import main
    from pinq.server import run

    if shutdown_seconds is not None:
        vars(run)["SHUTDOWN_SECONDS"] = shutdown_seconds
    main()
