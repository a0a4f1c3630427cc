# SPDX-License-Identifier: Apache-2.0
"""Each row of the table of failures: the error's text, what was spent, and that the ledger holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

import pinq
from pinq import (
    AnyCut,
    BudgetExceeded,
    ClassCount,
    Cuts,
    Gini,
    Groups,
    NotAuthorised,
    Parts,
    QueryError,
    Shards,
    Values,
)
from pinq.ledger.events import Refused, now
from pinq.policy.policy import Policy
from pinq.provider.opening import open_ledger
from pinq.public.epsilon import ZERO, Epsilon
from tests.support.requests.fault_checks import unspent
from tests.support.requests.handles import ledger_of

# The table of failures


def test_not_enough_budget(granted: Callable[..., Any]) -> None:
    """Asked and remaining are in the text and in the attributes; nothing was spent; the refusal is in the log with its question."""
    handle = granted(0.5)
    handle.noisy_count(epsilon=0.2)
    with pytest.raises(BudgetExceeded) as refused:
        handle.noisy_avg("age", epsilon=0.4)
    assert str(refused.value) == (
        "This would cost epsilon 0.4; 0.3 of 0.5 remains for 'ana'. Ask for less, or ask the data provider to extend the grant. Nothing was spent."
    )
    assert (refused.value.asked, refused.value.remaining, refused.value.scope, refused.value.code) == (
        Fraction(2, 5),
        Fraction(3, 10),
        "analyst",
        "budget",
    )
    assert handle.budget.spent == Fraction(1, 5)
    ledger = ledger_of(handle)
    ledger.verify()
    last = list(ledger.log.events())[-1]
    refusal = last.record
    assert isinstance(refusal, Refused)
    assert (refusal.reason, refusal.asked, refusal.remaining) == ("budget", Epsilon.of("0.4"), Epsilon.of("0.3"))
    assert refusal.query.about == "noisy_avg of age on the whole table"
    handle.noisy_count(epsilon=0.3)


def test_a_vectorised_query_is_all_or_nothing(granted: Callable[..., Any]) -> None:
    """Where one part of many has too little left, none is answered and none is charged."""
    handle = granted(0.5)
    parts = handle.partition(Values("sex"))
    parts["Female"].noisy_count(epsilon=0.4)
    with pytest.raises(BudgetExceeded, match=r"This would cost epsilon 0\.2; 0\.1 of 0\.5 remains"):
        parts.noisy_count(epsilon=0.2)
    assert handle.budget.spent == Fraction(2, 5)
    parts["Male"].noisy_count(epsilon=0.5)
    assert handle.budget.spent == Fraction(1, 2)


def test_the_cap_over_all_analysts(granted: Callable[..., Any], tiny_policy: Policy) -> None:
    """Two analysts who together would pass the cap: the second is refused in the cap's name, and nothing was spent."""
    policy = tiny_policy.model_copy(update={"cap": Decimal("0.5")})
    granted(0.4, analyst="ana", policy=policy).noisy_count(epsilon=0.4)
    handle = granted(0.4, analyst="bob", policy=policy)
    assert handle.budget.remaining == Fraction(1, 10)
    with pytest.raises(
        BudgetExceeded,
        match=r"^This would cost epsilon 0\.3; 0\.1 of 0\.5 remains under the cap over all analysts, which counts the sum of what each analyst spent\. .* Nothing was spent\.$",
    ) as refused:
        handle.noisy_count(epsilon=0.3)
    assert refused.value.scope == "cap"
    assert handle.budget.spent == 0


