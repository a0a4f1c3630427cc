# SPDX-License-Identifier: Apache-2.0
"""What a question holds in memory follows neither how many families it lists nor what others asked."""

from __future__ import annotations

from typing import cast

import pytest

from pinq import AnyGrouping, Cuts, Gini, Groups, QueryError
from pinq.curator.candidates.selection import Selection
from pinq.public.parts import Block, Part, PartSet
from pinq.public.schema import Schema
from pinq.public.specs import KEPT_PARTS, Kept, bind

SCHEMA = Schema(
    max_rows=100,
    columns={
        "letter": {"type": "categorical", "values": [f"v{i}" for i in range(13)]},  # 4,095 bipartitions
        "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
        "gain": {"type": "numeric", "lower": 0, "upper": 10**6, "integer": True},
    },
)


def test_families_of_too_many_members_together_are_refused() -> None:
    """Their scores would be in memory together; each by itself they are chosen from."""
    parts = PartSet([Block(Part())])
    many = [AnyGrouping("letter", seed=seed) for seed in range(1100)]
    Selection(SCHEMA, parts, Gini("income"), [many[:1000]], (0,))
    Selection(SCHEMA, parts, Gini("income"), [many], (0,), each=True)
    with pytest.raises(QueryError, match=r"4,\d+,\d+ members together; at most 4,194,304 are possible"):
        Selection(SCHEMA, parts, Gini("income"), [many], (0,))


def test_a_schema_remembers_partitions_of_so_many_parts() -> None:
    """Cuts of many points push each other out; those of few points stay."""
    kept, many = Kept(), bind(Cuts("gain", tuple(range(1, 4001))), SCHEMA)
    for number in range(KEPT_PARTS // many.size + 1):
        kept.add(number, many)
    assert len(kept.partitions) == KEPT_PARTS // many.size + 1
    kept.add("one more", many)
    assert (list(kept.partitions), kept.room) == (["one more"], many.size)
    for number in range(1000):
        kept.add(number, bind(Cuts("gain", (5,)), SCHEMA))
    assert len(kept.partitions) == 1001


@pytest.mark.parametrize(("named", "most"), [(500, 2), (1, 48)])
def test_a_schema_counts_the_values_and_codes_of_groups(named: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of 500 values take the room of 520 parts and one group of a value that of 21: 20 are for 500 codes."""
    monkeypatch.setattr("pinq.public.specs.KEPT_PARTS", 1000)
    values = tuple(f"v{number}" for number in range(500))
    schema = Schema(columns={"a": {"type": "categorical", "values": values}}, max_rows=9)
    kept = []
    for number in range(1, 120):
        groups = (values[:number], values[number:]) if named > 1 else (values[number : number + 1],)
        bind(Groups("a", groups), schema)
        kept.append(len(cast("dict[str, Kept]", schema.kept())["bind"].partitions))
    assert max(kept) == most
    assert 1 in kept[1:]
