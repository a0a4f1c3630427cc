# SPDX-License-Identifier: Apache-2.0
"""The time and bytes of each program of a secure session: python -m benchmarks.speed.sessions.

Three processes of ``pinq secure join`` on this machine, over TLS, with a third of Adult's rows each, at epsilon 1.
With ``--arrivals 2000`` it asks so many rounds of one noisy number and compares when one party's word arrives at
another with how large the noise is that it drew meanwhile. Writes ``benchmarks/results/sessions/README.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.harness.tables import markdown, replace_section
from benchmarks.papers.secure.processes import free_ports
from pinq.provider.grants import grant
from pinq.provider.policy_file import load_policy
from pinq.public.noise import Bits
from pinq_secure.mpc.arithmetic import Sharing
from pinq_secure.mpc.noise import own_noise
from pinq_secure.mpc.rounds import TICK, Company, Rounds
from pinq_secure.session.network import Network
from pinq_secure.session.session import Member, Session, load_session
from tests.support.house.checkout import ROOT
from tests.support.processes.secure_parties import NAMES, certify, session_of

PAGE = ROOT / "benchmarks/results/sessions/README.md"
PROGRAMS: dict[str, tuple[str, str, dict[str, int]]] = {
    "sid3p, depth 3": ("sid3p", "income", {"depth": 3}),
    "topdown": ("topdown", "income", {}),
    "scorecard of classes": ("scorecard", "income", {}),
    "scorecard of a mean": ("scorecard", "age", {}),
}
EPSILON = Fraction(15, 10_000)  # of a round: the first of a scorecard at epsilon 1
MAX_ROWS = 20_000  # of a party, declared


def dealt(folder: Path) -> None:
    """Gives each party its folder: rows, policy, a grant and a certificate."""
    rows = pd.read_parquet(ROOT / "data/adult.parquet")
    text = (ROOT / "policies/adult.yaml").read_text().replace("../data/adult.parquet", "rows.parquet")
    text = re.sub(r"max_rows: \d+", f"max_rows: {MAX_ROWS}", text)
    for number, name in enumerate(NAMES):
        (folder / name).mkdir()
        rows[number::3].reset_index(drop=True).to_parquet(folder / name / "rows.parquet")
        own = text.replace("dataset: adult", f"dataset: {name}")
        (folder / name / "policy.yaml").write_text(re.sub(r"cap: \S+", "cap: 100", own))
        certify(folder, name)
        grant(folder / name / "policy.yaml", "consortium", 50)


def joined(folder: Path, program: str, run: int) -> dict[str, float]:
    """Runs one program's session to its end; means of the parties."""
    protocol, target, fields = PROGRAMS[program]
    members = [
        Member(
            name=name,
            host="127.0.0.1",
            port=port,
            rows=MAX_ROWS,
            certificate=(folder / f"{name}.crt").read_text(),
        )
        for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)
    ]
    columns = dict(load_policy(folder / NAMES[0] / "policy.yaml").schema_.columns)
    draft: dict[str, object] = {
        "session": f"adult-{run}",
        "protocol": protocol,
        "target": target,
        "parties": members,
        "columns": columns,
    }
    session = Session.drafted(draft | {"noise": "discrete-laplace", "epsilon": "1"} | fields)
    file = folder / "session.yaml"
    file.write_text(session.text)
    assert load_session(file).digest == session.digest
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = [
        subprocess.Popen(command(folder, name, file, session.digest), stderr=subprocess.DEVNULL) for name in NAMES
    ]
    assert [process.wait(600) for process in running] == [0] * len(NAMES)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    results = [json.loads((folder / name / "result.json").read_text()) for name in NAMES]
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "protocol": float(np.mean([result["seconds"] for result in results])),
        "command": wall,
        "processor": processor / len(NAMES),
        "bytes": float(np.mean([result["bytes_sent"] for result in results])),
    }


