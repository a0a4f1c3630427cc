# SPDX-License-Identifier: Apache-2.0
"""What is tested: questions to a schema's columns, each with two neighbouring tables on which it loses its epsilon.

A line of the table has a question, the columns that it needs, the rows of a table, and the row
that comes. Kinds of columns, scores and losses are those that the package knows; what a schema has
no column for is said. Each pair is the worst that is known, so that noise a little too small passes
the claim: the row that comes moves the answer, or the difference of two scores, by all that its
sensitivity admits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np

from pinq.analyst.queryable import Parts
from pinq.errors import QueryError
from pinq.provider.selftest.worlds import MADE_UP, PERSON, Pair, Row
from pinq.public.derivatives import LARGEST_RESIDUAL, AnyDerivatives, Logistic, Residuals, Softmax
from pinq.public.points import POINTS, Points
from pinq.public.products import VECTORS, Products
from pinq.public.schema import Schema
from pinq.public.scores import SCORES, Balance, ClassCount, EnoughRows, Gradient, MaxClass, Misfit, MutualInformation
from pinq.public.specs import AnyCross, AnyCut, AnyGrouping, Candidate, Cuts, Groups, Shards, Spec, Values, bind

__all__ = ["EPSILON", "Claim", "claims_of", "flip_law"]

EPSILON = Fraction(3, 2)
SPLITS, CHAINS, LEAST = 12, 4_000, 1
MANY, PURE = 10, 59
STEEP, UNLIKELY = 2048, -(2**20)  # points: probabilities of .9997, and of a class that nobody has

Outcomes = Sequence[Hashable] | np.ndarray
Question = Callable[[Parts, Fraction], Any]
Law = Mapping[Hashable, float]
"""Probabilities of outcomes; all others together have what is left."""


@dataclass(frozen=True)
class Claim:
    """A question of which a loss is claimed.

    Attributes:
        name: What is asked, for people.
        pair: Neighbouring tables.
        question: Asks all copies at a loss; gives an answer for each.
        seconds: About how long it takes to measure, with all draws, on a quiet core.
        noisy: Whether answers are numbers with noise.
        law: Which the outcomes follow exactly on the first table, at ``EPSILON``; None where it is
            not known in numbers.
        schema: Of the tables.
    """

    name: str
    pair: Pair
    question: Question
    seconds: float = 14.0
    noisy: bool = False
    law: Law | None = None
    schema: Schema = MADE_UP

    def ask(self, parts: Parts, epsilon: Fraction) -> Outcomes:
        """An outcome for each copy; of noisy answers their numbers, shape (copies, numbers)."""
        answers = self.question(parts, epsilon)
        if not self.noisy:
            return [repr(answer) for answer in answers]
        numbers = np.asarray(answers)
        dates = numbers.dtype.kind == "M"
        return (numbers.astype(np.int64) if dates else numbers).astype(np.float64).reshape(len(parts), -1)


Fits = Callable[[str], object]
"""``QueryError`` where a column cannot play a part."""
ALL = (0, 1, 2)  # all senses of a line


@dataclass(frozen=True)
class _Line:
    """A line of the table: a claim before columns are found for it.

    Attributes:
        name: What is asked, for people.
        fits: Of the columns that it needs, in the order in which they are taken.
        rows: A code of each of these columns in each row of a table: 0 is the first, -1 the last value.
        comes: The row that comes.
        question: What is asked of the columns.
        senses: In which it is asked: a row comes (0), a row is replaced (1), a person comes (2).
        more: Fields of the claim.
    """

    name: str
    fits: tuple[Fits, ...]
    rows: Sequence[tuple[int, ...]]
    comes: tuple[int, ...]
    question: Callable[..., Question]
    senses: tuple[int, ...] = (0,)
    more: Mapping[str, Any] = field(default_factory=dict)

    def claims(self, schema: Schema) -> list[Claim]:
        """The claims on a schema; ``QueryError`` where it has no columns for them."""
        taken: list[str] = []
        for fits in self.fits:
            free = [name for name in _fitting(schema, fits) if name not in taken]
            _require(bool(free))
            taken.append(free[0])
        cells = [range(schema.columns[name].cells) for name in taken]
        table = [{name: own[code] for name, own, code in zip(taken, cells, row, strict=True)} for row in self.rows]
        people: list[Row] = [{**row, PERSON: number} for number, row in enumerate(table)]
        other = {name: own[code] for name, own, code in zip(taken, cells, self.comes, strict=True)}
        person: Row = {**other, PERSON: len(people)}
        senses = (
            ("", Pair(people, [*people, person])),
            (", a row replaced", Pair(people, [*people[1:], person], adjacency="substitute")),
            (", a person of three rows", Pair(people, [*people, *[person] * 3], unit_rows=3)),
        )
        chosen = [senses[sense] for sense in self.senses]
        question = self.question(*taken)
        return [Claim(self.name + words, pair, question, schema=schema, **self.more) for words, pair in chosen]


def _fitting(schema: Schema, fits: Fits) -> list[str]:
    """The columns of two values or more that can play a part."""
    found = []
    for name, column in schema.columns.items():
        with suppress(QueryError):
            fits(name)
            found += [name] * (column.cells > 1)
    return found


def _require(fits: bool) -> None:
    if not fits:
        raise QueryError("the schema has no column for it")


def claims_of(schema: Schema) -> tuple[list[Claim], list[str]]:
    """Every claim that can be made of a schema's columns, and what cannot be asked of them."""
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
    left_out += [f"{kind}, of which nothing was asked" for kind in (*SCORES, *VECTORS) if kind not in words]
    derived = [name for name, column in schema.columns.items() if column.is_derived]
    left_out += [f"the formula of {name}, whose values are made up" for name in derived]
    return [*claims[:1], *_known_choice().claims(MADE_UP), *claims[1:]], left_out


