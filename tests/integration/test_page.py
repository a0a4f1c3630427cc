# SPDX-License-Identifier: Apache-2.0
"""The provider's page, as someone with a browser and bad intentions meets it; without a network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from markupsafe import escape

from pinq.errors import BudgetExceeded
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.ledger.requests import LoggedQuestion
from pinq.ledger.terms import Terms
from pinq.provider import grants as provider
from pinq.public.epsilon import Epsilon
from pinq.server.api.limits import Settings
from pinq.server.app import create_app
from pinq.server.datasets import Dataset, Datasets
from pinq.server.log import RequestLog
from pinq.server.page.login import Login
from tests.servers import publish

PASSWORD = "correct horse battery"
# At a small cost, for hundreds of sign-ins; what a password really costs is a matter of test_login.py.
SALT = b"salt"
HASHED = f"scrypt$16$8$1${SALT.hex()}${hashlib.scrypt(PASSWORD.encode(), salt=SALT, n=16, r=8, p=1, dklen=32).hex()}"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "a/b?c=d&e#f",
    "名前 '`x`'",
    "n" * 128,
]
REFUSED = ["x\x00y", "\u202egnp.exe", "a\nb", "n" * 129, "   ", "zero\u200bwidth"]
VIEWS = [
    "",
    "/datasets/people",
    "/datasets/people/analyst?name=ana",
    *(f"/datasets/people/{act}?analyst=ana" for act in ("grant", "extend", "terms", "token", "revoke")),
]


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


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A dataset on which ana was granted epsilon 2."""
    file = publish(tmp_path / "policies", "people", cap=10)
    provider.grant(file, "ana", 2)
    return file


@pytest.fixture
def served(policy: Path, tmp_path: Path) -> Iterator[tuple[Any, Datasets]]:
    """The application with the page, and its datasets."""
    datasets = Datasets.open([policy])
    log = RequestLog(tmp_path / "requests.log")
    yield create_app(datasets, Settings(), log, provider_password=HASHED), datasets
    datasets.close()
    log.close()


@pytest.fixture
def stranger(served: tuple[Any, Datasets]) -> Iterator[Visitor]:
    """Someone who has not signed in."""
    with asyncio.Runner() as runner:
        visitor = Visitor(served[0], runner)
        yield visitor
        visitor.close()


@pytest.fixture
def owner(stranger: Visitor) -> Visitor:
    """The provider, signed in."""
    assert stranger.sign_in().status_code == 200
    return stranger


@pytest.fixture
def people(served: tuple[Any, Datasets]) -> Dataset:
    return served[1]["people"]


def assert_nothing_runs(text: str) -> None:
    """A page without scripts, styles of its own, or anything from elsewhere."""
    for tag, found in _Reader(text).tags:
        assert tag not in ("script", "iframe", "object", "embed", "style", "base"), tag
        assert not any(name.startswith("on") or name == "style" for name in found), (tag, found)
        for name in ("href", "src", "action"):
            assert found.get(name, "#").startswith(("/provider", "#")), (tag, found)


def kinds(people: Dataset) -> list[str]:
    return [event.kind for event in people.ledger.events()]


# Who gets in


def test_off_unless_asked_for(policy: Path, tmp_path: Path) -> None:
    """Without a password there is no page."""
    datasets, log = Datasets.open([policy]), RequestLog(tmp_path / "log")
    with asyncio.Runner() as runner:
        visitor = Visitor(create_app(datasets, log=log), runner)
        assert visitor.get("/login").status_code == 404
        assert visitor.get("").json()["code"] == "query"
        visitor.close()
    datasets.close()
    log.close()


@pytest.mark.parametrize("path", [*VIEWS, "/datasets/none", "/datasets/people/none", "/none"])
def test_everything_needs_a_session(stranger: Visitor, people: Dataset, path: str) -> None:
    """No view and no act without one: all lead to the form that asks for the password, which says nothing of datasets."""
    before = kinds(people)
    for response in (
        stranger.get(path),
        stranger.post(path or "/", {"step": "do", "once": "1", "analyst": "ana", "csrf": ""}),
    ):
        assert response.url.path == "/provider/login"
        assert "people" not in response.text
        assert "ana" not in re.sub(r"<[^>]*>|[Aa]nalysts", "", response.text)
    assert kinds(people) == before


