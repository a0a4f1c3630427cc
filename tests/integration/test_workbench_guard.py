# SPDX-License-Identifier: Apache-2.0
"""The workbench's guard: one browser by a link that works once, nothing for other sites and other hosts' names."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("starlette", reason="NO STARLETTE: pip install 'pinq-miners[workbench]'")

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from pinq_workbench.guard import LINK, Guard

ROOT = "http://127.0.0.1:8640"


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    """What the guard stands before."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    else:
        await PlainTextResponse("inside")(scope, receive, send)


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Browser:
    """What a browser sends, and the cookie that it keeps."""

    guard: Guard
    root: str = ROOT
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(
        self, path: str = "/", query: str = "", method: str = "GET", kind: str = "http", **headers: str
    ) -> Answered:
        own = {"host": self.root.partition("//")[2]} | {name.replace("_", "-"): text for name, text in headers.items()}
        if self.cookies:
            own["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope: dict[str, Any] = {
            "type": kind,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), text.encode()) for name, text in own.items()],
        } | ({"method": method} if kind == "http" else {})
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": f"{kind}.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, receive, send))
        if kind == "websocket":
            return Answered(101 if sent[0]["type"] == "websocket.accept" else 403, {}, "")
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        if "set-cookie" in found:
            name, _, value = found["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return Answered(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]).decode())


def opened(guard: Guard) -> Browser:
    """A browser that used the link."""
    browser = Browser(guard)
    assert browser.ask(LINK, f"key={guard.key}").status == 303
    assert browser.ask().text == "inside"
    return browser


def test_the_link_works_once() -> None:
    guard = Guard(behind)
    key, browser = guard.key, Browser(guard)
    assert browser.ask().status == 403
    assert browser.ask(LINK, "key=" + "x" * 43).status == 403
    answer = browser.ask(LINK, f"key={key}")
    assert (answer.status, answer.headers["location"]) == (303, "/")  # nothing secret stays in the address
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert key not in cookie
    assert browser.ask().text == "inside"
    assert browser.ask(LINK, f"key={key}").headers["location"] == "/"  # whom it let in already
    for tried in (f"key={key}", "key=", ""):
        assert Browser(guard).ask(LINK, tried).status == 403


@pytest.mark.parametrize("other", ['{"dark": 1}', "a b c", "", '"', "x@y=1", "é"])
def test_cookies_of_other_programs_lock_nobody_out(other: str) -> None:
    """A browser sends those of every port of this machine, older ones first."""
    browser = opened(Guard(behind))
    browser.cookies = {"theme": other, **browser.cookies, "last": other}
    assert browser.ask().text == "inside"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8640"},
        {"host": "127.0.0.1.evil.example:8640"},
        {"host": ""},
        {"host": "127.0.0.1:8640:1"},
        {"host": "[127.0.0.1"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8640"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
    ids=str,
)
def test_another_site_gets_nothing_though_the_browser_sends_the_cookie(headers: dict[str, str]) -> None:
    browser = opened(Guard(behind))
    (cookie,) = browser.cookies.values()  # also under the name that it would have for another host
    browser.cookies[f"pinq-workbench-{re.sub('[^a-z0-9]+', '-', headers.get('host', ''))}"] = cookie
    own = {"origin": ROOT}
    for answer in (
        browser.ask(**headers),
        *(browser.ask(method=method, **own | headers) for method in ("GET", "POST", "OPTIONS")),
    ):
        assert answer.status == 403
        assert "inside" not in answer.text
        assert "access-control-allow-origin" not in answer.headers
    assert browser.ask("/ws", kind="websocket", **own | headers).status == 403


def test_a_web_socket_names_its_page_and_has_the_cookie() -> None:
    guard = Guard(behind)
    browser = opened(guard)
    assert browser.ask("/ws", kind="websocket", origin=ROOT).status == 101
    assert browser.ask("/ws", kind="websocket").status == 403
    assert Browser(guard).ask("/ws", kind="websocket", origin=ROOT).status == 403
    assert Browser(guard, cookies=dict.fromkeys(browser.cookies, "x")).ask().status == 403
    assert browser.ask(method="POST").status == 403  # a form without an origin


def test_every_answer_says_what_a_browser_must_not_do() -> None:
    browser = opened(Guard(behind))
    for answer in (browser.ask(), browser.ask(origin="https://evil.example"), browser.ask(LINK)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "http" not in policy  # no other address is allowed for anything
        assert "frame-ancestors 'self'" in policy
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_proxy_of_the_house_may_stand_before_it() -> None:
    guard = Guard(behind, ["https://bench.example.org"])
    browser = Browser(guard, "https://bench.example.org")
    assert "Secure" in browser.ask(LINK, f"key={guard.key}").headers["set-cookie"]
    assert browser.ask(origin="https://bench.example.org").text == "inside"
    assert browser.ask(origin="http://bench.example.org").status == 403
