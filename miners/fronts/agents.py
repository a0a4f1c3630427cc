# SPDX-License-Identifier: Apache-2.0
"""``Agent``: the tools of a program that chooses its queries, and the texts of its answers.

A call and a session have limits in addition to the grant. An answer has each number with its interval, in words that an
agent can repeat. An error names the fault, the cost so far and the remaining budget.

Privacy:
    Claim: calls cost what their tables cost. Why: an agent has the handle's verbs and no others, and
    limits only refuse.
    Held by: tests/integration/test_agents.py.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from miners import statistics, tables
from miners.budget.plan import loss_text, require_budget
from miners.fronts.sql import sql as answered
from miners.tables.columns import required_handle
from miners.tables.table import Table
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import PinqError, QueryError, unspent
from pinq.public.checks import first_of, many
from pinq.public.columns import problems
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Value

MOST_ROWS = 500  # the most numbers of an answer that its text has; nobody reads more
MOST_LINES = 50  # the most acts of a history
GUIDE = """\
Numbers are differentially private: noise was added on purpose, and asking the same again returns the same answer.
- Repeat each number with its interval: "about 723, between 717 and 729 with probability 95 %".
- Two numbers whose intervals overlap may be equal. Do not call one of them larger.
- A count can be negative or not whole where there are few rows; it means few, not less than none.
- No answer says anything about one person, or shows whether a value occurs.
- Among many groups, some look interesting because of noise alone.
- Every question costs budget that never comes back. Ask for the price first, ask for what is needed, then stop."""
_log = logging.getLogger("miners")


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool: a text to repeat, the same numbers for programs, and whether it is an error."""

    text: str
    rows: tuple[dict[str, object], ...] = ()
    is_error: bool = False


_STATISTICS = {"survival": ("observed",), "independence": (), "odds_ratio": ("observed", "exposed")}
_KINDS = ("crosstab", "histogram", "quantiles", "summary", "top_k", *_STATISTICS)


