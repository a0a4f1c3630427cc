# SPDX-License-Identifier: Apache-2.0
"""The price of a request in work, known before the charge and before any row is read.

Epsilon does not bound work: a choice among a hundred thousand families is possible at the smallest epsilon. So work has
a separate price, in units of about a millisecond of one core. The price of checking follows from the request alone
(``checking_work``), the price of counting and releasing from the prepared query (``PreparedQuery.work``).

Privacy:
    Both prices are functions of the request, the schema and the declared ``max_rows``: no row can
    change a refusal. Held by: tests/unit/curator/test_work.py.

Example: 400 ``AnyGrouping`` of a column of 16 values are 400 x 4,096 bipartitions. To draw, score
and choose among so many takes 10,000 units, ten seconds; one of a column of 3 values takes one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import chain

from pinq.errors import QueryError
from pinq.language.queries import Request
from pinq.language.specs import MAX_PARTS, Expression
from pinq.public.noise import BASE, LARGEST_SCALE
from pinq.public.schema import Schema

MAX_WORK = 600_000
"""Units of work that one request may need by default: ten minutes of a core."""

# Nanoseconds of one core, measured on a table of 30,000 rows and rounded up (benchmarks/speed/prices.py).
UNIT = 10**6
NODE, PART, SPEC, CODE = 30_000, 200, 30_000, 300
NAMED = 15_000  # a cut point, or a value of a group: to find its code, and to write its label
ROW, CELL = 8, 30
COUNTED, TAKEN = 8, 8_000  # a cell of a table that is counted; a part that is taken out of its split, for a slice
# A digit of a geometric number (pinq/public/noise.py), in 64 bits or of Python's whole numbers; a digit's table.
DIGIT, LARGE_DIGIT, DIGIT_TABLE = 80, 160, 150_000
SHARD = 2_000  # to hash one row's coin with one key
COIN = 5_000  # to make a row's coin, which numbers equal rows
# Fixed work, in cells: scoring a family for a part (at least), a plain split, a family of bipartitions, and drawing a
# bipartition.
SCORING, SPLITTING, GROUPING, MEMBER = 900, 330, 1_100, 133
MAX_CODES = 10_000  # codes of a column that are priced; of a finer grid only named codes are read


def units(nanoseconds: int) -> int:
    """Returns whole units of work, one at least."""
    # Rounded up, as // rounds down: -(-1,500,000 // 1,000,000) is 2.
    return max(1, -(-nanoseconds // UNIT))


def checking_work(request: Request, schema: Schema) -> int:
    """The units of reading and checking a request, also if it is refused later.

    An unknown column counts nothing: it is refused when its spec is bound.
    """
    parts = request.parts
    nodes, count = len(parts.nodes) + len(parts.asked), min(MAX_PARTS, max(0, math.prod(parts.shape)))
    work = NODE * nodes + PART * (count + len(request.which))
    inner = [spec for item in (request.column, request.score) if isinstance(item, Expression) for spec in item.inner()]
    for spec in (*parts.specs, *(request.by or ()), *chain(*request.candidates), *inner):
        columns = spec.columns()
        # A spec of shards names no column, and is bound all the same.
        work += SPEC * max(1, len(columns)) + NAMED * spec.named()
        # A spec of two columns of 5 and 100,000 codes reads 5 + 10,000 of them.
        work += CODE * sum(min(MAX_CODES, schema.columns[name].codes) for name in columns & schema.columns.keys())
    return units(work)


def require_work(price: int, limit: int) -> None:
    """Raises ``QueryError`` if a request costs more units of work than ``limit``."""
    if price > limit:
        raise QueryError(
            f"this would take {price:,} units of work, each about a millisecond of one core; the policy allows "
            f"{limit:,} for one request. Ask fewer parts or candidates, or coarser ones."
        )


def drawing_work(numbers: int, scale: Fraction) -> int:
    """The nanoseconds of drawing geometric numbers of a scale; a number's noise is two of them."""
    # Of a scale of 100, numbers have two digits in base 64, and one for the rest above them: 99 has 7 bits.
    digits = 1 + -(-(math.ceil(scale) - 1).bit_length() // (BASE.bit_length() - 1))
    return digits * (numbers * (DIGIT if scale <= LARGEST_SCALE else LARGE_DIGIT) + DIGIT_TABLE * (numbers > 0))
