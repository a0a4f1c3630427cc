# SPDX-License-Identifier: Apache-2.0
"""Fits, levels and small questions of this checkout beside an older one's, in one run.

::

    git worktree add /tmp/old 72e9502
    python -m venv /tmp/old/.venv && /tmp/old/.venv/bin/pip install -e '/tmp/old[all]'
    PEERS_PYTHON=.venv-peers/bin/python python -m benchmarks.speed.then --beside /tmp/old

Each measurement is a process of its own, of the two checkouts in turn, over the same files and through
the doors that users take: a policy file, a grant, ``pinq.open``, a durable ledger. Figures are medians.
Trees that are not private, scikit-learn's and LightGBM's, are fitted to the same codes in the same run,
where ``PEERS_PYTHON`` names an interpreter that has them. ``--only 3 5`` measures some rows of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.accuracy.trees import table
from benchmarks.harness.publish import ROOT, single
from benchmarks.harness.tables import markdown, replace_section
from benchmarks.speed.layer import SIZES, synthetic
from benchmarks.speed.trees import write_synthetic
from benchmarks.speed.verbs import commit
from pinq.public.schema import Schema

WORKER = Path(__file__).with_name("then_worker.py")
PEERS = Path(__file__).with_name("peers.py")
HEADS = ("what", "then", "to reach", "now", "")
MILLION = 10**6
WIDEST = "fnlwgt"  # of 1,500,001 codes


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
                title: The name of the measured work.
        table: The name of the rows' file.
        task: The worker's task without the policy.
        unit: ``CPU s``, ``s`` or ``ms`` of wall time.
        goal: The goal, as text.
        rounds: Processes of each checkout.
        repeats: Openings and calls of each process.
        with_open: Whether opening counts too.
        then: Whether the older checkout can do it.
        peer: The name of the tree without privacy to compare with.
    """

    title: str
    table: str
    task: Mapping[str, object]
    unit: str
    goal: str
    rounds: int = 3
    repeats: int = 1
    with_open: bool = False
    then: bool = True
    peer: str = ""
    columns: Sequence[str] = field(default=())


def fit(miner: str, attributes: Sequence[str], target: str = "income", **arguments: object) -> dict[str, object]:
    """A fit at epsilon 1."""
    arguments = {"epsilon": 1.0, "max_depth": 5, "attributes": list(attributes), **arguments}
    return {"what": "fit", "miner": miner, "target": target, "arguments": arguments, "warm": True}


def rows_of(schema: Schema, many: int) -> list[Row]:
    """The table's lines; ``many`` is 10,000,000."""
    every = [name for name in schema.columns if name != "income"]
    numeric = [name for name in every if schema.columns[name].type == "numeric"]
    rest = [name for name in every if name != WIDEST]
    adult = {"what": "count", "split": "sex", "part": "Female", "warm": True}
    histogram = {"what": "count", "split": "k", "part": None, "warm": True}
    level = {"what": "level", "split": "a4", "target": "t", "warm": True}
    nine = [f"a{number}" for number in range(len(SIZES)) if number != 4]
    trees: dict[str, Any] = {"n_estimators": 100, "random_state": 1}
    return [
        Row(f"DiffPID3 depth 5, {MILLION:,} rows x 14", "million", fit("DiffPID3", every), "CPU s", "1.5"),
        Row(
            f"DiffPID3 depth 5, {many:,} rows x 14",
            "many",
            fit("DiffPID3", every),
            "CPU s",
            "10, and a fifth of scikit-learn's tree",
            rounds=1,
            peer="scikit-learn",
        ),
        Row(
            f"DiffPC45 depth 5, {many:,} rows x 13, two of 100,001 and 5,001 codes",
            "many",
            fit("DiffPC45", rest),
            "CPU s",
            "4",
            rounds=1,
            peer="LightGBM",
        ),
        Row(
            f"DiffPC45 depth 5, {many:,} rows x 6 numeric, one of 1,500,001 codes",
            "many",
            fit("DiffPC45", numeric),
            "s",
            "3",
            rounds=1,
            columns=[*numeric, "income"],
        ),
        Row(
            "the same, opening and fit",
            "many",
            fit("DiffPC45", numeric),
            "s",
            "less than LightGBM's data set and tree",
            rounds=1,
            with_open=True,
            peer="LightGBM",
            columns=[*numeric, "income"],
        ),
        Row(
            f"one level, {many:,} rows x 9 x 8 nodes, noise and ledger too",
            "level",
            {**level, "attributes": nine},
            "CPU s",
            ".20",
            repeats=3,
        ),
        Row(
            f"one tree, DPExtraTrees depth 5, {MILLION:,} rows x 14",
            "million",
            fit("DPExtraTrees", every, **trees | {"n_estimators": 1}),
            "CPU s",
            "",
        ),
        Row(
            "100 such trees over disjoint shards",
            "million",
            fit("DPExtraTrees", every, **trees),
            "CPU s",
            "1.5 times one tree",
            then=False,
        ),
        Row("DiffPC45, Adult", "adult", fit("DiffPC45", rest), "CPU s", ".13", rounds=5, repeats=7),
        Row("DiffPID3, Adult", "adult", fit("DiffPID3", rest), "CPU s", ".28", rounds=5, repeats=7),
        Row("a count of a part, Adult, durable", "adult", adult, "ms", "2.8", rounds=5, repeats=7),
        Row("histogram of 100 keys, 1,000,000 rows, durable", "keys", histogram, "ms", "5.1", rounds=5, repeats=7),
    ]


