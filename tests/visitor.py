# SPDX-License-Identifier: Apache-2.0
"""Somebody with a browser at the provider's page; without a network."""

from __future__ import annotations

import asyncio
import hashlib
from html.parser import HTMLParser
from typing import Any

import httpx

from pinq.server.datasets import Dataset

VIEWS = [
    "",
    "/datasets/people",
    "/datasets/people/analyst?name=ana",
    *(f"/datasets/people/{act}?analyst=ana" for act in ("grant", "extend", "terms", "token", "revoke")),
]


PASSWORD = "correct horse battery"


# At a small cost, for hundreds of sign-ins; what a password really costs is a matter of test_login.py.
SALT = b"salt"
HASHED = f"scrypt$16$8$1${SALT.hex()}${hashlib.scrypt(PASSWORD.encode(), salt=SALT, n=16, r=8, p=1, dklen=32).hex()}"


class _Reader(HTMLParser):
    """Finds a page's forms, links and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.form: dict[str, Any] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag == "form" and "/logout" not in found["action"]:
            self.form = {"action": found["action"], "fields": []}
        elif (
            tag == "input"
            and self.form is not None
            and "name" in found
            and (found.get("type") != "checkbox" or "checked" in found)
        ):
            self.form["fields"].append((found["name"], found.get("value", "")))


class Visitor:
    """Someone with a browser: keeps cookies, follows redirections, fills the form that the last page shows."""

    def __init__(self, app: Any, runner: asyncio.Runner, root: str = "https://stats.example") -> None:
        self._run = runner.run
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=True), base_url=root, follow_redirects=True
        )
        self.last: httpx.Response | None = None

    def get(self, path: str = "", **words: Any) -> httpx.Response:
        self.last = self._run(self._http.get(f"/provider{path}", **words))
        return self.last

    def post(self, path: str, data: Any, **words: Any) -> httpx.Response:
        self.last = self._run(self._http.post(f"/provider{path}", data=data, **words))
        return self.last

    def filled(self, **typed: Any) -> tuple[str, dict[str, list[str]]]:
        """Where the last page's form goes, and its fields with what was typed."""
        assert self.last is not None
        form = _Reader(self.last.text).form
        assert form is not None, self.last.text
        fields: dict[str, list[str]] = {}
        for name, value in form["fields"]:
            fields.setdefault(name, []).append(value)
        fields |= {name: value if isinstance(value, list) else [str(value)] for name, value in typed.items()}
        return form["action"].removeprefix("/provider"), fields

    def send(self, **typed: Any) -> httpx.Response:
        return self.post(*self.filled(**typed))

    def both(self, path: str, fields: dict[str, list[str]]) -> list[httpx.Response]:
        """Sends the same form twice at once."""

        async def twice() -> list[httpx.Response]:
            return await asyncio.gather(*(self._http.post(f"/provider{path}", data=fields) for _ in range(2)))

        return self._run(twice())

    def sign_in(self, password: str = PASSWORD) -> httpx.Response:
        self.get("/login")
        return self.send(password=password)

    @property
    def cookies(self) -> httpx.Cookies:
        return self._http.cookies

    def api(self, path: str, **words: Any) -> httpx.Response:
        return self._run(self._http.get(path, **words))

    def close(self) -> None:
        self._run(self._http.aclose())


def kinds(people: Dataset) -> list[str]:
    return [event.kind for event in people.ledger.events()]