def test_an_analysts_token_opens_nothing_here(stranger: Visitor, people: Dataset) -> None:
    token = provider.reissue(people.ledger, "ana").token
    for name in ("__Host-pinq-session", "pinq-session"):
        stranger.cookies.set(name, token, domain="stats.example")
    assert stranger.get("/", headers={"Authorization": f"Bearer {token}"}).url.path == "/provider/login"
    assert stranger.sign_in(token).status_code == 401


def test_a_session_asks_no_question(owner: Visitor, people: Dataset) -> None:
    """The provider's cookie is no token, as a cookie or as a bearer."""
    cookie = owner.cookies["__Host-pinq-session"]
    assert owner.api("/v1/people").status_code == 401
    assert owner.api("/v1/people", headers={"Authorization": f"Bearer {cookie}"}).status_code == 401


def test_the_cookie_is_closed_to_scripts_and_other_sites(stranger: Visitor) -> None:
    stranger.sign_in()
    assert stranger.last is not None
    (header,) = stranger.last.history[0].headers.get_list("set-cookie")
    name, *flags = [part.strip().lower() for part in header.split(";")]
    assert name.startswith("__host-pinq-session=")
    assert len(name) > 50
    assert set(flags) == {"httponly", "path=/", "samesite=strict", "secure"}


def test_on_this_machine_without_tls(served: tuple[Any, Datasets]) -> None:
    """Plain HTTP, which the server speaks to this machine alone: a cookie that browsers take from there."""
    with asyncio.Runner() as runner:
        visitor = Visitor(served[0], runner, "http://127.0.0.1:8443")
        assert visitor.sign_in().url.path == "/provider/"
        assert list(visitor.cookies) == ["pinq-form", "pinq-session"]
        visitor.close()