def _counts(schema: Schema) -> list[_Line]:
    def count(*specs: Spec) -> Question:
        return lambda parts, epsilon: reduce(Parts.partition, specs, parts).noisy_count(epsilon=epsilon)

    def nested(a: str, b: str) -> Question:
        return count(_split(schema, a), _split(schema, b))

    # Nothing about columns is in the first line: it is asked of every schema.
    known = {"noisy": True, "law": _laplace_law(MANY)}
    return [
        _Line("noisy_count", (), [()] * MANY, (), count, (0, 2), known),
        _Line("noisy_count in shards", (), (), (), partial(count, Shards(3)), (0,), NOISY),
        _Line("noisy_count of nested parts", (str, str), [(0, 0)] * MANY, (-1, -1), nested, ALL, NOISY),
    ]


NOISY = {"noisy": True}


def _columns(schema: Schema) -> Iterator[_Line]:
    """Of each type, with missing values and without: rows at the end that is nearer to 0, and one at the other."""

    def question(verb: str, name: str) -> Question:
        return lambda parts, epsilon: getattr(parts, verb)(name, epsilon=epsilon)

    def average(name: str) -> Question:
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
            asked = (f"{verb} of {name}", (partial(_one, name),), [(-1 - far,)] * MANY, (far,))
            yield _Line(*asked, partial(question, verb), senses, NOISY)
        if not kinds:
            yield _Line(verb, (fits,), (), (0,), partial(question, verb))
    yield _Line(
        "noisy_avg of a narrower range",
        (lambda name: _require(schema.numeric(name).cells > 3),),
        [(0,)] * MANY,
        (-1,),
        average,
        ALL,
        NOISY,
    )


def _one(wanted: str, name: str) -> None:
    _require(name == wanted)


def _split(schema: Schema, name: str) -> Cuts | Groups:
    """Sets a column's first value apart from all others."""
    if name in schema.numeric_columns:
        return Cuts(name, (schema.numeric_columns[name].cut_before(1),))
    labels = schema.categorical_columns[name].labels
    return Groups(name, (labels[:1], labels[1:]))


def _losses(schema: Schema) -> Iterator[_Line]:
    """Every loss in each of its forms, of a target ``y``, its points by another column ``a``.

    Rows with the first values have vectors as long as can be, and one with the last values of both
    columns has the opposite vector.
    """

    def points(a: str, most: int) -> Points:
        split = _split(schema, a)
        return Points((split,), ((most, *[-most] * (split.max_parts(schema) - 1)),))

    def logistic(y: str, a: str) -> Logistic:
        return Logistic(y, schema.categorical(y).labels[1:], points(a, STEEP))

    def softmax(*hessian: Any, y: str, a: str) -> Softmax:
        nobodys = [Points(base=UNLIKELY)] * (schema.columns[y].codes - 2)
        return Softmax(y, (points(a, -STEEP), points(a, STEEP), *nobodys), *hessian)

    def residuals(rows: bool, y: str, a: str) -> Residuals:
        most = min(schema.columns[y].cells - 1, 2 * LARGEST_RESIDUAL)
        return Residuals(y, Points(base=int(most * POINTS / 2)), most / 2, rows)

    yield from _sums(schema, "logistic", schema.categorical, logistic, ALL)
    yield from _sums(schema, "softmax", schema.categorical, lambda y, a: softmax(y=y, a=a))
    second = "softmax with second derivatives"
    yield from _sums(schema, second, schema.categorical, lambda y, a: softmax(True, 3.0, y=y, a=a))
    yield from _sums(schema, "residuals", schema.numeric, partial(residuals, False))
    yield from _sums(schema, "residuals with rows", schema.numeric, partial(residuals, True))


