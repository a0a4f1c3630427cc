# SPDX-License-Identifier: Apache-2.0
"""Specs, what makes two partitions the same, labels, and collections of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pinq.curator.candidates.scorer import subset_sums
from pinq.errors import QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import AnyGrouping, Axis, Cross, Cuts, Groups, Shards, Values, bind
from pinq.public.schema import Schema

SCHEMA = Schema(
    max_rows=100,
    columns={
        "s": {"type": "categorical", "values": ["f", "m"]},
        "j": {"type": "categorical", "values": ["a", "b", "c"], "nullable": True},
        "t": {"type": "categorical", "values": [1, True, "x"]},
        "x": {"type": "numeric", "lower": 0, "upper": 9, "integer": True, "nullable": True},
        "r": {"type": "numeric", "lower": 0, "upper": 1},
    },
)
WHOLE = PartSet([Block(Part())])


def key(spec: Any) -> bytes:
    return bind(spec, SCHEMA).key


def test_the_same_partition_has_one_key() -> None:
    """Spellings that send every row to the same part are one partition: the ledger lets them share their maximum."""
    assert key(Cuts("x", (5,))) == key(Cuts("x", [5.0])) == key(Cuts("x", 5)) == key(Cuts("x", (4.5,)))  # type: ignore[arg-type]
    assert key(Groups("j", [["a", "b"], ["c"]])) == key(Groups("j", (("b", "a"), "c")))  # type: ignore[arg-type]
    assert key(Shards(3)) == key(Shards(3, 0))
    assert key(Cross((Values("s"),))) == key(Values("s"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Cuts("x", (5,)), Cuts("x", (6,))),
        (Cuts("x", (5,)), Cuts("x", (5, 6))),
        (Values("s"), Values("j")),
        (Shards(3), Shards(4)),
        (Shards(3), Shards(3, 1)),
        (Groups("j", (("a",), ("b",))), Groups("j", (("b",), ("a",)))),
        (Groups("j", (("a",), ("b",))), Groups("j", (("a",), ("b", "c")))),
        (Cross((Values("s"), Values("j"))), Cross((Values("j"), Values("s")))),
        (Groups("t", ((1,), (True,))), Groups("t", ((True,), (1,)))),
    ],
    ids=str,
)
def test_different_partitions_have_different_keys(one: Any, other: Any) -> None:
    """Where a row could fall into another part, or parts are numbered otherwise, charges add."""
    assert key(one) != key(other)


def test_one_and_true_are_not_confused() -> None:
    """Python's 1 == True must not give one spec the other's binding, in either order of asking."""
    for first, second, lookup in (((1,), (True,), [1]), ((True,), (1,), [0])):
        schema = Schema(max_rows=1, columns=SCHEMA.columns)
        bind(Groups("t", (first,)), schema)
        found = bind(Groups("t", (second,)), schema).axes[0].lookup
        assert found is not None
        assert np.flatnonzero(found == 0).tolist() == lookup


def test_a_column_named_like_shards_is_not_taken_for_them() -> None:
    """An engine keeps tables by what tells axes apart, so a column's name must not look like a key and number of shards."""
    shards = bind(Shards(2, key=5), SCHEMA).axes[0]
    column = Axis(str(shards.source), shards.size, (0, 1))
    assert column.identity != shards.identity


def test_labels_find_their_parts() -> None:
    """By value, by interval's text or number, by group, by shard, by tuple for several."""
    cuts = bind(Cuts("x", (3, 7)), SCHEMA)
    assert [cuts.labels(i) for i in range(4)] == [("< 3",), ("3 to < 7",), (">= 7",), (None,)]
    assert [cuts.find(label) for label in ("3 to < 7", 1, None)] == [1, 1, 3]
    both = bind(Cross((Values("s"), Groups("j", (("a",), ("b", None))))), SCHEMA)
    assert both.find(("m", ("b", None))) == 3 == both.find(both.labels(3))
    assert bind(Shards(4), SCHEMA).find(2) == 2
    assert bind(Values("t"), SCHEMA).find(1) == 0
    assert bind(Values("t"), SCHEMA).find(True) == 1
    for label, partition in ((4, cuts), ("F", bind(Values("s"), SCHEMA)), ("m", both)):
        with pytest.raises(QueryError):
            partition.find(label)


def test_parts_say_what_they_are() -> None:
    """In the words of the schema."""
    part = next(
        iter(
            WHOLE.split_each([bind(Cuts("x", (3,)), SCHEMA)])
            .take(np.array([1]))
            .split(bind(Groups("j", (("b", None),)), SCHEMA))
        )
    )
    assert str(part) == "x >= 3, j in {b, missing}"
    assert str(Part()) == "the whole table"


@pytest.mark.parametrize(
    "spec",
    [
        Groups("j", ()),
        Groups("j", ((),)),
        Groups("j", (("a",), ("a",))),
        Groups("x", (("a",),)),
        Cuts("s", (1,)),
        Cuts("x", ()),
        Cuts("x", (7, 3)),
        Cuts("r", (0.50001, 0.50002)),
        Cross((Values("s"), Values("s"))),
        Values("nobody"),
        "s",
        Cross((Values("r"), Shards(1000))),
    ],
    ids=str,
)
def test_specs_that_do_not_fit(spec: Any) -> None:
    """Refused at binding."""
    with pytest.raises(QueryError):
        bind(spec, SCHEMA)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Values(1),  # type: ignore[arg-type]
        lambda: Cuts("x", "5"),  # type: ignore[arg-type]
        lambda: Cuts("x", [True]),  # type: ignore[arg-type]
        lambda: Cuts("x", [float("inf")]),  # type: ignore[arg-type]
        lambda: Shards(1.5),  # type: ignore[arg-type]
        lambda: Shards(2, -1),
        lambda: Groups("j", 3),  # type: ignore[arg-type]
        lambda: Cross(()),
        lambda: Cross(("s",)),  # type: ignore[arg-type]
    ],
)
def test_specs_that_cannot_be(make: Any) -> None:
    """Refused when written."""
    with pytest.raises(QueryError):
        make()


