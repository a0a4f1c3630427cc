# SPDX-License-Identifier: Apache-2.0
"""Seconds that diffprivlib's forest takes on given features; runs in the peers' interpreter.

Prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import RandomForestClassifier


def main() -> None:
    """Measures the file that is named: the least of three."""
    warnings.simplefilter("ignore")  # a warning for each fit that epsilon is spent
    data = np.load(sys.argv[1])
    seconds = []
    for _ in range(3):
        model = RandomForestClassifier(
            n_estimators=int(sys.argv[2]),
            max_depth=int(sys.argv[3]),
            epsilon=1.0,
            bounds=(np.zeros(len(data["upper"])), data["upper"]),
            classes=[0, 1],
        )
        began = time.perf_counter()
        model.fit(data["features"], data["classes"])
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": min(seconds), "accuracy": model.score(data["features"], data["classes"])}))


if __name__ == "__main__":
    main()
