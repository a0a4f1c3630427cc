# SPDX-License-Identifier: Apache-2.0
"""What a request costs in work, known before it is charged, and the limit of one request.

Epsilon does not bound work: a choice among a hundred thousand families may be asked at the least
epsilon there is. So work has a price of its own, in units of about a millisecond of one core. It is
made in two steps: what checking a request takes follows from the request alone and is known before
anything is bound to the schema; what counting and releasing take, from what was prepared.

Privacy:
    Both prices are functions of the request, the schema and the declared ``max_rows``: no row can
    change a refusal. Held by: tests/unit/curator/test_work.py.

Example: 400 ``AnyGrouping`` of a column of 16 values are 400 x 4,096 bipartitions. To draw, score
and choose among so many takes 10,000 units, ten seconds; one of a column of 3 values takes one.
"""

from __future__ import annotations

import math

from pinq.errors import QueryError
from pinq.public.queries import Request
from pinq.public.schema import Schema
from pinq.public.specs import MAX_PARTS, Expression

__all__ = ["CELL", "COIN", "MAX_WORK", "NOISE", "PART", "ROW", "SHARD", "checking_work", "require_work", "units"]

MAX_WORK = 600_000
"""Units that one request may need where the policy names no other limit: ten minutes of a core."""

# Nanoseconds of one core, measured on a table of 30,000 rows and rounded up.
UNIT = 10**6
NODE, PART, SPEC, CODE = 30_000, 3_000, 30_000, 300
NAMED = 15_000  # a cut point, or a value of a group: to find its code, and to write down what it parts
ROW, CELL, NOISE = 8, 30, 20_000
SHARD = 2_000  # to hash one row's coin with one key
COIN = 5_000  # to make a row's coin, which numbers equal rows

MAX_CODES = 10_000  # of a finer grid, only those that a spec names are looked at


def units(nanoseconds: int) -> int:
    """Returns whole units of work, one at least."""
    # Rounded up, as // rounds down: -(-1,500,000 // 1,000,000) is 2.
    return max(1, -(-nanoseconds // UNIT))


def checking_work(request: Request, schema: Schema) -> int:
    """Returns the units that reading and checking a request take, whatever becomes of it.

    An unknown column counts nothing: it is refused when its spec is bound.
    """
    parts, candidates = request.parts, [item for listed in request.candidates for item in listed]
    nodes, asked = len(parts.nodes) + len(parts.asked), min(MAX_PARTS, max(0, math.prod(parts.shape)))
    inner = [spec for item in (request.column, request.score) if isinstance(item, Expression) for spec in item.inner()]
    specs = (*parts.specs, *(request.by or ()), *candidates, *inner)
    # A spec of two columns of 5 and 100,000 codes reads 5 + 10,000 of them.
    codes = sum(
        min(MAX_CODES, schema.columns[name].codes) for spec in specs for name in spec.columns() & schema.columns.keys()
    )
    # A spec of shards names no column, and is bound all the same.
    axes = sum(max(1, len(spec.columns())) for spec in specs)
    named = sum(spec.named() for spec in specs)
    return units(NODE * nodes + PART * (asked + len(request.which)) + SPEC * axes + CODE * codes + NAMED * named)


def require_work(price: int, limit: int) -> None:
    """``QueryError`` where a request costs more units of work than one request may."""
    if price > limit:
        raise QueryError(
            f"this would take {price:,} units of work, each about a millisecond of one core; the policy allows "
            f"{limit:,} for one request. Ask fewer parts or candidates, or coarser ones."
        )
