# SPDX-License-Identifier: Apache-2.0
"""Whom a request's work lets in by memory, and whom only by the ledger."""

from __future__ import annotations

import math

import pytest

from pinq.curator.work import Turn
from pinq.errors import NotAuthorised
from pinq.server.api.gate import _job
from pinq.server.api.visit import Visit


@pytest.mark.parametrize("most", [1.0, math.inf])
def test_long_work_begins_only_once_the_ledger_was_read_for_its_token(most: float) -> None:
    """It may have waited since its grant ended; short work is looked at by its charge."""
    visit, worked = Visit("a", "query", "-"), list[bytes]()
    visit.turn = Turn(most=most)

    def ended(_: Visit) -> None:
        raise NotAuthorised

    def work(_: Visit, body: bytes) -> str:
        worked.append(body)
        return "answer"

    visit.authority = ended
    if most < math.inf:
        assert _job(visit, lambda: True, work, b"body") == "answer"
    else:
        with pytest.raises(NotAuthorised):
            _job(visit, lambda: True, work, b"body")
    assert worked == [b"body"] * (most < math.inf)
