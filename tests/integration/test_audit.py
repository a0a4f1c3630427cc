# SPDX-License-Identifier: Apache-2.0
"""Reports say what the log says, whatever stands in it."""

import csv
import inspect
import io
import json
import os
import sqlite3
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import pinq
from pinq.errors import BudgetExceeded, LedgerError, NotAllowed, NotAuthorised, PolicyError, QueryError, printable
from pinq.language.specs import Values
from pinq.ledger.events import Signature, Terms, here
from pinq.ledger.ledger import Ledger
from pinq.policy.plain_yaml import write_yaml
from pinq.policy.policy import Destination, Policy
from pinq.provider import grants as provider
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.audit import audit, print_audit
from pinq.provider.report.html import page as html_page
from pinq.provider.report.markup import bar, when
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from tests.support.requests.handles import replay
from tests.support.tables.tiny_tables import people_in

HOSTILE = ["<script>alert(1)</script>", "[red]x[/red]", "=cmd|' /C calc'!A0", '名前 & "quotes"']
POLICY = """
dataset: people
source: people.parquet
cap: 2
max_rows: 1000
columns:
  age: {type: numeric, lower: 0, upper: 100, integer: true}
  sex: {type: categorical, values: [f, m]}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A small dataset."""
    pq.write_table(
        pa.table({"age": [i % 90 for i in range(500)], "sex": ["fm"[i % 2] for i in range(500)]}),
        tmp_path / "people.parquet",
    )
    (tmp_path / "people.yaml").write_text(POLICY)
    return tmp_path / "people.yaml"


@pytest.fixture
def used(policy: Path) -> Path:
    """The dataset after two analysts used it until one was refused by the own limit, the other by the cap."""
    provider.grant(policy, "ana", 1)
    provider.grant(policy, HOSTILE[0], 3)
    ana, bea = pinq.open(policy, analyst="ana"), pinq.open(policy, analyst=HOSTILE[0])
    ana.noisy_count(epsilon=0.5)
    ana.partition(Values("sex")).noisy_count(epsilon=0.25)
    ana.partition(Values("sex"))["f"].noisy_sum("age", epsilon=0.25)
    with pytest.raises(BudgetExceeded):
        ana.noisy_count(epsilon=0.125)
    bea.noisy_count(epsilon=0.75)
    with pytest.raises(BudgetExceeded):
        bea.noisy_count(epsilon=0.5)
    provider.revoke(policy, "ana")
    with pytest.raises(NotAuthorised):
        ana.noisy_count(epsilon=0.1)
    provider.extend(policy, HOSTILE[0], 0.5)
    return policy


def test_accounts(used: Path) -> None:
    found = audit(used)
    ana, bea = found.accounts["ana"], found.accounts[HOSTILE[0]]
    assert (ana.limit, ana.spent, ana.remaining, ana.state) == (Epsilon(10**9), Epsilon(10**9), Epsilon(0), "revoked")
    assert (ana.answered, ana.unanswered, dict(ana.refused)) == (3, 0, {"budget": 1, "not-authorised": 1})
    assert (bea.limit, bea.spent, bea.remaining, bea.state) == (
        Epsilon(35 * 10**8),
        Epsilon(75 * 10**7),
        Epsilon(25 * 10**7),
        "active",
    )
    assert ana.first < ana.last <= found.lines[-1].at
    assert (found.cap, found.joint) == (Epsilon(2 * 10**9), Epsilon(175 * 10**7))


def test_agrees_with_the_ledger(used: Path) -> None:
    found, status = audit(used), provider.show(used)
    assert found.joint == status.spent
    assert {one.analyst: (one.limit, one.spent, one.remaining, one.state) for one in status.accounts} == {
        name: (one.limit, one.spent, one.remaining, one.state) for name, one in found.accounts.items()
    }


def test_spending_over_time_follows_the_recursion(used: Path) -> None:
    charges = [line for line in audit(used).lines if line.kind == "charge"]
    assert [line.cost for line in charges] == [
        Epsilon(5 * 10**8),
        Epsilon(25 * 10**7),
        Epsilon(25 * 10**7),
        Epsilon(75 * 10**7),
    ]
    assert [line.spent for line in charges] == [
        Epsilon(5 * 10**8),
        Epsilon(75 * 10**7),
        Epsilon(10**9),
        Epsilon(75 * 10**7),
    ]
    assert [line.joint for line in charges] == [
        Epsilon(5 * 10**8),
        Epsilon(75 * 10**7),
        Epsilon(10**9),
        Epsilon(175 * 10**7),
    ]
    assert [line.outcome for line in charges] == ["answered"] * 4


