# SPDX-License-Identifier: Apache-2.0
"""Whom a request's work lets in by memory, and whom only by the ledger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pinq.curator.work import Stopped
from pinq.errors import BudgetExceeded, NotAuthorised, PinqError, QueryError
from pinq.server.replies import Visit, begun, remembered

REFUSED = BudgetExceeded("much", asked=2, remaining=1, scope="")  # type: ignore[arg-type]


def visit(*, known: bool, valid: bool) -> Visit:
    """A request whose token this process knows, or not, and whose grant still counts, or not."""
    grant: Any = SimpleNamespace(analyst="ana")
    ledger = SimpleNamespace(holder=lambda _: grant if valid else None, known_holder=lambda _: grant if known else None)
    at: Any = SimpleNamespace(name="people", ledger=ledger)
    return Visit("people", "digest", at=at)


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
