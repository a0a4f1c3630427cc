# SPDX-License-Identifier: Apache-2.0
"""A handle on a dataset behind a server: the same methods, over HTTPS.

The server answers and charges an id once, so the client sends the same bytes again after any failure of the network.
After a sign-in each request carries an ID token instead of a token of a grant; the client renews it, and keeps tokens
in memory only.
"""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator
from fractions import Fraction
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Closed
from pinq.analyst.tokens import find_token
from pinq.errors import PinqError, QueryError, Unavailable, closed_on_error, unspent
from pinq.language.queries import Answer, Asked, Budget, Preview, Request
from pinq.language.wire import (
    CHANGED,
    PROTOCOL,
    PROTOCOL_HEADER,
    REVISION,
    REVISION_HEADER,
    SCHEMA_HEADER,
    Description,
    Failure,
    HistoryPage,
    WireBudget,
    WirePreview,
)
from pinq.public.checks import is_number

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
SCOPE = "openid profile email groups offline_access"
INTERVAL, SLOWER = 5, 5  # seconds between two questions whether the person is done; seconds added on demand
TIMEOUT = 20.0


class SignedIn(httpx.Auth):
    """Signs in, and signs each request of a client; ``show`` shows a line to the person.

    Raises:
        Unavailable: The server knows no identity provider, this one has no device flow, or nobody
            signed in in time.
    """

    def __init__(self, root: str, context: ssl.SSLContext | None, show: Callable[[str], None]) -> None:
        self._trusted = ssl.create_default_context()
        sign_in = _read(_asked(f"{root}/sign-in", context), f"{root} knows no identity provider; ask for a token")
        self._client_id, self._claim, issuer = sign_in["client_id"], sign_in["claim"], sign_in["issuer"]
        described = _asked(f"{issuer}/.well-known/openid-configuration", self._trusted)
        self._provider = _read(described, f"{issuer} is no identity provider")
        self._token, self._refresh = "", ""
        self._renewing = threading.Lock()  # a refresh token may be valid once, and queries are asked side by side
        self._take(self._by_device(show))
        payload = self._token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        show(f"Signed in as {claims.get(self._claim)}, which is the name to be granted.")

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Signs a request; once more with a new token if it is refused."""
        sent = self._token
        request.headers["Authorization"] = f"Bearer {sent}"
        response = yield request
        if response.status_code == 401 and self._renewed(sent):
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    def _by_device(self, show: Callable[[str], None]) -> dict[str, Any]:
        """Asks for a code, shows it, and waits until the person has entered it."""
        issuer = self._provider["issuer"]
        where = self._provider.get("device_authorization_endpoint")
        if where is None:
            raise Unavailable(f"{issuer} has no device flow, so nobody can sign in from here; ask for a token.")
        started = _read(self._posted(where, scope=SCOPE), f"{issuer} starts no sign-in")
        show(f"To sign in, open {started['verification_uri']} and enter {started['user_code']}")
        pause, end = started.get("interval", INTERVAL), time.monotonic() + started["expires_in"]
        while time.monotonic() < end:
            time.sleep(pause)
            answer = self._posted(
                self._provider["token_endpoint"], grant_type=DEVICE, device_code=started["device_code"]
            )
            error = None if answer.is_success else _read(answer, "").get("error")
            if error == "slow_down":
                pause += SLOWER
            elif error != "authorization_pending":
                return _read(answer, f"{issuer} let nobody in ({error})")
        raise Unavailable(f"Nobody signed in at {issuer} in time. Connect again.")

    def _renewed(self, sent: str) -> bool:
        """Whether there is another token than the sent one."""
        with self._renewing:
            if self._refresh and self._token == sent:
                words = {"grant_type": "refresh_token", "refresh_token": self._refresh}
                answer = self._posted(self._provider["token_endpoint"], **words)
                if answer.is_success:
                    self._take(_read(answer, ""))
            return self._token != sent

    def _take(self, answer: dict[str, Any]) -> None:
        self._token = answer.get("id_token", self._token)
        self._refresh = answer.get("refresh_token", self._refresh)

    def _posted(self, url: str, **words: str) -> httpx.Response:
        return _asked(url, self._trusted, {"client_id": self._client_id, **words})


def _asked(url: str, trusted: ssl.SSLContext | None, form: dict[str, str] | None = None) -> httpx.Response:
    """Gets a page, or sends a form; raises ``Unavailable`` without an answer."""
    words: dict[str, Any] = {"verify": trusted or False, "timeout": TIMEOUT, "trust_env": trusted is not None}
    try:
        return httpx.get(url, **words) if form is None else httpx.post(url, data=form, **words)
    except httpx.TransportError as error:
        raise Unavailable(f"No answer from {urlsplit(url).netloc} ({type(error).__name__}).") from None


def _read(answer: httpx.Response, problem: str) -> dict[str, Any]:
    """The JSON of an answer.

    Raises ``Unavailable`` without JSON, or for a failed answer if ``problem`` is not empty.
    """
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict) or (problem and not answer.is_success):
        raise Unavailable(f"{problem or 'The identity provider answered nothing that can be read'}.")
    return content


NO_HTTP = (httpx.RemoteProtocolError, httpx.ReadError)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
OPENING = 5.0  # seconds in which somebody must answer at all when a handle is opened
# What OpenSSL calls bytes that are not TLS, by version.
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")

T = TypeVar("T", bound=BaseModel)


def connect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    verify: bool | str | os.PathLike[str] = True,
    timeout: float = 60.0,
    insecure_http: bool = False,
    sign_in: bool = False,
    table: str | None = None,
) -> PrivateQueryable:
    """Opens a handle on a dataset behind a server.

    Args:
        url: ``https://host:port/dataset``.
        token: The token that ``pinq grant`` printed, or a ``Path`` to a file with it. By default
            the variable ``PINQ_TOKEN``, else a line of ``~/.config/pinq/tokens``. Token files must
            have mode 0600.
        verify: True for the system's certificate authorities, or a file with the provider's
            certificate. The check cannot be switched off.
        timeout: Seconds for a request, including retries and waits for a busy server or a slower
            pace (429). Opening fails after five seconds if no server listens.
        insecure_http: Whether ``http://`` is allowed, to a server on the same machine.
        sign_in: Whether to sign in at the organisation's identity provider instead of using a token. The
            call prints an address and a code to enter there.
        table: The table's name, if the dataset has several: ``https://host/clinic.visits`` is the same table.

    Raises:
        QueryError: A malformed argument, or no token.
        NotAuthorised: The server does not accept the token.
        Unavailable: No server answers there, its certificate is not trusted, or it speaks another
            version.
    """
    # Imported before anything is asked: Ctrl-C in a first fit would leave it half imported, for all later ones too.
    import pandas  # noqa: F401

    if not is_number(timeout, 1e-9, 10**6):
        raise QueryError(f"is {timeout!r}", parameter="timeout", allowed="a number of seconds greater than 0")
    root, dataset, context = _split(url, verify, insecure_http)
    shown = SignedIn(root, context, print) if sign_in else find_token(url, token)
    dataset = dataset if table is None else f"{dataset}.{table}"
    return PrivateQueryable(RemoteSession(root, dataset, shown, context, float(timeout)))


SHARDS = '"kind":"shards"'


class RemoteSession:
    """A curator at the other end of a wire, for one analyst."""

    def __init__(
        self, root: str, dataset: str, token: str | SignedIn, verify: ssl.SSLContext | None, timeout: float
    ) -> None:
        self._timeout, self._path = timeout, f"/v{PROTOCOL}/{quote(dataset)}"
        headers = {
            PROTOCOL_HEADER: PROTOCOL,
            REVISION_HEADER: str(REVISION),
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        if isinstance(token, str):
            headers["Authorization"] = f"Bearer {token}"
        # A proxy of the environment must never see a token in the clear.
        patience = httpx.Timeout(timeout, connect=min(timeout, 10.0))
        self._client: httpx.Client | Any = httpx.Client(
            base_url=root,
            headers=headers,
            verify=verify or False,
            timeout=patience,
            trust_env=verify is not None,
            auth=None if isinstance(token, str) else token,
        )
        with closed_on_error(self._client):
            described = self._read(self._send("GET", "", opening=True), Description)
            self.name, self.analyst, self.schema = described.dataset, described.analyst, described.columns
            self.tables, self.cohorts = described.tables or (), described.cohorts
            granted = self.name.rpartition(".")[0] if self.tables else self.name
            self.account = f"{root} {granted} {self.analyst}"
            if self.schema.digest != described.digest:
                raise Unavailable(
                    "The server's schema does not read the same here; use the same version of pinq on both sides."
                )
        self._holding = described.digest  # of the present schema, as far as known

    def ask(self, request: Request) -> Answer:
        """The server's answer, once: retries have the same request id."""
        return self._read(self._asked("/query", request), Answer)

    def preview(self, request: Request) -> Preview:
        return self._read(self._asked("/preview", request), WirePreview).preview()

    def attempt(self, request: Request) -> None:
        """Lets the server refuse and log a request that costs more than remains; charges nothing."""
        self._asked("/attempt", request)

    def budget(self, part: str = "") -> Budget:
        return self._get(f"/budget?part={part}" if part else "/budget", WireBudget).budget()

    def history(self, start: int = 0) -> list[Asked]:
        """The analyst's lines of the log, with the answers, a page at a time."""
        lines: list[Asked] = []
        while True:
            page = self._get(f"/history?start={start + len(lines)}", HistoryPage)
            lines += page.lines
            if not page.more or not page.lines:
                return lines

    def terms(self) -> str:
        return self._get("", Description).terms

    def close(self) -> None:
        self._client.close()
        self._client = Closed()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A handle cannot be pickled: it would carry its token elsewhere. Connect again where it is needed."
        )

    def _get(self, path: str, kind: type[T]) -> T:
        return self._read(self._send("GET", path), kind)

    def _asked(self, path: str, request: Request) -> httpx.Response:
        """Sends a query; once more if the policy has only gained columns since.

        Shards depend on all columns, and a paid answer belongs to the schema of its time: a query with
        shards or ``reuse`` is sent under the schema of this handle alone.
        """
        with unspent():  # `QueryError` if it names something that no schema can hold
            text = request.to_json()
        outlives = request.reuse is None and SHARDS not in text
        try:
            return self._send("POST", path, text, schema=self._holding if outlives else self.schema.digest)
        except QueryError as error:
            if not outlives or error.charged != 0 or CHANGED not in str(error) or not self._only_gained_columns():
                raise
        return self._send("POST", path, text, schema=self._holding)

    def _only_gained_columns(self) -> bool:
        """Whether the present schema is the schema of this handle with further columns."""
        now = self._get("", Description)
        columns = {name: column for name, column in now.columns.columns.items() if name in self.schema.columns}
        same = now.columns.digest == now.digest and now.columns.model_copy(update={"columns": columns}) == self.schema
        self._holding = now.digest if same else self._holding
        return same

    def _send(
        self, method: str, path: str, content: str | None = None, *, schema: str = "", opening: bool = False
    ) -> httpx.Response:
        """Sends until there is an answer, an error that repeating would not change, or no time left.

        A lost attempt may have been charged, so no later error of the same request can say that nothing was spent; a
        query that was never sent cannot have been charged.
        """
        left, wait, arrived, lost, status = self._timeout, FIRST_WAIT, False, False, 0
        start = time.monotonic()
        deadline = start + left
        while True:
            try:
                headers = {"Content-Type": "application/json", SCHEMA_HEADER: schema} if content else None
                patience = httpx.Timeout(left, connect=min(left, OPENING)) if opening else left
                response = self._client.request(
                    method, self._path + path, content=content, headers=headers, timeout=patience
                )
                if response.status_code == 200:
                    return response
                arrived |= response.status_code != 429
                status = response.status_code
                error = self._error(response)
                if lost:
                    error.charged = None
                if response.status_code not in (429, 502, 503, 504):
                    raise error
            except httpx.TransportError as problem:
                arrived |= not isinstance(problem, (httpx.ConnectError, httpx.ConnectTimeout))
                if opening and not isinstance(problem, httpx.ReadTimeout):
                    deadline = min(deadline, start + OPENING)
                error = self._unreachable(problem, deadline - start, arrived and path == "/query", status)
                if path == "/query" and not arrived:
                    error.charged = Fraction(0)
            lost = arrived
            pause = wait * random.uniform(0.5, 1.0)
            if error.retry_after is not None:  # the server names the time, so no random delay is needed
                wait = pause = max(wait, error.retry_after)
            left = deadline - time.monotonic() - pause  # the rest of the time after earlier attempts
            if left <= 0:
                raise error
            time.sleep(pause)
            wait = min(2 * wait, LONGEST_WAIT)

    def _error(self, response: httpx.Response) -> PinqError:
        spoken = response.headers.get(PROTOCOL_HEADER)
        try:
            return Failure.model_validate_json(response.content).error()
        except ValidationError:
            version = "" if spoken is None else f", which speaks protocol {spoken} while this client speaks {PROTOCOL}"
            return Unavailable(
                f"{self._client.base_url} answered {response.status_code} and is not a pinq server that this "
                f"client understands{version}."
            )

    def _unreachable(self, problem: httpx.TransportError, patience: float, charged: bool, status: int) -> PinqError:
        """The error of a failed attempt; ``charged`` tells whether this or an earlier one may have been charged."""
        root, causes = self._client.base_url, list(_causes(problem))
        reasons = [str(cause) for cause in causes if isinstance(cause, ssl.SSLError)]
        if any("CERTIFICATE" in reason for reason in reasons):
            raise Unavailable(
                f"The certificate of {root} is not trusted: {problem}. Ask the provider for the file and pass it as",
                remedy="verify",
            ) from None
        if any(name in reason for name in NOT_TLS for reason in reasons):
            raise Unavailable(
                f"{root} does not speak TLS. Ask the provider for its https:// address; a server on this very machine "
                "may be asked over http://, with",
                remedy="insecure_http",
            ) from None
        silence = f"No answer from {root} within {patience:g} s ({type(problem).__name__})."
        silence += f" The attempt before was answered {status}." if status else ""
        if charged:
            return Unavailable(
                f"{silence} If it was charged meanwhile, the answer is kept: "
                "asking the same again returns it at no further cost, with",
                remedy="reuse",
            )
        if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
            why = f"Nothing listens at {root}: its server is not running, or the port is another one."
        elif any(isinstance(cause, socket.gaierror) for cause in causes):
            why = f"The machine of {root} was not found: its name is another one, or there is no network."
        elif root.scheme == "http" and isinstance(problem, NO_HTTP):
            why = f"{silence} If it uses TLS, the URL must begin with https://."
        else:
            why = silence
        return Unavailable(f"{why}")

    def _read(self, response: httpx.Response, kind: type[T]) -> T:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            raise Unavailable(
                f"{self._client.base_url} answered something that is no {kind.__name__}; is it a pinq server "
                f"of protocol {PROTOCOL}?"
            ) from None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, the last first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _split(
    url: str, verify: bool | str | os.PathLike[str], insecure_http: bool
) -> tuple[str, str, ssl.SSLContext | None]:
    """The server's root, the dataset, and the trust in its certificate (None for plain HTTP)."""
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
        # What was given may hold a password, or be a token: it is not said again.
        named = "has a name, a password or a query in it, and a token goes elsewhere"
        fault = named if parts.query or parts.username is not None else "is no address of a dataset"
        raise QueryError(
            fault, parameter="url", allowed="like https://stats.example.org:8443/adult, the dataset's name last"
        )
    root = f"{parts.scheme}://{parts.netloc}{where}"
    if parts.scheme == "http":
        if not insecure_http or parts.hostname not in LOOPBACK:
            raise QueryError(
                "is needed for http://, which is for a server on this machine only; to others, tokens and answers "
                "go over https://.",
                parameter="insecure_http",
            )
        return root, dataset, None
    if verify is False or verify is None:
        raise QueryError(
            "cannot be switched off: without it anybody could take the token. Pass the file with the "
            "provider's certificate.",
            parameter="verify",
        )
    try:
        return root, dataset, ssl.create_default_context(cafile=None if verify is True else os.fspath(verify))
    except (OSError, ssl.SSLError) as error:
        why = "it holds none in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise QueryError(
            f"is {os.fspath(verify)!r}, which cannot be read as certificates: {why}.",  # type: ignore[arg-type]
            parameter="verify",
        ) from None
