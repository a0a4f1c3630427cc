# SPDX-License-Identifier: Apache-2.0
"""``Agent``: the tools of a program that chooses its queries, and the texts of its answers.

Tools read the schema, prices, budget and history for free; only two tools query and spend. A call and a session have
limits in addition to the grant. An answer has each number with its interval, in words that an agent can repeat. An
error names the fault, the spending and the remaining budget.

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
from typing import Any

from miners import statistics, tables
from miners.budget.plan import loss_text, require_budget
from miners.fronts.sql import sql as answered
from miners.tables.columns import required_handle
from miners.tables.table import Table
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import PinqError, QueryError, unspent
from pinq.public.checks import first_of, many
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Value

MOST_ROWS = 500  # numbers of an answer in words: more than a person reads
MOST_LINES = 50  # acts of a history
GUIDE = """\
Numbers are differentially private: noise was added on purpose, and asking the same again returns the same answer.
- Repeat each number with its interval: "about 723, between 717 and 729 with probability 95 %".
- Two numbers whose intervals overlap may be equal. Do not call one of them larger.
- A count can be negative or not whole where there are few rows; it means few, not less than none.
- Nothing can be said of one person, and nothing was checked about one. No answer shows that a value occurs or not.
- A group that looks interesting was chosen among many: noise makes some of them look so.
- Every question costs budget that never comes back. Ask for the price first, ask for what is needed, then stop."""
_log = logging.getLogger("miners")


@dataclass(frozen=True)
class Told:
    """The result of a tool: a text to repeat, the same numbers for programs, and whether it is an error."""

    text: str
    rows: tuple[dict[str, object], ...] = ()
    is_error: bool = False


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        about: The purpose, for the agent.
        takes: The JSON schema of each argument.
        call: The function from checked arguments to the result.
        needs: The required arguments.
    """

    name: str
    about: str
    takes: Mapping[str, Mapping[str, Any]]
    call: Callable[..., Told]
    needs: tuple[str, ...] = ()
    spends: bool = False


Takes = Mapping[str, Mapping[str, Any]]
"""Arguments of a tool: of each its JSON schema."""
_STATISTICS = {"survival": ("observed",), "independence": (), "odds_ratio": ("observed", "exposed")}
_KINDS = ("crosstab", "histogram", "quantiles", "summary", "top_k", *_STATISTICS)
_EPSILON = {"type": ["number", "string"], "description": "What the answer may cost, for example 0.05."}
_SQL: Takes = {
    "sql": {
        "type": "string",
        "description": "SELECT COUNT(*), AVG(x), MEDIAN(x) FROM the table WHERE ... GROUP BY ... ORDER BY ... LIMIT",
    },
    "epsilon": _EPSILON,
}
_NAMES = {"type": "array", "items": {"type": "string"}}
_TABLE: Takes = {
    "kind": {"type": "string", "enum": list(_KINDS)},
    "columns": {
        **_NAMES,
        "description": "Several for crosstab, any for summary, else one. For survival the time, "
        "the event and perhaps a group; for independence two; for odds_ratio the event and the group.",
    },
    "by": {**_NAMES, "description": "Columns that make groups, for histogram, quantiles and summary."},
    "observed": {"type": "string", "description": "The value of the event that counts; needless for yes and no."},
    "exposed": {"type": "string", "description": "The first group of odds_ratio; needless for yes and no."},
    "epsilon": _EPSILON,
}
_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "array": (list,)}


