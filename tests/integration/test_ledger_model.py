# SPDX-License-Identifier: Apache-2.0
"""A ledger beside a model of a few lines: whatever is done in whatever order, both say the same.

Hypothesis draws the order: grants, renewals, revocations, charges and retries of an id, answers, another cap, clocks that jump
forth and back, a second process that has the ledger open, a process that goes away without closing it, and one that is killed before or
after a commit. ``make assurance`` draws longer and many more, over SQLite and PostgreSQL.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pinq.errors import BudgetExceeded, LedgerError, NotAuthorised
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Values, bind
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.killed_process import killed_at_commit
from tests.support.processes.postgresql import HERE, database, drop, kind_of

EXAMPLES, STEPS = (200, 60) if ASSURANCE else (10, 30)
SCHEMA = Schema(max_rows=9, columns={"s": {"type": "categorical", "values": ["f", "m"]}})
HALVES = bind(Values("s"), SCHEMA)
WHERE = {
    "whole": Demand.of(PartSet([Block(Part())])),
    "women": Demand.of(PartSet([Block(Part(Part(), HALVES, 0))])),
    "men": Demand.of(PartSet([Block(Part(Part(), HALVES, 1))])),
}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

ANALYSTS, IDS = st.sampled_from(["ana", "bob"]), st.sampled_from([f"id-{number}" for number in range(3)])
LOSSES, DAYS = st.integers(1, 40), st.integers(-3, 30)
KILLED_AT = st.sampled_from(["before the commit", "after the commit"])


@dataclass
class Model:
    """What a ledger is to say: what each analyst was charged of the table and of either half of it, and the terms of it."""

    asked: dict[str, Counter[str]] = field(default_factory=lambda: {"ana": Counter(), "bob": Counter()})
    charged: dict[tuple[str, str], str | None] = field(default_factory=dict)
    limit: dict[str, int] = field(default_factory=dict)
    expires: dict[str, datetime] = field(default_factory=dict)
    cap: int = 100

    def spent(self, analyst: str) -> int:
        return cost(self.asked[analyst])

    def together(self) -> int:
        return sum(map(cost, self.asked.values()))

    def allows(self, analyst: str, where: str, loss: int) -> bool:
        before, more = self.spent(analyst), Counter({where: loss})
        together = self.together()
        self.asked[analyst] += more
        own, all_ = self.spent(analyst) - before, self.together() - together
        self.asked[analyst] -= more
        return own <= self.limit[analyst] - before and all_ <= self.cap - together


def cost(asked: Counter[str]) -> int:
    """Halves are disjoint, so the dearer one counts."""
    return asked["whole"] + max(asked["women"], asked["men"])


def set_clock(patch: pytest.MonkeyPatch, clock: Callable[[], datetime]) -> None:
    for module in ("state", "log"):
        patch.setattr(f"pinq.ledger.{module}.now", clock)


class LedgerBesideModel(RuleBasedStateMachine):
    """Does each thing to both; a refusal of the ledger must be one of the model."""

    new_ledger: ClassVar[Callable[[], str]]
    done: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.at = BEGIN
        set_clock(self.patch, lambda: self.at)
        self.url, self.model = type(self).new_ledger(), Model()
        self.open = [Ledger(self.url, "d"), Ledger(self.url, "d")]
        self.open[0].declare("x", Epsilon(self.model.cap), {})
        for analyst in self.model.asked:
            self.grant(analyst, 60, 20)

    def teardown(self) -> None:
        if hasattr(self, "open"):
            for ledger in self.open:
                ledger.close()
            self.patch.undo()

    @property
    def ledger(self) -> Ledger:
        """Either of the two that are open, by turns."""
        self.open.reverse()
        return self.open[0]

    def valid(self, analyst: str) -> bool:
        return analyst in self.model.limit and self.at < self.model.expires[analyst]

    def refused(self, error: type[Exception], work: Callable[[], Any]) -> None:
        self.done[error.__name__] += 1
        with pytest.raises(error):
            work()

    # The provider

    @rule(analyst=ANALYSTS, limit=LOSSES, days=DAYS)
    def grant(self, analyst: str, limit: int, days: int) -> None:
        expires = self.at + timedelta(days=days)
        if analyst in self.model.limit:
            self.refused(LedgerError, lambda: self.ledger.grant(analyst, Epsilon(limit)))
        else:
            self.ledger.grant(analyst, Epsilon(limit), expires)
            self.model.limit[analyst], self.model.expires[analyst] = limit, expires

    @rule(analyst=ANALYSTS, more=LOSSES, days=st.none() | DAYS)
    def renew(self, analyst: str, more: int, days: int | None) -> None:
        expires = None if days is None else self.at + timedelta(days=days)
        if analyst not in self.model.limit:
            self.refused(LedgerError, lambda: self.ledger.extend(analyst, Epsilon(more), expires))
            return
        self.ledger.extend(analyst, Epsilon(more), expires)
        self.model.limit[analyst] += more
        self.model.expires[analyst] = expires or self.model.expires[analyst]

    @rule(analyst=ANALYSTS)
    def revoke(self, analyst: str) -> None:
        if analyst not in self.model.limit:
            self.refused(LedgerError, lambda: self.ledger.revoke(analyst))
        else:
            self.ledger.revoke(analyst)
            del self.model.limit[analyst], self.model.expires[analyst]

    @rule(cap=st.integers(1, 60))
    def declare(self, cap: int) -> None:
        self.ledger.declare("x", Epsilon(cap), {})
        self.model.cap = cap

    # The analyst

    @rule(analyst=ANALYSTS, request=IDS, where=st.sampled_from(sorted(WHERE)), loss=LOSSES)
    def charge(self, analyst: str, request: str, where: str, loss: int) -> None:
        def ask() -> tuple[Any, str | None]:
            return self.ledger.charge(analyst, request, WHERE[where], Epsilon(loss))

        if not self.valid(analyst):
            self.refused(NotAuthorised, ask)
        elif (analyst, request) in self.model.charged:  # a retry, whatever it asks now
            self.done["retries"] += 1
            earlier, given = ask()
            assert (earlier is not None, given) == (True, self.model.charged[analyst, request])
        elif not self.model.allows(analyst, where, loss):
            self.refused(BudgetExceeded, ask)
        else:
            self.done["charges"] += 1
            assert ask() == (None, None)
            self.paid(analyst, request, where, loss)

    def paid(self, analyst: str, request: str, where: str, loss: int) -> None:
        self.model.asked[analyst][where] += loss
        self.model.charged[analyst, request] = None

    @precondition(lambda self: self.model.charged)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.charged)))
        text = f"answer {sum(answer is not None for answer in self.model.charged.values())}"
        first = self.model.charged[key] or text
        assert self.ledger.answer(*key, text) == first
        self.model.charged[key] = first

    @precondition(lambda self: self.model.charged)
    @rule(data=st.data(), where=st.sampled_from(sorted(WHERE)), loss=LOSSES)
    def retry(self, data: st.DataObject, where: str, loss: int) -> None:
        self.charge(*data.draw(st.sampled_from(sorted(self.model.charged))), where, loss)

    # What goes wrong

    @rule(hours=st.integers(-24 * 9, 24 * 9))
    def jump(self, hours: int) -> None:
        self.at += timedelta(hours=hours)

    @rule()
    def forget(self) -> None:
        """A process goes away without closing; another one opens the ledger."""
        self.done["reopened"] += 1
        self.open = [self.open[1], Ledger(self.url, "d")]

    @rule(analyst=ANALYSTS, request=IDS, where=st.sampled_from(sorted(WHERE)), loss=LOSSES, when=KILLED_AT)
    def kill(self, analyst: str, request: str, where: str, loss: int, when: str) -> None:
        """A process is killed as it commits a charge: before, nothing happened; after, it counts."""
        if not self.valid(analyst) or (analyst, request) in self.model.charged:
            return
        charges = self.model.allows(analyst, where, loss)
        status = killed_at_commit(self.url, self.at, analyst, request, WHERE[where], loss, when)
        assert status == -signal.SIGKILL
        self.done[f"killed {when}"] += 1
        if charges and when == "after the commit":
            self.paid(analyst, request, where, loss)

    # What both say

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "open"):
            return
        ledger, model = self.ledger, self.model
        assert (ledger.together().spent, ledger.together().cap) == (Epsilon(model.together()), Epsilon(model.cap))
        accounts = ledger.accounts()
        for analyst in model.asked:
            account = accounts.get(analyst)
            assert (0 if account is None else account.spent.nano) == model.spent(analyst)
            is_granted = account is not None and account.granted and not account.revoked
            assert is_granted == (analyst in model.limit)
            if account is not None and is_granted:
                assert (account.limit.nano, account.expires) == (model.limit[analyst], model.expires[analyst])
                assert account.valid == self.valid(analyst)
        for key, answer in model.charged.items():
            earlier, given = ledger.answer_of(*key)
            assert (earlier is not None, given) == (True, answer)


@pytest.fixture(params=["sqlite", *(["postgresql"] if ASSURANCE and HERE else [])])
def new_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Where a new ledger can be made, each time."""
    if request.param == "postgresql":
        return partial(the_only_one, request.getfixturevalue("postgresql_url"), [])
    numbers = iter(range(10**6))
    return lambda: str(tmp_path / f"{next(numbers)}.ledger")


def the_only_one(server: str, made: list[str]) -> str:
    """A fresh database, in place of the one that was made before."""
    while made:
        drop(made.pop())
    made.append(database(server))
    return made[0]


def test_a_ledger_and_its_model_say_the_same(new_ledger: Callable[[], str]) -> None:
    """After every step: what is spent, by each and by all, what is left, who is valid, and which answer each id has."""
    done = Counter[str]()
    machine = type("Machine", (LedgerBesideModel,), {"new_ledger": staticmethod(new_ledger), "done": done})
    run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
    what = ", ".join(f"{many:,} {name}" for name, many in sorted(done.items()))
    note(f"ledger beside its model ({kind_of(new_ledger())})", EXAMPLES * STEPS, f"always equal: {what}")
    assert {"charges", "retries", "BudgetExceeded", "NotAuthorised", "LedgerError", "reopened"} <= set(done)
    assert {"killed before the commit", "killed after the commit"} <= set(done)
