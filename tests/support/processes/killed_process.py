# SPDX-License-Identifier: Apache-2.0
"""A process that charges a ledger and is killed at its commit. This module imports nothing slow."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from typing import Any

from pinq.ledger import log, state
from pinq.ledger.composition import Demand
from pinq.ledger.database import SQLite
from pinq.ledger.ledger import Ledger
from pinq.ledger.postgresql import PostgreSQL
from pinq.public.epsilon import Epsilon


def killed_at_commit(
    url: str, at: datetime, analyst: str, request: str, demand: Demand, nano: int, when: str
) -> int | None:
    """Charges in a process of its own; returns its exit status.

    Args:
        url: The ledger.
        at: The time of the process's clock.
        analyst, request, demand, nano: The charge.
        when: The moment of the kill, ``before the commit`` or ``after the commit``.
    """
    from tests.support.processes.forked_processes import FORKS

    process = FORKS.Process(target=_charge_and_die, args=(url, at, analyst, request, demand, nano, when))
    process.start()
    process.join()
    return process.exitcode


def _charge_and_die(url: str, at: datetime, analyst: str, request: str, demand: Demand, nano: int, when: str) -> None:
    vars(state)["now"] = vars(log)["now"] = lambda: at
    ledger = Ledger(url, "d")
    kind: Any = PostgreSQL if "postgresql" in url else SQLite
    right = kind.commit

    def deadly(self: Any) -> None:
        self.run("SELECT 1")  # the database has the whole charge, and drops it without a commit
        if when == "after the commit":
            right(self)
        os.kill(os.getpid(), signal.SIGKILL)

    kind.commit = deadly
    ledger.charge(analyst, request, demand, Epsilon(nano))
