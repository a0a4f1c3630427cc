# SPDX-License-Identifier: Apache-2.0
"""Who gets in to the provider's page, and what a session is good for."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pinq.provider import grants as provider
from pinq.server.app import create_app
from pinq.server.datasets import Dataset, Datasets
from pinq.server.log import RequestLog
from pinq.server.page.login import Login
from tests.visitor import HASHED, PASSWORD, VIEWS, Visitor, kinds

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
    assert 0 < int(response.headers["Retry-After"]) <= 60
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
