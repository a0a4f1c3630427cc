# SPDX-License-Identifier: Apache-2.0
"""Speed of the wall: what a server adds to a call in process, and what one server sustains.

``make benchmark`` runs it and writes ``benchmarks/results/server.md``. Goals: at most 3 ms more at the
median for one count over TLS, 200 counts a second with a durable ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import trustme

import pinq
from benchmarks.harness.publish import ROOT, single
from benchmarks.harness.tables import replace_section
from benchmarks.harness.timing import SpeedTable, in_turn, milliseconds, ratio
from pinq.provider.grants import grant

__all__ = ["certify", "free_port", "running"]

ADULT = ROOT / "data" / "adult.parquet"
EPSILON = "0.000001"
ROUNDS = 9
SECONDS = 5.0
TABLE = SpeedTable("what", "through the server", "bare block", "", widths=(52, 12, 24, 0))

# A server that does nothing: the floor under any answer over this stack.
EMPTY = """
import sys, uvicorn
async def app(scope, receive, send):
    while (await receive()).get("more_body"): pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
port, certificate, key = sys.argv[1:]
tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
uvicorn.run(app, port=int(port), log_level="error", lifespan="off", **tls)
"""
# One more client process: asks for counts over a kept connection until the time is over, and prints
# how many it got.
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
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long throughput is measured")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy, token = publish(folder)
        certify(folder)
        with server(folder, policy) as (process, root), empty(folder) as floor:
            latency(folder, policy, f"{root}/adult", token, floor)
            sustained(folder, process, f"{root}/adult", token, asked.seconds)
    machine = f"{os.cpu_count()} cores, shared by server and clients, Python {platform.python_version()}"
    page = single("server.md", whole=asked.seconds >= SECONDS)
    text = f"{machine}; Adult (32,561 rows).\n\n{TABLE.text()}"
    replace_section(page, "speed", text, heading="Speed of the server")


def publish(folder: Path) -> tuple[Path, str]:
    """Copies Adult, with a budget that does not end; returns its policy and a token."""
    (folder / "adult.parquet").write_bytes(ADULT.read_bytes())
    policy = pinq.load_policy(ROOT / "policies" / "adult.yaml")
    path = folder / "adult.yaml"
    path.write_text(policy.model_copy(update={"cap": 10**6, "source": "adult.parquet"}).to_yaml(), encoding="utf-8")
    grant(path, "near", 10**5)
    return path, grant(path, "far", 10**5).token


def certify(folder: Path) -> None:
    """Writes a certificate for this machine, its key, and who issued it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))


def free_port() -> int:
    """Returns a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(folder: Path, *policies: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Runs one `pinq serve` process; yields it and its address."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "pinq.cli.main",
        "serve",
        *map(str, policies),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    command += ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
    command += ["--log", os.devnull, "--rate", "100000"]
    root = f"https://127.0.0.1:{port}"
    with running(command, folder, root) as process:
        yield process, root


@contextmanager
def empty(folder: Path) -> Iterator[str]:
    """Runs the server that does nothing; yields its address."""
    port = free_port()
    command = [sys.executable, "-c", EMPTY, str(port), str(folder / "cert.pem"), str(folder / "key.pem")]
    root = f"https://127.0.0.1:{port}"
    with running(command, folder, root):
        yield root


@contextmanager
def running(command: Sequence[str], folder: Path, root: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process that serves, until the block ends; waits until it answers.

    Raises:
        SystemExit: It does not answer within 30 seconds, or ends before.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(verify=trust(folder), trust_env=False) as client:
            _wait_for(client, process, root)
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_for(client: httpx.Client, process: subprocess.Popen[bytes], root: str) -> None:
    for _ in range(600):
        try:
            client.get(root + "/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.05)
        if process.poll() is not None:
            break
    raise SystemExit("the server did not start")


def trust(folder: Path) -> ssl.SSLContext:
    """Returns what trusts the certificate of ``certify``."""
    return ssl.create_default_context(cafile=folder / "authority.pem")


def latency(folder: Path, policy: Path, url: str, token: str, floor: str) -> None:
    """Times one count through the server and in process, in turn; and an empty POST over the same stack."""
    with ExitStack() as stack:
        near = stack.enter_context(pinq.open(policy, analyst="near"))
        far = stack.enter_context(pinq.connect(url, token=token, verify=folder / "authority.pem"))
        bare = stack.enter_context(httpx.Client(verify=trust(folder), trust_env=False))
        body = json.dumps({"id": uuid.uuid4().hex, "verb": "noisy_count", "epsilon": "0.1"})
        _one_count(near, far, lambda: bare.post(floor, content=body))
        _table_of_counts(near, far)


def _one_count(near: pinq.PrivateQueryable, far: pinq.PrivateQueryable, post: Callable[[], object]) -> None:
    here, there, nothing = in_turn(
        lambda: near.noisy_count(epsilon=EPSILON), lambda: far.noisy_count(epsilon=EPSILON), post, rounds=ROUNDS * 40
    )
    added = statistics.median(there) - statistics.median(here)
    least_added = milliseconds(min(there) - min(here))
    TABLE.add(
        "one count over TLS",
        milliseconds(statistics.median(there)),
        f"{milliseconds(statistics.median(here))} in process",
        f"{milliseconds(added)} more at the median (goal: at most 3 ms); {least_added} between the minima",
    )
    floor = statistics.median(nothing)
    note = f"the stack itself: httpx, TLS, uvicorn; {ratio(added, floor)} of it is added"
    TABLE.add("  of it an empty POST", milliseconds(floor), "", note)


def _table_of_counts(near: pinq.PrivateQueryable, far: pinq.PrivateQueryable) -> None:
    columns = [pinq.Values(name) for name in ("education", "occupation", "sex")]
    near_parts, far_parts = near.partition(*columns), far.partition(*columns)
    here, there = map(
        statistics.median,
        in_turn(
            lambda: near_parts.noisy_count(epsilon=EPSILON),
            lambda: far_parts.noisy_count(epsilon=EPSILON),
            rounds=ROUNDS * 8,
        ),
    )
    n_counts = math.prod(near_parts.shape)
    in_process = f"{milliseconds(here)} in process"
    TABLE.add(f"a table of {n_counts} counts", milliseconds(there), in_process, ratio(there, here))


def sustained(folder: Path, process: subprocess.Popen[bytes], url: str, token: str, seconds: float) -> None:
    """Counts answers a second of one server process, for 1, 4 and 16 connections of this machine."""
    for clients in (1, 4, 16):
        before = cpu_seconds(process)
        answers = sum(asyncio.run(ask_for(folder, url, token, seconds, clients)))
        TABLE.add(
            f"counts a second, {clients} client(s)",
            f"{answers / seconds:,.0f}/s",
            f"{milliseconds((cpu_seconds(process) - before) / answers)} CPU each",
            f"{ratio(answers / seconds, 200)} of the goal of 200/s; durable ledger",
        )


async def ask_for(folder: Path, url: str, token: str, seconds: float, clients: int) -> list[int]:
    """Runs so many client processes at once; returns how many answers each got."""
    words = [sys.executable, "-c", ASKER, url, str(folder / "authority.pem"), str(seconds), EPSILON]
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, env={**os.environ, "PINQ_TOKEN": token})
        for _ in range(clients)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    return [int(out) for out, _ in await asyncio.gather(*(process.communicate(b"go\n") for process in processes))]


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """Returns the CPU seconds of a process so far, where the system tells (Linux), else 0.

    A busy machine changes this figure little.
    """
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
