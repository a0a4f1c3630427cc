# SPDX-License-Identifier: Apache-2.0
"""A page of the history costs what it holds, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from pinq.errors import BudgetExceeded
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Answer, Asked
from pinq.ledger.composition import Demand
from pinq.ledger.events import LoggedQuery
from pinq.ledger.ledger import Ledger
from pinq.provider.history import CHARACTER, LINE, LOGGED, history, page
from pinq.public.epsilon import Epsilon
from tests.support.requests.recorded_calls import noting

WHOLE = Demand.of(PartSet([Block(Part())]))
VALUES = (7,) * 10
LENGTH = len(Answer(id="r0", verb="noisy_count", epsilon="0.1", values=VALUES).text)


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    """Ten charges, of which the last has no answer yet, each after a refusal."""
    with closing(Ledger("sqlite://", "d")) as opened:
        opened.declare("x", Epsilon(10**9), {})
        opened.grant("ana", Epsilon(100))
        for number in range(10):
            with pytest.raises(BudgetExceeded):
                opened.charge("ana", f"r{number}", WHOLE, Epsilon(1000), LoggedQuery(about="much"))
            opened.charge("ana", f"r{number}", WHOLE, Epsilon(2), LoggedQuery(about=str(number)))
            if number < 9:
                answer = Answer(id=f"r{number}", verb="noisy_count", epsilon="0.1", values=VALUES)
                opened.answer("ana", f"r{number}", answer.text)
        yield opened


def test_pages_join_to_the_history(ledger: Ledger) -> None:
    """Whatever their length: each line once, with the total after it, and its answer."""
    whole = list(history(ledger, "ana"))
    assert [line.about for line in whole] == [text for number in range(10) for text in ("much", str(number))]
    assert [line.spent for line in whole[:4]] == ["0", "0.000000002", "0.000000002", "0.000000004"]
    assert [line.answer is not None for line in whole] == [False, True] * 9 + [False, False]
    for most in (1, 3, 19, 20, 21):
        lines, more = list[Asked](), True
        while more:
            got = page(ledger, "ana", len(lines), limit=most)
            lines, more = [*lines, *got.lines], got.more
            assert len(got.lines) <= most
        assert lines == whole
    assert page(ledger, "ana", 10**30).lines == page(ledger, "nobody").lines == ()


def test_a_page_ends_after_so_many_characters(ledger: Ledger) -> None:
    """One line at least, or nobody would ever see what follows a large answer."""
    assert len(page(ledger, "ana", 1, characters=1).lines) == 1
    assert len(page(ledger, "ana", 1, characters=LENGTH + 1).lines) == 3
    assert page(ledger, "ana", 1, characters=1).more


def test_a_page_ends_after_so_much_that_was_asked(ledger: Ledger) -> None:
    """A question about very many parts is long in the log; one of any length still comes, and none is lost."""
    charged = ledger.log.lengths("ana", 1, 1)[0]
    assert len(page(ledger, "ana", 1, logged=1).lines) == 1
    assert len(page(ledger, "ana", 1, logged=charged + 1).lines) == 2
    lines, more = list[Asked](), True
    while more:
        got = page(ledger, "ana", len(lines), logged=1)
        lines, more = [*lines, *got.lines], got.more
    assert lines == list(history(ledger, "ana"))


def test_a_page_is_priced_by_what_it_holds(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price is known before an answer is read, and no line before the page is looked at."""
    monkeypatch.setattr("pinq.provider.history.units", lambda nanoseconds: nanoseconds)
    read: list[int] = []
    monkeypatch.setattr(ledger.log, "event", noting(ledger.log.event, read, lambda row: row.seq))

    prices: list[tuple[int, int]] = []
    for start in (0, 8, 16):
        read.clear()
        prices.clear()
        page(ledger, "ana", start, limit=2, admit=lambda work: prices.append((work, len(read))))
        logged = LOGGED * sum(ledger.log.lengths("ana", start, 2))
        assert prices == [(2 * LINE, 0), (logged, 0), (LENGTH * CHARACTER, 2)]


def test_nothing_follows_from_an_answer_before_its_bucket_ends(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """With padding, an answer that is there already counts neither for the price nor for where a page ends."""
    at = datetime.fromisoformat(ledger.log.lines("ana")[0].event.at)
    prices: list[int] = []
    for seconds, seen in ((1.0, False), (7200.0, True)):
        monkeypatch.setattr("pinq.provider.history.now", lambda later=seconds: at + timedelta(seconds=later))
        got = page(ledger, "ana", limit=4, characters=1, bucket=3600.0, admit=prices.append)
        assert [line.answer is not None for line in got.lines] == ([False, True] if seen else [False] * 4)
    assert set(prices) == {1}
