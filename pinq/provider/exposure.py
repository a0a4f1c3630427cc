# SPDX-License-Identifier: Apache-2.0
"""Findings about rows by which a policy reveals more about persons than it promises, for the provider alone.

They are persons with rows of several privacy units, values that few persons have, and rows lost by an undeclared value.
A finding that breaks the promise keeps a policy from being ready until the provider gives a reason for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pinq.engine import RawTable, profile, read_columns
from pinq.engine.sources import quoted
from pinq.policy.plain_yaml import plain_number
from pinq.policy.policy import Policy
from pinq.provider.persons import (
    FEW,
    FEWEST,
    PERSONS,
    Unit,
    counted_over,
    may_name_persons,
    persons_of_values,
    rank_units,
    standing_out,
    telling_look,
    telling_name,
)
from pinq.provider.review import ACCEPTED
from pinq.public.checks import first_of, text_of
from pinq.public.columns import round_up
from pinq.public.schema import Categorical

MOST_VALUES = 1000  # values of a column that are compared with its rows
SHOWN = 3


@dataclass(frozen=True)
class SourceFinding:
    """A fact of the rows, and advice.

    Attributes:
        text: The fact and what to do.
        name: The key of its reason in ``reviewed``; empty if it needs no reason.
    """

    text: str
    name: str = ""


@dataclass(frozen=True)
class Exposure:
    """The findings about a source.

    Attributes:
        lost: For each column of categories, undeclared values and the numbers of their rows, the commonest first.
    """

    findings: tuple[SourceFinding, ...] = ()
    lost: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)


def exposure(policy: Policy, unread: Mapping[str, tuple[int, list[str]]]) -> Exposure:
    """Compares a policy with all columns of its source, declared or not; a table of Spark is not compared.

    Raises:
        PolicyError: The source cannot be read.
    """
    if policy.spark is not None:
        return Exposure()
    with read_columns(policy, likely=False) as raw:
        readable = {name: kind for name, kind in raw.types.items() if is_readable(kind)}
        profiles = {n: profile(raw.connection, raw.name, n, kind, limit=FEW) for n, kind in readable.items()}
        keys = [name for name, facts in profiles.items() if may_name_persons(name, facts)]
        units = rank_units(raw.connection, raw.name, keys, profiles)
        declared = {
            next(iter(column.sources), name): (name, column)
            for name, column in policy.schema_.categorical_columns.items()
            if column.formula is None and column.lookup is None
        }
        unit = policy.bounded_unit.column if policy.bounded_unit is not None else counted_over(units)
        shown = [
            finding
            for source, (name, column) in declared.items()
            for finding in _of_few(raw, source, name, column, unit, policy)
        ]
        lost = {
            name: _rows_of(raw, source, unread[name][1])
            for source, (name, _) in declared.items()
            if unread.get(name, (0, []))[0]
        }
        return Exposure((*_forgotten(raw, units, policy), *shown), lost)


def is_readable(kind: str) -> bool:
    """Whether a column's type has values that can name persons or be categories."""
    return (
        re.fullmatch(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*|VARCHAR|UUID|ENUM.*", kind) is not None
    )


def _forgotten(raw: RawTable, units: Sequence[Unit], policy: Policy) -> Iterator[SourceFinding]:
    """Finds persons with rows of several privacy units, whom one epsilon does not hide."""
    unit = policy.bounded_unit
    first = standing_out(units)
    sole = any(candidate.rank == PERSONS and candidate.largest == 1 for candidate in units)
    for candidate in units:
        likely = candidate == first or (candidate.rank > 1 and not sole)
        if not likely or candidate.largest < 2 or (unit is not None and candidate.column == unit.column):
            continue
        persons, most_units = _spread(raw, candidate.column, None if unit is None else unit.column)
        if not persons:
            continue
        kind, units_of = ("rows are", "rows") if unit is None else (f"{unit.column} is", f"values of {unit.column}")
        key = json.dumps(candidate.column, ensure_ascii=False)
        bound = plain_number(round_up(Decimal(candidate.largest)))
        yield SourceFinding(
            f"{kind} protected, persons are not: {candidate.column} names {candidate.values:,} in "
            f"{candidate.rows:,} rows, and {persons:,} of them have several {units_of}, one as many as "
            f"{most_units:,}; such a person loses up to {most_units:,} times epsilon. Declare "
            f"privacy_unit: {{column: {key}, max_rows: {bound}}}",
            f"{ACCEPTED}{candidate.column}" if candidate.rank == PERSONS or candidate == first else "",
        )


def _spread(raw: RawTable, person: str, unit: str | None) -> tuple[int, int]:
    """The number of persons with several units, and the largest number of units of one."""
    each = "count(*)" if unit is None else f"count(DISTINCT {quoted(unit)})"
    name = quoted(person)
    grouped = f"SELECT {each} AS units FROM {raw.name} WHERE {name} IS NOT NULL GROUP BY {name} HAVING units > 1"
    persons, most_units = raw.connection.execute(f"SELECT count(*), max(units) FROM ({grouped})").fetchall()[0]
    return int(persons), int(most_units or 0)


def _of_few(
    raw: RawTable, source: str, name: str, column: Categorical, unit: str | None, policy: Policy
) -> Iterator[SourceFinding]:
    """Finds declared values of few persons; analysts read all declared values."""
    if source not in raw.types or len(column.values) > MOST_VALUES:
        return
    texts = set(map(text_of, column.values))
    counts = persons_of_values(raw.connection, raw.name, source, unit, FEWEST)
    persons_of = [(text, persons) for text, persons in counts if text in texts]
    rare = [text for text, persons in persons_of if persons < FEWEST]
    if not rare:
        return
    many = len(column.values) > FEW
    kind = telling_name(name) or telling_look(raw.connection, raw.name, source) if many else ""
    apart = many and (bool(kind) or 2 * len(rare) > len(persons_of))
    settled = {*policy.reviewed, *policy.unreviewed_fields()}  # reviewed, or to be reviewed anyway
    if not apart and not settled.isdisjoint((f"columns.{name}", f"columns.{name}.values")):
        return
    looks = f", and look like {kind}" if kind else ""
    yield SourceFinding(
        f"{name}: {len(rare):,} of {len(column.values):,} declared values are of fewer than {FEWEST} persons, such as "
        f"{first_of([*map(repr, rare)], SHOWN)}{looks}; every analyst reads them. Declare those that are publicly "
        "known, and `other` for the rest" + (", or leave the column out" if apart else ""),
        f"{ACCEPTED}{name}" if apart else "",
    )


def _rows_of(raw: RawTable, source: str, texts: Sequence[str]) -> list[tuple[str, int]]:
    """The numbers of rows of some texts of a column."""
    if source not in raw.types:
        return []
    value = f"{quoted(source)}::VARCHAR"
    query = (
        f"SELECT {value}, count(*) AS n FROM {raw.name} WHERE list_contains($1, {value}) GROUP BY ALL ORDER BY n DESC"
    )
    return [(str(text), int(rows)) for text, rows in raw.connection.execute(query, [list(texts)]).fetchall()]
