# SPDX-License-Identifier: Apache-2.0
"""A request says what is asked and nothing else, means one thing to everybody, and is known again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from pinq import Balance, ClassCount, Cuts, EnoughRows, Gini, Groups, Logistic, Points, QueryError, Shards, Values
from pinq.curator.verbs import PREPARE, prepare
from pinq.language.products import VECTORS
from pinq.language.queries import UNSAID, Answer, Query, Request
from pinq.language.scores import SCORES
from pinq.ledger.composition import Demand
from pinq.ledger.events import LoggedQuery
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from tests.support.requests.every_request import requests
from tests.support.requests.handles import ledger_of

GOLDEN = json.loads((Path(__file__).parents[2] / "contract" / "golden" / "questions.json").read_text(encoding="utf-8"))
"""Requests of every kind with what the first version of the ledger's format kept of them."""


@pytest.mark.parametrize("old", GOLDEN, ids=lambda old: json.loads(old["request"])["id"])
def test_an_old_charge_is_known_again(old: dict[str, Any], schema: Schema) -> None:
    """A request's text, identity, words and place in the tree of partitions are those that old ledgers hold, and old answers read back."""
    request = Request.received(old["request"])
    assert request.to_json() == old["request"]
    assert request.identity(schema.digest) == old["question"]
    query = prepare(request.query, request.parts.bind(schema), schema)
    assert query.about == old["about"]
    assert json.loads(json.dumps(query.demand.dump())) == old["demand"]
    noise = query.noise(Fraction(request.epsilon))
    assert (noise.scale, noise.grid) == (old["scale"], old["grid"])
    assert Answer.from_json(old["answer"]).text == old["answer"]


def test_old_charges_are_of_every_vector_and_score() -> None:
    """A field that is added to one of them would else change its texts, and an old answer would be paid again."""
    asked = [json.loads(old["request"]) for old in GOLDEN]
    named = [request.get(field) for request in asked for field in ("column", "score")]
    assert {one["kind"] for one in named if isinstance(one, dict)} == VECTORS.keys() | SCORES.keys()


def test_an_old_answer_is_given_again(in_memory: Callable[..., Any]) -> None:
    """What an older version charged and answered is given under its id, and under another with ``reuse``, at no cost."""
    handle = in_memory(10**6)
    ledger = ledger_of(handle)
    for old in GOLDEN:
        request = Request.received(old["request"])
        logged = LoggedQuery(verb=request.verb, about=old["about"], identity=old["question"])
        ledger.charge("ana", request.id, Demand.load(old["demand"]), Epsilon.of(request.epsilon), logged)
        ledger.answer("ana", request.id, old["answer"])
    spent = handle.budget.spent
    for old in GOLDEN:
        request = Request.received(old["request"])
        assert handle._session.ask(request).text == old["answer"]
        assert handle._session.ask(request.model_copy(update={"id": "another", "reuse": True})).text == old["answer"]
    assert handle.budget.spent == spent


def test_every_question_is_prepared() -> None:
    """Each class of questions has its file, and what it reads are fields of a request."""

    def leaves(kind: Any) -> set[Any]:
        return set().union(*(leaves(one) for one in kind.__subclasses__())) if kind.__subclasses__() else {kind}

    assert set(PREPARE) == leaves(Query)
    assert set().union(*({field.name for field in dataclasses.fields(kind)} for kind in cast(Any, PREPARE))) == set(
        UNSAID
    )


