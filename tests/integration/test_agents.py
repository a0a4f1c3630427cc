# SPDX-License-Identifier: Apache-2.0
"""An agent before a handle: only asking spends, within its limits, and every text that comes back is ours."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest

import pinq
from pinq.errors import QueryError
from pinq.ledger.events import Charged
from pinq.public.schema import Categorical, Schema
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.ports import free_port
from tests.support.processes.servers import publish, token_of
from tests.support.requests.handles import ledger_of, simulated
from tests.support.tables.mixed_schema import SCHEMA

pytest.importorskip("mcp", reason="an MCP server needs mcp: pip install 'pinq-miners[agents]'")

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from miners.fronts.agents import GUIDE, Agent, ToolResult
from miners.fronts.mcp_server import server_of

CALLS = 10_000 if ASSURANCE else 200
AT_ONCE = 16
QUERY = "SELECT sex, COUNT(*) FROM t GROUP BY sex"


@pytest.fixture
def handle() -> Iterator[Any]:
    with simulated(SCHEMA, rows=300, epsilon=1) as opened:
        yield opened


def test_statistics(handle: Any) -> None:
    """An agent asks for a test, an odds ratio and a survival curve; what they do not take is refused before the charge."""
    agent = Agent(handle, per_call="0.2", per_session="0.9")
    told = agent.call("ask_table", {"kind": "independence", "columns": ["sex", "job"], "epsilon": 0.2})
    assert not told.is_error, told.text
    assert "chi-square: statistic " in told.text
    assert "p-value" in told.text
    faint = agent.call("ask_table", {"kind": "independence", "columns": ["sex", "job"], "epsilon": "0.001"}).text
    assert ": not told\n" in faint
    assert "no power" in faint
    assert "nan" not in faint.lower()
    asked = {"kind": "odds_ratio", "columns": ["sex", "sex"], "observed": "F", "exposed": "F", "epsilon": 0.1}
    spent = handle.budget.spent
    for wrong in (
        asked,
        {"kind": "odds_ratio", "columns": ["sex"], "epsilon": 0.1},
        {"kind": "survival", "columns": ["age"], "epsilon": 0.1},
        {"kind": "independence", "columns": ["sex", "job"], "observed": "F", "epsilon": 0.1},
        {"kind": "independence", "columns": ["sex"], "by": ["job"], "epsilon": 0.1},
    ):
        refused = agent.call("ask_table", wrong)
        assert refused.is_error
        assert "unexpected" not in refused.text
        assert handle.budget.spent == spent
    curve = {"kind": "survival", "columns": ["age", "sex"], "observed": "F", "epsilon": "0.2"}
    assert "epsilon" in agent.call("price_table", curve).text
    told = agent.call("ask_table", curve)
    assert not told.is_error, told.text
    assert len(told.rows) == 9
    assert set(handle.history()["act"]) >= {"an agent: statistics.survival of age, sex"}


def test_only_asking_spends(handle: Any) -> None:
    """Prices, columns, budget, history and the guide are free; an answer costs its price once, however often it is asked."""
    agent = Agent(handle, per_call="0.2", per_session="0.5")
    free: dict[str, dict[str, Any]] = {
        "guide": {},
        "columns": {},
        "budget": {},
        "history": {},
        "price_sql": {"sql": QUERY, "epsilon": 0.2},
        "price_table": {"kind": "summary", "columns": ["age"], "epsilon": "0.2"},
    }
    for name, arguments in free.items():
        told = agent.call(name, arguments)
        assert not told.is_error, told.text
        assert not agent.tools[name].spends
    assert handle.budget.spent == 0
    assert agent.call("guide").text == GUIDE
    assert "job: one of private, self, state, none, or missing" in agent.call("columns").text
    told = agent.call("ask_sql", {"sql": QUERY, "epsilon": 0.2})
    assert "- sex F, COUNT(*): about " in told.text
    assert "with probability 95 %" in told.text
    assert "Epsilon 0.8 of 1 remains, 0.3 of 0.5 in this session; a call may cost at most 0.2." in told.text
    assert [set(row) for row in told.rows] == [{"sex", "answer", "value", "low", "high"}] * 2
    assert agent.call("ask_sql", {"epsilon": 0.2, "sql": QUERY}).rows == told.rows
    assert Agent(handle, 1, 1).call("ask_sql", {"sql": QUERY, "epsilon": 0.2}).rows == told.rows  # a later session
    assert float(handle.budget.spent) == 0.2
    assert set(handle.history()["act"]) == {f"an agent: sql: {QUERY}"}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        (
            "ask_sql",
            {"sql": QUERY, "epsilon": 0.3},
            "this would cost epsilon 0.3; 0.2 is the most that a call may cost. Nothing was spent.",
        ),
        ("ask_sql", {"sql": "SELECT MAX(age) FROM t", "epsilon": 0.1}, "`MAX(age)`: one row decides it"),
        ("ask_table", {"kind": "crosstab", "columns": ["age"], "epsilon": 0.1}, "declares no cuts"),
        ("ask_table", {"kind": "pie", "columns": ["age"], "epsilon": 0.1}, "there is no kind 'pie'"),
        ("ask_table", {"kind": "quantiles", "columns": [], "epsilon": 0.1}, "quantiles needs one column"),
        ("ask_table", {"kind": "top_k", "columns": ["job"], "by": ["sex"], "epsilon": 0.1}, "top_k takes no `by`"),
        ("ask_sql", {"sql": QUERY}, "`ask_sql` takes sql, epsilon."),
        (
            "ask_sql",
            {"sql": QUERY, "epsilon": True},
            "`ask_sql` takes sql, epsilon.\n  epsilon.float: it is True; it must be a number",
        ),
        ("ask_sql", {"sql": ["x"], "epsilon": 1}, "`ask_sql` takes sql, epsilon.\n  sql: it must be text"),
        ("ask_sql", {"sql": QUERY, "epsilon": "a lot"}, "`epsilon` is 'a lot'"),
        ("ask_sql", None, "`ask_sql` takes sql, epsilon."),
        ("budget", {"of": "ana"}, "`budget` takes nothing."),
        ("drop_table", {}, "there is no tool 'drop_table'"),
    ],
)
def test_an_error_says_what_was_wrong_and_what_remains(name: str, arguments: Any, text: str, handle: Any) -> None:
    """As an answer of the tool, and nothing is spent."""
    told = Agent(handle, per_call="0.2", per_session="0.5").call(name, arguments)
    assert told.is_error
    assert text in told.text
    assert told.text.endswith("Epsilon 1 of 1 remains, 0.5 of 0.5 in this session; a call may cost at most 0.2.")


def test_an_error_is_short_however_many_arguments_are_wrong(handle: Any) -> None:
    many = {"kind": "crosstab", "epsilon": 1}
    for wrong in (many | {"columns": [1] * 1000}, many | {f"of{number}": 1 for number in range(1000)}):
        answered = Agent(handle, 1, 1).call("price_table", wrong)
        assert answered.is_error
        assert len(answered.text) < 1000


def test_each_number_names_its_value() -> None:
    """Also 0 and False, which are values like any other."""
    columns = {"k": Categorical(values=(0, 1)), "f": Categorical(values=(True, False))}
    agent = Agent(simulated(Schema(columns=columns, max_rows=100), rows=100), 1, 1)
    told = agent.call("ask_table", {"kind": "summary", "columns": ["k", "f"], "epsilon": 1}).text
    assert [f"- {name}: about" in told for name in ("k, count, 0", "k, count, 1", "f, count, False")] == [True] * 3


def test_limits_beside_the_grant(handle: Any) -> None:
    """A session ends at its limit, another at the grant's; a table of several questions is not half paid."""
    agent = Agent(handle, per_call="0.2", per_session="0.5")

    def ask(asked: Agent, epsilon: str) -> ToolResult:
        return asked.call("ask_table", {"kind": "summary", "columns": ["age"], "epsilon": epsilon})

    assert [ask(agent, epsilon).is_error for epsilon in ("0.2", "0.19", "0.12", "0.11", "0.1")] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert "0 is the most that is left of this session" in ask(agent, "0.1").text
    assert not ask(agent, "0.19").is_error  # it was told before
    greedy = Agent(handle, per_call=10, per_session=10)
    told = ask(greedy, "0.6")
    assert "This call needs an epsilon of 0.6; 0.5 remains. Ask for less." in told.text
    assert float(handle.budget.spent) == 0.5
    for wrong in (0, "x", None):
        with pytest.raises(QueryError, match="`per_call` is"):
            Agent(handle, wrong, 1)  # type: ignore[arg-type]


