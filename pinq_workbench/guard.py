# SPDX-License-Identifier: Apache-2.0
"""Access to the workbench: only the browser that opened its link, and no page of another site.

The link holds a key that works once. The answer to it sets a cookie that scripts cannot read and that
requests of other sites do not carry. Each request, including the one that opens the web socket, must
have this machine as its host and, if it has an origin, this page as its origin.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINK = "/open"
LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
# NiceGUI compiles its templates in the browser, which needs 'unsafe-eval'. Scripts of other hosts, and
# requests to them, are forbidden.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-src 'self'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CLOSED = """\
This is a workbench, and this browser has not opened it. Use the link that `pinq workbench` printed; it works \
once. Stop the command and start it again for another link: nothing is lost.
"""


class Guard:
    """Lets one browser through to an application.

    Args:
        app: The application that it guards.
        origins: Addresses of proxies for the page: ``https://bench.example.org``.

    Attributes:
        app: The application that it guards.
        key: The key of the link; empty after its use.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str] = ()) -> None:
        self.app, self.key = app, secrets.token_urlsafe(32)
        self._cookie, self._origins = secrets.token_urlsafe(32), tuple(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it with an answer that says nothing about the application."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif (refusal := self._refusal(scope)) is None:
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await refusal(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """Returns the answer that ends a request here; None for a request that may pass."""
        connection = HTTPConnection(scope)
        if not self._is_own(scope, connection.headers):
            return PlainTextResponse("Another site's request, or another host's name: refused.\n", 403)
        # Other programs' cookies may stand in the same header, in any form.
        cookie = connection.cookies.get(_name(connection.headers), "")
        has_cookie = secrets.compare_digest(cookie.encode(), self._cookie.encode())
        if scope["type"] == "http" and scope["path"] == LINK:
            return self._opened(connection, has_cookie)
        return None if has_cookie else PlainTextResponse(CLOSED, 403)

    def _is_own(self, scope: Scope, headers: Headers) -> bool:
        """Whether a request is for this host, and comes from this page or from the browser's address bar."""
        host, origin = headers.get("host", ""), headers.get("origin")
        proxy_origins = [address for address in self._origins if urlsplit(address).netloc == host]
        if not proxy_origins and not LOOPBACK.fullmatch(host):
            return False
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return False
        if origin is None:  # browsers send an origin with each web socket and each form
            return scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        return origin in (proxy_origins or [f"http://{host}"])

    def _opened(self, connection: HTTPConnection, has_cookie: bool) -> Response:
        """Sets the cookie in exchange for the key, once; a browser with the cookie is sent to the page."""
        key = connection.query_params.get("key", "")
        if not has_cookie and not (self.key and secrets.compare_digest(key.encode(), self.key.encode())):
            return PlainTextResponse(CLOSED, 403)
        answer = RedirectResponse("/", 303)
        if not has_cookie:
            self.key = ""
            secure = not LOOPBACK.fullmatch(connection.headers["host"])
            answer.set_cookie(_name(connection.headers), self._cookie, httponly=True, samesite="strict", secure=secure)
        return answer


def _name(headers: Headers) -> str:
    """The cookie's name. Cookies are shared by all ports of a host, so each workbench needs its own name."""
    return f"pinq-workbench-{re.sub('[^a-z0-9]+', '-', headers.get('host', ''))}"


def _with_headers(send: Send) -> Send:
    """Adds to each answer the headers that restrict the browser."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent
