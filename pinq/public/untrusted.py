# SPDX-License-Identifier: Apache-2.0
"""What bounds the price of reading a request, before anything is known of it.

A text of 8 MB that is no request must not take more to refuse than one that is. Pydantic notes every
item that is wrong, in a thousand times its bytes: 2,800,000 empty lists in the place of nodes were
9.6 GB and 85 s. It also keeps an array in ten times its bytes while it reads.
"""

from __future__ import annotations

import json
from typing import Annotated, TypeVar

from pydantic import Field

from pinq.errors import QueryError

__all__ = ["TupleOf", "require_bounded"]

MAX_OPENINGS = 600_000  # the largest request of 8 MB has 540,000
MAX_FIELDS = 64

T = TypeVar("T")

TupleOf = Annotated[tuple[T, ...], Field(fail_fast=True)]
"""Any number of something; the first one that is wrong ends the reading."""


def require_bounded(text: str | bytes) -> None:
    """``QueryError`` where a text has more arrays or fields than a request, or a field twice.

    A text that is no JSON passes: whoever reads it says what is wrong.
    """
    plain = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if plain.count(b"[") + plain.count(b"{") > MAX_OPENINGS:
        raise QueryError(
            f"the request has more than {MAX_OPENINGS:,} arrays and objects. Ask about fewer parts at a time."
        )
    try:
        json.loads(plain, object_pairs_hook=_require_fields)
    except QueryError:
        raise
    except (ValueError, RecursionError):
        pass


def _require_fields(pairs: list[tuple[str, object]]) -> None:
    """``QueryError`` where an object has a key twice, or far more keys than any of ours.

    Readers differ in which of the two counts.
    """
    if len(pairs) > MAX_FIELDS:
        raise QueryError(f"the request has an object of {len(pairs):,} fields; none has more than {MAX_FIELDS}.")
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise QueryError(f"the request says {key[:40]!r} twice.")
        seen.add(key)