def test_wrong_passwords(served: tuple[Any, Datasets], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten a minute are refused as wrong, then all are, the right one too; the log has each and no password."""
    monkeypatch.setattr("pinq.server.app.Login", lambda hashed: Login(hashed, clock=lambda: 1000.0))
    log = RequestLog(tmp_path / "sign-ins.log")
    with asyncio.Runner() as runner:
        stranger = Visitor(create_app(served[1], log=log, provider_password=HASHED), runner)
        refused_in_the_end(stranger, tmp_path / "sign-ins.log")
        stranger.close()
    log.close()


def refused_in_the_end(stranger: Visitor, log: Path) -> None:
    assert [
        stranger.sign_in(wrong).status_code
        for wrong in ["", "x" * 5000, PASSWORD.upper(), PASSWORD + " ", *map(str, range(6))]
    ] == [401] * 10
    response = stranger.sign_in()
    assert response.status_code == 429
    assert "Too many wrong passwords. Try again in " in response.text
    assert stranger.get("/").url.path == "/provider/login"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["code"] for line in lines if line["event"] == "sign-in refused"] == ["wrong-password"] * 10 + [
        "too-many-requests"
    ]
    assert "horse" not in log.read_text().lower()


def test_a_sign_in_that_this_server_did_not_ask_for(stranger: Visitor) -> None:
    """Another site cannot sign a browser in: the form's token belongs to a cookie."""
    stranger.get("/login")
    path, fields = stranger.filled(password=PASSWORD)
    stranger.cookies.clear()
    assert stranger.post(path, fields).status_code == 403
    assert stranger.post(path, {"password": PASSWORD}).status_code == 403


def test_two_windows(stranger: Visitor) -> None:
    """A form that was opened before another one still signs in."""
    stranger.get("/login")
    path, fields = stranger.filled(password=PASSWORD)
    stranger.get("/login")
    assert stranger.post(path, fields).url.path == "/provider/"


def test_signing_out_ends_the_session(owner: Visitor) -> None:
    cookie = owner.cookies["__Host-pinq-session"]
    owner.get("/")
    assert owner.last is not None
    (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', owner.last.text))
    assert owner.post("/logout", {"csrf": "x"}).status_code == 403
    assert owner.post("/logout", {"csrf": csrf}).url.path == "/provider/login"
    assert "__Host-pinq-session" not in owner.cookies
    owner.cookies.set("__Host-pinq-session", cookie, domain="stats.example")
    assert owner.get("/").url.path == "/provider/login"


@pytest.mark.parametrize("act", ["grant", "extend", "terms", "token", "revoke"])
def test_a_form_of_another_session_does_nothing(owner: Visitor, people: Dataset, act: str) -> None:
    before = kinds(people)
    fields = {"analyst": "bea" if act == "grant" else "ana", "epsilon": "1", "verb": "0", "step": "do", "once": "abc"}
    for csrf in ({}, {"csrf": ""}, {"csrf": "é"}, {"csrf": "x" * 43}):
        response = owner.post(f"/datasets/people/{act}", fields | csrf)
        assert response.status_code == 403
        assert "Nothing was changed" in response.text
    assert kinds(people) == before


# What can be done


def test_grant_shows_the_token_once(owner: Visitor, people: Dataset, tmp_path: Path) -> None:
    """Form, confirmation, token; the token opens the dataset, is shown once and kept nowhere."""
    owner.get("/datasets/people/grant")
    before = kinds(people)
    review = owner.send(analyst=" bea ", epsilon="0.5", expires="2999-01-31", per_minute="7")
    assert "Grant epsilon 0.5 to bea?" in review.text
    assert "2999-01-31" in review.text
    assert "7 queries a minute" in review.text
    assert kinds(people) == before
    done = owner.send(step="do")
    assert done.url.path == "/provider/datasets/people/analyst"
    (token,) = re.findall(r"pinq_[\w-]{43}", done.text)
    assert "bea was granted epsilon 0.5." in done.text
    assert owner.api("/v1/people", headers={"Authorization": f"Bearer {token}"}).json()["analyst"] == "bea"
    again = owner.get(done.url.raw_path.decode().removeprefix("/provider"))
    assert "pinq_" not in again.text
    assert people.ledger.grants()["bea"].terms == Terms(queries_per_minute=7)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file
    assert '"act": "grant", "dataset": "people", "analyst": "bea"' in (tmp_path / "requests.log").read_text()


@pytest.mark.parametrize(
    ("root", "private", "call"),
    [
        ("https://stats.example", False, 'pinq.connect("https://stats.example/people", token=...)</code>.'),
        (
            "https://stats.example",
            True,
            'pinq.connect("https://stats.example/people", token=..., verify="cert.pem")</code>, where',
        ),
        (
            "http://127.0.0.1:8443",
            False,
            'pinq.connect("http://127.0.0.1:8443/people", token=..., insecure_http=True)</code>.',
        ),
    ],
)
def test_the_page_with_the_token_says_how_to_connect(
    served: tuple[Any, Datasets], root: str, private: bool, call: str
) -> None:
    """With what this way in needs: the provider's own certificate, or plain HTTP by name."""
    with asyncio.Runner() as runner:
        app = create_app(served[1], provider_password=HASHED, private_certificate=private)
        visitor = Visitor(app, runner, root)
        visitor.sign_in()
        visitor.get("/datasets/people/token?analyst=ana")
        assert call in unescape(visitor.send(step="do").text)
        visitor.close()


@pytest.mark.parametrize(
    ("act", "typed"),
    [
        ("grant", {"analyst": "bea", "epsilon": "1"}),
        ("extend", {"epsilon": "1"}),
        ("terms", {"per_minute": "5"}),
        ("token", {}),
        ("revoke", {}),
    ],
)
def test_every_act_says_by_whom_and_why(owner: Visitor, people: Dataset, act: str, typed: dict[str, str]) -> None:
    """The address that it was done from, and the reason that was typed; a reason that cannot stand in the log changes nothing."""
    owner.get(f"/datasets/people/{act}?analyst={'' if act == 'grant' else 'ana'}")
    if typed:
        owner.send(**typed)
    before = kinds(people)
    path, fields = owner.filled(step="do", because="x" * 501)
    refused = owner.post(path, fields)
    assert "must be at most 500 printable characters on one line" in refused.text
    assert kinds(people) == before
    owner.post(path, fields | {"because": [" a <b>new</b> study "]})
    event: Any = list(people.ledger.events())[-1]
    assert (event.kind, event.by.by, event.by.because) == (
        act,
        "provider page, 127.0.0.1",
        "a <b>new</b> study",
    )
    assert "a &lt;b&gt;new&lt;/b&gt; study" in owner.get("/datasets/people").text


def test_a_form_sent_twice_acts_once(owner: Visitor, people: Dataset) -> None:
    """One after the other or at once, to the same end; also for an extension, which the ledger would take twice."""
    owner.get("/datasets/people/extend?analyst=ana")
    owner.send(epsilon="1")
    path, fields = owner.filled(step="do")
    places = {response.url.path for response in owner.both(path, fields)}
    assert owner.post(path, fields).status_code == 200
    assert places == {"/provider/datasets/people/analyst"}
    assert people.ledger.grants()["ana"].limit == 3 * Epsilon.of(1)
    owner.get("/datasets/people/grant")
    owner.send(analyst="bea", epsilon="1")
    path, fields = owner.filled(step="do")
    assert [response.status_code for response in owner.both(path, fields)] == [200, 200]
    assert kinds(people).count("grant") == 2


def test_an_act_without_its_confirmation_is_confirmed_first(owner: Visitor, people: Dataset) -> None:
    """A form that was never shown for confirmation has no number, so it is shown."""
    owner.get("/datasets/people/extend?analyst=ana")
    response = owner.send(epsilon="1", step="do")
    assert "Extend the grant of ana?" in response.text
    assert people.ledger.grants()["ana"].limit == 2 * Epsilon.of(1)


def test_extend(owner: Visitor, people: Dataset) -> None:
    """More, longer, or both; past the cap there is a warning before and after."""
    owner.get("/datasets/people/extend?analyst=ana")
    assert "Say how much more, until when, or both." in owner.send().text
    assert "epsilon 2 + 0.25 = 2.25" in owner.send(epsilon="0.25").text
    assert "The grant of ana was extended." in owner.send(step="do").text
    owner.get("/datasets/people/extend?analyst=ana")
    assert "2999-01-31 (was: never)" in owner.send(expires="2999-01-31").text
    owner.send(step="do")
    owner.get("/datasets/people/extend?analyst=ana")
    assert "above the cap of 10" in owner.send(epsilon="100").text
    assert "above the cap of 10" in owner.send(step="do").text
    grant: Any = people.ledger.grants()["ana"]
    assert (grant.limit, grant.expires.year) == (Epsilon.of("102.25"), 2999)


def test_terms(owner: Visitor, people: Dataset) -> None:
    """Ticks and numbers become terms; the form shows those of now; all ticked is no limit."""
    owner.get("/datasets/people/terms?analyst=ana")
    shown = owner.send(max_epsilon="0.1", per_minute="30", verb=["0", "1"], column=["0", "2"]).text
    allowed = "epsilon at most 0.1 a query; columns sex, age; verbs noisy_count, noisy_sum; 30 queries a minute"
    assert allowed in shown
    assert allowed in owner.send(step="do").text
    assert people.ledger.grants()["ana"].terms == Terms(
        Epsilon(10**8), ("sex", "age"), ("noisy_count", "noisy_sum"), 30
    )
    owner.get("/datasets/people/terms?analyst=ana")
    _, fields = owner.filled()
    assert (fields["max_epsilon"], fields["per_minute"], fields["verb"], fields["column"]) == (
        ["0.1"],
        ["30"],
        ["0", "1"],
        ["0", "2"],
    )
    owner.send(max_epsilon="", per_minute="", verb=list("0123"), column=list("0123"))
    owner.send(step="do")
    assert people.ledger.grants()["ana"].terms == Terms()
    owner.get("/datasets/people/terms?analyst=ana")
    assert "columns none" in owner.send(column=[]).text


def test_another_token_and_revocation(owner: Visitor, people: Dataset) -> None:
    """Each only after a confirmation; the old token ends with the new one, the new one with the grant."""
    old = provider.reissue(people.ledger, "ana").token
    assert "The token used until now ends at once." in owner.get("/datasets/people/token?analyst=ana").text
    (new,) = re.findall(r"pinq_[\w-]{43}", owner.send(step="do").text)
    status = {
        name: owner.api("/v1/people", headers={"Authorization": f"Bearer {token}"}).status_code
        for name, token in (("old", old), ("new", new))
    }
    assert status == {"old": 401, "new": 200}
    assert "Revoke the grant of ana?" in owner.get("/datasets/people/revoke?analyst=ana").text
    assert people.ledger.grants()["ana"].valid
    assert "The grant of ana was revoked." in owner.send(step="do").text
    assert owner.api("/v1/people", headers={"Authorization": f"Bearer {new}"}).status_code == 401
    for act in ("extend", "terms", "token", "revoke"):
        response = owner.get(f"/datasets/people/{act}?analyst=ana")
        assert response.status_code == 409
        assert "it was revoked" in response.text
    assert "Grant again" in owner.get("/datasets/people/analyst?name=ana").text
    owner.get("/datasets/people/grant?analyst=ana")
    owner.send(epsilon="1")
    assert "ana was granted epsilon 1." in owner.send(step="do").text


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("analyst", "ana", "already has a grant of epsilon 2"),
        ("analyst", "", "1 to 128 printable characters"),
        *(("analyst", name, "1 to 128 printable characters") for name in REFUSED),
        *(
            ("epsilon", text, "greater than 0 and at most 1000000")
            for text in ("", "0", "-1", "nan", "inf", "1e400", "abc", "0,5", "9" * 500, "<b>1</b>")
        ),
        ("expires", "2001-01-01", "which is past"),
        ("expires", "tomorrow", "write 2030-01-31"),
        ("max_epsilon", "0", "greater than 0"),
        ("per_minute", "0", "from 1 to 1,000,000"),
        ("per_minute", "1.5", "whole number"),
        ("per_minute", "9" * 5000, "whole number"),
        ("verb", [], "Allow at least one."),
    ],
)
def test_what_is_wrong_stands_beside_its_field(
    owner: Visitor, people: Dataset, field: str, text: Any, said: str
) -> None:
    """The form comes back with what was typed, the reason at its field and on top; nothing is granted."""
    before = kinds(people)
    owner.get("/datasets/people/grant")
    response = owner.send(
        **({"analyst": "bea", "epsilon": "1", "expires": "2999-01-01", "per_minute": "5"} | {field: text})
    )
    assert response.status_code == 422
    plain = re.sub(r"</?code>", "", response.text)
    assert len(re.findall(re.escape(said), plain)) == 2, plain
    assert f'id="{field}-wrong"' in response.text
    attributes = next(found for _, found in _Reader(response.text).tags if found.get("id") == field)
    assert attributes["aria-invalid"] == "true"
    assert f"{field}-wrong" in attributes["aria-describedby"]
    assert "<b>1</b>" not in response.text
    _, kept = owner.filled()
    typed = {"analyst": "bea", "epsilon": "1", "expires": "2999-01-01", "per_minute": "5"}
    assert all(kept[name] == [value] for name, value in typed.items() if name != field)
    assert kinds(people) == before


