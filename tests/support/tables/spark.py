# SPDX-License-Identifier: Apache-2.0
"""A Spark of two workers in this process, where ``make test-spark`` asks for one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pinq.engine import open_engine
from pinq.language.derivatives import Packing, RowMeasure
from pinq.language.specs import Axis
from pinq.policy.policy import Policy
from tests.support.house.checkout import ROOT

HERE = importlib.util.find_spec("pyspark") is not None and shutil.which("java") is not None
RUN = HERE and bool(os.environ.get("PINQ_SPARK"))
# It warns of each pandas 3 that it is new, and closes its sockets when they are collected.
ON_SPARK = [
    pytest.mark.skipif(not RUN, reason="Spark is tested by make test-spark" if HERE else "NO SPARK OR JAVA"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@dataclass(frozen=True)
class Slow(RowMeasure):
    """Sums of zeros that take 30 seconds, so that a test can stop the worker by its process id.

    Attributes:
        file: The path of a symbolic link whose target is the process id.
    """

    file: str
    inputs: tuple[Axis, ...] = ()
    width = 1
    steps = 1
    packing = Packing.of([(0, 1)])

    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]:  # type: ignore[override]
        return tuple((axis,) for axis in self.inputs)

    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        with suppress(FileExistsError):  # one worker is slow, once
            os.symlink(str(os.getpid()), self.file)
            time.sleep(30)
        return np.zeros((1, len(cells[0])), dtype=np.int64)


@cache
def session() -> Any:
    """The session; a fresh one takes ten seconds."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.host": "127.0.0.1",
    }
    made = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def frame_of(data: Any, partitions: int = 2) -> Any:
    """A table or a pandas frame as a frame of Spark."""
    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    return session().createDataFrame(table).repartition(partitions)


def open_on_spark(policy: Policy, *, data: Any = None, salt: bytes, report: bool = False) -> Any:
    """``open_engine`` on a frame of Spark; a policy's own source is opened as it is."""
    return open_engine(policy, data=None if data is None else frame_of(data), salt=salt, report=report)
