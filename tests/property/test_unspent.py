# SPDX-License-Identifier: Apache-2.0
"""An error says "Nothing was spent." only where the ledger agrees: in process, over HTTP, for ids that were charged and for ids that were not."""

from __future__ import annotations

import ast
import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import pinq
from miners import DiffPC45
from pinq import ClassCount, Gini, Values, errors
from pinq.errors import (
    UNSPENT,
    BudgetExceeded,
    InternalError,
    PinqError,
    QueryError,
    Refusal,
    TooManyRequests,
    Unavailable,
    unspent,
)
from pinq.language.queries import Answer, Request
from pinq.language.wire import SCHEMA_HEADER, Failure
from pinq.ledger.events import Terms
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from pinq.server.app import create_app
from pinq.server.datasets import Dataset, Datasets
from pinq.server.limits import Settings
from pinq.server.log import RequestLog
from tests.support.house.checkout import ROOT
from tests.support.processes.servers import people, publish, token_of
from tests.support.requests.handles import ledger_of

KINDS = [getattr(errors, name) for name in errors.__all__]


def made(kind: type[PinqError], text: str) -> PinqError:
    """An error of any class, whatever its class takes."""
    if kind is BudgetExceeded:
        return BudgetExceeded(text, asked=Fraction(1), remaining=Fraction(0), scope="cap")
    if kind is TooManyRequests:
        return TooManyRequests(text, 1.0)
    takes_text = kind.__init__ is Exception.__init__ or kind in (QueryError, Unavailable)
    return kind(text) if takes_text else kind()


@pytest.mark.parametrize("kind", KINDS)
def test_the_sentence_is_a_fact_and_no_text(kind: type[PinqError]) -> None:
    """No class says it by itself or because somebody typed it; who knows, sets it, once; only a refusal can be told so by ``unspent``; the wire keeps it."""
    for text in ("No.", f"No. {UNSPENT}", f"No. {UNSPENT} Ask for less."):
        error = made(kind, text)
        assert UNSPENT not in str(error)
        with pytest.raises(kind), unspent(), unspent():
            raise error
        assert str(error).count(UNSPENT) == isinstance(error, Refusal)
        again = Failure.of(error).error()
        assert (type(again), str(again), again.charged) == (kind, str(error), error.charged)
    error.charged = Fraction(5, 6 * 10**9) * 10**9
    assert str(error).endswith("was spent until then.")


Send = Callable[..., httpx.Response]


@contextmanager
def sending(policy: Path, token: str) -> Iterator[tuple[Send, Dataset]]:
    """Sends requests to an application in this process."""
    dataset = Dataset.open(policy)
    with closing(RequestLog(Path(os.devnull))) as log, asyncio.Runner() as runner:
        app = create_app(Datasets([dataset]), Settings(rate=10**6), log)
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="https://stats.example",
            headers={"Authorization": f"Bearer {token}"},
        )
        yield lambda method, path, **words: runner.run(client.request(method, path, **words)), dataset
        runner.run(client.aclose())
    dataset.curator.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Send, Dataset]]:
    """An application, its dataset, and a grant with terms."""
    policy = publish(tmp_path_factory.mktemp("unspent"), frame=people(40), cap=10**6)
    token = token_of(policy, "ana", 1000, terms=Terms(max_epsilon_per_query=Epsilon(5 * 10**9), columns=("sex", "age")))
    with sending(policy, token) as app:
        yield app


IDS = st.sampled_from(["charged", "other", "new one", "\ud800"]) | st.from_regex(r"\A[a-c]\Z")
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "id": IDS,
        "verb": st.sampled_from(["noisy_count", "noisy_sum", "noisy_avg", "exp_mech", "count"]),
        "epsilon": st.sampled_from(["0.001", "4", "6", "2000", "0", "x", 1]),
        "column": st.sampled_from(["age", "sex", "job", "nobody", 7]),
        "score": st.sampled_from(
            [{"kind": "gini", "target": "sex"}, {"kind": "gini", "target": "nobody"}, {"kind": "x"}]
        ),
        "candidates": st.sampled_from(
            [
                [[{"kind": "values", "column": "sex"}]],
                [[{"kind": "any_cut", "column": "age"}]],
                [[{"kind": "values", "column": "\udfff"}]],
                3,
            ]
        ),
        "parts": st.sampled_from(
            [
                {"nodes": [[0, 0, 0]]},
                {"specs": [{"kind": "values", "column": "sex"}], "asked": [[0, 0]], "shape": [2]},
                {"shape": [-1]},
            ]
        ),
        "reuse": st.booleans(),
        "textbook": st.booleans(),
        "unknown": st.just(1),
    },
)


