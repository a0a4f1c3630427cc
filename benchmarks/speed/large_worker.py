# SPDX-License-Identifier: Apache-2.0
"""Does on large tables what people do, of one checkout, when told to; of the library it knows public names only.

``python large_worker.py CHECKOUT`` with that checkout on PYTHONPATH prints the checkout that it runs, then reads a
name a line, prepares what it stands for, does it once and prints the processor seconds of that, of all threads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import miners
import miners.tables
import pinq

UNLIMITED_EPSILON = 10**5
ROWS, WIDE_ROWS = 1_000_000, 395_000
KINDS = 4  # of columns, one of them text
Columns = dict[str, dict[str, Any]]
Task = Callable[[], Callable[[], object]]
"""Prepares, off the clock, what is then timed."""


def people(checkout: Path) -> tuple[Columns, pd.DataFrame]:
    """Adult's rows drawn again, with a weight of 1,500,001 codes and a country of 42, both as skewed as there."""
    declared = yaml.safe_load((checkout / "policies" / "adult.yaml").read_text())["columns"]
    random = np.random.default_rng(0)
    rows = pd.read_parquet(checkout / "data" / "adult.parquet").sample(ROWS, replace=True, random_state=0)
    rows = rows.reset_index(drop=True)
    rows["weight"] = np.clip(random.lognormal(12, 0.5, ROWS) * (1 + rows["age"] / 100), 0, 1_500_000).astype(int)
    countries = [f"country {number}" for number in range(42)]
    rows["country"] = np.array(countries)[np.minimum(random.geometric(0.5, ROWS) + rows["age"] // 30, 42) - 1]
    declared["weight"] = {"type": "numeric", "lower": 0, "upper": 1_500_000, "integer": True}
    declared["country"] = {"type": "categorical", "values": countries}
    return declared, rows[list(declared)]


def connections() -> tuple[Columns, pd.DataFrame]:
    """41 columns of four kinds that depend on one of 23 classes, of which the first are common."""
    random = np.random.default_rng(0)
    classes = np.minimum(random.geometric(0.25, WIDE_ROWS) - 1, 22)
    declared: Columns = {"y": {"type": "categorical", "values": [f"c{number}" for number in range(23)]}}
    rows = {"y": np.array(declared["y"]["values"])[classes]}
    for number in range(41):
        value = random.normal(0, 1, WIDE_ROWS) + classes * (number * 7 % 5 / 4)
        name = f"x{number}"
        if number % KINDS == 0:
            labels = [f"v{label}" for label in range(3 + number % 9)]
            declared[name] = {"type": "categorical", "values": labels}
            rows[name] = np.array(labels)[np.clip((value + 2).astype(int), 0, len(labels) - 1)]
            continue
        kinds = {1: (1000, value * 100 + 300), 2: (100, value * 25), 3: (100_000, np.exp(value) * 100)}
        upper, scaled = kinds[number % KINDS]
        declared[name] = {"type": "numeric", "lower": 0, "upper": upper, "integer": True}
        rows[name] = np.clip(scaled, 0, upper).astype(int)
    return declared, pd.DataFrame(rows)


def handle_of(columns: Columns, rows: pd.DataFrame) -> Any:
    """A handle that nobody has asked anything."""
    schema = pinq.Schema(columns=columns, max_rows=len(rows))
    return pinq.simulate(schema, data=rows, epsilon=UNLIMITED_EPSILON)


def extra_trees(**arguments: Any) -> Any:
    """Returns a forest of random splits, which earlier checkouts have among their miners."""
    if "DPExtraTrees" in miners.__all__:
        return miners.DPExtraTrees(**arguments)
    return import_module("benchmarks.papers.diprime.baselines").DPExtraTrees(**arguments)


def tasks(checkout: Path, folder: Path) -> dict[str, Task]:
    """The tasks by name."""
    columns, rows = people(checkout)
    small = handle_of(columns, rows.head(30_000))
    trees = [extra_trees(epsilon=1, n_estimators=count, random_state=1) for count in (1, 100)]
    forest = miners.DiPriMeForestClassifier(epsilon=1, n_estimators=10)
    fits = {
        "default tree": miners.DiffPC45(epsilon=1),
        "median tree": miners.DiPriMeForestClassifier(epsilon=1, random_state=0),
    }
    coded = rows.astype({name: "category" for name, column in columns.items() if column["type"] == "categorical"})

    @cache
    def handle() -> Any:
        return handle_of(columns, rows)

    @cache
    def wide() -> Any:
        return handle_of(*connections())

    def later(call: Callable[[Any], object]) -> Task:
        return lambda: partial(call, handle())

    def first(model: Any) -> Task:
        return lambda: partial(model.fit, handle_of(columns, rows), "income")

    def predicted(model: Any, table: pd.DataFrame) -> Task:
        return lambda: partial(model.fit(small, "income").predict, table)

    def opened(ending: str, *, again: bool = False) -> Task:
        return partial(opening, columns, source(rows, folder, ending), again=again)

    forest.fit(small, "income")  # imports are not timed
    return {
        "forest, first": first(forest),
        "forest": later(lambda people: forest.fit(people, "income")),
        **{name: later(partial(_fitted, model)) for name, model in fits.items()},
        "synthesizer": later(miners.Synthesizer(epsilon=1).fit),
        "wide": lambda: lambda: miners.DiffPC45(epsilon=4).fit(wide(), "y"),
        "tree": later(lambda people: trees[0].fit(people, "income")),
        "trees, first": first(trees[1]),
        "trees": later(lambda people: trees[1].fit(people, "income")),
        "predict by trees": predicted(trees[1], rows),
        "predict, text": predicted(miners.DiffPC45(epsilon=1), rows),
        "predict, categories": predicted(miners.DiffPC45(epsilon=1), coded),
        "quartiles": later(lambda people: miners.tables.quantiles(people, "weight", epsilon=0.1)),
        "summary": later(lambda people: miners.tables.summary(people, epsilon=1)),
        "open Parquet": opened("parquet"),
        "open CSV": opened("csv"),
        "open CSV again": opened("csv", again=True),
    }


def _fitted(model: Any, people: Any) -> object:
    return model.fit(people, "income")


def source(rows: pd.DataFrame, folder: Path, ending: str) -> Path:
    """Writes rows, unless they are there."""
    path = folder / f"people.{ending}"
    if not path.exists():
        rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path, index=False)
    return path


def opening(columns: Columns, source: Path, *, again: bool) -> Callable[[], object]:
    """Publishes a copy of a source, and opens it once if it is to be opened again."""
    folder = Path(tempfile.mkdtemp(dir=source.parent))
    os.environ["XDG_STATE_HOME"] = str(folder)
    shutil.copy(source, folder)
    policy = {"dataset": "speed", "source": source.name, "cap": UNLIMITED_EPSILON, "max_rows": ROWS, "columns": columns}
    (folder / "speed.yaml").write_text(yaml.safe_dump(policy))
    command = "from pinq.cli.main import main; main()"
    grant = ["grant", str(folder / "speed.yaml"), "ana", "--epsilon", str(UNLIMITED_EPSILON)]
    subprocess.run([sys.executable, "-c", command, *grant], check=True, capture_output=True)
    opens = partial(pinq.open, str(folder / "speed.yaml"), analyst="ana")
    if again:
        opens().close()
    return opens


def main() -> None:
    """Answers until standard input ends."""
    print(Path(pinq.__file__).resolve().parents[1], flush=True)
    warnings.simplefilter("ignore")  # that a second fit costs again
    with tempfile.TemporaryDirectory() as folder:
        known = tasks(Path(sys.argv[1]), Path(folder))
        for line in sys.stdin:
            call = known[line.strip()]()
            began = time.process_time()
            call()
            print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()
