# SPDX-License-Identifier: Apache-2.0
"""The path of a request through the server.

::

    token - limits - the token's queue: body - a thread: authorise, work - padding - log - response

With padding a token's requests run one at a time. The clock of a request starts after its body was read, when its work
begins, and the request keeps its turn until the end of the time bucket. If clocks started at arrival, or ran in
parallel, a client could shift work within a bucket and so measure its time more finely. Every failure becomes an error
of one shape. Blocking work (ledger, engine) never runs on the event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pinq.analyst.tokens import MAX_TOKEN, PREFIX, digest
from pinq.curator.deadline import Deadline, Stopped, TooHeavy
from pinq.errors import (
    LedgerError,
    NotAuthorised,
    PinqError,
    PolicyError,
    QueryError,
    TooManyRequests,
    Unavailable,
)
from pinq.language.wire import PROTOCOL, PROTOCOL_HEADER, REVISION, REVISION_HEADER, Failure, status_of
from pinq.server.datasets import Datasets, T
from pinq.server.limits import AuthThrottle, Settings, TokenQueues
from pinq.server.log import RequestLog, unexpected
from pinq.server.readiness import Metrics
from pinq.server.replies import Visit, Work, begun, remembered
from pinq.server.sign_in import MAX_ID_TOKEN, People, Unknown
from pinq.server.workers import STOP_SECONDS, Workers

REFUSAL_SECONDS = 0.01
_HEADERS = {PROTOCOL_HEADER: PROTOCOL, REVISION_HEADER: str(REVISION), "Cache-Control": "no-store"}


class Gate:
    """Lets requests through to the datasets.

    Attributes:
        people: The sign-in; None if no policy declares one.

    Raises:
        PolicyError: Two policies name two identity providers.
    """

    def __init__(self, datasets: Datasets, settings: Settings, log: RequestLog) -> None:
        self.datasets, self.settings, self.log = datasets, settings, log
        self.workers = Workers(datasets, settings, log)
        policies = [dataset.policy for dataset in datasets.served.values()]
        declared = [policy.sign_in for policy in policies if policy.sign_in is not None]
        if len({(sign_in.issuer, sign_in.client, sign_in.claim) for sign_in in declared}) > 1:
            raise PolicyError("The policies of a server sign in at one identity provider, as one client by one claim.")
        self.people = People(declared[0]) if declared else None
        self.metrics = Metrics()
        self._queues, self._throttle = TokenQueues(settings), AuthThrottle(settings, is_token=datasets.know)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="pinq")
        self._bodies = asyncio.Semaphore(settings.bodies)
        self._body_of = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def run(self, http: Request, route: str, work: Work, *, charges: bool = False) -> Response:
        """Answers one request on a dataset.

        Args:
            http: The request; its path names the dataset.
            route: The name of the route in log and metrics.
            work: A function that makes the answer.
            charges: Whether the work reveals nothing before its charge, which checks the token, so that the ledger need
                not be read for the token alone.
        """
        address = http.client.host if http.client else "-"
        token = _token(http)
        visit = Visit(http.path_params["dataset"], digest(token), route, address)
        error: PinqError | None = None
        try:
            payload = await self._admitted(http, visit, work, charges, token)
        except PinqError as raised:
            error = raised
        except ClientDisconnect:
            error = QueryError("the request was cut off.")
        except Exception:
            error = unexpected()
        response = (
            Response(payload, headers=_HEADERS, media_type="application/json") if error is None else failure(error)
        )
        if "transfer-encoding" in http.headers:
            response.headers["Connection"] = "close"  # RFC 9112, sec. 6.1
        await self._pad(visit)  # for requests that did not reach a queue
        self._note(visit, response.status_code, error)
        return response

    async def close(self) -> None:
        """Ends running work between two steps; its charges stay, without an answer."""
        await self.workers.close()
        if self.people is not None:
            self.people.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def _admitted(self, http: Request, visit: Visit, work: Work, charges: bool, token: str) -> str:
        """Does a request's work when it is the token's turn."""
        protocol = http.headers.get(PROTOCOL_HEADER, PROTOCOL)
        if protocol != PROTOCOL:
            raise QueryError(
                f"this server speaks protocol {PROTOCOL}, the client {protocol[:20]!r}; install the same "
                f"version of pinq on both sides."
            )
        if "content-length" in http.headers and "transfer-encoding" in http.headers:
            raise QueryError("the request says its length in two ways, of which a proxy may have believed the other.")
        self._throttle.check(visit.address, visit.token)
        if self.people is not None and token and not token.startswith(PREFIX):
            try:
                visit.token = await self._in_thread(
                    self.people.opened_by, token, self.datasets.served.get(visit.dataset_name)
                )
            except Unknown as unknown:
                visit.reason = str(unknown)
        try:
            async with self._queues.enter(visit.token, alone=self._alone(visit.token)), self._padded(visit):
                visit.clock = time.monotonic()
                with self.datasets.leased(visit.dataset_name) as visit.leased:
                    return await self._worked(http, visit, work, charges)
        except Stopped:
            raise Unavailable(
                "the server stopped this request; the same request may be sent again, and is charged once."
            ) from None
        except NotAuthorised:
            self._throttle.wrong(visit.address, visit.token)
            raise
        except TooManyRequests:  # the bucket is that of the token's dataset
            visit.dataset = visit.dataset or self.datasets.served.get(self._throttle.opens(visit.token))
            raise
        finally:
            if visit.grant is not None:
                self._throttle.right(visit.token, visit.opened[0].name)

    async def _worked(self, http: Request, visit: Visit, work: Work, charges: bool) -> str:
        """Reads the body and does the work: light work in a thread, other work in a worker."""
        settings, size = self.settings, _size(http)
        async with AsyncExitStack() as room:
            if size > settings.light_body and not self.datasets.know(visit.token):
                await self._in_thread(visit.authorise)  # before a large body fills the memory
            if size > settings.moment_body:
                await room.enter_async_context(self._body_of[visit.token])
                await room.enter_async_context(self._bodies)
            body = b"" if http.method == "GET" else await read_body(http, settings.max_body, settings.body_seconds)
            visit.clock = time.monotonic()  # without the time of the body, which the sender chooses
            heavy = len(body) > settings.moment_body
            if len(body) <= settings.light_body:
                visit.deadline = Deadline(settings.work_seconds, settings.light_work, token=visit.token)
                try:
                    return await self._in_thread(remembered if charges else begun, work, visit, body)
                except TooHeavy as priced:
                    heavy = priced.units > settings.moment_work
            elif visit.grant is None:
                await self._in_thread(visit.authorise)
            look = partial(self._look, http, visit)
            with suppress(TooHeavy):  # the worker prices a body of medium size
                return await self.workers.do(visit, work, body, look, heavy=heavy)
            return await self.workers.do(visit, work, body, look, heavy=True)

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments))

    async def _look(self, http: Request, visit: Visit, stop: Callable[[float], None]) -> None:
        """Stops work if its client disconnected or its grant ended.

        With padding a disconnect stops work only at the end of a time bucket. Otherwise the log would show whether the
        work was done at a moment that the client chose.
        """
        dataset, _ = visit.opened
        if await http.is_disconnected():
            bucket, now = dataset.policy.padding_seconds, time.monotonic()
            # With clock 10 s, buckets of 2 s and now 13.5 s, the bucket ends at 10 + 2 * 2 = 14 s.
            stop(visit.clock + math.ceil((now - visit.clock) / bucket) * bucket if bucket else now)
        with suppress(LedgerError):  # the ledger may work again at the next look
            if await self._in_thread(dataset.ledger.grant_of_token, visit.token) is None:
                stop(0.0)

    def _alone(self, hashed: str) -> bool:
        """Whether a token's requests run one at a time: with padding, or while the token's dataset is unknown."""
        opened = self.datasets.served.get(self._throttle.opens(hashed))
        return opened is None or opened.policy.padding is not None

    @asynccontextmanager
    async def _padded(self, visit: Visit) -> AsyncIterator[None]:
        """Ends the block, also with an error, at the end of a time bucket; cancelled work ends at once."""
        try:
            yield
        except Exception:
            await self._pad(visit)
            raise
        await self._pad(visit)

    async def _pad(self, visit: Visit) -> None:
        """Waits for the end of the time bucket, once."""
        if visit.padded:
            return
        visit.padded = True
        if visit.dataset is not None:
            bucket = visit.dataset.policy.padding_seconds
        else:
            # The wait of a refused token must not distinguish datasets. So it is the longest bucket, or
            # without padding a time in which a ledger can be read.
            served = self.datasets.served.values()
            bucket = max(REFUSAL_SECONDS, *(dataset.policy.padding_seconds for dataset in served))
        if bucket:
            # With buckets of 0.5 s, work of 0.7 s is answered after 1 s.
            end = visit.clock + math.ceil((time.monotonic() - visit.clock) / bucket) * bucket
            # An event loop sleeps for whole milliseconds. So a single sleep would miss the bucket's end by
            # the fraction of a millisecond at which the work ended.
            while (remaining := end - time.monotonic()) > 0:
                await asyncio.sleep(max(0, remaining - 0.002))

    def _note(self, visit: Visit, status: int, error: PinqError | None) -> None:
        name = visit.dataset.name if visit.dataset is not None else None
        trouble = str(error) if isinstance(error, LedgerError) else None
        if trouble is not None and visit.leased is not None:
            visit.leased.trouble = trouble
        self.metrics.count(name or "-", visit.route, status, None if error is None else error.code)
        self.log.write(
            "request",
            route=visit.route,
            dataset=name
            or (
                visit.dataset_name if visit.dataset_name in self.datasets.served else None
            ),  # an unknown name may be a token
            analyst=visit.grant.analyst if visit.grant is not None else None,
            address=visit.address,
            status=status,
            code=None if error is None else error.code,
            reason=trouble or visit.reason,
            request=visit.request,
            ms=round(1000 * (time.monotonic() - visit.started), 1),
        )


async def read_body(http: Request, limit: int, seconds: float) -> bytes:
    """Reads a body; raises ``QueryError`` for more than ``limit`` bytes, or if it comes too late."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in http.stream():
                size += len(chunk)
                if size > limit:
                    raise QueryError(f"the request is larger than {limit:,} bytes. Ask about fewer parts at a time.")
                chunks.append(chunk)
    except TimeoutError:
        raise QueryError(f"the request did not arrive within {seconds:g} s.") from None
    return b"".join(chunks)


def failure(error: PinqError, status: int | None = None) -> Response:
    """Makes the response for an error; a ledger's error names files, so its text is replaced."""
    shown, headers = error, dict(_HEADERS)
    match error:
        case LedgerError():
            shown = LedgerError(
                "The ledger cannot be used now. The data provider finds the reason in the server's log."
            )
        case NotAuthorised():
            headers["WWW-Authenticate"] = "Bearer"
        case TooManyRequests():
            headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    body = Failure.of(shown).model_dump_json(exclude_none=True)
    return Response(body, status or status_of(error), headers, "application/json")


def _token(http: Request) -> str:
    scheme, _, token = http.headers.get("authorization", "").partition(" ")
    limit = MAX_TOKEN if token.startswith(PREFIX) else MAX_ID_TOKEN
    return token if scheme.lower() == "bearer" and len(token) <= limit else ""


def _size(http: Request) -> float:
    """The stated length of a body; infinite without a statement."""
    length = http.headers.get("content-length", "")
    if http.method != "POST":
        return 0
    return int(length[:20]) if length.isascii() and length.isdigit() else math.inf
