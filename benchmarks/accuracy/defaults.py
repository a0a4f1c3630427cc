# SPDX-License-Identifier: Apache-2.0
"""How good the rule for DiffPC45's depth is: accuracy over max_depth, the rule's choice with a star.

    python -m benchmarks.accuracy.defaults car banknote --epsilons 0.5 2 --runs 10

Each data set (benchmarks/harness/datasets.py says where they are looked for) is split 90/10; see
docs/defaults.md.
"""

from __future__ import annotations

import argparse

import numpy as np

import pinq
from benchmarks.harness.datasets import load
from miners import DiffPC45

DEPTHS = range(1, 10)


def accuracies(name: str, epsilon: float, runs: int) -> tuple[list[float], int]:
    """Returns the mean test accuracy at each of ``DEPTHS``, and the depth that the rule chooses."""
    schema, target, rows = load(name)
    rows = rows[list(schema.columns)]
    scores = np.zeros((runs, len(DEPTHS)))
    for run in range(runs):
        order = np.random.default_rng(run).permutation(len(rows))
        test, train = rows.iloc[order[: len(rows) // 10]], rows.iloc[order[len(rows) // 10 :]]
        with pinq.simulate(schema, data=train, epsilon=epsilon * len(DEPTHS)) as handle:
            models = [DiffPC45(epsilon=epsilon, max_depth=depth).fit(handle, target) for depth in DEPTHS]
        scores[run] = [model.score(test) for model in models]
    chosen = max(line.level for line in DiffPC45(epsilon=epsilon).plan(schema, target).lines)
    return scores.mean(axis=0).tolist(), chosen


def main() -> None:
    """Prints a line for each data set and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1, 2])
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args()
    print(f"{'max_depth':<28}" + "".join(f"{depth:>8}" for depth in DEPTHS))
    for name in asked.datasets:
        for epsilon in asked.epsilons:
            means, chosen = accuracies(name, epsilon, asked.runs)
            stars = ["*" if depth == chosen else " " for depth in DEPTHS]
            line = "".join(f"{mean:7.3f}{star}" for mean, star in zip(means, stars, strict=True))
            print(f"{f'{name}, epsilon {epsilon:g}':<28}{line}", flush=True)


if __name__ == "__main__":
    main()
