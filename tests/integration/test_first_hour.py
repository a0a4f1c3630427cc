# SPDX-License-Identifier: Apache-2.0
"""Habits and slips of an analyst's first hour: each ends in the right answer, or in one line that says what to write."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import miners
import pinq
from miners.fronts.sql import sql
from miners.tables import Table, where
from pinq import Categorical, Numeric, Schema, Values
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from tests.support.processes.commands import run

X = Numeric(lower=0, upper=100, integer=True)
GRADES = Schema(columns={"x": X, "y": Categorical(values=("1.0", "2.0"))}, max_rows=5000)


@pytest.fixture
def handle() -> PrivateQueryable:
    """Rows whose class is a text that spells a number, ``2.0`` for an x above 50."""
    x = np.arange(4000) % 101
    return pinq.simulate(GRADES, data=pd.DataFrame({"x": x, "y": np.where(x > 50, "2.0", "1.0")}), epsilon=100)


@pytest.mark.parametrize("given", [float, int, str, np.float32, np.int8, "category", object])
def test_labels_of_another_type_are_scored_as_what_they_spell(handle: PrivateQueryable, given: object) -> None:
    """A package of data has its classes as floats; the policy wrote them as texts."""
    tree = miners.DiffPC45(epsilon=50).fit(handle, "y")
    x = np.arange(101)
    truth = pd.Series(np.where(x > 50, 2.0, 1.0))
    labels = truth.astype(str) if given is str else truth.astype(given)  # type: ignore[call-overload]
    assert tree.score(pd.DataFrame({"x": x}), labels) > 0.9


def test_a_number_names_the_part_and_the_condition_that_spell_it(handle: PrivateQueryable) -> None:
    """Never the part at that position; a number that nothing spells names none."""
    parts = handle.partition(Values("y"))
    spelled: list[tuple[Any, str]] = [(1, "1.0"), (2.0, "2.0"), (np.int64(1), "1.0"), ("2.0", "2.0")]
    for given, label in spelled:
        assert f"y = {label}" in repr(parts[given])
        assert f"y = {label}" in repr(where(handle, y=given))
    for wrong in (0, 3, True, "1"):
        with pytest.raises(QueryError, match=r"1\.0"):
            parts[wrong]
    counted = sql(handle, "SELECT count(*) FROM data WHERE y = 2", epsilon=50)
    assert isinstance(counted, Table)
    assert counted.to_frame()["value"].max() > 1500
    words = Categorical(values=("1", "1.0", "a"), nullable=True)
    assert [words.find(1), words.find(1.0), words.find("1.0"), words.find(2), words.find(None)] == [0, 1, 1, None, None]
    assert list(words.encode([1, 1.0, "a", None, 7])) == [0, 0, 2, 3, -1]


@pytest.mark.parametrize(
    "habit",
    [
        np.mean,
        np.asarray,
        pd.DataFrame,
        list,
        lambda h: np.column_stack([h, h]),
        lambda h: dict(zip("ab", h, strict=True)),
    ],
)
def test_a_handle_is_no_array(handle: PrivateQueryable, habit: Callable[[object], object]) -> None:
    """What takes arrays ends in our words, and nothing is spent."""
    with pytest.raises(QueryError, match=r"A handle (is no array|shows no rows)"):
        habit(handle)
    assert handle.budget.spent == 0


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        (lambda h: h.noisy_count(), r"noisy_count missing .*'epsilon'; write noisy_count\(epsilon=0\.1\)"),
        (lambda h: h.noisy_count(0.1), r"noisy_count takes 1 .*; write noisy_count\(epsilon=0\.1\)"),
        (lambda h: h.noisy_avg("x", 0.1), r"write noisy_avg\(column, epsilon=0\.1\)"),
        (lambda h: h.noisy_count(eps=0.1), "unexpected keyword argument 'eps'"),
        (lambda h: h.exp_mech([Values("y")], epsilon=0.1), "'score'; write exp_mech"),
        (lambda h: sql(h, "SELECT 1"), "'epsilon'; write sql"),  # type: ignore[call-arg]
    ],
)
def test_a_call_that_does_not_fit_says_what_to_write(
    handle: PrivateQueryable, slip: Callable[[Any], object], said: str
) -> None:
    """In the verb's own words, as a ``QueryError`` and a ``TypeError``; nothing is spent."""
    with pytest.raises(QueryError, match=said) as told:
        slip(handle)
    assert isinstance(told.value, TypeError)
    assert str(told.value).endswith("Nothing was spent.")
    assert handle.budget.spent == 0


def test_scikit_learn_takes_no_handle() -> None:
    """Its scalers and searches say where public rows go."""
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="needs scikit-learn")
    h = pinq.simulate(GRADES, rows=100, epsilon=1)
    with pytest.raises(QueryError, match="PublicRows"):
        preprocessing.StandardScaler().fit(h)


def test_a_lesson_suggests_no_more_than_what_remains() -> None:
    """With .03 left, no line spends .1; with nothing left or known, it is as it was."""
    h = pinq.simulate(GRADES, rows=100, epsilon="0.03")
    habits: list[Callable[[Any], object]] = [lambda h: h.mean, lambda h: h.describe, lambda h: h["x"], len]
    for habit in habits:
        with pytest.raises(QueryError, match=r"epsilon=0\.03"):
            habit(h)


def test_a_token_file_is_for_a_url(tmp_path: Path) -> None:
    """Each command that asks takes it."""
    budgets = {"mcp": ["--per-call", "0.1", "--per-session", "1"]}
    for words in (
        ["query", "p.yaml", "count"],
        ["table", "histogram", "p.yaml", "x"],
        ["sql", "p.yaml", "SELECT 1"],
        ["mcp", "p.yaml"],
    ):
        more = budgets.get(words[0], ["--epsilon", "0.1"])
        result = run(*words, "--analyst", "a", "--token-file", tmp_path / "t", *more)
        assert "--token-file is for a URL" in result.stderr, result.stderr


@pytest.mark.parametrize(
    "kind", [miners.DiffPC45, miners.DiPriMeTreeClassifier, miners.DiPriMeForestClassifier, miners.Scorecard]
)
def test_a_miner_spends_no_epsilon_that_was_not_given(handle: PrivateQueryable, kind: type) -> None:
    """A first grant of 1 was spent whole by a fit without a word of epsilon."""
    for miner in (kind(), copy.deepcopy(kind()), kind(**kind().get_params())):
        with pytest.raises(QueryError, match="`epsilon` is not given"):
            miner.fit(handle, "y")
    assert handle.budget.spent == 0
    with pytest.raises(QueryError, match="`epsilon` is not given"):
        miners.Synthesizer().fit(handle)


def test_an_open_handle_has_imported_what_fits_need(tmp_path: Path) -> None:
    """An interrupt in the import of pandas, in the first fit, would leave it broken for the whole process."""
    code = (
        "import sys, pinq\n"
        "try: pinq.connect('https://localhost:9/people', token='pinq_x', verify='nowhere.pem')\n"
        "except pinq.PinqError: print('pandas' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert told.stdout == "True\n"
