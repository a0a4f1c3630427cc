# SPDX-License-Identifier: Apache-2.0
"""``exp_mech`` by ``ClassCount``: a noisy majority vote among the values of a column."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from pinq.curator.candidates.selection import choose_evenly
from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about
from pinq.curator.verbs.choose import within
from pinq.engine.tables import TableRequest
from pinq.public.parts import PartSet
from pinq.public.queries import Vote
from pinq.public.schema import Schema
from pinq.public.specs import Values, bind

__all__ = ["prepare"]


def prepare(question: Vote, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares a vote.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: parts are disjoint; a row adds 1 to the count of one value of one part, so scores
        change by at most 1, all in one direction.
    """
    score = question.score
    score.check(schema)
    column = schema.categorical(score.target)
    span = (2 * score.sensitivity(schema)) if question.textbook else score.span(schema)

    def noise(epsilon: Fraction) -> Noise:
        shortfall = within(span, epsilon, column.codes)
        return Noise(f"the choice's {score.kind} is within {shortfall:,.4g} of the best in 95 % of cases")

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        chosen = []
        for counted in slices:
            for counts in counted.array():
                counted.turn.check()
                chosen.append(choose_evenly(counts, span, epsilon, textbook=question.textbook))
        return Released(chosen)

    classes = (TableRequest(bind(Values(score.target), schema).axes),)
    what = about(f"exp_mech by {score.kind} of {score.target}", parts)
    return PreparedQuery(parts=parts, about=what, noise=noise, release=release, tables=classes)