def test_back_keeps_what_was_typed(owner: Visitor) -> None:
    owner.get("/datasets/people/grant")
    owner.send(analyst="bea", epsilon="0.5", verb=["0"], column=["1", "3"])
    owner.send(step="back")
    _, fields = owner.filled()
    assert (fields["analyst"], fields["epsilon"], fields["verb"], fields["column"]) == (
        ["bea"],
        ["0.5"],
        ["0"],
        ["1", "3"],
    )


def test_a_grant_that_came_in_between(owner: Visitor, people: Dataset) -> None:
    """Someone else granted or revoked between the form and its confirmation: the page says so, and nothing is done."""
    owner.get("/datasets/people/grant")
    owner.send(analyst="bea", epsilon="1")
    provider.grant(people.ledger, "bea", 2)
    response = owner.send(step="do")
    assert response.status_code == 422
    assert "already has a grant of epsilon 2" in response.text
    owner.get("/datasets/people/revoke?analyst=bea")
    provider.revoke(people.ledger, "bea")
    assert owner.send(step="do").status_code == 409
    assert kinds(people).count("revoke") == 1


# What is shown


@pytest.mark.parametrize("path", VIEWS)
def test_pages_are_closed(owner: Visitor, path: str) -> None:
    """No script, no style of their own, nothing from elsewhere, headers that forbid all of it; one h1, one main, a title, a language."""
    response = owner.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert (
        response.headers["x-content-type-options"],
        response.headers["cache-control"],
        response.headers["x-frame-options"],
    ) == ("nosniff", "no-store", "DENY")
    assert_nothing_runs(response.text)
    names = [tag for tag, _ in _Reader(response.text).tags]
    assert all(names.count(tag) == 1 for tag in ("html", "head", "title", "body", "header", "main", "h1", "footer"))
    assert response.text.count("<form") == response.text.count('method="post"') == response.text.count('name="csrf"')


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_and_harmless(owner: Visitor, people: Dataset, name: str) -> None:
    """Whatever an analyst is called, the pages work and nothing of the name is markup."""
    owner.get("/datasets/people/grant")
    owner.send(analyst=name, epsilon="0.1")
    assert owner.send(step="do").status_code == 200
    link = next(
        found["href"]
        for tag, found in _Reader(owner.get("/datasets/people").text).tags
        if tag == "a" and "name=" in found.get("href", "") and "name=ana" not in found["href"]
    )
    page = owner.get(link.removeprefix("/provider"))
    assert page.status_code == 200
    assert_nothing_runs(page.text)
    for act in ("extend", "terms", "token", "revoke"):
        place = next(
            found["href"]
            for tag, found in _Reader(page.text).tags
            if tag == "a" and f"/{act}?" in found.get("href", "")
        )
        shown = owner.get(place.removeprefix("/provider"))
        assert shown.status_code == 200
        assert_nothing_runs(shown.text)
        assert str(escape(name)) in shown.text
    owner.send(step="do")
    assert not people.ledger.grants()[name].valid


