# SPDX-License-Identifier: Apache-2.0
"""What stands behind a handle of this process, for tests that look behind the wall."""

from __future__ import annotations

from typing import Any

from pinq.ledger.ledger import Ledger


def ledger_of(handle: Any) -> Ledger:
    """Where the handle's requests are charged."""
    ledger = handle._session._curator.ledger
    assert isinstance(ledger, Ledger)
    return ledger


def engine_of(handle: Any) -> Any:
    """What the handle's answers are computed from."""
    return handle._session._curator._engine


def encoded_rows(engine: Any) -> list[tuple[int, ...]]:
    """The rows that an engine counts, as codes, in its own order."""
    return [
        row
        for block in engine._codes.blocks
        for row in zip(*(codes.tolist() for codes in block.columns.values()), strict=True)
    ]
