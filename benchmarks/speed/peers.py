# SPDX-License-Identifier: Apache-2.0
"""The time of other libraries for a histogram, a tree or a forest; runs in the peers' interpreter.

``python peers.py NAME ROUNDS FILE.npz`` prints the wall and processor seconds of so many calls, after
one that is not counted where they are more than one, as JSON; or why it could not be measured. The
file has ``keys`` and ``size`` for a histogram of the keys 0 .. size - 1; for trees ``features`` and
``classes``, their ``depth``, and ``trees``, how many a forest has.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

EPSILON = 0.1
Call = Callable[[], object]


def diffprivlib(keys: np.ndarray, size: int) -> Call:
    """``diffprivlib.tools.histogram`` with a declared range."""
    from diffprivlib.tools import histogram

    return lambda: histogram(keys, epsilon=EPSILON, bins=size, range=(0, max(1, size - 1)))


def opendp_polars(keys: np.ndarray, size: int) -> Call:
    """OpenDP's Polars face, keys declared."""
    import opendp.prelude
    import polars as pl

    dp: Any = opendp.prelude
    dp.enable_features("contrib")
    rows = pl.LazyFrame({"k": keys.astype(np.int32)})
    declared = pl.LazyFrame({"k": np.arange(size, dtype=np.int32)})

    def ask() -> object:
        context = dp.Context.compositor(
            data=rows,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=EPSILON),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=[], max_length=2 * len(keys))],
        )
        return context.query().group_by("k").agg(dp.len()).with_keys(declared).release().collect()

    return ask


def smartnoise(keys: np.ndarray, size: int) -> Call:
    """SmartNoise SQL over a pandas frame, keys not censored."""
    import pandas as pd
    import snsql

    frame = pd.DataFrame({"k": keys, "id": np.arange(len(keys))})
    column = {"type": "int", "lower": 0, "upper": max(1, size - 1)}
    table = {"row_privacy": True, "rows": len(keys), "censor_dims": False, "k": column}
    metadata = {"": {"s": {"t": table}}}
    reader = snsql.from_df(frame, metadata=metadata, privacy=snsql.Privacy(epsilon=EPSILON, delta=1e-9))
    return lambda: reader.execute("SELECT k, COUNT(*) AS n FROM s.t GROUP BY k")


def sklearn_tree(features: np.ndarray, classes: np.ndarray, depth: int, trees: int) -> Call:
    """A tree of scikit-learn, or a forest of random splits, not private, on one thread."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.tree import DecisionTreeClassifier

    model = ExtraTreesClassifier(trees, max_depth=depth) if trees else DecisionTreeClassifier(max_depth=depth)
    return lambda: model.fit(features, classes)


def diffprivlib_tree(features: np.ndarray, classes: np.ndarray, depth: int, trees: int) -> Call:
    """A tree of diffprivlib, or a forest of such: random splits, noisy leaves."""
    from diffprivlib.models import DecisionTreeClassifier, RandomForestClassifier

    known = {"max_depth": depth, "epsilon": 1.0, "bounds": (0, float(features.max()))}
    known["classes"] = sorted(set(classes.tolist()))
    model = RandomForestClassifier(trees, **known) if trees else DecisionTreeClassifier(**known)
    return lambda: model.fit(features, classes)


def lightgbm(features: np.ndarray, classes: np.ndarray, depth: int, trees: int) -> Call:
    """The data set of LightGBM and a round for each tree, not private, on two threads."""
    import lightgbm as library

    number = int(classes.max()) + 1
    kind = {"objective": "binary"} if number == 2 else {"objective": "multiclass", "num_class": number}
    settings = {**kind, "num_leaves": max(2, 2**depth), "max_depth": depth, "num_threads": 2, "verbosity": -1}
    return lambda: library.train(settings, library.Dataset(features, classes, params=settings), max(1, trees))


HISTOGRAMS = {"diffprivlib": diffprivlib, "OpenDP Polars": opendp_polars, "SmartNoise SQL": smartnoise}
TREES = {"scikit-learn": sklearn_tree, "LightGBM": lightgbm, "diffprivlib tree": diffprivlib_tree}


def prepared(name: str, path: str) -> Call:
    """Returns what is timed."""
    with np.load(path) as arrays:
        if name in HISTOGRAMS:
            return HISTOGRAMS[name](arrays["keys"].astype(np.int64), int(arrays["size"]))
        sizes = int(arrays["depth"]), int(arrays["trees"])
        return TREES[name](arrays["features"].astype(np.float32), arrays["classes"], *sizes)


def measured(call: Call, rounds: int) -> list[tuple[float, float]]:
    """Returns wall and processor seconds of each call, the latter of all threads."""
    if rounds > 1:
        call()
    spent = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    return spent


def main() -> None:
    """Measures one peer."""
    warnings.simplefilter("ignore")
    name, rounds, path = sys.argv[1:]
    try:
        answer: object = measured(prepared(name, path), int(rounds))
    except ModuleNotFoundError:
        answer = "not installed"
    except Exception as error:
        answer = f"failed: {type(error).__name__}"
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
