# SPDX-License-Identifier: Apache-2.0
"""Speed of the wall: what a server adds to a call in process, and what one server sustains.

``make benchmark`` runs it and writes ``benchmarks/results/server.md``. Goals: at most 2 ms more at the
median for one count over TLS, 400 counts a second with a durable ledger in SQLite and 250 in
PostgreSQL on two cores. ``--beside CHECKOUT`` measures an older release in the same run. ``--bare``
measures the processor's time of a count alone, in turns with a Starlette application that parses the
body and sends it back: a figure that other work on the machine changes less. Its goal is 5 times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import trustme

import pinq
from benchmarks.harness.publish import ROOT, single
from benchmarks.harness.tables import replace_section
from benchmarks.harness.timing import SpeedTable, in_turn, milliseconds, ratio
from benchmarks.speed.wire import Asking, running as running_client
from pinq.provider.grants import grant
from tests.support.processes import postgresql
from tests.support.processes.ports import free_port

__all__ = ["certify", "running"]

ADULT = ROOT / "data" / "adult.parquet"
EPSILON = "0.000001"
ROUNDS = 9
SECONDS = 5.0
TABLE = SpeedTable("what", "through the server", "beside it", "", widths=(52, 12, 24, 0))

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
# The same stack with a route and JSON, and nothing behind them.
BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
async def echo(http): return JSONResponse(await http.json())
port, certificate, key = sys.argv[1:]
app = Starlette(routes=[Route("/v1/adult/query", echo, methods=["POST"]), Route("/healthz", echo)])
tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
uvicorn.run(app, port=int(port), log_level="error", access_log=False, loop="uvloop", http="h11", **tls)
"""
# Publishes Adult in the release that a folder has, whatever its modules are called; prints a token.
PUBLISH = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
import pinq
try:
    from pinq.provider.grants import grant
except ImportError:
    from pinq.provider import grant
folder = pathlib.Path(sys.argv[2])
(folder / "adult.parquet").write_bytes(pathlib.Path("data/adult.parquet").read_bytes())
declared = {"cap": 10**6, "source": "adult.parquet"} | ({"ledger": sys.argv[3]} if sys.argv[3] else {})
policy = pinq.load_policy("policies/adult.yaml").model_copy(update=declared)
(folder / "adult.yaml").write_text(policy.to_yaml())
print(grant(folder / "adult.yaml", "far", 10**5).token)
"""
SERVE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
try:
    from pinq.cli.main import main
except ImportError:
    from pinq.cli import main
main()
"""


def main() -> None:
    """Runs everything and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long throughput is measured")
    parser.add_argument("--beside", type=Path, help="an older checkout, measured in turn with this one")
    parser.add_argument("--bare", action="store_true", help="the processor's time alone, beside a bare application")
    asked = parser.parse_args()
    page = single("server.md", whole=asked.seconds >= SECONDS)
    if asked.bare:
        text = beside_bare(asked.seconds)
        replace_section(page, "bare", text, heading="A count beside a bare application")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy, token = publish(folder)
        certify(folder)
        with server(folder, policy) as (_, root), empty(folder) as floor:
            latency(folder, policy, f"{root}/adult", token, floor)
    sustained(asked.seconds, [path for path in (asked.beside, ROOT) if path is not None])
    machine = f"{os.cpu_count()} cores, shared by server and clients, Python {platform.python_version()}"
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
    with _small(EMPTY, folder) as (_, port):
        yield f"https://127.0.0.1:{port}"


@contextmanager
def _small(program: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "-c", program, str(port), str(folder / "cert.pem"), str(folder / "key.pem")]
    with running(command, folder, f"https://127.0.0.1:{port}") as process:
        yield process, port


@contextmanager
def running(
    command: Sequence[str], folder: Path, root: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process that serves, until the block ends; waits until it answers.

    Raises:
        SystemExit: It does not answer within 30 seconds, or ends before.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
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
        f"{milliseconds(added)} more at the median (goal: at most 2 ms); {least_added} between the minima",
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


def sustained(seconds: float, trees: Sequence[Path]) -> None:
    """Counts answers a second, by ledger, workers and connections; each tree in turn, in one run."""
    with _ledgers() as ledgers:
        for name, ledger in ledgers:
            for workers in (1, 2):
                _sustain(name, ledger, workers, seconds, trees)


@contextmanager
def _ledgers() -> Iterator[list[tuple[str, Callable[[], str]]]]:
    with ExitStack() as stack:
        ledgers: list[tuple[str, Callable[[], str]]] = [("SQLite", str)]
        if postgresql.HERE:
            base = stack.enter_context(postgresql.running())
            ledgers.append(("PostgreSQL", partial(postgresql.database, base)))
        yield ledgers


def beside_bare(seconds: float) -> str:
    """Measures the processor's time of a count, in turns with the bare application; returns a table."""
    table = SpeedTable(
        "ledger", "a count", "bare application", "of five turns, the median (least to most)", widths=(12, 12, 18, 0)
    )
    with _ledgers() as ledgers:
        for name, ledger in ledgers:
            with (
                published(ROOT, ledger(), 1) as (asking, process),
                _small(BARE, asking.authority.parent) as (bare, port),
            ):
                turns = list[tuple[float, float, float]]()
                for _ in range(6):  # the first warms up
                    _, count = _count(replace(asking, seconds=seconds), process)
                    _, floor = _count(replace(asking, seconds=seconds, port=port), bare)
                    turns.append((count / floor, count, floor))
            ratios, counts, floors = (sorted(figures) for figures in zip(*turns[1:], strict=True))
            note = f"{ratios[2]:.1f} times ({ratios[0]:.1f} to {ratios[-1]:.1f}); goal 5"
            table.add(name, milliseconds(counts[2]), milliseconds(floors[2]), note)
    where = f"one connection over TLS; the machine's load was {os.getloadavg()[0]:.0f}"
    return f"Time of a processor in the server, {where}.\n\n{table.text()}"


