# SPDX-License-Identifier: Apache-2.0
"""The gain of each optimisation of the engine and of the scorers: it is switched off, all others stay on.

``python -m benchmarks.speed.switches`` makes up rows on Adult's schema and writes
``benchmarks/results/switches.md``: processor seconds of all threads without an optimisation, divided by
those with all. Rounds with and without it are measured in turn, and the least of each counts. An
optimisation that pays less than 1.2 in every column can go.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pinq
from benchmarks.accuracy.trees import table
from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown
from benchmarks.speed.layer import forget, handle_over
from benchmarks.speed.trees import write_synthetic
from miners import DiffPC45, DiPriMeForestClassifier, Scorecard, Synthesizer
from miners.tables import quantiles
from pinq.curator import mechanisms
from pinq.curator.candidates import scorer
from pinq.engine import ArrayEngine, arrays, counting, open_engine, rows
from pinq.language import specs
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.public.schema import Schema

ROWS, ROUNDS, NEVER = (10**5, 10**6), 2, 2**62
FEW = ("age", "education", "sex", "hours_per_week", "income")  # columns of the synthesizer
Switch = tuple[Any, str, object]
"""A module or a class, the name of its attribute, and what stands there when the optimisation is off."""
SWITCHES: Mapping[str, Switch] = {
    "tables of earlier requests are kept": (ArrayEngine, "_from_kept_tables", lambda *_: None),
    "the table of a column is kept": (ArrayEngine, "_column_of", lambda *_: None),
    "the nodes of rows are kept": (ArrayEngine, "_keep_location", lambda *_: None),
    "the cells of rows are kept for sums": (ArrayEngine, "_with_cells", lambda _, axes, blocks, check: blocks),
    "threads count side by side": (arrays, "THREADS", 1),
    "words of few cells are taken apart late": (counting, "CARRIED_CELLS", 0),
    "tables are counted jointly": (counting, "PACKED_BYTES", 0),
    "the last split is an axis of tables": (counting, "_common", lambda *_: None),
    "measures read rows in pieces": (counting, "NUMBERS_AT_ONCE", NEVER),
    "places of codes are in tables": (rows, "TABLES_BYTES", 0),
    "partitions are looked up together": (rows, "MAX_VALUES", 0),
    "rows go down in pieces": (rows, "ROWS_AT_ONCE", NEVER),
    "far cuts are looked at as one": (scorer.AnyCutScorer, "_near", lambda _, contents, row, reach: contents),
    "sums follow from what a cell changes": (scorer, "SumScore", ()),
    "cells are scored in pieces": (scorer, "CELLS_AT_ONCE", NEVER),
    "parts are scored together": (scorer, "NUMBERS_AT_ONCE", 1),
    "many splits share a table": (scorer, "FEW_SPLITS", NEVER),
    "weights are added up in blocks": (mechanisms, "BLOCK", NEVER),
    "bipartitions are kept": (specs, "KEPT_VALUES", 0),
}


def main() -> None:
    """Measures, prints and writes the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.switches", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # of noise that hides what is fitted
    schema, target, _ = table("adult")
    ratios: dict[str, list[str]] = {name: [] for name in SWITCHES}
    heads = ["switched off"]
    with tempfile.TemporaryDirectory() as folder:
        for number in asked.rows:
            called, policy, engine = workloads(schema, target, number, Path(folder))
            for name, call in called.items():
                heads.append(f"{name}, {number:,}")
                for own, switch in SWITCHES.items():  # each on a ledger without stored answers
                    ledger = Ledger(Path(folder, f"{number}-{name}-{len(ratios[own])}-{own}.ledger"), "switches")
                    handle = handle_over(policy, engine, ledger)
                    ratios[own].append(f"{ratio(partial(call, handle), engine, switch):.2f}")
                    print(f"{number:>9,} {name:12s} {own:42s}{ratios[own][-1]:>6s}", flush=True)
            engine.close()
    lines = [(name, *own) for name, own in ratios.items()]
    about = "Written by `python -m benchmarks.speed.switches`: processor time without each, divided by that with all."
    page = single("switches.md", whole=tuple(asked.rows) == ROWS)
    page.write_text(f"# Gain of each optimisation\n\n{about}\n\n{markdown(heads, lines)}\n", encoding="utf-8")


def workloads(
    schema: Schema, target: str, number: int, folder: Path
) -> tuple[dict[str, Callable[[pinq.PrivateQueryable], object]], Policy, ArrayEngine]:
    """The work of a handle that is timed over so many made-up rows, their policy, and the engine under it."""
    file = folder / f"{number}.parquet"
    write_synthetic(schema, target, number, file)
    declared = {"columns": schema.columns, "max_rows": 2 * number, "source": file.name, "folder": folder}
    policy = Policy(dataset="switches", cap=10**6, **declared)
    engine, _ = open_engine(policy, salt=b"switches")
    assert isinstance(engine, ArrayEngine)
    cross = pinq.Cross((pinq.Values("education"), pinq.Values(target)))
    cuts = pinq.Cuts("age", tuple(range(20, 80))), pinq.Cuts("hours_per_week", tuple(range(1, 95)))
    forest = DiPriMeForestClassifier(epsilon=1, n_estimators=10, max_depth=6, random_state=0)
    called: dict[str, Callable[[pinq.PrivateQueryable], object]] = {
        "count": lambda handle: handle.partition(cross).noisy_count(epsilon=1),
        "count by cuts": lambda handle: handle.partition(*cuts).noisy_count(epsilon=1),
        "averages": lambda handle: handle.partition(cross).noisy_avg("age", epsilon=1),
        "tree": lambda handle: DiffPC45(epsilon=1, max_depth=6).fit(handle, target),
        "card": lambda handle: Scorecard(epsilon=1).fit(handle, target),
        "forest": lambda handle: forest.fit(handle, target),
        "quartiles": lambda handle: quantiles(handle, "capital_gain", epsilon=1),
        "synthesizer": lambda handle: Synthesizer(epsilon=1, columns=FEW).fit(handle),
    }
    return called, policy, engine


def ratio(call: Callable[[], object], engine: ArrayEngine, switch: Switch) -> float:
    """Returns the processor seconds of a call without an optimisation, divided by those with it."""
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for off in (0, 1):
            where, name, instead = switch
            with patch.object(where, name, instead if off else getattr(where, name)):
                forget(engine)
                specs._bipartitions.cache_clear()
                began = time.process_time()
                call()
                least[off] = min(least[off], time.process_time() - began)
    return least[1] / least[0]


if __name__ == "__main__":
    main()
