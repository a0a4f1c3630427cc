# SPDX-License-Identifier: Apache-2.0
"""What an operator needs of a server, and what strangers must not make of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import pinq
from pinq import QueryError, Values
from pinq.provider.policy_file import load_policy
from tests.support.processes.servers import Certificate, Server, publish, serving, token_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with a log of its own."""
    policy = publish(tmp_path)
    token_of(policy)
    certificate = Certificate.make(tmp_path)
    options = ("--log", str(tmp_path / "requests.log"))
    with serving(policy, folder=tmp_path, certificate=certificate, options=options) as running:
        yield running


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_without_its_ledger_is_alive_and_not_ready(server: Server, tmp_path: Path) -> None:
    """A balancer learns that nothing can be answered, and no more."""
    with server.http() as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "current": True})
        for file in tmp_path.glob("*.ledger*"):
            file.unlink()
        _until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/readyz").json() == {"ready": False, "current": True}
        assert client.get("/healthz").status_code == 200


def test_sighup_goes_on_in_a_new_log(server: Server, tmp_path: Path) -> None:
    """What a rotation renamed is written to no more."""
    log, old = tmp_path / "requests.log", tmp_path / "requests.log.1"
    with server.http(Authorization="Bearer nobody") as client:
        client.get("/v1/people")
        log.rename(old)
        server.process.send_signal(signal.SIGHUP)
        _until(lambda: client.get("/v1/people").status_code == 401 and log.exists())
        _until(lambda: client.get("/v1/people").status_code == 401 and "request" in log.read_text())
    assert os.stat(log).st_mode & 0o777 == 0o600
    assert "started" in old.read_text()


def test_a_token_in_the_path_is_in_no_log(server: Server, tmp_path: Path) -> None:
    """Whoever typed a token where a dataset's name belongs did not publish it to the log's readers."""
    with server.http() as client:
        for path in ("/v1/pinq_SECRET/budget", "/v1/pinq_SECRET", "/pinq_SECRET", "/v1/people?token=pinq_SECRET"):
            client.get(path)
    assert "401" in (tmp_path / "requests.log").read_text()
    assert "SECRET" not in (tmp_path / "requests.log").read_text() + server.log.read_text()


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(server: Server) -> None:
    """What one proxy takes for a body is never a second request here."""
    assert server.certificate is not None
    context = ssl.create_default_context(cafile=str(server.certificate.authority))
    host, port = server.root.removeprefix("https://").split(":")
    second = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    lengths = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(second))
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        secure.sendall(b"POST /v1/people/query HTTP/1.1\r\nHost: x\r\n" + lengths + second)
        answer = b""
        while piece := secure.recv(65536):
            answer += piece
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400")


def test_a_redirect_follows_no_host_that_the_request_names(server: Server) -> None:
    """It names a path alone."""
    with server.http(Host="evil.example") as client:
        assert client.get("/healthz/").status_code == 404


def _lines(log: Path, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == event]


def test_an_open_handle_outlives_columns_that_are_added(server: Server, tmp_path: Path) -> None:
    """What means the same still is answered; shards, ``reuse`` and a column that changed ask to connect again, unspent."""
    assert server.certificate is not None
    policy = tmp_path / "people.yaml"

    def change(**columns: dict[str, Any]) -> None:
        declared = load_policy(policy).model_dump(mode="json", by_alias=True, exclude_unset=True)
        declared["columns"] |= columns
        policy.write_text(yaml.safe_dump(declared), encoding="utf-8")
        seen = len(_lines(tmp_path / "requests.log", "reloaded"))
        server.process.send_signal(signal.SIGHUP)
        _until(lambda: len(_lines(tmp_path / "requests.log", "reloaded")) > seen)

    token = token_of(policy, "eve", 10)
    with pinq.connect(f"{server.root}/people", token=token, verify=server.certificate.authority) as h:
        women = h.partition(Values("sex"))["Female"]
        change(years={"type": "numeric", "lower": 0, "upper": 9, "integer": True, "from": ["age"], "formula": "age"})
        assert women.preview("noisy_count", epsilon=1).cost == 1
        women.noisy_count(epsilon=1)
        assert "years" not in h.schema.columns
        for ask in (lambda: h.noisy_count(epsilon=1, reuse=True), lambda: h.shards(2).noisy_count(epsilon=1)):
            with pytest.raises(QueryError, match=r"connect again\. Nothing was spent"):
                ask()
        change(sex={"type": "categorical", "values": ["Female"]})
        with pytest.raises(QueryError, match=r"connect again\. Nothing was spent"):
            women.noisy_count(epsilon=1)
        assert h.budget.spent == 1


def test_sighup_reads_policies_and_certificate_again(server: Server, tmp_path: Path) -> None:
    """What reads counts from then on; what does not leaves the old one in force, and is said in the log and to balancers."""
    log, policy, certificate = tmp_path / "requests.log", tmp_path / "people.yaml", server.certificate
    assert certificate is not None
    before, text = certificate.authority.read_text(), policy.read_text()

    def reload(change: Callable[[str], str]) -> dict[str, Any]:
        policy.write_text(change(text))
        seen = len(_lines(log, "reloaded"))
        server.process.send_signal(signal.SIGHUP)
        _until(lambda: len(_lines(log, "reloaded")) > seen)
        return _lines(log, "reloaded")[-1]

    renewed = Certificate.make(tmp_path)  # in the same files, by another authority
    line = reload(lambda text: text.replace("cap: 1000", "cap: 900"))
    assert (line["changed"], line.get("failed")) == (["certificate", "people (cap)"], None)
    with server.http() as client:
        assert client.get("/readyz").json() == {"ready": True, "current": True}
    stranger = Server(server.process, server.root, replace(renewed, authority=tmp_path / "before.pem"), server.log)
    stranger.certificate.authority.write_text(before)  # type: ignore[union-attr]
    with stranger.http() as client, pytest.raises(httpx.ConnectError):
        client.get("/healthz")
    renewed.key.write_text("no key")
    line = reload(lambda text: text.replace("cap: 1000", "cap: much"))
    assert [problem.split(":")[0] for problem in line["failed"]] == [
        "certificate",
        f"The policy file {policy} is not valid",
    ]
    with server.http() as client:
        _until(lambda: client.get("/readyz").json() == {"ready": True, "current": False})
        assert client.get("/readyz").status_code == 200
    assert str(policy) in _lines(log, "readiness")[-1]["outdated"][1]
