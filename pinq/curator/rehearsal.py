# SPDX-License-Identifier: Apache-2.0
"""``Rehearsals`` runs each kind of request on made-up rows before one of that kind is charged.

Whether an answer or an error comes after a charge is a release like any other: an error that only
some rows raise tells these rows apart, at any epsilon. So the functions that read rows are total:
what a request needs is computed from the request and the schema, and reading a row is indexing that
cannot fail. Here counting, scores, choices and noise run once on rows that nobody has, before the
charge: on none, and on rows inside and outside of asked parts (``pinq/engine/rehearsal.py``). A
request that fails on these is refused, uncharged, with an ``InternalError`` that asks for a report.
Noise that is drawn here is thrown away; nothing of it is released.

A request is of several *kinds*, one for each way in which it looks rows up: its question, and cuts,
groups or codes in so many parts to a power of two. What is of one kind runs through the same code;
so a request is rehearsed where one of its kinds is new, on some parts of each.

Privacy:
    Adjacency: any two tables. Claim: what a rehearsal does and decides is the same for both.
    Why: it sees the schema, the request and rows made of these two (privacy.md, section 12).
    What it adds to the argument: a fault in code that reads rows is found by a request that nobody
    is charged for, before it can tell rows apart. It is no proof that there is none; deadlines and
    allocations follow rows too and stay outside the guarantee (docs/threat-model.md).
    Held by: tests/unit/curator/test_rehearsal.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

import numpy as np

from pinq.curator.verbs import prepare
from pinq.curator.verbs.prepared import PreparedQuery
from pinq.curator.work import Turn
from pinq.engine.rehearsal import Rehearsal
from pinq.engine.tables import Moments
from pinq.public.parts import PartSet
from pinq.public.queries import Question
from pinq.public.schema import Schema

__all__ = ["Rehearsals"]

KEPT_KINDS = 2**14  # so many kinds are remembered: some 10 MB
SAMPLED_DRAWS = 64  # numbers that get noise: however many a request has, a rehearsal takes a moment


class Rehearsals:
    """The kinds of requests that passed on made-up rows, under one schema.

    Args:
        schema: What requests are asked of.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._passed: set[Hashable] = set()

    def require(self, question: Question, query: PreparedQuery, epsilon: Fraction, turn: Turn) -> None:
        """Runs a request on made-up rows, unless one of its kind passed.

        Args:
            question: What is asked.
            query: The same, prepared.
            epsilon: Its loss for one row.
            turn: When it ends, the rehearsal ends.

        Raises:
            Exception: Whatever the code of this kind of request raises.
        """
        common = _common(question, query, epsilon)
        new = {(common, way) for way in _ways(query)} - self._passed
        if not new:
            return
        numbers = _sample(question, query.parts, {way for _, way in new})
        some = prepare(question.sample(numbers), query.parts.take(np.array(numbers)), self._schema)
        for filled in (False, True):
            engine = Rehearsal(self._schema, filled=filled)
            if len(numbers) < len(query.parts):
                next(query.count(engine, turn))  # what is compiled for all parts counts too
            some.release(some.count(engine, turn, SAMPLED_DRAWS), epsilon)
        if len(self._passed) >= KEPT_KINDS:
            self._passed = set()
        self._passed |= new


def _common(question: Question, query: PreparedQuery, epsilon: Fraction) -> Hashable:
    """The question, what it adds up, and sizes, which are alike where they have as many bytes."""
    measure = query.measure
    summed = (measure.column, measure.shift, measure.squares) if isinstance(measure, Moments) else type(measure)
    sizes = [len(query.tables), len(query.parts), len(query.parts.blocks), int(1 / epsilon)]
    return question.form(), summed, *((size.bit_length() + 7) // 8 for size in sizes)


def _ways(query: PreparedQuery) -> set[Hashable]:
    """All ways in which a request looks rows up: on the way down, in the last split, in tables, to add up."""
    last = {block.partition for block in query.parts.blocks}
    return {
        *(("down", partition.form) for partition in query.partitions),
        *(("last", None if partition is None else partition.form) for partition in last),
        *(("table", table.form, *((axis.column, axis.form) for axis in table.axes)) for table in query.tables),
        *(("sum", axis.form) for axis in (() if query.measure is None else query.measure.inputs)),
    }


def _sample(question: Question, parts: PartSet, new: set[Hashable]) -> list[int]:
    """Picks parts, by number: the first, and some for each of these ways in which rows are looked up."""
    chosen, missing, walked = {0, *question.examples()}, set(new), set[bytes]()
    start = 0
    for block in parts.blocks:
        ways: set[Hashable] = {("last", None if block.partition is None else block.partition.form)}
        part = block.part
        while part.partition is not None and part.parent is not None and part.key not in walked:
            walked.add(part.key)  # what lies above it was seen with another part
            ways.add(("down", part.partition.form))
            part = part.parent
        if ways & missing:
            missing -= ways
            chosen |= {start, start + len(block) - 1}
        start += len(block)
    return sorted(chosen)