class Tables:
    """The files of rows, and policies over them.

    Args:
        folder: The folder of the files.
        schema: The schema of Adult.
        many: The number of rows of the largest table.
    """

    def __init__(self, folder: Path, schema: Schema, many: int) -> None:
        self.folder, self._schema, self._many = folder, schema, many

    def columns(self, name: str) -> dict[str, Any]:
        """The columns that a policy declares."""
        if name == "level":
            return declared(synthetic(1, SIZES)[0].columns)
        if name == "keys":
            return {"k": {"type": "categorical", "values": list(range(100))}}
        return declared(self._schema.columns)

    def codes(self, name: str) -> Path:
        """A table's codes, for peers."""
        return self.folder / f"{name}.npz"

    def make(self, name: str) -> Path:
        """Writes a table, unless it is there."""
        path = self.folder / f"{name}.parquet"
        if path.exists():
            return path
        if name == "level":
            pq.write_table(synthetic(self._many, SIZES)[1], path)
        elif name == "keys":
            keys = np.random.default_rng(2).integers(0, 100, MILLION).astype(np.uint8)
            pq.write_table(pa.table({"k": keys}), path)
        elif name == "adult":
            _, _, rows = table("adult")
            rows = rows[(rows["fold"] == "train").to_numpy()][list(self._schema.columns)]
            pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path)
        else:
            count = MILLION if name == "million" else self._many
            codes: dict[str, Any] = write_synthetic(self._schema, "income", count, path)
            np.savez(self.codes(name), **codes)
        return path

    def policy(self, row: Row, folder: Path) -> Path:
        """Writes a policy with a ledger of its own; the table must be moved beside it."""
        columns = self.columns(row.table)
        written = {
            "dataset": "speed",
            "source": "speed.parquet",
            "ledger": "speed.ledger",
            "cap": MILLION,
            "max_rows": max(50_000, 2 * pq.read_metadata(self.make(row.table)).num_rows),
            "columns": {name: column for name, column in columns.items() if name in (row.columns or columns)},
        }
        path = folder / "speed.yaml"
        path.write_text(yaml.safe_dump(written, sort_keys=False))
        return path


