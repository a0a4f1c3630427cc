# SPDX-License-Identifier: Apache-2.0
"""The server where deploy/ puts it: under the filter of the systemd unit, and as the first process of a container."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from pinq.server.limits import Settings
from tests.support.house.checkout import ROOT
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.ports import free_port
from tests.support.processes.servers import Certificate, Server, ask, publish, token_of, wait_until_up

UNIT = ROOT / "deploy" / "systemd" / "pinq.service"
KILL, ALLOW, NOT_PERMITTED = 0x80000000, 0x7FFF0000, 0x00050001  # what libseccomp does about a call
# Calls that the unit denies and that are asked in vain: OpenBLAS would place its memory, and SQLite gives its files
# to their owner where it runs as root, which the unit does not.
IN_VAIN = ("mbind", "fchown")
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]


@contextmanager
def served(
    folder: Path, *before: str, prepare: Callable[[], None] | None = None
) -> Iterator[tuple[Server, subprocess.Popen[bytes], str]]:
    """A server as a program of its own; its process and a token."""
    policy, certificate, port, log = publish(folder), Certificate.make(folder), free_port(), folder / "server.log"
    token = token_of(policy)
    files = ["--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key)]
    where = ["--host", "127.0.0.1", "--port", str(port), "--log", str(folder / "requests.log")]
    command = [*before, sys.executable, "-m", "pinq.cli.main", "serve", str(policy), *where, *files]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=prepare, cwd=ROOT)
    server = Server(cast(PinqProcess, process), f"https://127.0.0.1:{port}", certificate, log)
    try:
        wait_until_up(server, 240)
        yield server, process, token
    finally:
        for pid in reversed(descendants(process.pid) if process.poll() is None else []):
            with suppress(ProcessLookupError):  # it ended with one that it started
                os.kill(pid, signal.SIGKILL)
        process.wait()


def descendants(pid: int) -> list[int]:
    """A process and all that it and they started."""
    listed = [pid]
    for each in listed:  # which grows meanwhile
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            listed += map(int, task.read_text(encoding="ascii").split())
    return listed


def require_works(server: Server, process: subprocess.Popen[bytes], token: str) -> None:
    """Short and long work is answered, the largest body too, and nothing is bound to a core or made nice."""
    largest = Settings().max_body
    with server.http(Authorization=f"Bearer {token}") as client:
        assert ask(client).status_code == 200
        body = json.dumps({"id": "largest", "verb": "noisy_count", "epsilon": "0.1"}).encode().ljust(largest)
        assert client.post("/v1/people/query", content=body, timeout=240).status_code == 200
        assert client.post("/v1/people/query", content=body + b" ").status_code == 400
        assert client.post("/v1/people/query", content=body[: 2**17], timeout=240).json()["id"] == "largest"
        assert client.get("/readyz").json() == {"ready": True, "current": True}
    started = descendants(process.pid)
    assert len(started) > 2  # a worker among them
    for pid in started:
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    log = (server.log.parent / "requests.log").read_text()
    assert not re.search("worker ended|work stays|few files|readiness", log), log


def syscalls(group: str) -> set[str]:
    """The system calls of one of systemd's groups."""
    words = ["systemd-analyze", "--no-pager", "syscall-filter", group]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    names = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return set().union(*(syscalls(name) if name.startswith("@") else {name} for name in names))


def the_units_filter() -> Callable[[], None]:
    """Makes what bounds a process as the unit does, but that a call which the unit denies ends it."""
    allowed = set[str]()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE):
        named = set().union(*map(syscalls, line.removeprefix("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    library: Any = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(KILL)))
    actions = dict.fromkeys(allowed, ALLOW) | dict.fromkeys(set(IN_VAIN) - allowed, NOT_PERMITTED)
    for name, action in actions.items():
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else a call of other machines
            assert library.seccomp_rule_add(rules, ctypes.c_uint32(action), number, 0) == 0, name

    def bound() -> None:
        assert library.seccomp_load(rules) == 0

    return bound


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NO SYSTEMD: nothing knows the unit's filter")
def test_the_units_filter_denies_nothing_silently(tmp_path: Path) -> None:
    """No call that the unit denies is made while a server starts, works, reads again and stops."""
    bound = the_units_filter()
    nice = [sys.executable, "-c", "import os; os.nice(1)"]
    assert subprocess.run(nice, preexec_fn=bound, check=False).returncode == -signal.SIGSYS
    with served(tmp_path, prepare=bound) as (server, process, token):
        require_works(server, process, token)
        process.send_signal(signal.SIGHUP)
        require_works(server, process, token)
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)


def is_first_allowed() -> bool:
    return (
        shutil.which("unshare") is not None and not subprocess.run([*UNSHARE, "true"], capture_output=True).returncode
    )


@pytest.mark.skipif(not is_first_allowed(), reason="this machine lets nobody be the first process")
def test_the_first_process_of_a_container_works_and_ends(tmp_path: Path) -> None:
    """Signals reach it, its workers end with it, and several such servers share all cores."""
    with served(tmp_path, *UNSHARE) as (server, outer, token):
        require_works(server, outer, token)
        _, first, *others = descendants(outer.pid)
        assert Path(f"/proc/{first}/status").read_text().split("NSpid:")[1].split()[1] == "1"
        os.kill(first, signal.SIGTERM)
        assert outer.wait(60) in (0, 128 + signal.SIGTERM)
        assert not any(Path(f"/proc/{pid}").exists() for pid in others)
