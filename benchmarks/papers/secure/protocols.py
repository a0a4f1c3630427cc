# SPDX-License-Identifier: Apache-2.0
"""One run of a protocol with three parties on one machine, ours or MPyC's demo on the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.harness.datasets import load
from benchmarks.papers.secure.processes import free_ports, run_processes
from miners.tuning.suggestion import dummy_rows, random_rule
from pinq.public.schema import Categorical, Schema
from pinq_secure.id3.task import Holding, hold
from pinq_secure.session.session import Member, Session

__all__ = ["FORMS", "KRKPA7", "PARTIES", "forms", "run", "run_grown", "table"]

PARTIES = 3
KRKPA7 = "made-up krkpa7"
DEMO_NUMBERS = {"balance_scale": (1, "balance-scale"), "car": (2, "car"), "spect": (3, "SPECT")}
FORMS = ("demo", "demo, parallel subtrees", "sid3p", "sid3", "sid3t", "sid3s")
TIMEOUT = 3600


def table(name: str) -> tuple[Schema, str, pd.DataFrame]:
    """Returns schema, target and rows of a data set; KRKPA7's stand-in is made up, of its shape.

    Chess endgames, king and rook against king and pawn on a7: 3,196 rows, 35 binary attributes and one of three values.
    """
    if name != KRKPA7:
        return load(name)
    binary = Categorical(values=("f", "t"))
    columns = {**{f"a{number}": binary for number in range(35)}, "a35": Categorical(values=("b", "n", "w"))}
    schema = Schema(columns={**columns, "class": binary}, max_rows=3196)
    rule = random_rule(schema, "class", depth=5, seed=7)
    return schema, "class", dummy_rows(rule, 3196, noise=0.02, seed=7).to_pandas()


def forms(name: str) -> tuple[str, ...]:
    """Returns what can be timed on a data set: the demo's forms where it is there, and our protocols.

    ``sid3s`` on spect would open 2^22 paths, and more on KRKPA7, so it is left out.
    """
    with_demo = _demo_file().exists() and name in DEMO_NUMBERS
    return tuple(
        form
        for form in FORMS
        if (with_demo or not form.startswith("demo")) and (form != "sid3s" or name not in ("spect", KRKPA7))
    )


def run(name: str, form: str) -> dict[str, float]:
    """Runs a protocol once and returns its seconds (of the slowest party), and all parties' bytes."""
    return _demo(name, "parallel" in form) if form.startswith("demo") else _ours(name, form)


def _ours(name: str, protocol: str) -> dict[str, float]:
    schema, target, rows = table(name)
    session, holdings = _session(schema, target, rows, protocol)
    ended = run_processes(session, holdings, timeout=TIMEOUT)
    sharing = max(outcome.sharing_seconds for outcome, _ in ended)
    return {
        "seconds": max(traffic.seconds for _, traffic in ended) - sharing,
        "sharing": sharing,
        "processor": sum(traffic.processor_seconds for _, traffic in ended),
        "bytes": sum(traffic.bytes_sent for _, traffic in ended),
    }


def run_grown(name: str, protocol: str, times: int, bound: int) -> dict[str, float]:
    """Runs a protocol once on a data set with each row so many times.

    Args:
        name: The data set.
        protocol: ``sid3`` or ``sid3p``.
        times: The number of copies of each row.
        bound: The largest number of copies, for which the session is drafted.
    """
    schema, target, rows = load(name)
    grown = pd.concat([rows] * times, ignore_index=True)
    session, holdings = _session(schema, target, grown, protocol, max_rows=len(rows) * bound)
    ended = run_processes(session, holdings, timeout=TIMEOUT)
    return {
        "rows": len(grown),
        "bytes": sum(traffic.bytes_sent for _, traffic in ended),
        "seconds": max(traffic.seconds for _, traffic in ended),
    }


def _session(
    schema: Schema, target: str, rows: pd.DataFrame, protocol: str, max_rows: int | None = None
) -> tuple[Session, list[Holding]]:
    """Drafts a session over rows that are dealt to the parties; returns it and what each holds."""
    tables = [rows.iloc[number::PARTIES] for number in range(PARTIES)]
    members = [
        Member(name=f"party{number}", host="127.0.0.1", port=port, rows=max_rows or len(table))
        for number, (port, table) in enumerate(zip(free_ports(PARTIES), tables, strict=True))
    ]
    columns = dict(schema.columns)
    draft = {"session": "table", "protocol": protocol, "target": target, "parties": members, "columns": columns}
    session = Session.drafted(draft)
    return session, [hold(session.task, table) for table in tables]


def _demo_file() -> Path:
    return Path(os.environ.get("MPYC_DEMOS", "demos")) / "np_id3gini.py"


def _demo(name: str, parallel: bool) -> dict[str, float]:
    """Runs MPyC's vectorised demo once on the same rows."""
    number, file_name = DEMO_NUMBERS[name]
    _, target, rows = load(name)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data" / "id3"
        data.mkdir(parents=True)
        table = pd.concat([rows.drop(columns=target), rows[target]], axis=1)
        table.to_csv(data / f"{file_name}.csv", index=False)
        parties = _demo_parties(folder, number, ["--parallel-subtrees"] if parallel else [])
    return {
        "seconds": max(party["seconds"] for party in parties),
        "processor": sum(party["processor"] for party in parties),
        "bytes": sum(party["bytes"] for party in parties),
    }


def _demo_parties(folder: str, number: int, options: Sequence[str]) -> list[dict[str, float]]:
    """Runs the demo's parties side by side; returns what each prints about itself."""
    (port,) = free_ports(1)
    script = str(Path(__file__).with_name("demo_party.py"))
    command = [sys.executable, script, str(_demo_file().resolve()), f"-M{PARTIES}", f"-B{port}", f"-i{number}"]
    command += ["--no-pretty-tree", "--no-log", *options]
    running = [
        subprocess.Popen(
            [*command, f"-I{party}"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for party in range(PARTIES)
    ]
    outputs = [process.communicate(timeout=TIMEOUT)[1] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"The demo failed; its version must be that of the mpyc installed:\n{outputs[0]}")
    return [json.loads(output.strip().rpartition("\n")[2]) for output in outputs]
