# SPDX-License-Identifier: Apache-2.0
"""Random ledgers, written by the product: grants and their changes, charges that fit and others, answers, two policies."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

from pinq.errors import PinqError
from pinq.ledger.events import FREE, Begun, LoggedQuery, Signature, Terms, now
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon
from tests.support.requests.random_demands import demand

ANALYSTS = ("ana", "bob", 'zoë "Z"\n')
VERBS = ("noisy_count", "noisy_sum", "exp_mech")


def random_ledger(draw: random.Random, url: str | Path = "sqlite://") -> Ledger:
    """A ledger after about twenty random acts, refused ones included."""
    ledger = Ledger(url, f"d{draw.randint(1, 9)}")
    ledger.declare("x", Epsilon(draw.randint(40, 200)), {"max_rows": 9})
    for number in range(draw.randint(5, 30)):
        try:
            _act(draw, ledger, draw.choice(ANALYSTS), number)
        except PinqError:  # a refusal is logged; a failed act of the provider leaves no event
            continue
    return ledger


def _act(draw: random.Random, ledger: Ledger, analyst: str, number: int) -> None:
    by, loss = Signature("lea@clinic", draw.choice(["", "why – so"])), Epsilon(draw.randint(1, 30))
    match draw.choice(["grant", "extend", "terms", "revoke", "declare", "version", *["charge"] * 14]):
        case "grant":
            ends = draw.choice([None, now() + timedelta(days=9)])
            ledger.grant(analyst, Epsilon(draw.randint(20, 90)), ends, token=draw.choice(["", "ab" * 32]), by=by)
        case "extend":
            ledger.extend(analyst, loss, by=by)
        case "terms":
            limited = Terms(max_epsilon_per_query=Epsilon(20), verbs=VERBS[:2], columns=("s",))
            ledger.set_terms(analyst, draw.choice([FREE, limited]), by=by)
        case "revoke":
            ledger.revoke(analyst, by=by)
        case "declare":
            ledger.declare(f"x{number}", Epsilon(draw.randint(40, 200)), {"max_rows": 9}, by=by)
        case "version":
            cohort, partition = draw.choice([("", ""), ("", ""), ("2026-01", "ad"), ("2026-02", "ad"), ("b", "cd")])
            own = {"table": draw.choice(["", "visits", "lab"]), "cohort": cohort, "partition": partition}
            ledger.begin(Begun(0, "written again", "ab" * 16, f"{draw.randint(1, 3):032x}", **own), str, by=by)
        case _:
            if analyst not in ledger.grants():
                ledger.grant(analyst, Epsilon(draw.randint(20, 90)), by=by)
            asked = LoggedQuery(verb=draw.choice(VERBS), about="how many \u2028 “so”", identity=f"{number:032x}")
            version = draw.randint(1, ledger.log.state.last)
            ledger.charge(analyst, f"r{number}", demand(draw), loss, asked, version=version)
            if draw.random() < 0.8:
                ledger.answer(analyst, f"r{number}", f'{{"values": [{number}]}}')


def exported(ledger: Ledger) -> list[dict[str, Any]]:
    """The lines of a ledger, as ``docs/log-format.md`` has them."""
    with ledger.log.database.transaction(write=False, after=1) as rows:
        lines = [row._asdict() for row in rows]
    numbers = [line["seq"] for line in lines if line["kind"] == "answer"]
    with ledger.log.database.transaction(write=False):
        texts = {number: text for number, _, text in ledger.log.database.answers(numbers)}
    return [line | ({"answer": texts[line["seq"]]} if line["seq"] in texts else {}) for line in lines]
