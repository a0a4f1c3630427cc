# SPDX-License-Identifier: Apache-2.0
"""Stopping where rows become too few, at one charge for any depth, beside fixed depths: on made-up rows that lie evenly, and on such as crowd in a few places.

Prints the table of docs/decisions/0013-stopping-asks-whole-trees.md: ``python -m benchmarks.papers.diprime.stopping``. Some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

import pinq
from miners import DiPriMeTreeRegressor, DPExtraTreesRegressor
from pinq.public.schema import Numeric, Schema

ROWS, RUNS, TREES, DEEP, EPSILON = 20_000, 10, 3, 10, 1.0
SCHEMA = Schema(
    columns={"a": Numeric(lower=0, upper=1000), "b": Numeric(lower=0, upper=1000), "y": Numeric(lower=0, upper=1)},
    max_rows=ROWS,
)
DEPTHS = (2, 4, 6, 8, DEEP)


def crowded(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Nine tenths of the rows in the lowest 3 % of both ranges."""
    inside = random.random(ROWS) < 0.9
    return tuple(np.where(inside, random.uniform(0, 30, ROWS), random.uniform(0, 1000, ROWS)) for _ in range(2))  # type: ignore[return-value]


def even(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows everywhere."""
    return random.uniform(0, 1000, ROWS), random.uniform(0, 1000, ROWS)


def made(
    places: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]], random: np.random.Generator
) -> pd.DataFrame:
    """Rows whose target follows their ranks in both columns, in a pattern of four by four fields, with some noise."""
    a, b = places(random)
    ranks = [np.argsort(np.argsort(one)) * 4 // ROWS for one in (a, b)]
    return pd.DataFrame(
        {"a": a, "b": b, "y": np.clip((ranks[0] + ranks[1]) % 2 * 0.5 + 0.25 + random.normal(0, 0.1, ROWS), 0, 1)}
    )


def error(miner: type, rows: pd.DataFrame, tested: pd.DataFrame, **params: object) -> float:
    """Mean squared error."""
    with pinq.simulate(SCHEMA, data=rows, epsilon=EPSILON) as handle:
        return float(
            np.mean(np.square(miner(epsilon=EPSILON, **params).fit(handle, "y").predict(tested) - tested["y"]))
        )  # type: ignore[call-arg]


def main() -> None:
    """Measures and prints."""
    settings: list[tuple[str, dict[str, object]]] = [(f"depth {depth}", {"max_depth": depth}) for depth in DEPTHS]
    settings += [(f"to depth {DEEP}, stopping={share}", {"max_depth": DEEP, "stopping": share}) for share in (0.2, 0.4)]
    print(
        "| | "
        + " | ".join(
            f"{kind}, {place.__name__}" for kind in ("random splits", "best splits") for place in (even, crowded)
        )
        + " |\n"
        + "|---" * 5
        + "|"
    )
    for name, params in settings:
        cells: list[Sequence[float]] = []
        for miner, fixed in ((DPExtraTreesRegressor, {"n_estimators": TREES}), (DiPriMeTreeRegressor, {})):
            for place in (even, crowded):
                found = []
                for run in range(RUNS):
                    random = np.random.default_rng(run)
                    found.append(
                        error(miner, made(place, random), made(place, random), random_state=run, **fixed, **params)
                    )
                cells.append(found)
        print(
            f"| {name} | " + " | ".join(f"{np.mean(one):.4f} ± {np.std(one, ddof=1):.4f}" for one in cells) + " |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
