# SPDX-License-Identifier: Apache-2.0
"""A snapshot: the state after some event as text, so that a ledger opens without a replay of its log.

The log has the digest of a snapshot as an event, so a forged snapshot needs a forged chain. It lacks the numbers of
charges and answers by request, which the tables have; each event found there is verified.

Privacy:
    A state from a snapshot is the state of a replay: ``dump`` writes each field that a price reads,
    and ``load`` reads it back unchanged. So no cost is smaller than in a replay. A lookup that
    finds too little makes a request cost again, never less.
    Held by: tests/property/test_snapshots.py.
"""

from __future__ import annotations

import json
import sys
from array import array
from base64 import b64decode, b64encode
from collections import Counter, deque
from datetime import datetime
from typing import Any

from pinq.ledger.composition import Costs
from pinq.ledger.events import Begun, PolicyDeclared, Retired, Terms, digest_of
from pinq.ledger.state import Account, LedgerState, Wanted
from pinq.public.epsilon import Epsilon

FORMAT = 1
"""The format of a log without tables; that of a log with tables is the next."""


def dump(state: LedgerState, first: str) -> str:
    """Writes a state and the hash of the log's first event as text."""
    # Orders are those of the events, as in a replay.
    return json.dumps(
        {
            "format": FORMAT + bool(state.places),
            "first": first,
            "dataset": state.dataset,
            "salt": state.salt.hex(),
            "policy": None if state.policy is None else state.policy.to_body(),
            "since": state.since,
            "spent": state.together.spent.nano,
            "rows": state.rows[""].to_body() if "" in state.rows else None,
            **({"places": [record.to_body() for name, record in state.rows.items() if name]} if state.places else {}),
            "begun": [*state.begun.items()],
            **({} if state.follows is None else {"follows": state.follows.to_body()}),
            **({"named": [*state.places.items()]} if state.places else {}),
            "accounts": [[name, _dumped(account)] for name, account in state.accounts.items()],
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def load(text: str) -> tuple[LedgerState, str] | None:
    """Reads a state, and the hash of the log's first event; None for another version's text."""
    read = json.loads(text)
    if read["format"] not in (FORMAT, FORMAT + 1):
        return None
    state = LedgerState()
    state.dataset, state.salt, state.since = read["dataset"], bytes.fromhex(read["salt"]), read["since"]
    state.begun = dict(map(tuple, read["begun"]))
    state.places = dict(map(tuple, read.get("named", ())))
    versions = [Begun.from_body(body) for body in (read["rows"], *read.get("places", ())) if body is not None]
    state.rows = {record.place: record for record in versions}
    state.together.spent = Epsilon(read["spent"])
    state.follows = Retired.from_body(read["follows"]) if "follows" in read else None
    if read["policy"] is not None:
        state.policy = PolicyDeclared.from_body(read["policy"])
        state.together.cap = state.policy.cap
    for name, fields in read["accounts"]:
        account = state.accounts[name] = _loaded(Account(name, state.together, state.places), fields)
        if account.token:
            state.analyst_of_token[account.token] = name
    return state, read["first"]


def query_key(analyst: str, query: Wanted) -> str:
    """The key of an analyst's query of a version of the rows, in the table of queries."""
    return digest_of(json.dumps([analyst, *query]))


_PLAIN = ("granted", "token", "revoked", "stored", "answered", "first", "last")
"""The fields of an account that are JSON as they are."""


def _dumped(account: Account) -> dict[str, Any]:
    return {name: getattr(account, name) for name in _PLAIN} | {
        "limit": account.limit.nano,
        "expires": account.expires and account.expires.isoformat(),
        "terms": account.terms.to_body(),
        "recent": [moment.isoformat() for moment in account.recent],
        "total": account.costs.total,
        "part": [(key.hex(), cost) for key, cost in account.costs.part.items()],
        "largest": [(key.hex(), split.hex(), cost) for (key, split), cost in account.costs.largest.items()],
        "waiting": sorted(account.waiting),
        "refused": account.refused,
        "lines": _packed(account.lines),
        "totals": _packed(account.totals),
    }


def _loaded(account: Account, read: dict[str, Any]) -> Account:
    for name in _PLAIN:
        setattr(account, name, read[name])
    account.limit, account.terms = Epsilon(read["limit"]), Terms.from_body(read["terms"])
    account.expires = None if read["expires"] is None else datetime.fromisoformat(read["expires"])
    account.recent = deque(map(datetime.fromisoformat, read["recent"]))
    account.costs = Costs(
        {bytes.fromhex(key): cost for key, cost in read["part"]},
        {(bytes.fromhex(key), bytes.fromhex(split)): cost for key, split, cost in read["largest"]},
        read["total"],
    )
    account.waiting, account.refused = set(read["waiting"]), Counter(read["refused"])
    account.lines, account.totals = _unpacked(read["lines"]), _unpacked(read["totals"])
    return account


def _packed(numbers: array[int]) -> str:
    """Writes whole numbers of 8 bytes, the lowest byte first, in base 64."""
    return b64encode(_lowest_first(numbers[:]).tobytes()).decode()


def _unpacked(text: str) -> array[int]:
    return _lowest_first(array("q", b64decode(text)))


def _lowest_first(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
