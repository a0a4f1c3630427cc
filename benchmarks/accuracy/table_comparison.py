# SPDX-License-Identifier: Apache-2.0
"""Everyday tables beside other libraries' at equal epsilon: ``python -m benchmarks.accuracy.table_comparison``.

On Adult and Appliances Energy, in one run: mean absolute error of cells, of quantile ranks and of
standard deviations, and seconds. ``PEERS_PYTHON`` and ``TUMULT_PYTHON`` say which interpreters have
the peers; without them only this library is measured. Writes ``benchmarks/results/tables``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from benchmarks.harness.datasets import load
from miners.tables import Table, crosstab, histogram, quantiles, std
from miners.tables.columns import even_cuts
from pinq.language.specs import Values
from pinq.provider.local import simulate
from pinq.public.schema import Schema

EPSILON = "0.1"
OURS, NONNEGATIVE = "this library", "this library, nonnegative"
SLOWNESS = {"SmartNoise SQL": 2, "OpenDP Polars": 10, "Tumult Analytics": 40}
"""One run of these in so many of the others'."""
PEERS = {
    "diffprivlib": "PEERS_PYTHON",
    "OpenDP Polars": "PEERS_PYTHON",
    "SmartNoise SQL": "PEERS_PYTHON",
    "Tumult Analytics": "TUMULT_PYTHON",
}
RESULTS = Path(__file__).resolve().parents[1] / "results" / "tables"
WITH_ROWS = ", cells with rows"
SHARES = [0.25, 0.5, 0.75]
UNITS = {"cells": "rows a cell", "quantiles": "ranks, % of rows", "std": "units"}
Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A table that all libraries make.

    Attributes:
        data: The data set.
        kind: ``cells``, ``quantiles`` or ``std``.
        columns: The columns of the table; for a numeric one, a column of bins.
    """

    data: str
    kind: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the table in results."""
        what = {"cells": "counts by", "quantiles": "quartiles of", "std": "standard deviation of"}[self.kind]
        return f"{self.data}: {what} {' and '.join(self.columns)}"

    def ask(self, handle: Any, nonnegative: bool) -> Table:
        """Asks this library."""
        if self.kind == "quantiles":
            return quantiles(handle, self.columns[0], SHARES, epsilon=EPSILON)
        if self.kind == "std":
            return std(handle, self.columns[0], epsilon=EPSILON)
        if self.columns[0] in handle.schema.numeric_columns:
            return histogram(handle, self.columns[0], 10, epsilon=EPSILON, nonnegative=nonnegative)
        return crosstab(handle, list(map(Values, self.columns)), epsilon=EPSILON, nonnegative=nonnegative)

    def task(self, schema: Schema, rows: pd.DataFrame) -> Result:
        """Returns the task as peers read it; bins become a column of their numbers in ``rows``."""
        task: Result = {"name": self.name, "data": self.data, "kind": self.kind}
        column = self.columns[0]
        if self.kind != "cells":
            numeric = schema.numeric(column)
            return (
                task
                | {
                    "column": column,
                    "lower": float(numeric.lower),
                    "upper": float(numeric.upper),
                    "shares": SHARES,
                }
                | ({} if self.kind == "quantiles" else {"shares": [None]})
            )
        if column not in schema.numeric_columns:
            return task | {"values": {name: list(schema.categorical(name).values) for name in self.columns}}
        cuts = even_cuts(schema, column, 10).points
        rows[f"{column}_bin"] = np.digitize(rows[column], [float(cut) for cut in cuts])
        return task | {"values": {f"{column}_bin": list(range(len(cuts) + 1))}}


CASES = [
    Case("adult", "cells", ("education", "income")),
    Case("adult", "cells", ("race", "sex", "income")),
    Case("adult", "cells", ("age",)),
    Case("adult", "quantiles", ("age",)),
    Case("adult", "quantiles", ("hours_per_week",)),
    Case("adult", "std", ("age",)),
    Case("adult", "std", ("hours_per_week",)),
    Case("appliances_energy", "cells", ("t1",)),
    Case("appliances_energy", "cells", ("appliances",)),
    Case("appliances_energy", "quantiles", ("appliances",)),
    Case("appliances_energy", "std", ("appliances",)),
    Case("appliances_energy", "std", ("t1",)),
]


