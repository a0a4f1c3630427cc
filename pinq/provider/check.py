# SPDX-License-Identifier: Apache-2.0
"""``check`` shows how a policy fits its source, before anything is granted on it.

Exact numbers: for the provider's eyes only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from pinq.engine import EncodingReport, open_engine
from pinq.engine.sources import source_dialect
from pinq.provider.advice import advice
from pinq.provider.policy_file import load_policy
from pinq.public.policy import Policy

__all__ = ["CheckReport", "check"]


@dataclass(frozen=True)
class CheckReport:
    """How a policy fits its source. Exact numbers: for the provider's eyes only.

    Attributes:
        source_rows: Rows in the source.
        encoded_rows: Rows that queries see.
        max_rows: What the policy declares.
        over_unit: Rows beyond their privacy unit's bound, or whose unit is missing.
        left_out: For each column, rows whose value cannot be encoded.
        clamped: For each numeric column, rows outside [lower, upper].
        unreviewed: Values that were read off the data and that nobody confirmed.
        problems: What must change before the policy opens; empty when it is ready.
        advice: What is worth a look.
        unreadable: Lines of delimited text that cannot be read, by reason; they count as rows that
            are left out.
    """

    dataset: str
    source_rows: int
    encoded_rows: int
    max_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]
    unreviewed: tuple[str, ...]
    problems: tuple[str, ...]
    advice: tuple[str, ...]
    unreadable: dict[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether the policy can be granted on."""
        return not self.problems

    def to_dict(self) -> dict[str, object]:
        """Returns plain values, for JSON."""
        return asdict(self) | {"ready": self.ready}


def check(policy: str | os.PathLike[str] | Policy) -> CheckReport:
    """Encodes the source as the policy says, and counts what happened.

    It works on unreviewed policies too, which are not ready.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy)
    # Any salt will do: which of a unit's rows are kept depends on it, how many does not.
    engine, counted = open_engine(loaded, salt=b"check", report=True)
    engine.close()
    assert counted is not None
    unreviewed = tuple(loaded.unreviewed_fields())
    return CheckReport(
        loaded.dataset,
        counted.source_rows,
        counted.encoded_rows,
        loaded.max_rows,
        counted.over_unit,
        counted.left_out,
        counted.clamped,
        unreviewed,
        tuple(_problems(loaded, counted, unreviewed)),
        advice(loaded, counted),
        counted.lines.unreadable,
    )


def _problems(policy: Policy, counted: EncodingReport, unreviewed: tuple[str, ...]) -> Iterator[str]:
    """Yields what must change before the policy opens."""
    if unreviewed:
        values = _many(len(unreviewed), "value")
        yield f"{values} guessed or read off the data and not reviewed: {_listed(unreviewed)}"
    if counted.source_rows > policy.max_rows:
        rows = f"the source has {counted.source_rows:,} rows"
        yield f"{rows}, more than max_rows ({policy.max_rows:,}); declare a bound that holds"
    if counted.encoded_rows == 0:
        yield "no row can be encoded, so every answer would be noise alone"
    dialect, lines = source_dialect(policy), counted.lines
    if dialect is not None and lines.beyond(dialect.max_unreadable):
        share = dialect.max_unreadable
        yield f"{lines}; the policy allows {100 * share:g} % (`csv: {{max_unreadable: {share:g}}}`)"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
