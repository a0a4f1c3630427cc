# SPDX-License-Identifier: Apache-2.0
"""Stopping where rows become too few, at one charge for any depth, beside fixed depths.

Rows are made up: some lie evenly, some crowd in a few regions. Prints the table of
docs/decisions/0013-stopping-asks-whole-trees.md: ``python -m benchmarks.papers.diprime.stopping``.
Some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

import pinq
from benchmarks.papers.diprime.baselines import DPExtraTreesRegressor
from miners import DiPriMeTreeRegressor
from pinq.public.schema import Numeric, Schema

ROWS, RUNS, TREES, MAX_DEPTH, EPSILON = 20_000, 10, 3, 10, 1.0
SCHEMA = Schema(
    columns={"a": Numeric(lower=0, upper=1000), "b": Numeric(lower=0, upper=1000), "y": Numeric(lower=0, upper=1)},
    max_rows=ROWS,
)
DEPTHS = (2, 4, 6, 8, MAX_DEPTH)
Points = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
Params = dict[str, object]
MINERS: dict[str, tuple[type, Params]] = {
    "random splits": (DPExtraTreesRegressor, {"n_estimators": TREES}),
    "best splits": (DiPriMeTreeRegressor, {}),
}


def crowded(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws points nine tenths of which lie in the lowest 3 % of both ranges."""
    inside = random.random(ROWS) < 0.9
    a, b = (np.where(inside, random.uniform(0, 30, ROWS), random.uniform(0, 1000, ROWS)) for _ in range(2))
    return a, b


def even(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws points everywhere."""
    return random.uniform(0, 1000, ROWS), random.uniform(0, 1000, ROWS)


def frame_of(points: Points, random: np.random.Generator) -> pd.DataFrame:
    """Returns rows whose target follows their ranks in both columns, by four by four fields, with noise."""
    a, b = points(random)
    row, column = (np.argsort(np.argsort(values)) * 4 // ROWS for values in (a, b))
    target = (row + column) % 2 * 0.5 + 0.25 + random.normal(0, 0.1, ROWS)
    return pd.DataFrame({"a": a, "b": b, "y": np.clip(target, 0, 1)})


def error(miner: type, points: Points, run: int, params: Params) -> float:
    """Returns the mean squared error of one fit."""
    random = np.random.default_rng(run)
    rows, tested = frame_of(points, random), frame_of(points, random)
    with pinq.simulate(SCHEMA, data=rows, epsilon=EPSILON) as handle:
        model = miner(epsilon=EPSILON, random_state=run, **params).fit(handle, "y")
    return float(np.mean(np.square(model.predict(tested) - tested["y"])))


def settings() -> Iterator[tuple[str, Params]]:
    """Yields what is compared, by name."""
    for depth in DEPTHS:
        yield f"depth {depth}", {"max_depth": depth}
    for share in (0.2, 0.4):
        yield f"to depth {MAX_DEPTH}, stopping={share}", {"max_depth": MAX_DEPTH, "stopping": share}


def main() -> None:
    """Measures and prints, a line for each setting."""
    shapes = (even, crowded)
    heads = [f"{name}, {points.__name__}" for name in MINERS for points in shapes]
    print(f"| | {' | '.join(heads)} |\n" + "|---" * (len(heads) + 1) + "|")
    for name, params in settings():
        texts = []
        for miner, fixed in MINERS.values():
            for points in shapes:
                errors = [error(miner, points, run, {**fixed, **params}) for run in range(RUNS)]
                texts.append(f"{np.mean(errors):.4f} ± {np.std(errors, ddof=1):.4f}")
        print(f"| {name} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