def _sustain(name: str, ledger: Callable[[], str], workers: int, seconds: float, trees: Sequence[Path]) -> None:
    goal = {"SQLite": 400, "PostgreSQL": 250}[name]
    with ExitStack() as stack:
        # What has no workers yet is measured with the others of one worker alone.
        able = [tree for tree in trees if workers == 1 or (tree / "pinq" / "server" / "workers.py").exists()]
        servers = [stack.enter_context(published(tree, ledger(), workers)) for tree in able]
        for asking, process in servers:
            _count(replace(asking, seconds=1.0), process)
        for connections in (1, 8):
            rounds = [
                [
                    _count(replace(asking, connections=connections, seconds=seconds), process)
                    for asking, process in servers
                ]
                for _ in range(2)
            ]
            *earlier, (rate, each) = [
                tuple(map(statistics.mean, zip(*own, strict=True))) for own in zip(*rounds, strict=True)
            ]
            before = "".join(f"{slow:,.0f}/s, {milliseconds(cost)} CPU each" for slow, cost in earlier)
            what = f"{name}, {workers} worker(s), {connections} connection(s)"
            TABLE.add(what, f"{rate:,.0f}/s", before, f"{milliseconds(each)} CPU each; goal {goal}/s on two cores")


def _count(asking: Asking, process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Counts a second, and the server's CPU seconds for one."""
    before = cpu_seconds(process.pid)
    with running_client(asking) as outcome:
        answers = len(outcome().milliseconds)
    return answers / asking.seconds, (cpu_seconds(process.pid) - before) / answers


@contextmanager
def published(tree: Path, ledger: str, workers: int) -> Iterator[tuple[Asking, subprocess.Popen[bytes]]]:
    """Runs the server of a checkout; yields how to ask it, and its process."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        certify(folder)
        words = [sys.executable, "-c", PUBLISH, str(tree), name, ledger]
        state = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        token = subprocess.run(words, cwd=tree, env=state, capture_output=True, text=True, check=True).stdout.split()[
            -1
        ]
        files = ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"), "--log", os.devnull]
        where = ["--host", "127.0.0.1", "--port", str(port), "--rate", "100000"]
        several = ["--workers", str(workers)] if workers > 1 else []
        command = [
            sys.executable,
            "-c",
            SERVE,
            str(tree),
            "serve",
            str(folder / "adult.yaml"),
            *where,
            *files,
            *several,
        ]
        with running(command, folder, f"https://127.0.0.1:{port}", state) as process:
            yield Asking(port, folder / "authority.pem", (token,)), process


def cpu_seconds(pid: int) -> float:
    """Returns the CPU seconds of a process and its children so far, where Linux tells, else 0.

    A busy machine changes this figure little.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, map(int, children)))


if __name__ == "__main__":
    main()
