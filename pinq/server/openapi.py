# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document, made from the models of requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import models_json_schema

from pinq import __version__
from pinq.language.products import AnyVector
from pinq.language.queries import Answer, Average, Choose, Count, Query, Request, Stop, Sum, SumDerivatives, Vote
from pinq.language.scores import AnyScore, ClassCount, EnoughRows
from pinq.language.wire import PROTOCOL, Description, Failure, Health, HistoryPage, WireBudget, WirePreview

ABOUT = """\
Differentially private answers about tables that may not be handed out. Each request is charged before the data is
read and answered once: the same `id` gets the same answer. From Python:
`pinq.connect("https://host:port/dataset", token=...)`."""
SCHEMAS = "#/components/schemas/"
EXAMPLE = {"id": "5d0f8c0e6f3f4c0c9d1d2b6a0b1c2d3e", "verb": "noisy_count", "epsilon": "0.1"}
STATUSES = {
    "400": "Malformed.",
    "401": "No valid token for this dataset.",
    "402": "More than what remains.",
    "403": "The grant's terms forbid it.",
    "404": "Nothing is there.",
    "405": "Not with this method.",
    "429": "Too fast.",
    "500": "The data could not be read; the charge stands.",
    "503": "Not now; the same request may be sent again.",
}
_OTHER_SCORES = reduce(or_, (score for score in get_args(AnyScore) if score not in (ClassCount, EnoughRows)))
_CANDIDATES: Any = Annotated[Request.model_fields["candidates"].rebuild_annotation(), Field(min_length=1)]  # noqa: F821
# Each query with its verb, and fields that it narrows to a type.
QUERIES: tuple[tuple[type[Query], str, Mapping[str, Any]], ...] = (
    (Count, "noisy_count", {}),
    (Sum, "noisy_sum", {"column": str}),
    (SumDerivatives, "noisy_sum", {"column": AnyVector}),
    (Average, "noisy_avg", {"column": str}),
    (Choose, "exp_mech", {"score": _OTHER_SCORES, "candidates": _CANDIDATES}),
    (Vote, "exp_mech", {"score": ClassCount}),
    (Stop, "exp_mech", {"score": EnoughRows}),
)
ROUTES: tuple[tuple[str, str, type[BaseModel], str], ...] = (
    ("", "get", Description, "The public schema, and whose token this is."),
    ("/history", "get", HistoryPage, "What was asked, what it cost, what came back: oldest first, a page at a time."),
    ("/budget", "get", WireBudget, "What was granted, spent, and remains."),
    ("/query", "post", Answer, "Asks a question: charged once for its `id`, before the data is read."),
    ("/preview", "post", WirePreview, "What a question would cost and how exact its answer would be. Free."),
    ("/attempt", "post", WireBudget, "Logs the refusal of an act that needs more than remains. Free."),
)
START = {
    "name": "start",
    "in": "query",
    "description": "The cursor: how many lines to leave out.",
    "schema": {"type": "integer", "minimum": 0, "default": 0},
}


def document() -> dict[str, Any]:
    """Makes the OpenAPI document."""
    queries = [_query(*query) for query in QUERIES]
    models: list[type[BaseModel]] = [Health, Failure, *(model for _, _, model, _ in ROUTES), *queries]
    # Served content fits the schemas for validation, which have the fields by name.
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=f"{SCHEMAS}{{model}}")
    health = {"tags": ["server"], "summary": "Says that the server answers.", "responses": _answers(Health)}
    asking = {f"/v{PROTOCOL}/{{dataset}}{route[0]}": _route(*route) for route in ROUTES}
    bearer = {"type": "http", "scheme": "bearer", "description": "What `pinq grant` printed."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pinq", "version": __version__, "description": ABOUT},
        "paths": {"/healthz": {"get": health}} | asking,
        "components": {
            "schemas": schemas["$defs"] | {"Request": {"oneOf": [_reference(query) for query in queries]}},
            "securitySchemes": {"bearer": bearer},
        },
    }


def _query(kind: type[Query], verb: str, narrower: Mapping[str, Any]) -> type[BaseModel]:
    """A request with one kind of query: a model of its fields."""
    reads = {"id", "epsilon", "parts", "reuse", *(field.name for field in fields(kind))}  # type: ignore[arg-type]
    has: dict[str, Any] = {
        name: (field.annotation, field) for name, field in Request.model_fields.items() if name in reads
    }
    has |= {"verb": (Literal[verb], ...)} | {name: (form, ...) for name, form in narrower.items()}
    return create_model(kind.__name__, __config__=ConfigDict(extra="forbid"), **has)


def _route(path: str, method: str, answer: type[BaseModel], summary: str) -> dict[str, Any]:
    dataset = {"name": "dataset", "in": "path", "required": True, "schema": {"type": "string"}}
    route: dict[str, Any] = {
        "tags": ["analyst"],
        "summary": summary,
        "security": [{"bearer": []}],
        "parameters": [dataset, START] if path == "/history" else [dataset],
        "responses": _answers(answer) | {status: _content(Failure, text) for status, text in STATUSES.items()},
    }
    if method == "post":
        body = {"schema": {"$ref": f"{SCHEMAS}Request"}, "example": EXAMPLE}
        route["requestBody"] = {"required": True, "content": {"application/json": body}}
    return {method: route}


def _answers(model: type[BaseModel]) -> dict[str, Any]:
    return {"200": _content(model, "Answered.")}


def _content(model: type[BaseModel], text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _reference(model)}}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"{SCHEMAS}{model.__name__}"}