LOSS = Logistic("income", (">50K",), Points())
SAID: dict[str, list[Any]] = {
    "column": ["age", "nosuch", LOSS],
    "by": [(Values("sex"),)],
    "within": [(20, 40)],
    "score": [Gini("income"), Balance(), ClassCount("income"), EnoughRows(3)],
    "candidates": [((Values("sex"),),), ((),)],
    "which": [(0, 0), (1,), ()],
    "textbook": [True],
    "each": [True, False],
}
NEEDED: dict[str, dict[str, Any]] = {
    "noisy_count": {},
    "noisy_sum": {"column": "age"},
    "noisy_avg": {"column": "age"},
    "noisy_sum of derivatives": {"column": LOSS},
    "choose": {"score": Gini("income"), "candidates": ((Values("sex"),),)},
    "vote": {"score": ClassCount("income")},
    "stop": {"score": EnoughRows(3)},
}
READ = {
    "choose": {"score", "candidates", "which", "textbook", "each"},
    "vote": {"score", "textbook"},
    "stop": {"score"},
    "noisy_sum": {"column"},
    "noisy_avg": {"column", "within"},
    "noisy_sum of derivatives": {"column", "by"},
}


@pytest.mark.parametrize(
    ("form", "name"), [(form, name) for form in NEEDED for name in SAID if name not in READ.get(form, ())]
)
def test_a_field_that_the_verb_does_not_read_is_refused(form: str, name: str, in_memory: Callable[..., Any]) -> None:
    """In process and from JSON: whatever a request says is answered, so what would not be is no request."""
    handle = in_memory(1)
    assert set(SAID) == set(UNSAID)
    right = {"id": "r", "verb": form.split()[0] if form.startswith("noisy") else "exp_mech", "epsilon": "0.1"} | NEEDED[
        form
    ]
    for value in SAID[name]:
        request = Request(**(right | {name: value}))
        for ask in (handle._session.ask, handle._session.preview):
            with pytest.raises(QueryError, match=rf"takes no `{name}`\. Nothing was spent\.$"):
                ask(request)
        with pytest.raises(QueryError, match=rf"takes no `{name}`\.$"):  # a text by itself costs nothing
            Request.received(request.to_json())
    assert handle.budget.spent == 0
    assert handle._session.preview(Request(**right)).cost > 0


@pytest.mark.parametrize("verb", ["noisy_sum", "noisy_avg", "exp_mech"])
def test_a_field_that_the_verb_needs_is_asked_for(verb: str) -> None:
    """It is named."""
    with pytest.raises(QueryError, match=r"it needs a `(column|score)`\.$"):
        Request.received(json.dumps({"id": "r", "verb": verb, "epsilon": "0.1"}))


VALUES = {"kind": "values", "column": "sex"}
LOGISTIC = {"kind": "logistic", "target": "income", "positive": [">50K"], "points": {"kind": "points"}}
LOOSE: dict[str, dict[str, Any]] = {
    "true for 1": {"parts": {"specs": [VALUES], "nodes": [[0, 0, True]], "asked": [[1, -1]]}},
    "1.0 for 1": {"parts": {"specs": [VALUES], "nodes": [[0, 0, 1.0]], "asked": [[1, -1]]}},
    "text for 1": {"parts": {"specs": [VALUES], "nodes": [[0, 0, "1"]], "asked": [[1, -1]]}},
    "true for a shape": {"parts": {"shape": [True]}},
    "true for a number of shards": {"parts": {"specs": [{"kind": "shards", "count": True}], "asked": [[0, 0]]}},
    "true for a cut": {
        "parts": {"specs": [{"kind": "cuts", "column": "age", "points": [True]}], "asked": [[0, 0]], "shape": [2]}
    },
    "text for a cut": {
        "parts": {"specs": [{"kind": "cuts", "column": "age", "points": ["30"]}], "asked": [[0, 0]], "shape": [2]}
    },
    "a number for a name": {"verb": "noisy_sum", "column": 1},
    "a float for points": {"verb": "noisy_sum", "column": LOGISTIC | {"points": {"kind": "points", "base": 1.0}}},
    "true for points": {"verb": "noisy_sum", "column": LOGISTIC | {"points": {"kind": "points", "base": True}}},
    "another kind's field in a loss": {"verb": "noisy_sum", "column": LOGISTIC | {"hessian": True}},
    "a loss of no kind": {"verb": "noisy_sum", "column": {"target": "income"}},
    "no specs to sum by": {"verb": "noisy_sum", "column": LOGISTIC, "by": []},
    "1 for true": {"verb": "exp_mech", "score": {"kind": "class_count", "target": "sex"}, "textbook": 1},
    "true for rows that are enough": {"verb": "exp_mech", "score": {"kind": "enough_rows", "least": True}},
    "a float for rows that are enough": {"verb": "exp_mech", "score": {"kind": "enough_rows", "least": 3.0}},
    "another kind's field in a spec": {
        "parts": {"specs": [VALUES | {"points": [30]}], "asked": [[0, 0]], "shape": [2]}
    },
    "another kind's field in a score": {
        "verb": "exp_mech",
        "score": {"kind": "class_count", "target": "sex", "least": 3},
    },
    "another kind's field in a candidate": {
        "verb": "exp_mech",
        "score": {"kind": "gini", "target": "income"},
        "candidates": [[VALUES | {"seed": 1}]],
    },
    "a number for a loss": {"epsilon": 0.1},
    "an unknown field": {"extra": 1},
}


