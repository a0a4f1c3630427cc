# SPDX-License-Identifier: Apache-2.0
"""The analyst's routes, ``/v1/{dataset}/...``.

What each does is in ``replies.py``; the gate does the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from pinq.public.queries import Answer
from pinq.public.wire import SCHEMA_HEADER, Description, Failure, History, WireBudget, WirePreview
from pinq.server.api import replies
from pinq.server.api.gate import Gate

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
        return await gate.run(http, "describe", dataset, replies.describe)

    @routes.get("/{dataset}/history", response_model=History)
    async def show_history(
        dataset: str,
        http: HTTPRequest,
        start: Annotated[int, Query(ge=0, description="The cursor: how many lines to leave out.")] = 0,
    ) -> Response:
        """What was asked, what it cost, what came back: oldest first, a page at a time."""
        return await gate.run(http, "show_history", dataset, partial(replies.history, start=start))

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
        return await gate.run(http, "show_budget", dataset, replies.budget)

    async def query(http: HTTPRequest, dataset: str) -> Response:
        schema = http.headers.get(SCHEMA_HEADER)
        return await gate.run(http, "query", dataset, partial(replies.query, schema=schema), charges=True)

    async def preview(http: HTTPRequest, dataset: str) -> Response:
        schema = http.headers.get(SCHEMA_HEADER)
        return await gate.run(http, "preview", dataset, partial(replies.preview, schema=schema))

    return {("GET", "budget"): budget, ("POST", "query"): query, ("POST", "preview"): preview}
