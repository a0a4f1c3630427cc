# SPDX-License-Identifier: Apache-2.0
"""How a server starts, what it wants before it listens, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import pinq
from pinq.cli.main import app
from pinq.errors import PolicyError
from pinq.provider.opening import open_ledger
from pinq.server.datasets import Datasets
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.ports import free_port
from tests.support.processes.servers import (
    COLUMNS,
    ask,
    people,
    pinq_command,
    publish,
    serving,
    token_of,
)


def test_what_others_say_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    """A web server that is not pinq gives a clear error, and a server that is not there is waited for only so long."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(pinq.Unavailable, match="is it a pinq server of protocol 1"):
            pinq.connect(f"http://127.0.0.1:{port}/people", token="pinq_x", insecure_http=True, timeout=5)
        thread.join()
    started = time.monotonic()
    with pytest.raises(pinq.Unavailable, match=r"^Nothing listens at http://127\.0\.0\.1:\d+: [^:]*$"):
        pinq.connect(f"http://127.0.0.1:{port}/people", token="pinq_x", insecure_http=True, timeout=0.5)
    assert time.monotonic() - started < 30  # the patience that nobody changed is twice that


INTERRUPTED = """
import os, signal
from pinq.server.datasets import Datasets
def opening(*_, **__):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        os.abort()  # as a module of C does that is just imported
Datasets.open = opening
from pinq.cli.main import main
main()
"""


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_server_that_is_interrupted_while_it_opens_ends_by_the_signal(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """No Python code runs, so no import can turn the interruption into another error."""
    words, log = ["serve", str(publish(tmp_path)), "--port", str(free_port()), "--insecure-http"], tmp_path / "log"
    process = PinqProcess([*words, *options], output=log, errors=log, program=INTERRUPTED)
    assert process.wait(timeout=60) == -signal.SIGINT
    assert log.read_text() == ""


def test_a_stopped_server_finishes_what_runs(tmp_path: Path) -> None:
    """SIGTERM in the middle of requests: each that was taken is answered, each that was charged has its answer, and only then the process ends."""
    policy = publish(tmp_path, "people", people(20_000))
    token = token_of(policy, "ana", 100)
    with serving(policy, folder=tmp_path) as running:
        done: list[int] = []
        # Large enough that some requests are always under way.
        many = {
            "specs": [
                {"kind": "cross", "specs": [{"kind": "shards", "count": 800}, {"kind": "values", "column": "job"}]}
            ],
            "asked": [[0, 0]],
            "shape": [800, 4],
        }
        sex = {"kind": "values", "column": "sex"}

        def work() -> None:
            with running.http(Authorization=f"Bearer {token}") as client:
                try:
                    while True:
                        done.append(
                            ask(
                                client,
                                verb="exp_mech",
                                parts=many,
                                score={"kind": "gini", "target": "income"},
                                candidates=[[sex]],
                                epsilon="0.001",
                            ).status_code
                        )
                except httpx.TransportError:
                    pass

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        while len(done) < 8:
            time.sleep(0.01)
        assert running.stop(signal.SIGTERM) in (0, -signal.SIGTERM)
        for thread in threads:
            thread.join()
    assert set(done) == {200}
    ledger = open_ledger(pinq.load_policy(policy))
    kinds = [event.kind for event in ledger.log.events()]
    ledger.verify()
    ledger.close()
    assert kinds.count("charge") == kinds.count("answer") == done.count(200)


def test_serving_says_what_it_needs(tmp_path: Path) -> None:
    """No certificate, plain HTTP for others, no policy, an unreviewed one, two of one name: each is refused by name before anything listens."""
    policy = publish(tmp_path / "one")
    publish(tmp_path / "two")
    (tmp_path / "empty").mkdir()

    def refused(*words: object) -> str:
        said = CliRunner().invoke(app, ["serve", *map(str, words)], env={"COLUMNS": "160", "NO_COLOR": "1"})
        assert said.exit_code == 1
        return said.stderr

    assert "Give a certificate and its key" in refused(policy)
    assert "for this machine only" in refused(policy, "--insecure-http", "--host", "0.0.0.0")
    assert "has no policy" in refused(tmp_path / "empty", "--insecure-http")
    assert "Two policies call their dataset 'people'" in refused(tmp_path / "one", tmp_path / "two", "--insecure-http")
    assert "There is no file" in refused(
        policy, "--tls-cert", tmp_path / "none.pem", "--tls-key", tmp_path / "none.pem"
    )
    (tmp_path / "text.pem").write_text("hello")
    assert "are no certificate with its key" in refused(
        policy, "--tls-cert", tmp_path / "text.pem", "--tls-key", tmp_path / "text.pem"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AssertionError) as failed:  # it gets so far that it is better done in a process of its own
            pinq_command("serve", policy, "--insecure-http", "--port", port)
    assert f"Port {port} of 127.0.0.1 cannot be used" in str(failed.value)
    assert "Serving" not in str(failed.value)
    policy.write_text(policy.read_text() + "unreviewed: [max_rows]\n")
    assert f"Error: {policy}: The policy of 'people' has values" in refused(policy, "--insecure-http")
    assert f"There is no policy to serve: {policy} is not reviewed yet." in refused(policy.parent, "--insecure-http")
    assert len(COLUMNS) == 4


def test_a_draft_in_a_folder_stops_nobody(tmp_path: Path) -> None:
    """What is not reviewed, or cannot be opened, is named and not served; the others are."""
    publish(tmp_path, "people")
    draft = publish(tmp_path, "second")
    draft.write_text(draft.read_text() + "unreviewed: [max_rows]\n")
    datasets = Datasets.open([tmp_path])
    assert (list(datasets.served), datasets.drafts) == (["people"], (draft,))
    datasets.close()
    with serving(tmp_path, folder=tmp_path) as server, server.http() as http:
        assert http.get("/healthz").status_code == 200
        assert (
            f"Not served: {draft} is not reviewed yet; `pinq check {draft}` says what waits." in server.log.read_text()
        )
    publish(tmp_path, "second", source="gone.parquet")
    datasets = Datasets.open([tmp_path])
    datasets.close()
    assert (list(datasets.served), datasets.drafts) == (["people"], ())
    (failed,) = datasets.failed
    assert failed.startswith(f"{draft}: There is no source")
    with pytest.raises(PolicyError, match=re.escape(f"{draft}: There is no source")):
        Datasets.open([draft])


def test_a_source_that_cannot_be_read_ends_no_server_and_no_other_dataset(tmp_path: Path) -> None:
    """At a start it is not served until it can be read; at SIGHUP the old rows answer. The others never notice."""
    served = tmp_path / "served"
    tokens = {name: token_of(publish(served, name)) for name in ("others", "people")}
    good = (served / "others.parquet").read_bytes()
    damaged = good[:4] + b"\xff" * 400 + good[404:]

    def until(true: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not true():
            assert time.monotonic() < end, server.log.read_text()
            time.sleep(0.05)

    def status(dataset: str) -> int:
        with server.http(Authorization=f"Bearer {tokens[dataset]}") as client:
            asked = {"id": os.urandom(8).hex(), "verb": "noisy_count", "epsilon": "0.1"}
            return client.post(f"/v1/{dataset}/query", json=asked).status_code

    def reload(content: bytes) -> None:
        (served / "others.parquet").write_bytes(content)
        before = server.log.read_text().count('"reloaded"')
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.log.read_text().count('"reloaded"') > before)

    (served / "others.parquet").write_bytes(damaged)
    with serving(served, folder=tmp_path) as server, server.http() as http:
        reason = f"{served / 'others.yaml'}: The source of 'others' cannot be read; `pinq check` says why."
        assert f"Not served: {reason}" in server.log.read_text()
        assert f'"failed": ["{reason}"]' in server.log.read_text()
        until(lambda: http.get("/readyz").json() == {"ready": True, "current": False})
        assert (status("people"), status("others")) == (200, 401)
        reload(good)
        until(lambda: http.get("/readyz").json() == {"ready": True, "current": True})
        assert (status("people"), status("others")) == (200, 200)
        reload(damaged)
        until(lambda: http.get("/readyz").json() == {"ready": True, "current": False})
        assert (status("people"), status("others")) == (200, 200)
