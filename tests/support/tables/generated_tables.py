# SPDX-License-Identifier: Apache-2.0
"""One generator for all tests: a seed gives a schema at its degenerate ends, a request of any kind, and rows that matter.

No class is listed here by name: kinds of columns come from ``Column``, and queries, specs, families, scores and losses
from their catalogues. ``_Maker`` makes a value of a class from its fields' types. If a field means more than its type
(a column's name, a column's values), ``_Maker`` has a method of the field's name. So new classes are included;
tests/privacy/test_outcomes.py names a class for which no request is answered.
"""

from __future__ import annotations

import inspect
import itertools
import random
import types
from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from pinq.curator.verbs import prepare
from pinq.errors import QueryError
from pinq.language.derivatives import LARGEST_RESIDUAL
from pinq.language.parts import Part, PartSet
from pinq.language.products import VECTORS
from pinq.language.queries import QUERIES, Request, Verb, WireParts
from pinq.language.scores import MOST_EXPECTED, MOST_OFF, SCORES
from pinq.language.specs import Candidate, Expression, Shards, Spec, bind
from pinq.policy.policy import Policy
from pinq.public.schema import Column, Schema

__all__ = ["COLUMN_KINDS", "KINDS", "QUERIES", "Case", "World", "cases_of", "codes_in"]

TRIES = 6  # of a request that is answered, before one is taken as it comes
FEW_CODES = 4096  # columns with more are cut, not listed
COLUMN_KINDS = get_args(get_args(Column)[0])


KINDS: dict[str, type[Any]] = {**{kind.kind: kind for kind in get_args(Candidate)}, **SCORES}


@cache
def made_of(hint: type[Any]) -> tuple[type[Any], ...]:
    """The subclasses of a class in the catalogues; without any, the class itself."""
    return tuple(kind for kind in (*KINDS.values(), *VECTORS.values()) if issubclass(kind, hint)) or (hint,)


# A column's declaration at its ends. A kind of column that has none here fails by its name.
YEARS = {"lower": "1999-12-30", "upper": "2003-05-05"}
ENDS: dict[str, list[dict[str, Any]]] = {
    "categorical": [
        *({"values": values} for values in (["u"], ["u", "v"], ["u", "v", "w"], [True], [True, False], list(range(9)))),
        {"values": ["u", "other"], "other": "other"},
        {"values": ["other"], "other": "other"},
        {"values": [f"v{number}" for number in range(300)]},
    ],
    "numeric": [
        {"lower": 3, "upper": 3, "integer": True},
        {"lower": -100, "upper": 10, "integer": True},
        {"lower": 0, "upper": 9, "integer": True, "step": 4},
        {"lower": 0, "upper": 1, "step": 1},
        {"lower": 0, "upper": 1, "step": ".5"},
        {"lower": "-5", "upper": "4.9", "step": ".3"},
        {"lower": -1, "upper": 1, "step": ".01"},
        {"lower": 0, "upper": 2**24 - 3, "integer": True, "step": 1},
    ],
    "date": [
        {"lower": "2000-02-29", "upper": "2000-02-29"},
        {"lower": "2000-02-28", "upper": "2000-03-01"},
        {"lower": "2024-01-01", "upper": "2024-12-31"},
        {**YEARS},
        {**YEARS, "step": 7},
        {**YEARS, "step": 500},
    ],
    "datetime": [
        {"lower": "2000-01-01", "upper": "2000-01-01"},
        {"lower": "2000-01-01", "upper": "2000-01-03", "step": 7},
        {"lower": "2024-01-01", "upper": "2024-12-31 23:59", "step": 720},
        {"lower": "1999-12-31 23:59", "upper": "2000-01-01 00:00"},
    ],
}
SHAPES: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"adjacency": "substitute"},
    {"privacy_unit": {"column": "who", "max_rows": 3}},
]


@dataclass(frozen=True)
class Case:
    """A request, and rows that its parts hold or not.

    Attributes:
        request: The request as it was received.
        rows: The codes of all columns, for rows in some of the queried parts and for rows anywhere.
    """

    request: Request
    rows: list[tuple[int, ...]]


@dataclass(frozen=True)
class World:
    """A schema, with many requests.

    Attributes:
        seed: The seed of all draws.
        policy: The policy with the schema.
        cases: The requests with their rows.
    """

    seed: int
    policy: Policy
    schema: Schema
    cases: list[Case]


