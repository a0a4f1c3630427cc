# SPDX-License-Identifier: Apache-2.0
"""Several handles behind one face: who agrees, who is asked, what happens when one fails."""

from __future__ import annotations

import threading
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import miners.federated.federation
from miners import Federation
from miners.budget.plan import FitWarning
from miners.federated.federation import FederatedParts, OwnerFailed, OwnerTally, pooled
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import BudgetExceeded, QueryError, Unavailable
from pinq.language.scores import Gini
from pinq.language.specs import Cuts, Values
from pinq.public.schema import Categorical, Column, Numeric, Schema
from tests.support.requests.handles import simulated

COLUMNS: dict[str, Column] = {
    "age": Numeric(lower=0, upper=99, integer=True),
    "job": Categorical(values=("a", "b", "c")),
    "y": Categorical(values=("n", "p")),
}
SCHEMA = Schema(columns=COLUMNS, max_rows=1000)


class Detour:
    """A real session behind a way that can hold answers up or lose them, as a network does."""

    def __init__(self, session: Any, way: Any) -> None:
        self._session, self._way = session, way

    def ask(self, request: Any) -> Any:
        return self._way(lambda: self._session.ask(request))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def handle(schema: Schema = SCHEMA, rows: int = 200, epsilon: Any = 1, **named: Any) -> PrivateQueryable:
    return simulated(schema, rows=rows, epsilon=epsilon, **named)


def through(way: Any, **named: Any) -> PrivateQueryable:
    return PrivateQueryable(Detour(handle(**named)._session, way))


def exhausted() -> PrivateQueryable:
    """A handle whose budget is gone."""
    found = handle()
    found.noisy_count(epsilon=1)
    return found


def changed(**columns: Any) -> Schema:
    return Schema(columns={**COLUMNS, **columns}, max_rows=50)


def lost(times: int) -> Any:
    """The first answers are lost on the way: they have been charged."""
    left = [times]

    def way(answer: Any) -> Any:
        found = answer()
        if left[0]:
            left[0] -= 1
            raise Unavailable("No answer.")
        return found

    return way


def test_it_joins_schemas_that_agree() -> None:
    """Row caps add up, the order of columns and declared cuts do not matter, adjacency is each owner's own."""
    other = Schema(columns=dict(reversed(COLUMNS.items())), max_rows=50, adjacency="substitute")
    both = Federation([handle(), handle(other)])
    assert both.owners == ["owner 1", "owner 2"]
    assert both.schema == SCHEMA.model_copy(update={"max_rows": 1050})
    assert both.variance("owner 2", Fraction(1)) > 3 * both.variance("owner 1", Fraction(1))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Schema(columns={"age": COLUMNS["age"], "y": COLUMNS["y"]}, max_rows=9), "'south' has no column `job`"),
        (changed(more=COLUMNS["job"]), "'north' has no column `more`"),
        (changed(age=Numeric(lower=0, upper=90, integer=True)), "`age`: upper is 99 at 'north', 90 at 'south'"),
        (changed(age=COLUMNS["job"]), "`age`: numeric at 'north', categorical at 'south'"),
        (
            changed(job=Categorical(values=("a", "b", "d"))),
            "`job`: only 'north' declares 'c'; `job`: only 'south' declares 'd'",
        ),
        (changed(job=Categorical(values=("b", "a", "c"))), "in another order"),
        (
            changed(job=Categorical(values=("a", "b", "c"), nullable=True)),
            "`job`: nullable is False at 'north', True at 'south'",
        ),
    ],
    ids=["lacks", "more", "bounds", "kind", "values", "order", "nullable"],
)
def test_it_says_where_schemas_differ(other: Schema, said: str) -> None:
    with pytest.raises(QueryError) as error:
        Federation({"north": handle(), "south": handle(other)})
    assert said in str(error.value)


def test_of_many_differences_it_names_the_first() -> None:
    columns = {f"c{number}": COLUMNS["y"] for number in range(40)}
    with pytest.raises(QueryError, match=r"has no column `c4` and 36 more. Their policies") as error:
        Federation({"north": handle(), "south": handle(changed(**columns, age=COLUMNS["job"]))})
    assert str(error.value).count(";") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((lambda: [], {}), "at least one handle"),
        ((lambda: 3, {}), "made of handles"),
        ((lambda: "ab", {}), "made of handles"),
        ((lambda: [handle(), None], {}), "'owner 2' is no handle but NoneType"),
        ((lambda: {3: handle()}, {}), "a text for a name"),
        ((lambda: [handle()] * 2, {}), "the same handle"),
        ((lambda: [handle()], {"on_failure": "dropp"}), "did you mean 'drop'"),
        ((lambda: [handle()], {"patience": -1}), "`patience` is -1"),
        ((lambda: [handle()], {"say": True}), "`say` is True"),
    ],
    ids=["none", "number", "text", "no-handle", "name", "twice", "rule", "patience", "say"],
)
def test_what_is_no_federation_is_an_error(arguments: Any, said: str) -> None:
    make, named = arguments
    with pytest.raises(QueryError, match=said):
        Federation(make(), **named)


