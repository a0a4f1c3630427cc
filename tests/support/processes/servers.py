# SPDX-License-Identifier: Apache-2.0
"""Real server processes for tests: a policy on disk, a certificate of one's own, ``pinq serve``."""

from __future__ import annotations

import os
import re
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import trustme

from pinq.policy.policy import Policy
from pinq.provider.grants import grant
from pinq.provider.policy_file import load_policy
from tests.support.processes.forked_processes import PinqProcess, run_pinq
from tests.support.processes.ports import free_port

COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "values": ["Female", "Male"]},
    "job": {"type": "categorical", "values": ["clerk", "nurse", "smith"], "nullable": True},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
    "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
}


EVERY_TYPE: dict[str, Any] = {
    "truth": {"type": "categorical", "values": [False, True]},
    "whole": {"type": "categorical", "values": [1, 0, -(10**12)]},
    "digits": {"type": "categorical", "values": ["01070", "1", "1.0", "1e5"], "nullable": True},
    "words": {"type": "categorical", "values": ["True", "None", "", "é\u202e😊", "k" * 2_000]},
    "mixed": {"type": "categorical", "values": ["true", "1", "yes", "no"], "nullable": True},
    "number": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
}


def every_type(rows: int = 600) -> pd.DataFrame:
    """Rows that fit ``EVERY_TYPE``; ``truth`` follows from each of the others."""
    drawn = {
        name: [
            column.get("values", range(10))[(i * i + i // 7) % len(column.get("values", range(10)))]
            for i in range(rows)
        ]
        for name, column in EVERY_TYPE.items()
    }
    drawn["truth"] = [value > 4 for value in drawn["number"]]
    return pd.DataFrame(drawn)


def people(rows: int = 400) -> pd.DataFrame:
    """Rows that fit ``COLUMNS``."""
    return pd.DataFrame(
        {
            "sex": [("Female", "Male")[i % 2] for i in range(rows)],
            "job": [("clerk", "nurse", "smith", None)[i % 4] for i in range(rows)],
            "age": [(7 * i) % 100 for i in range(rows)],
            "income": [("<=50K", ">50K")[(7 * i) % 100 > 60] for i in range(rows)],
        }
    )


def publish(folder: Path, dataset: str = "people", frame: pd.DataFrame | None = None, **policy: Any) -> Path:
    """A data file and its policy in a folder; returns the policy file."""
    folder.mkdir(parents=True, exist_ok=True)
    data = people() if frame is None else frame
    data.to_parquet(folder / f"{dataset}.parquet")
    declared = {"cap": 1000, "max_rows": max(1000, 2 * len(data)), "columns": COLUMNS} | policy
    file = folder / f"{dataset}.yaml"
    file.write_text(
        Policy.model_validate({"dataset": dataset, "source": f"{dataset}.parquet"} | declared).to_yaml(),
        encoding="utf-8",
    )
    return file


def token_of(policy: Path, analyst: str = "ana", epsilon: Any = 100, **terms: Any) -> str:
    """Grants a budget; returns the token."""
    return grant(load_policy(policy), analyst, epsilon, **terms).token


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1, and the authority that clients must trust."""

    cert: Path
    key: Path
    authority: Path

    @classmethod
    def make(cls, folder: Path) -> Certificate:
        found = cls(folder / "cert.pem", folder / "key.pem", folder / "authority.pem")
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(str(found.key))
        for place, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(str(found.cert), append=place > 0)
        authority.cert_pem.write_to_path(str(found.authority))
        return found


@dataclass
class Server:
    """A running ``pinq serve``."""

    process: PinqProcess
    root: str
    certificate: Certificate | None
    log: Path

    def url(self, dataset: str = "people") -> str:
        """The address for analysts."""
        return f"{self.root}/{dataset}"

    def words(self) -> dict[str, Any]:
        """Keywords for ``pinq.connect``."""
        return {"insecure_http": True} if self.certificate is None else {"verify": self.certificate.authority}

    def http(self, **headers: str) -> httpx.Client:
        """A bare client, for requests that pinq's own would not send."""
        context = False if self.certificate is None else ssl.create_default_context(cafile=self.certificate.authority)
        return httpx.Client(base_url=self.root, verify=context, headers=headers, timeout=60, trust_env=False)

    def stop(self, sign: int = signal.SIGTERM) -> int:
        """Stops it; returns its exit status."""
        self.process.send_signal(sign)
        return self.process.wait(timeout=60)


@contextmanager
def serving(
    *policies: Path,
    folder: Path,
    certificate: Certificate | None = None,
    port: int = 0,
    options: tuple[str, ...] = (),
    shutdown_seconds: float | None = None,
    program: str = "",
) -> Iterator[Server]:
    """A server process; it is killed at the end unless it was stopped before."""
    port = port or free_port()
    secure = (
        ["--insecure-http"]
        if certificate is None
        else ["--host", "127.0.0.1", "--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key)]
    )
    log = folder / f"server-{port}.log"
    words = ["serve", *map(str, policies), "--port", str(port), *secure, *options]
    process = PinqProcess(words, output=log, errors=log, shutdown_seconds=shutdown_seconds, program=program)
    server = Server(process, f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}", certificate, log)
    try:
        wait_until_up(server)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until_up(server: Server, seconds: float = 60) -> None:
    """Waits for ``/healthz``."""
    end = time.monotonic() + seconds
    with server.http() as client:
        while time.monotonic() < end:
            assert server.process.poll() is None, server.log.read_text()
            try:
                if client.get("/healthz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
    raise AssertionError(f"the server did not start: {server.log.read_text()}")


def pinq_command(*words: object, **environment: str) -> str:
    """Runs the ``pinq`` command; its standard output."""
    done = run_pinq(list(map(str, words)), {**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def ask(client: httpx.Client, **request: Any) -> httpx.Response:
    """A raw question to ``people``."""
    return client.post(
        "/v1/people/query", json={"id": os.urandom(8).hex(), "verb": "noisy_count", "epsilon": "0.1"} | request
    )
