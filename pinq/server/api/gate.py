# SPDX-License-Identifier: Apache-2.0
"""One request's way through the server.

::

    token - limits - the token's queue: body - a thread: authorise, work - padding - log - response

With padding a token's requests run one at a time. The clock of a request starts when its body is
there and its work begins, and padding keeps its turn in the queue: so the token's next request does
not begin, and is not dated, before the bucket ends. A clock that started when a request arrives, or
two that run at once, would let the asker choose how the work lies in a bucket, and so measure it
more finely. Whatever goes wrong becomes an error of one shape. Blocking work (ledger, engine) never
runs on the event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pinq.analyst.tokens import MAX_TOKEN, digest
from pinq.curator.work import Stopped
from pinq.errors import (
    LedgerError,
    NotAuthorised,
    PinqError,
    QueryError,
    Refusal,
    TooManyRequests,
    Unavailable,
)
from pinq.public.wire import PROTOCOL, PROTOCOL_HEADER, Failure, status_of
from pinq.server.api.handover import Handover
from pinq.server.api.lanes import Job, Lanes
from pinq.server.api.limits import AuthThrottle, Settings, TokenQueues
from pinq.server.api.metrics import Metrics
from pinq.server.api.visit import Visit, Work
from pinq.server.datasets import Datasets
from pinq.server.details import unexpected
from pinq.server.log import RequestLog

__all__ = ["Gate", "failure", "read_body"]

REFUSAL_SECONDS = 0.01
_HEADERS = {PROTOCOL_HEADER: PROTOCOL, "Cache-Control": "no-store"}


class Gate:
    """Lets requests through to the datasets.

    Args:
        datasets: What is served.
        settings: Limits.
        log: The provider's.
        handover: Has long work done by another process; None for none.
    """

    def __init__(
        self, datasets: Datasets, settings: Settings, log: RequestLog, handover: Handover | None = None
    ) -> None:
        self.datasets, self.settings, self.log = datasets, settings, log
        self._handover = handover
        self.metrics = Metrics(datasets, log)
        self._queues, self._throttle = TokenQueues(settings), AuthThrottle(settings, known=datasets.know)
        self._lanes = Lanes(datasets, settings)

    async def run(self, http: Request, route: str, asked: str, work: Work, *, charges: bool = False) -> Response:
        """Answers one request on a dataset.

        Args:
            http: The request.
            route: What log and metrics call it.
            asked: The dataset's name.
            work: Makes the answer.
            charges: Whether the work gives nothing away before a charge, which looks at the token
                too, or ``Visit.authorise``: so the ledger need not be read for the token alone.
        """
        visit = Visit(asked, route, http.client.host if http.client else "-")
        error: PinqError | None = None
        try:
            payload = await self._work(http, visit, work, charges)
        except PinqError as raised:
            error = raised.with_traceback(None)  # which has this frame, and with it the dataset's codes
        except ClientDisconnect:
            error = QueryError("the request was cut off.")
        except Exception:
            error = unexpected()
        response = (
            Response(payload, headers=_HEADERS, media_type="application/json") if error is None else failure(error)
        )
        await self._pad(visit)  # what did not come as far as a queue
        self._note(visit, response.status_code, None if error is None else error.code)
        return response

    async def close(self) -> None:
        """Ends what still runs, between two steps: what it was charged stays, unanswered."""
        await self._lanes.close()
        if self._handover is not None:
            await asyncio.to_thread(self._handover.close)

    async def _work(self, http: Request, visit: Visit, work: Work, charges: bool) -> str:
        spoken = http.headers.get(PROTOCOL_HEADER, PROTOCOL)
        if spoken != PROTOCOL:
            raise QueryError(
                f"this server speaks protocol {PROTOCOL}, the client {spoken[:20]!r}; install the same "
                f"version of pinq on both sides."
            )
        token = _token(http)
        hashed = digest(token)
        self._throttle.check(visit.address, hashed)

        visit.authority = partial(self._authorise, hashed)
        recall = partial(self._recall, visit, hashed) if charges else lambda: False

        def opens() -> bool:
            dataset = visit.dataset  # once: `authorise` may begin meanwhile
            return dataset is None or dataset.ledger.holder(hashed) is not None

        try:
            async with self._queues.enter(hashed, alone=self._alone(hashed)), self._padded(visit):
                visit.clock = time.monotonic()
                size = _size(http)
                if size > self.settings.middle_body:  # only who may ask may fill the memory
                    await self._lanes.soon(visit.asked, hashed, visit.authorise)
                async with self._lanes.room(visit.asked, hashed, size):
                    body = await self._read(http)
                    visit.clock = time.monotonic()  # how long the body took is the sender's choice
                    aside = work if self._handover is None else partial(self._handover.do, work)
                    here, there = (partial(_job, visit, recall, done, body) for done in (work, aside))
                    job = Job(here, there, size, charges)
                    return await self._lanes.run(http, visit, hashed, job, opens)
        except Stopped:
            raise Unavailable("the server stopped this request before anything was charged; send it again.") from None
        except NotAuthorised:
            self._throttle.wrong(visit.address, hashed)
            raise
        except TooManyRequests:  # waits for the bucket of the token's own dataset, not for another's
            visit.dataset = visit.dataset or self.datasets.get(self._throttle.opens(hashed))
            raise
        finally:
            if visit.grant is not None:
                self._throttle.right(hashed, visit.opened[0].name)

    async def _read(self, http: Request) -> bytes:
        """Reads the body; that of a GET is nobody's business."""
        settings = self.settings
        return b"" if http.method == "GET" else await read_body(http, settings.max_body, settings.body_seconds)

    def _authorise(self, hashed: str, visit: Visit) -> None:
        visit.dataset = visit.grant = None
        visit.dataset, visit.grant = self.datasets.authorise(visit.asked, hashed)

    def _recall(self, visit: Visit, hashed: str) -> bool:
        """Lets a token in by what this process has read of the ledger, where that will do."""
        with suppress(NotAuthorised):
            visit.dataset, visit.grant = self.datasets.authorise(visit.asked, hashed, fresh=False)
        return visit.dataset is not None

    def _alone(self, hashed: str) -> bool:
        """Whether a token's requests run one at a time.

        They do with padding, and while nobody knows yet what the token opens.
        """
        opened = self.datasets.get(self._throttle.opens(hashed))
        return opened is None or opened.policy.padding is not None

    @asynccontextmanager
    async def _padded(self, visit: Visit) -> AsyncIterator[None]:
        """Ends what is inside, also with an error, at the end of a time bucket.

        What is cancelled ends at once.
        """
        try:
            yield
        except Exception:
            await self._pad(visit)
            raise
        await self._pad(visit)

    async def _pad(self, visit: Visit) -> None:
        """Waits for the end of the time bucket, once.

        How long work takes follows the rows; which bucket it ends in says less.
        """
        if visit.padded:
            return
        visit.padded = True
        bucket = self._longest() if visit.dataset is None else visit.dataset.policy.padding_seconds
        if bucket:
            elapsed = time.monotonic() - visit.clock
            # Buckets of .5 s: work of .7 s is answered after 1 s.
            await asyncio.sleep(math.ceil(elapsed / bucket) * bucket - elapsed)

    def _longest(self) -> float:
        """How long a refused token waits: a refusal must not tell one dataset from another.

        It waits for the longest bucket; without padding for one that a look into a ledger fits into.
        """
        return max(REFUSAL_SECONDS, *(dataset.policy.padding_seconds for dataset in self.datasets.values()))

    def _note(self, visit: Visit, status: int, code: str | None) -> None:
        name = visit.dataset.name if visit.dataset is not None else None
        analyst = visit.grant.analyst if visit.grant is not None else None
        self.metrics.count(name or "-", visit.route, status, code)
        took = round(1000 * (time.monotonic() - visit.started), 1)
        self.log.write(
            "request",
            route=visit.route,
            dataset=name or (visit.asked if visit.asked in self.datasets else None),  # else perhaps a token
            analyst=analyst,
            address=visit.address,
            status=status,
            code=code,
            request=visit.request,
            ms=took,
        )


