# SPDX-License-Identifier: Apache-2.0
"""A histogram of 100 keys over a million rows by other libraries; runs in the peers' interpreter.

Prints the median seconds of each as JSON, or why it could not be measured.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

KEYS = np.random.default_rng(2).integers(0, 100, 1_000_000)


def diffprivlib() -> Callable[[], object]:
    """Prepares ``diffprivlib.tools.histogram`` with a declared range."""
    from diffprivlib.tools import histogram

    return lambda: histogram(KEYS, epsilon=0.1, bins=100, range=(0, 99))


def opendp_polars() -> Callable[[], object]:
    """Prepares OpenDP's Polars face, keys declared."""
    import opendp.prelude
    import polars as pl

    dp: Any = opendp.prelude
    dp.enable_features("contrib")
    rows = pl.LazyFrame({"k": KEYS.astype(np.int32)})
    keys = pl.LazyFrame({"k": np.arange(100, dtype=np.int32)})

    def ask() -> object:
        context = dp.Context.compositor(
            data=rows,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=0.1),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=[], max_length=2_000_000)],
        )
        return context.query().group_by("k").agg(dp.len()).with_keys(keys).release().collect()

    return ask


def smartnoise() -> Callable[[], object]:
    """Prepares SmartNoise SQL over a pandas frame, keys not censored."""
    import pandas as pd
    import snsql

    frame = pd.DataFrame({"k": KEYS, "id": np.arange(len(KEYS))})
    column = {"type": "int", "lower": 0, "upper": 99}
    table = {"row_privacy": True, "rows": len(KEYS), "censor_dims": False, "k": column}
    metadata = {"": {"s": {"t": table}}}
    reader = snsql.from_df(frame, metadata=metadata, privacy=snsql.Privacy(epsilon=0.1, delta=1e-9))
    return lambda: reader.execute("SELECT k, COUNT(*) AS n FROM s.t GROUP BY k")


PEERS = {"diffprivlib": diffprivlib, "OpenDP Polars": opendp_polars, "SmartNoise SQL": smartnoise}


def median_seconds(prepare: Callable[[], Callable[[], object]], rounds: int = 5) -> float:
    """Returns the median seconds of a peer's histogram, after one that is not counted."""
    ask = prepare()
    ask()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    """Measures what is installed."""
    warnings.simplefilter("ignore")
    results: dict[str, float | str] = {}
    for name, prepare in PEERS.items():
        try:
            results[name] = median_seconds(prepare)
        except ModuleNotFoundError:
            results[name] = "not installed"
        except Exception as error:
            results[name] = f"failed: {type(error).__name__}"
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
