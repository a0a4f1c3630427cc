# SPDX-License-Identifier: Apache-2.0
"""``Rehearsals`` runs each kind of request on made-up rows before one of that kind is charged.

Whether an answer or an error comes after a charge is a release like any other: an error that only
some rows raise tells these rows apart, at any epsilon. So the functions that read rows are total:
what a request needs is computed from the request and the schema, and reading a row is indexing that
cannot fail. Here counting, scores, choices and noise run once on rows that nobody has, before the
charge: on none, and on rows inside and outside of asked parts (``pinq/engine/rehearsal.py``). A
request that fails on these is refused, uncharged, with an ``InternalError`` that asks for a report.
Noise that is drawn here is thrown away; nothing of it is released.

Two things are rehearsed, each where one of its *kinds* is new: the way of rows to their parts, and
the answer of a part, with one candidate of each form. What is of one kind runs through the same
code: cuts, groups or codes, as many of them as take so many bytes; and a question, at a loss of about
this size. All handles of a process that have one schema remember what passed.

Privacy:
    Adjacency: any two tables. Claim: what a rehearsal does and decides is the same for both.
    Why: it sees the schema, the request and rows made of these two (privacy.md, section 12).
    What it adds to the argument: a fault in code that reads rows is found by a request that nobody
    is charged for, before it can tell rows apart. It is no proof that there is none; deadlines and
    allocations follow rows too and stay outside the guarantee (docs/threat-model.md).
    Held by: tests/unit/curator/test_rehearsal.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from pinq.curator.verbs import prepare
from pinq.curator.work import Deadline, PreparedQuery
from pinq.engine.rehearsal import Rehearsal
from pinq.engine.tables import Measure, Moments, TableRequest
from pinq.public.queries import Question
from pinq.public.schema import Schema
from pinq.public.specs import Partition, scale

__all__ = ["Rehearsals", "passed_under"]

KEPT_KINDS = 2**12  # so many kinds are remembered of a schema: some 3 MB
SAMPLED_DRAWS = 8  # numbers that get noise: however many a request has, a rehearsal takes a moment


@lru_cache(maxsize=64)
def passed_under(digest: str) -> set[Hashable]:
    """The kinds that passed in this process under the schema of this digest, for all its handles."""
    return set()


class Rehearsals:
    """The kinds of requests that passed on made-up rows, under one schema.

    Args:
        schema: What requests are asked of.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._passed = passed_under(schema.digest)

    def require(self, question: Question, query: PreparedQuery, epsilon: Fraction, turn: Deadline) -> None:
        """Runs on made-up rows what no request of its kind passed.

        Args:
            question: What is asked.
            query: The same, prepared.
            epsilon: Its loss for one row.
            turn: When it ends, the rehearsal ends.

        Raises:
            Exception: Whatever the code of this kind of request raises.
        """
        ways, answers = _ways(query) - self._passed, _answers(question, query, epsilon) - self._passed
        if answers:
            some = self._answering(question, query)
            for filled in (False, True):
                some.release(some.count(Rehearsal(self._schema, filled=filled), turn, SAMPLED_DRAWS), epsilon)
        if ways:
            # Where all parts have one last split, it is an axis of dense tables, and a step down to listed ones.
            for table in (TableRequest(), TableRequest((), "listed")):
                Rehearsal(self._schema, filled=True).tabulate(query.parts, [table], check=turn.check)
        if len(self._passed) >= KEPT_KINDS:
            self._passed.clear()
        self._passed |= ways | answers

    def _answering(self, question: Question, query: PreparedQuery) -> PreparedQuery:
        """The question to the first part, and to those that choose from candidates of other kinds."""
        numbers = sorted({0, *question.examples(self._schema)})
        return prepare(question.sample(numbers, self._schema), query.parts.take(np.array(numbers)), self._schema)


def _ways(query: PreparedQuery) -> set[Hashable]:
    """All ways in which rows go to their parts: down, and by the last split, to as many, some of these side by side."""
    levels = defaultdict[int, set[Partition | None]](set)
    for part in query.parts.ancestors.values():
        levels[part.depth].add(part.partition)
    last = levels[0] = {block.partition for block in query.parts.blocks}
    # Rows are looked up by one partition of a level in one way, by several in another: along one column or more.
    beside = {_columns(own) for own in levels.values() if len(own) > 1}
    depths = {block.part.depth for block in query.parts.blocks}
    several = scale(len(query.parts))[1], len(depths) > 1, *sorted(beside)
    return {
        *((several, "down", partition.form) for partition in query.parts.partitions),
        *((several, "last", partition.form) for partition in last if partition is not None),
    }


def _columns(partitions: Iterable[Partition | None]) -> int:
    """Counts what partitions look at, to two: cuts of a column are one, all else of it another."""
    axes = (axis for partition in partitions if partition is not None for axis in partition.axes)
    return min(2, len({(axis.source, axis.thresholds is None) for axis in axes}))


def _answers(question: Question, query: PreparedQuery, epsilon: Fraction) -> set[Hashable]:
    """All kinds of tables that a part's answer is made of, and of what is added up."""
    common = question.form(), _summed(query.measure), scale(len(query.tables)), scale(int(1 / epsilon))
    return {
        *((common, "table", table.form, *(axis.form for axis in table.axes)) for table in query.tables),
        *((common, "sum", axis.form) for axis in (() if query.measure is None else query.measure.inputs)),
    }


def _summed(measure: Measure | None) -> tuple[object, ...]:
    if isinstance(measure, Moments):
        return measure.column, measure.shift, measure.squares, measure.last - measure.first
    return type(measure), 0 if measure is None else measure.width  # a loss with second derivatives has wider vectors
