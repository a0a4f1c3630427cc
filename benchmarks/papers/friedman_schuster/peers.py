# SPDX-License-Identifier: Apache-2.0
"""diffprivlib's tree and forest on given folds; runs in the peers' interpreter.

It reads the runs that are asked for, and prints each accuracy as JSON. Features are codes (a
category's rank in its declared list, a number's grid cell); bounds and classes are declared. This
encoding did better than one-hot in a trial at depths 2, 5 and 10, for the tree and for the forest.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import DecisionTreeClassifier, RandomForestClassifier


def main() -> None:
    """Measures what was asked for on standard input."""
    warnings.simplefilter("ignore")  # a warning for each fit that epsilon is spent
    data = np.load(sys.argv[1])
    features, classes, upper, folds = data["features"], data["classes"], data["upper"], data["folds"]
    for name, epsilon, run in json.load(sys.stdin):
        tested = folds[run // 10] == run % 10
        kind = RandomForestClassifier if "forest" in name else DecisionTreeClassifier
        model = kind(
            epsilon=epsilon, max_depth=int(name.rsplit(" ", 1)[1]), bounds=(np.zeros(len(upper)), upper), classes=[0, 1]
        )
        model.fit(features[~tested], classes[~tested])
        print(json.dumps([name, epsilon, run, model.score(features[tested], classes[tested])]), flush=True)


if __name__ == "__main__":
    main()