def test_what_a_server_says_is_what_its_ledger_says(served: tuple[Send, Dataset]) -> None:
    """Any body, any route, any schema: with the sentence the budget stands still and the id has no charge; an id that was charged is never told so."""
    send, dataset = served
    assert (
        send("POST", "/v1/people/query", json={"id": "charged", "verb": "noisy_count", "epsilon": "0.25"}).status_code
        == 200
    )
    digests = [dataset.curator.schema.digest, "another", None]

    @given(
        FIELDS,
        st.sampled_from(["query", "preview"]),
        st.sampled_from(digests),
        st.sampled_from(["", "", "", "{", "]", "\ufeff"]),
    )
    @settings(max_examples=10_000 if os.environ.get("PINQ_EXPLORE") else 300)
    def check(fields: dict[str, Any], route: str, digest: str | None, mess: str) -> None:
        body = json.dumps({"id": "d", "verb": "noisy_count", "epsilon": "0.001"} | fields) + mess
        before = dataset.ledger.grants()["ana"].spent.nano
        response = send(
            "POST", f"/v1/people/{route}", content=body, headers={} if digest is None else {SCHEMA_HEADER: digest}
        )
        spent = dataset.ledger.grants()["ana"].spent.nano - before
        if response.status_code == 200:
            return
        assert response.status_code in (400, 402, 403)
        assert spent == 0
        name = "" if mess else fields.get("id", "d")  # what is no JSON has no id
        charged = name.isascii() and dataset.ledger.answer_of("ana", name)[0] is not None
        claims = response.json()["message"].count(UNSPENT)
        assert claims == (route == "preview" or not charged)

    check()


def test_every_route_answers_a_stranger_without_a_claim(served: tuple[Send, Dataset]) -> None:
    """Whoever was not let in, spoke another protocol or asked for another method was not looked up in the ledger, so nothing is said of it."""
    send, _ = served
    paths = [
        (method, path.replace("{dataset}", "people"))
        for path, methods in send("GET", "/openapi.json").json()["paths"].items()
        for method in methods
    ]
    assert len(paths) >= 5
    for method, path in paths:
        for headers in ({"Authorization": "Bearer wrong"}, {"Pinq-Protocol": "0"}):
            response = send(method, path, headers=headers)
            assert UNSPENT not in response.text


def test_a_lost_answer_outlives_a_change_of_the_policy(tmp_path: Path) -> None:
    """The same request under the schema that it was asked under gets the answer that was paid for; another one under its id is refused without a claim."""
    policy = publish(tmp_path, frame=people(40))
    token = token_of(policy, "ana", 10)
    body = {"id": "lost", "verb": "noisy_count", "epsilon": "0.25"}
    old = load_policy(policy).schema_.digest
    with sending(policy, token) as (send, _):
        answer = send("POST", "/v1/people/query", json=body, headers={SCHEMA_HEADER: old})
    policy.write_text(load_policy(policy).model_copy(update={"max_rows": 5000}).to_yaml(), encoding="utf-8")
    with sending(policy, token) as (send, dataset):
        again = send("POST", "/v1/people/query", json=body, headers={SCHEMA_HEADER: old})
        assert (again.status_code, again.json()) == (200, answer.json())
        for headers, changes in (
            ({SCHEMA_HEADER: old}, {"epsilon": "0.5"}),
            ({SCHEMA_HEADER: "x"}, {}),
            ({}, {}),
            ({}, {"column": "nobody", "verb": "noisy_sum"}),
        ):
            refused = send("POST", "/v1/people/query", json=body | changes, headers=headers)
            assert refused.status_code == 400
            assert UNSPENT not in refused.json()["message"]
        fresh = send("POST", "/v1/people/query", json=body | {"id": "fresh"}, headers={SCHEMA_HEADER: old})
        assert (
            fresh.json()["message"]
            == f"the data provider changed the policy since this handle was opened; connect again. {UNSPENT}"
        )
        assert dataset.ledger.grants()["ana"].spent.nano == 250_000_000


