# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
# (none of what it measures is installed beside pinq)
"""diffprivlib's linear regression and PCA on given arrays; runs in the peers' interpreter.

``python linear_peers.py FILE`` reads an ``npz`` of rows within -1 and 1, and prints predictions or
components for each fit that is asked for on standard input as ``["regression" | "pca", epsilon,
run]``, a line of JSON each. Bounds are given; nothing is read off the rows. A fit without an answer
after ``LIMIT`` CPU seconds is ``null``: of many columns nearly all draws of PCA are rejected.
"""

from __future__ import annotations

import json
import signal
import sys
import warnings

import numpy as np
from diffprivlib.models import PCA, LinearRegression

LIMIT = 10


def stopped(number, frame):
    """Ends a fit."""
    raise TimeoutError


def answer(arrays, kind, epsilon, run):
    """Fits one model; returns what it predicts for the test rows, or its components."""
    train = arrays["train"]
    ends = -np.ones(train.shape[1]), np.ones(train.shape[1])
    if kind == "regression":
        model = LinearRegression(epsilon=epsilon, bounds_X=ends, bounds_y=(-1, 1), random_state=run)
        return model.fit(train, arrays["target"]).predict(arrays["test"]).tolist()
    count = int(arrays["components"])
    norm = float(np.sqrt(train.shape[1]))
    model = PCA(count, epsilon=epsilon, bounds=ends, data_norm=norm, random_state=run)
    return model.fit(train).components_.tolist()


def main() -> None:
    warnings.simplefilter("ignore")
    arrays = np.load(sys.argv[1])
    signal.signal(signal.SIGPROF, stopped)
    for kind, epsilon, run in json.load(sys.stdin):
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            found = answer(arrays, kind, epsilon, run)
        except TimeoutError:
            found = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