def counts_of(task: Result, rows: pd.DataFrame) -> np.ndarray:
    """Returns the exact counts of a table's cells."""
    index = pd.MultiIndex.from_product(task["values"].values())
    exact = rows.groupby(list(task["values"])).size()
    exact.index = pd.MultiIndex.from_tuples([key if isinstance(key, tuple) else (key,) for key in exact.index])
    return exact.reindex(index, fill_value=0).to_numpy()


def error_of(task: Result, rows: pd.DataFrame, estimates: Sequence[float]) -> float:
    """Returns a run's error: of cells in rows, of quantiles in percent of rows, of spreads in units."""
    if task["kind"] == "cells":
        exact = counts_of(task, rows)
        counted = exact > 0 if task.get("only_with_rows") else slice(None)
        return float(np.abs(exact - np.array(estimates))[counted].mean())
    values = rows[task["column"]].to_numpy(float)
    if task["kind"] == "std":
        return abs(values.std() - estimates[0])
    # A value has all ranks from those below it to its own last row's.
    below = [(values < estimate).mean() for estimate in estimates]
    upto = [(values <= estimate).mean() for estimate in estimates]
    off = [max(low - share, share - high, 0.0) for share, low, high in zip(SHARES, below, upto, strict=True)]
    return 100 * statistics.fmean(off)


def measured(ask: Callable[[], Sequence[float]], runs: int) -> Result:
    """Returns the estimates of each run and the median seconds."""
    estimates, seconds = [], []
    for _ in range(runs + 1):
        began = time.perf_counter()
        estimates.append([float(number) for number in ask()])
        seconds.append(time.perf_counter() - began)
    return {"estimates": estimates[1:], "seconds": statistics.median(seconds[1:])}


def prepared() -> tuple[dict[str, tuple[Schema, pd.DataFrame]], dict[str, pd.DataFrame], list[Result]]:
    """Returns schemas and rows by data set, the same rows with bins as peers read them, and the tasks."""
    loaded = {name: load(name) for name in dict.fromkeys(case.data for case in CASES)}
    data = {name: (schema, rows) for name, (schema, _, rows) in loaded.items()}
    tables = {name: rows.copy() for name, (_, rows) in data.items()}
    return data, tables, [case.task(data[case.data][0], tables[case.data]) for case in CASES]


def ask_ours(
    data: dict[str, tuple[Schema, pd.DataFrame]], tasks: Sequence[Result], runs: int, nonnegative: bool
) -> Result:
    """Measures this library."""
    results: Result = {}
    for name, (schema, rows) in data.items():
        with simulate(schema, rows=len(rows), epsilon=100_000, data=rows) as handle:
            for case, task in zip(CASES, tasks, strict=True):
                if case.data == name and (case.kind == "cells" or not nonnegative):
                    width = len(error_cells(task))
                    results[case.name] = measured(partial(estimates_of, case, handle, width, nonnegative), runs)
    return results


