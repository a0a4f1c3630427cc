# SPDX-License-Identifier: Apache-2.0
"""What is no request costs no more to refuse than a request costs to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from pinq.errors import QueryError
from pinq.language.queries import Request
from pinq.public.checks import MAX_FIELDS, MAX_OPENINGS

COUNT = {"id": "a", "verb": "noisy_count", "epsilon": "1"}
WRONG: dict[str, Any] = {
    "nodes": {"parts": {"nodes": [[]] * 999}},
    "asked": {"parts": {"asked": [""] * 999}},
    "shape": {"parts": {"shape": [0.5] * 999}},
    "specs": {"parts": {"specs": [{}] * 999}},
    "which": {"which": [None] * 999},
    "lists": {"candidates": [0] * 999},
    "candidates": {"candidates": [[0] * 999]},
    "cuts": {"parts": {"specs": [{"kind": "cuts", "column": "a", "points": [[]] * 999}]}},
    "groups": {"parts": {"specs": [{"kind": "groups", "column": "a", "groups": [[[]] * 999] * 9}]}},
    "cross": {"parts": {"specs": [{"kind": "cross", "specs": [{}] * 999}]}},
    "one node": {"parts": {"nodes": [[""] * 999]}},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_the_first_wrong_item_ends_the_reading(fields: dict[str, Any]) -> None:
    """A list of a thousand wrong items makes a handful of notes, not thousands."""
    with pytest.raises(ValidationError) as refused:
        Request.model_validate_json(json.dumps(COUNT | fields))
    assert refused.value.error_count() < 20


def _tuples(schema: object) -> Iterator[dict[str, Any]]:
    """Every part of a schema that is any number of something."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "set") or (
            schema.get("type") == "tuple" and schema.get("variadic_item_index") is not None
        ):
            yield schema
        for inner in schema.values():
            yield from _tuples(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _tuples(inner)


def test_so_it_is_with_every_field_of_a_request() -> None:
    """Also with one that comes later."""
    listed = list(_tuples(Request.__pydantic_core_schema__))
    assert len(listed) > 12
    assert all(schema.get("fail_fast") for schema in listed)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"parts": [' + "[]," * MAX_OPENINGS + "0]}", "arrays and objects"),
        (json.dumps({str(number): 0 for number in range(MAX_FIELDS + 1)}), f"of {MAX_FIELDS + 1} fields"),
        ('{"id": "a", "id": "b"}', "'id' twice"),
    ],
    ids=["arrays", "fields", "twice"],
)
def test_more_than_any_request_has_is_refused_before_it_is_read(text: str, what: str) -> None:
    """As text and as bytes."""
    for sent in (text, text.encode()):
        with pytest.raises(QueryError, match=what):
            Request.received(sent)


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, '"\ud800"', "9" * 5000, "NaN"])
def test_what_is_no_json_is_left_to_whoever_reads_it(text: str) -> None:
    """One error, whatever it is."""
    with pytest.raises(QueryError, match="malformed"):
        Request.received(text)
