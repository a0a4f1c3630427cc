# SPDX-License-Identifier: Apache-2.0
"""Builds the application: routes over open datasets, one shape for every error, a safe shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from pinq import __version__
from pinq.errors import InternalError, PinqError, QueryError
from pinq.public.wire import PROTOCOL, Health
from pinq.server.api.gate import Gate, failure
from pinq.server.api.handover import Handover
from pinq.server.api.limits import Settings
from pinq.server.api.openapi import describe
from pinq.server.api.routes import handlers, router
from pinq.server.api.shortcut import Shortcut
from pinq.server.datasets import Datasets
from pinq.server.log import RequestLog
from pinq.server.page.login import Login
from pinq.server.page.routes import create_page
from pinq.server.page.views import PATH
from pinq.server.readiness import Readiness
from pinq.server.reload import Reload

__all__ = ["create_app"]

ABOUT = """\
Differentially private answers about tables that may not be handed out. Each request is charged before the data is
read and answered once: the same `id` gets the same answer. From Python:
`pinq.connect("https://host:port/dataset", token=...)`."""
UNEXPECTED = """\
something unexpected went wrong in the server; the provider's log has the details. Ask again: an answer that was \
charged is not lost."""


def create_app(
    datasets: Datasets,
    settings: Settings | None = None,
    log: RequestLog | None = None,
    metrics_address: tuple[str, int] | None = None,
    provider_password: str | None = None,
    *,
    private_certificate: bool = False,
    public_url: str = "",
    reload: Reload | None = None,
    handover: Handover | None = None,
) -> FastAPI:
    """Makes the application over open datasets; it closes them when it shuts down.

    Args:
        datasets: What is served.
        settings: Limits, where they differ from the usual.
        log: The provider's log of requests.
        metrics_address: Where Prometheus may ask, host and port; None for nowhere.
        provider_password: The hash of the password that opens the provider's page
            (``login.hash_password``); None for no page.
        private_certificate: Whether analysts need the provider's own certificate authority to
            connect, which that page then says.
        public_url: Where analysts reach this server, as that page says; empty for its own address.
        reload: What SIGHUP asks; None for the policies alone.
        handover: Has long work done by another process; None for none.
    """
    gate = Gate(datasets, settings or Settings(), log or RequestLog(), handover)
    readiness = Readiness(datasets, gate.log)
    app = FastAPIOffline(
        title="pinq",
        version=__version__,
        description=ABOUT,
        lifespan=_lifespan(gate, metrics_address, readiness, reload or Reload(datasets, gate.log)),
        redirect_slashes=False,  # such a redirect would follow the Host header
        docs_url="/docs",
        redoc_url=None,
    )
    layers = app.build_middleware_stack
    app.build_middleware_stack = lambda: Shortcut(layers(), handlers(gate))  # type: ignore[method-assign]
    app.include_router(router(gate), prefix=f"/v{PROTOCOL}")
    _answer_probes(app, readiness)
    _answer_errors(app)
    if provider_password is not None:
        login = Login(provider_password)
        page = create_page(datasets, login, gate.log, private_certificate=private_certificate, public_url=public_url)
        app.add_route(PATH, _to_page, include_in_schema=False)
        app.mount(PATH, page)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def _answer_probes(app: FastAPI, readiness: Readiness) -> None:
    """Adds what a load balancer asks: does the server live, can it answer?"""

    @app.get("/healthz", response_model=Health, tags=["server"])
    async def healthz() -> Health:
        """Says that the server answers, and which protocols it speaks."""
        return Health(version=__version__)

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        """Says whether questions can be answered now (200 or 503), and whether all is current."""
        state = await readiness.state()
        ready, current = not state.problems, not state.outdated
        return JSONResponse({"ready": ready, "current": current}, 200 if ready else 503)


async def _to_page(_: Request) -> Response:
    return RedirectResponse(f"{PATH}/", 307)


def _lifespan(
    gate: Gate, metrics_address: tuple[str, int] | None, readiness: Readiness, reload: Reload
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Makes what happens around serving: the log says so, and in the end all is closed."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        datasets, log = gate.datasets, gate.log
        stop = gate.metrics.serve(*metrics_address) if metrics_address is not None else None
        log.capture("uvicorn.error")
        drafts = [str(file) for file in datasets.drafts]
        log.write("started", datasets=sorted(datasets), version=__version__, drafts=drafts, pid=os.getpid())
        with suppress(ValueError, RuntimeError):  # only a process's first thread takes signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.ask)
        yield
        await gate.close()
        readiness.close()
        if stop is not None:
            stop()
        log.write("stopped", pid=os.getpid())
        log.close()
        datasets.close()

    return lifespan


def _answer_errors(app: FastAPI) -> None:
    """Gives every error outside the gate the one shape that errors have."""

    @app.exception_handler(HTTPException)
    async def not_found(_: Request, error: HTTPException) -> Response:
        text = (
            f"there is nothing here; datasets are at /v{PROTOCOL}/NAME, this server speaks protocol {PROTOCOL}."
            if error.status_code == 404
            else f"{error.detail}."
        )
        return failure(QueryError(text), error.status_code)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, __: RequestValidationError) -> Response:
        return failure(QueryError("the request's address is malformed."))

    @app.exception_handler(PinqError)
    async def refused(_: Request, error: PinqError) -> Response:
        return failure(error)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, __: Exception) -> Response:
        return failure(InternalError(UNEXPECTED))