def cases_of(seed: int, count: int = 25) -> World:
    """The world of a seed."""
    draw = random.Random(seed)
    policy = _policy(draw)
    schema = policy.schema_
    coins = seed % 6 == 0  # to hash a table for shards takes fifty times as long as to count it
    return World(seed, policy, schema, [_case(draw, schema, coins) for _ in range(count)])


def _policy(draw: random.Random) -> Policy:
    columns: dict[str, Any] = {}
    for number in range(draw.choice([1, 2, 3, 4, 5, 6])):
        kind = draw.choice(COLUMN_KINDS).model_fields["type"].default
        column = {"type": kind, "nullable": draw.random() < 0.4, **draw.choice(ENDS[kind])}
        if draw.random() < 0.15:
            column |= {"from": ["source"], "formula": "source"}
        columns[f"c{number}"] = column
    most = draw.choice([1, 2, 30, 1_000, 1_000, 50_000])
    return Policy(dataset="world", cap=10**6, max_rows=most, columns=columns, **draw.choice(SHAPES))


def _case(draw: random.Random, schema: Schema, coins: bool) -> Case:
    """A request, mostly one that can be answered."""
    maker, request, parts = _Maker(draw, schema, coins), None, None
    for _ in range(1 if draw.random() < 0.1 else TRIES):
        try:
            request = maker.request()
            parts = request.parts.bind(schema)
            prepare(request.query, parts, schema)
            break
        except QueryError:
            continue
    while request is None:
        try:
            request = maker.request()
        except QueryError:
            continue
    rows = [] if parts is None or not len(parts) else list(codes_in(draw, parts, schema))
    return Case(request, [*rows, tuple(maker.code(column.codes) for column in schema.columns.values())])


def codes_in(draw: random.Random, parts: PartSet, schema: Schema, most: int = 3) -> Iterator[tuple[int, ...]]:
    """The codes of a row in each of some parts, by the splits above them; shards are ignored."""
    chosen = {0, len(parts) - 1, *(draw.randrange(len(parts)) for _ in range(most))}
    for number in sorted(chosen)[:most]:
        row = [_code_in(draw, parts.at(number), name, column) for name, column in schema.columns.items()]
        if None not in row:
            yield tuple(row)  # type: ignore[arg-type]


def _code_in(draw: random.Random, part: Part, name: str, column: Any) -> int | None:
    """A code of a column that a part has left; None for none."""
    if column.codes > FEW_CODES:
        low, end = part.interval(name, column)
        return None if low == end else draw.choice([low, end - 1, draw.randrange(low, end)])
    left = np.flatnonzero(part.values_left(name, column.codes))
    return None if not len(left) else int(draw.choice([left[0], left[-1], left[draw.randrange(len(left))]]))


