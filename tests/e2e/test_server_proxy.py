# SPDX-License-Identifier: Apache-2.0
"""A server behind the proxy that is shipped with it: what strangers do there is no matter of analysts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from tests.support.house.checkout import ROOT
from tests.support.processes.ports import free_port
from tests.support.processes.servers import Certificate, Server, ask, publish, serving, token_of

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="there is no haproxy here")
COUNTS = 30
TIMES, LEAST_SECONDS = 3.0, 0.5  # any other process doubles a few milliseconds; a wait for what is held takes seconds


@dataclass(frozen=True)
class Behind:
    """A server behind its proxy, as analysts see both."""

    server: Server
    proxy: subprocess.Popen[bytes]
    folder: Path
    token: str

    def wait(self) -> float:
        """What a count takes a victim that connects anew each time: the slowest of the fastest quarter.

        Tests that run beside this one slow the others.
        """
        took = list[float]()
        for _ in range(COUNTS):
            began = time.monotonic()
            with self.server.http(Authorization=f"Bearer {self.token}") as client:
                assert ask(client, epsilon="0.001").status_code == 200
            took.append(time.monotonic() - began)
        return sorted(took)[COUNTS // 4]

    def connected(self, number: int = 0) -> ssl.SSLSocket:
        """A stranger's connection, of one of this machine's addresses."""
        assert self.server.certificate is not None
        host, port = self.server.root.removeprefix("https://").split(":")
        context = ssl.create_default_context(cafile=str(self.server.certificate.authority))
        plain = socket.create_connection((host, int(port)), 20, source_address=(f"127.0.0.{2 + number % 4}", 0))
        return context.wrap_socket(plain, server_hostname=host)


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp("proxy")
    policy, certificate = publish(folder), Certificate.make(folder)
    token, port = token_of(policy, epsilon=900), free_port()
    with serving(policy, folder=folder, options=("--proxy", "127.0.0.1")) as inner:
        join(certificate, folder)
        environment = os.environ | {
            "PINQ_PROXY_BIND": f"127.0.0.1:{port}",
            "PINQ_PROXY_CERT": str(folder / "both.pem"),
            "PINQ_PROXY_SERVER": inner.root.removeprefix("http://"),
        }
        command = ["haproxy", "-W", "-f", str(ROOT / "deploy" / "proxy" / "haproxy.cfg")]
        proxy = subprocess.Popen(command, env=environment)
        outer = replace(inner, root=f"https://127.0.0.1:{port}", certificate=certificate)
        try:
            until_up(outer)
            yield Behind(outer, proxy, folder, token)
        finally:
            proxy.terminate()
            proxy.wait(60)


def join(certificate: Certificate, folder: Path) -> None:
    """Writes certificate and key into the one file that the proxy reads."""
    (folder / "both.pem").write_bytes(certificate.cert.read_bytes() + certificate.key.read_bytes())


def until_up(server: Server) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with server.http() as client:
                assert client.get("/readyz").status_code == 200
                return
        except httpx.TransportError:
            assert time.monotonic() < end
            time.sleep(0.05)


def allowed(idle: float) -> float:
    return max(TIMES * idle, LEAST_SECONDS)


def test_a_thousand_held_connections_slow_nobody(behind: Behind) -> None:
    """Of four addresses, half of them in the middle of their headers; one that never ends them is closed."""
    idle = behind.wait()
    with ExitStack() as stack:
        held = [stack.enter_context(behind.connected(number)) for number in range(960)]
        for connection in held[::2]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: ")
        assert behind.wait() <= allowed(idle)
        held[0].settimeout(30)
        answer = held[0].recv(4096)
        assert answer.startswith(b"HTTP/1.0 408") or answer.startswith(b"HTTP/1.1 408")


def test_large_bodies_of_strangers_are_not_read(behind: Behind) -> None:
    """They are told 401 before their bodies are there, and the server grows by little."""
    idle, before = behind.wait(), resident(behind.server.process.pid)
    head = b"POST /v1/people/query HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer wrong%d\r\nContent-Length: 8000000\r\n\r\n"
    with ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(behind.connected(number))
            connection.sendall(head % number + b"x" * 100_000)
        assert behind.wait() <= allowed(idle)
        assert resident(behind.server.process.pid) - before < 100
    assert behind.server.process.poll() is None


def resident(pid: int) -> float:
    """Megabytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def test_the_log_names_the_client_and_not_the_proxy(behind: Behind) -> None:
    """And nobody but the proxy is believed about it."""
    with behind.server.http(**{"X-Forwarded-For": "203.0.113.9"}) as client:
        assert client.get("/v1/people/budget").status_code == 401
    assert "203.0.113.9" not in behind.server.log.read_text()


def test_a_new_certificate_counts_at_once(behind: Behind) -> None:
    """A connection that is open is finished by the old one."""
    assert behind.server.certificate is not None
    before = behind.server.certificate.authority.read_text()
    with behind.connected() as kept:
        renewed = Certificate.make(behind.folder)
        join(renewed, behind.folder)
        behind.proxy.send_signal(signal.SIGUSR2)
        end = time.monotonic() + 30
        while True:
            try:
                until_up(behind.server)
                break
            except ssl.SSLError:
                assert time.monotonic() < end
        kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
    assert renewed.authority.read_text() != before
