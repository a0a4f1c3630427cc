# SPDX-License-Identifier: Apache-2.0
"""Checks of a handle and its ledger, for tests of faults."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pinq
from pinq.ledger.ledger import Ledger
from tests.support.requests.handles import ledger_of


def kinds(ledger: Ledger) -> list[str]:
    return [event.kind for event in ledger.log.events()]


def unspent(handle: Any, epsilon: Any = 1) -> None:
    """Nothing was spent, nothing was charged, and the ledger holds."""
    ledger = ledger_of(handle)
    ledger.verify()
    assert "charge" not in kinds(ledger)
    assert (handle.budget.spent, handle.budget.remaining) == (0, Fraction(str(epsilon)))


def spend(file: Path, epsilon: Any) -> Any:
    handle = pinq.open(file, analyst="ana")
    handle.noisy_count(epsilon=epsilon)
    return handle