def test_exhaustion(used: Path) -> None:
    rows = [(line.analyst, line.asked, line.remaining, line.scope, line.outcome) for line in audit(used).exhaustion]
    assert rows == [
        ("ana", Epsilon(125 * 10**6), Epsilon(0), "analyst", "refused (budget)"),
        (HOSTILE[0], Epsilon(5 * 10**8), Epsilon(25 * 10**7), "cap", "refused (budget)"),
    ]


def test_changes(used: Path) -> None:
    used.write_text(POLICY.replace("cap: 2", "cap: 5"))
    provider.grant(used, "cy", 1, "2999-01-01")
    assert [(line.kind, line.about.split(",")[0]) for line in audit(used).changes] == [
        ("created", "ledger of people"),
        ("policy", "cap 2"),
        ("grant", "epsilon 1"),
        ("grant", "epsilon 3"),
        ("version", "version 1 of the rows: people.parquet"),
        ("revoke", "1 of 1 was spent"),
        ("extend", "epsilon +0.5"),
        ("policy", "cap 2 to 5"),
        ("grant", "epsilon 1"),
    ]
    assert audit(used).changes[-1].about == "epsilon 1, until 2999-01-01"


def test_every_report_says_what_the_cap_counts(used: Path) -> None:
    """It is the sum, whose key of earlier policies may stay; the union is refused."""
    used.write_text(POLICY + "cap_rule: sum\n")
    warning = provider.grant(used, "cy", 1).warnings[0]
    assert "above the cap of 2, which counts the sum of what each analyst spent" in warning
    found = audit(used)
    assert [line.about.rsplit(",", 1)[0] for line in found.changes if line.kind == "policy"] == [
        "cap 2, which counts the sum of what each analyst spent",
    ]
    out = io.StringIO()
    print_audit(found, Console(file=out, width=200))
    for text in (out.getvalue(), html_page(found), html_page(found.of("ana"))):
        assert "counts the sum of what each analyst spent" in text
    used.write_text(POLICY + "cap_rule: union\n")
    with pytest.raises(PolicyError, match="cap_rule"):
        provider.show(used)


def test_terms_and_tokens_are_changes(used: Path) -> None:
    """What a grant allows beside its budget, and each change of it, is in the report."""
    provider.grant(used, "cy", 1, terms=Terms(queries_per_minute=3))
    provider.set_terms(used, "cy", Terms(max_epsilon_per_query=Epsilon(10**8), verbs=("noisy_count",)))
    provider.reissue(used, "cy")
    assert [(line.kind, line.about) for line in audit(used).changes][-3:] == [
        ("grant", "epsilon 1, 3 queries a minute"),
        ("terms", "epsilon at most 0.1 a query; verbs noisy_count"),
        ("token", "another token; the old one ended"),
    ]
    assert audit(used).accounts["cy"].terms == Terms(max_epsilon_per_query=Epsilon(10**8), verbs=("noisy_count",))


def test_every_act_of_a_provider_says_whose_it_was(policy: Path) -> None:
    """By the process's user where nobody else is named, and why; in the table, the rows and the page."""
    mallory = Signature("workbench, 127.0.0.1", "<b>asked by mail</b>")
    provider.grant(policy, "ana", 1)
    policy.write_text(POLICY.replace("cap: 2", "cap: 5"))
    provider.extend(policy, "ana", 1, by=here("second study"))
    for act in (provider.reissue, provider.revoke):
        act(policy, "ana", by=mallory)
    provider.grant(policy, "ana", 1, by=mallory)
    provider.set_terms(policy, "ana", Terms(queries_per_minute=2), by=mallory)
    found = audit(policy)
    me, reason = here().by, mallory.because
    assert [(line.kind, line.by, line.because) for line in found.changes] == [
        ("created", "", ""),
        ("policy", me, ""),
        ("grant", me, ""),
        ("policy", me, "second study"),
        ("extend", me, "second study"),
        ("token", mallory.by, reason),
        ("revoke", mallory.by, reason),
        ("grant", mallory.by, reason),
        ("terms", mallory.by, reason),
    ]
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (rows[-1]["by"], rows[-1]["because"]) == (mallory.by, reason)
    assert json.loads(found.to_json())["changes"][-1]["because"] == reason
    assert "&lt;b&gt;asked by mail&lt;/b&gt;" in html_page(found)
    out = io.StringIO()
    print_audit(found, Console(file=out, width=200))
    assert mallory.by in out.getvalue()
    assert "@" in me


