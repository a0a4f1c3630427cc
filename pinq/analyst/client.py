# SPDX-License-Identifier: Apache-2.0
"""A handle on a dataset behind a server: the same face, over HTTPS.

Every request has an id. The server answers an id once and charges it once, so whatever goes wrong
on the way, the client simply sends the same bytes again.
"""

from __future__ import annotations

import os
import random
import ssl
import time
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from pinq.analyst.queryable import Budget, PrivateQueryable
from pinq.analyst.tokens import find_token
from pinq.errors import PinqError, QueryError, TooManyRequests, Unavailable
from pinq.public.queries import Answer, Asked, Preview, Request
from pinq.public.wire import (
    PROTOCOL,
    PROTOCOL_HEADER,
    SCHEMA_HEADER,
    Description,
    Failure,
    History,
    WireBudget,
    WirePreview,
)

__all__ = ["RemoteSession", "connect"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0

T = TypeVar("T", bound=BaseModel)


def connect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    verify: bool | str | os.PathLike[str] = True,
    timeout: float = 60.0,
    insecure_http: bool = False,
) -> PrivateQueryable:
    """Opens a handle on a dataset behind a server.

    Args:
        url: ``https://host:port/dataset``.
        token: What ``pinq grant`` printed, or a ``Path`` to a file that holds it; by default
            ``PINQ_TOKEN``, else a line of ``~/.config/pinq/tokens``. Token files must have mode
            0600.
        verify: True for the system's certificate authorities, or a file of the provider's own. It
            cannot be switched off.
        timeout: Seconds until an unanswered request is given up, retries included.
        insecure_http: Allow ``http://`` to a server on this very machine.

    Raises:
        QueryError: A malformed argument, or no token.
        NotAuthorised: The server does not accept the token.
        Unavailable: No server answers there, its certificate is not trusted, or it speaks another
            version.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 10**6:
        raise QueryError(f"`timeout` is {timeout!r}; it must be a number of seconds greater than 0.")
    root, dataset, context = _split(url, verify, insecure_http)
    return PrivateQueryable(RemoteSession(root, dataset, find_token(url, token), context, float(timeout)))


class RemoteSession:
    """A curator at the other end of a wire, for one analyst."""

    def __init__(self, root: str, dataset: str, token: str, verify: ssl.SSLContext | None, timeout: float) -> None:
        self._timeout, self._path = timeout, f"/v{PROTOCOL}/{quote(dataset)}"
        headers = {
            "Authorization": f"Bearer {token}",
            PROTOCOL_HEADER: PROTOCOL,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        # A proxy of the environment must never see a token in the clear.
        patience = httpx.Timeout(timeout, connect=min(timeout, 10.0))
        self._client = httpx.Client(
            base_url=root, headers=headers, verify=verify or False, timeout=patience, trust_env=verify is not None
        )
        try:
            told = self._get("", Description)
            self.name, self.analyst, self.schema = told.dataset, told.analyst, told.columns
            if self.schema.digest != told.digest:
                raise Unavailable(
                    "The server's schema does not read the same here; use the same version of pinq on both sides."
                )
        except BaseException:
            self._client.close()
            raise
        self._client.headers[SCHEMA_HEADER] = told.digest

    def ask(self, request: Request) -> Answer:
        """The server's answer, once: retries carry the same request id."""
        return self._read(self._send("POST", "/query", request.to_json()), Answer)

    def preview(self, request: Request) -> Preview:
        """What it would cost."""
        return self._read(self._send("POST", "/preview", request.to_json()), WirePreview).preview()

    def budget(self) -> Budget:
        """The analyst's budget as the ledger has it now."""
        return self._get("/budget", WireBudget).budget()

    def history(self) -> list[Asked]:
        """The analyst's own lines of the log, with the answers."""
        lines: list[Asked] = []
        while True:
            page = self._get(f"/history?start={len(lines)}", History)
            lines += page.lines
            if not page.more or not page.lines:
                return lines

    def terms(self) -> str:
        """What the analyst's grant allows, as the ledger has it now."""
        return self._get("", Description).terms

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "A handle cannot be pickled: it would carry its token elsewhere. Connect again where it is needed."
        )

    def _get(self, path: str, kind: type[T]) -> T:
        return self._read(self._send("GET", path), kind)

    def _send(self, method: str, path: str, content: str | None = None) -> httpx.Response:
        """Sends until there is an answer, an error that repeating would not change, or no time left."""
        left, wait = self._timeout, FIRST_WAIT
        deadline = time.monotonic() + left
        while True:
            try:
                headers = {"Content-Type": "application/json"} if content else None
                response = self._client.request(
                    method, self._path + path, content=content, headers=headers, timeout=left
                )
                if response.status_code == 200:
                    return response
                error = self._error(response)
                if response.status_code not in (429, 502, 503, 504):
                    raise error
            except httpx.TransportError as problem:
                error = self._unreachable(problem)
            if isinstance(error, TooManyRequests):
                wait = max(wait, error.retry_after)
            pause = wait * random.uniform(0.5, 1.0) if not isinstance(error, TooManyRequests) else wait
            left = deadline - time.monotonic() - pause  # an attempt has what the ones before it left
            if left <= 0:
                raise error
            time.sleep(pause)
            wait = min(2 * wait, LONGEST_WAIT)

    def _error(self, response: httpx.Response) -> PinqError:
        spoken = response.headers.get(PROTOCOL_HEADER)
        try:
            return Failure.model_validate_json(response.content).error()
        except ValidationError:
            known = "" if spoken is None else f", which speaks protocol {spoken} while this client speaks {PROTOCOL}"
            return Unavailable(
                f"{self._client.base_url} answered {response.status_code} and is not a pinq server that this client understands{known}."
            )

    def _unreachable(self, problem: httpx.TransportError) -> PinqError:
        cause: BaseException | None = problem
        while cause is not None:
            if isinstance(cause, ssl.SSLError) and "CERTIFICATE" in str(cause):
                raise Unavailable(
                    f"The certificate of {self._client.base_url} is not trusted: {problem}. Ask the provider for it and pass `verify=FILE`."
                ) from None
            cause = cause.__cause__ or cause.__context__
        return Unavailable(
            f"No answer from {self._client.base_url} within {self._timeout:g} s ({type(problem).__name__}). If it was charged meanwhile, the answer is "
            "kept: asking the same again with `reuse=True` returns it at no further cost."
        )

    def _read(self, response: httpx.Response, kind: type[T]) -> T:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            raise Unavailable(
                f"{self._client.base_url} answered something that is no {kind.__name__}; is it a pinq server of protocol {PROTOCOL}?"
            ) from None


