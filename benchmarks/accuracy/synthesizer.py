# SPDX-License-Identifier: Apache-2.0
"""The distance of synthetic rows of Adult from the private ones: their tables, and models trained on them.

``python -m benchmarks.accuracy.synthesizer --runs 10`` prints the table and writes it, with each run, to
benchmarks/results/synthesizer. Rows are compared in the cells of policies/adult.yaml; models are trained on
synthetic rows and tested on UCI's 16,281 test rows.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import pinq
from benchmarks.accuracy.trees import table as data_set
from benchmarks.harness.tables import markdown
from miners import Synthesizer, recommend
from miners.growth.candidates import Grid, attribute_cells
from pinq.language.specs import Cuts, Values, bind
from pinq.public.schema import Schema
from tests.support.house.checkout import ROOT

EPSILONS = (0.1, 0.5, 1.0, 4.0)
RESULTS = ROOT / "benchmarks" / "results" / "synthesizer"


def codes_of(schema: Schema, specs: Sequence[Values | Cuts], frame: pd.DataFrame) -> np.ndarray:
    """The cell of each row in each column."""
    encoded = [schema.column(spec.column).encode(frame[spec.column]) for spec in specs]
    axes = [bind(spec, schema).axes[0] for spec in specs]
    return np.column_stack([axis.parts_of(codes) for axis, codes in zip(axes, encoded, strict=True)])


def counted(codes: np.ndarray, columns: tuple[int, ...], sizes: Sequence[int]) -> np.ndarray:
    """The rows in each cell of some columns."""
    own = [sizes[column] for column in columns]
    numbers = np.ravel_multi_index(tuple(codes[:, column] for column in columns), own)
    return np.bincount(numbers, minlength=int(np.prod(own)))


class Adult:
    """UCI Adult's rows as numbers of cells, training and test rows apart."""

    def __init__(self) -> None:
        self.schema = pinq.load_policy(ROOT / "policies" / "adult.yaml").schema_
        _, self.target, frame = data_set("adult")
        self.rows = frame[frame["fold"] == "train"][list(self.schema.columns)]
        test = frame[frame["fold"] == "test"]
        self.specs = attribute_cells(self.schema, None, None, None, Grid(12))
        self.sizes = [bind(spec, self.schema).size for spec in self.specs]
        self.train, self.test = self.codes(self.rows), self.codes(test)

    def codes(self, frame: pd.DataFrame) -> np.ndarray:
        """The cell of each row in each column."""
        return codes_of(self.schema, self.specs, frame)

    def shares(self, codes: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        """The share of rows in each cell of some columns."""
        return counted(codes, columns, self.sizes) / len(codes)

    def distance(self, codes: np.ndarray, ways: int) -> float:
        """The mean total variation distance of all tables of so many columns from those of the training rows."""
        tables = itertools.combinations(range(len(self.sizes)), ways)
        apart = [np.abs(self.shares(codes, own) - self.shares(self.train, own)).sum() / 2 for own in tables]
        return float(np.mean(apart))

    def trained(self, codes: np.ndarray) -> dict[str, float]:
        """Accuracy and AUC on the test rows of two models that are trained on some rows."""
        last = [spec.column for spec in self.specs].index(self.target)
        others = [number for number in range(len(self.specs)) if number != last]
        truth = self.test[:, last] == 1
        boosted = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, learning_rate=0.15, categorical_features=range(len(others)), random_state=0
        )
        found: dict[str, float] = {}
        for name, model, shape in (
            ("boosted", boosted, self._plain),
            ("logistic", LogisticRegression(max_iter=200), self._hot),
        ):
            model.fit(shape(codes[:, others], others), codes[:, last] == 1)
            likely = model.predict_proba(shape(self.test[:, others], others))[:, 1]
            found |= {f"{name} accuracy": ((likely > 0.5) == truth).mean(), f"{name} AUC": roc_auc_score(truth, likely)}
        return found

    def _plain(self, codes: np.ndarray, columns: list[int]) -> np.ndarray:
        return codes

    def _hot(self, codes: np.ndarray, columns: list[int]) -> np.ndarray:
        return np.concatenate([np.eye(self.sizes[own])[codes[:, number]] for number, own in enumerate(columns)], axis=1)

    def line(self, who: str, epsilon: float | None, codes: np.ndarray, seconds: float = 0.0) -> dict[str, object]:
        """One row of the table."""
        distances = {f"TVD {ways}-way": self.distance(codes, ways) for ways in (2, 3)}
        return {"rows": who, "epsilon": epsilon, **distances, **self.trained(codes), "CPU s": seconds}


def bought_one_by_one(adult: Adult, epsilon: float, random: np.random.Generator) -> float:
    """The mean distance of all two-way tables where each is bought by itself, epsilon shared evenly."""
    pairs = list(itertools.combinations(range(len(adult.sizes)), 2))
    apart = []
    for pair in pairs:
        exact = adult.shares(adult.train, pair)
        noisy = np.maximum(exact * len(adult.train) + random.laplace(0, len(pairs) / epsilon, exact.size), 0)
        apart.append(np.abs(exact - noisy / noisy.sum()).sum() / 2)
    return float(np.mean(apart))


