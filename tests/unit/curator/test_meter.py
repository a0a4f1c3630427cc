# SPDX-License-Identifier: Apache-2.0
"""What a grant allows of work and of the ledger's bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pinq import AnyGrouping, Groups, InfoGain, NotAllowed, TooManyRequests, Values
from pinq.curator.deadline import WorkMeter
from pinq.language.queries import Request
from pinq.ledger.events import EVENT_BYTES, Terms


def test_work_of_the_last_minute_counts_and_the_refusal_names_price_and_limit() -> None:
    """Sixty seconds later it is forgotten; what never fits is said to be too much."""
    now = [0.0]
    meter = WorkMeter(lambda: now[0])
    meter.take("ana", 60, 100)
    with pytest.raises(TooManyRequests, match="takes 50 units of work, and this grant allows 100 a minute") as slow:
        meter.take("ana", 50, 100)
    assert slow.value.retry_after == 60
    meter.take("bea", 50, 100)
    meter.take("ana", 50, None)
    now[0] = 60.0
    meter.take("ana", 50, 100)
    with pytest.raises(NotAllowed, match="takes 101 units"):
        meter.take("ana", 101, 100)


def test_processes_share_a_quota_of_work() -> None:
    """Together they allow no more than the grant; what is more than a share is said to be too much."""
    meters = [WorkMeter(lambda: 0.0, processes=3) for _ in range(3)]
    for meter in meters:
        meter.take("ana", 33, 100)
        with pytest.raises(TooManyRequests, match="allows 100 a minute, of which each of 3 processes has a share"):
            meter.take("ana", 1, 100)
        with pytest.raises(NotAllowed, match="takes 34 units"):
            meter.take("ana", 34, 100)


def test_a_quota_of_less_than_a_unit_for_each_process_is_said_to_be_none() -> None:
    """To ask less would not help, so nobody is told to."""
    with pytest.raises(NotAllowed, match=r"allows 3 units of work a minute, and 4 processes share them") as refused:
        WorkMeter(lambda: 0.0, processes=4).take("ana", 1, 3)
    assert "Ask fewer" not in str(refused.value)


def _curator(in_memory: Callable[..., Any], **terms: Any) -> tuple[Any, str]:
    curator = in_memory(10)._session._curator
    (analyst,) = curator.ledger.accounts()
    curator.ledger.set_terms(analyst, replace(Terms(), **terms))
    return curator, analyst


def _count(name: str) -> Request:
    return Request(id=name, verb="noisy_count", epsilon="0.000000001")


def test_previews_and_questions_draw_on_one_quota_of_work(in_memory: Callable[..., Any]) -> None:
    """A free preview is not free of work; nothing is spent by what is refused."""
    curator, analyst = _curator(in_memory, work_per_minute=4)
    curator.preview(analyst, _count("p"))
    curator.ask(analyst, _count("a"))
    curator.preview(analyst, _count("p"))
    with pytest.raises(TooManyRequests, match="Nothing was spent"), curator.refusing(analyst, "b"):
        curator.ask(analyst, _count("b"))


def test_a_quota_of_work_outlives_a_commit_that_failed(in_memory: Callable[..., Any]) -> None:
    """Until the log is read again nothing is known of a grant, and that is no leave to pass its quota."""
    curator, analyst = _curator(in_memory, work_per_minute=4)
    curator.ledger.log._reset()
    assert curator.ledger.work_per_minute(analyst) == 4


def test_the_ledger_keeps_no_more_than_the_quota(in_memory: Callable[..., Any]) -> None:
    """Charges reserve what they and their answers take at most; past the quota nothing is written."""
    quota = 40_000
    curator, analyst = _curator(in_memory, stored_bytes=quota)
    ledger = curator.ledger
    before, refused = len(list(ledger.log.events())), 0
    for number in range(60):
        try:
            curator.ask(analyst, _count(f"r{number}"))
        except NotAllowed as error:
            assert "this grant allows 40,000 in all" in str(error)
            refused += 1
    assert refused > 20
    assert ledger.grant_of(analyst).stored <= quota
    assert (len(list(ledger.log.events())) - before) * EVENT_BYTES <= quota


def test_a_grant_without_a_quota_has_the_usual_one(in_memory: Callable[..., Any], monkeypatch: Any) -> None:
    """Nobody can fill the disk whom the provider told no limit; one that is told takes its place."""
    monkeypatch.setattr("pinq.ledger.state.STORED_BYTES", 40_000)
    curator, analyst = _curator(in_memory)
    requests = [_count(f"r{number}") for number in range(60)]
    with pytest.raises(NotAllowed, match="this grant allows 40,000 in all"):
        [curator.ask(analyst, request) for request in requests]
    assert curator.ledger.grant_of(analyst).stored <= 40_000
    curator.ledger.set_terms(analyst, Terms(stored_bytes=10**6))
    curator.ask(analyst, _count("more"))


def test_what_is_reserved_for_an_answer_is_never_less_than_its_text(in_memory: Callable[..., Any]) -> None:
    """For every question, whatever is answered."""
    curator, analyst = _curator(in_memory)
    candidates = ((AnyGrouping("job"), Values("sex"), Groups("job", (("clerk",), ("nurse", "smith")))),)
    asked = [
        Request(id="c", verb="noisy_count", epsilon="0.000000001"),
        Request(id="s", verb="noisy_sum", epsilon="0.000000001", column="age"),
        Request(id="v", verb="noisy_avg", epsilon="0.000000001", column="age"),
        Request(id="e", verb="exp_mech", epsilon="0.1", score=InfoGain("income"), candidates=candidates, each=True),
    ]
    for request in asked:
        reserved = request.answer_bytes(curator.schema)
        assert len(curator.ask(analyst, request).text) <= reserved, request.id