MALFORMED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unknown column": (
        lambda h: h.noisy_sum("agee", epsilon=0.1),
        r"^there is no column 'agee' \(did you mean 'age'\?\); the columns are sex, job, age, income\. Nothing was spent\.$",
    ),
    "column of the wrong kind": (
        lambda h: h.noisy_avg("sex", epsilon=0.1),
        "^`sex` is categorical; a numeric column is needed here",
    ),
    "unknown value": (
        lambda h: h.partition(Groups("sex", (("Femal",),))),
        r"^`sex` has no value 'Femal' \(did you mean 'Female'\?\); it has 'Female', 'Male'\.",
    ),
    "unknown part": (
        lambda h: h.partition(Values("sex"))["X"],
        "^there is no part 'X'; the parts are 'Female', 'Male'. Nothing was spent.$",
    ),
    "unknown score": (
        lambda h: h.exp_mech([Values("sex")], score="gain_ratio", epsilon=0.1),
        "^'gain_ratio' is not a score; use InfoGain, Gini",
    ),
    "score of a numeric target": (
        lambda h: h.exp_mech([Values("sex")], score=Gini("age"), epsilon=0.1),
        "^`age` is numeric; a categorical column is needed here",
    ),
    "target as a candidate": (
        lambda h: h.exp_mech([Values("income")], score=Gini("income"), epsilon=0.1),
        "splits by the target `income` itself",
    ),
    "no candidates": (lambda h: h.exp_mech([], score=Gini("income"), epsilon=0.1), "^`candidates` is empty"),
    "candidates for counts": (
        lambda h: h.exp_mech([Values("sex")], score=ClassCount("income"), epsilon=0.1),
        "takes no `candidates`",
    ),
    "balance of three": (
        lambda h: h.exp_mech([Cuts("age", (10, 20))], score=pinq.Balance(), epsilon=0.1),
        "^Balance compares two parts",
    ),
    "cut out of bounds": (
        lambda h: h.partition(Cuts("age", (100,))),
        "^the cut 100.0 of `age` is out of bounds; it must be above 0 and at most 99. Nothing was spent.$",
    ),
    "cut at the lower end": (lambda h: h.partition(Cuts("age", (0,))), "is out of bounds"),
    "cut that is no number": (lambda h: h.partition(Cuts("age", (math.nan,))), "^the cut nan is not finite"),
    "cuts that do not increase": (lambda h: h.partition(Cuts("age", (30, 30))), "^the cuts of `age` must increase"),
    "value in two groups": (
        lambda h: h.partition(Groups("job", (("clerk",), ("clerk", None)))),
        "^the value 'clerk' of `job` stands in two groups",
    ),
    "range twice": (
        lambda h: h.partition(pinq.Ranges("age", (((20, 40),), ((None, 10), (30, None))))),
        "^>= 30 of `age` is empty, or overlaps another interval",
    ),
    "range that ends below its begin": (
        lambda h: h.partition(pinq.Ranges("age", (((40, 20),),))),
        "^40 to < 20 of `age` is empty, or overlaps another",
    ),
    "range of no missing values": (
        lambda h: h.partition(pinq.Ranges("age", (((None, 20), None),))),
        "^the missing values of `age` is empty, or overlaps another",
    ),
    "no ranges": (lambda h: h.partition(pinq.Ranges("age", ((),))), "^`groups` has no group, or an empty one"),
    "parts not disjoint": (
        lambda h: Parts.union(h.partition(Values("sex")), h.partition(Values("job"))),
        "^the parts are not disjoint at the whole table",
    ),
    "a part and its own part": (
        lambda h: Parts.union(h.parts(), h.partition(Values("job"))),
        "^the parts are not disjoint",
    ),
    "a part twice": (lambda h: h.partition(Values("sex"))[[0, 0]], "^the same part is chosen twice"),
    "a family as a partition": (
        lambda h: h.partition(AnyCut("age")),
        "is a family of candidates; let exp_mech choose a member first",
    ),
    "too many parts": (lambda h: h.partition(Values("age"), Shards(60_000)), "at most 1,048,576 are possible"),
    "no shards": (lambda h: h.shards(0), "must be a whole number from 1 to 65,535"),
    "a table too large": (
        lambda h: h.exp_mech(
            [(Shards(60_000, key), Values("job")) for key in range(200)], score=Gini("income"), epsilon=0.1
        ),
        "each part needs tables of .* cells",
    ),
    "too many tables": (
        lambda h: h.shards(60_000).exp_mech(
            [(Shards(60_000, key), Values("job")) for key in range(20)], score=Gini("income"), epsilon=0.1
        ),
        "the request needs tables of .* cells",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_name_what_is_allowed(case: str, granted: Callable[..., Any]) -> None:
    """Each says what was wrong and what is allowed; nothing was spent."""
    ask, text = MALFORMED[case]
    handle = granted()
    with pytest.raises(QueryError, match=text) as refused:
        ask(handle)
    assert refused.value.code == "query"
    unspent(handle)


def test_no_grant_an_expired_and_a_revoked_one_sound_the_same(
    granted: Callable[..., Any], tiny_policy: Policy, frame: pd.DataFrame
) -> None:
    """The same words for each, also for a handle that was opened before; the refusal of a request is in the log, and nothing was spent."""
    ledger = open_ledger(tiny_policy)
    ledger.grant("late", Epsilon.of(1), expires=now() - timedelta(seconds=1))
    ledger.grant("gone", Epsilon.of(1))
    handle = granted(1, analyst="gone")
    ledger.revoke("gone")
    said = set()
    for analyst in ("late", "gone", "nobody"):
        with pytest.raises(NotAuthorised) as refused:
            pinq.open(tiny_policy, analyst=analyst, data=frame)
        said.add(str(refused.value))
    with pytest.raises(NotAuthorised) as refused:
        handle.noisy_count(epsilon=0.1)
    said.add(str(refused.value))
    assert said == {str(NotAuthorised())}
    assert all(word in str(NotAuthorised()) for word in ("mistyped", "another dataset's", "expired", "revoked"))
    last = list(ledger.log.events())[-1]
    assert (last.kind, last.analyst, last.record.to_body()["reason"]) == ("refusal", "gone", "not-authorised")
    ledger.verify()
    assert {grant.spent for grant in ledger.grants().values()} == {ZERO}
    with pytest.raises(NotAuthorised):
        handle.preview("noisy_count", epsilon=0.1)


def test_a_grant_that_expires_between_two_questions(
    granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is looked at when a request is charged, not when the handle was opened."""
    handle = granted()
    ledger_of(handle).extend("ana", expires=now() + timedelta(hours=1))
    handle.noisy_count(epsilon=0.1)
    late = now() + timedelta(hours=2)
    for module in ("ledger.state", "ledger.log"):
        monkeypatch.setattr(f"pinq.{module}.now", lambda: late)
    with pytest.raises(NotAuthorised):
        handle.noisy_count(epsilon=0.1)