def test_what_is_not_ours_is_not_told(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception from elsewhere becomes one text; what it said goes to the log alone."""
    agent = Agent(handle, 1, 1)
    monkeypatch.setattr("miners.fronts.agents.answered", lambda *_, **__: 1 / 0)
    told = agent.call("ask_sql", {"sql": QUERY, "epsilon": 0.2})
    assert told.is_error
    assert told.text.startswith("Something unexpected went wrong;")
    assert "zero" not in told.text


PIECES = [
    "SELECT",
    "COUNT(*)",
    "AVG(age)",
    "MAX(wage)",
    "FROM",
    "t",
    "WHERE",
    "sex = 'F'",
    "age > 30",
    "GROUP BY",
    "job",
    "sex",
    ",",
    "(",
    ")",
    "'",
    '"',
    ";",
    "--",
    "\x00",
    "\ud800",
    "\u202e",
    "1e999",
    "NULL",
    "EXPLAIN",
    "HAVING COUNT(*) > 3",
    "ORDER BY 1 DESC",
    "LIMIT 2",
    "UNION",
    "DROP TABLE t",
    "CASE WHEN age < 30 THEN 'x' ELSE 'y' END",
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1e-12,
    0.01,
    0.05,
    "0.05",
    "0.2",
    1e300,
    "NaN",
    "inf",
    10**400,
    [],
    {},
    ["age"],
    ["sex", "job"],
    [1],
    "crosstab",
    "summary",
    "quantiles",
    "x" * 30_000,
    QUERY,
    "SELECT AVG(age) FROM t WHERE job = 'self'",
]


def hostile(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """A call that an agent could make who means no good, or who is confused: some of them are right."""
    name = draw.choice(
        [
            "ask_sql",
            "ask_sql",
            "ask_table",
            "price_sql",
            "price_table",
            "budget",
            "history",
            "columns",
            "nope",
            "\ud800",
        ]
    )
    text = " ".join(draw.choices(PIECES, k=draw.randrange(1, 14)))
    arguments: dict[str, Any] = {
        "sql": draw.choice(
            [
                text,
                text,
                QUERY,
                f"SELECT {draw.choice(['AVG(age)', 'COUNT(*)'])} FROM t WHERE age >= {draw.randrange(18, 80)}",
            ]
        ),
        "kind": draw.choice(["crosstab", "histogram", "quantiles", "summary", "top_k"]),
        "columns": draw.sample(["age", "sex", "job", "income", "wage", "none"], draw.randrange(4)),
        "by": draw.choice([[], [], ["sex"], ["nope"]]),
        "epsilon": draw.choice([0.01, "0.02", 0.05, 0.2, 5, 1e-9]),
    }
    kept = {"ask_sql": 2, "price_sql": 2}.get(name, 5)
    wanted = ["sql", "epsilon"] if kept == 2 else [key for key in arguments if key != "sql"]
    arguments = {key: arguments[key] for key in wanted}
    for key in list(arguments):
        if draw.random() < 0.15:
            arguments[key] = draw.choice(VALUES)
        elif draw.random() < 0.05:
            del arguments[key]
    if draw.random() < 0.05:
        arguments[draw.choice(["limit", "__class__", "", "self"])] = draw.choice(VALUES)
    return name, arguments


NOT_OURS = (
    "Traceback",
    "pydantic",
    "validation error",
    "Error executing",
    "sqlglot",
    "object at 0x",
    "NoneType",
    "KeyError",
    "TypeError",
    "site-packages",
)


def test_a_hostile_client_overspends_nothing(handle: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Sixteen calls at a time: what is spent stays within call, session and grant, is what the ledger says, and texts are ours."""
    caplog.set_level("CRITICAL")  # what a parser logs may hold half a character, which no report can
    draw = random.Random(20_261_123 if not ASSURANCE else None)
    agent = Agent(handle, per_call="0.05", per_session="0.6")
    outcomes: Counter[str] = Counter()

    def one(call: tuple[str, dict[str, Any]]) -> ToolResult:
        told = agent.call(*call)
        assert told.text
        assert not any(text in told.text for text in NOT_OURS), (call, told.text)
        assert told.is_error or told.text
        assert "unexpected" not in told.text, (call, told.text)
        outcomes["refused" if told.is_error else "asked" if call[0].startswith("ask") else "free"] += 1
        return told

    async def storm() -> None:
        for start in range(0, CALLS, AT_ONCE):
            calls = [hostile(draw) for _ in range(min(AT_ONCE, CALLS - start))]
            await asyncio.gather(*(asyncio.to_thread(one, call) for call in calls))

    asyncio.run(storm())
    spent = handle.budget.spent
    assert 0 < spent == agent.spent <= Fraction("0.6")
    charges = [
        event.record.epsilon.exact for event in ledger_of(handle).log.events() if isinstance(event.record, Charged)
    ]
    assert max(charges) <= Fraction("0.05")
    assert min(outcomes[what] for what in ("refused", "asked", "free")) > 0
    note(
        "calls by a hostile client to an agent's tools",
        CALLS,
        f"{outcomes['asked']} answered, {outcomes['refused']} refused, spent {Decimal(spent.numerator) / spent.denominator} of 0.6",
    )


def test_the_protocol_has_tools_and_resources(handle: Any) -> None:
    """Hints say which tools spend; errors are errors of tools; free texts are resources too; a protocol error is ours."""
    agent = Agent(handle, per_call="0.2", per_session="0.5")

    async def talk() -> None:
        async with Client(server_of(agent)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == set(agent.tools)
            hints = {name: tool.annotations and tool.annotations.read_only_hint for name, tool in tools.items()}
            assert {name for name, free in hints.items() if not free} == {"ask_sql", "ask_table"}
            answer = await client.call_tool("ask_sql", {"sql": QUERY, "epsilon": 0.1})
            assert answer.structured_content["rows"][0]["sex"] == "F"
            wrong = await client.call_tool("ask_sql", {"sql": 7})
            content: Any = wrong.content[0]
            assert (wrong.is_error, content.text.split(".")[0]) == (True, "`ask_sql` takes sql, epsilon")
            for resource in (await client.list_resources()).resources:
                (read,) = (await client.read_resource(resource.uri)).contents
                told: Any = read
                assert told.text == agent.call(resource.name).text
            with pytest.raises(Exception, match=r"there is no such resource; there are guide"):
                await client.read_resource("pinq://secrets")

    asyncio.run(talk())


def test_the_command_serves_stdio_and_http(tmp_path: Path) -> None:
    """`pinq mcp`, as an agent's host starts it, and over HTTP on this machine alone."""
    policy = publish(tmp_path)
    token_of(policy, epsilon=1)
    words = ["mcp", str(policy), "--analyst", "ana", "--per-call", "0.1", "--per-session", "0.5"]
    port = free_port()
    server = PinqProcess([*words, "--http", str(port)], output=tmp_path / "log", errors=tmp_path / "log")

    async def ask(transport: Any) -> str:
        async with Client(transport) as client:
            asked = await client.call_tool("ask_sql", {"sql": "SELECT COUNT(*) FROM people", "epsilon": 0.1})
            content: Any = asked.content[0]
            assert not asked.is_error
            return str(content.text)

    async def over_http(header: str) -> str:
        async with create_mcp_http_client(headers={"Authorization": header}) as http:
            return await ask(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http))

    async def both() -> tuple[str, str]:
        parameters = StdioServerParameters(command=sys.executable, args=["-m", "pinq.cli.main", *words])
        over_stdio = await ask(stdio_client(parameters))
        for _ in range(200):
            try:
                (header,) = re.findall(r"Authorization: (Bearer \S+)", (tmp_path / "log").read_text())
                over = await over_http(header)
                break
            except Exception:  # it does not listen yet
                await asyncio.sleep(0.1)
        else:
            raise AssertionError((tmp_path / "log").read_text())
        for wrong in ("", "Bearer another", header[:-1]):
            refused = httpx.post(f"http://127.0.0.1:{port}/mcp", headers={"Authorization": wrong}, trust_env=False)
            assert refused.status_code == 401
        return over_stdio, over

    try:
        first, second = asyncio.run(both())
    finally:
        server.kill()
        server.wait()
    told = [[line for line in text.splitlines() if line.startswith("- ")] for text in (first, second)]
    assert told[0] == told[1]  # the second was paid for by the first
    assert pinq.open(policy, analyst="ana").budget.spent == Fraction("0.1")
