# SPDX-License-Identifier: Apache-2.0
"""What the provider's page shows, to whom, and what no name, value or form can do to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from markupsafe import escape

from pinq.errors import BudgetExceeded
from pinq.ledger.composition import Demand
from pinq.ledger.events import LoggedQuestion
from pinq.ledger.ledger import Ledger
from pinq.provider import grants as provider
from pinq.public.epsilon import Epsilon
from pinq.server.datasets import Dataset
from tests.visitor import VIEWS, Visitor, _Reader, kinds

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "a/b?c=d&e#f",
    "名前 '`x`'",
    "n" * 128,
]


def assert_nothing_runs(text: str) -> None:
    """A page without scripts, styles of its own, or anything from elsewhere."""
    for tag, attributes in _Reader(text).tags:
        assert tag not in ("script", "iframe", "object", "embed", "style", "base"), tag
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in ("href", "src", "action"):
            assert attributes.get(name, "#").startswith(("/provider", "#")), (tag, attributes)


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
        attributes["href"]
        for tag, attributes in _Reader(owner.get("/datasets/people").text).tags
        if tag == "a" and "name=" in attributes.get("href", "") and "name=ana" not in attributes["href"]
    )
    page = owner.get(link.removeprefix("/provider"))
    assert page.status_code == 200
    assert_nothing_runs(page.text)
    for act in ("extend", "terms", "token", "revoke"):
        link = next(
            attributes["href"]
            for tag, attributes in _Reader(page.text).tags
            if tag == "a" and f"/{act}?" in attributes.get("href", "")
        )
        shown = owner.get(link.removeprefix("/provider"))
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
    ("body", "message"),
    [
        (b"csrf=%ff", "the form is malformed"),
        (b"\xff\xfe", "the form is malformed"),
        (b"a=1&" * 20_000, "the form is malformed"),
        (b"x" * 300_000, "larger than 262,144 bytes"),
        (b"", "not of this session"),
        (b"csrf", "not of this session"),
    ],
)
def test_malformed_forms(owner: Visitor, people: Dataset, body: bytes, message: str) -> None:
    """Anything that is no form is refused in words."""
    before = kinds(people)
    response = owner.post(
        "/datasets/people/grant", None, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert 400 <= response.status_code < 500
    assert message in response.text
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
