# SPDX-License-Identifier: Apache-2.0
"""The capacity of one server: counts a second by workers and clients, its memory, its start, its ledger.

``python -m benchmarks.speed.capacity`` writes ``benchmarks/results/capacity.md``. Each client keeps one
TLS connection and asks count after count, each with an id of its own, of a durable ledger.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pinq
from benchmarks.harness.publish import ROOT, single
from benchmarks.harness.timing import SpeedTable, milliseconds
from benchmarks.speed.server import ADULT, EPSILON, certify, running, trust
from pinq.provider.grants import grant
from tests.support.processes import postgresql
from tests.support.processes.ports import free_port

SECONDS = 4.0
CLIENTS = (1, 8, 32)
WORKERS = (1, 2)
TABLE = SpeedTable(
    "ledger", "workers", "clients", "counts a second", "median", "99 of 100", widths=(12, 8, 8, 18, 10, 10)
)


def main() -> None:
    """Runs everything and writes the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.capacity", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each is measured")
    asked = parser.parse_args()
    facts: list[str] = []
    with _ledgers() as ledgers:
        for name, url in ledgers:
            for workers in WORKERS:
                facts.append(_measure(name, url(), workers, asked.seconds))
    load = os.getloadavg()[0]
    machine = (
        f"{os.cpu_count()} cores, shared by server and clients, Python {platform.python_version()}; load {load:.1f}"
    )
    notes = "\n".join(f"- {fact}" for fact in facts)
    TABLE.write(
        single("capacity.md", whole=asked.seconds >= SECONDS),
        f"# What one server carries\n\n{machine} at the end; Adult (32,561 rows), counts over TLS.\n\n{notes}",
    )


@contextmanager
def _ledgers() -> Iterator[list[tuple[str, Callable[[], str | None]]]]:
    """The kinds of ledgers that there are on this machine."""
    if not postgresql.HERE:
        yield [("SQLite", lambda: None)]
        return
    with postgresql.running() as url:
        yield [("SQLite", lambda: None), ("PostgreSQL", lambda: postgresql.database(url))]


def _measure(name: str, ledger: str | None, workers: int, seconds: float) -> str:
    """Adds a server's lines to the table; returns what else is to be known of it."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        certify(folder)
        (folder / "adult.parquet").write_bytes(ADULT.read_bytes())
        declared = {"cap": 10**6, "source": "adult.parquet", "ledger": ledger}
        policy = pinq.load_policy(ROOT / "policies" / "adult.yaml").model_copy(update=declared)
        (folder / "adult.yaml").write_text(policy.to_yaml(), encoding="utf-8")
        token, port = grant(folder / "adult.yaml", "ana", 10**5).token, free_port()
        files = ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"), "--log", os.devnull]
        words = ["serve", str(folder / "adult.yaml"), "--host", "127.0.0.1", "--port", str(port), *files]
        command = [sys.executable, "-m", "pinq.cli.main", *words, "--rate", "100000", "--workers", str(workers)]
        began = time.perf_counter()
        with running(command, folder, f"https://127.0.0.1:{port}") as process:
            started = time.perf_counter() - began
            answered = sum(_clients(name, folder, port, token, workers, number, seconds) for number in CLIENTS)
            memory = _memory(process.pid)
        size = sum(file.stat().st_size for file in folder.glob("*.ledger*"))
    bytes_each = f"; {size / answered:,.0f} bytes of ledger a count" if size else ""
    return (
        f"{name}, {workers} worker(s): up after {started:.1f} s; {memory / 2**20:,.0f} MB of memory in all{bytes_each}"
    )


def _clients(name: str, folder: Path, port: int, token: str, workers: int, number: int, seconds: float) -> int:
    """Asks with so many clients; adds a line; returns how many counts were answered."""
    took: list[list[float]] = [[] for _ in range(number)]
    end = time.perf_counter() + seconds
    threads = [threading.Thread(target=_ask, args=(folder, port, token, end, own)) for own in took]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = sorted(value for own in took for value in own)
    tail = every[min(len(every) - 1, len(every) * 99 // 100)]
    rate = len(every) / seconds
    TABLE.add(
        name, str(workers), str(number), f"{rate:,.0f}", milliseconds(statistics.median(every)), milliseconds(tail)
    )
    return len(every)


def _ask(folder: Path, port: int, token: str, end: float, took: list[float]) -> None:
    """Asks until a moment, and notes how long each count took."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust(folder), timeout=60)
    headers = {"Authorization": f"Bearer {token}"}
    while (began := time.perf_counter()) < end:
        body = json.dumps({"id": uuid.uuid4().hex, "verb": "noisy_count", "epsilon": EPSILON})
        connection.request("POST", "/v1/adult/query", body, headers)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise SystemExit(f"status {response.status}")
        took.append(time.perf_counter() - began)


def _memory(pid: int) -> int:
    """Bytes that a process and its children have for themselves, as Linux counts them."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(_private, (pid, *map(int, children))))


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
