# SPDX-License-Identifier: Apache-2.0
"""``Lesson``: the error for a method that data frames have and handles lack, with the line to write.

A lesson follows from the schema and the name of the method, so it reveals nothing about rows.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from pinq.errors import PinqError, QueryError
from pinq.language.queries import Budget
from pinq.public.checks import closest
from pinq.public.schema import Schema

P = ParamSpec("P")
R = TypeVar("R")


class Lesson(QueryError, AttributeError, TypeError):
    """A handle has no such method; the text shows the line to write.

    Also an ``AttributeError`` and a ``TypeError``, so that ``hasattr`` and ``len`` behave as for
    other objects.
    """

    _budget: Callable[[], Budget] | None = None

    def within(self, budget: Callable[[], Budget]) -> Lesson:
        """The lesson, whose text suggests at most the remaining budget at the time of reading."""
        self._budget = budget
        return self

    def __str__(self) -> str:
        text = super().__str__()
        try:
            left = 0.0 if self._budget is None else float(self._budget().remaining)
        except PinqError:
            return text
        return re.sub(r"epsilon=([0-9.]+)", lambda match: f"epsilon={min(float(match[1]), left or 1):g}", text)


def called_by_name(verb: Callable[P, R]) -> Callable[P, R]:
    """Turns the error of a call with wrong arguments into a lesson; errors from within stay."""

    @wraps(verb)
    def call(*args: P.args, **words: P.kwargs) -> R:
        try:
            return verb(*args, **words)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            ways = (
                str(one).partition(":")[0]
                if one.kind is not one.KEYWORD_ONLY
                else f"{name}={'0.1' if name == 'epsilon' else '...'}"
                for name, one in signature(verb).parameters.items()
                if one.default is one.empty and name != "self"
            )
            fault = str(error).partition("() ")[2]
            lesson = Lesson(f"{verb.__name__} {fault}; write {verb.__name__}({', '.join(ways)}).")
            lesson.charged = Fraction(0)
            raise lesson from None

    return call


@dataclass(frozen=True)
class Line:
    """A line to write, for the names of one task in other tools.

    Attributes:
        names: The names that libraries use, separated by spaces.
        of: The module of its functions, such as ``miners.tables``; empty for none.
        on_parts: Whether the line is the same on parts, whose answers are arrays.
    """

    names: str
    wish: str
    code: str
    of: str = ""
    on_parts: bool = False


LINES = (
    Line("where filter query loc mask isin between", "keep some rows", "where(h, {condition})", "miners.tables"),
    Line(
        "groupby group_by agg aggregate pivot_table resample rolling sql execute",
        "compute by group",
        "grouped(h, {category}, {{{number}: 'mean'}}, epsilon=0.1)",
        "miners.tables",
    ),
    Line(
        "crosstab pivot corr cov",
        "see how columns go together",
        "crosstab(h, {category}, {other}, epsilon=0.1)",
        "miners.tables",
    ),
    Line(
        "count size shape height num_rows nrows",
        "count rows",
        "h.noisy_count(epsilon=0.1)",
        on_parts=True,
    ),
    Line("sum cumsum total", "add up a column", "h.noisy_sum({number}, epsilon=0.1)", on_parts=True),
    Line("mean avg average", "average a column", "h.noisy_avg({number}, epsilon=0.1)", on_parts=True),
    Line(
        "median quantile quantiles percentile",
        "find quantiles",
        "quantiles(h, {number}, [0.25, 0.5, 0.75], epsilon=0.1)",
        "miners.tables",
    ),
    Line(
        "min max",
        "see where values lie, for the largest alone is one person's,",
        "quantiles(h, {number}, [0.01, 0.99], epsilon=0.1)",
        "miners.tables",
    ),
    Line("std stddev", "measure a spread", "std(h, {number}, epsilon=0.1)", "miners.tables"),
    Line("var variance", "measure a spread", "variance(h, {number}, epsilon=0.1)", "miners.tables"),
    Line("describe info summary summarize", "describe columns", "summary(h, epsilon=0.5)", "miners.tables"),
    Line(
        "hist histogram plot boxplot value_counts",
        "count by bins or values",
        "histogram(h, {number}, epsilon=0.1)",
        "miners.tables",
    ),
    Line(
        "mode idxmax nlargest top_k sort_values sort order_by",
        "find what is most frequent",
        "top_k(h, {category}, 1, epsilon=0.1)",
        "miners.tables",
    ),
    Line("columns dtypes dtype keys", "see the columns", "list(h.schema.columns)"),
    Line("unique nunique distinct", "see the declared values", "h.schema.columns[{category}].labels"),
    Line(
        "head tail sample take limit first last show display collect iloc iat at values rows T items iterrows "
        "itertuples fetchall to_pandas toPandas to_frame to_numpy to_arrow to_polars to_dict to_csv to_parquet to_sql",
        "look at the table, whose rows nobody gets,",
        "summary(h, epsilon=0.5).to_frame()",
        "miners.tables",
    ),
    Line("select get", "describe some columns", "summary(h, [{category}, {number}], epsilon=0.5)", "miners.tables"),
    Line("fit train", "learn a model", "DiffPC45(epsilon=0.5).fit(h, {category})", "miners"),
    Line("epsilon spent remaining", "see the budget", "h.budget"),
    Line(
        "apply map assign transform pipe with_columns withColumn drop rename astype fillna dropna drop_duplicates "
        "replace eval",
        "change columns, which the data provider declares in the policy,",
        "h.schema",
    ),
    Line(
        "join merge concat append union",
        "join tables, which the data provider does beforehand (docs/left-out.md),",
        "h.schema",
    ),
)
LESSONS = {name: line for line in LINES for name in line.names.split()}
"""By each name: the line that teaches it."""


def _columns(schema: Schema) -> dict[str, str]:
    """The texts for the braces of lines, as Python: columns of the table, and a condition on one."""
    columns = {name: column for name, column in schema.columns.items() if column.codes > 1}
    categories = [name for name, column in columns.items() if column.type == "categorical"] or ["a categorical column"]
    numbers = [name for name, column in columns.items() if column.type != "categorical"] or ["a numeric column"]
    condition = next((_condition(schema, name) for name in (numbers[0], categories[0]) if name in columns), "")
    fields = {"number": numbers[0], "category": categories[0], "other": categories[:2][-1]}
    return {field: repr(name) for field, name in fields.items()} | {"condition": condition}


def _condition(schema: Schema, column: str) -> str:
    """A condition of ``where`` on a column: ``age=(30, None)``, or ``sex='Male'``."""
    value: object
    if schema.columns[column].type == "categorical":
        value = schema.categorical(column).labels[0]
    else:
        numeric = schema.numeric(column)
        middle = numeric.edge(max(1, numeric.cells // 2))
        value = (int(middle) if middle.is_integer() else middle, None)  # at least the middle
    plain = column.isidentifier() and not keyword.iskeyword(column) and column != "handle"
    return f"{column}={value!r}" if plain else f"**{{{column!r}: {value!r}}}"


def lesson_of_name(schema: Schema, name: str, *, of_parts: bool, names: Iterable[str]) -> Lesson:
    """The error for an attribute that a handle does not have."""
    kind = "Parts" if of_parts else "A handle"
    has_none = f"{kind} {'have' if of_parts else 'has'} no `{name}`"
    if (wanted := name.removeprefix("noisy_")) in LESSONS:
        line = LESSONS[wanted]
        return _lesson(f"{has_none}. To {line.wish} write", _code(schema, line, of_parts))
    if name in schema.columns:
        return _lesson(f"{has_none}: columns are asked by name. Write", _column_code(schema, name, of_parts))
    return Lesson(f"{has_none}{closest(name, names)}; it has {', '.join(sorted(names))}.")


def lesson_of_setting(name: str) -> Lesson:
    """The error for ``h.anything = 3``."""
    return Lesson(
        f"A handle is not changed, and `{name}` cannot be set on it: it holds no rows, and every verb takes words."
    )


def lesson_of_columns(schema: Schema, item: object) -> Lesson:
    """The error for ``h["age"]`` and other items in brackets."""
    if isinstance(item, str):
        schema.column(item)  # an unknown one is said first
        return _lesson("A handle shows no column. To ask about it write", _column_code(schema, item, False))
    if isinstance(item, list) and item and set(map(str, item)) <= set(schema.columns):
        return _lesson(
            "A handle shows no columns. To describe them write",
            f"from miners.tables import summary\nsummary(h, {item!r}, epsilon=0.5)",
        )
    return _lesson("A handle shows no rows. To keep some write", _code(schema, LESSONS["where"], False))


def lesson_of_length() -> Lesson:
    """The error for ``len(h)``."""
    return _lesson("A handle does not say how many rows there are. To count them write", "h.noisy_count(epsilon=0.1)")


def lesson_of_arrays() -> QueryError:
    """The error for ``np.mean(h)``, ``pd.DataFrame(h)``, and a handle in place of scikit-learn's rows."""
    return QueryError(
        "A handle is no array, for nobody gets its rows. Ask it: h.noisy_avg(column, epsilon=...), or "
        "miners.tables.summary(h, epsilon=...). A miner learns from it by fit(h, target); pipelines and searches of "
        "scikit-learn take public rows, in miners.PublicRows."
    )


def _lesson(wish: str, code: str) -> Lesson:
    return Lesson("\n    ".join([f"{wish}:", *code.splitlines()]))


def _code(schema: Schema, line: Line, of_parts: bool) -> str:
    """A line's code, with its import; on parts in terms of ``parts`` if possible."""
    code = line.code.format(**_columns(schema))
    if of_parts and line.on_parts:
        code = code.replace("h.", "parts.", 1)
    if not line.of:
        return code
    return f"from {line.of} import {code.partition('(')[0]}\n{code}"


def _column_code(schema: Schema, column: str, of_parts: bool) -> str:
    """The code of a query of one column."""
    handle = "parts" if of_parts else "h"
    if schema.columns[column].type != "categorical":
        return f"{handle}.noisy_avg({column!r}, epsilon=0.1)"
    return f"from pinq import Values\n{handle}.partition(Values({column!r})).noisy_count(epsilon=0.1)"