def declared(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as a policy file declares them, in words that both checkouts know."""
    kept = ("type", "values", "lower", "upper", "integer", "step", "nullable", "cuts")
    return {
        name: {key: value for key, value in column.model_dump(mode="json").items() if key in kept and value is not None}
        for name, column in columns.items()
    }


def measured(checkout: Path, row: Row, tables: Tables) -> tuple[float, float]:
    """Median seconds of a process, of wall and of processors."""
    with tempfile.TemporaryDirectory(dir=tables.folder) as name:
        task = Path(name) / "task.json"
        policy = tables.policy(row, Path(name))
        task.write_text(json.dumps({**row.task, "policy": str(policy), "repeats": row.repeats}))
        environment = {
            **os.environ,
            "PYTHONPATH": str(checkout),
            "PYTHONSAFEPATH": "1",
            "XDG_STATE_HOME": str(Path(name) / "state"),
        }
        python = checkout / ".venv" / "bin" / "python"
        command, source = [python, WORKER, task], tables.make(row.table)
        moved = source.rename(Path(name) / "speed.parquet")  # a ledger guards a file where it lies, by any link
        done = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE, text=True, cwd=name)
        moved.rename(source)
        if done.returncode:
            raise SystemExit(f"{row.title} ended in {checkout}; what it said is above.")
        given = json.loads(done.stdout)
        assert Path(given["checkout"]) == checkout, given["checkout"]
    calls = given["call"]
    if row.with_open:
        calls = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(given["open"], calls, strict=True)]
    wall, cpu = (statistics.median(values) for values in zip(*calls, strict=True))
    return wall, cpu


def beside(row: Row, tables: Tables) -> Iterator[str]:
    """Yields what a peer takes for the same codes, if one is asked for and there."""
    python = os.environ.get("PEERS_PYTHON")
    if not row.peer or not python:
        return
    arguments: Mapping[str, Any] = row.task["arguments"]  # type: ignore[assignment]
    with np.load(tables.codes(row.table)) as codes, tempfile.TemporaryDirectory(dir=tables.folder) as name:
        features = np.column_stack([codes[column] for column in arguments["attributes"]])
        path = Path(name) / "rows.npz"
        np.savez(path, features=features, classes=codes["income"])
        del features
        done = subprocess.run([python, PEERS, row.peer, "1", path], check=True, stdout=subprocess.PIPE, text=True)
    ((wall, cpu),) = json.loads(done.stdout)
    yield f"{row.peer}: {wall:.1f} s, {cpu:.1f} CPU s"


def line_of(row: Row, then: Path, tables: Tables) -> dict[str, object]:
    """Measures a line: the checkouts in turn, then the peer."""
    checkouts = {"then": then, "now": ROOT} if row.then else {"now": ROOT}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in checkouts}
    for number in range(row.rounds):
        for name in sorted(checkouts, reverse=bool(number % 2)):
            spent[name].append(measured(checkouts[name], row, tables))
    line: dict[str, object] = {"what": row.title, "unit": row.unit, "goal": row.goal}
    for name, pairs in spent.items():
        wall, cpu = (statistics.median(values) for values in zip(*pairs, strict=True))
        line |= {f"{name}_wall": round(wall, 5), f"{name}_cpu": round(cpu, 5)}
    line["n"], line["peer"] = row.rounds * row.repeats, "; ".join(beside(row, tables))
    return line


def shown(line: Mapping[str, Any]) -> tuple[str, ...]:
    """A line as the page has it."""
    texts = []
    for name in ("then", "now"):
        wall, cpu = line.get(f"{name}_wall"), line.get(f"{name}_cpu")
        if wall in (None, "") or cpu in (None, ""):
            texts.append("")
            continue
        wall, cpu = float(wall), float(cpu)
        if line["unit"] == "ms":
            texts.append(f"{wall * 1e3:.1f} ms ({cpu * 1e3:.1f} CPU ms)")
        elif line["unit"] == "s":
            texts.append(f"{wall:.1f} s ({cpu:.1f} CPU s)")
        else:
            texts.append(f"{cpu:.3g} CPU s ({wall:.3g} s)")
    return str(line["what"]), texts[0], str(line["goal"]), texts[1], str(line["peer"])


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.then",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--beside", type=Path, required=True, metavar="CHECKOUT", help="the older checkout")
    parser.add_argument("--rows", type=int, default=10**7, help="rows of the large tables")
    parser.add_argument("--only", type=int, nargs="+", help="lines of the table, counted from 1")
    parser.add_argument("--now", action="store_true", help="this checkout alone")
    parser.add_argument("--tables", type=Path, help="a folder where made-up tables are kept; else they are temporary")
    asked = parser.parse_args()
    then = asked.beside.resolve()
    schema = table("adult")[0]
    with tempfile.TemporaryDirectory() as name:
        folder = asked.tables or Path(name)
        folder.mkdir(exist_ok=True)
        tables = Tables(folder, schema, asked.rows)
        rows = rows_of(schema, asked.rows)
        for number, row in enumerate(rows, start=1):
            if asked.only and number not in asked.only:
                continue
            if asked.now:
                row = Row(**{**row.__dict__, "then": False})
            tables.make(row.table)
            line = line_of(row, then, tables)
            print(" | ".join(shown(line)), flush=True)
            publish([line], [row.title for row in rows], then, whole=asked.rows >= 10**7 and not asked.now)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Reads what was written of earlier runs; empty texts where nothing was measured."""
    table = pd.read_csv(path, keep_default_na=False)
    return [dict(zip(map(str, table), values, strict=True)) for values in table.itertuples(index=False)]


def publish(lines: Sequence[Mapping[str, object]], titles: Sequence[str], then: Path, *, whole: bool) -> None:
    """Writes lines in place of those of earlier runs, in the table's order, and the page."""
    path = single("layer/then-and-now.csv", whole=whole)
    written = read_lines(path) if path.exists() else []
    by_title: dict[str, Mapping[str, object]] = {str(line["what"]): line for line in [*written, *lines]}
    table = pd.DataFrame([by_title[title] for title in titles if title in by_title])
    table.to_csv(path, index=False)
    shown_lines = map(shown, read_lines(path))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    about = f"Then is `{commit(then)}`, now `{commit(ROOT)}` or shortly before; {machine}."
    page = single("layer.md", whole=whole)
    replace_section(page, "then", f"{about}\n\n{markdown(HEADS, shown_lines)}", heading="Speed of the layer")


if __name__ == "__main__":
    main()