def _job(visit: Visit, recall: Callable[[], bool], work: Work, body: bytes) -> str:
    """Does a request's work once its token was looked at: in the ledger, unless ``recall`` does."""
    visit.turn.check()
    # What is long may have waited for minutes: its token may have ended since this process last read.
    if visit.turn.most == math.inf or not recall():
        visit.authorise()
        return work(visit, body)
    try:
        return work(visit, body)
    except (Refusal, NotAuthorised, Stopped):
        visit.authorise()  # whose grant has ended learns nothing else; what fails after a charge has one text
        raise


async def read_body(http: Request, most: int, seconds: float) -> bytes:
    """Reads a body. ``QueryError`` where it has more than ``most`` bytes, or comes too late."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in http.stream():
                size += len(chunk)
                if size > most:
                    raise QueryError(f"the request is larger than {most:,} bytes. Ask about fewer parts at a time.")
                chunks.append(chunk)
    except TimeoutError:
        raise QueryError(f"the request did not arrive within {seconds:g} s.") from None
    return b"".join(chunks)


def failure(error: PinqError, status: int | None = None) -> Response:
    """Makes a response of an error. What a ledger's error says of files is the provider's."""
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
    return token if scheme.lower() == "bearer" and len(token) <= MAX_TOKEN else ""


def _size(http: Request) -> float:
    """How long a body says it is; of no stated length counts as a large one."""
    length = http.headers.get("content-length", "")
    if http.method != "POST":
        return 0
    return int(length[:20]) if length.isascii() and length.isdigit() else math.inf
