# SPDX-License-Identifier: Apache-2.0
"""The errors of everyday tables on Adult, and of two ways to find quantiles: ``python -m benchmarks.accuracy.tables``.

Prints for each method how often all quantiles are within one unit of the exact ones, how often
their intervals hold, and how wide those are; then the worst mean of ``summary`` and its time.
"""

from __future__ import annotations

import argparse
import math
import time
from fractions import Fraction

import numpy as np
import pandas as pd

from miners.tables import summary
from miners.tables.quantile_search import Quantile
from pinq import load_policy
from pinq.analyst.queryable import PrivateQueryable
from pinq.provider.local import simulate
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Numeric

CASES = [
    ("age", 4, "0.1"),
    ("age", 4, "0.02"),
    ("age", 10, "0.1"),
    ("hours_per_week", 4, "0.1"),
    ("education_num", 4, "0.1"),
]


def exact(values: pd.Series, shares: tuple[Fraction, ...]) -> np.ndarray:
    ordered = np.sort(values)
    return np.array([ordered[math.ceil(share * len(ordered)) - 1] for share in shares])


def halved(handle: PrivateQueryable, column: str, shares: tuple[Fraction, ...], epsilon: Epsilon) -> np.ndarray:
    """Values, lower and upper ends of all quantiles, shape (3, quantiles)."""
    found = Quantile(handle.schema, column, epsilon, 0.95, 1, False, shares=shares).ask(handle.parts())
    return np.array([[each.value[0], each.low[0], each.high[0]] for each in found]).T


def each(handle: PrivateQueryable, column: str, shares: tuple[Fraction, ...], epsilon: Epsilon) -> np.ndarray:
    """A choice and its counts for each quantile, which share epsilon evenly."""
    return np.hstack([halved(handle, column, (share,), epsilon // len(shares)) for share in shares])


def compare(handle: PrivateQueryable, data: pd.DataFrame, runs: int) -> None:
    print("column, parts, epsilon, method: all within one, intervals hold, mean width")
    for column, parts, loss in CASES:
        shares = tuple(Fraction(number, parts) for number in range(1, parts))
        truth = exact(data[column], shares)
        for method in (halved, each):
            runs_of = [method(handle, column, shares, Epsilon.of(loss)) for _ in range(runs)]
            close = np.mean([np.abs(value - truth).max() <= 1 for value, _, _ in runs_of])
            held = np.mean([((low <= truth) & (truth <= high)).mean() for _, low, high in runs_of])
            width = np.mean([(high - low).mean() for _, low, high in runs_of])
            print(f"{column}, {parts}, {loss}, {method.__name__}: {close:.0%}, {held:.0%}, {width:.1f}")


def describe(handle: PrivateQueryable, data: pd.DataFrame, runs: int) -> None:
    worst, seconds = 0.0, []
    for _ in range(runs):
        began = time.perf_counter()
        frame = summary(handle, epsilon=1).frame
        seconds.append(time.perf_counter() - began)
        means = frame[frame["statistic"] == "mean"].set_index("column")["value"]
        for name, column in handle.schema.columns.items():
            if isinstance(column, Numeric):
                off = abs(means[name] - data[name].mean()) / float(column.upper - column.lower)
                worst = max(worst, off)
    print(f"summary at epsilon 1: worst mean {worst:.2%} of its range, median {np.median(seconds):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    data = pd.read_parquet("data/adult.parquet")
    policy = load_policy("policies/adult.yaml")
    with simulate(policy, rows=len(data), epsilon=100_000, data=data) as handle:
        compare(handle, data, runs)
        describe(handle, data, max(3, runs // 3))


if __name__ == "__main__":
    main()
