# SPDX-License-Identifier: Apache-2.0
"""The coverage of intervals of tables: ``python -m benchmarks.accuracy.intervals``.

Prints for each column, epsilon and statistic the share of runs at each level, and the mean width at
.95. Columns pile on single values, lie in few cells of a wide grid, or have far rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.datasets import load
from miners.tables import grouped, quantiles, std

LEVELS = (0.2, 0.5, 0.8, 0.95)
REAL = {
    "adult": ("age", "capital_gain", "fnlwgt"),
    "appliances_energy": ("appliances", "rh_1"),
    "credit_default": ("limit_bal", "bill_amt1"),
}


def columns() -> Iterator[tuple[str, pinq.Numeric, np.ndarray]]:
    for data, names in REAL.items():
        schema, _, frame = load(data)
        for name in names:
            yield name, schema.numeric(name), frame[name].to_numpy(dtype=float)
    random, rows = np.random.default_rng(0), 50_000
    pile = np.where(random.random(rows) < 0.4, 511, random.integers(0, 20, rows)).astype(float)
    yield "0 to 19, two of five on 511", pinq.Numeric(lower=0, upper=511, integer=True), pile
    yield "to 3,000 in [0, 1e9]", pinq.Numeric(lower=0, upper=1e9), np.abs(random.normal(0, 1000, rows))
    zeros = np.where(random.random(rows) < 0.7, 0, random.exponential(3000, rows)).clip(0, 1e5)
    yield "seven of ten are 0", pinq.Numeric(lower=0, upper=1e5), zeros
    far = (random.standard_t(1.5, rows) * 20).clip(-1e4, 1e4)
    yield "heavy tails", pinq.Numeric(lower=-1e4, upper=1e4), far


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1, 8])
    arguments = parser.parse_args()
    for name, column, rows in columns():
        frame = pd.DataFrame({"x": rows.astype(np.int64) if column.integer else rows})
        schema = pinq.Schema(columns={"x": column}, max_rows=len(frame))
        exact = {
            "quartiles": np.quantile(rows, [0.25, 0.5, 0.75], method="inverted_cdf"),
            "std": np.array([rows.std()]),
            "mean": np.array([rows.mean()]),
        }
        for epsilon in arguments.epsilons:
            held = {(what, level): [] for what in exact for level in LEVELS}  # type: ignore[var-annotated]
            widths = {what: [] for what in exact}  # type: ignore[var-annotated]
            for _ in range(arguments.runs):
                handle = pinq.simulate(schema, data=frame, epsilon=10**6)
                for number, level in enumerate(LEVELS):
                    # The same answers at each level: only what is said of them differs.
                    again = {"epsilon": epsilon, "level": level, "reuse": number > 0}
                    tables = {
                        "quartiles": quantiles(handle, "x", **again),
                        "std": std(handle, "x", **again),
                        "mean": grouped(handle, None, {"x": "mean"}, **again),
                    }
                    for what, table in tables.items():
                        low, high = table.frame[["low", "high"]].to_numpy(dtype=float).T
                        held[what, level].append(((low - 1e-9 <= exact[what]) & (exact[what] <= high + 1e-9)).mean())
                        widths[what] += [(high - low).mean()] * (level == max(LEVELS))
            for what in exact:
                shares = ", ".join(f"{level}: {np.mean(held[what, level]):.2f}" for level in LEVELS)
                print(f"{name}, epsilon {epsilon:g}, {what}: {shares}; width {np.mean(widths[what]):.4g}", flush=True)


if __name__ == "__main__":
    main()
