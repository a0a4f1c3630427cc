# SPDX-License-Identifier: Apache-2.0
"""Asking again what was paid for: the same answers at no cost, and never one noise for two questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import pytest

import pinq
from pinq import BudgetExceeded, PrivateQueryable, Values
from pinq.analyst.queryable import reusing
from tests.support.tables.mixed_schema import SCHEMA


@pytest.fixture
def h() -> Iterator[PrivateQueryable]:
    """A handle with an epsilon of 10."""
    with pinq.simulate(SCHEMA, rows=100, epsilon=10) as handle:
        yield handle


def never() -> None:
    raise AssertionError("the first question was not paid for")


def twice(handle: PrivateQueryable) -> list[int]:
    """A question, another one, and the first one again."""
    counts = handle.partition(Values("sex")).noisy_count(epsilon=1)
    return [handle.noisy_count(epsilon="0.000001"), int(counts[0]), handle.noisy_count(epsilon="0.000001")]


def test_a_question_that_comes_twice_has_two_answers_and_again_the_same(h: PrivateQueryable) -> None:
    """All is charged once."""
    called: list[Any] = []
    first = twice(reusing(h, lambda: called.append(1)))
    assert called == [1]
    assert first[0] != first[2]  # noise of scale a million: equal once in four million runs
    spent = h.budget.spent
    assert float(spent) == pytest.approx(1.000002, abs=1e-9)
    assert twice(reusing(h, never)) == first
    assert h.budget.spent == spent


def test_what_was_asked_without_reuse_is_found(h: PrivateQueryable) -> None:
    """And a question that comes again gets another answer than the one that was found, in every run from then on."""
    plain = h.noisy_count(epsilon="0.000001")
    again = reusing(h, never)
    assert again.noisy_count(epsilon="0.000001") == plain
    assert float(h.budget.spent) == 0.000001
    for _ in range(4):
        answers = twice(reusing(h, lambda: None))
        assert answers[0] != answers[2]
    spent = h.budget.spent
    assert twice(reusing(h, never)) == answers
    assert h.budget.spent == spent


def test_who_may_not_begin_has_asked_nothing(h: PrivateQueryable) -> None:
    """What is called before the first question may refuse it."""

    def refuse() -> None:
        raise BudgetExceeded("no", asked=h.budget.epsilon, remaining=h.budget.remaining, scope="analyst")

    with pytest.raises(BudgetExceeded):
        reusing(h, refuse).noisy_count(epsilon=1)
    assert not h.history().size


def test_questions_asked_side_by_side_wait_for_whether_the_first_may_be_asked(h: PrivateQueryable) -> None:
    """None is charged before, nor where it may not."""
    begun, go_on = threading.Event(), threading.Event()
    spent: list[Fraction] = []

    def look() -> None:
        begun.set()
        assert go_on.wait(10)
        spent.append(h.budget.spent)
        raise BudgetExceeded("no", asked=h.budget.epsilon, remaining=h.budget.remaining, scope="analyst")

    again = reusing(h, look)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(again.noisy_count, epsilon=1)
        assert begun.wait(10)
        second = pool.submit(again.partition(Values("sex")).noisy_count, epsilon=1)
        time.sleep(0.05)
        go_on.set()
        for asked in (first, second):
            with pytest.raises(BudgetExceeded):
                asked.result()
    assert [*spent, h.budget.spent] == [0, 0, 0]


def test_a_preview_with_reuse_knows_what_was_paid(h: PrivateQueryable) -> None:
    """It costs nothing then, and as much as ever before."""
    ask = {"epsilon": 1, "reuse": True}
    assert h.preview("noisy_count", **ask).cost == 1
    h.noisy_count(epsilon=1)
    paid = h.preview("noisy_count", **ask)
    assert (paid.cost, paid.remaining) == (Fraction(0), Fraction(9))
    assert h.preview("noisy_count", epsilon=1).cost == 1
    assert reusing(h, never).preview("noisy_count", **ask).cost == 0
    again = reusing(h, never)
    assert (again.terms, again.budget, len(again.history())) == (h.terms, h.budget, 1)


def test_an_id_that_was_charged_stands_for_itself(h: PrivateQueryable) -> None:
    """With ``reuse`` too it gives its own answer, not the last one to the same question."""
    session = h._session
    request = h._request("noisy_count", "0.001", reuse=True)
    first = session.ask(request)
    later = session.ask(request.model_copy(update={"id": "another", "reuse": None}))
    assert session.ask(request) == first
    assert session.ask(request.model_copy(update={"id": "third"})) == later
