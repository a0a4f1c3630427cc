# SPDX-License-Identifier: Apache-2.0
"""What becomes of budgets, shards and meanings when a policy is edited after its grants."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pinq
from pinq import (
    ClassCount,
    LedgerError,
    PolicyError,
    Values,
)
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from tests.support.requests.fault_checks import kinds, spend
from tests.support.requests.handles import ledger_of

# A policy that was edited


def test_a_changed_policy_is_logged_and_raises_nothing(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """Schema, cap and bounds edited after the grant: each change is in the log, once, and what remains never grows."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    handle = pinq.open(file, analyst="ana")
    handle.partition(Values("sex")).noisy_count(epsilon="0.25")
    handle.noisy_sum("age", epsilon="0.25")
    remaining = handle.budget.remaining
    other_sexes = columns | {"sex": {"type": "categorical", "values": ["Female", "Male", "Other"]}}
    edits: list[dict[str, Any]] = [
        {"columns": other_sexes},
        {"columns": other_sexes, "max_rows": 500},
        {"columns": other_sexes, "max_rows": 500, "cap": "0.625"},
    ]
    for number, changes in enumerate(edits, start=2):
        again = pinq.open(published(**changes), analyst="ana")
        assert again.budget.remaining <= remaining
        remaining = again.budget.remaining
        assert kinds(ledger_of(again)).count("policy") == number
        pinq.open(published(**changes), analyst="ana")
        assert kinds(ledger_of(again)).count("policy") == number
    assert remaining == Fraction(1, 8)
    # The same question about the changed column is another partition: it adds, it does not hide behind the old one.
    again.partition(Values("sex")).noisy_count(epsilon="0.125")
    assert again.budget.spent == Fraction(5, 8)
    ledger_of(again).verify()


def test_what_was_voted_stays_what_it_was(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """A vote is kept as a code: read through values in another order, or fewer, it would be another answer."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(2))
    votes = [pinq.open(file, analyst="ana").exp_mech(score=ClassCount("sex"), epsilon=1)]
    code = columns["sex"]["values"].index(votes[0])
    assert pinq.open(published(max_rows=500), analyst="ana").history()["answer"].tolist() == votes
    for values in (columns["sex"]["values"][::-1], columns["sex"]["values"][:1], ["Other", *columns["sex"]["values"]]):
        changed = columns | {"sex": {"type": "categorical", "values": values}}
        assert pinq.open(published(columns=changed), analyst="ana").history()["answer"].tolist() == [code]
    later = pinq.open(published(columns=changed), analyst="ana")
    votes = [code, later.exp_mech(score=ClassCount("sex"), epsilon=1)]
    assert votes[1] in values
    assert later.history()["answer"].tolist() == votes


def test_shards_of_a_changed_schema_are_other_shards(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """Row coins follow the encoding: after a change of any column the old shards' charges do not cover the new ones."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    pinq.open(file, analyst="ana").shards(4)[0].noisy_count(epsilon="0.25")
    same = pinq.open(file, analyst="ana")
    same.shards(4)[1].noisy_count(epsilon="0.25")
    assert same.budget.spent == Fraction(1, 4)
    wider = columns | {"age": {"type": "numeric", "lower": 0, "upper": 120, "integer": True}}
    changed = pinq.open(published(columns=wider), analyst="ana")
    changed.shards(4)[1].noisy_count(epsilon="0.25")
    assert changed.budget.spent == Fraction(1, 2)


@pytest.mark.parametrize(
    "changes",
    [{"adjacency": "substitute"}, {"privacy_unit": {"column": "who", "max_rows": 3}}],
    ids=["adjacency", "unit"],
)
def test_an_epsilon_keeps_its_meaning(changes: dict[str, Any], published: Callable[..., Path]) -> None:
    """What was spent in one unit cannot be carried over to a stricter one: such an edit closes the dataset."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    spend(file, "0.75")
    with pytest.raises(LedgerError, match="an epsilon of one is not an epsilon of the other"):
        open_ledger(load_policy(published(**changes)))
    assert pinq.open(published(), analyst="ana").budget.spent == Fraction(3, 4)


def test_an_unreviewed_policy_does_not_open(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """A bound that was read off the data would leak it."""
    unreviewed = columns | {"age": columns["age"] | {"unreviewed": ["upper"]}}
    with pytest.raises(PolicyError, match=r"that nobody reviewed: columns\.age\.upper\."):
        pinq.open(published(columns=unreviewed), analyst="ana")
