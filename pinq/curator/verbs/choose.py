# SPDX-License-Identifier: Apache-2.0
"""``exp_mech`` among candidates: the choice itself is in ``pinq/curator/candidates``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from pinq.curator.candidates.selection import Selection
from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about
from pinq.curator.work import NUMBER_BYTES
from pinq.errors import QueryError
from pinq.public.parts import PartSet
from pinq.public.queries import MAX_CANDIDATES, Choose
from pinq.public.schema import Schema
from pinq.public.scores import Score, require_score

__all__ = ["prepare", "within"]


def prepare(question: Choose, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares a choice among candidates. Its privacy is that of ``Selection.choose``."""
    require_score(question.score, schema)
    if sum(map(len, question.candidates)) > MAX_CANDIDATES:
        raise QueryError(f"at most {MAX_CANDIDATES:,} candidates are possible.")
    score: Score = question.score
    selection = Selection(
        schema, parts, score, question.candidates, question.which, textbook=question.textbook, each=bool(question.each)
    )

    def noise(epsilon: Fraction) -> Noise:
        shortfall = within(selection.span * selection.choices, epsilon, selection.options) / float(score.unit)
        return Noise(f"the choice's {score.kind} is within {shortfall:,.4g} of the best in 95 % of cases")

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        chosen = [spec for counted in slices for spec in selection.choose(counted, epsilon)]
        # Parts that choose A, nothing, B and A get the numbers 0, -1, 1 and 0, and (A, B) is sent
        # once.
        distinct = {spec.identity: spec for spec in chosen if spec is not None}
        number = {identity: position for position, identity in enumerate(distinct)}
        return Released([-1 if spec is None else number[spec.identity] for spec in chosen], tuple(distinct.values()))

    target = f" of {score.target}" if hasattr(score, "target") else ""
    what = about(f"exp_mech{' from each' if selection.each else ''} by {score.kind}{target}", parts)
    frame = selection.frame
    return PreparedQuery(
        parts=parts,
        about=what,
        noise=noise,
        release=release,
        tables=tuple(frame.tables),
        measure=frame.measure,
        scratch=selection.scratch,
        scored=selection.cells,
        part_bytes=selection.choices * (NUMBER_BYTES + selection.spec_bytes),
    )


def within(span: int, epsilon: Fraction, options: int) -> float:
    """Bounds how far a choice is from the best of so many options in 95 % of cases.

    The answer is in the score's integer units.

    P[score of the choice < best - t] <= options * exp(-eta t), eta = epsilon / span: a bound for
    both mechanisms.
    """
    # At span 2, epsilon .5 and 100 options: 4 ln(100 / .05) = 30.4.
    return float(span / epsilon) * math.log(max(2, options) / 0.05)
