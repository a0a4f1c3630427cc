# SPDX-License-Identifier: Apache-2.0
"""The waiting time of a victim while four tokens at the least epsilon flood a server.

``make benchmark`` runs it and writes the section of floods of ``benchmarks/results/server.md``. A
victim asks a count every tenth of a second on the attacked dataset, and on another one of the same
server. Goals: its median stays within three times of idle there, and twice on the other; revoking
gives the server back within 2 s; peak memory is below 1 GB; the ledger grows by what was granted.
Idle is measured before each flood, once the server's processes have nothing left to do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness.publish import single
from benchmarks.harness.tables import replace_section
from benchmarks.harness.timing import SpeedTable
from benchmarks.speed.memory import own_peak, watched
from benchmarks.speed.server import certify, publish, server, trust
from benchmarks.speed.wire import Asking, nothing, running
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.events import Charged, LoggedQuery, Terms
from pinq.provider.grants import grant, revoke, set_terms
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon

SECONDS = 8.0
NANO = "0.000000001"
ATTACKERS, EACH = 4, 4
LINES = 20_000
QUOTA = 20_000_000
SETTLED_SECONDS, QUIET_LOOKS = 120.0, 6  # looks are a quarter of a second apart
COLUMNS = ("what the four do", "earlier", "same dataset", "another dataset")
TABLE = SpeedTable(*COLUMNS, widths=(52, 32, 20, 20))
N_FAMILIES = 1_000
SPLIT = {"kind": "cross", "specs": [{"kind": "values", "column": name} for name in ("age", "education", "occupation")]}
WIDE = {**SPLIT, "specs": [*SPLIT["specs"], {"kind": "values", "column": "relationship"}]}
N_SPLIT, N_WIDE, N_NODES = 101 * 16 * 15, 101 * 16 * 15 * 6, 20_000


@dataclass
class Flood:
    """A server with two datasets, its attackers and what may be asked of it."""

    folder: Path
    root: str
    policy: Path
    process: subprocess.Popen[bytes]
    tokens: list[str]
    victims: dict[str, str]

    @property
    def processes(self) -> list[int]:
        """The server's processes: its own and those that it started."""
        return descendants(self.process.pid)

    def settle(self) -> None:
        """Waits until the server does nothing any more: what a flood left has ended."""
        quiet, late, before = 0, time.monotonic() + SETTLED_SECONDS, -1
        while quiet < QUIET_LOOKS:
            if time.monotonic() > late:
                raise SystemExit("the server is still busy with what a flood left")
            time.sleep(0.25)
            now = sum(ticks(pid) for pid in self.processes)
            quiet, before = quiet + 1 if now - before <= 1 else 0, now

    def asking(self, tokens: Sequence[str], path: str, **how: Any) -> Asking:
        """A client of this server."""
        port = int(self.root.rpartition(":")[2])
        return Asking(port, self.folder / "authority.pem", tuple(tokens), path, **how)

    def victim(self, dataset: str, seconds: float) -> Asking:
        """Asks a count every tenth of a second, connected anew each time."""
        path = f"/v1/{dataset}/query"
        return self.asking([self.victims[dataset]], path, seconds=seconds, pause=0.1, kept=False)

    def attackers(self, path: str, bodies: Callable[[], Iterator[bytes]], seconds: float, **how: Any) -> Asking:
        """Four tokens that ask one thing after the other, with four connections each."""
        how = {"connections": ATTACKERS * EACH, "seconds": seconds, "patience": SECONDS, "nice": 19} | how
        return self.asking(self.tokens, f"/v1/adult/{path}", bodies=bodies, **how)


def descendants(pid: int) -> list[int]:
    """A process and all that it and they started."""
    listed = [pid]
    for each in listed:  # which grows meanwhile
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                listed += map(int, task.read_text(encoding="ascii").split())
    return listed


def asked(**fields: object) -> dict[str, object]:
    """A request of its own at the least epsilon there is."""
    return {"id": uuid.uuid4().hex, "epsilon": NANO, **fields}


def groupings() -> Iterator[bytes]:
    """Choices among the members of each of a thousand families: minutes of work."""
    for first in itertools.count(0, N_FAMILIES):
        seeds = [{"kind": "any_grouping", "column": "education", "seed": first + seed} for seed in range(N_FAMILIES)]
        score = {"kind": "gini", "target": "income"}
        yield json.dumps(asked(verb="exp_mech", score=score, candidates=[seeds], each=True)).encode()