def _products(schema: Schema) -> _Line:
    """Products of a number and another column: the row that comes has the largest entries that there are."""

    def summed(x: str, a: str) -> Question:
        return lambda parts, epsilon: parts.noisy_sum(Products((x, a), sizes=(1.0, 0.5)), epsilon=epsilon)

    return _Line("noisy_sum of products", (schema.numeric, str), [(0, 0)] * MANY, (-1, -1), summed, (0, 1), NOISY)


def _sums(
    schema: Schema,
    name: str,
    target: Fits,
    loss: Callable[[str, str], AnyDerivatives],
    senses: tuple[int, ...] = (0,),
) -> list[_Line]:
    """Sums of a loss's derivatives, also in the cells of two specs, and a choice by its gradients."""

    def summed(by: bool, y: str, a: str) -> Question:
        specs = [_split(schema, y), _split(schema, a)] if by else None
        return lambda parts, epsilon: parts.noisy_sum(loss(y, a), by=specs, epsilon=epsilon)

    def chosen(y: str, a: str, same: str) -> Question:
        return _choose([_split(schema, same), _split(schema, a)], Gradient(loss(y, a)))

    pair, rows, other = (target, str), [(0, 0)] * MANY, (-1, -1)
    return [
        _Line(f"noisy_sum of {name}", pair, rows, other, partial(summed, False), senses, NOISY),
        _Line(f"noisy_sum of {name} by two", pair, rows, other, partial(summed, True), (0,), NOISY),
        _Line(f"exp_mech, gradient of {name}", (*pair, str), [(0, 0, 0)] * MANY, (-1, -1, 0), chosen),
    ]


def _choose(candidates: Sequence[Candidate], score: Any, **more: bool) -> Question:
    return lambda parts, epsilon: parts.exp_mech(candidates, score=score, epsilon=epsilon, **more)


def _scores(schema: Schema) -> Iterator[_Line]:
    """Every score, on two columns of which one alone sets the row apart that comes."""

    def choose(score: Callable[[str], Any], y: str, same: str, apart: str, **more: bool) -> Question:
        return _choose([_split(schema, same), _split(schema, apart)], score(y), **more)

    def balance(share: float | None, a: str, b: str) -> Question:
        return _choose([_split(schema, a), _split(schema, b)], Balance(share))

    def misfit(a: str, b: str) -> Question:
        # Nobody is expected in a, and ten rows more in b: the row that comes makes one worse, and the other better.
        specs = _split(schema, a), _split(schema, b)
        nobody, more = ([0] * bind(spec, schema).size for spec in specs)
        more[:2] = [MANY * Misfit.unit] * 2
        return _choose(specs, Misfit(specs, (tuple(nobody), tuple(more))))

    def check(score: Callable[[str], Any], y: str) -> None:
        score(y).check(schema)

    rows, other = [(0, 0, 0)] * PURE, (-1, 0, -1)
    of_target = [kind for kind in SCORES.values() if fields(kind)[0].name == "target"]
    for kind in of_target:
        if kind is not ClassCount:
            senses = ALL if kind is MaxClass else (0,)
            fits = (partial(check, kind), str, str)
            yield _Line(f"exp_mech, {kind.kind}", fits, rows, other, partial(choose, kind), senses)
    papers = partial(choose, MutualInformation, textbook=True)
    yield _Line("exp_mech as in papers, mutual_information", (schema.categorical, str, str), rows, other, papers)
    even = [(0, 0), (0, 0), (0, 0), (-1, 0), (-1, -1), (-1, -1), (-1, -1)]
    yield _Line("exp_mech, balance", (str, str), even, (0, 0), partial(balance, None))
    quarter = [(0, 0), (-1, 0), (-1, 0), *[(-1, -1)] * 5]
    yield _Line("exp_mech, balance of a quarter", (str, str), quarter, (0, 0), partial(balance, 0.25))
    yield _Line("exp_mech, misfit", (str, str), [(0, 0)] * MANY, (0, -1), misfit)
    votes = [(0,), (-1,)] * MANY
    yield _Line("exp_mech, class_count", (schema.categorical,), votes, (-1,), lambda y: _choose((), ClassCount(y)))


