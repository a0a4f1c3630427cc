# SPDX-License-Identifier: Apache-2.0
"""Data sets of the experiments: Parquet files, each with its public schema as JSON beside it. They are not part of the project."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from pinq.public.schema import Schema

__all__ = ["DEFAULT", "folder", "load", "stratified_folds", "why_missing"]

DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "data"


def folder() -> Path:
    """Where the data sets are: the environment variable ``PINQ_DATA``, else ``../shared/data`` beside the project."""
    return Path(os.environ.get("PINQ_DATA", DEFAULT))


def load(name: str, *, max_rows: int | None = None) -> tuple[Schema, str, pd.DataFrame]:
    """A data set: its schema, its target, its rows; without time stamps, which no column of a schema can hold.

    Args:
        name: Like ``adult``.
        max_rows: The row cap that the schema declares; by default the next power of ten times 1, 2 or 5.

    Raises:
        SystemExit: The data set is not there; says what to do.
    """
    if reason := why_missing(name):
        raise SystemExit(reason)
    rows, facts = (
        pd.read_parquet(folder() / f"{name}.parquet"),
        json.loads((folder() / f"{name}.json").read_text(encoding="utf-8")),
    )
    stamps = [column for column, declared in facts["columns"].items() if declared["type"] == "timestamp"]
    columns = {
        column: declared | {"nullable": bool(rows[column].isna().any())}
        for column, declared in facts["columns"].items()
        if column not in stamps
    }
    return Schema(columns=columns, max_rows=max_rows or _cap(len(rows))), facts["target"], rows.drop(columns=stamps)


def why_missing(name: str) -> str:
    """What to do where a data set is not there; empty where it is."""
    if all((folder() / f"{name}.{kind}").exists() for kind in ("parquet", "json")):
        return ""
    return (
        f"The data set {name!r} is not in {folder()}: {name}.parquet and {name}.json are needed. Say where they are: PINQ_DATA=/path/to/data make ...\n"
        "They are UCI's data sets as Parquet; the JSON declares `target` and, for each of `columns`, what a policy would."
    )


def _cap(rows: int) -> int:
    power = 10 ** (len(str(rows)) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rows)


def stratified_folds(classes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Which fold tests each row, shape (rows,): at random, with the same share of each class in every fold."""
    random = np.random.default_rng([seed, folds])
    order = random.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    fold = np.empty(len(classes), dtype=np.int64)
    fold[order] = np.arange(len(classes)) % folds
    return fold
