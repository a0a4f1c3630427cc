# SPDX-License-Identifier: Apache-2.0
"""What is tested: questions to a schema's columns, each with two neighbouring tables on which it loses its epsilon.

Kinds of columns, scores and losses are those that the package knows; what a schema has no column
for is said. Each pair is the worst that is known, so that noise a little too small passes the claim:
the row that comes moves the answer, or the difference of two scores, by all that its sensitivity
admits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from typing import Any, get_args

import numpy as np

from pinq.analyst.queryable import Parts
from pinq.errors import QueryError
from pinq.provider.selftest.worlds import PERSON, Pair, Row
from pinq.public.derivatives import LARGEST_RESIDUAL, AnyDerivatives, Logistic, Residuals, Softmax
from pinq.public.points import POINTS, Points
from pinq.public.schema import Schema
from pinq.public.scores import AnyScore, Balance, ClassCount, EnoughRows, Gradient, MaxClass, MutualInformation
from pinq.public.specs import AnyCross, AnyCut, AnyGrouping, Candidate, Cuts, Groups, Shards, Spec, Values

__all__ = ["EPSILON", "Claim", "claims_of"]

EPSILON = Fraction(3, 2)
SPLITS, CHAINS, LEAST = 12, 4_000, 1
MANY, PURE = 10, 59
STEEP, UNLIKELY = 2048, -(2**20)  # points: probabilities of .9997, and of a class that nobody has

Outcomes = Sequence[Hashable] | np.ndarray
Question = Callable[[Parts, Fraction], Outcomes]


@dataclass(frozen=True)
class Claim:
    """A question of which a loss is claimed.

    Attributes:
        name: What is asked, for people.
        pair: Neighbouring tables.
        ask: Asks all copies at a loss; gives an outcome for each.
        seconds: About how long it takes to measure, with all draws, on a quiet core.
        noisy: Whether outcomes are numbers with noise, shape (copies, numbers).
    """

    name: str
    pair: Pair
    ask: Question
    seconds: float = 14.0
    noisy: bool = False


@dataclass(frozen=True)
class _Stage:
    """A schema whose columns are given parts to play; ``QueryError`` where it has none for one.

    Attributes:
        schema: Of the columns.
        taken: Those that have a part.
    """

    schema: Schema
    taken: tuple[str, ...] = ()

    def fitting(self, fits: Callable[[str], object]) -> list[str]:
        """The free columns of two values or more for which ``fits`` raises nothing; at least one."""
        found = []
        for name, column in self.schema.columns.items():
            with suppress(QueryError):
                fits(name)
                found += [name] * (name not in self.taken and column.cells > 1)
        if not found:
            raise QueryError("the schema has no column for it")
        return found

    def column(self, fits: Callable[[str], object] = str) -> str:
        """The first of these."""
        return self.fitting(fits)[0]

    def columns(self, count: int) -> list[str]:
        """So many free columns."""
        if not count:
            return []
        name = self.column()
        return [name, *self.without(name).columns(count - 1)]

    def without(self, *taken: str) -> _Stage:
        """The same, with these columns taken."""
        return _Stage(self.schema, self.taken + taken)

    def of_each_kind(self, fits: Callable[[str], object]) -> list[str]:
        """The first of them of each kind, with missing values and without."""
        kinds = {
            (self.schema.columns[name].type, self.schema.columns[name].nullable): name
            for name in self.fitting(fits)[::-1]
        }
        return list(kinds.values())[::-1]

    def split(self, name: str) -> Cuts | Groups:
        """Sets a column's first value apart from all others."""
        if name in self.schema.numeric_columns:
            return Cuts(name, (self.schema.numeric_columns[name].cut_before(1),))
        labels = self.schema.categorical_columns[name].labels
        return Groups(name, (labels[:1], labels[1:]))

    def last(self, *names: str) -> Row:
        """A row with the last value of some columns, and the first of all others."""
        return {name: self.schema.columns[name].cells - 1 for name in names}

    def losses(self) -> Iterator[tuple[str, AnyDerivatives, str, str]]:
        """Every loss in each of its forms: its name, itself, its target, and a column by which rows differ.

        Rows with the first values have vectors as long as can be, and one with the last values of
        both columns has the opposite vector.
        """
        for kind in get_args(AnyDerivatives):
            target = self.column(self.schema.numeric if kind is Residuals else self.schema.categorical)
            apart = self.without(target).column()
            for name, loss in _FORMS[kind](self, target, self.split(apart)):
                yield name, loss, target, apart


