# SPDX-License-Identifier: Apache-2.0
"""``History`` shows an analyst's lines of the log as a frame that fits a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from shutil import get_terminal_size

import pandas as pd

from pinq.public.queries import Asked

__all__ = ["History"]

NARROWEST = 12  # characters of a question or an answer on a small terminal
FIXED = 62  # characters of the row number, time, losses and outcome


class History(pd.DataFrame):
    """A row for each charge and refusal, oldest first; what is computed from it is a plain frame.

    Columns: ``at`` (datetime64, UTC), ``asked``, ``epsilon`` and ``spent`` (float64; no epsilon
    where the request was refused), ``outcome``, ``answer``.
    """

    @classmethod
    def of(cls, lines: Iterable[tuple[Asked, object]]) -> History:
        """Builds the frame of lines of the log, each with its answer in the schema's values."""
        lines = list(lines)
        asked = [line for line, _ in lines]
        texts = pd.Series([line.at for line in asked], dtype=object)
        at = pd.to_datetime(texts, utc=True, format="ISO8601", errors="coerce")
        return cls(
            {
                "at": at.dt.as_unit("ms"),
                "asked": pd.Series([line.about for line in asked], dtype=object),
                "epsilon": pd.Series([line.epsilon for line in asked], dtype=object).astype("float64"),
                "spent": pd.Series([line.spent for line in asked], dtype=object).astype("float64"),
                "outcome": pd.Series([line.outcome for line in asked], dtype=object),
                "answer": pd.Series([answer for _, answer in lines], dtype=object),
            }
        )

    def __repr__(self) -> str:
        """Writes the frame as wide as the terminal, no column left out.

        Long questions and answers are cut.
        """
        # A terminal of 120 columns leaves 58: 38 for questions and 19 for answers.
        room = get_terminal_size((120, 24)).columns - FIXED
        widths = {"asked": max(NARROWEST, 2 * room // 3), "answer": max(NARROWEST, room // 3)}
        short = {name: [_short(value, widths.get(str(name))) for value in self[name]] for name in self.columns}
        rows = {name: pd.get_option(f"display.{name}") for name in ("max_rows", "min_rows")}
        text: str = pd.DataFrame(short, index=self.index).to_string(**rows)
        return text


def _short(value: object, width: int | None) -> str:
    if isinstance(value, pd.Timestamp):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float) and width is None:
        return "" if value != value else f"{value:g}"
    text = "" if value is None else str(value)
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"
