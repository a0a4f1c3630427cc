# SPDX-License-Identifier: Apache-2.0
"""SQL text for parts of encoded columns. Knows only numbers and names of its own making, so nothing of a user's can be injected.

Encoded columns are called ``c0``, ``c1``, ... in the schema's order; ``row_coin`` is a row's 64-bit
coin for shards.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pinq.public.parts import Block, Part, PartSet
from pinq.public.specs import Axis, Partition

__all__ = ["axis_expression", "part_expression", "unsigned"]

FEW_CODES = 4


def unsigned(count: int) -> str:
    """The smallest unsigned type that can hold 0 .. count - 1."""
    return (
        "UTINYINT" if count <= 2**8 else "USMALLINT" if count <= 2**16 else "UINTEGER" if count <= 2**32 else "UBIGINT"
    )


def axis_expression(axis: Axis, columns: Mapping[str, str], none: int | None = None) -> str:
    """The part of a row along one axis.

    Args:
        axis: Which.
        columns: The encoded column of each declared one.
        none: What rows in no part get; NULL by default.
    """
    other = "NULL" if none is None else str(none)
    if axis.shard_key is not None:
        # Stable across versions of the engine, which its own hash() is not: the ledger outlives
        # them.
        return f"((md5_number_lower(row_coin || ':{axis.shard_key}') >> 32) * {axis.size} >> 32)"
    code = columns[axis.column]  # type: ignore[index]
    if axis.thresholds is not None:
        return _bisect(code, axis.thresholds, [str(part) for part in range(axis.size)])
    if axis.lookup is not None:
        return _lookup(code, [other if part < 0 else str(part) for part in axis.lookup.tolist()], axis.size + 1)
    return code


def _bisect(code: str, thresholds: tuple[int, ...], results: list[str]) -> str:
    """``results[number of thresholds at or below the code]``, by a balanced tree of comparisons."""
    if len(results) == 1:
        return results[0]
    middle = len(results) // 2
    left, right = (
        _bisect(code, thresholds[: middle - 1], results[:middle]),
        _bisect(code, thresholds[middle:], results[middle:]),
    )
    return f"(CASE WHEN {code} < {thresholds[middle - 1]} THEN {left} ELSE {right} END)"


def _lookup(code: str, results: list[str], count: int) -> str:
    """``results[code]`` for a code column, which is never NULL: a few comparisons, or an indexed list, the fastest map over many codes."""
    if len(results) <= FEW_CODES:
        cases = " ".join(
            f"WHEN {value} THEN {result}" for value, result in enumerate(results[:-1]) if result != results[-1]
        )
        return f"(CASE {code} {cases} ELSE {results[-1]} END)" if cases else f"({results[-1]})"
    return _list(code, results, count)


def _list(code: str, results: list[str], count: int) -> str:
    """``results[code]`` for constants below ``count``, NULL for NULL."""
    return f"([{', '.join(results)}]::{unsigned(count)}[])[{code}::INTEGER + 1]"


class _Node:
    """A part with what is asked below it, by partition; a leaf has the number of its answer."""

    __slots__ = ("answer", "children", "partition")

    def __init__(self) -> None:
        self.answer: int | None = None
        self.partition: Partition | None = None
        self.children: dict[int, _Node] | int | None = None  # an int: all parts are answers, numbered from it on


def part_expression(parts: PartSet, columns: Mapping[str, str]) -> str | None:
    """The position of the part that a row belongs to, ``len(parts)`` for none; None where the only part is the whole table.

    A tree of partitions becomes nested CASEs over codes. Where the children of a split are alike
    but for an even distance of their numbers, as in a histogram, the split becomes arithmetic on
    the code, whatever its size.
    """
    common = parts.blocks[0].partition if len(parts.blocks) > 1 else None
    alike = common is not None and all(
        block.partition is not None and block.partition.key == common.key for block in parts.blocks
    )
    if common is not None and alike and all(axis.slots == axis.size for axis in common.axes):
        # Everything ends in the same split (a histogram of the class): number what is split, then
        # add the place in the split.
        node = part_expression(PartSet([Block(block.part) for block in parts.blocks]), columns)
        return f"least(({node})::BIGINT * {common.size} + {_place_text(common, columns)}, {len(parts)})"
    root = _Node()
    places: dict[bytes, _Node] = {b"": root}
    number = 0
    for block in parts.blocks:
        node_of = _place(block.part, places)
        if block.partition is None:
            node_of.answer = number
        else:
            node_of.partition, node_of.children = block.partition, number
        number += len(block)
    if root.answer is not None:
        return None
    base, text, _ = _compile(root, columns, len(parts))
    return _plus(base, text)


def _place(part: Part, places: dict[bytes, _Node]) -> _Node:
    if part.key in places:
        return places[part.key]
    parent = _place(part.parent, places)  # type: ignore[arg-type]
    parent.partition = part.partition
    if parent.children is None:
        parent.children = {}
    node = places[part.key] = parent.children[part.index] = _Node()  # type: ignore[index]
    return node


def _compile(node: _Node, columns: Mapping[str, str], none: int) -> tuple[int, str, bool]:
    """``(base, text, movable)``: the answer's number is base + text, ``""`` being 0; movable where text holds no number of its own."""
    if node.answer is not None:
        return node.answer, "", True
    partition = node.partition
    assert partition is not None
    place = _place_text(partition, columns)
    partial = any(axis.slots > axis.size for axis in partition.axes)
    if isinstance(node.children, int):
        return (
            (0, f"coalesce({_plus(node.children, place)}, {none})", False) if partial else (node.children, place, True)
        )
    children = {index: _compile(child, columns, none) for index, child in sorted((node.children or {}).items())}
    bases = [base for base, _, _ in children.values()]
    texts = {text for _, text, _ in children.values()}
    strides = {after - before for before, after in itertools.pairwise(bases)} or {0}
    whole = len(children) == partition.size and not partial
    if whole and len(texts) == 1 == len(strides) and all(movable for _, _, movable in children.values()):
        return bases[0], _plus(0, f"({place})::BIGINT * {strides.pop()}", texts.pop()), True
    results = [_plus(*children[index][:2]) if index in children else str(none) for index in range(partition.size)]
    return 0, _choice(partition, columns, place, results, constant=texts == {""}, none=none), False