def _split(
    url: str, verify: bool | str | os.PathLike[str], insecure_http: bool
) -> tuple[str, str, ssl.SSLContext | None]:
    """The server's root, the dataset, and how to trust its certificate (None for plain HTTP)."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    where, _, dataset = parts.path.rstrip("/").rpartition("/")
    if (
        parts.scheme not in ("https", "http")
        or not parts.hostname
        or not dataset
        or parts.query
        or parts.fragment
        or parts.username is not None
    ):
        raise QueryError(
            f"`url` is {str(url)[:200]!r}; it must look like https://stats.example.org:8443/adult, the dataset's name last."
        )
    root = f"{parts.scheme}://{parts.netloc}{where}"
    if parts.scheme == "http":
        if not insecure_http or parts.hostname not in LOOPBACK:
            raise QueryError(
                "a token and answers need https://; http:// is for a server on this machine only, with `insecure_http=True`."
            )
        return root, dataset, None
    if verify is False or verify is None:
        raise QueryError(
            "`verify` cannot be switched off: without it anybody could take the token. Pass the file with the provider's certificate."
        )
    try:
        return root, dataset, ssl.create_default_context(cafile=None if verify is True else os.fspath(verify))
    except (OSError, ssl.SSLError) as error:
        raise QueryError(f"`verify` is {os.fspath(verify)!r}, which cannot be read as certificates: {error}.") from None  # type: ignore[arg-type]