CALLS: dict[str, Callable[[Any], Any]] = {
    "no loss": lambda h: h.noisy_count(epsilon=0),
    "no column": lambda h: h.noisy_sum("nobody", epsilon=0.1),
    "no number": lambda h: h.noisy_avg("sex", epsilon=0.1),
    "no score": lambda h: h.exp_mech([Values("sex")], score=None, epsilon=0.1),
    "no candidate": lambda h: h.exp_mech(["sex"], score=Gini("income"), epsilon=0.1),
    "half a character": lambda h: h.exp_mech([Values("\ud800")], score=Gini("income"), epsilon=0.1),
    "no verb": lambda h: h.preview("count", epsilon=0.1),
    "no spec": lambda h: h.partition("sex"),
    "no part": lambda h: h.partition(Values("sex"))["x"],
    "no position": lambda h: h.partition(Values("sex"))[[7]],
    "no parts": lambda h: pinq.Parts.union(),
    "too much": lambda h: h.noisy_count(epsilon=2),
    "a fit of nothing": lambda h: DiffPC45(epsilon=0.1).fit(h, "nobody"),
    "a fit of too much": lambda h: DiffPC45(epsilon=2).fit(h, "income"),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_a_handle_refuses_costs_nothing_and_says_so(case: str, granted: Callable[..., Any]) -> None:
    """Once, at the end, whoever refused it."""
    handle = granted(1)
    with pytest.raises(Refusal) as refused:
        CALLS[case](handle)
    assert str(refused.value).count(UNSPENT) == 1
    assert str(refused.value).endswith(UNSPENT)
    assert handle.budget.spent == 0


def test_a_fit_that_breaks_off_says_what_it_cost(granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of a later question of a fit costs nothing itself; the fit did."""
    handle = granted(1)
    ask, asked = handle._session.ask, []

    def failing(request: Request) -> Answer:
        asked.append(request)
        if len(asked) > 1:
            with unspent():
                raise QueryError("no more today.")
        return ask(request)

    monkeypatch.setattr(handle._session, "ask", failing)
    with pytest.raises(QueryError) as refused:
        DiffPC45(epsilon=1).fit(handle, "income")
    spent = handle.budget.spent
    assert 0 < spent < 1
    assert (
        str(refused.value)
        == f"no more today. Epsilon {Decimal(spent.numerator) / spent.denominator:f} was spent until then."
    )


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda h: h.noisy_count(epsilon=0.1), {"verb": "noisy_count", "values": (1, 2, 3)}),
        (lambda h: h.noisy_count(epsilon=0.1), {"verb": "noisy_count", "values": (10**30,)}),
        (lambda h: h.exp_mech(score=ClassCount("sex"), epsilon=0.1), {"verb": "exp_mech", "values": (9,)}),
        (
            lambda h: h.exp_mech([Values("sex")], score=Gini("income"), epsilon=0.1),
            {"verb": "exp_mech", "values": (4,)},
        ),
    ],
)
def test_an_answer_that_cannot_be_read_was_charged(
    call: Callable[[Any], Any], answer: dict[str, Any], granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error does not say the contrary, whatever is wrong with the answer."""
    handle = granted(1)
    monkeypatch.setattr(handle._session, "ask", lambda request: Answer(id=request.id, epsilon="0.1", **answer))
    with pytest.raises(InternalError, match="was charged") as broken:
        call(handle)
    assert UNSPENT not in str(broken.value)


def test_what_was_lost_once_may_have_been_charged(granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a request id that the ledger has charged no error says that nothing was spent, in process either."""
    handle = granted(1)
    request = Request(id="same", verb="noisy_count", epsilon="0.1")
    handle._session.ask(request)
    assert ledger_of(handle).answer_of("ana", "same")[0] is not None
    for changes in (
        {"epsilon": "0.2"},
        {"verb": "noisy_sum", "column": "nobody"},
        {"epsilon": "5"},
        {"verb": "exp_mech"},
    ):
        with pytest.raises(QueryError) as refused:
            handle._session.ask(request.model_copy(update=changes))
        assert UNSPENT not in str(refused.value)
    assert np.isclose(float(handle.budget.spent), 0.1)


def test_nobody_types_the_sentence() -> None:
    """It stands in one place of both packages, and in docstrings."""
    typed = []
    for file in (file for package in ("pinq", "miners") for file in (ROOT / package).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if UNSPENT.split()[0] not in text:
            continue
        tree = ast.parse(text)
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        typed += [
            file.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and UNSPENT in node.value
            and id(node) not in told
        ]
    assert typed == ["errors.py"]
