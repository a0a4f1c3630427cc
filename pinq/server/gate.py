# SPDX-License-Identifier: Apache-2.0
"""One request's way through the server.

::

    token - limits - the token's queue: body - a thread: authorise, work - padding - log - response

With padding a token's requests run one at a time. The clock of a request starts when its body is
there and its work begins, and padding keeps its turn in the queue: so the token's next request does
not begin, and is not dated, before the bucket ends. A clock that started when a request arrives, or
two that run at once, would let the asker choose how the work lies in a bucket, and so measure it
more finely. Every failure becomes an error of one shape. Blocking work (ledger, engine) never
runs on the event loop.
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

    Args:
        datasets: The served datasets.
        settings: Limits.
        log: The provider's.

    Attributes:
        people: The sign-in; None if no policy declares one.

    Raises:
        PolicyError: Two policies name two identity providers.
    """

    def __init__(self, datasets: Datasets, settings: Settings, log: RequestLog) -> None:
        self.datasets, self.settings, self.log = datasets, settings, log
        self.workers = Workers(datasets, settings, log)
        declared = [one.policy.sign_in for one in datasets.served.values() if one.policy.sign_in is not None]
        if len({(own.issuer, own.client, own.claim) for own in declared}) > 1:
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
            charges: Whether the work gives nothing away before a charge, which looks at the token
                too, or ``Visit.authorise``: so the ledger need not be read for the token alone.
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
        await self._pad(visit)  # what did not come as far as a queue
        self._note(visit, response.status_code, error)
        return response

    async def close(self) -> None:
        """Ends what still runs, between two steps: what it was charged stays, unanswered."""
        await self.workers.close()
        if self.people is not None:
            self.people.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def _admitted(self, http: Request, visit: Visit, work: Work, charges: bool, token: str) -> str:
        """Does a request's work once its token's turn has come."""
        spoken = http.headers.get(PROTOCOL_HEADER, PROTOCOL)
        if spoken != PROTOCOL:
            raise QueryError(
                f"this server speaks protocol {PROTOCOL}, the client {spoken[:20]!r}; install the same "
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
            raise Unavailable("the server stopped this request before anything was charged; send it again.") from None
        except NotAuthorised:
            self._throttle.wrong(visit.address, visit.token)
            raise
        except TooManyRequests:  # waits for the bucket of the token's own dataset, not for another's
            visit.dataset = visit.dataset or self.datasets.served.get(self._throttle.opens(visit.token))
            raise
        finally:
            if visit.grant is not None:
                self._throttle.right(visit.token, visit.opened[0].name)

    async def _worked(self, http: Request, visit: Visit, work: Work, charges: bool) -> str:
        """Reads the body and does the work: in a thread where it is light, else in a worker."""
        settings, size = self.settings, _size(http)
        async with AsyncExitStack() as room:
            if size > settings.light_body and not self.datasets.know(visit.token):
                await self._in_thread(visit.authorise)  # only who may ask may fill the memory
            if size > settings.moment_body:
                await room.enter_async_context(self._body_of[visit.token])
                await room.enter_async_context(self._bodies)
            body = b"" if http.method == "GET" else await read_body(http, settings.max_body, settings.body_seconds)
            visit.clock = time.monotonic()  # how long the body took is the sender's choice
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
            with suppress(TooHeavy):  # a body of middle size is priced in the worker
                return await self.workers.do(visit, work, body, look, heavy=heavy)
            return await self.workers.do(visit, work, body, look, heavy=True)

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *given))

    async def _look(self, http: Request, visit: Visit, stop: Callable[[float], None]) -> None:
        """Ends work whose client has gone or whose grant has ended.

        With padding a client that goes ends it at the end of a time bucket only: else the log would
        say whether work was done when its asker chose to go.
        """
        dataset, _ = visit.opened
        if await http.is_disconnected():
            bucket, now = dataset.policy.padding_seconds, time.monotonic()
            # Clock 10 s, buckets of 2 s, now 13.5 s: the bucket ends at 10 + 2 * 2 = 14 s.
            stop(visit.clock + math.ceil((now - visit.clock) / bucket) * bucket if bucket else now)
        with suppress(LedgerError):  # it may be back at the next look
            if await self._in_thread(dataset.ledger.grant_of_token, visit.token) is None:
                stop(0.0)

    def _alone(self, hashed: str) -> bool:
        """Whether a token's requests run one at a time.

        They do with padding, and while nobody knows yet what the token opens.
        """
        opened = self.datasets.served.get(self._throttle.opens(hashed))
        return opened is None or opened.policy.padding is not None

    @asynccontextmanager
    async def _padded(self, visit: Visit) -> AsyncIterator[None]:
        """Ends what is inside, also with an error, at the end of a time bucket.

        Cancelled work ends at once.
        """
        try:
            yield
        except Exception:
            await self._pad(visit)
            raise
        await self._pad(visit)

    async def _pad(self, visit: Visit) -> None:
        """Waits for the end of the time bucket, once.

        The duration of work depends on rows; the bucket in which it ends says less.
        """
        if visit.padded:
            return
        visit.padded = True
        if visit.dataset is not None:
            bucket = visit.dataset.policy.padding_seconds
        else:
            # The wait of a refused token must not distinguish datasets: the longest bucket; without
            # padding one that a look into a ledger fits into.
            bucket = max(REFUSAL_SECONDS, *(one.policy.padding_seconds for one in self.datasets.served.values()))
        if bucket:
            # Buckets of .5 s: work of .7 s is answered after 1 s.
            end = visit.clock + math.ceil((time.monotonic() - visit.clock) / bucket) * bucket
            # An event loop wakes by whole milliseconds from when it went to sleep, so that one sleep
            # would end as far from the bucket's end as the work did from a millisecond's.
            while (left := end - time.monotonic()) > 0:
                await asyncio.sleep(max(0, left - 0.002))

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
            or (visit.dataset_name if visit.dataset_name in self.datasets.served else None),  # else perhaps a token
            analyst=visit.grant.analyst if visit.grant is not None else None,
            address=visit.address,
            status=status,
            code=None if error is None else error.code,
            reason=trouble or visit.reason,
            request=visit.request,
            ms=round(1000 * (time.monotonic() - visit.started), 1),
        )


async def read_body(http: Request, limit: int, seconds: float) -> bytes:
    """Reads a body. Raises ``QueryError`` if it has more than ``limit`` bytes, or comes too late."""
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
    """Makes a response of an error; the files that a ledger's error names are for the provider alone."""
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
    most = MAX_TOKEN if token.startswith(PREFIX) else MAX_ID_TOKEN
    return token if scheme.lower() == "bearer" and len(token) <= most else ""


def _size(http: Request) -> float:
    """The stated length of a body; a body without one counts as large."""
    length = http.headers.get("content-length", "")
    if http.method != "POST":
        return 0
    return int(length[:20]) if length.isascii() and length.isdigit() else math.inf
