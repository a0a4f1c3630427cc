# SPDX-License-Identifier: Apache-2.0
"""``sql``: a SELECT over one table, answered by the tables and verbs of a handle.

sqlglot reads the text (``select.py``), and no SQL reaches an engine.

In a notebook, ``%load_ext pinq`` adds the cell magic ``%%pinq``, which does the same.

Privacy:
    Claim: a statement costs what its statistics cost. Why: it is compiled from its text and the
    public schema alone, and HAVING, ORDER BY and LIMIT look at answers.
    Held by: tests/unit/fronts/test_sql.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from miners.budget.plan import Plan, require_budget
from miners.tables.columns import require_level, required_handle
from miners.tables.table import Table
from pinq.analyst.lessons import called_by_name
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import unspent
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.plugins import optional


@called_by_name
def sql(
    handle: PrivateQueryable,
    query: str,
    *,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
    dialect: str = "",
) -> Table | Plan:
    """Answers a SELECT over the handle's table, with noise; needs sqlglot.

    Numbers are COUNT, SUM, AVG, MEDIAN, quantiles, STDDEV and VARIANCE; FILTER or CASE restricts
    one to some rows. WHERE has conditions on one column each. GROUP BY has columns, CASE,
    WIDTH_BUCKET, FLOOR(x / w) * w or DATE_TRUNC. HAVING, ORDER BY and LIMIT or TOP are supported.

    Args:
        handle: A handle on a table, or on a part of it.
        query: The statement. ``EXPLAIN SELECT ...`` returns the plan of its queries, for free.
        epsilon: The cost of the whole statement. Its numbers divide it evenly; all quantiles of one
            column count as one number. Groups are disjoint, so each group gets all of it.
        level: The confidence level of the intervals.
        reuse: Whether to return the stored answers of an identical earlier call, at no cost.
        dialect: The SQL dialect, by sqlglot's names (``"bigquery"``, ``"tsql"``); by default
            standard SQL with TOP.

    Returns:
        A row for each group and number: the groups' labels, ``answer``, ``value``, ``low``,
        ``high``; ``table.wide()`` has a column for each number. For an EXPLAIN, the plan.

    Raises:
        QueryError: The statement has an unsupported part; the text names the part, its place and
            an alternative.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.
        ImportError: sqlglot is not installed; the text has the command.

    Examples:
        >>> import pinq
        >>> sex, age = pinq.Categorical(values=("F", "M")), pinq.Numeric(lower=0, upper=100, integer=True)
        >>> h = pinq.simulate(pinq.Schema(columns={"sex": sex, "age": age}, max_rows=100), rows=100, epsilon=1)
        >>> pinq.sql(h, "SELECT sex, AVG(age) FROM people GROUP BY sex", epsilon=0.5).wide().index.tolist()
        ['F', 'M']
    """
    optional("sqlglot", "sql", "SQL needs sqlglot")
    from miners.fronts.select import Select, Text

    with unspent():
        text = Text(query, required_handle(handle).schema)
        handle = handle.named(f"sql: {query}")
        draft = Select(text, handle, dialect).draft(Epsilon.of(epsilon), require_level(level), reuse=bool(reuse))
        if text.explains:
            return Plan(draft.title, draft.lines, draft.total, draft.notes)
        if not reuse:
            require_budget(handle, Epsilon.of(draft.total), name="This statement")
    return draft.answer()


def load_ipython_extension(shell: Any) -> None:
    """Adds the cell magic ``%%pinq`` to a shell of IPython."""
    magics: Any = import_module("IPython.core.magic_arguments")  # only IPython calls this function

    def pinq(line: str, cell: str) -> Table | Plan:
        """Answers the cell's SELECT with noise: ``%%pinq h --epsilon 0.1``."""
        options = magics.parse_argstring(magic, line)
        handle = required_handle(shell.user_ns.get(options.handle))
        return sql(handle, cell, epsilon=options.epsilon, level=options.level, reuse=options.reuse)

    arguments = [
        magics.argument("handle", help="The name of the queried handle."),
        magics.argument("--epsilon", required=True, help="The cost of the statement."),
        magics.argument("--level", type=float, default=0.95, help="The confidence level of the intervals."),
        magics.argument("--reuse", action="store_true", help="Use stored answers of an identical statement, free."),
    ]
    magic: Any = pinq
    for decorate in [*reversed(arguments), magics.magic_arguments()]:
        magic = decorate(magic)
    shell.register_magic_function(magic, "cell", "pinq")
