# SPDX-License-Identifier: Apache-2.0
"""Work ends when its turn is over."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from pinq import AnyCut, AnyGrouping, ClassCount, EngineError, InfoGain, Values
from pinq.curator.deadline import Deadline, Stopped, TooHeavy
from pinq.language.queries import Request


def _request(name: str) -> Request:
    candidates = ((AnyCut("age"), AnyGrouping("job"), Values("sex")),)
    return Request(id=name, verb="exp_mech", epsilon="0.1", score=InfoGain("income"), candidates=candidates)


class Ticking:
    """A clock that goes on by one whenever it is read."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_turn_ends_once_and_never_later_than_it_was_told() -> None:
    """An earlier end stays, also where a later one is named, and where what is named is past the first one."""
    now = [5.0]
    deadline = Deadline(seconds=10, clock=lambda: now[0])
    deadline.stop(99.0)
    assert deadline.end == 15.0
    deadline.stop(6.0)
    deadline.stop(9.0)
    deadline.check()
    now[0] = 7.0
    with pytest.raises(Stopped):
        deadline.check()
    now[0] = 5.0
    deadline.stop()
    with pytest.raises(Stopped):
        deadline.check()


def test_before_the_charge_nothing_is_spent(in_memory: Callable[..., Any]) -> None:
    """A turn that is over, or too small, costs nothing."""
    curator = in_memory(10)._session._curator
    (analyst,) = curator.ledger.accounts()
    ended = Deadline()
    ended.stop()
    with pytest.raises(Stopped):
        curator.ask(analyst, _request("a"), ended)
    with pytest.raises(TooHeavy):
        curator.ask(analyst, _request("a"), Deadline(limit=0))
    assert curator.ledger.accounts()[analyst].spent.exact == 0


def test_work_is_stopped_between_any_two_steps_and_the_charge_stays(in_memory: Callable[..., Any]) -> None:
    """Wherever the turn ends there is one text; the same id is answered later at no further cost."""
    curator = in_memory(10)._session._curator
    (analyst,) = curator.ledger.accounts()
    curator.ask(analyst, _request("r0"))  # from now on the kind is not rehearsed
    stops = 0
    for steps in range(1, 40):
        deadline = Deadline(seconds=steps, clock=Ticking())
        try:
            curator.ask(analyst, _request(f"r{steps}"), deadline)
        except Stopped:
            continue
        except EngineError as error:
            assert "stays charged" in str(error)
            stops += 1
            assert curator.ask(analyst, _request(f"r{steps}")).values
            continue
        break
    assert stops >= 4  # the block of rows, scorers, parts
    assert curator.ledger.accounts()[analyst].spent.exact == Fraction(stops + 2, 10)


def test_a_vote_looks_at_its_turn_part_by_part(in_memory: Callable[..., Any]) -> None:
    """Votes of many parts are many steps."""
    curator = in_memory(10)._session._curator
    (analyst,) = curator.ledger.accounts()
    clock = Ticking()
    request = Request(id="v", verb="exp_mech", epsilon="0.1", score=ClassCount("income"))
    curator.ask(analyst, request, Deadline(clock=clock))
    assert clock.now >= 4