def test_two_handles_of_one_grant_are_warned_of() -> None:
    """One analyst's at one ledger: the same people; of other ledgers nothing is known, and nothing said."""
    north, south = handle(), handle()
    Federation([north, south])
    with pytest.warns(FitWarning, match="'a' and 'c' are one analyst's handles of the same dataset, 'simulated'"):
        Federation({"a": north, "b": south, "c": PrivateQueryable(north._session)})


def test_all_owners_are_asked_at_once() -> None:
    """Each answer waits until all three questions have arrived."""
    barrier = threading.Barrier(3, timeout=30)

    def way(answer: Any) -> Any:
        barrier.wait()
        return answer()

    three = Federation([through(way) for _ in range(3)])
    assert list(three.parts().noisy_count(epsilon=0.1)) == three.owners
    assert three.rounds == 1
    assert set(three.requests.values()) == {1}


def test_a_slow_owner_keeps_no_other_waiting() -> None:
    """It answers nothing until the other has answered everything; neither is sent more at once than a server works on."""
    questions, fast, busy, most = 20, [0], [0], [0]
    done, lock = threading.Event(), threading.Lock()

    def slow_way(answer: Any) -> Any:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        assert done.wait(30)
        with lock:
            busy[0] -= 1
        return answer()

    def fast_way(answer: Any) -> Any:
        with lock:
            fast[0] += 1
            if fast[0] == questions:
                done.set()
        return answer()

    both = Federation([through(slow_way), through(fast_way)])
    parts = both.parts()
    both.ask([parts.question("noisy_count", epsilon=f"0.01{place:02}") for place in range(questions)])
    assert both.requests == {"owner 1": questions, "owner 2": questions}
    assert most[0] <= miners.federated.federation.AT_ONCE


def test_parts_are_the_same_at_every_owner() -> None:
    both = Federation([handle(rows=300, epsilon=10**5), handle(rows=500, epsilon=10**5, seed=1)])
    parts = both.parts().partition(Values("job"))
    assert len(parts) == 3
    halves = parts[[0, 2]].partition([Cuts("age", (50,)), Values("y")])
    rest = parts[[1]].partition(Values("y"))
    together = FederatedParts.union([halves, rest])
    counts = together.noisy_count(epsilon=10**4)
    assert [found.sum() for found in counts.values()] == [300, 500]
    assert np.array_equal(counts["owner 1"][:4], halves.noisy_count(epsilon=10**4)["owner 1"])
    assert "FederatedParts(owner 1, owner 2" in repr(together)


def test_owners_choose_by_their_own_rows_and_may_be_asked_alone() -> None:
    both = Federation({"north": handle(), "south": handle()})
    candidates = [Values("job"), Cuts("age", (50,))]
    chosen = both.parts().exp_mech(candidates, score=Gini("y"), epsilon={"south": 0.25})
    assert list(chosen) == ["south"]
    assert chosen["south"][0] in candidates
    assert both.spent() == {"north": 0, "south": Fraction(1, 4)}
    assert both.requests == {"north": 0, "south": 1}
    with pytest.raises(QueryError, match=r"no owner 'suoth' .did you mean 'south'"):
        both.parts().noisy_count(epsilon={"suoth": 0.25})


def test_a_failure_says_what_was_spent_where() -> None:
    three = Federation({"north": handle(), "south": exhausted(), "west": handle()})
    with pytest.raises(OwnerFailed) as error:
        three.parts().noisy_count(epsilon=0.25)
    assert error.value.spent == {"north": Fraction(1, 4), "south": 0, "west": Fraction(1, 4)}
    assert isinstance(error.value.causes["south"], BudgetExceeded)
    assert "'south' failed" in str(error.value)
    assert "north: 0.25; south: 0; west: 0.25." in str(error.value)


def test_one_owner_fails_with_its_own_error() -> None:
    with pytest.raises(BudgetExceeded):
        Federation([exhausted()]).parts().noisy_count(epsilon=0.25)


def test_an_owner_that_fails_can_be_dropped() -> None:
    said: list[str] = []
    three = Federation({"north": handle(), "south": exhausted(), "west": handle()}, on_failure="drop", say=said.append)
    parts = three.parts()
    assert list(parts.noisy_count(epsilon=0.25)) == three.owners == ["north", "west"]
    assert list(parts.partition(Values("y")).noisy_count(epsilon=0.25)) == ["north", "west"]
    (dropped,) = three.dropped
    assert (dropped.owner, dropped.after) == ("south", 0)
    assert "south was dropped after 0 rounds: This would cost" in repr(three)
    assert said[0] == str(dropped)