def ask_peer(peer: str, tables: dict[str, pd.DataFrame], tasks: Sequence[Result], runs: int) -> tuple[str, Result]:
    """Measures a peer in its own interpreter; returns its version and results."""
    script = Path(__file__).with_name("table_peers.py")
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            table.to_csv(Path(folder) / f"{name}.csv", index=False)
        (Path(folder) / "tasks.json").write_text(json.dumps(tasks))
        command = [os.environ[PEERS[peer]], str(script), peer, folder, EPSILON, str(runs)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        answer = json.loads((Path(folder) / f"{peer}.json").read_text())
    return answer["version"], answer["results"]


def compare(libraries: Sequence[str], runs: int) -> pd.DataFrame:
    """Measures libraries; returns a row for each task and library."""
    data, tables, tasks = prepared()
    lines: list[Result] = []
    for library in libraries:
        own_runs = max(3, runs // SLOWNESS.get(library, 1))
        if library in (OURS, NONNEGATIVE):
            version, results = "", ask_ours(data, tasks, own_runs, library == NONNEGATIVE)
        elif PEERS[library] in os.environ:
            version, results = ask_peer(library, tables, tasks, own_runs)
        else:
            continue
        head = {"version": version, "runs": own_runs}
        for task in (task for task in tasks if task["name"] in results):
            rows, result = tables[task["data"]], results[task["name"]]
            lines += [line(library, shown, rows, result) | head for shown in with_parts(task, rows)]
    return pd.DataFrame(lines)


def with_parts(task: Result, rows: pd.DataFrame) -> list[Result]:
    """Returns a task, and of a table with empty cells what its other cells are by themselves."""
    if task["kind"] != "cells" or counts_of(task, rows).all():
        return [task]
    return [task, task | {"name": f"{task['name']}{WITH_ROWS}", "only_with_rows": True}]


def estimates_of(case: Case, handle: Any, width: int, nonnegative: bool) -> Sequence[float]:
    """Returns this library's numbers; a part for missing values, which the peers lack, is left out."""
    return [float(value) for value in case.ask(handle, nonnegative).frame["value"][:width]]


def error_cells(task: Result) -> list[object]:
    """Returns what a run's estimates are of."""
    if task["kind"] != "cells":
        return list(task["shares"])
    return list(pd.MultiIndex.from_product(task["values"].values()))


def line(library: str, task: Result, rows: pd.DataFrame, result: Any) -> Result:
    """Returns a line of the results; without an error where a library has no such function."""
    head = {"task": task["name"], "unit": UNITS[task["kind"]], "library": library}
    if isinstance(result, str):
        return head | {"error": np.nan, "sure": np.nan, "seconds": np.nan, "note": result}
    errors = [error_of(task, rows, estimates) for estimates in result["estimates"]]
    sure = np.std(errors, ddof=1) / np.sqrt(len(errors))
    return head | {"error": np.mean(errors), "sure": sure, "seconds": result["seconds"], "note": ""}


READ = """What to read in it:

- This library's columns were measured again on the same machine, two hours after one run of all: quantiles had come to
  divide epsilon otherwise. Nothing else had changed.
- Counts have the same noise everywhere; what differs is what is done to small ones. diffprivlib and OpenDP cut at 0,
  which halves the error of empty cells and makes them too large on average. This library does so only on request
  (`nonnegative=True`: the nearest table with the same total), in a column of its own. SmartNoise leaves cells without
  rows out: exact zeros, which tell that nobody is there, and no private answer can be level with them. Where it says
  "cells with rows", those alone are compared; there the errors differ by chance (diffprivlib's in 1,500 more runs:
  9.9 rows).
- Quartiles: cuts are chosen and counted twice, so values that many rows share are found
  ([decision 0047](../../../docs/decisions/0047-tables-are-functions-on-the-verbs.md)).
  diffprivlib and Tumult take a point within an interval of sorted rows, and OpenDP a candidate by its own rank. Any
  estimate is right that has the share between the rows below it and those up to it, its own among them.
- Standard deviations: bins that widen from a chosen median. diffprivlib's takes the number of rows as public.
- Seconds: diffprivlib adds noise to a NumPy array in this process, without a budget that anybody keeps, and is faster
  in counts and standard deviations. A count of this library takes about 4 ms of CPU: a request that is checked, a
  charge in a ledger, exact noise, a frame. All others are slower in every row.
"""


def page(results: pd.DataFrame) -> str:
    """Returns the results as a page."""
    libraries = list(dict.fromkeys(results["library"]))
    lines = ["| table | unit | " + " | ".join(libraries) + " |", "|" + "---|" * (len(libraries) + 2)]
    times = ["| table | " + " | ".join(libraries) + " |", "|" + "---|" * (len(libraries) + 1)]
    for task, rows in results.groupby("task", sort=False):
        by_name = rows.set_index("library").reindex(libraries)
        errors = [_shown(by_name.loc[name, "error"], by_name.loc[name, "sure"]) for name in libraries]
        lines.append(f"| {task} | {rows['unit'].iloc[0]} | {' | '.join(errors)} |")
        if not str(task).endswith(WITH_ROWS):
            times.append(f"| {task} | {' | '.join(_seconds(by_name.loc[name, 'seconds']) for name in libraries)} |")
    missing = results[results["note"] != ""]
    notes = [f"- {row.library}: {row.task}: {row.note}" for row in missing.itertuples()]
    known = results.drop_duplicates("library")
    named = "; ".join(f"{row.library} {row.version} ({row.runs} runs)".replace("  ", " ") for row in known.itertuples())
    intro = (
        f"Epsilon {EPSILON} for each table, one row more or less. Mean error ± its standard error: {named}. Repeat: "
        "`python -m benchmarks.accuracy.table_comparison` with `PEERS_PYTHON` and `TUMULT_PYTHON`."
    )
    title, picture = "# Everyday tables beside other libraries", "![errors as multiples of this library's](errors.png)"
    clock = "Median seconds of one table on a busy machine; this library's with its ledger in memory:"
    tables = ["\n".join(lines), READ.rstrip(), picture, clock, "\n".join(times), "Where there is none, and why:"]
    return "\n\n".join([title, intro, *tables, "\n".join(notes)]) + "\n"


def draw(results: pd.DataFrame, file: Path) -> None:
    """Draws each peer's error as a multiple of this library's."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    wide = results.pivot_table(index="task", columns="library", values="error", sort=False)
    ratios = wide.drop(columns=OURS).div(wide[OURS], axis=0)
    edge = 3 * float(np.nanmax(ratios.replace(np.inf, np.nan).to_numpy(dtype=float)))
    ratios = ratios.replace(np.inf, edge)
    figure, ax = plt.subplots(figsize=(9, 0.5 * len(ratios) + 1.5), layout="constrained")
    for number, (name, marker) in enumerate(zip(ratios.columns, "*osD^", strict=False)):
        places = np.arange(len(ratios)) + 0.12 * (number - 2)
        ax.plot(ratios[name], places, marker, label=name)
    ax.axvline(1, color="0.4", lw=1)
    ax.axvline(edge, color="0.4", lw=1, ls=":")
    top = ax.get_xaxis_transform()
    ax.text(edge, 1.01, "this library's is 0", ha="center", va="bottom", fontsize=8, color="0.3", transform=top)
    ax.set_xscale("log")
    ax.set_yticks(range(len(ratios)), ratios.index)
    ax.invert_yaxis()
    ax.set_xlabel("error as a multiple of this library's; right of the line: larger")
    ax.legend(loc="upper center", bbox_to_anchor=(0.35, -0.1), ncols=3, frameon=False)
    figure.savefig(file, dpi=110)


def _shown(error: float, sure: float) -> str:
    return "–" if np.isnan(error) else f"{error:.3g} ±{sure:.1g}"


def _seconds(seconds: float) -> str:
    return "–" if np.isnan(seconds) else f"{seconds:.2g}"


def main() -> None:
    """Compares, and writes the page, the numbers and the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=120, help=f"of the quick ones; {SLOWNESS}: one in so many")
    parser.add_argument(
        "--only", choices=[OURS, NONNEGATIVE, *PEERS], help="measure it again, keep the others' numbers"
    )
    arguments = parser.parse_args()
    libraries = [arguments.only] if arguments.only else [OURS, NONNEGATIVE, *PEERS]
    results = compare(libraries, arguments.runs)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if arguments.only:
        kept = pd.read_csv(
            RESULTS / "errors.csv", keep_default_na=False, na_values={"error": "", "sure": "", "seconds": ""}
        )
        results = pd.concat([kept[kept["library"] != arguments.only], results], ignore_index=True)
        order = {library: number for number, library in enumerate([OURS, NONNEGATIVE, *PEERS])}
        results = results.sort_values("library", key=lambda names: names.map(order), kind="stable")
    results.to_csv(RESULTS / "errors.csv", index=False, float_format="%.6g")
    (RESULTS / "README.md").write_text(page(results), encoding="utf-8")
    draw(results, RESULTS / "errors.png")


if __name__ == "__main__":
    main()
