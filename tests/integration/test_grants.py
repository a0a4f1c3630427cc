# SPDX-License-Identifier: Apache-2.0
"""What a grant allows beside its budget: in the log, under the same transaction as the charge, changed at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pinq import NotAllowed, QueryError, TooManyRequests, Values
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.events import FREE, VERBS, Terms, now
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.grants import make_terms
from pinq.provider.opening import open_ledger
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.requests.handles import ledger_of, replay

ONE = Epsilon.of(1)
WHOLE = Demand.of(PartSet([Block(Part())]))
TERMS = Terms(ONE // 2, ("age", "sex"), ("noisy_count",), 7)


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    found = Ledger(tmp_path / "l.ledger", "d")
    found.declare("x", 10 * ONE, {})
    yield found
    found.close()


def test_terms_survive_the_log(ledger: Ledger, tmp_path: Path) -> None:
    """Granted, changed, dropped: another process reads what this one wrote, and a new grant starts with its own."""
    ledger.grant("a", ONE, terms=TERMS, token="t1")
    ledger.grant("b", ONE)
    again = Ledger(tmp_path / "l.ledger", "d")
    assert (again.grants()["a"].terms, again.grants()["a"].token) == (TERMS, "t1")
    assert (again.grants()["b"].terms, again.grants()["b"].token) == (FREE, "")
    ledger.set_terms("a", Terms(verbs=("exp_mech",)))
    ledger.set_token("a", "t2")
    assert again.grants()["a"].terms == Terms(verbs=("exp_mech",))
    assert again.grants()["a"].token == "t2"
    ledger.revoke("a")
    ledger.grant("a", ONE)
    assert (again.grants()["a"].terms, again.grants()["a"].token) == (FREE, "")
    assert again.verify() == 8
    again.close()


def test_a_log_from_before_terms_loads(ledger: Ledger) -> None:
    """Grants and charges as the first version wrote them, without token, terms, verb or question, still count."""
    ledger.grant("a", ONE)
    with closing(sqlite3.connect(ledger.address)) as file:
        body = json.loads(file.execute("SELECT body FROM events WHERE kind = 'grant'").fetchone()[0])
    assert body == {"limit": ONE.nano, "expires": None}
    ledger.charge("a", "r", WHOLE, ONE // 4)
    assert ledger.grants()["a"].spent == ONE // 4
    assert [line.about for line in replay("d", ledger.log.events()).changes][-1] == "epsilon 1"


def test_the_pace_is_counted_in_the_log(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process counts what the first one charged; a retry is free of it; after a minute there is room again."""
    ledger.grant("a", ONE, terms=Terms(queries_per_minute=2))
    other = Ledger(tmp_path / "l.ledger", "d")
    ledger.charge("a", "1", WHOLE, Epsilon(1000))
    other.charge("a", "2", WHOLE, Epsilon(1000))
    for one in (ledger, other):
        with pytest.raises(TooManyRequests, match="allows 2 queries a minute") as slow:
            one.charge("a", "3", WHOLE, Epsilon(1000))
        assert 55 < slow.value.retry_after <= 60
        assert one.charge("a", "2", WHOLE, Epsilon(1000))[0] is not None
    assert ledger.grants()["a"].spent == Epsilon(2000)
    moment = now() + timedelta(seconds=61)
    for module in ("ledger.state", "ledger.log"):
        monkeypatch.setattr(f"pinq.{module}.now", lambda: moment)
    other.charge("a", "3", WHOLE, Epsilon(1000))
    other.set_terms("a", Terms(queries_per_minute=1))
    with pytest.raises(TooManyRequests):
        ledger.charge("a", "4", WHOLE, Epsilon(1000))
    other.close()


def test_every_column_of_a_request_counts(granted: Callable[..., Any]) -> None:
    """A column is named by a part above, a partition, a measure, a candidate or a target; each alone is enough to be refused."""
    handle = granted(100)
    only = {"sex": "job", "job": "sex"}
    ledger = ledger_of(handle)
    for allowed, other in only.items():
        ledger.set_terms("ana", Terms(columns=(allowed,)))
        handle.partition(Values(allowed)).noisy_count(epsilon=0.1)
        with pytest.raises(NotAllowed, match=f"does not allow the column {other}; it allows {allowed}"):
            handle.partition(Values(allowed))[handle.schema.columns[allowed].values[0]].partition(
                Values(other)
            ).noisy_count(epsilon=0.1)
        with pytest.raises(NotAllowed, match="the column age"):
            handle.noisy_sum("age", epsilon=0.1)
    from pinq import ClassCount, Gini

    with pytest.raises(NotAllowed, match="the column income"):
        handle.exp_mech(score=ClassCount("income"), epsilon=0.1)
    with pytest.raises(NotAllowed, match="columns income, sex"):
        handle.exp_mech([(Values("sex"), Values("job"))], score=Gini("income"), epsilon=0.1)
    assert handle.history()["outcome"].str.contains("not-allowed").sum() == 6


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"columns": ["salary"]}, "there is no column 'salary'"),
        ({"verbs": ["mean"]}, "there is no verb 'mean'; the verbs are count, sum, avg, choose"),
        ({"queries_per_minute": 0}, "must be a whole number from 1 to"),
        ({"max_epsilon_per_query": "nan"}, "`max_epsilon_per_query` is 'nan'"),
    ],
)
def test_terms_are_checked(words: dict[str, Any], text: str, tiny_policy: Policy) -> None:
    """What cannot be enforced cannot be granted."""
    with pytest.raises(QueryError, match=text):
        make_terms(tiny_policy, **words)


def test_the_audit_shows_what_changed(tiny_policy: Policy, granted: Callable[..., Any]) -> None:
    """Terms and tokens are lines of the audit, in words; the digest of a token is not among them."""
    granted(1)
    ledger = open_ledger(tiny_policy)
    ledger.set_terms("ana", make_terms(tiny_policy, verbs=["count", "noisy_count", "choose"], queries_per_minute=5))
    ledger.set_token("ana", "digest")
    ledger.close()
    changes = [(line.kind, line.about) for line in audit(tiny_policy).changes]
    assert changes[-2:] == [
        ("terms", "verbs noisy_count, exp_mech; 5 queries a minute"),
        ("token", "another token; the old one ended"),
    ]
    assert "digest" not in audit(tiny_policy).to_csv()
    assert set(VERBS) >= {"noisy_count", "exp_mech"}
