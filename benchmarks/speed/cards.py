# SPDX-License-Identifier: Apache-2.0
"""The time of a scorecard's fit: Adult's training rows, and made-up rows on Adult's schema.

    python -m benchmarks.speed.cards --rows 10000000

Every request is durably charged. It writes a section of benchmarks/results/scorecards/README.md;
fewer rows are quick and write below build.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.accuracy.trees import table
from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown, replace_section
from benchmarks.speed.layer import handle_over
from miners import Scorecard
from miners.fitted.route import encode
from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock, kinds_of
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.public.schema import Schema

ROWS = 10_000_000
ROUNDS = 5
HEADS = ("table", "epsilon", "steps", "wall", "CPU")


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.cards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the large made-up table")
    asked = parser.parse_args()
    schema, target, adult = table("adult")
    adult = adult[(adult["fold"] == "train").to_numpy()]
    known = {name: encode(schema, name, adult) for name in schema.columns}
    drawn = np.random.default_rng(0).integers(0, len(adult), asked.rows)
    lines = [_line("Adult", schema, target, known, drawn=None), _line("made up", schema, target, known, drawn)]
    about = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}; the quickest of {ROUNDS} "
        "fits by wall time, all defaults, each request durably charged. Made-up rows are Adult's, drawn with "
        "replacement; `max_rows` is what there is. On cores that others use wall time says little."
    )
    page = single("scorecards/README.md", whole=asked.rows >= ROWS)
    replace_section(page, "speed", f"## Speed\n\n{about}\n\n{markdown(HEADS, lines)}", heading="Scorecards")


def _line(name: str, schema: Schema, target: str, known: dict[str, np.ndarray], drawn: np.ndarray | None) -> list[str]:
    """Returns the line of one table, of which ``drawn`` numbers the rows; None for all as they are."""
    rows = len(known[target]) if drawn is None else len(drawn)
    policy = Policy(dataset="speed", cap=10**6, max_rows=rows, columns=schema.columns)
    kinds = kinds_of(policy.schema_)
    codes = {column: (own if drawn is None else own[drawn]).astype(kinds[column]) for column, own in known.items()}
    blocks = [
        RowBlock({column: own[start : start + BLOCK_ROWS] for column, own in codes.items()}, len(range(*span)))
        for start in range(0, rows, BLOCK_ROWS)
        for span in [(start, min(start + BLOCK_ROWS, rows))]
    ]
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            engine = ArrayEngine(Codes(blocks, policy.schema_), policy.schema_, b"salt")
            handle = handle_over(policy, engine, Ledger(Path(folder) / f"{number}.ledger", "speed"))
            wall, cpu = time.perf_counter(), time.process_time()
            card = Scorecard(epsilon=1).fit(handle, target)
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = min(times)
    lines = Scorecard(epsilon=1).plan(policy.schema_, target).lines
    steps = max(line.level for line in lines)
    size = f"{name}, {rows:,} rows x {len(card.schema_.columns) - 1} attributes"
    line = [size, "1", str(steps), f"{wall:.2f} s", f"{cpu:.2f} s"]
    print("  ".join(line), flush=True)
    return line


if __name__ == "__main__":
    main()