def _logistic(stage: _Stage, target: str, split: Spec) -> list[tuple[str, AnyDerivatives]]:
    labels = stage.schema.categorical(target).labels
    return [("logistic", Logistic(target, labels[1:], _points(stage, split, STEEP)))]


def _softmax(stage: _Stage, target: str, split: Spec) -> list[tuple[str, AnyDerivatives]]:
    scores = [_points(stage, split, -STEEP), _points(stage, split, STEEP)]
    scores += [Points(base=UNLIKELY)] * (stage.schema.columns[target].codes - 2)
    return [
        ("softmax", Softmax(target, tuple(scores))),
        ("softmax with second derivatives", Softmax(target, tuple(scores), True, 3.0)),
    ]


def _residuals(stage: _Stage, target: str, split: Spec) -> list[tuple[str, AnyDerivatives]]:
    most = min(stage.schema.columns[target].cells - 1, 2 * LARGEST_RESIDUAL)
    middle = Points(base=int(most * POINTS / 2))
    return [
        ("residuals", Residuals(target, middle, most / 2, rows=False)),
        ("residuals with rows", Residuals(target, middle, most / 2)),
    ]


_FORMS: dict[type, Callable[[_Stage, str, Spec], list[tuple[str, AnyDerivatives]]]] = {
    Logistic: _logistic,
    Softmax: _softmax,
    Residuals: _residuals,
}


def _points(stage: _Stage, split: Spec, points: int) -> Points:
    return Points((split,), ((points, *[-points] * (split.max_parts(stage.schema) - 1)),))


def claims_of(schema: Schema) -> tuple[list[Claim], list[str]]:
    """Every claim that can be made of a schema's columns, and what cannot be asked of them."""
    stage, claims, left_out = _Stage(schema), list[Claim](), list[str]()
    for name, make in _MAKERS.items():
        try:
            claims += make(stage)
        except QueryError:
            left_out.append(f"{name}, for which the schema has no columns")
    words = " ".join(claim.name for claim in claims)
    kinds = [kind.kind for kind in (*get_args(AnyScore), *get_args(AnyDerivatives))]
    left_out += [f"{kind}, of which nothing was asked" for kind in kinds if kind not in words]
    derived = [name for name, column in schema.columns.items() if column.is_derived]
    return claims, [*left_out, *(f"the formula of {name}, whose values are made up" for name in derived)]


def _nothing(count: int) -> list[Row]:
    """So many rows with the first value of every column."""
    return [{}] * count


def _added(name: str, rows: Sequence[Row], other: Row, ask: Question, **more: Any) -> Claim:
    """A row comes."""
    return Claim(name, Pair(rows, [*rows, other]), ask, **more)


def _senses(
    name: str, rows: Sequence[Row], other: Row, ask: Question, *, first: bool = True, **more: Any
) -> list[Claim]:
    """A row comes; of the first question of a verb also: a row is replaced, a person with three rows comes."""
    people: list[Row] = [{**row, PERSON: number} for number, row in enumerate(rows)]
    person: list[Row] = [{**other, PERSON: len(rows)}] * 3
    replaced = Pair(people, [*people[1:], other], adjacency="substitute")
    return [
        _added(name, people, other, ask, **more),
        Claim(f"{name}, a row replaced", replaced, ask, **more),
        Claim(f"{name}, a person of three rows", Pair(people, [*people, *person], unit_rows=3), ask, **more),
    ][: 3 if first else 1]


def _numbers(answer: Callable[[Parts, Fraction], Any]) -> Question:
    def ask(parts: Parts, epsilon: Fraction) -> Outcomes:
        return np.asarray(answer(parts, epsilon), dtype=np.float64).reshape(len(parts), -1)

    return ask


def _counts(stage: _Stage) -> list[Claim]:
    plain = _numbers(lambda parts, epsilon: parts.noisy_count(epsilon=epsilon))
    return _senses("noisy_count", _nothing(MANY), {}, plain, noisy=True)[::2]  # to replace a row changes no count


