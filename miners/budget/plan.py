# SPDX-License-Identifier: Apache-2.0
"""What a miner is going to ask, at what cost and with how much noise: known before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from html import escape

from pinq.public.epsilon import NANO, show

__all__ = ["Plan", "PlanLine"]

HEADINGS = ("level", "asked", "of at most", "epsilon", "noise")


@dataclass(frozen=True)
class PlanLine:
    """One question to all nodes of a level.

    Attributes:
        level: Splits above the nodes that are asked.
        asked: What is asked, for people.
        verb: The verb of the handle.
        parts: The most parts that can be asked; usually far fewer are.
        epsilon: What it costs, for all parts together.
        noise: Standard deviation of the noise in each number; for a choice, the scale of its noise:
            among m candidates the one chosen falls short of the best by about ln(m) times that.
            None where there is no one number for it.
        unit: Of ``noise``.
    """

    level: int
    asked: str
    verb: str
    parts: int
    epsilon: Fraction
    noise: float | None = None
    unit: str = "rows"

    def cells(self) -> tuple[str, ...]:
        """The line as texts, one for each heading."""
        parts = f"{self.parts:,} {'part' if self.parts == 1 else 'parts'}" if self.parts < 10**9 else "very many parts"
        return (
            str(self.level),
            self.asked,
            parts,
            show(int(self.epsilon * NANO)),
            "" if self.noise is None else f"±{rows_text(self.noise)} {self.unit}",
        )


@dataclass(frozen=True)
class Plan:
    """All questions of a fit, in order.

    Attributes:
        title: What is planned.
        lines: One for each request.
        total: What the fit costs in all; never more.
        notes: What is worth knowing, one sentence each.
        warnings: What is likely to go wrong, one sentence each.
    """

    title: str
    lines: tuple[PlanLine, ...]
    total: Fraction
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        table = [HEADINGS, *(line.cells() for line in self.lines), ("", "in all", "", show(int(self.total * NANO)), "")]
        wide = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
        right = {0, 2, 4}
        rows = [
            "  ".join(
                cell.rjust(w) if i in right else cell.ljust(w)
                for i, (cell, w) in enumerate(zip(row, wide, strict=True))
            ).rstrip()
            for row in table
        ]
        rule = "-" * max(len(row) for row in rows)
        text = [self.title, rule, rows[0], rule, *rows[1:-1], rule, rows[-1]]
        text += [f"Note: {note}" for note in self.notes]
        text += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
        body = "".join(_row(line.cells()) for line in self.lines)
        foot = _row(("", "in all", "", show(int(self.total * NANO)), ""), "th")
        after = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        after += "".join(f"<p><b>Warning:</b> {escape(warning)}</p>" for warning in self.warnings)
        return f"<p>{escape(self.title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table>{after}"


def rows_text(rows: float) -> str:
    """A number of rows to about two figures: ``0.3``, ``14``, ``2,300``."""
    if rows >= 1000:
        return f"{round(rows, -2):,.0f}"
    return f"{rows:.0f}" if rows >= 10 else f"{rows:.1f}"


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag} style='text-align:left'>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