def one_grouping() -> Iterator[bytes]:
    """One of them."""
    return itertools.islice(groupings(), 1)


def candidates() -> Iterator[bytes]:
    """Hundred thousand plain candidates."""
    cuts = [{"kind": "cuts", "column": "capital_gain", "points": [point + 1]} for point in range(99_999)]
    while True:
        yield json.dumps(asked(verb="exp_mech", score={"kind": "gini", "target": "income"}, candidates=[cuts])).encode()


def parts(spec: object = WIDE, size: int = N_WIDE) -> Iterator[bytes]:
    """Counts of very many parts in a few bytes."""
    while True:
        among = {"specs": [spec], "asked": [[0, 0]], "shape": [size]}
        yield json.dumps(asked(verb="noisy_count", parts=among)).encode()


def nodes() -> Iterator[bytes]:
    """Counts of very many parts, one by one, other ones each time."""
    for cut in itertools.count(1):
        spec = {
            "kind": "cross",
            "specs": [*SPLIT["specs"], {"kind": "cuts", "column": "capital_gain", "points": [cut]}],
        }
        among = {"specs": [spec], "nodes": [[0, 0, number] for number in range(N_NODES)]}
        among |= {"asked": [[number + 1, -1] for number in range(N_NODES)], "shape": [N_NODES]}
        yield json.dumps(asked(verb="noisy_count", parts=among)).encode()