def _families(schema: Schema) -> list[_Line]:
    """Choices among the members of families; and whether trees keep their splits."""

    def grouped(seeds: int, a: str, y: str) -> Question:
        return _choose([AnyGrouping(a, seed=seed) for seed in range(seeds)], MaxClass(y), each=seeds > 1)

    def crossed(y: str, *columns: str) -> Question:
        specs: Any = (Values(name) if name in schema.categorical_columns else _split(schema, name) for name in columns)
        return _choose([AnyCross(tuple(specs), 2)], MutualInformation(y))

    def stopped(x: str) -> Question:
        def ask(parts: Parts, epsilon: Fraction) -> Any:
            leaves, left = [], parts[:CHAINS]
            for cell in range(1, SPLITS + 1):
                both = left.partition(Cuts(x, (schema.numeric(x).cut_before(cell),)))
                leaves.append(both[::2])
                left = both[1::2]
            kept = Parts.union(*leaves, left).exp_mech(score=EnoughRows(LEAST, above=1), epsilon=epsilon)
            return kept[-len(left) :]

        return ask

    category = schema.categorical
    cuts = (category, lambda name: AnyCut(name).check(schema))
    groups = (lambda name: _require(category(name).cells > 2), category)
    long = (lambda name: _require(schema.numeric(name).cells > SPLITS and not schema.numeric(name).nullable),)
    mixed, other = [(0, 0), (1, -1), (2, 0), (2, -1)] * 5, (2, -1)
    return [
        # Before, all cuts are alike.
        _Line("exp_mech, AnyCut", cuts, [(0, -2)] * MANY, (-1, -1), lambda y, a: _choose([AnyCut(a)], MaxClass(y))),
        _Line("exp_mech, AnyGrouping", groups, mixed, other, partial(grouped, 1)),
        _Line("exp_mech of each, AnyGrouping", groups, mixed, other, partial(grouped, 2)),
        _Line("exp_mech, AnyCross", (category, str, str, str), [(0, 0, 0, 0)] * PURE, (-1, 0, -1, 0), crossed),
        # All rows lie below all splits; of paths so long none is known that loses more (privacy.md 3.4).
        _Line("exp_mech, enough_rows", long, [(-1,)] * 21, (-1,), stopped, (0,), {"seconds": 200.0}),
    ]


def _known_choice() -> _Line:
    """A choice of which the law is known: by MaxClass column a scores 4 of these five rows of y, a and b, b and c 3."""
    splits = [Values("a"), Values("b"), Values("c")]
    law = dict(zip(map(repr, splits), flip_law([4, 3, 3], float(EPSILON)), strict=True))
    fits = (partial(_one, "y"), partial(_one, "a"), partial(_one, "b"))
    rows = [(1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 1)]
    name = "exp_mech among three columns"
    return _Line(name, fits, rows, (1, 0, 0), lambda *_: _choose(splits, MaxClass("y")), more={"law": law})


def _laplace_law(count: int) -> Law:
    """The law of a noisy count."""
    a = math.exp(-EPSILON)
    return {count + noise: (1 - a) / (1 + a) * a ** abs(noise) for noise in range(-6, 7)}


def flip_law(scores: Sequence[int], eta: float) -> np.ndarray:
    """Returns the law of permute-and-flip, shape (candidates,).

    Candidate r is visited at a uniform time t, everybody earlier was rejected, and it is accepted:
    the integral over t of p_r times the product of 1 - p_s t over the others (McKenna & Sheldon
    2020).

    Args:
        scores: Of each candidate.
        eta: Epsilon over the span of the scores.
    """
    accept = np.exp(eta * (np.array(scores) - max(scores)))
    law = np.zeros(len(scores))
    for r in range(len(scores)):
        product = np.polynomial.Polynomial([1.0])
        for s in range(len(scores)):
            if s != r:
                # Of two candidates the better one has p = 1; beside it another wins with p times
                # the integral of 1 - t, p / 2.
                product *= np.polynomial.Polynomial([1.0, -accept[s]])
        law[r] = accept[r] * product.integ()(1.0)
    return law
