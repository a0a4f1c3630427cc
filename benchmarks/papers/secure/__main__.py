# SPDX-License-Identifier: Apache-2.0
"""``make reproduce-secure``: measures what is missing and writes benchmarks/results/secure/README.md."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

from benchmarks.papers.secure import accuracy, table

RESULTS = Path(__file__).resolve().parents[2] / "results" / "secure"
ABOUT = Path(__file__).with_name("report.md")


def main() -> None:
    """All of it, or the part that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each protocol")
    parser.add_argument("--folds", type=int, default=20, help="of each accuracy")
    parser.add_argument(
        "--data",
        nargs="*",
        default=["spect", "balance_scale", "car"],
        help="data sets of the table of times; any of PINQ_DATA's that is categorical or has cuts",
    )
    parser.add_argument(
        "--only", choices=["times", "growth", "accuracy"], help="measure only this; the report has all that is known"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    wanted = parser.parse_args()
    wanted.results.mkdir(parents=True, exist_ok=True)
    if not (Path(os.environ.get("MPYC_DEMOS", "demos")) / "np_id3gini.py").exists():
        print(
            "MPyC's demo is not measured beside: clone https://github.com/lschoe/mpyc and say where with MPYC_DEMOS=/path/to/mpyc/demos.",
            flush=True,
        )
    runs, scores = wanted.results / "times.jsonl", wanted.results / "accuracy.jsonl"
    if wanted.only in (None, "growth"):
        table.growth(wanted.results / "growth.json")
    times = table.measure(wanted.data, 0 if wanted.only not in (None, "times") else wanted.runs, runs)
    found = accuracy.measure(0 if wanted.only not in (None, "accuracy") else wanted.folds, scores)
    text = ABOUT.read_text(encoding="utf-8").format(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        times=table.table(times),
        growth=table.growth(wanted.results / "growth.json"),
        accuracy=accuracy.table(found),
    )
    (wanted.results / "README.md").write_text(text, encoding="utf-8")
    print(f"wrote {wanted.results / 'README.md'}")


if __name__ == "__main__":
    main()
