# SPDX-License-Identifier: Apache-2.0
"""Runs the verbs of one checkout when told to; of the library it knows public names only.

``python verbs_worker.py CHECKOUT`` with that checkout on PYTHONPATH prints the checkout that it runs,
then reads a verb's name a line, calls it once and prints the processor seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import pinq
from miners import DiffPC45

UNLIMITED_EPSILON = 10**6
EPSILON = 0.01
N_KEYS, N_ROWS = 100, 1_000_000


def verbs(checkout: Path) -> dict[str, Callable[[], object]]:
    """Returns what can be called: Adult's verbs and a fit, and a histogram of made-up keys."""
    policy = pinq.load_policy(checkout / "policies" / "adult.yaml")
    rows = pd.read_parquet(checkout / "data" / "adult.parquet")
    adult = pinq.simulate(policy, data=rows, epsilon=UNLIMITED_EPSILON)
    cuts = [pinq.AnyCut("age"), pinq.AnyCut("hours_per_week")]
    score = pinq.Gini("income")
    keys = {"k": {"type": "categorical", "values": list(range(N_KEYS))}}
    schema = pinq.Schema(columns=keys, max_rows=2 * N_ROWS)
    table = pd.DataFrame({"k": np.random.default_rng(2).integers(0, N_KEYS, N_ROWS)})
    parts = pinq.simulate(schema, data=table, epsilon=UNLIMITED_EPSILON).partition(pinq.Values("k"))
    return {
        "count": lambda: adult.noisy_count(epsilon=EPSILON),
        "sum": lambda: adult.noisy_sum("age", epsilon=EPSILON),
        "avg": lambda: adult.noisy_avg("age", epsilon=EPSILON),
        "histogram": lambda: parts.noisy_count(epsilon=EPSILON),
        "exp_mech": lambda: adult.exp_mech(cuts, score=score, epsilon=EPSILON),
        "fit": lambda: DiffPC45(epsilon=1.0).fit(adult, "income"),
    }


def main() -> None:
    """Answers until standard input ends."""
    print(Path(pinq.__file__).resolve().parents[1], flush=True)
    called = verbs(Path(sys.argv[1]))
    for line in sys.stdin:
        call = called[line.strip()]
        began = time.process_time()
        call()
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()
