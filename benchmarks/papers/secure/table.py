# SPDX-License-Identifier: Apache-2.0
"""Table 6.1 again: time of each protocol with three parties on one machine, beside MPyC's demo on the same rows in the same run.

The demo is not part of the project, nor of MPyC's wheel: ``MPYC_DEMOS`` names the folder ``demos`` of https://github.com/lschoe/mpyc.
Runs are kept one by one and go on where they stopped; the table shows least times, which other work on the machine disturbs least.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness.datasets import load
from miners.secure.bounds import gini_bits
from miners.secure.local import free_ports, run_processes
from miners.secure.mpyc_runtime import field_bits
from miners.secure.session import Member, Session
from miners.secure.task import hold

PARTIES = 3
DEMO_NUMBERS = {"balance_scale": (1, "balance-scale"), "car": (2, "car"), "spect": (3, "SPECT")}
PAPER = {  # seconds with VIFF: SID3, SID3T, SID3P, and the bits of its measure
    "spect": (27, 43, 24, 41),
    "balance_scale": (9, 17, 7, 76),
    "car": (18, 29, 10, 95),
}
FORMS = ("demo", "demo, parallel subtrees", "sid3p", "sid3", "sid3t", "sid3s")


def session_of(name: str, protocol: str) -> tuple[Session, list[Any]]:
    """A session over a data set whose rows are dealt to three parties, and what each holds."""
    schema, target, rows = load(name)
    dealt = [rows.iloc[number::PARTIES] for number in range(PARTIES)]
    members = [
        Member(name=f"party{number}", host="127.0.0.1", port=port, rows=len(frame))
        for number, (port, frame) in enumerate(zip(free_ports(PARTIES), dealt, strict=True))
    ]
    session = Session.drafted(
        {
            "session": "table",
            "protocol": protocol,
            "target": target,
            "parties": members,
            "columns": dict(schema.columns),
        }
    )
    return session, [hold(session.task, frame) for frame in dealt]


def ours(name: str, protocol: str) -> dict[str, float]:
    """One run of a protocol; what the slowest party took."""
    session, holdings = session_of(name, protocol)
    ended = run_processes(session, holdings, timeout=1800)
    sharing = max(outcome.sharing_seconds for outcome, _ in ended)
    return {
        "seconds": max(traffic.seconds for _, traffic in ended) - sharing,
        "sharing": sharing,
        "processor": sum(traffic.processor_seconds for _, traffic in ended),
        "bytes": sum(traffic.bytes_sent for _, traffic in ended),
    }


def demo(name: str, parallel: bool) -> dict[str, float] | None:
    """One run of MPyC's vectorised demo on the same rows; None where it is not there."""
    file = Path(os.environ.get("MPYC_DEMOS", "demos")) / "np_id3gini.py"
    if not file.exists() or name not in DEMO_NUMBERS:
        return None
    number, called = DEMO_NUMBERS[name]
    with tempfile.TemporaryDirectory() as folder:
        _, target, rows = load(name)
        home = Path(folder) / "data" / "id3"
        home.mkdir(parents=True)
        pd.concat([rows.drop(columns=target), rows[target]], axis=1).to_csv(home / f"{called}.csv", index=False)
        (port,) = free_ports(1)
        command = [
            sys.executable,
            str(Path(__file__).with_name("demo_party.py")),
            str(file.resolve()),
            f"-M{PARTIES}",
            f"-B{port}",
            f"-i{number}",
            "--no-pretty-tree",
            "--no-log",
        ]
        command += ["--parallel-subtrees"] if parallel else []
        running = [
            subprocess.Popen(
                [*command, f"-I{party}"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            for party in range(PARTIES)
        ]
        said = [json.loads(process.communicate(timeout=1800)[1].strip().rpartition("\n")[2]) for process in running]
    return {
        "seconds": max(one["seconds"] for one in said),
        "processor": sum(one["processor"] for one in said),
        "bytes": sum(one["bytes"] for one in said),
    }


def measure(names: Sequence[str], runs: int, kept: Path) -> list[dict[str, Any]]:
    """Runs every form in turn, again and again, so that all meet the same machine; goes on where it stopped."""
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for number in range(runs):
        for name in names:
            for form in FORMS:
                if any((one["data"], one["form"], one["run"]) == (name, form, number) for one in found):
                    continue
                if form == "sid3s" and name == "spect":
                    continue  # 2^22 paths
                cell = demo(name, "parallel" in form) if form.startswith("demo") else ours(name, form)
                if cell is None:
                    continue
                found.append(
                    {"data": name, "form": form, "run": number} | {key: round(value, 4) for key, value in cell.items()}
                )
                with kept.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
                print(found[-1], flush=True)
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """The least time of each form, in Markdown, with the ratios that were promised."""
    heads = [
        "data",
        "bits",
        "form",
        "runs",
        "seconds",
        "of the demo's best",
        "processor s",
        "of the demo's best",
        "input sharing s",
        "MB sent",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in dict.fromkeys(one["data"] for one in found):
        best = {
            key: min(
                (one[key] for one in found if one["data"] == name and one["form"].startswith("demo")), default=None
            )
            for key in ("seconds", "processor")
        }
        for form in FORMS:
            cells = [one for one in found if (one["data"], one["form"]) == (name, form)]
            if not cells:
                continue
            least = {key: min(one[key] for one in cells) for key in ("seconds", "processor", "bytes")}
            ratio = {key: "" if best[key] is None else f"{least[key] / best[key]:.2f}" for key in best}
            sharing = f"{min(one['sharing'] for one in cells):.2f}" if form in ("sid3", "sid3t", "sid3s") else ""
            bits = _bits(name) if form in ("sid3", "sid3p", "sid3t") else ""
            times = [
                f"{least['seconds']:.2f}",
                ratio["seconds"],
                f"{least['processor']:.2f}",
                ratio["processor"],
                sharing,
            ]
            shown = [name, bits, form, len(cells), *times, f"{least['bytes'] / 1e6:.2f}"]
            lines.append(f"| {' | '.join(map(str, shown))} |")
        if name in PAPER:
            sid3, sid3t, sid3p, bits_ = PAPER[name]
            lines.append(
                f"| {name} | {bits_} | the paper (VIFF): sid3p {sid3p} s, sid3 {sid3} s, sid3t {sid3t} s | | | | | | | |"
            )
    return "\n".join(lines)


def growth(kept: Path) -> str:
    """Bytes and seconds of SID3P and SID3 with 1, 10 and 100 times the rows of Car, each row as often; in Markdown."""
    found = json.loads(kept.read_text()) if kept.exists() else {}
    lines = ["| protocol | rows | bytes sent by all | seconds |", "|---|---|---|---|"]
    schema, target, rows = load("car")
    for protocol, factors in (("sid3p", (1, 10, 100)), ("sid3", (1, 10))):
        for times in factors:
            key = f"{protocol} {times}"
            if key not in found:
                grown = pd.concat([rows] * times, ignore_index=True)
                dealt = [grown.iloc[number::PARTIES] for number in range(PARTIES)]
                most = len(rows) * (100 if protocol == "sid3p" else times)
                members = [
                    Member(name=f"party{i}", host="127.0.0.1", port=port, rows=most)
                    for i, port in enumerate(free_ports(PARTIES))
                ]
                session = Session.drafted(
                    {
                        "session": "growth",
                        "protocol": protocol,
                        "target": target,
                        "parties": members,
                        "columns": dict(schema.columns),
                    }
                )
                ended = run_processes(session, [hold(session.task, frame) for frame in dealt], timeout=3600)
                found[key] = [
                    len(grown),
                    sum(traffic.bytes_sent for _, traffic in ended),
                    max(traffic.seconds for _, traffic in ended),
                ]
                kept.write_text(json.dumps(found))
            size, sent, seconds = found[key]
            lines.append(f"| {protocol} | {size:,} | {sent:,} | {seconds:.2f} |")
    return "\n".join(lines)


def _bits(name: str) -> str:
    schema, target, rows = load(name)
    sizes = [column.codes for column in (schema.columns[one] for one in schema.columns if one != target)]
    bits = gini_bits(sizes, len(rows), 8)
    return f"{bits} ({field_bits(bits, PARTIES)})"