def _choice(
    partition: Partition, columns: Mapping[str, str], place: str, results: list[str], constant: bool, none: int
) -> str:
    """``results[place of the row]``, ``none`` where it has no place."""
    axis = partition.axes[0]
    if len(partition.axes) == 1 and axis.column is not None:
        if axis.thresholds is not None:
            return _bisect(columns[axis.column], axis.thresholds, results)
        if constant:
            by_code = (
                results
                if axis.lookup is None
                else [str(none) if part < 0 else results[part] for part in axis.lookup.tolist()]
            )
            return _lookup(columns[axis.column], by_code, none + 1)
    if constant:
        return f"coalesce({_list(f'({place})', results, none + 1)}, {none})"  # a row in no part has NULL for its place
    cases = " ".join(f"WHEN {index} THEN {result}" for index, result in enumerate(results) if result != str(none))
    return f"(CASE {place} {cases} ELSE {none} END)"


def _place_text(partition: Partition, columns: Mapping[str, str]) -> str:
    text = ""
    for axis in partition.axes:
        one = axis_expression(axis, columns)
        text = one if not text else f"(({text})::BIGINT * {axis.size} + {one})"
    return text


def _plus(base: int, *texts: str) -> str:
    terms = [text for text in texts if text]
    if base or not terms:
        terms.append(str(base))
    # A literal takes the type of what it is added to: without the cast, 94 + 200 overflows a code
    # of one byte.
    return terms[0] if len(terms) == 1 else f"(({terms[0]})::BIGINT + {' + '.join(terms[1:])})"
