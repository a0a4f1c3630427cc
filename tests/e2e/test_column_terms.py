# SPDX-License-Identifier: Apache-2.0
"""A grant's ``columns`` hold for everything that can be asked, in process and over the wire, for a question and its preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from pinq import NotAllowed, QueryError
from pinq.ledger.events import FREE, Terms
from tests.support.processes.servers import publish, serving, token_of
from tests.support.requests.every_request import (
    ALONE,
    DERIVATIVES,
    FAMILIES,
    LISTED,
    POINTS,
    PRODUCTS,
    SCORES,
    SPECS,
    kinds,
    named,
    requests,
)
from tests.support.requests.handles import ledger_of

COLUMNS = ("sex", "job", "age", "income")
SAMPLED = 3  # of three requests one crosses the wire: the terms are looked at behind it


def test_every_kind_is_asked() -> None:
    """A class that is new to the vocabulary has an example among the requests of these tests, and says which columns it names."""
    examples = [*SPECS, *FAMILIES, *SCORES, *ALONE, *LISTED, *DERIVATIVES, *PRODUCTS, POINTS]
    assert {type(example) for example in examples} == kinds() | {type(POINTS)}
    assert all(isinstance(example.columns(), set) for example in examples)


def test_a_request_names_the_columns_of_its_text() -> None:
    """What terms are compared with is what stands in the request, whatever it asks."""
    assert all(request.columns() == named(request) for request in requests())


def test_terms_hold_in_process(granted: Callable[..., Any]) -> None:
    """Each request is answered under terms that allow its columns, or is none; and refused under terms that forbid one of them."""
    handle = granted(1000)
    ledger, session = ledger_of(handle), handle._session
    outcomes: Counter[str] = Counter()
    for request in requests():
        for forbidden in (None, *named(request)):
            ledger.set_terms(
                "ana",
                FREE
                if forbidden is None
                else Terms(columns=tuple(column for column in COLUMNS if column != forbidden)),
            )
            for verb, ask in (("query", session.ask), ("preview", session.preview)):
                try:
                    ask(request.model_copy(update={"id": f"{request.id}-{forbidden}"}))
                    outcome = "answered"
                except NotAllowed:
                    outcome = "forbidden"
                except QueryError:
                    outcome = "no such question"
                assert outcome in (
                    {"answered", "no such question"} if forbidden is None else {"forbidden", "no such question"}
                ), (verb, request)
                outcomes[outcome] += 1
    assert outcomes["answered"] > 100
    assert outcomes["forbidden"] > 200


def test_terms_hold_over_the_wire(tmp_path: Path) -> None:
    """The same at a server, for an analyst for each column that may not be asked: never an internal error."""
    policy = publish(tmp_path)
    tokens: dict[str | None, str] = {None: token_of(policy, "all", 100)}
    tokens |= {
        column: token_of(policy, column, 100, terms=Terms(columns=tuple(other for other in COLUMNS if other != column)))
        for column in COLUMNS
    }
    statuses: Counter[int] = Counter()
    with serving(policy, folder=tmp_path) as server, server.http() as client:
        for request in islice(requests(), 0, None, SAMPLED):
            for forbidden in (None, *named(request)):
                for route in ("query", "preview"):
                    answer = client.post(
                        f"/v1/people/{route}",
                        content=request.to_json(),
                        headers={"Authorization": f"Bearer {tokens[forbidden]}"},
                    )
                    assert answer.status_code in ((200, 400) if forbidden is None else (403, 400)), (
                        route,
                        request,
                        answer.text,
                    )
                    statuses[answer.status_code] += 1
    assert statuses[200] > 100 // SAMPLED
    assert statuses[403] > 200 // SAMPLED
