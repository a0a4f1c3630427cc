# SPDX-License-Identifier: Apache-2.0
"""The log names acts: what a question belongs to, as the analyst's program told it; nothing else follows from it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

import pinq
from miners import DiffPC45, DPDilca, FederatedScorecard, Federation
from miners.tables import crosstab, grouped, quantiles, summary, where
from pinq.errors import BudgetExceeded, LedgerError, QueryError
from pinq.language.queries import MAX_ACT, Act, Request
from pinq.language.specs import Cuts, Values
from pinq.policy.policy import Policy
from pinq.provider.report.audit import Audit, audit
from pinq.provider.report.html import page
from tests.support.processes.servers import publish, serving, token_of
from tests.support.requests.handles import ledger_of, replay, simulated
from tests.support.tables.mixed_schema import SCHEMA

HOSTILE = "=1+1 <script>alert(1)</script>\x1b[31m\n\u202egrant"


def audited(handle: Any) -> Audit:
    return replay("d", ledger_of(handle).log.events())


def acts(handle: Any) -> list[str]:
    return [line.act for line in audited(handle).acts]


def test_tables_and_fits_name_themselves(in_memory: Callable[..., Any]) -> None:
    """Each call is one act, by the function's name and its columns; what is asked by a verb is none."""
    handle = in_memory(100)
    handle.noisy_count(epsilon=1)
    summary(where(handle, sex="Female"), ["age", "sex"], epsilon=1)
    crosstab(handle, "sex", [Values("income"), Cuts("age", (50,))], epsilon=1)
    grouped(handle, "sex", {"age": ["mean", "median"]}, epsilon=1)
    quantiles(handle, "age", epsilon=1)
    quantiles(handle, "age", epsilon=1)
    DiffPC45(epsilon=1, max_depth=1).fit(handle, "income")
    DPDilca(epsilon=1).fit(handle)
    assert acts(handle) == [
        "",
        "tables.summary of age, sex",
        "tables.crosstab of sex, income, age",
        "tables.grouped of sex, age",
        "tables.quantiles of age",
        "tables.quantiles of age",
        "miners.DiffPC45.fit of income",
        "miners.DPDilca.fit",
    ]
    assert [float(cast(Any, line.cost)) for line in audited(handle).acts] == [1.0] * 8


def test_a_fit_over_owners_is_an_act_of_each() -> None:
    """In every owner's log, and only while the fit lasts."""
    handles = [simulated(SCHEMA, rows=200, epsilon=10, seed=seed) for seed in range(2)]
    both = Federation(handles)
    FederatedScorecard(epsilon=1, steps=1).fit(both, "income")
    both.parts().noisy_count(epsilon=1)
    for handle in handles:
        assert acts(handle) == ["miners.FederatedScorecard.fit of income", ""]


def test_a_name_of_the_analysts_stands_before_them(in_memory: Callable[..., Any]) -> None:
    """Questions of one named handle are one act; what names itself is an act inside it. A name is one printable line."""
    handle = in_memory(10)
    report = handle.named("  report\nof March ")
    report.noisy_count(epsilon=1)
    report.partition(Values("sex")).noisy_count(epsilon=1)
    crosstab(report, "sex", epsilon=1)
    handle.named(HOSTILE).noisy_count(epsilon=1)
    handle.named("x" * 300).noisy_count(epsilon=1)
    first, inner, hostile, long = audited(handle).acts
    assert (first.act, len(first.queries), float(cast(Any, first.cost))) == ("report of March", 2, 2.0)
    assert inner.act == "report of March: tables.crosstab of sex"
    assert hostile.act == r"=1+1 <script>alert(1)</script>\x1b[31m \u202egrant"
    assert (len(long.act), long.act[-1]) == (MAX_ACT, "…")
    for wrong in ("", " ", 7):
        with pytest.raises(QueryError, match="`act` is"):
            handle.named(wrong)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\u202e", "", "x" * (MAX_ACT + 1), "\ud800"])
def test_a_forged_name_is_refused_and_nothing_is_charged(name: str, in_memory: Callable[..., Any]) -> None:
    """Whatever a client sends, the log holds short printable lines."""
    handle = in_memory(1)
    with pytest.raises(QueryError, match=r"Nothing was spent\."):
        handle._session.ask(
            Request(id="a", verb="noisy_count", epsilon="1").model_copy(
                update={"act": Act.model_construct(name=name, run="00000000")}
            )
        )
    assert handle.budget.spent == 0