def test_what_cannot_be_hashed_is_no_value() -> None:
    """A group that holds a list is refused, not crashed on."""
    with pytest.raises(QueryError, match="not a plain value"):
        bind(Groups("j", ((["a"],),)), SCHEMA)  # type: ignore[arg-type]


def test_groupings_are_all_bipartitions_once() -> None:
    """2^(k-1) - 1 of them, a missing value included; many values give a public sample, steered by the seed."""
    family, labels = AnyGrouping("j"), SCHEMA.categorical("j").labels
    members = [family.member(labels, number) for number in range(len(family.octets(len(labels))))]
    assert len(members) == 7
    assert len({frozenset(map(frozenset, one.groups)) for one in members}) == 7
    assert all(set(one.groups[0]) | set(one.groups[1]) == set(labels) and all(one.groups) for one in members)
    sample = AnyGrouping("v").octets(40)
    assert sample.shape == (4096, 5)
    assert len(np.unique(sample, axis=0)) == 4096
    assert sample.tolist() == AnyGrouping("v").octets(40).tolist() != AnyGrouping("v", seed=1).octets(40).tolist()
    assert len(family.octets(1)) == len(family.octets(0)) == 0


def test_values_left_follow_the_splits_above() -> None:
    """A group keeps its values, a value only itself, another column's split everything."""
    codes = SCHEMA.categorical("j").codes
    labels = SCHEMA.categorical("j").labels
    some = Part(Part(), bind(Groups("j", (labels[:2], labels[2:])), SCHEMA), 1)
    assert np.flatnonzero(some.values_left("j", codes)).tolist() == [2, 3]
    one = Part(some, bind(Values("j"), SCHEMA), 3)
    assert np.flatnonzero(one.values_left("j", codes)).tolist() == [3]
    assert Part(Part(), bind(Cuts("x", (6,)), SCHEMA), 0).values_left("j", codes).all()


def test_intervals_follow_the_splits_above() -> None:
    """What the splits leave of a numeric column's cells; nothing where they contradict each other, or the value is missing."""
    column = SCHEMA.numeric("x")
    low = Part(Part(), bind(Cuts("x", (6,)), SCHEMA), 0)
    assert low.interval("x", column) == (0, 6)
    assert Part(low, bind(Cuts("x", (2, 4)), SCHEMA), 1).interval("x", column) == (2, 4)
    assert Part(low, bind(Cuts("x", (8,)), SCHEMA), 1).interval("x", column) == (8, 8)
    assert (
        Part(Part(), bind(Cuts("x", (6,)), SCHEMA), 2).interval("x", column)[0]
        == Part(Part(), bind(Cuts("x", (6,)), SCHEMA), 2).interval("x", column)[1]
    )
    assert Part(low, bind(Values("x"), SCHEMA), 3).interval("x", column) == (3, 4)
    assert low.interval("r", SCHEMA.numeric("r")) == (0, 4096)


def test_a_block_that_is_taken_whole_stays_whole() -> None:
    """So a query about a million cells is as small as its text."""
    parts = WHOLE.split(bind(Values("j"), SCHEMA)).take(np.arange(4))
    assert len(parts.blocks) == 1
    assert len(parts.take(np.array([0, 1, 3])).blocks) == 3
    assert [str(part) for part in parts.take(np.array([3, 0]))] == ["j missing", "j = a"]
    with pytest.raises(QueryError, match="chosen twice"):
        parts.take(np.array([1, 1]))


def test_shapes_grow_with_splits() -> None:
    """One axis for each spec."""
    assert WHOLE.split(bind(Cross((Values("s"), Values("j"))), SCHEMA)).shape == (1, 2, 4)
    with pytest.raises(QueryError, match="3 specs were given for 1 parts"):
        WHOLE.split_each([bind(Values("s"), SCHEMA)] * 3)


def test_a_million_parts_are_enough() -> None:
    """More are refused before they are made."""
    with pytest.raises(QueryError, match="at most 1,048,576 are possible"):
        WHOLE.split(bind(Values("r"), SCHEMA)).split(bind(Shards(300), SCHEMA))


def test_sums_of_groups_are_exact() -> None:
    """Of as many values as a column may have, also where many have nothing."""
    table = np.random.default_rng(1).integers(2**57, 2**58, (3, 2, 11))
    table[..., :8] = 0
    octets = AnyGrouping("v").octets(11)
    sides = np.unpackbits(octets, axis=1, count=11, bitorder="little").astype(bool)
    expected = [[[int(table[part, cell, side].sum()) for side in sides] for cell in range(2)] for part in range(3)]
    assert subset_sums(octets, table).tolist() == expected


def test_a_spec_is_bound_to_its_own_partition_whatever_lay_in_its_place_before() -> None:
    """Equal specs share a partition; one that is gone leaves nothing to the next object of its number."""
    schema = Schema(columns={"n": {"type": "numeric", "lower": 0, "upper": 500, "integer": True}}, max_rows=10)
    for point in [*range(1, 400), *range(1, 400)]:
        spec = Cuts("n", (point,))
        partition = bind(spec, schema)
        assert partition is bind(spec, schema) is bind(Cuts("n", (point,)), schema)
        assert partition.axes[0].thresholds == (point,)
