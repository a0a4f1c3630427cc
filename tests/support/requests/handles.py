# SPDX-License-Identifier: Apache-2.0
"""Handles of this process with their ledgers and engines, for tests of the provider's side."""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pinq.analyst.queryable import PrivateQueryable
from pinq.curator.monitor import Curator
from pinq.engine import ArrayEngine, open_engine
from pinq.engine.codes import Codes
from pinq.ledger.events import Event
from pinq.ledger.ledger import Ledger
from pinq.ledger.state import LedgerState
from pinq.policy.policy import Policy
from pinq.provider.local import LocalSession, dummy_rows
from pinq.provider.report.audit import Audit, AuditLines
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema

KEPT = 64
_kept: OrderedDict[tuple[str, bytes], Codes] = OrderedDict()


def simulated(
    schema: Schema, *, rows: int = 10_000, epsilon: EpsilonLike = 1.0, data: Any = None, seed: int = 0
) -> PrivateQueryable:
    """A handle like that of ``pinq.simulate``, with rows that are encoded once for all tests of a process.

    Each handle has its own ledger and noise. Only the codes of equal rows are shared, and no code changes them,
    because encoding a small table takes longer than most fits.
    """
    ledger, budget = Ledger("sqlite://", "simulated"), Epsilon.of(epsilon)
    ledger.declare(schema.digest, budget, {})
    ledger.grant("simulated", budget)
    policy = Policy(dataset="simulated", cap=10**6, max_rows=schema.max_rows, columns=schema.columns, folder=Path())
    engine = engine_on(policy, dummy_rows(schema, rows, seed) if data is None else data, ledger.salt)
    return PrivateQueryable(LocalSession("simulated", "simulated", Curator(schema, ledger, engine)))


def engine_on(policy: Policy, data: Any, salt: bytes) -> ArrayEngine:
    """An engine on rows that were encoded already, if equal ones were, and nothing depends on the salt."""
    key = (policy.schema_.digest, hashlib.blake2b(pickle.dumps(data)).digest())
    if key not in _kept:
        engine, _ = open_engine(policy, data=data, salt=salt)
        assert isinstance(engine, ArrayEngine)
        if policy.privacy_unit != "row":  # the salt decides which rows of a unit are kept
            return engine
        assert engine._codes is not None
        _kept[key] = engine._codes
    _kept.move_to_end(key)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return ArrayEngine(_kept[key], policy.schema_, salt)


def ledger_of(handle: Any) -> Ledger:
    """The ledger that the handle's requests charge."""
    ledger = handle._session._curator.ledger
    assert isinstance(ledger, Ledger)
    return ledger


def engine_of(handle: Any) -> Any:
    """The engine that computes the handle's answers."""
    return handle._session._curator._engine


def engine_over(policy: Policy, *, data: Any = None, salt: bytes = b"") -> Any:
    """An engine on a policy's source, or on ``data``."""
    engine, _ = open_engine(policy, data=data, salt=salt)
    return engine


def encoded_rows(engine: Any) -> list[tuple[int, ...]]:
    """The rows that an engine counts, as codes, in its own order."""
    return [
        row
        for block in engine._codes.blocks
        for row in zip(*(codes.tolist() for codes in block.columns.values()), strict=True)
    ]


def replay(dataset: str, events: Iterable[Event]) -> Audit:
    """Replays a log from its first event; the line of each event has the budgets after it."""
    state, lines = LedgerState(), AuditLines()
    for event in events:
        state.apply(event)
        lines.add(event, state)
    return lines.report(dataset, state)