def _cells(stage: _Stage) -> list[Claim]:
    first, second = stage.columns(2)
    split = [stage.split(first), stage.split(second)]
    nested = _numbers(lambda parts, epsilon: parts.partition(split[0]).partition(split[1]).noisy_count(epsilon=epsilon))
    return _senses("noisy_count of nested parts", _nothing(MANY), stage.last(first, second), nested, noisy=True)


def _shards(stage: _Stage) -> list[Claim]:
    ask = _numbers(lambda parts, epsilon: parts.partition(Shards(3)).noisy_count(epsilon=epsilon))
    return [_added("noisy_count in shards", (), {}, ask, noisy=True)]


def _of_columns(verb: str, stage: _Stage) -> list[Claim]:
    """Rows at the end that is nearer to 0, and one at the other."""
    claims, schema = list[Claim](), stage.schema
    for name in stage.of_each_kind(schema.addable if verb == "noisy_sum" else schema.numeric):
        column = schema.numeric(name)
        near, far = sorted((0, column.cells - 1), key=lambda code, own=column: abs(own.number(code)))  # type: ignore[misc]
        ask = _numbers(partial(_of_column, verb, name))
        rows: list[Row] = [{name: near}] * MANY
        claims += _senses(f"{verb} of {name}", rows, {name: far}, ask, first=not claims, noisy=True)
    return claims


def _of_column(verb: str, name: str, parts: Parts, epsilon: Fraction) -> np.ndarray:
    return _plain(getattr(parts, verb)(name, epsilon=epsilon))


def _plain(answer: Any) -> np.ndarray:
    """Numbers; dates as what they count."""
    numbers = np.asarray(answer)
    return numbers.astype(np.int64) if numbers.dtype.kind == "M" else numbers


def _derivatives(stage: _Stage) -> list[Claim]:
    claims, rows = list[Claim](), _nothing(MANY)
    for name, loss, target, apart in stage.losses():
        other, by = stage.last(target, apart), [stage.split(column) for column in (target, apart)]
        ask, both = (_numbers(partial(_summed, loss, specs)) for specs in (None, by))
        claims += _senses(f"noisy_sum of {name}", rows, other, ask, first=not claims, noisy=True)
        claims.append(_added(f"noisy_sum of {name} by two", rows, other, both, noisy=True))
    return claims


def _summed(loss: AnyDerivatives, by: Any, parts: Parts, epsilon: Fraction) -> Any:
    return parts.noisy_sum(loss, by=by, epsilon=epsilon)


def _choice(candidates: Sequence[Candidate], score: Any, **more: bool) -> Question:
    def ask(parts: Parts, epsilon: Fraction) -> Outcomes:
        return [repr(chosen) for chosen in parts.exp_mech(list(candidates), score=score, epsilon=epsilon, **more)]

    return ask


def _check(kind: Any, schema: Schema, target: str) -> None:
    kind(target).check(schema)


def _scores(stage: _Stage) -> list[Claim]:
    """Every score of a target, on two columns of which one alone sets the row apart that comes."""
    claims = []
    for kind in get_args(AnyScore):
        if [field.name for field in fields(kind) if field.name != "kind"] != ["target"] or kind is ClassCount:
            continue
        target = stage.column(partial(_check, kind, stage.schema))
        same, apart = stage.without(target).columns(2)
        candidates = (stage.split(same), stage.split(apart))
        other, rows = stage.last(target, apart), _nothing(PURE)
        ask, papers = (_choice(candidates, kind(target), textbook=textbook) for textbook in (False, True))
        claims += _senses(f"exp_mech, {kind.kind}", rows, other, ask, first=kind is MaxClass)
    return [*claims, _added(f"exp_mech as in papers, {kind.kind}", rows, other, papers)]


def _gradients(stage: _Stage) -> list[Claim]:
    claims = []
    for name, loss, target, apart in stage.losses():
        same = stage.without(target, apart).column()
        ask = _choice((stage.split(same), stage.split(apart)), Gradient(loss))
        claims.append(_added(f"exp_mech, gradient of {name}", _nothing(MANY), stage.last(target, apart), ask))
    return claims