def main() -> None:
    """Runs everything and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.floods", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each flood lasts")
    seconds = parser.parse_args().seconds
    with (
        tempfile.TemporaryDirectory() as name,
        flooded(Path(name)) as flood,
        watched(lambda: flood.processes) as memory,
    ):
        write_lines(flood)
        _waits(flood, 1.0)  # the first answers of a server take longer
        under(flood, seconds, "nothing", "13 to 34 ms")
        under(flood, seconds, f"16 choices in each of {N_FAMILIES:,} families", "3 answers in 20 s", "query", groupings)
        under(flood, seconds, "16 previews of 100,000 candidates", "502 ms", "preview", candidates)
        under(
            flood, seconds, f"16 counts of {N_WIDE:,} parts, in 350 bytes each", "ledger 3.2 GB an hour", "query", parts
        )
        under(flood, seconds, f"16 counts of {N_NODES:,} nodes, in 540 kB each", "3.4 GB of memory", "query", nodes)
        last, whole = (f"history?start={start}" for start in (LINES - 1, 0))
        under(
            flood,
            seconds,
            f"16 readers of the last of {LINES:,} lines",
            "1,457 ms",
            last,
            nothing,
        )
        under(flood, seconds, "16 readers of pages of 1,000 lines", "", whole, nothing)
        with crowd(flood, 1000):
            under(flood, seconds, "1,000 connections of four addresses", "503 for everybody")
        stored(flood)
        ended(flood)
        most = sum(memory.each)
        TABLE.add("peak memory of server and workers at once", "3,422 MB", f"{most} MB", added(memory.each))
        peaks = [own_peak(pid) for pid in flood.processes]
        TABLE.add("own peaks of each, whenever they were", "", f"{sum(peaks)} MB", added(peaks))
        began = time.monotonic()
        flood.process.send_signal(signal.SIGTERM)
        flood.process.wait(60)
        TABLE.add("SIGTERM", "still there after 60 s", f"{time.monotonic() - began:.1f} s", "")
    page = single("server.md", whole=seconds >= SECONDS)
    replace_section(page, "floods", TABLE.text(), heading="Speed of the server")


@contextmanager
def flooded(folder: Path) -> Iterator[Flood]:
    """Runs a server of two datasets over the same rows, with grants for four attackers and a victim."""
    certify(folder)
    policy, _ = publish(folder)
    (folder / "other").mkdir()
    other, _ = publish(folder / "other")
    other.write_text(other.read_text(encoding="utf-8").replace("dataset: adult", "dataset: other"), encoding="utf-8")
    for pattern in ("*.ledger*", "*.claim"):
        for file in (folder / "other").glob(pattern):
            file.unlink()
    victims = {"adult": grant(policy, "victim", 100).token, "other": grant(other, "victim", 100).token}
    tokens = [grant(policy, f"attacker{number}", 1).token for number in range(ATTACKERS)]
    with server(folder, policy, other) as (process, root):
        yield Flood(folder, root, policy, process, tokens, victims)


def under(
    flood: Flood,
    seconds: float,
    what: str,
    earlier: str,
    path: str = "",
    bodies: Callable[[], Iterator[bytes]] = groupings,
) -> None:
    """Measures the victims while the attackers ask; ``path`` is empty for no attack."""
    flood.settle()
    idle = _waits(flood, seconds / 2)  # a moment before: what else the machine does changes by the minute
    with ExitStack() as stack:
        if path:
            stack.enter_context(running(flood.attackers(path, bodies, seconds + 4)))
            time.sleep(1.0)
        took = _waits(flood, seconds)
    TABLE.add(what, earlier, *map(shown, took, idle))


def _waits(flood: Flood, seconds: float) -> list[list[float]]:
    """The milliseconds that each victim waits for its counts, all at the same time."""
    with ExitStack() as stack:
        victims = [stack.enter_context(running(flood.victim(name, seconds))) for name in flood.victims]
        return [outcome().milliseconds for outcome in victims]


def shown(took: list[float], idle: list[float]) -> str:
    """A median, that of a moment before without attackers, and the slowest one, in words."""
    if not took or not idle:
        return "no answer"
    return f"{statistics.median(took):.0f} ms, idle {statistics.median(idle):.0f}, slowest {max(took):,.0f}"


def write_lines(flood: Flood) -> None:
    """Makes a long history for the first attacker, in one transaction."""
    ledger = open_ledger(load_policy(flood.policy))
    whole = Demand.of(PartSet([Block(Part())]))
    with ledger.log._held(), ledger.log.transaction() as writing:
        for number in range(LINES):
            asked = LoggedQuery("noisy_count", about="noisy_count on the whole table", identity=f"{number:032x}")
            writing.append(Charged(Epsilon(1), whole, asked), "attacker0", f"line{number}")
    ledger.close()


@contextmanager
def crowd(flood: Flood, count: int) -> Iterator[None]:
    """Holds connections of four addresses, each of which asked something."""
    port, held = int(flood.root.rpartition(":")[2]), []
    context = trust(flood.folder)
    for number in range(count):
        plain = socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{2 + number % 4}", 0))
        secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
        secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        secure.recv(4096)
        held.append(secure)
    try:
        yield
    finally:
        for secure in held:
            secure.close()


def stored(flood: Flood) -> None:
    """Asks for large answers under a quota of bytes, until it is used up."""
    policy = load_policy(flood.policy)
    ledger = open_ledger(policy)
    quota = Terms(stored_bytes=ledger.grants()["attacker1"].stored + QUOTA)
    ledger.close()
    set_terms(policy, "attacker1", quota)
    before = size_of(flood)
    trust = ssl.create_default_context(cafile=flood.folder / "authority.pem")
    headers = {"Authorization": f"Bearer {flood.tokens[1]}"}
    with httpx.Client(base_url=flood.root, headers=headers, verify=trust, timeout=60, trust_env=False) as client:
        for body in parts(SPLIT, N_SPLIT):
            if client.post("/v1/adult/query", content=body).status_code == 403:
                break
    grown = f"{(size_of(flood) - before) / 1e6:.1f} MB"
    TABLE.add(f"ledger's growth under a quota of {QUOTA / 1e6:.0f} MB", "without end", grown, "")


def ticks(pid: int) -> int:
    """The processor time of a process so far, in the system's ticks; 0 if it ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def added(megabytes: Sequence[int]) -> str:
    """The processes' memory, added up in words."""
    return " + ".join(map(str, megabytes))


def size_of(flood: Flood) -> int:
    """Bytes of the attacked ledger."""
    return sum(file.stat().st_size for file in flood.folder.glob("*.ledger*"))


def ended(flood: Flood) -> None:
    """Measures how long work of minutes goes on after its grants were revoked."""
    once = flood.attackers("query", one_grouping, 3.0, connections=ATTACKERS, patience=120.0)
    with running(once) as outcome:
        time.sleep(2)
        for number in range(ATTACKERS):
            revoke(flood.policy, f"attacker{number}")
        began = time.monotonic()
        outcome()
    TABLE.add("work of minutes ends after revoking", "not within 30 s", f"{time.monotonic() - began:.1f} s", "")


if __name__ == "__main__":
    main()
