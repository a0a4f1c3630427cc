# SPDX-License-Identifier: Apache-2.0
"""How each question is answered: one file each, with one ``prepare``.

``pinq/curator/prepared.py`` says what that is; ``count.py`` is the shortest to read first. What is prepared
looks at public facts alone: it refuses what cannot be asked, and says what to tabulate, how exact
an answer will be, and how exact tables become a noisy release. The curator charges between the two.

To add a question: its class (``pinq/public/queries.py``), its file here, and its line in
``PREPARE``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinq.curator.prepared import PreparedQuery
from pinq.curator.verbs import average, choose, count, derivatives, stop, vote
from pinq.curator.verbs import sum as total
from pinq.public.parts import PartSet
from pinq.public.queries import Average, Choose, Count, Question, Stop, Sum, SumDerivatives, Vote
from pinq.public.schema import Schema

__all__ = ["PREPARE", "prepare"]

PREPARE: dict[type[Question], Callable[[Any, PartSet, Schema], PreparedQuery]] = {
    Count: count.prepare,
    Sum: total.prepare,
    SumDerivatives: derivatives.prepare,
    Average: average.prepare,
    Choose: choose.prepare,
    Vote: vote.prepare,
    Stop: stop.prepare,
}


def prepare(question: Question, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Checks a question against the schema.

    ``QueryError`` where it cannot be asked of these parts.
    """
    return PREPARE[type(question)](question, parts, schema)
