# SPDX-License-Identifier: Apache-2.0
"""The answers to the queries, a function for each kind.

``_count`` is the shortest; read it first, and ``pinq/curator/prepared.py`` for the prepared query.

A function reads public facts only. It returns the tables to count, the expected error, and the step from exact tables
to a noisy release. The curator charges between preparation and counting.

A sum is counted in whole units: cell k of the grid is ``factor * k + offset`` units. The unit is
the largest of which the numbers of all cells are whole multiples. A column from 10 to 100 in steps
of 10 has cells of 14.5, 24.5, ...: 29, 49, ... units of 0.5.

An average comes from two noisy bins: a row in cell k adds k to the bin U and G - k to the bin L,
where G is the last cell. U / (U + L) is the position of the average between the first and the last
cell. Cells are numbered from the first cell of the range to which the query clamps.

``EnoughRows`` is charged once, however deep the tree. It is PrivTree's test (Zhang, Xiao & Xie
2016) of a whole tree of partitions at once; the tree is already public. A part stays split if its
rows, minus ``least``, minus a penalty for each split above it, plus noise, are above 0. With
``least`` 100 and a penalty of 20, a tree of 300 rows has 300 - 100 = 200 to spare and its child of
110 rows 110 - 100 - 20 = -10; a smaller number than -20 counts as -20.

To add a query: its class (``pinq/language/queries.py``), its function here, and its line in
``PREPARE``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pinq.curator.candidates.scorer import NUMBERS_AT_ONCE
from pinq.curator.candidates.selection import Selection, choose_evenly
from pinq.curator.mechanisms import choose
from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about, grid_error
from pinq.engine.tables import MAX_SUM, Moments, TableRequest
from pinq.errors import QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import (
    MAX_CANDIDATES,
    Average,
    Choose,
    Count,
    Query,
    Stop,
    Sum,
    SumDerivatives,
    Vote,
)
from pinq.language.scores import PATH_LOSS, EnoughRows, Score, require_score
from pinq.language.specs import Values, bind
from pinq.public.epsilon import figures, laplace_interval
from pinq.public.schema import Numeric, Schema

MAX_LEAVES = 2**19
# Nanoseconds of the steps of one part's release, as in pinq/curator/price.py: a number as text; a sum in
# the column's units; an average of its bins; a choice by permute-and-flip, and by the exponential mechanism; a leaf
# that is looked at from the root down.
WRITTEN, SUMMED, AVERAGED, CHOSEN, WEIGHED, TESTED = 600, 1_000, 2_000, 2_400, 30_000, 3_000
HALVES = Fraction(693148, 1000000)  # ln 2, rounded up
EXAMPLE_ROWS = (100, 10_000)  # sizes of parts for which a preview has the error of an average


def prepare(query: Query, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Checks a query against the schema, or raises ``QueryError``."""
    query.check_for(parts, schema)
    return PREPARE[type(query)](query, parts, schema)


def _each(values: Callable[[Counted, Fraction], Iterable[Any]]) -> Callable[[Iterable[Counted], Fraction], Released]:
    """Releases one slice of the parts after the other."""
    return lambda slices, epsilon: Released([value for counted in slices for value in values(counted, epsilon)])