def test_a_federation_of_nobody_fails() -> None:
    both = Federation([exhausted(), exhausted()], on_failure="drop")
    with pytest.raises(OwnerFailed):
        both.parts().noisy_count(epsilon=0.25)
    with pytest.raises(QueryError, match="all owners of this federation were dropped"):
        both.parts()


def test_a_round_that_was_paid_for_in_part_says_so() -> None:
    """One of two questions is malformed: the other has been charged, so the error is not one that says that nothing was."""
    both = Federation([handle(), handle()])
    parts = both.parts()
    good, bad = (
        parts.question("noisy_count", epsilon=0.25),
        parts.question("exp_mech", candidates=[Values("job")], score=Gini("nobody"), epsilon=0.25),
    )
    with pytest.raises(OwnerFailed, match=r"no column 'nobody'.*owner 1: 0.25; owner 2: 0.25"):
        both.ask([good, bad])


@pytest.mark.parametrize("rule", ["fail", "drop", "wait"])
def test_a_malformed_question_is_an_error_under_every_rule(rule: Any) -> None:
    both = Federation([handle(), handle()], on_failure=rule)
    with pytest.raises(QueryError, match="no column 'nobody'"):
        both.parts().exp_mech([Values("job")], score=Gini("nobody"), epsilon=0.1)
    assert not both.dropped
    assert set(both.spent().values()) == {0}


def test_waiting_asks_again_and_pays_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that were charged and lost on the way are taken from what is stored."""
    monkeypatch.setattr(miners.federated.federation, "FIRST_PAUSE", 0.001)
    said: list[str] = []
    both = Federation([handle(), through(lost(3))], on_failure="wait", say=said.append)
    assert len(both.parts().noisy_count(epsilon=0.25)) == 2
    assert set(both.spent().values()) == {Fraction(1, 4)}
    assert [line[:19] for line in said] == ["waiting for owner 2"] * 3 + ["round 1: 2 requests"]


def test_waiting_ends_when_patience_does() -> None:
    both = Federation([handle(), through(lost(10**9))], on_failure="wait", patience=0)
    with pytest.raises(OwnerFailed, match="'owner 2' failed: No answer"):
        both.parts().noisy_count(epsilon=0.25)
    assert set(both.spent().values()) == {Fraction(1, 4)}


def test_who_breaks_off_need_not_wait_for_those_who_do() -> None:
    """Control-C ends the waiting for all owners, not only for one."""

    def broken_off(_: str) -> None:
        raise KeyboardInterrupt

    both = Federation([through(lost(10**9)), through(lost(10**9))], on_failure="wait", say=broken_off)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        both.parts().noisy_count(epsilon=0.25)
    assert time.monotonic() - began < 60 < both.patience


def test_an_owner_that_does_not_say_what_it_charged_is_shown_so() -> None:
    class Silent(Detour):
        def budget(self, part: str = "") -> Any:
            raise Unavailable("No.")

    silent = PrivateQueryable(Silent(handle()._session, lambda answer: answer()))
    both = Federation({"north": handle(), "south": silent})
    assert both.spent() == {"north": 0, "south": None}
    assert "south: does not answer" in repr(both)


def test_questions_are_asked_together() -> None:
    both = Federation([handle(), handle()])
    parts = both.parts()
    first, second = both.tally(
        [
            parts.question("noisy_count", epsilon=0.1),
            parts.partition(Values("y")).question("noisy_count", epsilon={"owner 1": 0.2}),
        ]
    )
    assert both.rounds == 1
    assert list(first) == both.owners
    assert second["owner 1"].counts.shape == (1, 2)
    assert second["owner 1"].variance == pytest.approx(both.variance("owner 1", Fraction(1, 5)))


def test_it_closes_its_handles() -> None:
    with Federation([handle()]) as one:
        one.parts().noisy_count(epsilon=0.1)


@pytest.mark.parametrize("variances", [[2.0], [2.0, 3.0], [0.5, 0.25, 8.0]])
def test_variances_of_several_owners_add_up(variances: list[float]) -> None:
    """Each owner adds noise of its own, so every interval and stop rule over owners is of the sum."""
    tallies = [OwnerTally(np.array([number, 10 * number]), own) for number, own in enumerate(variances, 1)]
    counts, variance = pooled(tallies)
    assert variance == sum(variances)
    assert counts.tolist() == [sum(range(len(variances) + 1)) * factor for factor in (1, 10)]