def test_names_that_do_not_print_show_as_escapes(owner: Visitor, people: Dataset) -> None:
    """A name that could only come into the log past the commands turns no text around."""
    people.ledger.grant("\u202egnp.exe", Epsilon.of(1))
    page = owner.get("/datasets/people")
    assert "\u202e" not in page.text
    assert "\\u202egnp.exe" in page.text
    assert owner.get("/datasets/people/analyst?name=%E2%80%AEgnp.exe").status_code == 200


def test_no_value_of_a_row_is_shown(owner: Visitor) -> None:
    """Pages have names of columns, and nothing of what is in them."""
    shown = "".join(owner.get(path).text for path in VIEWS)
    assert "income" in shown
    for value in ("clerk", "nurse", "smith", "Female", "50K"):
        assert value not in shown


def test_what_happens_elsewhere_is_shown(owner: Visitor, policy: Path) -> None:
    """Grants of the command line, requests, refusals: each view has them at once."""
    assert "bea" not in owner.get("/datasets/people").text
    provider.grant(policy, "bea", "0.5")
    with closing(Ledger(policy.parent / "people.parquet.ledger")) as ledger:
        everything = Demand((), ((0, None),))
        ledger.charge(
            "bea",
            "r1",
            everything,
            Epsilon.of(1) // 4,
            LoggedQuestion("noisy_count", about="a count of all", question="q"),
        )
        ledger.answer("bea", "r1", "{}")
        with pytest.raises(BudgetExceeded):
            ledger.charge(
                "bea", "r2", everything, Epsilon.of(1), LoggedQuestion("noisy_count", about="too much", question="q")
            )
    page = owner.get("/datasets/people").text
    for text in (
        "<b>0.25</b> of 0.5 spent, 0.25 remains",
        "a count of all",
        "too much",
        "1 refused",
        "refused (budget)",
        "<figure>",
    ):
        assert text in page
    assert "<b>0.25</b> of 10 spent, 9.75 remains" in owner.get().text


