# SPDX-License-Identifier: Apache-2.0
"""What a question holds in memory follows neither how many families it lists nor what others asked."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc

import pytest

from pinq import AnyGrouping, Cross, Cuts, Gini, Groups, QueryError
from pinq.curator.candidates.selection import Selection
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import PART_BYTES, bind
from pinq.public.schema import ENTRY_BYTES, KEPT_BYTES, Schema

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


def test_a_schema_remembers_partitions_within_so_many_bytes() -> None:
    """Cuts of many points push those out that were not asked for longest; of few points thousands stay."""
    schema = SCHEMA.model_copy()
    few = [bind(Cuts("gain", (number,)), schema) for number in range(1, 1001)]
    assert [bind(partition.spec, schema) for partition in few] == few
    many = bind(Cuts("gain", tuple(range(1, 4001))), schema)
    schema.kept.room = many.nbytes + 3 * few[0].nbytes + 4 * ENTRY_BYTES
    again = bind(Cuts("gain", tuple(range(2, 4002))), schema)
    assert schema.kept.values() == [again]


def test_a_schema_counts_the_values_and_codes_of_groups() -> None:
    """Two groups of 500 values take the room of what they list, and of a place for each code of the column."""
    values = tuple(f"v{number}" for number in range(500))
    schema = Schema(columns={"a": {"type": "categorical", "values": values}}, max_rows=9)
    sizes = [bind(Groups("a", groups), schema).nbytes for groups in ((values[:9], values[9:]), (values[:1],))]
    assert sizes == [PART_BYTES * 500 + 8 * 500, PART_BYTES + 8 * 500]


def test_refused_crosses_take_no_more_memory_than_they_are_counted_for() -> None:
    """Their factors were bound before the refusal, each with a place for each code, and refusals are free."""
    values = tuple(f"v{number}" for number in range(50_000))
    schema = Schema(columns={"a": {"type": "categorical", "values": values}}, max_rows=9)
    bind(Groups("a", (values[:1],)), schema)  # what the column itself remembers is made once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for one, other in itertools.pairwise(values[1:100]):
            with pytest.raises(QueryError, match="a column stands twice"):
                bind(Cross((Groups("a", ((one,),)), Groups("a", ((other,),)))), schema)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 1.2 * KEPT_BYTES


def test_a_pickled_schema_holds_its_fields_alone() -> None:
    """What was bound to it stays behind, and it is equal to one of which nothing was asked."""
    schema = SCHEMA.model_copy()
    plain = pickle.dumps(schema)
    bind(Cuts("gain", tuple(range(1, 4001))), schema)
    assert schema.digest == SCHEMA.digest
    assert len(pickle.dumps(schema)) == len(plain)
    assert pickle.loads(pickle.dumps(schema)) == schema == SCHEMA
