# SPDX-License-Identifier: Apache-2.0
"""Signing in at the house's identity provider, in a browser of any machine (RFC 8628, device flow).

The ID token that comes back goes with each request in the place of a token of ours, and is renewed
when it no longer counts. Tokens are in memory alone.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urlsplit

import httpx

from pinq.errors import Unavailable

__all__ = ["SignedIn"]

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
SCOPE = "openid profile email groups offline_access"
INTERVAL, SLOWER = 5, 5  # seconds between questions whether the person is done, and more where that is too fast
TIMEOUT = 20.0


class SignedIn(httpx.Auth):
    """Signs in, and signs each request of a client.

    Args:
        root: The server's address.
        context: How to trust its certificate; None for plain HTTP.
        show: Tells the person what to do; ``print``.

    Raises:
        Unavailable: The server knows no identity provider, this one has no device flow, or nobody
            signed in in time.
    """

    def __init__(self, root: str, context: ssl.SSLContext | None, show: Callable[[str], None]) -> None:
        self._trusted = ssl.create_default_context()
        told = _read(_asked(f"{root}/sign-in", context), f"{root} knows no identity provider; ask for a token")
        self._client_id, self._claim, issuer = told["client_id"], told["claim"], told["issuer"]
        described = _asked(f"{issuer}/.well-known/openid-configuration", self._trusted)
        self._provider = _read(described, f"{issuer} is no identity provider")
        self._token, self._refresh = "", ""
        self._take(self._by_device(show))
        payload = self._token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        show(f"Signed in as {claims.get(self._claim)}, which is the name to be granted.")

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Signs a request; once more with a new token where it is refused."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == 401 and self._renewed():
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    def _by_device(self, show: Callable[[str], None]) -> dict[str, Any]:
        """Asks for a code, shows it, and waits until the person has entered it."""
        issuer = self._provider["issuer"]
        where = self._provider.get("device_authorization_endpoint")
        if where is None:
            raise Unavailable(f"{issuer} has no device flow, so nobody can sign in from here; ask for a token.")
        asked = _read(self._posted(where, scope=SCOPE), f"{issuer} starts no sign-in")
        show(f"To sign in, open {asked['verification_uri']} and enter {asked['user_code']}")
        pause, end = asked.get("interval", INTERVAL), time.monotonic() + asked["expires_in"]
        while time.monotonic() < end:
            time.sleep(pause)
            answer = self._posted(self._provider["token_endpoint"], grant_type=DEVICE, device_code=asked["device_code"])
            error = None if answer.is_success else _read(answer, "").get("error")
            if error == "slow_down":
                pause += SLOWER
            elif error != "authorization_pending":
                return _read(answer, f"{issuer} let nobody in ({error})")
        raise Unavailable(f"Nobody signed in at {issuer} in time. Connect again.")

    def _renewed(self) -> bool:
        """Whether there is another token."""
        if not self._refresh:
            return False
        words = {"grant_type": "refresh_token", "refresh_token": self._refresh}
        answer = self._posted(self._provider["token_endpoint"], **words)
        before = self._token
        if answer.is_success:
            self._take(answer.json())
        return self._token != before

    def _take(self, answer: dict[str, Any]) -> None:
        self._token = answer.get("id_token", self._token)
        self._refresh = answer.get("refresh_token", self._refresh)

    def _posted(self, url: str, **words: str) -> httpx.Response:
        return _asked(url, self._trusted, {"client_id": self._client_id, **words})


def _asked(url: str, trusted: ssl.SSLContext | None, form: dict[str, str] | None = None) -> httpx.Response:
    """Asks for a page, or sends a form. ``Unavailable`` where nobody answers."""
    words: dict[str, Any] = {"verify": trusted or False, "timeout": TIMEOUT, "trust_env": trusted is not None}
    try:
        return httpx.get(url, **words) if form is None else httpx.post(url, data=form, **words)
    except httpx.TransportError as error:
        raise Unavailable(f"No answer from {urlsplit(url).netloc} ({type(error).__name__}).") from None


def _read(answer: httpx.Response, problem: str) -> dict[str, Any]:
    """The JSON of an answer. ``Unavailable`` where there is none, or it failed and there is a problem to tell."""
    try:
        told = answer.json()
    except ValueError:
        told = None
    if not isinstance(told, dict) or (problem and not answer.is_success):
        raise Unavailable(f"{problem or 'The identity provider answered nothing that can be read'}.")
    return told
