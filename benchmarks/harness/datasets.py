# SPDX-License-Identifier: Apache-2.0
"""Data sets of the experiments: Parquet files, each with its public schema as JSON beside it.

They are not part of the project.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from pinq.public.schema import Schema

__all__ = ["DEFAULT", "declared", "folder", "load", "stratified_folds", "why_missing"]

DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "data"


def folder() -> Path:
    """Returns the folder of the data sets: ``PINQ_DATA``, else ``../shared/data`` beside the project."""
    return Path(os.environ.get("PINQ_DATA", DEFAULT))


def declared(name: str) -> tuple[dict[str, dict[str, object]], str]:
    """Returns the public facts of a data set: its columns as a policy would declare them, and its target."""
    public = json.loads((folder() / f"{name}.json").read_text(encoding="utf-8"))
    return public["columns"], public["target"]


def load(name: str, *, max_rows: int | None = None) -> tuple[Schema, str, pd.DataFrame]:
    """Reads a data set: its schema, its target, its rows.

    Time stamps are left out, because no column of a schema can hold them.

    Args:
        name: Like ``adult``.
        max_rows: The row cap of the schema; by default the next power of ten times 1, 2 or 5.

    Raises:
        SystemExit: The data set is missing; the text says what to do.
    """
    if reason := why_missing(name):
        raise SystemExit(reason)
    rows = pd.read_parquet(folder() / f"{name}.parquet")
    declarations, target = declared(name)
    stamps = [column for column, declaration in declarations.items() if declaration["type"] == "timestamp"]
    columns = {
        column: declaration | {"nullable": bool(rows[column].isna().any())}
        for column, declaration in declarations.items()
        if column not in stamps
    }
    schema = Schema.model_validate({"columns": columns, "max_rows": max_rows or _cap(len(rows))})
    return schema, target, rows.drop(columns=stamps)


def why_missing(name: str) -> str:
    """Returns an advice if a data set is missing, else an empty text."""
    if all((folder() / f"{name}.{suffix}").exists() for suffix in ("parquet", "json")):
        return ""
    return (
        f"The data set {name!r} is not in {folder()}: {name}.parquet and {name}.json are needed. "
        "Name their folder: PINQ_DATA=/path/to/data make ...\n"
        "They are UCI's data sets as Parquet; the JSON declares `target` and, for each of `columns`, "
        "what a policy would."
    )


def _cap(rows: int) -> int:
    power = 10 ** (len(str(rows)) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rows)


def stratified_folds(classes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Returns the fold that tests each row, shape (rows,): random, with each class spread evenly over folds."""
    random = np.random.default_rng([seed, folds])
    order = random.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    fold = np.empty(len(classes), dtype=np.int64)
    fold[order] = np.arange(len(classes)) % folds
    return fold