@pytest.mark.parametrize("case", LOOSE)
def test_a_value_of_another_type_is_refused(case: str) -> None:
    """Nothing is taken for something else."""
    with pytest.raises(QueryError):
        Request.received(json.dumps({"id": "r", "verb": "noisy_count", "epsilon": "0.1"} | LOOSE[case]))


@pytest.mark.parametrize(
    "text", ["1_0", " 1", "1 ", "\t1", "١", "１", "1e１", "0x1", "1/2", "+-1", "e1", ".", "", "1\n"]
)
def test_a_loss_is_written_in_decimal_digits(text: str) -> None:
    """What other readers of the same text take for another number, or for none, is no loss; on either side of the wire."""
    with pytest.raises(QueryError, match="must be a finite number greater than 0"):
        Epsilon.of(text)
    assert [Epsilon.of(right).nano for right in ("1", "0.1", ".5", "1e-9", "2.5E-1", "+1")] == [
        10**9,
        10**8,
        5 * 10**8,
        1,
        25 * 10**7,
        10**9,
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"r","id":"r","verb":"noisy_count","epsilon":"0.1"}',
        '{"id":"r","verb":"noisy_count","epsilon":"0.1","epsilon":"9"}',
        '{"id":"r","verb":"noisy_count","epsilon":"0.1","parts":{"shape":[1],"shape":[1]}}',
        '{"id":"r","verb":"noisy_count","epsilon":"0.1","parts":{"specs":[{"kind":"values","column":"sex","column":"job"}],"asked":[[0,0]]}}',
        '{"id":"r","verb":"noisy_count","epsilon":"0.1","\\u0065psilon":"9"}',
    ],
)
def test_a_key_is_said_once(text: str) -> None:
    """Which of two counts would be the reader's choice."""
    with pytest.raises(QueryError, match=r"says '\w+' twice\.$"):
        Request.received(text)
    with pytest.raises(QueryError, match="twice"):
        Request.received(text.encode())


def test_whatever_can_be_asked_survives_the_wire() -> None:
    """Every spec, family and score, alone and together: the same request, the same question, types of its values included."""
    for request in requests():
        again = Request.received(request.to_json())
        assert again == request
        assert again.query == request.query


def test_identities_tell_values_apart() -> None:
    """Python's ``True == 1`` makes two specs equal that are not the same; their identities are not."""
    assert Groups("b", ((True,), (1,))) == Groups("b", ((1,), (True,)))
    assert Groups("b", ((True,), (1,))).identity != Groups("b", ((1,), (True,))).identity
    assert Cuts("x", (1,)).identity == Cuts("x", (1.0,)).identity
    assert (
        len(
            {
                one.identity
                for one in (Values("x"), Cuts("x", (1,)), Shards(1), Shards(1, key=1), Gini("x"), ClassCount("x"))
            }
        )
        == 6
    )
    with pytest.raises(QueryError, match="not a plain value"):
        _ = Groups("b", ((["x"],),)).identity  # type: ignore[arg-type]
