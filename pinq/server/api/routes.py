# SPDX-License-Identifier: Apache-2.0
"""The analyst's routes, ``/v1/{dataset}/...``.

Each is one function from a grant and a body to JSON; the gate does the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from pinq.errors import QueryError, unspent
from pinq.provider.history import page
from pinq.provider.local import budget
from pinq.public.queries import Answer, Request
from pinq.public.wire import SCHEMA_HEADER, Description, Failure, History, WireBudget, WirePreview
from pinq.server.api.gate import Gate
from pinq.server.api.visit import Visit

__all__ = ["Handler", "handlers", "router"]

_ERRORS: dict[int | str, dict[str, Any]] = {  # as FastAPI declares it
    400: {"model": Failure, "description": "Malformed."},
    401: {"model": Failure, "description": "No valid token for this dataset."},
    402: {"model": Failure, "description": "More than what remains."},
    403: {"model": Failure, "description": "The grant's terms forbid it."},
    429: {"model": Failure, "description": "Too fast."},
    500: {"model": Failure, "description": "The data could not be read; the charge stands."},
    503: {"model": Failure, "description": "Not now; the same request may be sent again."},
}


_EXAMPLE = {"id": "5d0f8c0e6f3f4c0c9d1d2b6a0b1c2d3e", "verb": "noisy_count", "epsilon": "0.1"}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Request"}, "example": _EXAMPLE}},
    }
}


def router(gate: Gate) -> APIRouter:
    """The routes over a gate's datasets."""
    routes = APIRouter(tags=["analyst"], responses=_ERRORS)

    @routes.get("/{dataset}", response_model=Description)
    async def describe(dataset: str, http: HTTPRequest) -> Response:
        """The public schema, and whose token this is."""
        return await gate.run(http, "describe", dataset, _describe)

    @routes.get("/{dataset}/history", response_model=History)
    async def show_history(
        dataset: str,
        http: HTTPRequest,
        start: Annotated[int, Query(ge=0, description="The cursor: how many lines to leave out.")] = 0,
    ) -> Response:
        """What was asked, what it cost, what came back: oldest first, a page at a time."""
        return await gate.run(http, "show_history", dataset, lambda visit, _: _history(visit, start))

    short = handlers(gate)

    @routes.get("/{dataset}/budget", response_model=WireBudget)
    async def show_budget(dataset: str, http: HTTPRequest) -> Response:
        """What was granted, spent, and remains."""
        return await short["GET", "budget"](http, dataset)

    @routes.post("/{dataset}/query", response_model=Answer, openapi_extra=_BODY)
    async def query(dataset: str, http: HTTPRequest) -> Response:
        """Asks a question: charged once for its `id`, before the data is read."""
        return await short["POST", "query"](http, dataset)

    @routes.post("/{dataset}/preview", response_model=WirePreview, openapi_extra=_BODY)
    async def preview(dataset: str, http: HTTPRequest) -> Response:
        """What a question would cost and how exact its answer would be. Free."""
        return await short["POST", "preview"](http, dataset)

    return routes


Handler = Callable[[HTTPRequest, str], Awaitable[Response]]
"""Answers a request on a dataset of this name."""


def handlers(gate: Gate) -> dict[tuple[str, str], Handler]:
    """What is asked most often, by method and last word of the path: see ``Shortcut``."""

    async def budget(http: HTTPRequest, dataset: str) -> Response:
        return await gate.run(http, "show_budget", dataset, _budget)

    async def query(http: HTTPRequest, dataset: str) -> Response:
        schema = http.headers.get(SCHEMA_HEADER)
        return await gate.run(http, "query", dataset, lambda visit, body: _query(visit, body, schema), charges=True)

    async def preview(http: HTTPRequest, dataset: str) -> Response:
        schema = http.headers.get(SCHEMA_HEADER)
        return await gate.run(http, "preview", dataset, lambda visit, body: _preview(visit, body, schema))

    return {("GET", "budget"): budget, ("POST", "query"): query, ("POST", "preview"): preview}


def _describe(visit: Visit, _: bytes) -> str:
    dataset, grant = visit.opened
    schema = dataset.curator.schema
    description = Description(
        dataset=dataset.name, analyst=grant.analyst, schema=schema, digest=schema.digest, terms=str(grant.terms)
    )
    return description.model_dump_json(by_alias=True)


def _budget(visit: Visit, _: bytes) -> str:
    dataset, grant = visit.opened
    return WireBudget.of(budget(dataset.ledger, grant.analyst)).model_dump_json()


def _history(visit: Visit, start: int) -> str:
    dataset, grant = visit.opened
    bucket = dataset.policy.padding_seconds

    def admit(work: int) -> None:
        visit.turn.admit(work)
        dataset.curator.meter(grant.analyst, work)

    read = page(dataset.ledger, grant.analyst, start, bucket=bucket, admit=admit)
    lines = (line.model_copy(update={"at": coarse(line.at, bucket)}) for line in read.lines)
    return History(lines=tuple(lines), more=read.more).model_dump_json(exclude_none=True)


def coarse(at: str, bucket: float) -> str:
    """Rounds a time down to the bucket of the padding and to whole seconds.

    Finer times say when a request's turn came, and so how long those before it took.
    """
    thousandths, width = round(1000 * datetime.fromisoformat(at).timestamp()), round(1000 * bucket) or 1
    return datetime.fromtimestamp((thousandths - thousandths % width) // 1000, UTC).isoformat()


def _query(visit: Visit, body: bytes, schema: str | None) -> str:
    dataset, grant = visit.opened
    try:
        request = _request(visit, body)
    except QueryError as error:
        with dataset.curator.refusing(grant.analyst, _id(body)):
            raise error from None
    with dataset.curator.refusing(grant.analyst, request.id):
        if _changed(visit, schema):
            visit.authorise()
            given = dataset.curator.given(grant.analyst, request, str(schema))
            if given is not None:
                return given.to_json()  # it was lost on its way; what was paid for outlives the policy
        _require_schema(visit, schema)
        return dataset.curator.ask(grant.analyst, request, visit.turn).to_json()


@unspent()
def _preview(visit: Visit, body: bytes, schema: str | None) -> str:
    dataset, grant = visit.opened
    request = _request(visit, body)
    _require_schema(visit, schema)
    return WirePreview.of(dataset.curator.preview(grant.analyst, request, visit.turn)).model_dump_json()


def _request(visit: Visit, body: bytes) -> Request:
    request = Request.received(body)
    visit.request = request.id
    return request


_ID = re.compile("[!-~]{1,64}")


def _id(body: bytes) -> str:
    """The id in a body, which need not be a request; empty where there is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    match content:
        case {"id": str(name)} if _ID.fullmatch(name):
            return name
    return ""


def _changed(visit: Visit, schema: str | None) -> bool:
    """Whether the client knows another schema than the one that holds now."""
    return schema is not None and schema != visit.opened[0].curator.schema.digest


def _require_schema(visit: Visit, schema: str | None) -> None:
    if _changed(visit, schema):
        raise QueryError("the data provider changed the policy since this handle was opened; connect again.")
