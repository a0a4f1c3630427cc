# SPDX-License-Identifier: Apache-2.0
"""Learned distances as a table and for a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd

__all__ = ["LIMITS", "contexts_text", "distances_frame", "fitted_html"]

SHOWN_FRAMES, SHOWN_VALUES = 3, 20  # frames in a notebook's view, and the largest of them
LIMITS = (
    "Values are near where other columns of this table go alike with them; that is no judgement of what they mean.",
    "Distances of rare values are mostly noise, shrunk towards those of a value that goes with everything alike.",
)


def distances_frame(distances: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns a row for each two values of each attribute, the first before the second."""
    rows = [
        (name, value, frame.columns[other], frame.iat[number, other])
        for name, frame in distances.items()
        for number, value in enumerate(frame.index)
        for other in range(number + 1, len(frame))
    ]
    return pd.DataFrame(rows, columns=["attribute", "value", "other", "distance"])


def contexts_text(contexts: Mapping[str, Sequence[str]]) -> str:
    """Returns each attribute with its context, in a line."""
    return "; ".join(f"{name} by {', '.join(context)}" for name, context in contexts.items())


def fitted_html(
    title: str, contexts: Mapping[str, Sequence[str]], left_out: Sequence[str], distances: Mapping[str, pd.DataFrame]
) -> str:
    """Returns contexts and the first distances as HTML."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(', '.join(context))}</td></tr>"
        for name, context in contexts.items()
    )
    columns = "<thead><tr><th>attribute</th><th>context</th></tr></thead>"
    unused = ""
    if left_out:
        unused = f"<p>Left out, for they have a single declared value: {escape(', '.join(left_out))}</p>"
    small = [(name, frame) for name, frame in distances.items() if len(frame) <= SHOWN_VALUES]
    frames = "".join(
        f"<p>Distances between values of <b>{escape(name)}</b></p>{frame.round(3).to_html()}"
        for name, frame in small[:SHOWN_FRAMES]
    )
    return f"<p>{escape(title)}</p><table>{columns}<tbody>{rows}</tbody></table>{unused}{frames}"
