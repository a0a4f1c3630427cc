# SPDX-License-Identifier: Apache-2.0
"""Answers and histories as pandas frames.

Imported when the first frame is made, because pandas takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from shutil import get_terminal_size

import numpy as np
import pandas as pd

from pinq.language.parts import PartSet
from pinq.language.queries import Asked
from pinq.public.checks import many

SHOWN_ROWS = 20  # of a table in a notebook
SHOWN = ["at", "asked", "epsilon", "spent", "outcome", "answer"]
NUMBERS = ("value", "low", "high", "scale", "epsilon")  # columns of every answer
AXES = ("cell", "entry")  # of the sums of a loss, below the parts
NARROWEST = 12  # characters of a query or an answer on a small terminal
FIXED = 62  # characters of the row number, time, losses and outcome


def keys_of(parts: PartSet | None) -> pd.DataFrame:
    """The labels of each part, in flat order; the label of missing values is None.

    A single number (None) has no key. Parts of several partitions have one column, ``part``. A key with the name of one
    of the answer's numbers gets an underscore: a column ``value`` becomes ``value_``.
    """
    if parts is None:
        return pd.DataFrame(index=[0])
    block = parts.blocks[0] if len(parts.blocks) == 1 else None
    if block is None or block.partition is None:
        return pd.DataFrame({"part": [str(part) for part in parts]})
    columns = [axis.column or "shard" for axis in block.partition.axes]
    names = [f"{name}_" if name in NUMBERS else name for name in columns]
    rows = [block.partition.labels(number) for number in range(len(block))]
    # If pandas chooses the type of a column, a missing label becomes nan, and whole numbers in the
    # column become floats.
    return pd.DataFrame(rows, columns=names, dtype=object if any(None in row for row in rows) else None)


def with_axes(keys: pd.DataFrame, shape: tuple[int, ...]) -> pd.DataFrame:
    """Repeats each row of a part for each of its numbers, of this shape, and numbers these rows."""
    numbers = int(np.prod(shape))
    if not shape:
        return keys
    repeated = keys.loc[np.repeat(keys.index, numbers)].reset_index(drop=True)
    for name, positions in zip(AXES[-len(shape) :], np.indices(shape).reshape(len(shape), -1), strict=True):
        repeated[name] = np.tile(positions, len(keys))
    return repeated


def answer_html(title: str, frame: pd.DataFrame) -> str:
    """An answer as HTML: its title, and the first rows of its table."""
    more = f"<p>... and {len(frame) - SHOWN_ROWS:,} more</p>" if len(frame) > SHOWN_ROWS else ""
    table = frame.head(SHOWN_ROWS).to_html(index=False, float_format="{:g}".format)
    return f"<p>{escape(title)}</p>{table}{more}"


class History(pd.DataFrame):
    """A row for each charge and refusal, oldest first, printed by acts; results computed from it are plain frames.

    Columns: ``at`` (datetime64, UTC), ``asked``, ``epsilon`` and ``spent`` (float64; no epsilon
    where the request was refused), ``outcome``, ``answer``; and ``act``, the act that the analyst
    named, and ``run``, which distinguishes acts of one name.
    """

    @classmethod
    def of(cls, lines: Iterable[tuple[Asked, object]]) -> History:
        """The frame of lines of the log, each with its answer in the schema's values."""
        rows = [
            (line.at, _about(line), line.epsilon, line.spent, line.outcome, answer)
            + (("", "") if line.act is None else (line.act.name, line.act.run))
            for line, answer in lines
        ]
        frame = cls(rows, columns=[*SHOWN, "act", "run"], dtype=object)
        at = pd.to_datetime(frame["at"], utc=True, format="ISO8601", errors="coerce")
        return cls(frame.assign(at=at.dt.as_unit("ms")).astype({"epsilon": "float64", "spent": "float64"}))

    def acts(self) -> pd.DataFrame:
        """Sums up the queries of each act in one row, with their total cost; a query without an act keeps its row."""
        # The cost of a query is the growth of the total; the first query of all costs its epsilon.
        cost = self["spent"].diff().fillna(self["epsilon"]).fillna(0.0)
        numbered = pd.Series(np.arange(len(self)), index=self.index, dtype=object)
        act = self["run"].where(self["act"] != "", numbered)
        grouped = pd.DataFrame(self).assign(cost=cost).groupby(act, sort=False)
        # As objects first, because pandas would turn missing answers and whole numbers into floats.
        acts = pd.DataFrame([_summed(queries) for _, queries in grouped], columns=SHOWN, dtype=object)
        return acts.astype({name: self[name].dtype for name in ("at", "epsilon", "spent")})

    def __repr__(self) -> str:
        """Writes the acts as wide as the terminal, with all columns; long queries and answers are shortened."""
        # A terminal of 120 columns leaves 58: 38 for queries and 19 for answers.
        room = get_terminal_size((120, 24)).columns - FIXED
        widths = {"asked": max(NARROWEST, 2 * room // 3), "answer": max(NARROWEST, room // 3)}
        acts = self.acts()
        short = {name: [_short(value, widths.get(str(name))) for value in acts[name]] for name in SHOWN}
        rows = {name: pd.get_option(f"display.{name}") for name in ("max_rows", "min_rows")}
        return pd.DataFrame(short).to_string(**rows) + self._note

    def _repr_html_(self) -> str:
        return f"{self.acts().to_html(na_rep='')}<p>{escape(self._note)}</p>"

    @property
    def _note(self) -> str:
        return f"\n{many(len(self), 'question')}; pd.DataFrame(h.history()) shows each." if any(self["act"]) else ""


def _summed(queries: pd.DataFrame) -> list[object]:
    """The row of one act, or of a query without an act."""
    first, last = queries.iloc[0], queries.iloc[-1]
    if not first["act"]:
        return [first[name] for name in SHOWN]
    counts = queries["outcome"].value_counts(sort=False)
    outcome = first["outcome"] if len(counts) == 1 else ", ".join(f"{n} {name}" for name, n in counts.items())
    text = f"{first['act']} ({many(len(queries), 'question')})"
    return [first["at"], text, round(float(queries["cost"].sum()), 9), last["spent"], outcome, None]


def _about(line: Asked) -> str:
    return line.about if line.version is None else f"{line.about} (version {line.version} of the rows)"


def _short(value: object, width: int | None) -> str:
    if isinstance(value, pd.Timestamp):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float) and width is None:
        return "" if value != value else f"{value:g}"
    text = "" if value is None else str(value)
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"