def test_every_change_of_the_ledger_can_be_signed() -> None:
    """Whatever a provider does to a ledger takes the name of the one who does it."""
    acts = ("declare", "grant", "extend", "set_terms", "set_token", "revoke")
    assert all("by" in inspect.signature(getattr(Ledger, act)).parameters for act in acts)
    assert all(
        "by" in inspect.signature(getattr(provider, act)).parameters
        for act in ("grant", "extend", "set_terms", "reissue", "revoke")
    )


def test_a_log_without_names_replays(policy: Path) -> None:
    """Ledgers of earlier releases have no such keys."""
    ledger = open_ledger(load_policy(policy))
    ledger.grant("ana", Epsilon(10**9))
    ledger.close()
    assert [(line.kind, line.by) for line in audit(policy).changes][-1] == ("grant", "")


@pytest.mark.parametrize("reason", ["x" * 501, "two\nlines", "\x1b[31m"])
def test_a_reason_is_one_printable_line(policy: Path, reason: str) -> None:
    """It stands in a log that others read; nothing is done before it is right."""
    with pytest.raises(QueryError, match="`because` must be at most 500 printable characters on one line"):
        provider.grant(policy, "ana", 1, by=here(reason))
    assert not list(policy.parent.glob("*.ledger"))


def test_it_says_which_ledger_was_read(used: Path) -> None:
    """In every form: a policy can lead to another ledger than one thinks."""
    found, file = audit(used), str(used.parent / "people.parquet.ledger")
    out = io.StringIO()
    print_audit(found, Console(file=out, width=400))
    assert f"ledger: {file}\n" in out.getvalue()
    assert json.loads(found.to_json())["ledger"] == audit(used, "ana").ledger == file
    assert f"Replayed from the log alone: {file}." in html_page(found)


def test_charged_but_not_answered(used: Path) -> None:
    events = list(Ledger(used.parent / "people.parquet.ledger").log.events())
    last = max(i for i, event in enumerate(events) if event.kind == "answer")
    found = replay("people", [event for i, event in enumerate(events) if i != last])
    assert found.accounts[HOSTILE[0]].unanswered == 1
    assert [line.outcome for line in found.lines if line.kind == "charge"][-1] == "charged, not answered"


def test_narrowed_to_one_analyst(used: Path) -> None:
    found = audit(used, "ana")
    assert list(found.accounts) == ["ana"]
    assert {line.analyst for line in found.lines} == {"ana"}
    assert "alert(1)" not in html_page(found) + found.to_json() + found.to_csv()
    with pytest.raises(
        QueryError, match=r"the log has no analyst 'anna' \(did you mean 'ana'\?\); it has ana, <script>"
    ):
        audit(used, "anna")


def test_json(used: Path) -> None:
    content = json.loads(audit(used).to_json())
    assert content["chain"]["verified"]
    assert (content["cap"], content["spent"], content["remaining"]) == (2.0, 1.75, 0.25)
    assert content["exhaustion"][0]["asked"] == 0.125
    assert len(content["events"]) == content["chain"]["events"]


def test_csv_runs_no_formula(policy: Path) -> None:
    provider.grant(policy, HOSTILE[2], 1)
    rows = list(csv.DictReader(io.StringIO(audit(policy).to_csv())))
    assert [row["kind"] for row in rows] == ["created", "policy", "grant"]
    assert rows[2]["analyst"] == "'" + HOSTILE[2]
    assert rows[2]["limit"] == "1"


