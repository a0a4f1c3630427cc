# SPDX-License-Identifier: Apache-2.0
"""A forecast tells what DP-DILCA will ask for a task, what it costs, and how noisy it will be."""

from __future__ import annotations

from collections.abc import Sequence

from miners.budget.plan import Plan, PlanLine, count_scale, rows_text
from miners.distances.task import ContextTask
from pinq.public.accuracy import standard_deviation
from pinq.public.epsilon import Epsilon
from pinq.public.scores import ENTROPY_BITS, MutualInformation

__all__ = ["forecast"]

ONE_TABLE = (
    "a table of two attributes is asked once where each is in the other's context; "
    "then the others get more of the budget."
)


def forecast(task: ContextTask, left_out: Sequence[str], rows: int) -> Plan:
    """Returns the plan of a fit.

    Args:
        task: What is to be learned.
        left_out: Columns that have a single declared value.
        rows: How many rows the table has at most. For the warning only.
    """
    lines = [*_selection_lines(task), *_table_lines(task)]
    targets = f"{len(task.targets):,} {'attribute' if len(task.targets) == 1 else 'attributes'}"
    title = (
        f"DPDilca: distances between the values of {targets}, "
        f"contexts by {task.method} among {len(task.splits):,} attributes"
    )
    notes = [ONE_TABLE] if task.table_epsilon else []
    if left_out:
        notes.append(f"left out, for they have a single declared value: {', '.join(left_out)}.")
    return Plan(title, tuple(lines), task.total.exact, tuple(notes), _warnings(task, lines[-1].noise or 0.0, rows))


def _selection_lines(task: ContextTask) -> list[PlanLine]:
    """Returns the line of the questions that find contexts, if any."""
    cost = task.selection_epsilon
    if task.choices:
        attribute = "attribute" if task.method == "max_relevance" else f"set of {task.size} attributes"
        span = MutualInformation(task.targets[0]).span(task.schema) * task.schema.distance
        slack = float(span * task.choices / cost.exact) / 2**ENTROPY_BITS
        return [PlanLine(0, f"best {attribute} for a context", "exp_mech", task.choices, cost.exact, slack, "bits")]
    if not cost:
        return []
    pairs = len(task.selection_pairs)
    noise = _deviation(task, cost // pairs)
    return [PlanLine(0, "tables of pairs, to find contexts by", "noisy_count", pairs, cost.exact, noise)]


def _table_lines(task: ContextTask) -> list[PlanLine]:
    """Returns the line of the tables that distances are computed from, if any."""
    if not task.table_epsilon:
        return []
    cost = task.table_epsilon
    noise = _deviation(task, cost // task.max_pairs)
    return [PlanLine(1, "tables of each target and its context", "noisy_count", task.max_pairs, cost.exact, noise)]


def _warnings(task: ContextTask, noise: float, rows: int) -> tuple[str, ...]:
    """Returns a warning where counts would not stand out of the noise, if rows are evenly spread.

    For example, 1,000 rows in a table of 20 by 5 values leave 10 rows for each cell: noise of a
    deviation above 10 brings the warning.
    """
    largest = max(task.parts(name) for name in task.targets)
    other = sum(task.parts(name) for name in task.splits) / len(task.splits)
    if rows >= largest * other * noise:
        return ()
    return (
        f"with at most {rows:,} rows, the cells of a table of the widest target hold about "
        f"{rows_text(rows / (largest * other))} rows, and the noise of each is ±{rows_text(noise)}: "
        "distances between its rarer values say little. "
        "A larger `epsilon`, fewer targets or a smaller `k` helps.",
    )


def _deviation(task: ContextTask, epsilon: Epsilon) -> float:
    """Returns the standard deviation of the noise in a cell of a table that costs ``epsilon``."""
    return standard_deviation(count_scale(task.schema, epsilon))