def test_a_damaged_ledger_is_said_to_be_one(owner: Visitor, policy: Path) -> None:
    """The page says what the audit would say, and stays up."""
    owner.get("/datasets/people")
    with closing(sqlite3.connect(policy.parent / "people.parquet.ledger")) as connection:
        connection.execute("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
        connection.commit()
    response = owner.get("/datasets/people")
    assert response.status_code == 409
    assert "was cut or rolled back" in response.text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"csrf=%ff", "the form is malformed"),
        (b"\xff\xfe", "the form is malformed"),
        (b"a=1&" * 20_000, "the form is malformed"),
        (b"x" * 300_000, "larger than 262,144 bytes"),
        (b"", "not of this session"),
        (b"csrf", "not of this session"),
    ],
)
def test_malformed_forms(owner: Visitor, people: Dataset, body: bytes, said: str) -> None:
    """Anything that is no form is refused in words."""
    before = kinds(people)
    response = owner.post(
        "/datasets/people/grant", None, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert 400 <= response.status_code < 500
    assert said in response.text
    assert kinds(people) == before


def test_addresses_that_are_none(owner: Visitor) -> None:
    for path in (
        "/datasets/none",
        "/datasets/people/none",
        "/none",
        "/datasets/people/grant/x",
        "/datasets/..%2f..%2fetc",
    ):
        assert owner.get(path).status_code == 404, path
    assert owner.get("/datasets/people/analyst?name=nobody").status_code == 409
    assert "has no analyst" in owner.get("/datasets/people/analyst?name=nobody").text


def test_what_is_not_ours_gets_one_text(owner: Visitor, people: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error from elsewhere, whose text could quote anything, becomes one fixed page."""

    def fails(*_: object) -> None:
        raise RuntimeError("secret row")

    monkeypatch.setattr(type(people.ledger), "events", fails)
    response = owner.get("/datasets/people")
    assert response.status_code == 500
    assert "secret row" not in response.text
    assert "Something unexpected went wrong" in response.text
