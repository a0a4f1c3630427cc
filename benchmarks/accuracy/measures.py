# SPDX-License-Identifier: Apache-2.0
"""The figures of a fitted miner on test rows: accuracy, and the quality of its class probabilities.

Three numbers judge class probabilities: the area under the ROC curve (the order of rows), the log loss, and ``off``
(the distance from the frequencies of the classes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

__all__ = ["MEASURES", "Model", "figures", "shares_figures"]

BINS = 10  # of predicted shares
LEAST = 1e-6  # a share below it counts as it, so that one sure mistake is no infinite loss
MEASURES: Mapping[str, str] = {
    "accuracy": "share of test rows whose class is predicted",
    "auc": "area under the ROC curve; of many classes the mean of one against the rest, by their rows",
    "log_loss": "mean of -ln of the share that the row's own class was given, none below 1e-6",
    "off": "mean difference between predicted shares and what happened, over ten bins of shares; "
    "of many classes, of the likeliest class",
    "r2": "coefficient of determination",
}


class Model(Protocol):
    """A fitted miner, or what stands beside one."""

    def score(self, X: pd.DataFrame) -> float:
        """Returns accuracy, or the coefficient of determination of means."""


def figures(miner: Model, test: pd.DataFrame, target: str) -> dict[str, float]:
    """Returns the figures of a fitted miner on test rows, by measure."""
    classes = getattr(miner, "classes_", None)
    if classes is None:
        return {"r2": miner.score(test)}
    shares = np.asarray(miner.predict_proba(test))  # type: ignore[attr-defined]  # whoever has classes
    number = {value: position for position, value in enumerate(classes)}
    truth = test[target].map(number).to_numpy()
    known = ~np.isnan(truth.astype(np.float64))
    return {"accuracy": miner.score(test)} | shares_figures(shares[known], truth[known].astype(np.int64))


def shares_figures(shares: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Returns the figures of class probabilities.

    Args:
        shares: Class probabilities, shape (rows, classes).
        truth: The number of each row's class, shape (rows,).
    """
    own = np.maximum(shares[np.arange(len(truth)), truth], LEAST)
    if shares.shape[1] == 2:
        sure, happened = shares[:, 1], truth == 1
    else:
        sure, happened = shares.max(axis=1), shares.argmax(axis=1) == truth
    return {"auc": _auc(shares, truth), "log_loss": float(-np.log(own).mean()), "off": _off(sure, happened)}


def _auc(shares: np.ndarray, truth: np.ndarray) -> float:
    """Returns the area for two classes; for more the mean over the classes that occur, by rows."""
    if shares.shape[1] == 2:
        return float(roc_auc_score(truth == 1, shares[:, 1]))
    rows = np.bincount(truth, minlength=shares.shape[1])
    occurring = [number for number, count in enumerate(rows) if 0 < count < len(truth)]
    areas = [roc_auc_score(truth == number, shares[:, number]) for number in occurring]
    return float(np.average(areas, weights=rows[occurring]))


def _off(shares: np.ndarray, happened: np.ndarray) -> float:
    """Returns the expected calibration error over bins of equal width."""
    bins = np.minimum((shares * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, shares - happened, BINS)).sum() / len(shares))