class _Reader(HTMLParser):
    """Collects tags and checks that they close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_self_contained_and_escaped(used: Path) -> None:
    for name in HOSTILE[1:]:
        provider.grant(used, name, 0.01)
        pinq.open(used, analyst=name).noisy_count(epsilon=0.01)
    page = html_page(audit(used))
    reader = _Reader()
    reader.feed(page)
    assert not reader.open
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "a"}
    assert not any(name.startswith("on") or name in ("src", "href") for name in reader.attributes)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_picture_is_accessible(used: Path) -> None:
    """All together, and one for each analyst, each with a sentence; a mark for each refusal that says whose it was."""
    page = html_page(audit(used))
    pictures = [
        ET.fromstring("<svg role='img'" + piece.split("</svg>")[0].partition(" role='img'")[2] + "</svg>")
        for piece in page.split("<svg viewBox='0 0 1000")[1:]
    ]
    assert len(pictures) == 3
    for picture in pictures:
        assert "spent" in (picture.find("title").text or "")  # type: ignore[union-attr]
    marks = [mark.find("title").text for picture in pictures for mark in picture.iter("g")]  # type: ignore[union-attr]
    assert len(marks) == 3  # one under an own limit, one under the cap and its twin in the analyst's picture
    assert all("remained under the" in (text or "") for text in marks)


def test_steps_end_at_what_was_spent(used: Path) -> None:
    page = html_page(audit(used, "ana"))
    assert "1 of 1 spent in 3 answered queries, 2 refused." in page
    assert ">spent 1</span>" in page


def test_empty_log(policy: Path) -> None:
    provider.grant(policy, "ana", 1)
    page = html_page(audit(policy))
    assert "<figure" not in page
    assert "Nothing was asked yet." in page


def test_a_log_of_refusals_alone(policy: Path) -> None:
    """Requests that were refused before anything was spent make a page without a picture."""
    provider.grant(policy, "ana", 1, terms=Terms(verbs=("noisy_sum",)))
    with pytest.raises(NotAllowed):
        pinq.open(policy, analyst="ana").noisy_count(epsilon=0.1)
    page = html_page(audit(policy))
    assert "<figure" not in page
    assert "refused (not-allowed)" in page


def test_terminal_shows_names_as_they_are(used: Path) -> None:
    provider.grant(used, HOSTILE[1], 0.01)
    out = io.StringIO()
    print_audit(audit(used), Console(file=out, width=200, force_terminal=False))
    for text in (
        "chain: verified",
        HOSTILE[0],
        HOSTILE[1],
        "analyst's limit",
        "cap",
        "refused (not-authorised)",
        "1.75 of 2 spent",
    ):
        assert text in out.getvalue()


def test_works_without_data_and_writes_nothing(used: Path) -> None:
    # The ledger itself may take its write-ahead log in; its events are compared.
    (used.parent / "people.parquet").unlink()
    before = {
        path.name: path.read_bytes()
        for path in used.parent.iterdir()
        if not path.name.endswith(("-wal", "-shm", ".ledger"))
    }
    events = audit(used).events
    assert audit(used).events == events
    assert {
        path.name: path.read_bytes()
        for path in used.parent.iterdir()
        if not path.name.endswith(("-wal", "-shm", ".ledger"))
    } == before


def test_no_ledger_is_made(policy: Path) -> None:
    with pytest.raises(LedgerError, match=r"There is no ledger .*people.parquet.ledger. `pinq grant` makes one"):
        audit(policy)
    assert sorted(os.listdir(policy.parent)) == ["people.parquet", "people.yaml"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET body = replace(body, '500000000', '100000000')",
        "DELETE FROM events WHERE seq = 6",
        "UPDATE answers SET payload = payload || ' '",
    ],
)
def test_damage_is_reported(used: Path, damage: str) -> None:
    connection = sqlite3.connect(used.parent / "people.parquet.ledger")
    with connection:
        assert connection.execute(damage).rowcount
    connection.close()
    with pytest.raises(LedgerError, match="is damaged"):
        audit(used)


def test_cut_at_the_end_is_reported(used: Path) -> None:
    connection = sqlite3.connect(used.parent / "people.parquet.ledger")
    with connection:
        connection.execute("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
    connection.close()
    with pytest.raises(LedgerError, match="was cut or rolled back"):
        audit(used)


def test_small_texts() -> None:
    assert printable("a\x1b[31m\u202e\ud800b") == "a\\x1b[31m\\u202e\\ud800b"
    assert when("2026-01-31T18:00:01.5+00:00") == "2026-01-31 18:00:01"
    assert when("2026-01-31T23:59:59.999999+00:00") == "2026-01-31"
    none, most, all_ = Epsilon(0), Epsilon(99), Epsilon(100)
    assert bar(none, none) == bar(none, all_) == "─" * 10
    assert bar(most, all_) == "━" * 9 + "─"
    assert bar(all_, all_) == "━" * 10


def test_each_key_of_a_policy_says_where_it_goes() -> None:
    """Exactly one mark each, or analysts see it in the schema."""
    places = [Policy.keys_for(where) for where in Destination]
    assert sorted([name for names in places for name in names] + [*Schema.model_fields]) == sorted(Policy.model_fields)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("padding", "50ms", "padding 50ms"),
        ("max_work", 5, "max_work 5"),
        ("secure", "exact", "secure exact"),
        ("reviewed", {"cap": "contract 17"}, "reviewed cap: contract 17"),
    ],
)
def test_a_key_that_changes_alone_is_logged(key: str, value: object, shown: str, tmp_path: Path) -> None:
    """Once, by the next opening; so is that it goes again."""
    policy = people_in(tmp_path)
    provider.grant(policy, "ana", 1)
    before = policy.read_text()
    for text, told in ((before + write_yaml({key: value}), True), (before, False)):
        policy.write_text(text)
        for _ in range(2):
            open_ledger(load_policy(policy)).close()
        changes = [line.about for line in audit(policy).changes if "schema" in line.about]
        assert (shown in changes[-1]) == told
    assert len(changes) == 3