def test_nothing_follows_from_an_act(granted: Callable[..., Any], tiny_policy: Policy) -> None:
    """The same question under another name or none is the same question: one charge, one answer, as much room."""
    policy = tiny_policy.model_copy(update={"rows_version": "one"})
    plain, named = granted(1, analyst="ana", policy=policy), granted(1, analyst="bea", policy=policy)
    first = plain.noisy_count(epsilon=0.5)
    assert plain.named("again").noisy_count(epsilon=0.5, reuse=True) == first
    assert plain.budget.spent == 0.5
    named.named("x" * 200).noisy_count(epsilon=0.5)
    stored = {grant.stored for grant in ledger_of(plain).grants().values()}
    assert len(stored) == 1
    request = Request(id="a", verb="noisy_count", epsilon="1")
    told = request.model_copy(update={"act": Act.begun("anything")})
    assert request.identity("s") == told.identity("s")
    assert "act" not in request.to_json()
    one = plain._session.ask(request.model_copy(update={"epsilon": "0.25"}))
    assert plain._session.ask(told.model_copy(update={"epsilon": "0.25"})) == one
    with pytest.raises(BudgetExceeded):
        plain.named("too much").noisy_count(epsilon=1)
    assert audited(plain).acts[-1].about == "too much (as told), 1 question"


def test_a_report_shows_acts_and_opens_them(in_memory: Callable[..., Any]) -> None:
    """With what all questions cost together, in figures that can be read; each question stands in JSON and CSV."""
    handle = in_memory(1)
    table = summary(handle.named(HOSTILE), ["age", "sex"], epsilon=0.3)
    with pytest.raises(BudgetExceeded):
        handle.named("more").noisy_count(epsilon=0.9)
    report = audited(handle)
    act, refused = report.acts
    assert (act.outcome, refused.outcome) == ("answered", "refused (budget)")
    assert act.cost is not None
    assert act.cost.exact == table.epsilon
    (shown,) = [lines for title, _, lines, _ in report.tables() if title == "Spending over time"]
    (single,) = [lines for title, _, lines, _ in report.tables(single=True) if title == "Spending over time"]
    assert (len(shown), len(single)) == (2, len(report.requests))
    content = json.loads(report.to_json())
    queries = [event for event in content["events"] if event["seq"] in content["acts"][0]["questions"]]
    assert sum(event["cost"] for event in queries) == pytest.approx(0.3)
    assert {event["act"] for event in queries} == {act.act}
    assert "'=1+1" in report.to_csv()
    text = page(report)
    assert (
        f"<details><summary>=1+1 &lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m \\u202egrant: tables.summary of age, sex (as told), {len(single) - 1} questions</summary>"
        in text
    )
    assert "<script" not in text


def test_a_history_is_read_by_acts(in_memory: Callable[..., Any]) -> None:
    """It has a row for each question and prints one for each act, with the cost of all of them."""
    handle = in_memory(1)
    handle.noisy_count(epsilon=0.125)
    DiffPC45(epsilon=0.25, max_depth=2).fit(handle, "income")
    with pytest.raises(BudgetExceeded):
        handle.noisy_count(epsilon=2)
    history = handle.history()
    told = history.acts()
    asked = len(history) - 2
    assert told["asked"].tolist()[1] == f"miners.DiffPC45.fit of income ({asked} questions)"
    assert told["epsilon"].tolist()[:2] == [0.125, 0.25]
    assert told["spent"].tolist() == [0.125, 0.375, 0.375]
    assert told["answer"].tolist() == [history["answer"][0], None, None]
    assert told["at"].tolist() == [history["at"][0], history["at"][1], history["at"].iloc[-1]]
    assert told["outcome"].tolist() == ["answered", "answered", "refused (budget)"]
    assert history["run"][1:-1].nunique() == 1
    lines = repr(history).splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[-1] == f"{len(history)} questions; pd.DataFrame(h.history()) shows each."
    assert "miners.DiffPC45.fit of income" in history._repr_html_()
    assert isinstance(handle.history(1).acts(), pd.DataFrame)


def test_the_chain_covers_acts(granted: Callable[..., Any], tiny_policy: Policy) -> None:
    """Another name in the log breaks it."""
    handle = granted(1)
    handle.named("report of March").noisy_count(epsilon=0.5)
    where = ledger_of(handle).address
    handle.close()
    with closing(sqlite3.connect(where.removeprefix("sqlite:///"))) as raw, raw:
        assert raw.execute("UPDATE events SET body = replace(body, 'of March', 'of April')").rowcount > 0
    with pytest.raises(LedgerError, match="chain"):
        audit(tiny_policy)


def test_a_server_keeps_acts_and_tells_them(tmp_path: Path) -> None:
    """The history of a handle at a server names the act of each query."""
    policy = publish(tmp_path)
    with (
        serving(policy, folder=tmp_path) as server,
        pinq.connect(server.url(), token=token_of(policy), **server.words()) as handle,
    ):
        handle.named("told").noisy_count(epsilon=1)
        assert handle.history()["act"].tolist() == ["told"]
