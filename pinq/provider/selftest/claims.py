# SPDX-License-Identifier: Apache-2.0
"""The tested claims: queries of a schema's columns, each with two neighbouring tables that reach its epsilon.

A template of a claim has a query, its columns, the rows of a table, and the added row. The report names the ones for
which a schema has no column. Each pair is the worst known: the added row changes the answer, or the difference of two
scores, by the full sensitivity, so noise that is slightly too small exceeds the claimed loss.

Each *cell* of one column has a copy of a table. A query to all cells is one request and one charge, and gives
independent draws: the answer of a cell depends on the rows of that cell alone, and the noise of cells is independent.
``max_rows`` is declared for one copy, the table of the claim.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pinq.analyst.client import connect
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import QueryError, Unavailable
from pinq.language.derivatives import LARGEST_RESIDUAL, AnyDerivatives, Logistic, Residuals, Softmax
from pinq.language.points import POINTS, Points
from pinq.language.products import VECTORS, Products
from pinq.language.scores import SCORES, Balance, ClassCount, EnoughRows, Gradient, MaxClass, Misfit, MutualInformation
from pinq.language.specs import AnyCross, AnyCut, AnyGrouping, Candidate, Cuts, Groups, Shards, Spec, Values, bind
from pinq.policy.policy import Policy
from pinq.provider.grants import grant
from pinq.provider.local import open as open_here
from pinq.public.schema import Adjacency, Categorical, Column, PrivacyUnit, Schema

ANALYST, CELL, PERSON = "selftest", "copy of the selftest", "person of the selftest"
LIMIT = 10**6
MAX_CELLS = 20_000

EVERY_KIND = Schema.model_validate(
    {
        "max_rows": 1,
        "columns": {
            "y": {"type": "categorical", "values": ["n", "p"]},
            "z": {"type": "numeric", "lower": 0, "upper": 15, "integer": True},
            **{name: {"type": "categorical", "values": ["u", "v"]} for name in "abc"},
            "g": {"type": "categorical", "values": ["u", "v", "w"]},
            "x": {"type": "numeric", "lower": 0, "upper": 100, "integer": True},
            "low": {"type": "numeric", "lower": -100, "upper": 10, "nullable": True},
            "day": {"type": "date", "lower": "2024-02-28", "upper": "2024-12-31"},
            "hour": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-01-02", "step": 60, "nullable": True},
            "told": {"type": "categorical", "values": [True, False], "nullable": True},
            "one": {"type": "categorical", "values": ["only"]},
            "same": {"type": "numeric", "lower": 3, "upper": 3, "integer": True},
        },
    }
)
"""Every kind of column, and edge cases: one value, equal bounds, a calendar of one year."""

Row = Mapping[str, int]
"""A row of one copy by the codes of its columns, by default 0; ``PERSON`` is the number of its person."""


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables, with declarations of their policy.

    Attributes:
        before, after: The rows of one copy.
        unit_rows: The largest number of rows of a person; None if a row is the privacy unit.
    """

    before: Sequence[Row]
    after: Sequence[Row]
    adjacency: Adjacency = "add-remove"
    unit_rows: int | None = None

    @property
    def max_rows(self) -> int:
        """The rows of the larger table, as its policy declares."""
        return max(len(self.before), len(self.after), 1)

    @property
    def neighbours(self) -> str:
        rows = "a row" if self.unit_rows is None else f"a person of {self.unit_rows} rows"
        return f"{rows} {'comes' if self.adjacency == 'add-remove' else 'is replaced'}"

    def cells(self, draws: int) -> int:
        """The number of copies in a table, for a number of draws."""
        # All copies together have at most 400,000 rows.
        return min(draws, MAX_CELLS, 400_000 // self.max_rows)


@dataclass(frozen=True)
class PublishedTable:
    """A table with its policy and a granted budget, in files.

    Attributes:
        policy: The policy's file.
        cells: The number of copies.
    """

    policy: Path
    cells: int
    token: str = field(repr=False)

    @property
    def partition(self) -> Values:
        """The spec that splits the table into copies."""
        return Values(CELL)


def publish(pair: Pair, schema: Schema, folder: Path, draws: int) -> tuple[PublishedTable, PublishedTable]:
    """Writes both tables and their policies, and grants a budget on each."""
    cells = pair.cells(draws)
    unit = {} if pair.unit_rows is None else {"privacy_unit": PrivacyUnit(column=PERSON, max_rows=pair.unit_rows)}
    terms = {"max_rows": pair.max_rows, "adjacency": pair.adjacency, **unit}
    # A column with a formula becomes a plain column with dummy values.
    columns = {name: column.as_given.model_copy(update={"unreviewed": ()}) for name, column in schema.columns.items()}
    columns[CELL] = Categorical(values=tuple(range(cells)))
    before, after = (
        publish_table(folder, name, columns, _table(rows, cells, schema), cells, **terms)
        for name, rows in (("before", pair.before), ("after", pair.after))
    )
    return before, after


def publish_table(
    folder: Path, name: str, columns: Mapping[str, Column], table: pa.Table, cells: int = 1, **terms: Any
) -> PublishedTable:
    """Writes a table of some copies and its policy, and grants a budget on it."""
    pq.write_table(table, folder / f"{name}.parquet")
    policy = Policy(dataset=name, source=f"{name}.parquet", cap=Decimal(LIMIT), columns=columns, **terms)
    file = folder / f"{name}.yaml"
    file.write_text(policy.to_yaml(), encoding="utf-8")
    return PublishedTable(file, cells, grant(file, ANALYST, LIMIT).token)


def _table(rows: Sequence[Row], cells: int, schema: Schema) -> pa.Table:
    copies = {name: pa.chunked_array([values_of(rows, name, schema)] * cells) for name in schema.columns}
    cell = np.repeat(np.arange(cells), len(rows))
    # With three persons in a copy, the first copy has persons 0 to 2, and the second 3 to 5.
    people = np.array([row.get(PERSON, 0) for row in rows], dtype=np.int64)
    return pa.table({**copies, CELL: cell, PERSON: cell * (people.max(initial=0) + 1) + np.tile(people, cells)})


def values_of(rows: Sequence[Row], name: str, schema: Schema) -> pa.Array:
    """The raw values of a column in some rows."""
    codes = [row.get(name, 0) for row in rows]
    if name in schema.numeric_columns:
        column = schema.numeric_columns[name]
        points = [None if code == column.null_code else column.point(column.number(code)) for code in codes]
        return pa.array(points, pa.string() if column.unit else pa.float64())
    category = schema.categorical_columns[name]
    return pa.array([category.labels[code] for code in codes], pa.array(category.values).type)


OpenHandles = Callable[[tuple[PublishedTable, ...]], AbstractContextManager[list[PrivateQueryable]]]
"""A function that opens a handle on each table."""

MAIN = "from pinq.cli.main import main; main()"
STARTING = 600.0  # seconds, enough for a busy machine


@contextmanager
def in_process(worlds: tuple[PublishedTable, ...]) -> Iterator[list[PrivateQueryable]]:
    """Opens each world in this process."""
    with ExitStack() as opened:
        yield [opened.enter_context(open_here(world.policy, analyst=ANALYST)) for world in worlds]


@contextmanager
def through_a_server(worlds: tuple[PublishedTable, ...]) -> Iterator[list[PrivateQueryable]]:
    """Serves all worlds by ``pinq serve`` on this machine, and connects to each."""
    policies = (str(world.policy) for world in worlds)
    command = [sys.executable, "-c", MAIN, "serve", *policies, "--port", "0", "--insecure-http"]
    log = worlds[0].policy.with_suffix(".log")
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    with ExitStack() as opened:
        opened.callback(server.wait, timeout=STARTING)
        opened.callback(server.terminate)
        root = _address(server, log)
        handles = (
            connect(f"{root}/{world.policy.stem}", token=world.token, insecure_http=True, timeout=600.0)
            for world in worlds
        )
        yield list(map(opened.enter_context, handles))


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Waits until a server prints its address. Raises ``Unavailable`` if it does not."""
    end = time.monotonic() + STARTING
    while (announced := re.search(r"^Serving .* on (\S+)\. ", log.read_text(errors="replace"), re.MULTILINE)) is None:
        if time.monotonic() > end or server.poll() is not None:
            raise Unavailable(f"The server of the test did not start: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.05)
    return announced[1]


EPSILON = Fraction(3, 2)
SPLITS, CHAINS, LEAST = 12, 4_000, 1  # EnoughRows: splits of a path, paths of a request, rows of a kept split
MANY, PURE, PERSON_ROWS = 10, 59, 3  # rows: of a usual table, of one with a single class, of a person
STEEP, UNLIKELY = 2048, -(2**20)  # points: a probability of 0.9997, and that of a class without rows

Outcomes = Sequence[Hashable] | np.ndarray
Query = Callable[[Parts, Fraction], Any]
Law = Mapping[Hashable, float]
"""Probabilities of outcomes; the remaining probability belongs to all other outcomes."""


@dataclass(frozen=True)
class Claim:
    """A query with a claimed loss.

    Attributes:
        query: A function that queries all copies at a loss, and returns an answer for each.
        seconds: The approximate time of a measurement with all draws, on an idle core.
        law: The exact law of the outcomes on the first table, at ``EPSILON``; None if it is unknown.
    """

    name: str
    pair: Pair
    query: Query
    seconds: float = 14.0
    noisy: bool = False
    law: Law | None = None
    schema: Schema = EVERY_KIND

    def ask(self, parts: Parts, epsilon: Fraction) -> Outcomes:
        """An outcome for each copy; for noisy answers their numbers, shape (copies, numbers)."""
        answers = self.query(parts, epsilon)
        if not self.noisy:
            return [repr(answer) for answer in answers]
        numbers = np.asarray(answers)
        dates = numbers.dtype.kind == "M"
        return (numbers.astype(np.int64) if dates else numbers).astype(np.float64).reshape(len(parts), -1)


Fits = Callable[[str], object]
"""Raises ``QueryError`` if a column does not fit."""
ALL = (0, 1, 2)  # all senses of neighbours


@dataclass(frozen=True)
class _Template:
    """A claim before columns are found for it.

    Attributes:
        fits: The tests of the columns that it needs, in the order of choice.
        rows: The codes of these columns in each row of a table: 0 is the first, -1 the last value.
        added: The codes of these columns in the added row.
        senses: The senses of neighbours: row comes (0), row is replaced (1), person comes (2).
    """

    name: str
    fits: tuple[Fits, ...]
    rows: Sequence[tuple[int, ...]]
    added: tuple[int, ...]
    query: Callable[..., Query]
    senses: tuple[int, ...] = (0,)
    more: Mapping[str, Any] = field(default_factory=dict)

    def claims(self, schema: Schema) -> list[Claim]:
        """The claims on a schema. Raises ``QueryError`` if it has no columns for them."""
        names: list[str] = []
        for fits in self.fits:
            free = [name for name in _fitting(schema, fits) if name not in names]
            _require(bool(free))
            names.append(free[0])
        cells = [range(schema.columns[name].cells) for name in names]

        def row_of(codes: tuple[int, ...]) -> dict[str, int]:
            return {name: column[code] for name, column, code in zip(names, cells, codes, strict=True)}

        people: list[Row] = [{**row_of(codes), PERSON: number} for number, codes in enumerate(self.rows)]
        person: Row = {**row_of(self.added), PERSON: len(people)}
        senses = (
            ("", Pair(people, [*people, person])),
            (", a row replaced", Pair(people, [*people[1:], person], adjacency="substitute")),
            (", a person of three rows", Pair(people, [*people, *[person] * PERSON_ROWS], unit_rows=PERSON_ROWS)),
        )
        chosen = [senses[sense] for sense in self.senses]
        query = self.query(*names)
        return [Claim(self.name + words, pair, query, schema=schema, **self.more) for words, pair in chosen]


def _fitting(schema: Schema, fits: Fits) -> list[str]:
    fitting = []
    for name, column in schema.columns.items():
        with suppress(QueryError):
            fits(name)
            fitting += [name] * (column.cells > 1)
    return fitting


def _require(fits: bool) -> None:
    if not fits:
        raise QueryError("the schema has no column for it")


def claims_of(schema: Schema) -> tuple[list[Claim], list[str]]:
    """Every claim about a schema's columns, and the untested claims."""
    claims, left_out = list[Claim](), list[str]()
    lines = (
        *_counts(schema),
        *_columns(schema),
        *_losses(schema),
        _products(schema),
        *_scores(schema),
        *_families(schema),
    )
    for line in lines:
        try:
            claims += line.claims(schema)
        except QueryError:
            left_out.append(f"{line.name}, for which the schema has no columns")
    words = " ".join(claim.name for claim in claims)
    left_out += [f"{kind}, because no claim has it" for kind in (*SCORES, *VECTORS) if kind not in words]
    derived = [name for name, column in schema.columns.items() if column.is_derived]
    left_out += [f"the formula of {name}, which has dummy values" for name in derived]
    return [*claims[:1], *_known_choice().claims(EVERY_KIND), *claims[1:]], left_out


def _counts(schema: Schema) -> list[_Template]:
    def count(*specs: Spec) -> Query:
        return lambda parts, epsilon: reduce(Parts.partition, specs, parts).noisy_count(epsilon=epsilon)

    def nested(a: str, b: str) -> Query:
        return count(_split(schema, a), _split(schema, b))

    # The first lines need no column, so they are tested for every schema.
    row, person = ({"noisy": True, "law": _laplace_law(MANY, rows)} for rows in (1, PERSON_ROWS))
    return [
        _Template("noisy_count", (), [()] * MANY, (), count, (0,), row),
        _Template("noisy_count", (), [()] * MANY, (), count, (2,), person),
        _Template("noisy_count in shards", (), (), (), partial(count, Shards(3)), (0,), NOISY),
        _Template("noisy_count of nested parts", (str, str), [(0, 0)] * MANY, (-1, -1), nested, ALL, NOISY),
    ]


NOISY = {"noisy": True}


def _columns(schema: Schema) -> Iterator[_Template]:
    """Claims for each type of column, with and without missing values: the added row has the number farthest from 0."""

    def query(verb: str, name: str) -> Query:
        return lambda parts, epsilon: getattr(parts, verb)(name, epsilon=epsilon)

    def average(name: str) -> Query:
        column = schema.numeric(name)
        within = column.point(column.number(1)), column.point(column.number(2))
        return lambda parts, epsilon: parts.noisy_avg(name, within=within, epsilon=epsilon)

    for verb, fits in (("noisy_sum", schema.addable), ("noisy_avg", schema.numeric)):
        kinds: dict[object, str] = {}
        for name in _fitting(schema, fits):
            kinds.setdefault((schema.columns[name].type, schema.columns[name].nullable), name)
        for number, name in enumerate(kinds.values()):
            column = schema.numeric(name)
            far = -1 if abs(column.number(0)) <= abs(column.number(column.cells - 1)) else 0
            senses = (0,) if number else ALL
            line = (f"{verb} of {name}", (partial(_one, name),), [(-1 - far,)] * MANY, (far,))
            yield _Template(*line, partial(query, verb), senses, NOISY)
        if not kinds:
            yield _Template(verb, (fits,), (), (0,), partial(query, verb))
    yield _Template(
        "noisy_avg of a narrower range",
        (lambda name: _require(schema.numeric(name).cells > 3),),
        [(0,)] * MANY,
        (-1,),
        average,
        ALL,
        NOISY,
    )


def _one(allowed: str, name: str) -> None:
    _require(name == allowed)


def _split(schema: Schema, name: str) -> Cuts | Groups:
    """Sets a column's first value apart from all others."""
    if name in schema.numeric_columns:
        return Cuts(name, (schema.numeric_columns[name].cut_before(1),))
    labels = schema.categorical_columns[name].labels
    return Groups(name, (labels[:1], labels[1:]))


def _losses(schema: Schema) -> Iterator[_Template]:
    """Every form of every loss of a target ``y``, with points by another column ``a``.

    Rows with the first values have the longest vectors, and the added row has the opposite vector.
    """

    def points(a: str, size: int) -> Points:
        split = _split(schema, a)
        return Points((split,), ((size, *[-size] * (split.max_parts(schema) - 1)),))

    def logistic(y: str, a: str) -> Logistic:
        return Logistic(y, schema.categorical(y).labels[1:], points(a, STEEP))

    def softmax(*hessian: Any, y: str, a: str) -> Softmax:
        unlikely = [Points(base=UNLIKELY)] * (schema.columns[y].codes - 2)
        return Softmax(y, (points(a, -STEEP), points(a, STEEP), *unlikely), *hessian)

    def residuals(rows: bool, y: str, a: str) -> Residuals:
        width = min(schema.columns[y].cells - 1, 2 * LARGEST_RESIDUAL)
        return Residuals(y, Points(base=int(width * POINTS / 2)), width / 2, rows)

    yield from _sums(schema, "logistic", schema.categorical, logistic, ALL)
    yield from _sums(schema, "softmax", schema.categorical, lambda y, a: softmax(y=y, a=a))
    second = "softmax with second derivatives"
    yield from _sums(schema, second, schema.categorical, lambda y, a: softmax(True, 3.0, y=y, a=a))
    yield from _sums(schema, "residuals", schema.numeric, partial(residuals, False))
    yield from _sums(schema, "residuals with rows", schema.numeric, partial(residuals, True))


def _products(schema: Schema) -> _Template:
    """Products of a number and another column: the added row has the largest entries."""

    def summed(x: str, a: str) -> Query:
        return lambda parts, epsilon: parts.noisy_sum(Products((x, a), sizes=(1.0, 0.5)), epsilon=epsilon)

    return _Template("noisy_sum of products", (schema.numeric, str), [(0, 0)] * MANY, (-1, -1), summed, (0, 1), NOISY)


def _sums(
    schema: Schema,
    name: str,
    target: Fits,
    loss: Callable[[str, str], AnyDerivatives],
    senses: tuple[int, ...] = (0,),
) -> list[_Template]:
    """Sums of a loss's derivatives, also in the cells of two specs, and a choice by its gradients."""

    def summed(by: bool, y: str, a: str) -> Query:
        specs = [_split(schema, y), _split(schema, a)] if by else None
        return lambda parts, epsilon: parts.noisy_sum(loss(y, a), by=specs, epsilon=epsilon)

    def chosen(y: str, a: str, same: str) -> Query:
        return _choose([_split(schema, same), _split(schema, a)], Gradient(loss(y, a)))

    pair, rows, other = (target, str), [(0, 0)] * MANY, (-1, -1)
    return [
        _Template(f"noisy_sum of {name}", pair, rows, other, partial(summed, False), senses, NOISY),
        _Template(f"noisy_sum of {name} by two", pair, rows, other, partial(summed, True), (0,), NOISY),
        _Template(f"exp_mech, gradient of {name}", (*pair, str), [(0, 0, 0)] * MANY, (-1, -1, 0), chosen),
    ]


def _choose(candidates: Sequence[Candidate], score: Any, **more: bool) -> Query:
    return lambda parts, epsilon: parts.exp_mech(candidates, score=score, epsilon=epsilon, **more)


def _scores(schema: Schema) -> Iterator[_Template]:
    """Every score, on two columns; only one of them distinguishes the added row."""

    def choose(score: Callable[[str], Any], y: str, same: str, apart: str, **more: bool) -> Query:
        return _choose([_split(schema, same), _split(schema, apart)], score(y), **more)

    def balance(share: float | None, a: str, b: str) -> Query:
        return _choose([_split(schema, a), _split(schema, b)], Balance(share))

    def misfit(a: str, b: str) -> Query:
        # No rows are expected by a, and ten too many by b: the added row makes a's misfit worse and b's better.
        specs = _split(schema, a), _split(schema, b)
        none, more = ([0] * bind(spec, schema).size for spec in specs)
        more[:2] = [MANY * Misfit.unit] * 2
        return _choose(specs, Misfit(specs, (tuple(none), tuple(more))))

    def check(score: Callable[[str], Any], y: str) -> None:
        score(y).check(schema)

    rows, other = [(0, 0, 0)] * PURE, (-1, 0, -1)
    of_target = [kind for kind in SCORES.values() if fields(kind)[0].name == "target"]
    for kind in of_target:
        if kind is not ClassCount:
            senses = ALL if kind is MaxClass else (0,)
            fits = (partial(check, kind), str, str)
            yield _Template(f"exp_mech, {kind.kind}", fits, rows, other, partial(choose, kind), senses)
    papers = partial(choose, MutualInformation, textbook=True)
    yield _Template("exp_mech as in papers, mutual_information", (schema.categorical, str, str), rows, other, papers)
    even = [(0, 0), (0, 0), (0, 0), (-1, 0), (-1, -1), (-1, -1), (-1, -1)]
    yield _Template("exp_mech, balance", (str, str), even, (0, 0), partial(balance, None))
    quarter = [(0, 0), (-1, 0), (-1, 0), *[(-1, -1)] * 5]
    yield _Template("exp_mech, balance of a quarter", (str, str), quarter, (0, 0), partial(balance, 0.25))
    yield _Template("exp_mech, misfit", (str, str), [(0, 0)] * MANY, (0, -1), misfit)
    votes = [(0,), (-1,)] * MANY
    yield _Template("exp_mech, class_count", (schema.categorical,), votes, (-1,), lambda y: _choose((), ClassCount(y)))


def _families(schema: Schema) -> list[_Template]:
    """Choices among the members of families; and the choice of trees to keep their splits."""

    def grouped(seeds: int, a: str, y: str) -> Query:
        return _choose([AnyGrouping(a, seed=seed) for seed in range(seeds)], MaxClass(y), each=seeds > 1)

    def crossed(y: str, *columns: str) -> Query:
        specs: Any = (Values(name) if name in schema.categorical_columns else _split(schema, name) for name in columns)
        return _choose([AnyCross(tuple(specs), 2)], MutualInformation(y))

    def stopped(x: str) -> Query:
        def ask(parts: Parts, epsilon: Fraction) -> Any:
            leaves, left = [], parts[:CHAINS]
            for cell in range(1, SPLITS + 1):
                both = left.partition(Cuts(x, (schema.numeric(x).cut_before(cell),)))
                leaves.append(both[::2])
                left = both[1::2]
            decisions = Parts.union(*leaves, left).exp_mech(score=EnoughRows(LEAST, above=1), epsilon=epsilon)
            return decisions[-len(left) :]

        return ask

    category = schema.categorical
    cuts = (category, lambda name: AnyCut(name).check(schema))
    groups = (lambda name: _require(category(name).cells > 2), category)
    long = (lambda name: _require(schema.numeric(name).cells > SPLITS and not schema.numeric(name).nullable),)
    mixed, other = [(0, 0), (1, -1), (2, 0), (2, -1)] * 5, (2, -1)
    return [
        # Without the added row, all cuts have the same score.
        _Template("exp_mech, AnyCut", cuts, [(0, -2)] * MANY, (-1, -1), lambda y, a: _choose([AnyCut(a)], MaxClass(y))),
        _Template("exp_mech, AnyGrouping", groups, mixed, other, partial(grouped, 1)),
        _Template("exp_mech of each, AnyGrouping", groups, mixed, other, partial(grouped, 2)),
        _Template("exp_mech, AnyCross", (category, str, str, str), [(0, 0, 0, 0)] * PURE, (-1, 0, -1, 0), crossed),
        # All rows lie below all splits; no path of this length with a larger loss is known (privacy.md 3.4).
        _Template("exp_mech, enough_rows", long, [(-1,)] * 21, (-1,), stopped, (0,), {"seconds": 200.0}),
    ]


def _known_choice() -> _Template:
    """A choice with a known law: of these five rows of y, MaxClass by column a scores 4, by b and by c 3."""
    splits = [Values("a"), Values("b"), Values("c")]
    law = dict(zip(map(repr, splits), flip_law([4, 3, 3], float(EPSILON)), strict=True))
    fits = (partial(_one, "y"), partial(_one, "a"), partial(_one, "b"))
    rows = [(1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 1)]
    name = "exp_mech among three columns"
    return _Template(name, fits, rows, (1, 0, 0), lambda *_: _choose(splits, MaxClass("y")), more={"law": law})


def _laplace_law(count: int, rows: int) -> Law:
    """The law of a noisy count; ``rows`` is the bound of rows of a person."""
    a = math.exp(-EPSILON / rows)
    return {count + noise: (1 - a) / (1 + a) * a ** abs(noise) for noise in range(-6 * rows, 6 * rows + 1)}


def flip_law(scores: Sequence[int], eta: float) -> np.ndarray:
    """Returns the law of permute-and-flip, shape (candidates,).

    Candidate r is visited at a uniform time t, all earlier ones were rejected, and it is accepted: the integral over t
    of p_r times the product of 1 - p_s t over the others (McKenna & Sheldon 2020). ``eta`` is epsilon over the span of
    the scores.
    """
    accept = np.exp(eta * (np.array(scores) - max(scores)))
    law = np.zeros(len(scores))
    for r in range(len(scores)):
        product = np.polynomial.Polynomial([1.0])
        for s in range(len(scores)):
            if s != r:
                # Of two candidates the better has p = 1, and the other wins with p times the integral of 1 - t: p / 2.
                product *= np.polynomial.Polynomial([1.0, -accept[s]])
        law[r] = accept[r] * product.integ()(1.0)
    return law
