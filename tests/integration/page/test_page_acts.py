# SPDX-License-Identifier: Apache-2.0
"""What a provider can do on the page: each act confirmed, once, and logged with who and why."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pinq.ledger.events import Terms
from pinq.provider import grants as provider
from pinq.public.epsilon import Epsilon
from pinq.server.app import create_app
from pinq.server.datasets import Dataset, Datasets
from tests.visitor import HASHED, Visitor, _Reader, kinds

REFUSED = ["x\x00y", "\u202egnp.exe", "a\nb", "n" * 129, "   ", "zero\u200bwidth"]


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
    ("root", "call"),
    [
        ("https://stats.example", 'pinq.connect("https://stats.example/people", token=...)</code>.'),
        (
            "http://127.0.0.1:8443",
            'pinq.connect("http://127.0.0.1:8443/people", token=..., insecure_http=True)</code>.',
        ),
    ],
)
def test_the_page_with_the_token_says_how_to_connect(served: tuple[Any, Datasets], root: str, call: str) -> None:
    """With what this way in needs: plain HTTP by name."""
    with asyncio.Runner() as runner:
        app = create_app(served[1], provider_password=HASHED)
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
    ("field", "text", "message"),
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
    owner: Visitor, people: Dataset, field: str, text: Any, message: str
) -> None:
    """The form comes back with what was typed, the reason at its field and on top; nothing is granted."""
    before = kinds(people)
    owner.get("/datasets/people/grant")
    response = owner.send(
        **({"analyst": "bea", "epsilon": "1", "expires": "2999-01-01", "per_minute": "5"} | {field: text})
    )
    assert response.status_code == 422
    plain = re.sub(r"</?code>", "", response.text)
    assert len(re.findall(re.escape(message), plain)) == 2, plain
    assert f'id="{field}-wrong"' in response.text
    attributes = next(given for _, given in _Reader(response.text).tags if given.get("id") == field)
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
