# SPDX-License-Identifier: Apache-2.0
"""What a fit sends over the wire: rounds, requests and bytes of each strategy, four servers' worth of datasets behind TLS.

``python -m benchmarks.papers.topdown.wire`` measures it on Adult and writes benchmarks/results/topdown/wire.csv. Bytes are counted by a relay between
coordinator and server, TLS included.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.publish import RESULTS, ROOT
from benchmarks.papers.topdown.experiments import HOLDERS
from benchmarks.speed.server import certify
from miners import DPTopDown, Federation
from pinq.provider.grants import grant

STRATEGIES: dict[str, dict[str, Any]] = {
    "turns": {"strategy": "turns"},
    "local_rnm": {"strategy": "local_rnm"},
    "local_rnm, at_once=1": {"strategy": "local_rnm", "at_once": 1},
    "noisy_counts": {"strategy": "noisy_counts"},
}
EPSILONS = (1.0, 8.0)


class Relay:
    """Passes a server's bytes on and counts them."""

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
            for source, sink, way in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pass, args=(source, sink, way), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        while block := source.recv(65536):
            setattr(self, way, getattr(self, way) + len(block))
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)


def main() -> None:
    """Fits each strategy once at each epsilon and writes the table."""
    lines = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder)
        certify(place)
        tokens = [publish_share(place, number) for number in range(HOLDERS)]
        port = serve(place, stack)
        for epsilon in EPSILONS:
            for name, params in STRATEGIES.items():
                lines.append(
                    {"strategy": name, "epsilon": epsilon, **fit(place, port, tokens, {"epsilon": epsilon, **params})}
                )
                print(lines[-1], flush=True)
    pd.DataFrame(lines).to_csv(RESULTS / "topdown" / "wire.csv", index=False)


def fit(place: Path, port: int, tokens: list[str], params: dict[str, Any]) -> dict[str, Any]:
    """One fit: what it took."""
    relays = [Relay(port) for _ in tokens]
    handles = [
        pinq.connect(f"https://127.0.0.1:{relay.port}/adult{number}", token=token, verify=place / "authority.pem")
        for number, (relay, token) in enumerate(zip(relays, tokens, strict=True))
    ]
    before = [(relay.up, relay.down) for relay in relays]
    with Federation(handles) as federation:
        began = time.perf_counter()
        fitted = DPTopDown(**params).fit(federation, "income")
        seconds = time.perf_counter() - began
    up, down = (
        max(getattr(relay, way) - old[place_] for relay, old in zip(relays, before, strict=True))
        for place_, way in enumerate(("up", "down"))
    )
    card = fitted.card_
    return {
        "rounds": card.rounds,
        "requests": max(card.requests.values()),
        "kB_up": round(up / 1000),
        "kB_down": round(down / 1000),
        "seconds": round(seconds, 1),
    }


def publish_share(place: Path, number: int) -> str:
    """One holder's share of Adult, with a policy of its own; the coordinator's token."""
    rows = pd.read_parquet(ROOT / "data" / "adult.parquet")
    owner = np.random.default_rng(HOLDERS).integers(0, HOLDERS, len(rows))
    rows[owner == number].to_parquet(place / f"adult{number}.parquet", index=False)
    own = {"dataset": f"adult{number}", "source": f"adult{number}.parquet", "cap": 10**4, "max_rows": 10_000}
    policy = pinq.load_policy(ROOT / "policies" / "adult.yaml").model_copy(update=own)
    (place / f"adult{number}.yaml").write_text(policy.to_yaml(), encoding="utf-8")
    return grant(place / f"adult{number}.yaml", "coordinator", 10**3).token


def serve(place: Path, stack: ExitStack) -> int:
    """One server process for all shares: what crosses the wire is the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    policies = [str(place / f"adult{number}.yaml") for number in range(HOLDERS)]
    command = [sys.executable, "-m", "pinq.cli.main", "serve", *policies, "--port", str(port), "--host", "127.0.0.1"]
    command += ["--tls-cert", str(place / "cert.pem"), "--tls-key", str(place / "key.pem")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return port
        except OSError:
            if process.poll() is not None:
                raise SystemExit("the server did not start") from None
            time.sleep(0.2)


if __name__ == "__main__":
    main()
