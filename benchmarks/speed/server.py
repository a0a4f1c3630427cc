# SPDX-License-Identifier: Apache-2.0
"""Speed of the wall: what a server adds to a call in process, and what one server process sustains with a durable ledger.

``make benchmark`` runs it and writes ``benchmarks/results/server.md``. Goals: at most 3 ms more at the median for one count over
TLS, 200 counts a second. Each figure stands beside its building block of the same run; ratios decide, nothing here can fail a test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import trustme

import pinq
from benchmarks.harness.publish import ROOT, single
from pinq.provider.grants import grant

ADULT = ROOT / "data" / "adult.parquet"
EPSILON = "0.000001"
URL = "https://127.0.0.1:18443/adult"
ROUNDS = 9
SECONDS = 5.0
LINES: list[tuple[str, str, str, str]] = []

# A server that does nothing: the floor under any answer over this stack.
EMPTY = """
import sys, uvicorn
async def app(scope, receive, send):
    while (await receive()).get("more_body"): pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(app, port=int(sys.argv[1]), ssl_certfile=sys.argv[2], ssl_keyfile=sys.argv[3], log_level="error", lifespan="off")
"""
# One more client process: asks for counts over one kept connection each until the time is over, and prints how many it got.
ASKER = """
import sys, time, pinq
url, authority, seconds, epsilon = sys.argv[1:]
with pinq.connect(url, verify=authority) as h:
    print("ready", flush=True)
    sys.stdin.readline()
    answers, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        h.noisy_count(epsilon=epsilon)
        answers += 1
print(answers, flush=True)
"""


def main() -> None:
    """Runs everything and writes the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=SECONDS, help="how long throughput is measured")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        policy, token = publish(place)
        certify(place)
        with server(place, policy) as process, empty(place) as floor:
            latency(place, policy, token, floor)
            sustained(place, process, token, asked.seconds)
    write(single("server.md", whole=asked.seconds >= SECONDS))


def publish(place: Path) -> tuple[Path, str]:
    """Adult, with a budget that does not end."""
    text = (ROOT / "policies" / "adult.yaml").read_text(encoding="utf-8")
    (place / "adult.parquet").write_bytes(ADULT.read_bytes())
    policy = place / "adult.yaml"
    source = pinq.load_policy(ROOT / "policies" / "adult.yaml").source
    policy.write_text(text.replace(str(source), "adult.parquet"), encoding="utf-8")
    policy.write_text(
        pinq.load_policy(policy).model_copy(update={"cap": 10**6, "source": "adult.parquet"}).to_yaml(),
        encoding="utf-8",
    )
    grant(policy, "near", 10**5)
    return policy, grant(policy, "far", 10**5).token


