# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: a CSV for each kind of experiment, and the sections of the README."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.measure import Experiment
from benchmarks.harness.tables import markdown, replace_section
from benchmarks.papers.secure.experiments import EPSILONS, Accuracy, Growth, ProtocolTimes
from benchmarks.papers.secure.protocols import FORMS, KRKPA7, PARTIES, table as table_of
from pinq_secure.mpc.arithmetic import field_bits, gini_bits

__all__ = ["write"]

PAPER = {  # seconds with VIFF: SID3, SID3T, SID3P, and the bits of its measure
    "spect": (27, 43, 24, 41),
    "balance_scale": (9, 17, 7, 76),
    "car": (18, 29, 10, 95),
    KRKPA7: (46, 104, 26, 69),
}
ALPHA = 8
TIMES = ["data", "form", "n", "seconds", "sharing", "processor", "bytes"]
HEADS = (
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
)


def write(experiments: Sequence[Experiment], cells: pd.DataFrame, folder: Path) -> list[str]:
    """Writes everything that there are cells for; returns the names of the files."""
    tables = {
        "times": _times([experiment for experiment in experiments if isinstance(experiment, ProtocolTimes)], cells),
        "growth": _growth([experiment for experiment in experiments if isinstance(experiment, Growth)], cells),
        "accuracy": _accuracy([experiment for experiment in experiments if isinstance(experiment, Accuracy)], cells),
    }
    sections = {"times": _times_section, "growth": _growth_section, "accuracy": _accuracy_section}
    files = []
    for name, table in tables.items():
        if table.empty:
            continue
        if name == "times" and (folder / "times.csv").exists():
            before = pd.read_csv(folder / "times.csv")
            measured = pd.MultiIndex.from_frame(before[["data", "form"]]).isin(
                table[["data", "form"]].to_numpy().tolist()
            )
            table = pd.concat([before[~measured], table])
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
        replace_section(folder / "README.md", name, sections[name](table), heading="Secure ID3, measured")
        files.append(f"{name}.csv")
    return [*files, "README.md"]


def _wide(key: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Returns an experiment's runs, a row each, a column for each measure."""
    own = cells[cells["figure"] == key]
    return own.pivot(index=["algorithm", "x", "run"], columns="measure", values="value").reset_index()


def _times(experiments: Sequence[ProtocolTimes], cells: pd.DataFrame) -> pd.DataFrame:
    """Returns the least of all runs of each protocol, which other work on the machine disturbs least."""
    rows = []
    for experiment in experiments:
        by_form = dict(list(_wide(experiment.key, cells).groupby("algorithm")))
        for form in FORMS:
            if form in by_form:
                quickest = by_form[form].reindex(columns=TIMES[3:]).min().round(4)
                rows.append({"data": experiment.name, "form": form, "n": len(by_form[form]), **quickest})
    return pd.DataFrame(rows, columns=TIMES).astype({"bytes": int})


def _growth(experiments: Sequence[Growth], cells: pd.DataFrame) -> pd.DataFrame:
    """Returns what each protocol sent and took as rows grew."""
    tables = [_wide(experiment.key, cells) for experiment in experiments]
    table = pd.concat(tables).reindex(columns=["algorithm", "x", "run", "rows", "bytes", "seconds"])
    table = table.groupby(["algorithm", "rows"], sort=False).agg(
        n=("run", "count"), bytes=("bytes", "min"), seconds=("seconds", "min")
    )
    return (
        table.reset_index()
        .rename(columns={"algorithm": "protocol"})
        .astype({"rows": int, "bytes": int})
        .round({"seconds": 4})
    )


def _accuracy(experiments: Sequence[Accuracy], cells: pd.DataFrame) -> pd.DataFrame:
    """Returns the mean and standard deviation of each method's accuracy, over the folds."""
    rows = []
    for experiment in experiments:
        own = cells[cells["figure"] == experiment.key]
        for method in experiment.learners:
            for x, runs in own[own["algorithm"] == method].groupby("x"):
                mean, sd = float(np.mean(runs["value"])), float(np.std(runs["value"]))
                rows.append((experiment.data, method, x, len(runs), round(mean, 5), round(sd, 5)))
    return pd.DataFrame(rows, columns=["data", "method", "epsilon", "n", "accuracy", "sd"])


def _times_section(table: pd.DataFrame) -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines: list[list[object]] = []
    for name, rows in table.groupby("data", sort=False):
        demo = rows[rows["form"].str.startswith("demo")]
        lines += [_times_line(row, demo) for _, row in rows.iterrows()]
        if str(name) in PAPER:
            sid3, sid3t, sid3p, bits = PAPER[str(name)]
            seconds = f"the paper (VIFF): sid3p {sid3p} s, sid3 {sid3} s, sid3t {sid3t} s"
            lines.append([name, bits, seconds, *[""] * (len(HEADS) - 3)])
    return f"{machine}; {PARTIES} parties as processes on the loopback interface, without TLS.\n\n" + markdown(
        HEADS, lines
    )


def _times_line(row: pd.Series[Any], demo: pd.DataFrame) -> list[object]:
    """Returns a protocol's line, with its ratios to the demo's best."""
    ratios = {name: f"{row[name] / demo[name].min():.2f}" if len(demo) else "" for name in ("seconds", "processor")}
    return [
        row["data"],
        _bits(row["data"]) if row["form"] in ("sid3", "sid3p", "sid3t") else "",
        row["form"],
        row["n"],
        f"{row['seconds']:.2f}",
        ratios["seconds"],
        f"{row['processor']:.2f}",
        ratios["processor"],
        f"{row['sharing']:.2f}" if row["form"] in ("sid3", "sid3t", "sid3s") else "",
        f"{row['bytes'] / 1e6:.2f}",
    ]


def _bits(name: str) -> str:
    """Returns the bits of the compared numbers by our proof, and of the field."""
    schema, target, rows = table_of(name)
    sizes = [column.codes for column_name, column in schema.columns.items() if column_name != target]
    bits = gini_bits(sizes, len(rows), ALPHA)
    return f"{bits} ({field_bits(bits, PARTIES)})"


def _growth_section(table: pd.DataFrame) -> str:
    lines = [
        [row.protocol, f"{row.rows:,.0f}", f"{row.bytes:,.0f}", f"{row.seconds:.2f}"] for row in table.itertuples()
    ]
    return markdown(["protocol", "rows", "bytes sent by all", "seconds"], lines)


def _accuracy_section(table: pd.DataFrame) -> str:
    """Returns mean accuracies in percent with standard errors; methods without epsilon are equal at all."""
    lines = []
    for (name, method), rows in table.groupby(["data", "method"], sort=False):
        by_epsilon = rows.set_index("epsilon").to_dict("index")
        texts = []
        for epsilon in EPSILONS:
            row = by_epsilon.get(epsilon, by_epsilon.get(0.0))
            texts.append(
                f"{100 * row['accuracy']:.1f} ± {100 * row['sd'] / max(1, row['n'] - 1) ** 0.5:.1f}" if row else ""
            )
        lines.append([name, method, rows["n"].max(), *texts])
    return markdown(["data", "method", "runs", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)], lines)
