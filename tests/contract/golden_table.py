# SPDX-License-Identifier: Apache-2.0
"""The table that the golden files are about: its columns, and rows of the same kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "values": ["Female", "Male"]},
    "job": {"type": "categorical", "values": ["clerk", "nurse", "smith", "Bäcker", "01067"], "nullable": True},
    "smoker": {"type": "categorical", "values": [False, True]},
    "grade": {"type": "categorical", "values": [1, 2, 3]},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
    "rate": {"type": "numeric", "lower": -1.5, "upper": 2.5, "step": 0.125, "nullable": True},
    "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
}


def rows(count: int, seed: int = 1) -> pd.DataFrame:
    """Dummy rows in which income follows age, job and grade."""
    draw = np.random.default_rng(seed)
    job = draw.choice(np.array(["clerk", "nurse", "smith", "Bäcker", "01067", None], dtype=object), count)
    age, grade = draw.integers(0, 100, count), draw.integers(1, 4, count)
    rich = (age > 45) & (grade > 1) | (job == "smith") & (draw.random(count) < 0.7)
    rate = np.round(draw.uniform(-1.5, 2.5, count), 2)
    return pd.DataFrame(
        {
            "sex": draw.choice(["Female", "Male"], count),
            "job": job,
            "smoker": draw.random(count) < 0.3,
            "grade": grade,
            "age": age,
            "rate": pd.Series(rate).where(draw.random(count) < 0.9),
            "income": np.where(rich, ">50K", "<=50K"),
        }
    )
