# SPDX-License-Identifier: Apache-2.0
"""A histogram of 100 keys over a million rows by other libraries; prints median seconds as JSON, or why one could not be measured."""

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


def diffprivlib() -> Callable[[], Any]:
    """``diffprivlib.tools.histogram`` with declared range."""
    from diffprivlib.tools import histogram

    return lambda: histogram(KEYS, epsilon=0.1, bins=100, range=(0, 99))


def opendp_polars() -> Callable[[], Any]:
    """OpenDP's Polars face, keys declared."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    rows = pl.LazyFrame({"k": KEYS.astype(np.int32)})
    keys = pl.LazyFrame({"k": np.arange(100, dtype=np.int32)})

    def ask() -> Any:
        context = dp.Context.compositor(
            data=rows,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=0.1),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=[], max_length=2_000_000)],
        )
        return context.query().group_by("k").agg(dp.len()).with_keys(keys).release().collect()

    return ask


def smartnoise() -> Callable[[], Any]:
    """SmartNoise SQL over a pandas frame, keys not censored."""
    import pandas as pd
    import snsql

    frame = pd.DataFrame({"k": KEYS, "id": np.arange(len(KEYS))})
    described = {
        "": {
            "s": {
                "t": {
                    "row_privacy": True,
                    "rows": len(KEYS),
                    "censor_dims": False,
                    "k": {"type": "int", "lower": 0, "upper": 99},
                }
            }
        }
    }
    reader = snsql.from_df(frame, metadata=described, privacy=snsql.Privacy(epsilon=0.1, delta=1e-9))
    return lambda: reader.execute("SELECT k, COUNT(*) AS n FROM s.t GROUP BY k")


def main() -> None:
    """Measures what is installed."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, prepare in {
        "diffprivlib": diffprivlib,
        "OpenDP Polars": opendp_polars,
        "SmartNoise SQL": smartnoise,
    }.items():
        try:
            ask = prepare()
            ask()
            times = []
            for _ in range(5):
                began = time.perf_counter()
                ask()
                times.append(time.perf_counter() - began)
            found[name] = statistics.median(times)
        except Exception as error:
            found[name] = (
                "not installed" if isinstance(error, ModuleNotFoundError) else f"failed: {type(error).__name__}"
            )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
