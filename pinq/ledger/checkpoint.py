# SPDX-License-Identifier: Apache-2.0
"""Writes the fold of a log down, so that who only looks need not replay it.

Nothing that charges ever reads one: whoever may append replays the log itself. A checkpoint is a
convenience for displays, its text has a digest, and one that this version cannot read is passed
over.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter, deque
from datetime import datetime
from typing import NamedTuple

from pinq.ledger.acts import Declared
from pinq.ledger.body import Body, moment_of, text_of_moment
from pinq.ledger.composition import Costs, Together
from pinq.ledger.state import Account, LedgerState
from pinq.ledger.terms import Grant, Terms
from pinq.public.epsilon import Epsilon

__all__ = ["Checkpoint", "read", "write"]

FORM = 2  # another one for every change of what is written or what it means


class Checkpoint(NamedTuple):
    """The fold of a log up to an event.

    Attributes:
        seq, hash: Of the event.
        form: How the text is to be read.
        digest: SHA-256 of the text.
        text: The fold, JSON.
    """

    seq: int
    hash: str
    form: int
    digest: str
    text: str


def write(state: LedgerState, seq: int, chained: str) -> Checkpoint:
    """Writes down what the events up to one say."""
    text = json.dumps(
        {
            "dataset": state.dataset,
            "salt": state.salt.hex(),
            "policy": None if state.policy is None else state.policy.to_body(),
            "together": [state.together.cap.nano, state.together.rule, state.together.sum.nano],
            "union": _costs(state.together.union),
            "accounts": [_account(account) for account in state.accounts.values()],
            "questions": [[*asked, request] for asked, request in state.questions.items()],
        },
        separators=(",", ":"),
    )
    return Checkpoint(seq, chained, FORM, _digest(text), text)


def read(checkpoint: Checkpoint) -> LedgerState | None:
    """The fold that was written down; None where it is damaged, or of another version."""
    if checkpoint.form != FORM or _digest(str(checkpoint.text)) != checkpoint.digest:
        return None
    body, state = json.loads(checkpoint.text), LedgerState()
    state.dataset, state.salt = body["dataset"], bytes.fromhex(body["salt"])
    state.policy = None if body["policy"] is None else Declared.from_body(body["policy"])
    cap, rule, total = body["together"]
    state.together = Together(Epsilon(cap), rule, Epsilon(total), _costs_of(body["union"]))
    for account in body["accounts"]:
        state.accounts[account["analyst"]] = _account_of(account, state.together)
    # Derived, not stored: tokens are in the grants.
    state.holders.update({grant.token: name for name, grant in state.grants.items() if grant.token})
    state.questions.update({(analyst, question): request for analyst, question, request in body["questions"]})
    return state


def _costs(costs: Costs) -> Body:
    return {
        "part": [[key.hex(), nano] for key, nano in costs.part.items()],
        "largest": [[part.hex(), split.hex(), nano] for (part, split), nano in costs.largest.items()],
    }


def _costs_of(body: Body) -> Costs:
    return Costs(
        {bytes.fromhex(key): nano for key, nano in body["part"]},
        {(bytes.fromhex(part), bytes.fromhex(split)): nano for part, split, nano in body["largest"]},
    )


def _account(account: Account) -> Body:
    return {
        "analyst": account.analyst,
        "grant": None if account.grant is None else _grant(account.grant),
        "costs": _costs(account.costs),
        "charges": account.charges,
        "answers": account.answers,
        "answered": account.answered,
        "waiting": sorted(account.waiting),
        "refused": account.refused,
        "lines": account.lines.tolist(),
        "totals": account.totals.tolist(),
        "first": account.first,
        "last": account.last,
    }


def _account_of(body: Body, together: Together) -> Account:
    costs = _costs_of(body["costs"])
    grant = None if body["grant"] is None else _grant_of(body["analyst"], body["grant"], costs)
    kept = {name: body[name] for name in ("analyst", "charges", "answers", "answered", "first", "last")}
    return Account(
        **kept,
        together=together,
        grant=grant,
        costs=costs,
        waiting=set(body["waiting"]),
        refused=Counter(body["refused"]),
        lines=array("q", body["lines"]),
        totals=array("q", body["totals"]),
    )


def _grant(grant: Grant) -> Body:
    return {
        "limit": grant.limit.nano,
        "expires": text_of_moment(grant.expires),
        "revoked": grant.revoked,
        "terms": grant.terms.to_body(),
        "token": grant.token,
        "recent": [moment.isoformat() for moment in grant.recent],
        "stored": grant.stored,
    }


def _grant_of(analyst: str, body: Body, costs: Costs) -> Grant:
    return Grant(
        analyst,
        Epsilon(body["limit"]),
        moment_of(body["expires"]),
        body["revoked"],
        costs,
        Terms.of(body["terms"]),
        body["token"],
        deque(map(datetime.fromisoformat, body["recent"])),
        body["stored"],
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
