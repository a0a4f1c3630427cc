# SPDX-License-Identifier: Apache-2.0
"""Whom a request's work lets in by memory, and whom only by the ledger; and when its answer leaves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pinq.curator.deadline import Stopped
from pinq.errors import BudgetExceeded, NotAuthorised, PinqError, QueryError
from pinq.server.gate import REFUSAL_SECONDS, Gate
from pinq.server.limits import AuthThrottle, Settings
from pinq.server.replies import Visit, begun, remembered

REFUSED = BudgetExceeded("much", asked=2, remaining=1, scope="")  # type: ignore[arg-type]


def visit(*, known: bool, valid: bool) -> Visit:
    """A request whose token this process knows, or not, and whose grant still counts, or not."""
    grant: Any = SimpleNamespace(analyst="ana")
    ledger = SimpleNamespace(
        grant_of_token=lambda _: grant if valid else None, known_grant_of_token=lambda _: grant if known else None
    )
    at: Any = SimpleNamespace(name="people", ledger=ledger)
    return Visit("people", "digest", leased=at)


class Clock:
    """The gate's clock, and a sleep that takes whole milliseconds as an event loop does: up to half of one too many or too few."""

    def __init__(self, patch: pytest.MonkeyPatch, now: float) -> None:
        self.now = now
        patch.setattr("pinq.server.gate.time", SimpleNamespace(monotonic=lambda: self.now))
        patch.setattr("pinq.server.gate.asyncio", SimpleNamespace(sleep=self.sleep))

    async def sleep(self, seconds: float) -> None:
        self.now += max(round(seconds, 3), 1e-5)


def test_work_begins_once_the_ledger_was_read_for_its_token() -> None:
    """Also where this process remembers a grant that has ended."""
    assert begun(lambda _, body: body.decode(), visit(known=True, valid=True), b"done") == "done"
    with pytest.raises(NotAuthorised):
        begun(lambda *_: "done", visit(known=True, valid=False), b"")


def test_what_charges_is_let_in_by_memory() -> None:
    """A charge looks at the token by itself; who is not remembered is looked for in the ledger."""
    assert remembered(lambda *_: "done", visit(known=True, valid=False), b"") == "done"
    assert remembered(lambda *_: "done", visit(known=False, valid=True), b"") == "done"
    with pytest.raises(NotAuthorised):
        remembered(lambda *_: "done", visit(known=False, valid=False), b"")


@pytest.mark.parametrize("error", [QueryError("there is no column."), REFUSED, Stopped(), NotAuthorised()])
def test_a_grant_that_has_ended_learns_nothing_but_that(error: Exception) -> None:
    """What is wrong with its question is told to none that this process only remembers."""

    def work(*_: object) -> str:
        raise error

    with pytest.raises(NotAuthorised):
        remembered(work, visit(known=True, valid=False), b"")
    with pytest.raises((PinqError, Stopped)) as raised:
        remembered(work, visit(known=True, valid=True), b"")
    assert raised.value is error


@pytest.mark.parametrize(
    ("known", "took", "waits"),
    [(True, 0.1, 0.4), (True, 0.7, 0.3), (True, 2.2, 0.3), (False, 0.1, 1.9), (False, 2.5, 1.5)],
)
def test_an_answer_leaves_at_the_end_of_a_time_bucket(
    monkeypatch: pytest.MonkeyPatch, known: bool, took: float, waits: float
) -> None:
    """Of its dataset's buckets of half a second; of the longest, 2 s, where a token opened nothing. And only once."""
    datasets: Any = {
        name: SimpleNamespace(policy=SimpleNamespace(padding_seconds=seconds))
        for name, seconds in [("a", 0.5), ("b", 2.0)]
    }
    clock = Clock(monkeypatch, 100.0 + took)
    gate, one = Gate.__new__(Gate), Visit("a", "digest", dataset=datasets["a"] if known else None, clock=100.0)
    gate.datasets = SimpleNamespace(served=datasets)  # type: ignore[assignment]
    for _ in range(2):
        asyncio.run(gate._pad(one))
    assert 0 <= clock.now - (100.0 + took + waits) < 2e-5


def test_without_padding_a_refusal_alone_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a look into a ledger takes at most, so that it does not tell whether there was one."""
    clock = Clock(monkeypatch, 100.0)
    bare: Any = SimpleNamespace(policy=SimpleNamespace(padding_seconds=0.0))
    gate = Gate.__new__(Gate)
    gate.datasets = SimpleNamespace(served={"a": bare})  # type: ignore[assignment]
    asyncio.run(gate._pad(Visit("a", "digest", dataset=bare, clock=99.999)))
    assert clock.now == 100.0
    asyncio.run(gate._pad(Visit("a", "digest", dataset=None, clock=99.999)))
    assert 0 <= clock.now - (99.999 + REFUSAL_SECONDS) < 2e-5


@pytest.mark.parametrize("fraction", [0.0, 0.0002, 0.0005, 0.0007])
def test_when_an_answer_leaves_does_not_tell_within_which_part_of_a_millisecond_its_work_ended(
    monkeypatch: pytest.MonkeyPatch, fraction: float
) -> None:
    """Though the event loop sleeps for whole milliseconds only."""
    clock = Clock(monkeypatch, 100.1 + fraction)
    gate, one = Gate.__new__(Gate), Visit("a", "digest", clock=100.0)
    one.dataset = SimpleNamespace(policy=SimpleNamespace(padding_seconds=0.5))  # type: ignore[assignment]
    asyncio.run(gate._pad(one))
    assert 0 <= clock.now - 100.5 < 2e-5


@pytest.mark.parametrize(
    ("padding", "opened", "alone"), [(1, "", True), (0, "", True), (1, "a", True), (0, "a", False)]
)
def test_a_token_that_has_opened_nothing_yet_queues_alone(padding: int, opened: str, alone: bool) -> None:
    """Nobody knows whether its dataset pads: side by side, its requests would time each other's work."""
    gate = Gate.__new__(Gate)
    policy = SimpleNamespace(padding=padding or None)
    gate.datasets = SimpleNamespace(served={"a": SimpleNamespace(policy=policy)})  # type: ignore[assignment]
    gate._throttle = AuthThrottle(Settings(), is_token=lambda _: False)
    if opened:
        gate._throttle.right("digest", opened)
    assert gate._alone("digest") is alone