def command(folder: Path, name: str, session: Path, digest: str) -> list[str]:
    """Returns the command of one party."""
    words = ["secure", "join", str(session), "--party", name, "--policy", str(folder / name / "policy.yaml")]
    words += ["--agree", digest, "--analyst", "consortium", "--listen", "127.0.0.1"]
    words += ["--cert", str(folder / f"{name}.crt"), "--key", str(folder / f"{name}.key")]
    words += ["-o", str(folder / name / "result.json")]
    return [sys.executable, "-c", "from pinq.cli.main import main; main()", *words]


class Watching(asyncio.Queue[Any]):
    """Notes when something arrived first since this was last cleared."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: list[float] = []

    async def put(self, item: object) -> None:
        self.arrivals.append(time.perf_counter())
        await super().put(item)


class Paid(Company):
    """Meets over the network and pays nothing."""

    tick = TICK

    def __init__(self, network: Network) -> None:
        self._network = network

    async def meet(self, number: int, place: str) -> None:
        await self._network.meet(number, place)


async def rounds_of(party: int, ports: Sequence[int], times: int) -> list[float]:
    """Runs some rounds of one number at a party; returns its draws, or for party 0 the times of messages."""
    session = session_of("topdown", [1000] * 3, ports=ports, noise="discrete-laplace", epsilon="3")
    network = Network(session, party, None)
    watching = Watching()
    if party == 0:
        network._arrived[1] = watching
    await network.join(60, "127.0.0.1", lambda text: None)
    await network.ready()
    rounds, sums, noted = Rounds(Paid(network)), Sharing(network, 41), []

    def draw(source: Bits) -> np.ndarray:
        noise = own_noise((1,), EPSILON, 2, source) if party else np.zeros(1, dtype=object)
        if party == 1:
            noted.append(float(abs(noise[0])))
        return noise

    for _ in range(times):
        began = time.perf_counter()
        watching.arrivals.clear()
        await rounds.ask("noisy sum", Fraction(0), 1, draw, lambda noise, _: sums.sums(noise))
        if party == 0:
            noted.append(watching.arrivals[0] - began if watching.arrivals else 0.0)
    await network.finish(lambda text: None)
    await network.close(None)
    return noted


def _noted(party: int, ports: Sequence[int], times: int) -> list[float]:
    return asyncio.run(rounds_of(party, ports, times))


def arrivals(times: int) -> str:
    """Returns how arrival and size of noise go together, a sentence."""
    ports = free_ports(3)
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        heard, drawn, _ = [one.result() for one in [pool.submit(_noted, number, ports, times) for number in range(3)]]
    found = stats.spearmanr(heard, drawn)
    return (
        f"{times:,} rounds of one number at epsilon {float(EPSILON)}: when one party's word arrives at another, and "
        f"how large the noise is that it drew before, have the rank correlation {found.statistic:.3f} (p "
        f"{found.pvalue:.2f}; median size {np.median(drawn):.0f} rows, median time {1000 * np.median(heard):.1f} ms)."
    )


def main() -> None:
    """Measures and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="sessions of each program")
    parser.add_argument("--arrivals", type=int, default=0, help="rounds that compare arrival and noise")
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    where = f"Commit {commit.strip()}, {os.cpu_count()} cores, Python {platform.python_version()}."
    if options.arrivals:
        text = f"{arrivals(options.arrivals)} {where}"
        replace_section(PAGE, "arrivals", text, heading="Sessions")
        print(text)
        return
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        dealt(Path(folder))
        for program in PROGRAMS:
            runs = pd.DataFrame([joined(Path(folder), program, run) for run in range(options.runs)]).median()
            lines.append(
                [
                    program,
                    f"{runs['protocol']:.2f}",
                    f"{runs['command']:.1f}",
                    f"{runs['processor']:.1f}",
                    f"{runs['bytes'] / 1000:.1f}",
                ]
            )
    head = ["program", "s, protocol", "s, whole command", "processor s of a party", "kB that a party sends"]
    about = (
        f"Three processes over TLS on one machine, a third of Adult's rows each, epsilon 1; medians of {options.runs}. "
    )
    replace_section(PAGE, "speed", f"{about}{where}\n\n{markdown(head, lines)}", heading="Sessions")
    print(markdown(head, lines))


if __name__ == "__main__":
    main()