def measured(adult: Adult, runs: int) -> Iterator[dict[str, object]]:
    """Yields the lines of all runs."""
    yield adult.line("private rows", None, adult.train)
    random = np.random.default_rng(0)
    for run, epsilon, target in itertools.product(range(runs), EPSILONS, (None, adult.target)):
        with pinq.simulate(adult.schema, data=adult.rows, epsilon=epsilon) as handle:
            start = time.process_time()
            synthesizer = Synthesizer(epsilon=epsilon, random_state=run).fit(handle, target)
            seconds = time.process_time() - start
        codes = adult.codes(synthesizer.sample(len(adult.train), random_state=run))
        yield {
            **adult.line("synthetic" if target is None else f"synthetic, {target} named", epsilon, codes, seconds),
            "bought alone": bought_one_by_one(adult, epsilon, random),
            "stated error": synthesizer.model_.error,
        }


def with_history(adult: Adult, runs: int) -> Iterator[dict[str, object]]:
    """Yields the lines of fits after each column and 40 random pairs were counted, and of fits without."""
    for run in range(runs):
        pairs = list(itertools.combinations(adult.specs, 2))
        chosen = [pairs[number] for number in np.random.default_rng(run).permutation(len(pairs))[:40]]
        for epsilon, known in ((0.5, True), (1.0, True), (0.3, False), (0.5, False)):
            with pinq.simulate(adult.schema, data=adult.rows, epsilon=10) as handle:
                for spec in adult.specs if known else ():
                    handle.partition(spec).noisy_count(epsilon=0.012)
                for pair in chosen if known else ():
                    handle.partition(*pair).noisy_count(epsilon=0.02)
                fitted = Synthesizer(epsilon=epsilon, random_state=run).fit(handle, history=known)
            codes = adult.codes(fitted.sample(len(adult.train), random_state=run))
            cost, distance = float(fitted.cost_), adult.distance(codes, 2)
            yield {"epsilon": epsilon, "history": known, "further epsilon": cost, "TVD 2-way": distance}


def covered(name: str, epsilon: float, run: int) -> dict[str, object]:
    """The coverage of intervals of measured tables, and whether the stated error bounds the true one."""
    schema, _, frame = data_set(name)
    with pinq.simulate(schema, data=frame[list(schema.columns)], epsilon=epsilon) as handle:
        model = Synthesizer(epsilon=epsilon, random_state=run).fit(handle).model_
    codes, names = codes_of(schema, model.specs, frame), model.columns
    measured = {bought.columns for bought in model.bought}
    inside, squares = [], []
    for columns in measured:
        table = model.table(*(names[column] for column in columns)).frame
        exact = counted(codes, columns, model.model.sizes)
        inside.append(((table["low"] <= exact) & (exact <= table["high"])).mean())
    specs, parts = zip(*map(model.tenths, range(len(names))), strict=True)  # the cells on which the error is judged
    codes = codes_of(schema, specs, frame)
    for pair in set(itertools.combinations(range(len(names)), 2)) - measured:
        own = parts[pair[0]].T @ model.model.marginal(pair) @ parts[pair[1]]
        shares = counted(codes, pair, [each.shape[1] for each in parts]) / len(codes)
        squares.append((np.abs(own.ravel() - shares).sum() / 2) ** 2)
    true = float(np.sqrt(np.mean(squares))) if squares else np.nan
    held = np.nan if model.error is None else float(model.error >= true)
    line = {"table": name, "epsilon": epsilon, "run": run, "intervals": np.mean(inside)}
    return {**line, "bound holds": held, "bound": model.error, "true error": true}


def beside_a_miner(name: str, epsilon: float, run: int) -> dict[str, object]:
    """The accuracy on held-out rows of boosted trees trained on synthetic rows, and of the recommended miner."""
    schema, target, frame = data_set(name)
    held_out = np.random.default_rng(run).random(len(frame)) < 0.3
    train, test = frame[~held_out], frame[held_out]
    with pinq.simulate(schema, data=train[list(schema.columns)], epsilon=2 * epsilon) as handle:
        miner: Any = recommend(schema, target, epsilon).miner.fit(handle, target)
        fitted = Synthesizer(epsilon=epsilon, random_state=run).fit(handle, target)
    specs, last = fitted.model_.specs, fitted.model_.columns.index(target)
    exact, made, real = (codes_of(schema, specs, own) for own in (train, fitted.sample(random_state=run), test))
    line: dict[str, object] = {"table": name, "epsilon": epsilon, "run": run}
    for who, codes in (("private rows", exact), ("synthetic rows", made)):
        boosted = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0)
        boosted.fit(np.delete(codes, last, 1), codes[:, last])
        line[who] = (boosted.predict(np.delete(real, last, 1)) == real[:, last]).mean()
    return {**line, type(miner).__name__: (miner.predict(test) == test[target]).mean()}


