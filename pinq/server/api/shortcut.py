# SPDX-License-Identifier: Apache-2.0
"""``Shortcut``: a short way in for what is asked most often."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pinq.public.wire import PROTOCOL
from pinq.server.api.routes import Handler

__all__ = ["Shortcut"]


class Shortcut:
    """Answers budgets, previews and questions without the framework, as its own routes would.

    To find a route, to read parameters that there are none of, and to pass layers that have nothing
    to catch takes the framework longer than a count takes the engine. The gate turns whatever goes
    wrong into an error by itself.

    Args:
        app: Answers all else.
        handlers: What to call, by method and last word of the path ``/v1/DATASET/WORD``.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[tuple[str, str], Handler]) -> None:
        self._app, self._handlers = app, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        # "/v1/adult/query" has the words "", "v1", "adult" and "query".
        words = scope["path"].split("/") if scope["type"] == "http" else []
        handler = (
            self._handlers.get((scope["method"], words[3])) if len(words) == 4 and words[1] == f"v{PROTOCOL}" else None
        )
        if handler is None or not words[2]:
            await self._app(scope, receive, send)
            return
        response = await handler(Request(scope, receive, send), words[2])
        await response(scope, receive, send)
