# SPDX-License-Identifier: Apache-2.0
"""A request whose tables are larger than memory bears is counted slice by slice; nobody notices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq import (
    AnyCross,
    AnyCut,
    AnyGrouping,
    ClassCount,
    Cuts,
    EnoughRows,
    Gini,
    MaxClass,
    PrivateQueryable,
    SquaredError,
    Values,
)
from pinq.policy.policy import Policy
from tests.support.requests.handles import engine_of

SURE = 10**5  # noise that changes no answer
JOBS = [f"job {number}" for number in range(12)]
COLUMNS = {
    "job": {"type": "categorical", "values": JOBS},
    "sex": {"type": "categorical", "values": ["f", "m"]},
    "kind": {"type": "categorical", "values": ["a", "b", "c"]},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
    "pay": {"type": "numeric", "lower": 0, "upper": 5000, "integer": True},
}

QUERIES: dict[str, Callable[[Any], Any]] = {
    "count": lambda parts: parts.noisy_count(epsilon=SURE).tolist(),
    "sum": lambda parts: parts.noisy_sum("age", epsilon=SURE).tolist(),
    "average": lambda parts: np.round(parts.noisy_avg("age", epsilon=SURE), 3).tolist(),
    "vote": lambda parts: parts.exp_mech(score=ClassCount("sex"), epsilon=SURE),
    "splits": lambda parts: parts.exp_mech(
        [Values("sex"), Cuts("age", (30, 60))], score=MaxClass("kind"), epsilon=SURE
    ),
    "own lists": lambda parts: parts.exp_mech(
        [[Values("kind"), Cuts("age", (number + 5,))] for number in range(12)], score=Gini("sex"), epsilon=SURE
    ),
    "families": lambda parts: parts.exp_mech([AnyCut("pay"), AnyGrouping("kind")], score=Gini("sex"), epsilon=SURE),
    "each": lambda parts: parts.exp_mech(
        [AnyGrouping("kind"), Cuts("age", (50,))], score=Gini("sex"), epsilon=SURE, each=True
    ),
    "moments": lambda parts: parts.exp_mech([Values("sex"), Values("kind")], score=SquaredError("age"), epsilon=SURE),
    "joint": lambda parts: parts.exp_mech(
        [AnyCross((Values("sex"), Cuts("age", (50,)), Cuts("pay", (2500,))), 2)], score=Gini("kind"), epsilon=SURE
    ),
    "stop": lambda parts: parts.exp_mech(score=EnoughRows(10), epsilon=SURE),
}


class Watched:
    """An engine that notes how many parts it counts at a time, and how large its tables are."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.parts, self.largest = engine, list[int](), 0

    def tabulate(self, parts: Any, tables: Any, measure: Any, check: Any) -> Any:
        counted = self.engine.tabulate(parts, tables, measure, check)
        self.parts.append(len(parts))
        self.largest = max(self.largest, *(table.size for table in counted if isinstance(table, np.ndarray)), 0)
        return counted

    def close(self) -> None:
        self.engine.close()


def watched(handle: PrivateQueryable) -> Watched:
    """Puts a watched engine into a handle."""
    curator: Any = handle._session._curator  # type: ignore[attr-defined]
    curator._engine = Watched(engine_of(handle))
    watch: Watched = curator._engine
    return watch


@pytest.fixture
def handle(in_memory: Callable[..., Any]) -> Any:
    random = np.random.default_rng(4)
    sex, age = random.integers(2, size=4000), random.integers(100, size=4000)
    frame = pd.DataFrame(
        {
            "job": random.choice(JOBS, 4000),
            "sex": np.where(sex == 1, "f", "m"),
            "kind": np.where(sex == 1, np.where(age < 50, "a", "b"), "c"),
            "age": age,
            "pay": 20 * age + 1000 * sex + random.integers(200, size=4000),
        }
    )
    policy = Policy(dataset="slices", cap=10**6, max_rows=10**4, columns=COLUMNS)
    return in_memory(10**6, policy=policy, data=frame)


@pytest.mark.parametrize("question", QUERIES)
def test_slices_answer_as_the_whole_does(question: str, handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the parts' order, in one request, at the price of one."""
    engine, parts = watched(handle), handle.partition(Values("job"))
    whole = QUERIES[question](parts)
    assert engine.parts == [12]
    before = handle.budget.spent
    for cells in (0, 40, 3000):
        monkeypatch.setattr("pinq.curator.prepared.SLICE_CELLS", cells)
        engine.parts.clear()
        assert QUERIES[question](parts) == whole
        assert sum(engine.parts) == 12
        assert len(engine.parts) > 1 or cells
    assert handle.budget.spent == 4 * before
    assert len(handle.history()) == 4


def test_a_slice_has_noise_of_its_own(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One noise for every slice alike would be subtracted away: equal parts of different slices answer differently."""
    monkeypatch.setattr("pinq.curator.prepared.SLICE_CELLS", 0)
    empty = handle.partition(Cuts("age", (50,)))[[0]].partition(Values("job"), Cuts("age", (60,)))
    noisy = empty.noisy_count(epsilon=1e-8).reshape(-1, 2)[:, 1]  # parts without rows
    assert len(set(noisy.tolist())) == 12


def test_memory_is_bounded_by_a_slice(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 parts with tables of 300 cells are 3 MB of integers; slices of 2^14 cells keep a tenth of that."""
    monkeypatch.setattr("pinq.curator.prepared.SLICE_CELLS", 2**14)
    engine = watched(handle)
    parts = handle.partition(Values("age"), Values("job"))
    score = {"score": Gini("kind"), "epsilon": SURE}
    parts.exp_mech([Cuts("pay", tuple(range(50, 5000, 50)))], **score)  # what is made once: imports, bound specs
    tracemalloc.start()
    parts.exp_mech([Cuts("pay", tuple(range(50, 5000, 50)))], **score)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(engine.parts) == 2 * 1200
    assert engine.largest <= 2**14
    assert peak < 3 * 2**20