def of_numbers(name: str, epsilon: float, run: int) -> dict[str, object]:
    """The distance of synthetic rows from the rows on cells of exact deciles, and in means and deviations of numbers.

    Then for each number how far its mean is off, its deviation beside the exact one, and the rows that carry it.
    """
    schema, _, frame = data_set(name)
    private = frame[list(schema.columns)]
    with pinq.simulate(schema, data=private, epsilon=epsilon) as handle:
        made = Synthesizer(epsilon=epsilon, random_state=run).fit(handle).sample(len(private), random_state=run)
    numbers = list(schema.numeric_columns)
    real, own = (rows[numbers].apply(plain_numbers) for rows in (private, made))
    tenths = [*real.quantile(np.linspace(0.1, 0.9, 9)).items()]
    cells = [
        {
            **{
                column: np.where(rows[column].isna(), 10, np.searchsorted(cuts, rows[column]))
                for column, cuts in tenths
            },
            **{column: whole[column].astype(str).to_numpy() for column in schema.columns if column not in numbers},
        }
        for rows, whole in ((real, private), (own, made))
    ]
    apart = [
        pd.crosstab(cells[0][one], cells[0][two], normalize=True)
        .sub(pd.crosstab(cells[1][one], cells[1][two], normalize=True), fill_value=0)
        .fillna(0)
        .abs()
        .to_numpy()
        .sum()
        / 2
        for one, two in itertools.combinations(schema.columns, 2)
    ]
    off, ratio = ((own.mean() - real.mean()) / real.std()).abs(), own.std() / real.std()
    beyond = ((own < real.min()) | (own > real.max())).mean().mean()
    line = {
        "table": name,
        "epsilon": epsilon,
        "run": run,
        "deciles, two-way": np.mean(apart),
        "mean off, sd": off.mean(),
    }
    each = {
        f"{column}: {what}": value
        for what, values in (("off", off), ("sd", ratio))
        for column, value in zip(numbers, values, strict=True)
    }
    return {
        **line,
        "worst": off.max(),
        "least sd ratio": ratio.min(),
        "largest": ratio.max(),
        "beyond all rows": beyond,
        **each,
        **{f"{column}: rows": carried(real[column].dropna().to_numpy()) for column in numbers},
    }


def carried(values: np.ndarray) -> int:
    """The least number of rows, those farthest from the mean, without which a deviation is 15 % smaller."""
    near = np.sort(np.abs(values - values.mean()))
    gone = (near**2)[::-1].cumsum()
    return int(np.searchsorted(gone, (1 - 0.85**2) * gone[-1])) + 1


def plain_numbers(column: pd.Series) -> pd.Series:
    """Numbers of a numeric column, or days of dates."""
    if column.dtype == object or str(column.dtype).startswith("datetime"):
        return (pd.to_datetime(column) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return column.astype(float)


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--history", action="store_true", help="print what answers in the log save, and nothing else")
    parser.add_argument("--coverage", nargs="+", metavar="TABLE", help="print how often intervals and bounds hold")
    parser.add_argument("--miners", nargs="+", metavar="TABLE", help="print models of such rows beside miners")
    parser.add_argument("--numbers", nargs="+", metavar="TABLE", help="print how deciles and means are kept")
    asked = parser.parse_args()
    others = (
        (covered, "coverage", asked.coverage, (1.0,)),
        (beside_a_miner, "miners", asked.miners, (1.0,)),
        (of_numbers, "numbers", asked.numbers, (1.0, 4.0)),
    )
    for measure, file, tables, epsilons in others:
        for name in tables or ():
            asked_for = itertools.product(epsilons, range(asked.runs))
            measures = pd.DataFrame([measure(name, epsilon, run) for epsilon, run in asked_for])
            RESULTS.mkdir(parents=True, exist_ok=True)
            measures.to_csv(RESULTS / f"{file}-{name}.csv", index=False)
            means = measures.drop(columns="run").groupby(["table", "epsilon"]).mean().round(3)
            print(means[[column for column in means if ":" not in str(column)]].to_string(), flush=True)
    if asked.coverage or asked.miners or asked.numbers:
        return
    if asked.history:
        gains = pd.DataFrame(with_history(Adult(), asked.runs))
        print(gains.groupby(["epsilon", "history"], sort=False).mean().round(3).to_string())
        return
    lines: list[dict[str, object]] = []
    for line in measured(Adult(), asked.runs):
        lines.append(line)
        published(pd.DataFrame(lines))
    print((RESULTS / "README.md").read_text(encoding="utf-8"))


def published(lines: pd.DataFrame) -> None:
    """Writes each run, and the page with their means."""
    groups = lines.groupby(["rows", "epsilon"], dropna=False, sort=False)
    table = groups.mean(numeric_only=True).round(3).assign(runs=groups.size()).reset_index()
    shown = table.astype(object).where(lambda frame: frame.notna(), "")
    text = markdown(list(shown.columns), shown.itertuples(index=False))
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines.to_csv(RESULTS / "runs.csv", index=False)
    (RESULTS / "README.md").write_text(f"# Synthetic rows of Adult\n\n{__doc__}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
