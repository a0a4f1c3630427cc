# SPDX-License-Identifier: Apache-2.0
"""The curator computes from plain values alone, whatever objects a request in its own process was built of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain, repeat
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

import pinq
from pinq import (
    AnyCross,
    AnyCut,
    AnyGrouping,
    Calendar,
    Cross,
    Cuts,
    Groups,
    PrivateQueryable,
    QueryError,
    Ranges,
    Schema,
    Shards,
    Values,
)
from pinq.language.derivatives import Logistic, Residuals, Softmax
from pinq.language.points import Points
from pinq.language.products import AnyVector, Products
from pinq.language.queries import Request, new_id
from pinq.language.scores import AnyScore
from tests.support.requests.catalogue import SCORES as EVERY, scores_on
from tests.support.requests.every_request import kinds
from tests.support.requests.handles import ledger_of, simulated

SCHEMA = Schema(
    max_rows=1000,
    columns={
        "y": pinq.Categorical(values=("a", "b")),
        "c": pinq.Categorical(values=("u", "v")),
        "x": pinq.Numeric(lower=0, upper=9, integer=True),
        "d": pinq.Date.model_validate({"lower": "2020-01-01", "upper": "2022-12-31"}),
    },
)
HUGE = 2**62


def points() -> Points:
    return Points((Values("c"),), ((1, 2),), base=3)


SPECS: list[Any] = [
    Values("c"),
    Cuts("x", (3, 5)),
    Cuts("d", ("2021-01-01",)),
    Groups("c", (("u",), ("v",))),
    Ranges("x", (((None, 3),), ((5, None),))),
    Ranges("d", (((None, "2021-01-01"),),)),
    Calendar("d", "year"),
    Shards(3, 1),
]
SPECS += [Cross((Values("c"), Cuts("x", (3,)))), AnyCut("x"), AnyGrouping("c", 1), AnyCross((Values("c"),), 1)]
LOSSES: list[Any] = [Logistic("y", ("a",), points(), 0.5), Softmax("y", (points(), points()), False, 1.5)]
LOSSES += [
    Residuals("x", points(), 2.0, True),
    Products(("c", "x"), (None, (0.0, 2.0)), (1.0, 0.5), 0.25, "x", limit=3.0),
]
TARGETS = Schema(max_rows=9, columns={name: SCHEMA.columns[name] for name in "yx"})
SCORES: list[Any] = [
    scores_on(kind, TARGETS, losses=LOSSES[:1], spec=Cuts("x", (5,)), within=(1, 5))[-1] for kind in EVERY.values()
]
PLAIN = {int, float, str, bool, type(None), *map(type, SPECS + LOSSES + SCORES), Points}


class _Int(int):
    """Is one number, and says that it is another wherever it is asked."""

    def __index__(self) -> int:
        return HUGE

    def __abs__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return True

    def __le__(self, other: object) -> bool:
        return True

    def __ge__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class _Float(float):
    def __le__(self, other: object) -> bool:
        return True

    def __ge__(self, other: object) -> bool:
        return True

    def __float__(self) -> float:
        return 0.5


class _Text(str):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("c")


class _Tuple(tuple):  # type: ignore[type-arg]
    """Gives its values once, and then others."""

    def __iter__(self) -> Iterator[Any]:
        return iter((HUGE,))


class _Indexed:
    """No number, but it can be read as one."""

    def __index__(self) -> int:
        return HUGE


def _forged(value: Any) -> list[Any]:
    """What may stand in the place of a plain value, and is none."""
    match value:
        case bool():
            return [_Int(value), None]
        case None:
            return [_Text(""), HUGE]
        case int():
            return [_Int(value), _Int(HUGE), _Indexed(), HUGE, float(value), True]
        case float():
            return [_Float(value), _Float(1e300), float("nan"), float("inf")]
        case str():
            return [_Text(value), _Text("elsewhere"), value.encode()]
        case tuple():
            inner = [(other, *value[1:]) for other in _forged(value[0])] if value else []
            return [_Tuple(value), iter(value), list(value), chain(value, repeat(HUGE, 3)), *inner]
    return [_changed(value, name, other) for name, other in _forgeries(value)]


def _forgeries(expression: Any) -> list[tuple[str, Any]]:
    names = [field.name for field in fields(expression)]
    return [(name, other) for name in names for other in _forged(getattr(expression, name))]


def _changed(expression: Any, name: str, value: object) -> Any:
    """A copy of a frozen value with a field that no constructor looked at."""
    copy = object.__new__(type(expression))
    copy.__dict__.update({field.name: getattr(expression, field.name) for field in fields(expression)} | {name: value})
    return copy


def _request(expression: Any) -> Request:
    plain: dict[str, Any] = {"id": new_id(), "verb": "exp_mech", "epsilon": "0.1"}
    if isinstance(expression, AnyVector):
        return Request.model_construct(**plain | {"verb": "noisy_sum", "column": expression})
    if isinstance(expression, AnyScore):
        return Request.model_construct(**plain, score=expression, candidates=((Values("c"),),))
    return Request.model_construct(**plain, score=pinq.InfoGain("y"), candidates=((expression,),))


def _leaves(value: Any) -> Iterator[Any]:
    """Every value in a request, with all that hold others."""
    yield value
    if isinstance(value, BaseModel):
        inner = [getattr(value, name) for name in type(value).model_fields]
    elif is_dataclass(value):
        inner = [getattr(value, field.name) for field in fields(value)]
    else:
        inner = list(value) if type(value) is tuple else []
    for item in inner:
        yield from _leaves(item)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[PrivateQueryable, list[Request]]:
    """A handle, and the requests that reached its curator."""
    table = pd.DataFrame({"y": ["a", "b"] * 5, "c": ["u", "v"] * 5, "x": range(10), "d": "2021-06-01"})
    handle = simulated(SCHEMA, data=table, epsilon=100)
    reached: list[Request] = []
    curator: Any = handle._session._curator  # type: ignore[attr-defined]
    ask: Callable[..., Any] = curator.ask

    def recorded(analyst: str, request: Request) -> Any:
        reached.append(request)
        return ask(analyst, request)

    monkeypatch.setattr(curator, "ask", recorded)
    return handle, reached


def test_every_expression_is_forged_below() -> None:
    """A new spec, family, score or loss comes into this test by being declared."""
    assert kinds() == set(map(type, SPECS + LOSSES + SCORES))


@pytest.mark.parametrize("expression", SPECS + LOSSES + SCORES, ids=lambda item: type(item).__name__)
def test_what_reaches_the_curator_is_plain_or_nothing_is_spent(
    expression: Any, asked: tuple[PrivateQueryable, list[Request]]
) -> None:
    """A forged field is refused before any charge, or it arrives as a checked value of an exact builtin class."""
    handle, reached = asked
    for name, value in _forgeries(expression):
        spent = ledger_of(handle).accounts()["simulated"].spent
        reached.clear()
        try:
            handle._session.ask(_request(_changed(expression, name, value)))
        except QueryError:
            assert ledger_of(handle).accounts()["simulated"].spent == spent
        for request in reached:
            plain = PLAIN | {tuple, Request, type(request.parts)}
            assert {type(leaf) for leaf in _leaves(request)} <= plain, (name, value)
            assert Request.received(request.to_json()) == request


@pytest.mark.parametrize("seed", [2**64 + 1, -(2**64) - 1, True, 1.5, 10**4000])
def test_a_seed_is_a_whole_number_of_64_bits(seed: Any) -> None:
    """On the wire too, whose numbers may be of any length."""
    assert AnyGrouping("c", 2**64).seed == 2**64
    with pytest.raises(QueryError, match="seed"):
        AnyGrouping("c", seed)
    text = _request(AnyGrouping("c", 7)).to_json().replace('"seed":7', f'"seed":{json.dumps(seed)}')
    with pytest.raises(QueryError):
        Request.received(text)


@pytest.mark.parametrize("share", ["\u0661/\u0664", "0.\u0662", "1/\uff14"])
def test_a_share_is_written_in_the_digits_that_everybody_reads(share: str) -> None:
    """Digits of other scripts are refused, as they are in a loss."""
    with pytest.raises(QueryError, match="share"):
        pinq.Balance(share)


def test_points_keep_what_was_checked() -> None:
    """An iterable that is read once, or a number that lies about its size, brings no point beyond 2^40."""
    for forged in (iter([0, HUGE]), [0, _Int(HUGE)], [0, _Indexed()]):
        with pytest.raises(QueryError, match="2\\^40"):
            Points((Values("c"),), (forged,))  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="2\\^40"):
        Points(base=True)
    assert {type(number) for number in Points((Values("c"),), (iter([0, 1]),)).tables[0]} == {int}  # type: ignore[arg-type]


def test_scores_that_64_bits_cannot_compare_are_refused_when_bound() -> None:
    """Even where a table was put in place behind the constructor's back."""
    forged = Softmax("y", (_changed(points(), "tables", ((0, 2**60),)), points()))
    with pytest.raises(QueryError, match="2\\^60"):
        forged.check(SCHEMA)


def test_a_handle_has_a_schema_of_its_own() -> None:
    """What an analyst's code does to the handle's schema, and to what it remembers, reaches no curator."""
    handle = simulated(SCHEMA, epsilon=1)
    curator: Any = handle._session._curator  # type: ignore[attr-defined]
    assert handle.schema == curator.schema
    assert handle.schema.digest == curator.schema.digest
    assert handle.schema.kept is not curator.schema.kept
    assert handle.schema.columns["c"] is not curator.schema.columns["c"]