def certify(place: Path) -> None:
    """A certificate for this machine."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(place / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(place / "cert.pem"))
    authority.cert_pem.write_to_path(str(place / "authority.pem"))


@contextmanager
def server(place: Path, policy: Path) -> Any:
    """One `pinq serve` process."""
    command: list[Any] = [
        sys.executable,
        "-m",
        "pinq.cli.main",
        "serve",
        policy,
        "--port",
        "18443",
        "--host",
        "127.0.0.1",
    ]
    command += [
        "--tls-cert",
        place / "cert.pem",
        "--tls-key",
        place / "key.pem",
        "--log",
        os.devnull,
        "--rate",
        "100000",
    ]
    with running(command, place, "https://127.0.0.1:18443") as process:
        yield process


@contextmanager
def empty(place: Path) -> Any:
    """The server that does nothing."""
    with running(
        [sys.executable, "-c", EMPTY, "18444", place / "cert.pem", place / "key.pem"], place, "https://127.0.0.1:18444"
    ):
        yield "https://127.0.0.1:18444"


@contextmanager
def running(command: list[Any], place: Path, root: str) -> Any:
    """A process that serves, until the block ends."""
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(verify=trust(place), trust_env=False) as client:
            for _ in range(600):
                try:
                    client.get(root + "/healthz")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


def trust(place: Path) -> ssl.SSLContext:
    """Trusts the certificate of ``certify``."""
    return ssl.create_default_context(cafile=place / "authority.pem")


def latency(place: Path, policy: Path, token: str, floor: str) -> None:
    """One count through the server and in process, in turn; and an empty POST over the same stack."""
    with ExitStack() as stack:
        near = stack.enter_context(pinq.open(policy, analyst="near"))
        far = stack.enter_context(pinq.connect(URL, token=token, verify=place / "authority.pem"))
        bare = stack.enter_context(httpx.Client(verify=trust(place), trust_env=False))
        body = json.dumps({"id": uuid.uuid4().hex, "verb": "noisy_count", "epsilon": "0.1"})
        here: list[float] = []
        there: list[float] = []
        nothing: list[float] = []
        cells: list[float] = []
        tables: list[float] = []
        for one in (near, far):
            one.noisy_count(epsilon=EPSILON)
        for _ in range(ROUNDS * 40):
            here.append(timed(lambda: near.noisy_count(epsilon=EPSILON)))
            there.append(timed(lambda: far.noisy_count(epsilon=EPSILON)))
            nothing.append(timed(lambda: bare.post(floor, content=body)))
        table = [
            one.partition(pinq.Values("education"), pinq.Values("occupation"), pinq.Values("sex"))
            for one in (near, far)
        ]
        for _ in range(ROUNDS * 8):
            cells.append(timed(lambda: table[0].noisy_count(epsilon=EPSILON)))
            tables.append(timed(lambda: table[1].noisy_count(epsilon=EPSILON)))
    added = statistics.median(there) - statistics.median(here)
    note = f"{ms(added)} more at the median (goal: at most 3 ms); {ms(min(there) - min(here))} between the minima"
    add("one count over TLS", ms(statistics.median(there)), f"{ms(statistics.median(here))} in process", note)
    add(
        "  of it an empty POST",
        ms(statistics.median(nothing)),
        "",
        f"the stack itself: httpx, TLS, uvicorn; {ratio(added, statistics.median(nothing))} of it is added",
    )
    size = table[0].shape[0] * table[0].shape[1] * table[0].shape[2]
    add(
        f"a table of {size} counts",
        ms(statistics.median(tables)),
        f"{ms(statistics.median(cells))} in process",
        ratio(statistics.median(tables), statistics.median(cells)),
    )


def sustained(place: Path, process: Any, token: str, seconds: float) -> None:
    """Counts a second of one server process, for 1, 4 and 16 connections, clients on the same machine."""
    for clients in (1, 4, 16):
        before = burnt(process)
        answers = sum(asyncio.run(ask_for(place, URL, token, seconds, clients)))
        cpu = f"{ms((burnt(process) - before) / answers)} CPU each"
        add(
            f"counts a second, {clients} client(s)",
            f"{answers / seconds:,.0f}/s",
            cpu,
            f"{ratio(answers / seconds, 200)} of the goal of 200/s; durable ledger",
        )


async def ask_for(place: Path, url: str, token: str, seconds: float, clients: int) -> list[int]:
    """So many client processes at once; what each got."""
    words = [sys.executable, "-c", ASKER, url, str(place / "authority.pem"), str(seconds), EPSILON]
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, env={**os.environ, "PINQ_TOKEN": token})
        for _ in range(clients)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    return [int(out) for out, _ in await asyncio.gather(*(process.communicate(b"go\n") for process in processes))]


def burnt(process: Any) -> float:
    """CPU seconds of a process so far, where the system tells (Linux): a figure that a busy machine changes little."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(function: Any) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def ms(seconds: float) -> str:
    """Milliseconds, three digits."""
    return f"{seconds * 1e3:.3g} ms"


def ratio(ours: float, other: float) -> str:
    """How many times the other."""
    return f"{ours / other:.2f}x"


def add(what: str, ours: str, bare: str, note: str) -> None:
    """Prints a line of the table and keeps it."""
    LINES.append((what, ours, bare, note))
    print(f"{what:<52} {ours:<12} {bare:<24} {note}", flush=True)


def write(path: Path) -> None:
    """The table as Markdown."""
    head = f"# Speed of the server\n\n{os.cpu_count()} cores, shared by server and clients, Python {platform.python_version()}; Adult (32,561 rows).\n"
    rows = "\n".join("| " + " | ".join(line) + " |" for line in LINES)
    path.write_text(
        f"{head}\n| what | through the server | bare block | |\n|---|---|---|---|\n{rows}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
