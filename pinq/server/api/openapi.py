# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document. Routes read bodies as bytes, so what a request looks like is added here."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pinq.public.queries import Request

__all__ = ["describe"]


def describe(app: FastAPI) -> dict[str, Any]:
    """The document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        request = Request.model_json_schema(ref_template="#/components/schemas/{model}")
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(request.pop("$defs", {}) | {"Request": request})
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "What `pinq grant` printed."}
        }
        for path, methods in document["paths"].items():
            for method in methods.values() if path.startswith("/v") else ():
                method["security"] = [{"bearer": []}]
                method["responses"].pop("422", None)  # malformed requests are 400, in our one shape of errors
        app.openapi_schema = document
    return app.openapi_schema