def _list_of(value: object) -> object:
    """The list of a text in JSON, as some clients send it; another value unchanged."""
    with suppress(ValueError, RecursionError):
        return json.loads(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    return value


Loss = Annotated[float | str, Field(description="What the answer may cost, for example 0.05.")]
Names = Annotated[list[str], Field(fail_fast=True), BeforeValidator(_list_of)]


class Arguments(BaseModel):
    """The arguments of a tool: of this class none. A number is neither a text nor a truth value."""

    model_config = ConfigDict(strict=True, extra="forbid")


class SqlArguments(Arguments):
    """The arguments of a statement."""

    sql: str = Field(
        description="SELECT COUNT(*), AVG(x), MEDIAN(x) FROM the table WHERE ... GROUP BY ... ORDER BY ... LIMIT"
    )
    epsilon: Loss


class TableArguments(Arguments):
    """The arguments of a table; a column can have any of the values of ``observed``."""

    kind: str = Field(json_schema_extra={"enum": list(_KINDS)})
    epsilon: Loss
    columns: Names = Field(
        default=[],
        description="Several for crosstab, any for summary, else one. For survival the time, the event and perhaps a "
        "group; for independence two; for odds_ratio the event and the group.",
    )
    by: Names = Field(default=[], description="Columns that make groups, for histogram, quantiles and summary.")
    observed: str | int | float | bool = Field(
        default="", description="The value of the event that counts; needless for yes and no."
    )
    exposed: str | int | float | bool = Field(
        default="", description="The first group of odds_ratio; needless for yes and no."
    )


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        purpose: The purpose, for the agent.
        takes: The type of its arguments, from which their JSON schema follows.
        call: The function from checked arguments to the result.
        spends: Whether a call can spend epsilon.
    """

    name: str
    purpose: str
    takes: type[Arguments]
    call: Callable[..., ToolResult]
    spends: bool = False

    def checked(self, given: object) -> dict[str, Any]:
        """Checks the arguments of a call; raises ``QueryError`` if they do not fit."""
        # Some clients send null for omitted arguments.
        named = (
            {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given
        )
        try:
            return self.takes.model_validate({} if named is None else named).model_dump(exclude_unset=True)
        except ValidationError as error:
            fields = self.takes.model_fields.items()
            names = ", ".join(f"{name}{'' if field.is_required() else ' (or not)'}" for name, field in fields)
            raise QueryError(f"`{self.name}` takes {names or 'nothing'}.\n{problems(error)[:500]}") from None


@dataclass
class Agent:
    """A handle as tools, with limits for one call and for one session. The log says that an agent sent its queries.

    Attributes:
        per_call, per_session: The largest cost of one call, and of all calls together.
        level: The confidence level of intervals.
        spent: The cost of all calls so far.
    """

    handle: PrivateQueryable
    per_call: EpsilonLike
    per_session: EpsilonLike
    level: float = 0.95
    spent: Fraction = field(default=Fraction(0), init=False)

    def __post_init__(self) -> None:
        self.handle = required_handle(self.handle).named("an agent")
        self._call = Epsilon.of(self.per_call, name="per_call").exact
        self._session = Epsilon.of(self.per_session, name="per_session").exact
        self._results: dict[str, ToolResult] = {}
        self._lock = threading.Lock()  # one query at a time, so that limits hold for simultaneous calls
        price, ask = "What this would ask, and what it would cost. Free.", "Spends epsilon for good."
        statement, table = "Answers a SELECT over the table with noise.", "Makes a table of noisy numbers."
        tools = [
            Tool("guide", "What may be concluded from answers. Free.", Arguments, lambda: ToolResult(GUIDE)),
            Tool("columns", "The declared columns, values and bounds. Free.", Arguments, self._columns),
            Tool(
                "budget",
                "What was spent and what remains. Free.",
                Arguments,
                lambda: ToolResult(self._remaining_text()),
            ),
            Tool("history", "What was asked before, and what it cost. Free.", Arguments, self._history),
            Tool("price_sql", price, SqlArguments, partial(self._sql, False)),
            Tool("ask_sql", f"{statement} {ask}", SqlArguments, partial(self._sql, True), spends=True),
            Tool("price_table", price, TableArguments, partial(self._table, False)),
            Tool("ask_table", f"{table} {ask}", TableArguments, partial(self._table, True), spends=True),
        ]
        self.tools = {tool.name: tool for tool in tools}

    def call(self, name: str, arguments: object = None) -> ToolResult:
        """Calls a tool; a failure too becomes a result, with the remaining budget."""
        try:
            tool = self.tools.get(name)
            if tool is None:
                raise QueryError(f"there is no tool {name[:40]!r}; there are {', '.join(self.tools)}.")
            values = tool.checked(arguments)
            if not tool.spends:
                return tool.call(**values)
            with self._lock:
                return self._once(tool, values)
        except PinqError as error:
            problem = str(error)
        except Exception:
            _log.exception("a tool failed")
            problem = (
                "Something unexpected went wrong; please report it. The remaining budget shows whether it was charged."
            )
        return ToolResult(f"{problem} {self._remaining_text()}", is_error=True)

    # Free tools

    def _columns(self) -> ToolResult:
        lines = "\n".join(f"- {name}: {_described(column)}" for name, column in self.handle.schema.columns.items())
        return ToolResult(
            f"The table `{self.handle.dataset}` has at most {self.handle.schema.max_rows:,} rows of\n{lines}"
        )

    def _history(self) -> ToolResult:
        history: Any = self.handle.history()
        acts = history.acts()
        shown = acts[["asked", "epsilon", "outcome"]].tail(MOST_LINES).fillna(0).to_numpy().tolist()
        lines = [f"- {query}: {epsilon:g}, {outcome}" for query, epsilon, outcome in shown]
        return ToolResult("\n".join([f"{len(acts)} acts, the last of them:", *lines]))

    def _remaining_text(self) -> str:
        try:
            budget = self.handle.budget
        except PinqError as error:
            return f"What remains is not known: {error}"
        return (
            f"Epsilon {loss_text(budget.remaining)} of {loss_text(budget.epsilon)} remains, "
            f"{loss_text(max(Fraction(0), self._session - self.spent))} of {loss_text(self._session)} in this session; "
            f"a call may cost at most {loss_text(self._call)}."
        )

    # Tools with a price

    def _sql(self, spends: bool, sql: str, epsilon: EpsilonLike) -> ToolResult:
        statement = sql if spends else f"EXPLAIN {sql}"
        ask = partial(answered, self.handle, statement, epsilon=epsilon, level=self.level, reuse=True)
        return self._charged(f"sql: {sql}", epsilon, ask) if spends else self._price_result(ask())

    def _table(
        self, spends: bool, kind: str, epsilon: EpsilonLike, columns: Any = (), by: Any = (), **values: Value
    ) -> ToolResult:
        several, statistic = kind in ("crosstab", "summary"), kind in _STATISTICS
        if kind not in _KINDS:
            raise QueryError(f"there is no kind {kind[:40]!r}; there are {', '.join(_KINDS)}.")
        if by and (statistic or kind in ("crosstab", "top_k")):
            raise QueryError(f"{kind} takes no `by`; name all columns of a crosstab in `columns`.")
        if wrong := sorted(set(values) - set(_STATISTICS.get(kind, ()))):
            raise QueryError(f"{kind} takes no `{wrong[0]}`.")
        if statistic and len(columns) not in ((2, 3) if kind == "survival" else (2,)):
            raise QueryError(f"{kind} needs {'two or three columns' if kind == 'survival' else 'two columns'}.")
        if not (several or statistic) and len(columns) != 1:
            raise QueryError(f"{kind} needs one column in `columns`.")
        function = getattr(statistics if statistic else tables, kind)
        positional = [list(columns) or None] if several else list(columns)
        words = {"epsilon": epsilon, "level": self.level, **values} | ({"by": list(by)} if by else {})
        if not spends:
            return self._price_result(function.plan(self.handle, *positional, **words))
        of = [f"{'statistics' if statistic else 'tables'}.{kind}", *(["of", first_of(columns, 8)] if columns else [])]
        return self._charged(" ".join(of), epsilon, partial(function, self.handle, *positional, **words, reuse=True))

    def _price_result(self, plan: object) -> ToolResult:
        return ToolResult(f"{plan}\n{self._remaining_text()}")

    def _once(self, tool: Tool, values: Mapping[str, Any]) -> ToolResult:
        """Sends a query, or finds this session's answer to the same query."""
        key = json.dumps([tool.name, values], sort_keys=True)
        result = self._results.get(key) or tool.call(**values)
        self._results[key] = result
        if len(self._results) > 1000:  # answers of a session in memory
            self._results.pop(next(iter(self._results)))
        return replace(result, text=f"{result.text}\n{self._remaining_text()}")

    def _charged(self, act: str, epsilon: EpsilonLike, ask: Callable[[], Any]) -> ToolResult:
        """Sends a query if both limits and the grant allow it; counts its cost, or its price if the cost is unknown."""
        with unspent():
            loss = Epsilon.of(epsilon)
            left = self._session - self.spent
            allowed, limit = (self._call, "a call may cost") if self._call < left else (left, "is left of this session")
            if loss.exact > allowed:
                raise QueryError(f"this would cost epsilon {loss}; {loss_text(allowed)} is the most that {limit}.")
            require_budget(self.handle, loss, name="This call", act=act)
            before, cost = self.handle.budget.spent, Fraction(loss.exact)
        try:
            answer = ask()
        finally:
            with suppress(PinqError):
                cost = self.handle.budget.spent - before
            self.spent += cost
        return ToolResult(str(answer)) if not hasattr(answer, "frame") else self._table_result(answer, cost)

    def _table_result(self, table: Table, cost: Fraction) -> ToolResult:
        level = f"with probability {100 * table.level:g} %"
        rows = table.frame.astype(object).where(table.frame.notna(), None).to_dict("records")
        lines = [_line(row, table.keys, level) for row in rows[:MOST_ROWS]]
        more = [f"and {len(rows) - MOST_ROWS:,} more; ask for fewer groups."] if len(rows) > MOST_ROWS else []
        notes = [f"Note: {note}." for note in table.notes]
        if isinstance(table, statistics.Result) and table.pvalue >= 0:  # negative if the test has no power
            notes.insert(0, f"{table.test}: statistic {table.statistic:.6g}, p-value {table.pvalue:.4g}.")
        head = f"{table.title}: {many(len(rows), 'number')} with noise, for epsilon {loss_text(cost)}."
        plain = tuple({str(name): _plain(value) for name, value in row.items()} for row in rows)
        return ToolResult("\n".join([head, *lines, *more, *notes]), plain)


def _described(column: Any) -> str:
    """Describes a column: all values of a list, or the bounds."""
    if column.type != "categorical":
        return str(column.describe())
    return f"one of {first_of(column.values, 100)}{', or missing' if column.nullable else ''}"


def _line(row: Mapping[Any, object], keys: list[str], level: str) -> str:
    """Words a number: ``- sex F, AVG(age): about 62.4, between 61.8 and 63.0 with probability 95 %``."""
    bare = ("answer", "column", "statistic", "of")
    named = [
        f"{'' if name in bare else f'{name} '}{row[name]}"
        for name in keys
        if name not in bare or row[name] not in (None, "")  # 0 and False are values
    ]
    if row["value"] is None:
        return f"- {', '.join(named) or 'all rows'}: not told"
    value, low, high = (_digits(row[name]) for name in ("value", "low", "high"))
    return f"- {', '.join(named) or 'all rows'}: about {value}, between {low} and {high} {level}"


def _digits(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) and abs(value) < 1e6 else str(_plain(value))


def _plain(value: object) -> object:
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
