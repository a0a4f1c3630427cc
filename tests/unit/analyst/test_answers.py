# SPDX-License-Identifier: Apache-2.0
"""Answers as numbers: what they carry, what becomes of them, and that their intervals hold what they claim."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq import QueryError, Values
from pinq.analyst.answers import NoisyArray, NoisyInt, noisy
from pinq.public.queries import Answer


def test_numbers_act_as_numbers(in_memory: Callable[..., Any]) -> None:
    """A count is an int and an average a float, in arithmetic, JSON, pickles and frames; what is computed from them is plain."""
    handle = in_memory(100)
    count = handle.noisy_count(epsilon=1)
    assert isinstance(count, int)
    assert type(count + 1) is int
    assert json.loads(json.dumps(count)) == count
    assert pickle.loads(pickle.dumps(count)) == count
    assert (count.epsilon, count.scale) == (Fraction(1), 1.0)
    assert count.interval(0.95) == (count - 4, count + 4) or count.interval(0.95) == (count - 3, count + 3)
    average = handle.noisy_avg("age", epsilon=1)
    assert isinstance(average, float)
    assert average.epsilon == 1
    assert average.scale > 0
    low, high = average.interval()
    assert 0 <= low <= average <= high <= 99
    assert type(low) is float
    total = handle.noisy_sum("age", epsilon=1)
    assert total.scale == 99
    assert total.interval(0.5)[0] < total < total.interval(0.99)[1]


def test_arrays_act_as_arrays(in_memory: Callable[..., Any]) -> None:
    """A table of counts is an array with a scale; slices, sums and comparisons are plain arrays and numbers."""
    table = in_memory(100).partition(Values("sex"), Values("income")).noisy_count(epsilon=2)
    assert isinstance(table, NoisyArray)
    assert (table.shape, table.epsilon, table.scale) == ((2, 2), 2, 0.5)
    low, high = table.interval(0.9)
    assert (low < table).all()
    assert type(low) is type(table[0]) is type(table + table) is type(table > 3) is np.ndarray
    assert isinstance(table.sum(), np.integer)
    before = table[0, 0]
    table += 1
    assert type(table) is np.ndarray
    assert table[0, 0] == before + 1
    assert pd.Series(high.reshape(-1)).notna().all()


@pytest.mark.parametrize("level", [0, 1, -1, 2, True, "x", float("nan")])
def test_levels_are_checked(level: Any, in_memory: Callable[..., Any]) -> None:
    """A level is between 0 and 1."""
    with pytest.raises(QueryError, match="`level` is"):
        in_memory().noisy_count(epsilon=1).interval(level)


def test_an_old_answer_has_no_interval() -> None:
    """An average that was stored before answers kept their rows still reads, and says why it has no interval."""
    old = noisy(Answer(id="x", verb="noisy_avg", epsilon="0.1", values=(4.5,)), (), np.float64)
    assert old == 4.5
    with pytest.raises(QueryError, match="did not keep its scale"):
        old.interval()


# 4,000 draws of a claim of 80 %, standard deviation 25: fewer than 3,050 hits have probability below 1e-8; an interval 30 % too short has 2,700.
DRAWS, LEVEL, LEAST = 4000, 0.8, 3050


@pytest.mark.parametrize("verb", ["noisy_count", "noisy_sum", "noisy_avg"])
def test_intervals_hold_what_they_claim(verb: str, in_memory: Callable[..., Any], frame: pd.DataFrame) -> None:
    """The exact answer lies in the interval at least as often as claimed; for an average whatever its noisy rows are."""
    handle = in_memory(10**6)
    parts = handle.shards(8)
    exact = {
        "noisy_count": parts.noisy_count(epsilon=900),
        "noisy_sum": parts.noisy_sum("age", epsilon=9000),
        "noisy_avg": parts.noisy_avg("age", epsilon=9000),
    }[verb]
    words = () if verb == "noisy_count" else ("age",)
    hits = 0
    for _ in range(DRAWS // 8):
        answer = getattr(parts, verb)(*words, epsilon=0.3)
        low, high = answer.interval(LEVEL)
        hits += int(((low - 0.02 <= exact) & (exact <= high + 0.02)).sum())
    assert hits >= LEAST
    if verb == "noisy_count":
        assert hits <= 3450, "the interval is far too wide"
    assert isinstance(NoisyInt(3), int)