class _Maker:
    """Makes values from the types of fields, under a schema. A method has the name of the field that it makes."""

    def __init__(self, draw: random.Random, schema: Schema, coins: bool) -> None:
        self.draw, self.schema, self.coins = draw, schema, coins

    def code(self, codes: int) -> int:
        """Any code, often one of the ends."""
        return self.draw.choice([0, codes - 1, self.draw.randrange(codes)])

    def request(self) -> Request:
        """A request, as it is sent and received."""
        parts, count = self.parts()
        kinds: list[Any] = [*QUERIES]
        query = self.draw.choices(kinds, [1 + len(fields(kind)) for kind in kinds])[0]
        said: dict[str, Any] = {
            name: value for name, value in vars(self.made(query, {"parts": count})).items() if value is not None
        }
        epsilon = self.draw.choice(["1", "0.1", "0.333333333", "0.000000007", "3"])
        asked: dict[str, Any] = dict(id=f"{self.draw.getrandbits(120):x}", epsilon=epsilon, parts=parts)
        for verb in get_args(Verb):
            try:
                request = Request(verb=verb, **asked, **said)
                if type(request.query) is query:
                    return Request.received(request.to_json())
            except QueryError:
                continue
        raise QueryError("no verb asks this")

    def parts(self) -> tuple[WireParts, int]:
        """Disjoint parts: nested, entered one by one or asked at once."""
        specs: list[Any] = []
        nodes: list[tuple[int, int, int]] = []
        asked: list[tuple[int, int]] = []
        total = 0

        def grow(node: int, depth: int) -> None:
            nonlocal total
            spec = None if depth == 0 or self.draw.random() < 0.2 else self.one(Spec, "spec", {})
            size = 1 if spec is None else bind(spec, self.schema).size
            if spec is None or size > 200:
                asked.append((node, -1))
                total += 1
                return
            specs.append(spec)
            own = len(specs) - 1
            if self.draw.random() < 0.4:
                asked.append((node, own))
                total += size
                return
            for index in self.draw.sample(range(size), min(size, self.draw.choice([1, 2, 3]))):
                nodes.append((node, own, index))
                grow(len(nodes), depth - 1)

        grow(0, self.draw.choice([0, 0, 1, 1, 2, 3]))
        return WireParts(specs=tuple(specs), nodes=tuple(nodes), asked=tuple(asked), shape=(total,)), total

    def made(self, kind: Any, known: dict[str, Any]) -> Any:
        """A value of a class, from its fields in order; ``QueryError`` if it has no meaning under the schema."""
        if kind is Shards and not self.coins:
            raise QueryError("no coins here")
        values: dict[str, Any] = {}
        hints = _hints(kind)
        for field in fields(kind):
            if field.name != "kind":
                values[field.name] = self.one(hints[field.name], field.name, {**known, **values})
        made = kind(**values)
        made.check(self.schema)
        return made

    def one(self, hint: Any, name: str, known: dict[str, Any]) -> Any:
        """A value of a type for a field of this name; ``known`` has the earlier fields."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.one(inner[0], name, known)
        if origin in (Union, types.UnionType) and not self._is_own(hint, name):
            return self.one(self.draw.choice(inner), name, known)
        if inspect.isclass(hint) and issubclass(hint, Expression | ABC):
            return self.fitting(made_of(hint))
        own = getattr(self, f"_{name}", None)
        if own is not None:
            return own(hint, known)
        if origin is Literal:
            return self.draw.choice(inner)
        if origin is tuple and inner[-1] is ...:
            return tuple(self.one(inner[0], name, known) for _ in range(self.draw.choice([1, 1, 2, 3])))
        plain: dict[Any, list[Any]] = {
            bool: [False, True],
            int: [0, 1, 2, 3, self.large()],
            float: [0.0, 0.5, 1.0, 3.0, float(self.large())],
            type(None): [None],
        }
        return self.draw.choice(plain[hint])

    def large(self) -> int:
        """A number of any size, often near a power of two, as the limits of fields are; too large ones are refused."""
        return int(2 ** self.draw.randrange(64) - self.draw.choice([0, 1]))

    def _is_own(self, hint: Any, name: str) -> bool:
        """Whether the field's own method chooses among the types."""
        return hasattr(self, f"_{name}") and not any(
            inspect.isclass(kind) and issubclass(kind, Expression) for kind in get_args(hint)
        )

    def fitting(self, kinds: Sequence[type[Any]]) -> Any:
        """A value of one of some classes that means something under the schema."""
        for _ in range(TRIES):
            try:
                return self.made(self.draw.choice(kinds), {})
            except QueryError:
                continue
        raise QueryError("nothing fits")

    def _column(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([*self.schema.columns])

    _target = _column

    def _points(self, hint: Any, known: dict[str, Any]) -> Any:
        """Cuts of a column; or scores of each class."""
        if "target" in known:
            (score, *_) = get_args(hint)
            return tuple(self.made(score, {}) for _ in self._labels(known["target"]))
        column = self.schema.numeric(known["column"])
        most = min(column.cells - 1, self.draw.choice([1, 1, 2, 5, 500]))
        return tuple(
            column.cut_before(cell) for cell in sorted({self.draw.randint(1, column.cells - 1) for _ in range(most)})
        )

    def _labels(self, name: str) -> tuple[Any, ...]:
        return self.schema.categorical(name).labels

    def _groups(self, hint: Any, known: dict[str, Any]) -> Any:
        """Groups of a column's values; or of intervals of its numbers, some of them left out."""
        column = known["column"]
        if column in self.schema.numeric_columns:
            ends = [None, *self._points(hint, known), None]
            labels = [*itertools.pairwise(ends), *([None] if self.schema.numeric(column).nullable else [])]
        else:
            labels = list(self._labels(column))
        self.draw.shuffle(labels)
        labels, count = labels[: self.draw.randint(1, len(labels))], self.draw.randint(1, 4)
        return tuple(tuple(labels[first::count]) for first in range(min(count, len(labels))))

    def _names(self, hint: Any, known: dict[str, Any]) -> Any:
        columns = [*self.schema.columns]
        return tuple(self.draw.sample(columns, self.draw.randint(1, len(columns))))

    def _ranges(self, hint: Any, known: dict[str, Any]) -> Any:
        numeric = self.schema.numeric_columns
        some: list[Any] = [None, (-1.0, 1.0), (2.5, 2.75), (-1e100, 1e100)]
        return tuple(self.draw.choice(some) if name in numeric else None for name in known["names"])

    def _sizes(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([(), tuple(self._constant(hint, known) for _ in known["names"])])

    def _constant(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([1.0, 0.3, 1e-9])

    def _fixed(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([None, *(name for name in known["names"] if name in self.schema.numeric_columns)])

    def _positive(self, hint: Any, known: dict[str, Any]) -> Any:
        labels = self._labels(known["target"])
        return tuple(self.draw.sample(labels, self.draw.randint(1, max(1, len(labels) - 1))))

    def _tables(self, hint: Any, known: dict[str, Any]) -> Any:
        sizes = [bind(spec, self.schema).size for spec in known["specs"]]
        if sum(sizes) > FEW_CODES:
            raise QueryError("too many to write down")
        return tuple(tuple(self._base(hint, known) for _ in range(size)) for size in sizes)

    def _expected(self, hint: Any, known: dict[str, Any]) -> Any:
        """The rows of each part: any, or the largest allowed difference of a table, in one part or divided among all."""
        sizes, most = [bind(spec, self.schema).size for spec in known["specs"]], MOST_OFF
        if sum(sizes) > FEW_CODES:
            raise QueryError("too many to write down")
        share = self.draw.choice([1, -1, 0])
        each = [share * min(most // size, MOST_EXPECTED) or self.large() // 2**20 for size in sizes]
        return tuple((number,) * size for number, size in zip(each, sizes, strict=True))

    def _weights(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([(), tuple(self.draw.randint(1, 100) for _ in known["specs"])])

    def _base(self, hint: Any, known: dict[str, Any]) -> Any:
        if self.draw.random() < 0.02:
            return self.draw.choice([-1, 1]) * self.large()
        return self.draw.choice([0, 5, -256, 2048, -2048, 4000, 2**40, -(2**40), self.draw.randint(-3000, 3000)])

    def _limit(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([1.0, 0.5, 1 / 256, 0.7, 2.0, 40.5, 32_767.0, LARGEST_RESIDUAL])

    def _within(self, hint: Any, known: dict[str, Any]) -> Any:
        """None, or a range of the column's numbers: all of it, two cells of it, or any."""
        column = self.schema.numeric(known.get("column", known.get("target")))
        last = column.cells - 1
        low, high = self.draw.choice(
            [(0, last), (last - 1, last), (0, 1), *[sorted(self.draw.choices(range(last + 1), k=2))] * 2]
        )
        return self.draw.choice([None, tuple(column.point(Fraction(column.number(cell))) for cell in (low, high))])

    def _share(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([None, "1/4", 0.9, "0.001", "2/7", "0.000001", "999999/1000000"])

    def _count(self, hint: Any, known: dict[str, Any]) -> Any:
        return self.draw.choice([1, 2, 3, 5])

    def _candidates(self, hint: Any, known: dict[str, Any]) -> Any:
        """One list of candidates, or two, of columns that the score does not use."""
        lists = self.draw.choice([1, 1, 2]) if known["parts"] > 1 else 1
        return tuple(
            tuple(self._candidate(known) for _ in range(self.draw.choice([1, 1, 2, 3, 6]))) for _ in range(lists)
        )

    def _candidate(self, known: dict[str, Any]) -> Any:
        """The candidates that a score lists itself, or any candidates."""
        if listed := getattr(known["score"], "specs", ()):
            return self.draw.choice(listed)
        for _ in range(TRIES):
            made = self.fitting(get_args(Candidate))
            if not made.columns() & known["score"].targets():
                return made
        raise QueryError("nothing fits")

    def _which(self, hint: Any, known: dict[str, Any]) -> Any:
        lists = len(known["candidates"])
        return (0,) if lists == 1 else tuple(part % lists for part in range(known["parts"]))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
