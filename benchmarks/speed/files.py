# SPDX-License-Identifier: Apache-2.0
"""The time to open a table of many small files, beside one file: python -m benchmarks.speed.files.

The same 1,000,000 rows of 11 columns lie in 1, 100 and 1,000 files, of Parquet and of text. A small source is
held in memory and its files are read together; the codes of a large one are kept file by file, so its
files are read one by one, and once more when one has joined them. Writes ``benchmarks/results/files.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown
from benchmarks.speed.growth import made_up
from benchmarks.speed.peers import measured
from pinq.engine import open_engine, sources
from pinq.policy.policy import Policy

ROWS = 1_000_000
NUMBERS = (1, 100, 1_000)


def write(table: pa.Table, number: int, folder: Path, kind: str) -> None:
    """Writes a table into so many files."""
    folder.mkdir()
    step = -(-table.num_rows // number)
    for start in range(0, table.num_rows, step):
        path, rows = folder / f"{start:09}.{kind}", table.slice(start, step)
        if kind == "parquet":
            pq.write_table(rows, path)
        else:
            pyarrow.csv.write_csv(rows, path)


def opened(policy: Policy) -> str:
    """Returns what one opening takes, as text."""

    def call() -> None:
        open_engine(policy, salt=b"files")[0].close()

    ((wall, cpu),) = measured(call, 1)
    return f"{cpu:.2f} CPU s ({wall:.2f} s)"


def lines_of(rows: int) -> Iterator[tuple[str, ...]]:
    """Yields a line for each kind and number of files."""
    policy, table = made_up(rows, 10, 64)
    in_memory = sources.IN_MEMORY_BYTES
    for kind in ("parquet", "csv"):
        for number in NUMBERS:
            with tempfile.TemporaryDirectory(prefix="pinq-files-") as name:
                os.environ["XDG_STATE_HOME"] = f"{name}/state"
                folder = Path(name) / "rows"
                write(table, number, folder, kind)
                source = policy.model_copy(update={"source": "rows", "folder": Path(name)})
                figures = [opened(source)]
                sources.IN_MEMORY_BYTES = 0  # as if it were large
                figures += [opened(source), opened(source)]
                (folder / f"joined.{kind}").write_bytes((folder / f"000000000.{kind}").read_bytes())
                figures.append(opened(source))
                sources.IN_MEMORY_BYTES = in_memory
            yield f"{number:,} of {kind}", *figures


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    asked = parser.parse_args()
    lines = []
    for line in lines_of(asked.rows):
        lines.append(line)
        print("  ".join(line), flush=True)
    heads = ("files", "in memory", "kept, the first time", "kept, again", "kept, one file has joined")
    about = f"{asked.rows:,} rows of 11 columns; {os.cpu_count()} cores, Python {platform.python_version()}."
    page = single("files.md", whole=asked.rows >= ROWS)
    page.write_text(f"# Opening many small files\n\n{about}\n\n{markdown(heads, lines)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
