# SPDX-License-Identifier: Apache-2.0
"""What ``pinq check`` notes about a policy that opens, but may not do what was meant.

Exact numbers: for the provider's eyes only.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from fractions import Fraction

from pinq.engine import EncodingReport
from pinq.engine.sources import source_dialect
from pinq.errors import LedgerError, PolicyError
from pinq.ledger.ledger import Ledger
from pinq.provider.claim import ledger_url
from pinq.public.epsilon import Epsilon
from pinq.public.policy import Policy
from pinq.public.schema import unit_text

__all__ = ["advice"]

NOTED_SHARE = 0.1  # from this share of rows on, what is lost of them is noted


def advice(policy: Policy, counted: EncodingReport) -> tuple[str, ...]:
    """What is worth a look.

    Args:
        policy: What was declared.
        counted: What became of the source's rows.
    """
    return (*_lines(policy, counted), *_losses(policy, counted), *_uneven(policy), *_pending_cap(policy))


def _lines(policy: Policy, counted: EncodingReport) -> list[str]:
    """Lines of a text file that cannot be read, where the policy allows so many."""
    dialect, lines = source_dialect(policy), counted.lines
    if dialect is None or not lines.lost or lines.beyond(dialect.max_unreadable):
        return []
    return [f"{lines}; they are left out"]


def _losses(policy: Policy, counted: EncodingReport) -> list[str]:
    """Notes rows that are left out, clamped, or over their unit's bound, where they are many."""

    def many(count: int) -> bool:
        return 0 < count >= NOTED_SHARE * counted.source_rows

    def share(count: int) -> str:
        return f"{count:,} rows ({100 * count / counted.source_rows:.0f} %)"

    notes = [
        f"{name}: {share(count)} have no declared value and are left out; declare it, or `nullable: true`"
        for name, count in counted.left_out.items()
        if many(count)
    ]
    notes += [
        f"{name}: {share(count)} lie outside [lower, upper] and count as the nearer bound"
        for name, count in counted.clamped.items()
        if many(count)
    ]
    if many(counted.over_unit):
        notes.append(
            f"privacy_unit: {share(counted.over_unit)} are beyond the bound of "
            f"{unit_text(policy.bounded_unit)}, or name no unit, "
            "and are left out; a higher bound keeps more and makes more noise"
        )
    return notes


def _uneven(policy: Policy) -> list[str]:
    """Notes grids whose last cell is cut off at ``upper``: 140 to 210 in steps of 0.03."""
    notes = []
    for name, column in policy.columns.items():
        if column.type == "categorical" or column.integer or column.step is None:
            continue
        end = column.lower + column.cells * column.step
        if Fraction(end) != Fraction(column.upper):
            middle = f"{column.number(column.cells - 1):g}"
            notes.append(
                f"{name}: {column.lower} to {column.upper} is no whole number of steps of {column.step}; the "
                f"last cell is cut off "
                f"at `upper`, and what lies in it counts as {middle}. With `upper: {end}` all cells are equal"
            )
    return notes


def _pending_cap(policy: Policy) -> list[str]:
    """Notes that the log has another cap, and from when on this one counts.

    It looks at a ledger file that is there, and makes none.
    """
    with suppress(
        LedgerError, PolicyError, OSError
    ):  # of no concern here: what needs the ledger says what is wrong with it
        url = ledger_url(policy, read_only=True)
        if "://" in url or not os.path.exists(url):
            return []
        with closing(Ledger(url, policy.dataset, read_only=True)) as ledger:
            cap = ledger.together().cap
        own = Epsilon(policy.cap_nano)
        if own < cap:
            when = "a lower cap counts from the next `pinq grant` or `extend`, opening or start of a server on"
        else:
            when = "a higher cap counts from the next `pinq grant` or `extend`, or start of a server on"
        return [f"cap: the log has {cap}, this policy {own}; {when}"] if own != cap else []
    return []
