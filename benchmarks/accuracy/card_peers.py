# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
# (none of what it measures is installed beside pinq)
"""DP-EBM, diffprivlib's models, and boosting without privacy, on given splits; runs in the peers' interpreter.

``python card_peers.py FILE`` reads the columns' bounds and declared values, and splits, and prints
for each fit that is asked for on standard input the class shares of the test rows' last class as
JSON. Nothing is read off the rows: bounds, values and classes are given, and rows are scaled by
these.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
import warnings

import numpy as np
import pandas as pd

DELTA = 1e-5


def one_hot(frame: pd.DataFrame, columns: dict[str, dict]) -> np.ndarray:
    """Returns features from 0 to 1: a number in its bounds, a column for each declared value."""
    features = []
    for name, declared in columns.items():
        if "values" in declared:
            features += [(frame[name] == value).to_numpy(float) for value in declared["values"]]
        else:
            low, high = declared["lower"], declared["upper"]
            features.append(((frame[name].to_numpy(float) - low) / (high - low)).clip(0, 1))
    return np.column_stack(features)


def codes(frame: pd.DataFrame, columns: dict[str, dict]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns features as numbers, a category by its rank, with their bounds."""
    features, lower, upper = [], [], []
    for name, declared in columns.items():
        if "values" in declared:
            rank = {value: number for number, value in enumerate(declared["values"])}
            features.append(frame[name].map(rank).to_numpy(float))
            lower, upper = [*lower, 0], [*upper, len(rank) - 1]
        else:
            features.append(frame[name].to_numpy(float).clip(declared["lower"], declared["upper"]))
            lower, upper = [*lower, declared["lower"]], [*upper, declared["upper"]]
    return np.column_stack(features), np.array(lower, float), np.array(upper, float)


def ebm(columns, train, y, test, epsilon):
    """Fits DP-EBM with its defaults, bounds and categories given."""
    from interpret.privacy import DPExplainableBoostingClassifier

    kinds = ["nominal" if "values" in declared else "continuous" for declared in columns.values()]
    bounds = {
        number: (declared["lower"], declared["upper"])
        for number, declared in enumerate(columns.values())
        if "values" not in declared
    }
    model = DPExplainableBoostingClassifier(epsilon=epsilon, delta=DELTA, feature_types=kinds, privacy_bounds=bounds)
    return model.fit(train, y).predict_proba(test)


def logistic(columns, train, y, test, epsilon):
    """Fits diffprivlib's logistic regression on one-hot features, whose norm has a public bound."""
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(epsilon=epsilon, data_norm=len(columns) ** 0.5, max_iter=1000)
    return model.fit(one_hot(train, columns), y).predict_proba(one_hot(test, columns))


def forest(columns, train, y, test, epsilon):
    """Fits diffprivlib's forest with its defaults on codes."""
    from diffprivlib.models import RandomForestClassifier

    features, lower, upper = codes(train, columns)
    model = RandomForestClassifier(epsilon=epsilon, bounds=(lower, upper), classes=[0, 1])
    return model.fit(features, y).predict_proba(codes(test, columns)[0])


def boosting(depth, rounds):
    """Fits scikit-learn's boosting, without noise: with stumps it adds up as a scorecard does."""

    def fit(columns, train, y, test, epsilon):
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(max_depth=depth, max_iter=rounds, random_state=0)
        return model.fit(codes(train, columns)[0], y).predict_proba(codes(test, columns)[0])

    return fit


PEERS = {
    "DP-EBM": ebm,
    "diffprivlib logistic": logistic,
    "diffprivlib forest": forest,
    "boosted stumps": boosting(1, 300),
    "boosted trees": boosting(None, 100),
}


def main() -> None:
    """Fits what is asked for: one line of JSON for each."""
    warnings.simplefilter("ignore")
    task = json.loads(sys.stdin.read())
    frame, columns, target = pd.read_parquet(task["rows"]), task["columns"], task["target"]
    for name, declared in columns.items():
        if "values" in declared:
            frame[name] = frame[name].astype(object)
    y, tested = frame[target].to_numpy(), frame["tested"].to_numpy()
    versions = {name: importlib.metadata.version(name) for name in ("interpret-core", "diffprivlib", "scikit-learn")}
    for name, epsilon in task["asked"]:
        began = time.perf_counter()
        train, test = frame.loc[~tested, list(columns)], frame.loc[tested, list(columns)]
        shares = PEERS[name](columns, train, y[~tested], test, epsilon)
        seconds = time.perf_counter() - began
        line = {"name": name, "epsilon": epsilon, "shares": np.asarray(shares)[:, 1].tolist()}
        print(json.dumps({**line, "seconds": seconds, "versions": versions}), flush=True)


if __name__ == "__main__":
    main()