@dataclass
class Agent:
    """A handle with limits of one call and of one session, as tools; the log has its queries as those of an agent."""

    handle: PrivateQueryable
    per_call: EpsilonLike
    per_session: EpsilonLike
    level: float = 0.95
    spent: Fraction = field(default=Fraction(0), init=False)

    def __post_init__(self) -> None:
        self.handle = required_handle(self.handle).named("an agent")
        self._call = Epsilon.of(self.per_call, name="per_call").exact
        self._session = Epsilon.of(self.per_session, name="per_session").exact
        self._told: dict[str, Told] = {}
        self._lock = threading.Lock()  # one question at a time, so that a limit holds however many are sent at once
        price, ask = "What this would ask, and what it would cost. Free.", "Spends epsilon for good."
        statement, table = "Answers a SELECT over the table with noise.", "Makes a table of noisy numbers."
        tools = [
            Tool("guide", "What may be concluded from answers. Free.", {}, lambda: Told(GUIDE)),
            Tool("columns", "The declared columns, values and bounds. Free.", {}, self._columns),
            Tool("budget", "What was spent and what remains. Free.", {}, lambda: Told(self._left())),
            Tool("history", "What was asked before, and what it cost. Free.", {}, self._history),
            Tool("price_sql", price, _SQL, partial(self._sql, False), ("sql", "epsilon")),
            Tool("ask_sql", f"{statement} {ask}", _SQL, partial(self._sql, True), ("sql", "epsilon"), spends=True),
            Tool("price_table", price, _TABLE, partial(self._table, False), ("kind", "epsilon")),
            Tool("ask_table", f"{table} {ask}", _TABLE, partial(self._table, True), ("kind", "epsilon"), spends=True),
        ]
        self.tools = {tool.name: tool for tool in tools}

    def call(self, name: str, arguments: object = None) -> Told:
        """Calls a tool; a failure is an answer too, with the remaining budget."""
        try:
            tool = self.tools.get(name)
            if tool is None:
                raise QueryError(f"there is no tool {name[:40]!r}; there are {', '.join(self.tools)}.")
            values = _checked(tool, arguments)
            if not tool.spends:
                return tool.call(**values)
            with self._lock:
                return self._once(tool, values)
        except PinqError as error:
            problem = str(error)
        except Exception:
            _log.exception("a tool failed")
            problem = "Something unexpected went wrong; please report it. What remains says whether it was charged."
        return Told(f"{problem} {self._left()}", is_error=True)

    # Free tools

    def _columns(self) -> Told:
        lines = "\n".join(f"- {name}: {_described(column)}" for name, column in self.handle.schema.columns.items())
        return Told(f"The table `{self.handle.dataset}` has at most {self.handle.schema.max_rows:,} rows of\n{lines}")

    def _history(self) -> Told:
        history: Any = self.handle.history()
        acts = history.acts()
        shown = acts[["asked", "epsilon", "outcome"]].tail(MOST_LINES).fillna(0).to_numpy().tolist()
        lines = [f"- {query}: {epsilon:g}, {outcome}" for query, epsilon, outcome in shown]
        return Told("\n".join([f"{len(acts)} acts, the last of them:", *lines]))

    def _left(self) -> str:
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

    def _sql(self, spends: bool, sql: str, epsilon: EpsilonLike) -> Told:
        statement = sql if spends else f"EXPLAIN {sql}"
        ask = partial(answered, self.handle, statement, epsilon=epsilon, level=self.level, reuse=True)
        return self._asked(f"sql: {sql}", epsilon, ask) if spends else self._priced(ask())

    def _table(
        self, spends: bool, kind: str, epsilon: EpsilonLike, columns: Any = (), by: Any = (), **values: Value
    ) -> Told:
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
            return self._priced(function.plan(self.handle, *positional, **words))
        of = [f"{'statistics' if statistic else 'tables'}.{kind}", *(["of", first_of(columns, 8)] if columns else [])]
        return self._asked(" ".join(of), epsilon, partial(function, self.handle, *positional, **words, reuse=True))

    def _priced(self, plan: object) -> Told:
        return Told(f"{plan}\n{self._left()}")

    def _once(self, tool: Tool, values: Mapping[str, Any]) -> Told:
        """Sends a query, or finds this session's answer to the same query."""
        key = json.dumps([tool.name, values], sort_keys=True)
        result = self._told.get(key) or tool.call(**values)
        self._told[key] = result
        if len(self._told) > 1000:  # remembered answers of a session
            self._told.pop(next(iter(self._told)))
        return replace(result, text=f"{result.text}\n{self._left()}")

    def _asked(self, act: str, epsilon: EpsilonLike, ask: Callable[[], Any]) -> Told:
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
        return Told(str(answer)) if not hasattr(answer, "frame") else self._worded(answer, cost)

    def _worded(self, table: Table, cost: Fraction) -> Told:
        level = f"with probability {100 * table.level:g} %"
        rows = table.frame.astype(object).where(table.frame.notna(), None).to_dict("records")
        lines = [_line(row, table.keys, level) for row in rows[:MOST_ROWS]]
        more = [f"and {len(rows) - MOST_ROWS:,} more; ask for fewer groups."] if len(rows) > MOST_ROWS else []
        notes = [f"Note: {note}." for note in table.notes]
        if isinstance(table, statistics.Result) and table.pvalue >= 0:  # none where there is no power
            notes.insert(0, f"{table.test}: statistic {table.statistic:.6g}, p-value {table.pvalue:.4g}.")
        head = f"{table.title}: {many(len(rows), 'number')} with noise, for epsilon {loss_text(cost)}."
        plain = tuple({str(name): _plain(value) for name, value in row.items()} for row in rows)
        return Told("\n".join([head, *lines, *more, *notes]), plain)


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
    value, low, high = (_figures(row[name]) for name in ("value", "low", "high"))
    return f"- {', '.join(named) or 'all rows'}: about {value}, between {low} and {high} {level}"


def _figures(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) and abs(value) < 1e6 else str(_plain(value))


def _plain(value: object) -> object:
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _list_of(value: object) -> object:
    """The list of a text in JSON; another value unchanged."""
    with suppress(ValueError, RecursionError):
        return json.loads(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    return value


def _checked(tool: Tool, arguments: object) -> dict[str, Any]:
    """Checks the arguments of a call; raises ``QueryError`` if they do not fit the tool."""
    values = {} if arguments is None else arguments
    if not isinstance(values, dict) or values.keys() - tool.takes.keys() or set(tool.needs) - values.keys():
        takes = ", ".join(f"{name}{'' if name in tool.needs else ' (or not)'}" for name in tool.takes) or "nothing"
        raise QueryError(f"`{tool.name}` takes {takes}.")
    # Some clients send null for omitted arguments, and lists as JSON text.
    values = {
        name: _list_of(value) if tool.takes[name]["type"] == "array" else value
        for name, value in values.items()
        if value is not None or name in tool.needs
    }
    for name, value in values.items():
        types = tool.takes[name]["type"]
        types = [types] if isinstance(types, str) else types
        kinds = tuple(kind for each in types for kind in _TYPES[each])
        kinds += (int, float, bool) if name in ("observed", "exposed") else ()  # values, as a column may have them
        right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not right or (isinstance(value, list) and not all(isinstance(each, str) for each in value)):
            raise QueryError(f"`{name}` of `{tool.name}` must be {' or '.join(types)}.")
    return values
