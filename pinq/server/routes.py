# SPDX-License-Identifier: Apache-2.0
"""The analyst's routes, ``/v1/{dataset}/...``. Each is one function from a grant and a body to JSON; the gate does the rest."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from pinq.errors import QueryError
from pinq.grants import Grant
from pinq.local import budget, history
from pinq.queries import Answer, Request
from pinq.server.datasets import Dataset
from pinq.server.gate import Gate, malformed
from pinq.wire import SCHEMA_HEADER, Description, Failure, History, WireBudget, WirePreview

__all__ = ["router"]

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "Malformed; nothing was spent."},
    401: {"model": Failure, "description": "No valid token for this dataset."},
    402: {"model": Failure, "description": "More than what remains; nothing was spent."},
    403: {"model": Failure, "description": "The grant's terms forbid it; nothing was spent."},
    429: {"model": Failure, "description": "Too fast; nothing was spent."},
    500: {"model": Failure, "description": "The data could not be read; the charge stands."},
    503: {"model": Failure, "description": "Not now; the same request may be sent again."},
}


def router(gate: Gate) -> APIRouter:
    """The routes over a gate's datasets."""
    routes = APIRouter(tags=["analyst"], responses=_ERRORS)

    @routes.get("/{dataset}", response_model=Description)
    async def describe(dataset: str, http: HTTPRequest) -> Response:
        """The public schema, and whose token this is."""
        return await gate.run(http, dataset, _describe)

    @routes.get("/{dataset}/budget", response_model=WireBudget)
    async def show_budget(dataset: str, http: HTTPRequest) -> Response:
        """What was granted, spent, and remains."""
        return await gate.run(http, dataset, lambda of, grant, _: WireBudget.of(budget(of.ledger, grant.analyst)).model_dump_json())

    @routes.get("/{dataset}/history", response_model=History)
    async def show_history(dataset: str, http: HTTPRequest) -> Response:
        """What was asked, what it cost, what came back."""
        return await gate.run(http, dataset, lambda of, grant, _: History(lines=tuple(history(of.ledger, grant.analyst))).model_dump_json(exclude_none=True))

    @routes.post("/{dataset}/query", response_model=Answer)
    async def query(dataset: str, http: HTTPRequest) -> Response:
        """Asks a question: charged once for its `id`, before the data is read."""
        known = http.headers.get(SCHEMA_HEADER)
        return await gate.run(http, dataset, lambda of, grant, body: of.curator.ask(grant.analyst, _request(of, body, known)).to_json())

    @routes.post("/{dataset}/preview", response_model=WirePreview)
    async def preview(dataset: str, http: HTTPRequest) -> Response:
        """What a question would cost and how exact its answer would be. Free."""
        known = http.headers.get(SCHEMA_HEADER)
        return await gate.run(http, dataset, lambda of, grant, body: WirePreview.of(of.curator.preview(grant.analyst, _request(of, body, known))).model_dump_json())

    return routes


def _describe(dataset: Dataset, grant: Grant, _: bytes) -> str:
    schema = dataset.curator.schema
    told = Description(dataset=dataset.name, analyst=grant.analyst, schema=schema, digest=schema.digest, terms=str(grant.terms))
    return told.model_dump_json(by_alias=True)


def _request(dataset: Dataset, body: bytes, known: str | None) -> Request:
    if known is not None and known != dataset.curator.schema.digest:
        raise QueryError("the data provider changed the policy since this handle was opened; connect again. Nothing was spent.")
    try:
        return Request.from_json(body)
    except ValidationError as error:
        raise malformed(error) from None