def _count(query: Count, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``noisy_count``: the rows of each part + DLap(1 / epsilon).

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: parts are disjoint, so one row changes one part's count by 1 (privacy.md 2.1).
    """

    def noise(epsilon: Fraction) -> Noise:
        scale = float(1 / epsilon)
        return Noise(
            f"each count is within ±{laplace_interval(scale, 0.95):,} of the truth in 95 % of cases", scale, 1.0
        )

    def counts(counted: Counted, epsilon: Fraction) -> list[int]:
        return counted.noisy(counted.array(), 1, epsilon).tolist()

    return PreparedQuery(parts=parts, about=about("noisy_count", parts), noise=noise, release=_each(counts), draws=2)


@dataclass(frozen=True)
class _SumUnits:
    unit: Fraction
    factor: int
    offset: int
    largest: int

    @classmethod
    def of(cls, column: Numeric) -> _SumUnits:
        origin, width = column.origin, column.width
        # Of origin 29/2 and width 10/1: gcd(29 * 1, 10 * 2) / (2 * 1) = 1/2, so cell k is 20 k + 29
        # units.
        shared = math.gcd(origin.numerator * width.denominator, width.numerator * origin.denominator)
        unit = Fraction(shared, origin.denominator * width.denominator)
        factor, offset = int(width / unit), int(origin / unit)
        return cls(unit, factor, offset, max(abs(offset), abs(factor * (column.cells - 1) + offset)))

    def total(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Adds up units, exact up to 2^62, from the rows and sums of codes of each part; int64."""
        # Cells 1 and 3 of the grid above: codes add up to 4, so 20 * 4 + 29 * 2 = 138 units of 1/2,
        # or 69. In Python's integers: where the policy's cap was wrong, 64 bits may not do.
        exact = self.factor * codes.astype(object) + self.offset * rows.astype(object)
        return np.clip(exact, -MAX_SUM, MAX_SUM).astype(np.int64)


def _sum(query: Sum, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``noisy_sum``: a sum of whole units + DLap(largest / epsilon), in the column's own units.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection. Why: a row adds at most
        ``largest`` units to one part (privacy.md 2.2). No table that the policy admits has a sum beyond 2^62 units;
        larger sums are clipped there, and clipping at a public bound never increases the distance between two sums.
    """
    column = schema.addable(query.column)
    units = _SumUnits.of(column)
    if units.largest * schema.max_rows >= MAX_SUM:
        raise QueryError(
            f"sums of `{query.column}` could pass 2^62 units of {float(units.unit):g}; "
            "the provider must declare rounder bounds or a larger step."
        )

    def noise(epsilon: Fraction) -> Noise:
        scale = float(units.largest / epsilon)
        within = laplace_interval(scale, 0.95) * float(units.unit)
        error = f"each sum is within ±{figures(within, 6)} of the truth in 95 % of cases, {grid_error(column)}"
        return Noise(error, scale * float(units.unit), float(units.unit))

    def sums(counted: Counted, epsilon: Fraction) -> list[float]:
        exact = units.total(counted.array()[..., 0], counted.array()[..., 1])
        noisy = counted.noisy(exact, units.largest, epsilon)
        # As exact as of fractions: Python rounds the quotient of two whole numbers once.
        return [value * units.unit.numerator / units.unit.denominator for value in noisy.tolist()]

    return PreparedQuery(
        parts=parts,
        about=about(f"noisy_sum of {query.column}", parts),
        noise=noise,
        release=_each(sums),
        measure=Moments(query.column),
        handling=SUMMED,
        draws=2,
        sensitivity=units.largest,
    )


def _derivatives(query: SumDerivatives, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``noisy_sum`` of derivatives: sums of the rows' vectors + DLap(specs * bound / epsilon).

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection, all specs and
        all entries together.
        Why: a row is in one part at most, there in one cell at most of each spec, and adds its
        vector to that; vectors have an L1 norm of at most ``bound`` whole units. So the L1
        sensitivity of all sums, laid end to end, is the number of specs times ``bound``
        (privacy.md 8.1).
        Exact: ``bound`` is at most 2^24, so 64 bits hold the sums of 2^38 rows, as many as the
        engine adds up. Held by: tests/privacy/test_derivative_sums.py.
    """
    vectors = query.column.vectors(schema)
    splits = [bind(spec, schema) for spec in query.by or ()]
    sensitivity, unit = vectors.bound * max(1, len(splits)), query.column.unit
    numbers = vectors.width * (sum(split.size for split in splits) or 1)

    def noise(epsilon: Fraction) -> Noise:
        scale = float(sensitivity / epsilon)
        return Noise(
            f"each sum is within ±{laplace_interval(scale, 0.95) / unit:,.6g} of the truth in 95 % of cases",
            scale / unit,
            1 / unit,
        )

    def sums(counted: Counted, epsilon: Fraction) -> list[float]:
        # Specs of 3 and 2 cells, vectors of two entries: ten numbers of each part, side by side.
        arrays = [counted.array(table) for table in range(len(tables))]
        exact = np.concatenate([array.reshape(len(array), -1, vectors.width) for array in arrays], axis=1)
        return (counted.noisy(exact.ravel(), sensitivity, epsilon) / unit).tolist()

    tables = tuple(TableRequest(split.axes) for split in splits) or (TableRequest(),)
    by = [axis.column or "shards" for split in splits for axis in split.axes]
    return PreparedQuery(
        parts=parts,
        about=about(f"noisy_sum of {query.column.about}{' by ' if by else ''}{', '.join(by)}", parts),
        noise=noise,
        release=_each(sums),
        tables=tables,
        measure=vectors,
        handling=WRITTEN * numbers,
        draws=2 * numbers,
        sensitivity=sensitivity,
    )


def _average(query: Average, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``noisy_avg``: from U + DLap(G / epsilon) and L + DLap(G / epsilon).

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: the pair's L1 sensitivity is exactly G, so both together cost epsilon; the ratio is
        post-processing, and so is the number of rows, (U + L) / G. (A mean with noise scaled by the
        private number of rows would not be private; privacy.md 2.3.) A narrower public range clamps
        each row by itself and makes G smaller.
        Exact: G is below 2^24, so 64 bits hold the bins of 2^38 rows, as many as the engine adds
        up.
    """
    column = schema.numeric(query.column)
    first, end = query.cells(schema)
    last = end - first

    def noise(epsilon: Fraction) -> Noise:
        spread = float(column.width * last) * float(1 / epsilon)
        error = f"{_average_error(spread, schema.max_rows, column.unit)}, {grid_error(column)}"
        return Noise(error, spread, float(column.width), uniform=False)

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        pairs: list[tuple[int, int]] = []
        for counted in slices:
            # Of a grid whose last cell is 10, rows in cells 2 and 7 add 9 to the upper bin and 11
            # to the lower one: their average lies 9 / 20 of the way up.
            rows, upper = counted.array()[..., 0], counted.array()[..., 1]
            bins = counted.noisy(np.stack([upper, last * rows - upper]), last, epsilon)
            pairs += zip(*bins.tolist(), strict=True)
        averages = [_between(column, first, last, up, low) for up, low in pairs]
        return Released(averages, rows=tuple((up + low) / max(1, last) for up, low in pairs))

    within = "" if query.within is None else " from {} to {}".format(*query.within)
    return PreparedQuery(
        parts=parts,
        about=about(f"noisy_avg of {query.column}{within}", parts),
        noise=noise,
        release=release,
        measure=Moments(query.column, first=first, last=end),
        handling=AVERAGED,
        draws=4,
        sensitivity=last,
    )


def _average_error(spread: float, max_rows: int, unit: str) -> str:
    """The expected error of an average, in words, for two sizes of a part, because its size is not public."""
    errors = [
        f"{figures(spread / rows)} to {figures(spread * math.sqrt(2) / rows)}{unit} over {rows:,} rows"
        for rows in sorted({min(rows, max_rows) for rows in EXAMPLE_ROWS})
    ]
    return f"an average has a standard error of about {' and of '.join(errors)}"


def _between(column: Numeric, first: int, last: int, up: int, low: int) -> float:
    """The number that lies U / (U + L), within [0, 1], of the way from one cell to another, ``last`` cells on.

    The middle if the noise makes U + L 0.
    """
    up, parts = (1, 2) if up + low <= 0 else (min(max(up, 0), up + low), up + low)
    # Of whole numbers until the end: fractions take ten times as long, and Python rounds a quotient once.
    origin, width = column.origin, column.width
    cells = width.numerator * origin.denominator * (first * parts + last * up)
    return (origin.numerator * width.denominator * parts + cells) / (origin.denominator * width.denominator * parts)


def _choose(query: Choose, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``exp_mech`` among candidates; its privacy is that of ``Selection.choose``."""
    require_score(query.score, schema)
    if sum(map(len, query.candidates)) > MAX_CANDIDATES:
        raise QueryError(f"at most {MAX_CANDIDATES:,} candidates are possible.")
    score: Score = query.score
    selection = Selection(
        schema, parts, score, query.candidates, query.which, textbook=query.textbook, each=bool(query.each)
    )

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        chosen = [spec for counted in slices for spec in selection.choose(counted, epsilon)]
        # Parts that choose A, nothing, B and A get the numbers 0, -1, 1 and 0, and (A, B) is sent
        # once.
        distinct = {spec.identity: spec for spec in chosen if spec is not None}
        number = {identity: position for position, identity in enumerate(distinct)}
        return Released([-1 if spec is None else number[spec.identity] for spec in chosen], tuple(distinct.values()))

    target = f" of {score.target}" if hasattr(score, "target") else ""
    return PreparedQuery(
        parts=parts,
        about=about(f"exp_mech{' from each' if selection.each else ''} by {score.kind}{target}", parts),
        noise=lambda epsilon: _shortfall(
            score.kind, selection.span * selection.choices, epsilon, selection.options, score.unit
        ),
        release=release,
        tables=tuple(selection.frame.tables),
        measure=selection.frame.measure,
        scratch=selection.scratch,
        scored=selection.cells,
        draws=selection.flips,
        sensitivity=selection.choices * selection.span,
    )


def _shortfall(kind: str, span: int, epsilon: Fraction, options: int, unit: int | Fraction = 1) -> Noise:
    """Bounds the distance of a choice from the best of the options in 95 % of cases, in the score's natural units.

    P[score of the choice < best - t] <= options * exp(-eta t), eta = epsilon / span: a bound for
    both mechanisms.
    """
    # At span 2, epsilon .5 and 100 options: 4 ln(100 / .05) = 30.4.
    within = float(span / epsilon) * math.log(max(2, options) / 0.05) / float(unit)
    return Noise(f"the choice's {kind} is within {within:,.4g} of the best in 95 % of cases")


def _vote(query: Vote, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``exp_mech`` by ``ClassCount``: a noisy majority vote among the values of a column.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: parts are disjoint; a row adds 1 to the count of one value of one part, so scores
        change by at most 1, all in one direction.
    """
    score = query.score
    column = schema.categorical(score.target)
    span = (2 * score.sensitivity(schema)) if query.textbook else score.span(schema)

    together = max(1, NUMBERS_AT_ONCE // column.codes)

    def winners(counted: Counted, epsilon: Fraction) -> Iterator[int]:
        for start in range(0, len(counted.array()), together):
            counted.deadline.check()
            counts = counted.array()[start : start + together]
            lengths = [column.codes] * len(counts)
            yield from choose_evenly(counts.ravel(), lengths, span, epsilon, textbook=query.textbook).tolist()

    return PreparedQuery(
        parts=parts,
        about=about(f"exp_mech by {score.kind} of {score.target}", parts),
        noise=lambda epsilon: _shortfall(score.kind, span, epsilon, column.codes),
        release=_each(winners),
        tables=(TableRequest(bind(Values(score.target), schema).axes),),
        handling=WEIGHED if query.textbook else CHOSEN,
        draws=0 if query.textbook else column.codes,
        sensitivity=span,
    )


def _stop(query: Stop, parts: PartSet, schema: Schema) -> PreparedQuery:
    """``exp_mech`` by ``EnoughRows``: the depth down to which the parts of a grown tree are large enough.

    Its privacy is that of ``splits_kept``.
    """
    score = query.score
    score.check(schema)
    if len(parts) > MAX_LEAVES:
        raise QueryError(f"trees of {len(parts):,} leaves are too large; at most {MAX_LEAVES:,} are possible.")
    if any(block.part.depth + (block.partition is not None) < score.above for block in parts.blocks):
        raise QueryError(
            f"the trees are said to begin {score.above} splits below the whole table, and a part lies above that."
        )

    def noise(epsilon: Fraction) -> Noise:
        within = math.ceil(PATH_LOSS / epsilon * Fraction(math.log(20)))
        return Noise(
            f"a part stays split from about {score.least:,} rows on, ±{within:,} in 95 % of cases, "
            f"and {penalty(epsilon):,} more for each split of its tree above it"
        )

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        counts = [count for counted in slices for count in counted.array().tolist()]
        return Released(splits_kept(parts, counts, score, epsilon))

    return PreparedQuery(
        parts=parts,
        about=about(f"exp_mech by {score.kind}", parts),
        noise=noise,
        release=release,
        charged=beginnings(parts, score.above),
        handling=TESTED,
    )


def penalty(epsilon: Fraction) -> int:
    """The penalty in rows for each split above a part.

    It is the least with which the loss of each test is half the loss of the one before.
    """
    # Rounded up, as // rounds down: 4.2 becomes 5.
    return -int(-HALVES * PATH_LOSS / epsilon // 1)


def beginnings(parts: PartSet, above: int) -> PartSet:
    """The parts where the trees begin, which are charged, because the answer depends on their rows."""
    # Trees that begin one split down: from (women, nurses) and (women, clerks) the walk up ends at
    # women, who are charged once.
    roots: dict[bytes, Part] = {}
    for block in parts.blocks:
        for part in [block.part] if block.part.depth >= above else map(block.at, range(len(block))):
            while part.depth > above and part.parent is not None:
                part = part.parent
            roots[part.key] = part
    return PartSet([Block(part) for part in roots.values()])


def splits_kept(parts: PartSet, counts: Sequence[int], score: EnoughRows, epsilon: Fraction) -> list[int]:
    """The number of splits that remain above each part, counted from the start of its tree.

    Args:
        parts: The leaves of trees, disjoint: so every part above them is split by one partition
            only.
        counts: The exact rows of each leaf; a part above has the rows of all leaves below it.
        score: The score, with its thresholds and the beginning of its trees.
        epsilon: Privacy loss of the release for one row.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP in each of ``beginnings``, whatever the
        depth. Why, step by step (privacy.md 3.4):

        1. Permute-and-flip between "split", worth s, and "stop", worth 0, splits with probability
           F(s), that of s + Laplace(1 / eta) > 0: F(s) = 1 - exp(-eta s) / 2, and exp(eta s) / 2
           below 0.
        2. Only the tests down to the first "stop" of a path are made. A row is in one leaf at most,
           so it moves the tests of one path only, each s upwards by 1 or not at all.
        3. A "stop" becomes less likely by a factor of at most exp(eta), and it is the last test of
           its path.
        4. A "split" becomes more likely by exp(g(s)), g(s) = ln F(s + 1) - ln F(s): at most eta,
           and falling in s.
        5. Rows never grow along a path and the penalty d does. So of the tests that the row can move
           (s >= -d, the floor) the last has s >= -d, the one before it s >= 0, then s >= d, 2d, ...
        6. For s >= 0, g(s) <= eta q / (2 - q) with q = exp(-eta s), and q <= 2^-k at s = k d.
        7. Together a path loses at most eta (1 + 1 + 1/3 + 1/7 + ...) < PATH_LOSS eta = epsilon.

        Exact: integers, fractions, exact draws; their scale is rounded up. Held by:
        tests/privacy/test_stopping.py.

    References:
        Zhang, Xiao & Xie 2016, "PrivTree", sec. 3.
    """
    eta, step = epsilon / PATH_LOSS, penalty(epsilon)
    paths = [_split_above(part, score.above) for part in parts]
    rows: dict[bytes, int] = {}  # of each part above the leaves
    for path, count in zip(paths, counts, strict=True):
        for key in path:
            rows[key] = rows.get(key, 0) + int(count)
    splits: dict[bytes, bool] = {}
    remaining = []
    for path in paths:
        length = 0
        for key in path:
            if key not in splits:
                worth = max(-step, rows[key] - score.least - length * step)
                splits[key] = choose(np.array([worth, 0]), 1, eta) == 0
            if not splits[key]:
                break
            length += 1
        remaining.append(length)
    return remaining


def _split_above(part: Part, above: int) -> list[bytes]:
    """The keys of the parts that are split above a part, from the beginning of its tree."""
    keys = []
    while part.depth > above and part.parent is not None:
        part = part.parent
        keys.append(part.key)
    return keys[::-1]


PREPARE: dict[type[Query], Callable[[Any, PartSet, Schema], PreparedQuery]] = {
    Count: _count,
    Sum: _sum,
    SumDerivatives: _derivatives,
    Average: _average,
    Choose: _choose,
    Vote: _vote,
    Stop: _stop,
}
