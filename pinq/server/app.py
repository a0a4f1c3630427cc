# SPDX-License-Identifier: Apache-2.0
"""Builds the application: routes over open datasets, one shape for every error, a safe shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pinq import __version__
from pinq.errors import InternalError, PinqError, QueryError
from pinq.language.wire import PROTOCOL, SCHEMA_HEADER, Health
from pinq.server import replies
from pinq.server.datasets import Datasets
from pinq.server.gate import Gate, failure
from pinq.server.limits import Settings
from pinq.server.log import LOG, RequestLog
from pinq.server.openapi import document
from pinq.server.readiness import Readiness
from pinq.server.replies import Work

UNEXPECTED = """\
something unexpected went wrong in the server; the provider's log has the details. Ask again: an answer that was \
charged is not lost."""


def create_app(
    datasets: Datasets,
    settings: Settings | None = None,
    log: RequestLog | None = None,
    metrics_address: tuple[str, int, int] | None = None,
    *,
    reload: Reload | None = None,
    listening: Callable[[], None] = lambda: None,
) -> Starlette:
    """Makes the application over open datasets, with a provider's log; it closes them when it shuts down."""
    gate = Gate(datasets, settings or Settings(), log or RequestLog())
    readiness = Readiness(datasets, gate.workers, gate.log)
    gate.metrics.registry.register(readiness)
    routes = [*_analysts_routes(gate), *_probes(readiness)]
    if gate.people is not None:
        routes.append(Route("/sign-in", partial(_sign_in, gate.people.public)))
    app = Starlette(
        routes=routes,
        lifespan=_lifespan(gate, metrics_address, readiness, reload or Reload(datasets, gate.log), listening),
        exception_handlers={HTTPException: _not_found, PinqError: _refused, Exception: _unexpected},
    )
    app.router.redirect_slashes = False  # such a redirect would follow the Host header
    return app


def _analysts_routes(gate: Gate) -> list[Route]:
    def route(path: str, name: str, work: Callable[[Request], Work], method: str = "GET") -> Route:
        async def answer(http: Request) -> Response:
            return await gate.run(http, name, work(http), charges=name == "query")

        return Route(f"/v{PROTOCOL}/{{dataset}}{path}", answer, methods=[method])

    def asked(work: Callable[..., str], http: Request) -> Work:
        return partial(work, schema=http.headers.get(SCHEMA_HEADER))

    return [
        route("/query", "query", partial(asked, replies.query), "POST"),
        route("/preview", "preview", partial(asked, replies.preview), "POST"),
        route("/attempt", "attempt", partial(asked, replies.attempt), "POST"),
        route("/budget", "show_budget", lambda http: partial(replies.budget, part=http.query_params.get("part", ""))),
        route(
            "/history", "show_history", lambda http: partial(replies.history, start=http.query_params.get("start", "0"))
        ),
        route("", "describe", lambda _: replies.describe),
    ]


def _probes(readiness: Readiness) -> list[Route]:
    """The routes for load balancers (does the server live, can it answer?) and for authors of clients."""
    described = JSONResponse(document())

    async def healthz(_: Request) -> Response:
        return JSONResponse(Health(version=__version__).model_dump())

    async def readyz(_: Request) -> Response:
        state = await readiness.state()
        ready, current = not state.problems, not state.outdated
        return JSONResponse({"ready": ready, "current": current}, 200 if ready else 503)

    async def openapi(_: Request) -> Response:
        return described

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/openapi.json", openapi)]


async def _sign_in(public: dict[str, str], _: Request) -> Response:
    return JSONResponse(public)


def _lifespan(
    gate: Gate,
    metrics_address: tuple[str, int, int] | None,
    readiness: Readiness,
    reload: Reload,
    listening: Callable[[], None],
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Makes the start and the end of serving: both are logged, and at the end everything is closed."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        datasets, log = gate.datasets, gate.log
        stop = gate.metrics.serve(*metrics_address) if metrics_address is not None else None
        log.capture("uvicorn.error")
        log.write(
            "started",
            datasets=sorted(datasets.served),
            version=__version__,
            drafts=[str(file) for file in datasets.drafts],
            failed=datasets.failed or None,
            pid=os.getpid(),
        )
        with suppress(ValueError, RuntimeError):  # only the main thread takes signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.ask)
        if gate.people is not None:
            await asyncio.to_thread(gate.people.begin)
        await gate.workers.start()  # before requests come
        watching = asyncio.create_task(readiness.watch())
        listening()
        yield
        watching.cancel()
        await gate.close()
        readiness.close()
        if stop is not None:
            stop()
        log.write("stopped", pid=os.getpid())
        log.close()
        datasets.close()

    return lifespan


async def _not_found(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"there is nothing here; datasets are at /v{PROTOCOL}/NAME, this server speaks protocol {PROTOCOL}."
    return failure(QueryError(text if error.status_code == 404 else f"{error.detail}."), error.status_code)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, PinqError)
    return failure(error)


async def _unexpected(_: Request, __: Exception) -> Response:
    return failure(InternalError(UNEXPECTED))


class Reload:
    """The effect of SIGHUP: opens the log's file, the policies and the certificate again, and logs the changes.

    Grants, tokens and terms need no reload: they are in the ledger, and take effect at once.

    Attributes:
        certificate: A function that reads the certificate again, and returns whether it changed; if it raises, the old
            one stays.
    """

    def __init__(self, datasets: Datasets, log: RequestLog) -> None:
        self._datasets, self._log = datasets, log
        self._alone, self._waits = threading.Lock(), threading.Lock()
        self.certificate: Callable[[], bool] = lambda: False

    def ask(self) -> None:
        """Starts a reload in a thread, after a running one; at most one reload waits."""
        self._log.reopen()
        if self._waits.acquire(blocking=False):
            # A daemon thread: a source may take minutes to encode, and no shutdown waits for that.
            threading.Thread(target=self._read, name="pinq-reload", daemon=True).start()

    def _read(self) -> None:
        with self._alone:
            self._waits.release()  # the next reload reads later changes
            try:
                self.now()
            except Exception:  # its text may quote data
                LOG.exception("a reload failed")
                self._log.write("reload failed")

    def now(self) -> None:
        """Reads everything again, and logs one line."""
        changed, failed = list[str](), list[str]()
        try:
            changed += ["certificate"] if self.certificate() else []
        except (PinqError, OSError) as error:
            failed.append(f"certificate: {error}")
        reloaded = self._datasets.reload()
        self._datasets.failed = (*failed, *reloaded.failed)
        self._log.write(
            "reloaded",
            changed=[*changed, *reloaded.changed],
            added=reloaded.added or None,
            removed=reloaded.removed or None,
            failed=self._datasets.failed or None,
            drafts=[str(file) for file in self._datasets.drafts] or None,
        )
