# SPDX-License-Identifier: Apache-2.0
"""What a scorecard would gain by pairs of columns, and by private cut points, beside the one that we ship.

    python -m benchmarks.accuracy.pairs --runs 5 --only banknote rules

A fit by the verbs alone: each step chooses among all attributes and all pairs of coarse cells. The
handicap of a pair is that of its cells: of each only the gradient counts beyond the mean size of the
noise that its sum will get. Cut points are the exact quantiles of the rows at no cost, a bound of
all that could be found privately. Writes benchmarks/results/scorecards/README.md.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.problems import TUNED, Problem
from benchmarks.accuracy.trees import UNLIMITED_EPSILON
from benchmarks.harness.datasets import stratified_folds
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.tables import markdown, replace_section
from miners import Scorecard, ScorecardRegressor
from miners.fitted.model_card import determination
from miners.fitted.route import encode_rows
from miners.growth.candidates import multiway_splits
from miners.scorecards.objectives import HandleAsking, Objective
from miners.scorecards.shares import TABLES, Shares, base_share, choice_share
from pinq.public.points import POINTS, Points
from pinq.public.schema import Categorical, Schema
from pinq.public.scores import Gradient
from pinq.public.specs import Cross, Spec, bind

__all__ = ["main"]

EPSILONS = (0.1, 0.5, 1.0, 4.0)
MOST_CELLS = 64  # of a pair
INTERVALS = 6  # of a number in a pair
CHOSEN_ON = ("adult", "mushroom", "car", "cmc", "banknote", "appliances_energy")


@dataclass(frozen=True)
class Additive:
    """Points of attributes and of pairs, whole numbers: as much of a card as an objective needs."""

    base: tuple[int, ...]
    terms: Mapping[Spec, np.ndarray]

    def plus(self, spec: Spec, points: np.ndarray) -> Additive:
        """Adds points to the cells of a spec."""
        whole = np.rint(points * POINTS).astype(np.int64)
        return replace(self, terms={**self.terms, spec: self.terms.get(spec, 0) + whole})

    def score_of(self, output: int) -> Points:
        """The public score of one output."""
        return Points(
            tuple(self.terms), tuple(tuple(t[:, output].tolist()) for t in self.terms.values()), self.base[output]
        )

    def scores(self, schema: Schema, rows: pd.DataFrame) -> np.ndarray:
        """What the points add up to, shape (rows, outputs)."""
        names = sorted(set().union(*(spec.columns() for spec in self.terms)))
        codes, total = (
            encode_rows(schema, names, rows, otherwise="It adds nothing."),
            np.tile(np.array(self.base), (len(rows), 1)),
        )
        for spec, points in self.terms.items():
            cells = np.zeros(len(rows), dtype=np.int64)
            for axis, name in zip(bind(spec, schema).axes, _columns(spec), strict=True):
                cells = cells * axis.size + axis.parts_of(codes[name])
            total += points[cells]
        return total / POINTS


def _columns(spec: Any) -> list[str]:
    factors: Any = spec.specs if isinstance(spec, Cross) else (spec,)
    return [factor.column for factor in factors]


class Handicapped(HandleAsking):
    """Counts of each cell's gradient what is beyond some scales of the noise of its later sum."""

    scales = 1.0

    def choice(self, step: int, specs: Sequence[Any], objective: Objective, loss: Any) -> Any:
        """Lets the exponential mechanism choose among attributes and pairs."""
        paid = self._shares.steps[step]
        assert paid.choice is not None
        score = Gradient(loss, threshold=self.scales * objective.scale(paid.sums))
        (chosen,) = self._rows.exp_mech(list(specs), score=score, epsilon=paid.choice)
        return next(offered for offered in specs if offered == chosen)


class Plain(Handicapped):
    """Without a handicap."""

    scales = 0.0


