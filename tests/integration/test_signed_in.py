# SPDX-License-Identifier: Apache-2.0
"""Questions that are asked side by side renew one sign-in."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import httpx

from pinq.analyst.client import SignedIn

ASKERS = 4
WHO = base64.urlsafe_b64encode(b'{"sub": "ada"}').decode().rstrip("=")


class House:
    """A server and an identity provider whose refresh tokens count once, as OAuth 2.1 asks of public clients."""

    def __init__(self) -> None:
        self.number, self.expired, self.refused = 0, False, threading.Barrier(ASKERS)
        self.lock = threading.Lock()

    def answer(self, root: str, path: str, form: dict[str, list[str]], token: str) -> tuple[int, dict[str, object]]:
        if path == "/sign-in":
            return 200, {"client_id": "pinq", "issuer": root, "claim": "sub"}
        if path.endswith("openid-configuration"):
            places = {"device_authorization_endpoint": f"{root}/device", "token_endpoint": f"{root}/token"}
            return 200, {"issuer": root, **places}
        if path == "/device":
            return 200, {
                "verification_uri": root,
                "user_code": "A",
                "device_code": "B",
                "interval": 0.01,
                "expires_in": 9,
            }
        if path == "/token":
            with self.lock:
                if form.get("refresh_token", [str(self.number)]) != [str(self.number)]:
                    return 400, {"error": "invalid_grant"}
                self.number += 1
                self.expired = False
                return 200, {"id_token": f"head.{WHO}.{self.number}", "refresh_token": str(self.number)}
        if self.expired or token != f"Bearer head.{WHO}.{self.number}":
            self.refused.wait(10)  # all hear of it before anybody renews
            return 401, {}
        return 200, {}


@contextmanager
def listening(house: House) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            form = parse_qs(self.rfile.read(length).decode())
            status, told = house.answer(root, self.path, form, self.headers.get("Authorization", ""))
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        root = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield root
        finally:
            server.shutdown()
            thread.join()


def test_a_refresh_token_is_used_once_however_many_ask() -> None:
    """Else an identity provider takes the second use for a theft, and ends the sign-in."""
    house = House()
    with listening(house) as root, httpx.Client(base_url=root, trust_env=False) as client:
        signed = SignedIn(root, None, lambda text: None)
        house.expired = True
        with ThreadPoolExecutor(ASKERS) as threads:
            answers = list(threads.map(lambda _: client.get("/data", auth=signed).status_code, range(ASKERS)))
    assert answers == [200] * ASKERS
    assert house.number == 2  # the sign-in, and one renewal
