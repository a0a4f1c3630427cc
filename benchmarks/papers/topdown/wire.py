# SPDX-License-Identifier: Apache-2.0
"""The traffic of a fit: rounds, requests and bytes of each strategy, to four datasets behind TLS.

``python -m benchmarks.papers.topdown.wire`` measures it on Adult and writes
benchmarks/results/topdown/wire.csv. Bytes are counted by a relay between coordinator and server,
TLS included.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.publish import RESULTS, ROOT
from benchmarks.papers.topdown.experiments import OWNERS
from benchmarks.speed.server import certify, running
from miners import FederatedTopDown, Federation
from pinq.provider.grants import grant
from tests.support.processes.ports import free_port

STRATEGIES: dict[str, dict[str, object]] = {
    "turns": {"strategy": "turns"},
    "local_rnm": {"strategy": "local_rnm"},
    "local_rnm, at_once=1": {"strategy": "local_rnm", "at_once": 1},
    "noisy_counts": {"strategy": "noisy_counts"},
}
EPSILONS = (1.0, 8.0)


class Relay:
    """A relay passes a server's bytes on and counts them."""

    def __init__(self, port: int) -> None:
        self.up = self.down = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self._port))
            for source, sink, direction in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pass, args=(source, sink, direction), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        while block := source.recv(65536):
            setattr(self, direction, getattr(self, direction) + len(block))
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)


def main() -> None:
    """Fits each strategy once at each epsilon and writes the table."""
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certify(folder)
        tokens = [publish_share(folder, number) for number in range(OWNERS)]
        port = free_port()
        with running(command(folder, port), folder, f"https://127.0.0.1:{port}"):
            for epsilon in EPSILONS:
                for strategy, params in STRATEGIES.items():
                    traffic = fit(folder, port, tokens, {"epsilon": epsilon, **params})
                    lines.append({"strategy": strategy, "epsilon": epsilon, **traffic})
                    print(lines[-1], flush=True)
    pd.DataFrame(lines).to_csv(RESULTS / "topdown" / "wire.csv", index=False)


def fit(folder: Path, port: int, tokens: list[str], params: dict[str, Any]) -> dict[str, float]:
    """Fits once and returns what it took: of bytes and requests, those of the owner that had most."""
    relays = [Relay(port) for _ in tokens]
    handles = [
        pinq.connect(f"https://127.0.0.1:{relay.port}/adult{number}", token=token, verify=folder / "authority.pem")
        for number, (relay, token) in enumerate(zip(relays, tokens, strict=True))
    ]
    before = [(relay.up, relay.down) for relay in relays]
    with Federation(handles) as federation:
        began = time.perf_counter()
        card = FederatedTopDown(**params).fit(federation, "income").card_
        seconds = time.perf_counter() - began
    sent = [(relay.up - up, relay.down - down) for relay, (up, down) in zip(relays, before, strict=True)]
    return {
        "rounds": card.rounds,
        "requests": max(card.requests.values()),
        "kB_up": round(max(up for up, _ in sent) / 1000),
        "kB_down": round(max(down for _, down in sent) / 1000),
        "seconds": round(seconds, 1),
    }


def publish_share(folder: Path, number: int) -> str:
    """Writes one owner's share of Adult with a policy of its own; returns the coordinator's token."""
    rows = pd.read_parquet(ROOT / "data" / "adult.parquet")
    owner = np.random.default_rng(OWNERS).integers(0, OWNERS, len(rows))
    rows[owner == number].to_parquet(folder / f"adult{number}.parquet", index=False)
    own = {"dataset": f"adult{number}", "source": f"adult{number}.parquet", "cap": 10**4, "max_rows": 10_000}
    policy = pinq.load_policy(ROOT / "policies" / "adult.yaml").model_copy(update=own)
    (folder / f"adult{number}.yaml").write_text(policy.to_yaml(), encoding="utf-8")
    return grant(folder / f"adult{number}.yaml", "coordinator", 10**3).token


def command(folder: Path, port: int) -> list[str]:
    """Returns how one server process serves all shares: what crosses the wire is the same."""
    policies = [str(folder / f"adult{number}.yaml") for number in range(OWNERS)]
    words = [sys.executable, "-m", "pinq.cli.main", "serve", *policies, "--port", str(port), "--host", "127.0.0.1"]
    return [*words, "--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]


if __name__ == "__main__":
    main()