def with_pairs(
    handle: Any, target: str, epsilon: float, asks: type[HandleAsking]
) -> Callable[[pd.DataFrame], np.ndarray]:
    """Fits the default scorecard, whose steps may choose pairs too; returns what predicts scores."""
    schema = handle.schema
    miner = (ScorecardRegressor if target in schema.numeric_columns else Scorecard)(epsilon=epsilon)
    fit = miner._checked(schema, target)
    coarse = multiway_splits(schema, target, attributes=None, cuts=None, bins=INTERVALS)
    small = [spec for spec in coarse if bind(spec, schema).size <= MOST_CELLS // 2]
    pairs = [Cross(pair) for pair in itertools.combinations(small, 2) if bind(Cross(pair), schema).size <= MOST_CELLS]
    offered: list[Any] = [*fit.specs, *pairs]
    cells = float(np.mean([bind(spec, schema).size for spec in offered]))
    shares = Shares.of(
        fit.shares.total,
        tables=len(fit.shares.tables),
        steps=len(fit.shares.steps),
        choice=choice_share(len(offered), cells),
        base=base_share(len(offered), cells),
        weight=fit.objective.table_weight(fit.shares.total, len(fit.specs)) or TABLES,
        looks=fit.objective.looks,
    )
    asking = asks(handle.parts(), schema, shares)
    objective = fit.objective
    for look in range(objective.looks):
        counts = asking.start(objective.base_parts, look)
        if look < objective.looks - 1:
            objective = objective.nearer(counts.numbers, counts.scale)
    objective, card = objective.start(counts.numbers, counts.scale)
    asking.among(objective)
    if fit.shares.tables:
        tables = asking.tables(fit.table_specs, objective)
        card = objective.tabulated(card, fit.table_specs, [table.numbers for table in tables], tables[0].scale)
    model = Additive(card.base, {term.spec: term.points for term in card.terms})
    for number in range(len(shares.steps)):
        loss = objective.loss(model)  # type: ignore[arg-type]  # it asks for scores alone
        spec = asking.choice(number, offered, objective, loss)
        sums = asking.sums(number, spec, objective, loss)
        gradients, curvatures = loss.gradients(sums.numbers), loss.hessians(sums.numbers)
        assert curvatures is not None
        model = model.plus(spec, objective.update(model, gradients, curvatures, sums.scale).points)  # type: ignore[arg-type]
    return lambda rows: model.scores(schema, rows)


def made(rules: bool) -> tuple[Schema, str, pd.DataFrame]:
    """3,200 rows of 36 columns of two values: three rules of two columns each, or weights and pairs."""
    draw = np.random.default_rng(11)
    bits = draw.integers(0, 2, (3_200, 36))
    if rules:
        chance = np.where(
            (bits[:, 0] & bits[:, 1]) | (bits[:, 2] & (1 - bits[:, 3])) | (bits[:, 4] & bits[:, 5]), 0.97, 0.03
        )
    else:
        signs = 2 * bits - 1
        odds = signs @ draw.normal(0, 0.25, 36) + sum(signs[:, 2 * k] * signs[:, 2 * k + 1] for k in range(4)) * 0.8
        chance = 1 / (1 + np.exp(-odds))
    frame = pd.DataFrame(np.where(bits == 1, "yes", "no"), columns=[f"a{number}" for number in range(36)])
    frame["y"] = np.where(draw.random(len(frame)) < chance, "q", "p")
    columns: dict[str, Any] = {str(name): Categorical(values=("no", "yes")) for name in frame if name != "y"}
    return Schema(columns={**columns, "y": Categorical(values=("p", "q"))}, max_rows=3_200), "y", frame


def quantiles(schema: Schema, target: str, rows: pd.DataFrame) -> dict[str, list[float]]:
    """The exact sixteenths of each numeric attribute, within its bounds."""
    found = dict[str, list[float]]()
    for name in schema.numeric_columns:
        column = schema.numeric(name)
        points = sorted({float(point) for point in rows[name].quantile(np.arange(1, 16) / 16, interpolation="nearest")})
        inside = [point for point in points if column.lower < point <= column.upper]
        found |= {name: inside} if inside and name != target else {}
    return found


def measured(name: str, epsilon: float, runs: int) -> dict[str, list[float]]:
    """What each way reaches on the test rows of some splits: accuracy, or R²."""
    problems: dict[str, Problem] = {problem.key: problem for problem in TUNED}
    schema, target, frame = made(name == "rules") if name in MADE else problems[name].load()
    is_mean, reached = target in schema.numeric_columns, dict[str, list[float]]()
    for run in range(runs):
        tested = (
            stratified_folds(np.zeros(len(frame), dtype=int), 10, seed=run) == 0
            if name in MADE
            else problems[name].tested(run)
        )
        train, test = frame[~tested][list(schema.columns)], frame[tested]
        kind = ScorecardRegressor if is_mean else Scorecard
        with pinq.simulate(schema, data=train, epsilon=UNLIMITED_EPSILON) as handle:
            own = {"attributes": kind(epsilon=epsilon).fit(handle, target).score(test)}
            for shown, asks in (("pairs", Plain), ("pairs, handicap", Handicapped)):
                scores = with_pairs(handle, target, epsilon, asks)(test)
                own[shown] = _reached(schema, target, scores, test)
            if schema.numeric_columns.keys() - {target}:
                cuts = quantiles(schema, target, train)
                own["exact cuts"] = kind(epsilon=epsilon, cuts=cuts).fit(handle, target).score(test)
        for shown, value in own.items():
            reached.setdefault(shown, []).append(value)
    return reached


def _reached(schema: Schema, target: str, scores: np.ndarray, test: pd.DataFrame) -> float:
    if target in schema.numeric_columns:
        column = schema.numeric(target)
        predicted = float(column.origin) + float(column.width) * np.clip(scores[:, 0], 0, column.cells - 1)
        return determination(test[target].to_numpy(float), predicted, None)
    classes = np.array(schema.categorical(target).values)
    best = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return float(np.mean(classes[best.astype(int)] == test[target].to_numpy()))


MADE = ("rules", "weights and pairs")
FEW_RUNS = {"adult": 0.25, "credit_default": 0.25, "appliances_energy": 0.5, "mushroom": 0.5}
WAYS = ("attributes", "pairs", "pairs, handicap", "exact cuts")


def lines(names: Sequence[str], runs: int) -> Iterator[list[str]]:
    """A line for each table and epsilon: the first way's figure, and the differences of the others."""
    for name in names:
        for epsilon in EPSILONS:
            count = max(2, round(FEW_RUNS.get(name, 1) * runs))
            reached = {way: np.array(values) for way, values in measured(name, epsilon, count).items()}
            first = reached["attributes"]
            texts = []
            for way in WAYS[1:]:
                apart = reached[way] - first if way in reached else None
                texts.append("" if apart is None else f"{apart.mean():+.3f} ± {apart.std(ddof=1) / count**0.5:.3f}")
            yield [name, f"{epsilon:g}", f"{first.mean():.3f}", *texts, str(count)]
            print(" | ".join([name, f"{epsilon:g}", f"{first.mean():.3f}", *texts]), flush=True)


def main() -> None:
    """Measures, and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    every = [*CHOSEN_ON, *(problem.key for problem in TUNED if problem.key not in CHOSEN_ON), *MADE]
    parser.add_argument("--only", nargs="*", default=every)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text = (
        "## Pairs of columns, and exact cut points\n\nAccuracy (R² of Appliances Energy) of the default, and the "
        "differences that pairs without and with a handicap make, and exact quantiles at no cost; ± a standard error. "
        "The first six tables were to choose, the others were looked at afterwards.\n\n"
    )
    table = markdown(["table", "epsilon", *WAYS, "runs"], lines(options.only, options.runs))
    replace_section(RESULTS / "scorecards" / "README.md", "pairs", text + table, heading="Scorecards")


if __name__ == "__main__":
    main()
