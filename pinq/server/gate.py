# SPDX-License-Identifier: Apache-2.0
"""One request's way through the server: limits, token, work in a thread, one shape of error.

Blocking work (ledger, engine) runs in a bounded pool. Each token has a *lane* into it, of which only a few run at a time, so a
slow analyst waits in a queue of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pinq.errors import InternalError, LedgerError, NotAuthorised, PinqError, QueryError, Unavailable
from pinq.grants import Grant
from pinq.server.datasets import Dataset, Datasets
from pinq.tokens import MAX_TOKEN
from pinq.wire import PROTOCOL, PROTOCOL_HEADER, Failure, status_of

__all__ = ["Gate", "Settings", "Work", "failure"]

Work = Callable[[Dataset, Grant, bytes], str]
"""What a route does in the pool: from the dataset, the token's grant and the body to JSON."""

_log = logging.getLogger("pinq.server")


@dataclass(frozen=True)
class Settings:
    """A server's limits.

    Attributes:
        threads: Requests that are worked on at a time.
        lane: Of those, how many for one token.
        max_body: Bytes of a request.
    """

    threads: int = 16
    lane: int = 4
    max_body: int = 8 * 2**20
    body_seconds: float = 30.0


class Gate:
    """Lets requests through to the datasets."""

    def __init__(self, datasets: Datasets, settings: Settings) -> None:
        self.datasets, self.settings = datasets, settings
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="pinq")

    async def run(self, http: Request, name: str, work: Work) -> Response:
        """Answers one request on a dataset; whatever goes wrong becomes a failure of one shape."""
        try:
            payload = await self._work(http, name, work)
            return Response(payload, media_type="application/json", headers=_HEADERS)
        except PinqError as error:
            return failure(error)
        except ClientDisconnect:
            return failure(QueryError("the request was cut off. Nothing was spent."))
        except Exception:
            _log.exception("a request failed")
            return failure(InternalError("Something unexpected went wrong in the server. Please tell the data provider."))

    async def close(self) -> None:
        """Waits for what runs; what was charged is answered or stays charged in the ledger."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    async def _work(self, http: Request, name: str, work: Work) -> str:
        token = _token(http)
        spoken = http.headers.get(PROTOCOL_HEADER, PROTOCOL)
        if spoken != PROTOCOL:
            raise Unavailable(f"this server speaks protocol {PROTOCOL}, the client {spoken[:20]!r}; install the same version of pinq on both sides.")
        body = await self._body(http)

        def job() -> str:
            dataset, grant = self.datasets.authorise(name, token)
            return work(dataset, grant, body)

        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    async def _body(self, http: Request) -> bytes:
        chunks, size = [], 0
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                async for chunk in http.stream():
                    size += len(chunk)
                    if size > self.settings.max_body:
                        raise QueryError(f"the request is larger than {self.settings.max_body:,} bytes. Ask about fewer parts at a time. Nothing was spent.")
                    chunks.append(chunk)
        except TimeoutError:
            raise QueryError(f"the request did not arrive within {self.settings.body_seconds:g} s. Nothing was spent.") from None
        return b"".join(chunks)


def failure(error: PinqError, status: int | None = None) -> Response:
    """An error as a response. What a ledger's error says of files is the provider's."""
    shown = LedgerError("The ledger cannot be used now. The data provider finds the details in the server's log.") if isinstance(error, LedgerError) else error
    headers = dict(_HEADERS)
    if isinstance(error, NotAuthorised):
        headers["WWW-Authenticate"] = "Bearer"
    if (wait := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    return Response(Failure.of(shown).model_dump_json(exclude_none=True), status or status_of(error), headers, "application/json")


def malformed(error: ValidationError) -> QueryError:
    """A request that is none, with the first places that are wrong."""
    said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}" for one in error.errors(include_url=False, include_input=False)[:3])
    return QueryError(f"the request is malformed: {said[:500]}. Nothing was spent.")


_HEADERS = {PROTOCOL_HEADER: PROTOCOL, "Cache-Control": "no-store"}


def _token(http: Request) -> str:
    scheme, _, token = http.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN else ""
