# SPDX-License-Identifier: Apache-2.0
"""``closest`` says which name was perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

__all__ = ["closest"]

CLOSE = 0.65  # share of letters that a suggestion has in common with what was written
MOST_COMPARED = 5000


def closest(name: str, names: Iterable[object]) -> str:
    """Writes `` (did you mean 'x'?)`` where one of the names is close, else nothing.

    Case counts for nothing: ``male`` is ``'Male'`` before it is a misspelt ``'Female'``.
    """
    folded = {str(known).casefold(): known for known in names}
    wanted = name.casefold()
    # Comparing letter by letter is slow, and a domain may have a million values.
    compared = [wanted] if wanted in folded else list(islice(folded, MOST_COMPARED))
    matches = difflib.get_close_matches(wanted, compared, n=1, cutoff=CLOSE)
    return f" (did you mean {folded[matches[0]]!r}?)" if matches else ""
