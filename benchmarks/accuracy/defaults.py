# SPDX-License-Identifier: Apache-2.0
"""The quality of the rule for DiffPC45's depth: accuracy over max_depth, the rule's choice with a star.

    python -m benchmarks.accuracy.defaults car banknote --epsilons 0.5 2 --runs 10
    python -m benchmarks.accuracy.defaults adult --epsilons 1 --runs 1 --rows 1000000

Each data set (benchmarks/harness/datasets.py says where they are looked for) is split 90/10; see
docs/defaults.md. With ``--rows`` so many rows are made up of it: attributes of rows drawn from the table, 15 % of
the values each from another row, and classes by the probabilities of a random forest on the table. A second line
then has the processor seconds of each fit.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

import pinq
from benchmarks.harness.datasets import load
from miners import DiffPC45, DiPriMeForestClassifier
from miners.fitted.route import encode
from pinq.public.schema import Schema

DEPTHS = range(1, 13)
MINERS = {miner.__name__: miner for miner in (DiffPC45, DiPriMeForestClassifier)}
OTHER = 0.15  # share of the values that are from another row


def made_up(schema: Schema, target: str, rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Makes up rows that resemble a table's: the same ones each time."""
    random, attributes = np.random.default_rng(0), [name for name in schema.columns if name != target]
    order = random.integers(0, len(rows), number)
    drawn = {
        name: rows[name].to_numpy()[np.where(random.random(number) < OTHER, random.permutation(order), order)]
        for name in attributes
    }
    codes = [
        np.column_stack([encode(schema, name, table) for name in attributes]) for table in (rows, pd.DataFrame(drawn))
    ]
    forest = RandomForestClassifier(40, min_samples_leaf=4, random_state=0).fit(codes[0], rows[target].astype(str))
    ends = forest.predict_proba(codes[1]).cumsum(axis=1)
    classes = (random.random((number, 1)) > ends[:, :-1]).sum(axis=1)
    return pd.DataFrame({**drawn, target: forest.classes_[classes]})[list(schema.columns)]


def accuracies(miner: str, name: str, epsilon: float, runs: int, number: int) -> tuple[list[float], list[float], int]:
    """Returns the mean test accuracy and processor seconds at each of ``DEPTHS``, and the rule's depth."""
    schema, target, rows = load(name)
    rows = rows[list(schema.columns)]
    if number:
        schema = Schema(columns=schema.columns, max_rows=number)
        rows = made_up(schema, target, rows, number)
    scores, seconds = np.zeros((2, runs, len(DEPTHS)))
    for run in range(runs):
        order = np.random.default_rng(run).permutation(len(rows))
        test, train = rows.iloc[order[: len(rows) // 10]], rows.iloc[order[len(rows) // 10 :]]
        with pinq.simulate(schema, data=train, epsilon=epsilon * len(DEPTHS)) as handle:
            for place, depth in enumerate(DEPTHS):
                began = time.process_time()
                model = MINERS[miner](epsilon=epsilon, max_depth=depth).fit(handle, target)
                seconds[run, place] = time.process_time() - began
                scores[run, place] = model.score(test)
    chosen = max(line.level for line in MINERS[miner](epsilon=epsilon).plan(schema, target).lines)
    return scores.mean(axis=0).tolist(), seconds.mean(axis=0).tolist(), chosen


def main() -> None:
    """Prints a line for each data set and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1, 2])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=0, help="so many rows are made up of each data set")
    parser.add_argument("--miner", choices=MINERS, default="DiffPC45")
    asked = parser.parse_args()
    print(f"{'max_depth':<28}" + "".join(f"{depth:>8}" for depth in DEPTHS))
    for name in asked.datasets:
        for epsilon in asked.epsilons:
            means, seconds, chosen = accuracies(asked.miner, name, epsilon, asked.runs, asked.rows)
            stars = ["*" if depth == chosen else " " for depth in DEPTHS]
            line = "".join(f"{mean:7.3f}{star}" for mean, star in zip(means, stars, strict=True))
            print(f"{f'{name}, epsilon {epsilon:g}':<28}{line}", flush=True)
            if asked.rows:
                print(f"{'processor seconds':<28}" + "".join(f"{one:7.1f} " for one in seconds), flush=True)


if __name__ == "__main__":
    main()