def _balances(stage: _Stage) -> list[Claim]:
    first, second = stage.columns(2)
    low: Row = {}
    one, both = stage.last(first), stage.last(first, second)
    ask = [_choice((stage.split(first), stage.split(second)), score) for score in (Balance(), Balance(0.25))]
    return [
        _added("exp_mech, balance", [low, low, low, one, both, both, both], low, ask[0]),
        _added("exp_mech, balance of a quarter", [low, one, one, *[both] * 5], low, ask[1]),
    ]


def _votes(stage: _Stage) -> list[Claim]:
    target = stage.column(stage.schema.categorical)
    last = stage.last(target)

    def ask(parts: Parts, epsilon: Fraction) -> Outcomes:
        return [repr(value) for value in parts.exp_mech(score=ClassCount(target), epsilon=epsilon)]

    return [_added("exp_mech, class_count", [{}, last] * MANY, last, ask)]


def _cuts(stage: _Stage) -> list[Claim]:
    """Before, all cuts are alike; the last one alone sets the row apart that comes."""
    target = stage.column(stage.schema.categorical)
    cut = stage.without(target).column(lambda name: AnyCut(name).check(stage.schema))
    top = stage.schema.columns[cut].cells - 1
    below, other = {cut: top - 1}, {cut: top, **stage.last(target)}
    return [_added("exp_mech, AnyCut", [below] * MANY, other, _choice((AnyCut(cut),), MaxClass(target)))]


def _groupings(stage: _Stage) -> list[Claim]:
    group = stage.column(lambda name: _require(stage.schema.categorical(name).cells > 2))
    last = stage.last(target := stage.without(group).column(stage.schema.categorical))
    other: Row = {group: 2, **last}
    rows: list[Row] = [{}, {group: 1, **last}, {group: 2}, other] * 5
    family = (AnyGrouping(group), AnyGrouping(group, seed=1))
    return [
        _added("exp_mech, AnyGrouping", rows, other, _choice(family[:1], MaxClass(target))),
        _added("exp_mech of each, AnyGrouping", rows, other, _choice(family, MaxClass(target), each=True)),
    ]


def _require(fits: bool) -> None:
    if not fits:
        raise QueryError("the column is too short")


def _crosses(stage: _Stage) -> list[Claim]:
    target = stage.column(stage.schema.categorical)
    free = stage.without(target).columns(3)
    specs: Any = tuple(Values(name) if name in stage.schema.categorical_columns else stage.split(name) for name in free)
    ask = _choice((AnyCross(specs, 2),), MutualInformation(target))
    return [_added("exp_mech, AnyCross", _nothing(PURE), stage.last(target, free[1]), ask)]


def _stops(stage: _Stage) -> list[Claim]:
    """All rows lie below all splits; of paths so long none is known that loses more (privacy.md 3.4)."""
    numeric = stage.schema.numeric
    name = stage.column(lambda name: _require(numeric(name).cells > SPLITS and not numeric(name).nullable))
    column = numeric(name)

    def ask(parts: Parts, epsilon: Fraction) -> Outcomes:
        leaves, left = [], parts[:CHAINS]
        for cell in range(1, SPLITS + 1):
            both = left.partition(Cuts(name, (column.cut_before(cell),)))
            leaves.append(both[::2])
            left = both[1::2]
        kept = Parts.union(*leaves, left).exp_mech(score=EnoughRows(LEAST, above=1), epsilon=epsilon)
        return kept[-len(left) :]

    return [_added("exp_mech, enough_rows", [stage.last(name)] * 21, stage.last(name), ask, seconds=200.0)]


_MAKERS: dict[str, Callable[[_Stage], list[Claim]]] = {
    "counts": _counts,
    "counts of nested parts": _cells,
    "shards": _shards,
    "sums": partial(_of_columns, "noisy_sum"),
    "averages": partial(_of_columns, "noisy_avg"),
    "sums of derivatives": _derivatives,
    "votes": _votes,
    "scores of a target": _scores,
    "choices by gradients": _gradients,
    "balances": _balances,
    "AnyCut": _cuts,
    "AnyGrouping, and each": _groupings,
    "AnyCross": _crosses,
    "EnoughRows": _stops,
}
