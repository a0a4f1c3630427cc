# SPDX-License-Identifier: Apache-2.0
"""The coverage of intervals of statistics, and the level of tests.

    PINQ_DATA=... python -m benchmarks.accuracy.coverage --minutes 10

A table is the population: rows are drawn from it with replacement, and counted with noise. The interval should contain
the population's number. For the level of a test, the groups are drawn independently, so that nothing depends on them.
Tables that are not in ``PINQ_DATA`` are left out; lung, gbsg2 and rossi are CSV files there, from the wheel of
lifelines. Each round writes benchmarks/results/statistics, and a new run continues there; a figure of another commit is
measured again.
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.datasets import folder, load, why_missing
from benchmarks.harness.origin import commit_of
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.tables import markdown
from miners import statistics
from miners.statistics import Result
from miners.statistics.cells import CountDraft, StatisticFunction
from pinq.public.schema import Schema

__all__ = ["EPSILONS", "Cell", "Population", "cells", "simulated"]

EPSILONS = (0.1, 0.5, 1.0, 2.0)
TESTS = ("log-rank", "log-rank, three ends", "ranks", "G")  # of which no interval is measured
KEYS = ["table", "statistic", "epsilon"]
YES_NO = {"type": "categorical", "values": ["no", "yes"]}


Numbers = Callable[[Result], pd.DataFrame]
"""A function from a result to the table of it whose intervals are measured."""


def in_place(result: Result) -> pd.DataFrame:
    """Returns the centres of clusters from left to right, for their sizes may be near each other."""
    frame = result.frame
    first = frame[frame["column"] == frame["column"][0]].set_index("cluster")["value"]
    return frame.assign(at=frame["cluster"].map(first)).sort_values(["column", "at"])


@dataclass(frozen=True)
class Asked:
    """A statistic of a population.

    Attributes:
        name: Its name in the results.
        function: The function.
        columns: The columns of the function's arguments.
        words: Its other arguments.
        axis: The axis that is drawn independently for a level; None without a test.
        numbers: The table whose intervals are measured.
    """

    name: str
    function: StatisticFunction[Any]
    columns: tuple[Any, ...]
    words: dict[str, Any]
    axis: int | None = None
    numbers: Numbers = attrgetter("frame")


@dataclass(frozen=True)
class Population:
    """A table that rows are drawn from.

    Attributes:
        name: The name of the table.
        schema: Its public columns.
        frame: Its rows.
        rows: The number of rows of each draw.
        columns: The columns by role: ``event``, ``by``, and where there are any ``time``, ``number``,
            ``explaining``, ``strata``, ``ended``, ``clustered``.
        observed: The value of the event that counts.
    """

    name: str
    schema: Schema
    frame: pd.DataFrame
    rows: int
    columns: Mapping[str, Any]
    observed: Any = None

    def questions(self) -> Iterator[Asked]:
        """Yields each statistic that the columns allow."""
        event, by, number = (self.columns[role] for role in ("event", "by", "number"))
        observed, (*_, exposed) = {"observed": self.observed}, self.schema.categorical(by).values
        two, explaining = observed | {"exposed": exposed}, self.columns["explaining"]
        if "time" in self.columns:
            time = self.columns["time"]
            yield Asked("survival", statistics.survival, (time, event), observed)
            for part in ("median", "restricted_mean"):
                yield Asked(part, statistics.survival, (time, event), observed, None, attrgetter(part))
            yield Asked("log-rank", statistics.survival, (time, event, by), observed, 2)
            yield Asked("hazard_ratio", statistics.hazard_ratio, (time, event, by), observed, 2)
            yield Asked("rate_ratio", statistics.rate_ratio, (event, by), two | {"time": time, "bins": 5}, 1)
        if "ended" in self.columns:
            rivals = {"observed": "event", "competing": "other"}
            yield Asked("incidence", statistics.survival, self.columns["ended"], rivals)
            yield Asked("survival, three ends", statistics.survival, self.columns["ended"], {"observed": "event"})
            by_arm = (*self.columns["ended"], by)
            yield Asked("log-rank, three ends", statistics.survival, by_arm, {"observed": "event"}, 2)
        yield Asked("odds_ratio", statistics.odds_ratio, (event, by), two, 1)
        yield Asked("odds_ratio, strata", statistics.odds_ratio, (event, by, self.columns["strata"]), two, 1)
        yield Asked("risk_difference", statistics.risk_difference, (event, by), two, 1)
        yield Asked("logistic", statistics.logistic, (event, explaining), observed, 0)
        yield Asked("poisson", statistics.poisson, (number, by), {}, 0)
        yield Asked("compare", statistics.compare, (number, by), {}, 0)
        yield Asked("ranks", statistics.compare, (number, by), {"test": "rank"}, 0)
        yield Asked("standardised", statistics.standardised, (event, by, self.columns["strata"]), observed)
        yield Asked("independence", statistics.independence, (explaining[-1], event), {}, 1)
        yield Asked("G", statistics.independence, (explaining[-1], event), {"test": "log-likelihood"}, 1)
        yield Asked("trend", statistics.independence, (explaining[-1], event), {"test": "trend"}, 1)
        if "clustered" in self.columns:
            yield Asked("kmeans", statistics.kmeans, self.columns["clustered"], {}, None, in_place)


def simulated() -> Iterator[Population]:
    """Yields three populations of 100,000 rows: few rows of each draw, many, and a rare event."""
    for name, rows, rate in (("200 rows", 200, 0.04), ("1,000 rows", 1000, 0.04), ("rare event", 5000, 0.004)):
        random, size = np.random.default_rng(0), 100_000
        arm, grade = random.integers(0, 2, size), random.choice(3, size, p=[0.3, 0.5, 0.2])
        hazard = rate * np.exp(0.4 * arm + np.array([0.0, 0.3, 0.7])[grade])
        until, censored = np.ceil(random.exponential(1 / hazard)), random.integers(6, 61, size)
        week = np.minimum(np.minimum(until, censored), 48).astype(int)
        dose = np.clip(np.round(random.normal(20 + 2 * arm, 6)), 0, 48).astype(int)
        rival = np.ceil(random.exponential(2 / rate, size))  # the time of an event of another kind
        ended = np.where(rival < np.minimum(np.minimum(until, censored), 48), "other", "censored")
        ended = np.where((until <= rival) & (until <= np.minimum(censored, 48)), "event", ended)
        middles = np.array([[8, 10], [24, 12], [15, 24]])[grade]  # of groups that lie apart
        iron, sugar = np.clip(np.round(random.normal(middles, 2)), 0, 31).astype(int).T
        frame = pd.DataFrame(
            {
                "week": week,
                "event": np.where(until <= np.minimum(censored, 48), "yes", "no"),
                "arm": np.where(arm, "yes", "no"),
                "grade": np.array(["I", "II", "III"])[grade],
                "dose": dose,
                "ended": ended,
                "until": np.minimum(week, rival).astype(int),
                "iron": iron,
                "sugar": sugar,
            }
        )
        weeks, doses = ({"type": "numeric", "lower": low, "upper": 48, "integer": True} for low in (1, 0))
        grades, ends = (
            {"type": "categorical", "values": values} for values in (["I", "II", "III"], ["censored", "event", "other"])
        )
        declared = {"week": weeks, "event": YES_NO, "arm": YES_NO, "grade": grades, "dose": doses, "ended": ends}
        declared |= {"until": weeks} | {
            name: {"type": "numeric", "lower": 0, "upper": 31, "integer": True} for name in ("iron", "sugar")
        }
        schema = Schema.model_validate({"columns": declared, "max_rows": 200_000})
        roles: dict[str, Any] = {"event": "event", "by": "arm", "time": "week", "number": "dose", "strata": "grade"}
        roles |= {"explaining": ["arm", "grade"], "ended": ("until", "ended"), "clustered": (["iron", "sugar"], 3)}
        yield Population(name, schema, frame, rows, roles)


def real() -> Iterator[Population]:
    """Yields the tables of ``PINQ_DATA`` that are there."""
    cuts = pinq.Cuts
    roles: dict[str, tuple[dict[str, Any], Any]] = {
        "adult": (
            {
                "event": "income",
                "by": "sex",
                "number": "hours_per_week",
                "explaining": ["sex", cuts("age", (30, 45, 60)), "race"],
                "strata": cuts("age", (30, 45, 60)),
                "clustered": (["age", "hours_per_week"], 3),
            },
            ">50K",
        ),
        "hins": (
            {
                "event": "insurance",
                "by": "gender",
                "number": "age",
                "explaining": ["health", "limit", "region"],
                "strata": cuts("age", (30, 40, 50)),
            },
            "yes",
        ),
        "creditspain": (
            {
                "event": "Status",
                "by": "Records",
                "time": cuts("Time", (12, 24, 36, 48, 59)),
                "number": "Age",
                "explaining": ["Records", cuts("Age", (30, 40, 50)), "Job"],
                "strata": cuts("Age", (30, 40, 50)),
            },
            "bad",
        ),
    }
    for name, (columns, observed) in roles.items():
        if not why_missing(name):
            schema, _, frame = load(name)
            yield Population(name, schema, frame, len(frame), columns, observed)
    studies: dict[str, tuple[list[str], dict[str, tuple[int, int]], dict[str, Any]]] = {
        "lung": (
            ["status", "sex"],
            {"time": (0, 1022), "age": (35, 90)},
            {"event": "status", "by": "sex", "explaining": ["sex"], "strata": cuts("age", (63,))},
        ),
        "gbsg2": (
            ["cens", "horTh", "tgrade"],
            {"time": (0, 2659), "age": (20, 80)},
            {"event": "cens", "by": "horTh", "explaining": ["horTh", "tgrade"], "strata": cuts("age", (45, 60))},
        ),
        "rossi": (
            ["arrest", "fin", "race"],
            {"week": (1, 52), "age": (17, 45)},
            {"event": "arrest", "by": "fin", "time": "week", "explaining": ["fin", "race"], "strata": "race"},
        ),
    }
    for name, (groups, numbers, columns) in studies.items():
        if (folder() / f"{name}.csv").exists():
            frame = (
                pd.read_csv(folder() / f"{name}.csv")[[*groups, *numbers]].dropna().astype(dict.fromkeys(numbers, int))
            )
            frame[groups] = frame[groups].astype(str)
            declared = {group: {"type": "categorical", "values": sorted(frame[group].unique())} for group in groups} | {
                number: {"type": "numeric", "lower": low, "upper": high, "integer": True}
                for number, (low, high) in numbers.items()
            }
            schema = Schema.model_validate({"columns": declared, "max_rows": 1000})
            yield Population(name, schema, frame, len(frame), {"time": "time", "number": "age", **columns}, "1")


@dataclass(frozen=True)
class Cell:
    """One statistic of one population at one epsilon.

    Attributes:
        asked: The statistic.
        draft: Its draft.
        counts: The population's counts, scaled to the rows of a draw.
        epsilon: The cost, which makes the noise.
        table: The population's name.
    """

    asked: Asked
    draft: CountDraft
    counts: np.ndarray
    epsilon: float
    table: str

    @property
    def name(self) -> str:
        """The statistic's name."""
        return self.asked.name

    def measure(self, runs: int, start: int) -> dict[str, float]:
        """Draws tables, and counts how often the numbers were held and the hypothesis was rejected."""
        random = np.random.default_rng([zlib.crc32(f"{self.table} {self.name} {self.epsilon}".encode()), start])
        truth = self.asked.numbers(self.draft.computed(self.counts, 1e-9))["value"].to_numpy(dtype=float)
        seen = np.isfinite(truth) & ((truth != 1) | (not self.name.startswith("survival")))  # a curve begins at 1
        seen &= (truth != 0) | (self.name != "incidence")  # and one of events at 0
        figures = dict.fromkeys(["n", "told", "held", "tests", "rejected"], 0.0)
        for _ in range(runs):
            figures["n"] += 1
            if self.name not in TESTS and seen.any():
                numbers = self.asked.numbers(self._result(self.counts, random))
                low, high = (numbers[name].to_numpy(dtype=float)[seen] for name in ("low", "high"))
                held = (low - 1e-9 <= truth[seen]) & (truth[seen] <= high + 1e-9)
                figures["told"] += float(np.mean(~np.isnan(low) & ~np.isnan(high)))
                figures["held"] += float(np.mean(held))  # never where nothing is told
            if self.asked.axis is not None:
                pvalue = self._result(self._null(), random).pvalue
                figures["tests"] += not np.isnan(pvalue)
                figures["rejected"] += pvalue < 0.05
        return figures

    def _null(self) -> np.ndarray:
        """Returns the counts if nothing depended on the axis."""
        axis = self.asked.axis
        others = tuple(other for other in range(self.counts.ndim) if other != axis)
        own = self.counts.sum(axis=others, keepdims=True)
        return np.asarray(own * self.counts.sum(axis=axis, keepdims=True) / self.counts.sum())

    def _result(self, counts: np.ndarray, random: np.random.Generator) -> Any:
        total = counts.sum()
        drawn = random.multinomial(round(total), (counts / total).ravel()).reshape(counts.shape)
        ends = 1 - np.exp(-self.epsilon)
        noise = random.geometric(ends, counts.shape) - random.geometric(ends, counts.shape)
        with np.errstate(all="ignore"):
            return self.draft.computed(drawn + noise, 1 / self.epsilon)


def cells(population: Population, epsilons: Sequence[float], only: Sequence[str] = ()) -> Iterator[Cell]:
    """Yields each statistic of a population at each epsilon."""
    handle = pinq.simulate(population.schema, data=population.frame, epsilon=10**6)
    for asked in population.questions():
        if only and asked.name not in only:
            continue
        counts = None
        for epsilon in epsilons:
            draft: Any = asked.function._draft(handle, *asked.columns, **asked.words, epsilon=epsilon)
            if counts is None:  # the noise is 0, but for a chance of exp(-10,000)
                counts = np.asarray(draft.parts.noisy_count(epsilon=10**4), dtype=np.float64)
                counts *= population.rows / counts.sum()
            yield Cell(asked, draft, counts, epsilon, population.name)


def page(figures: pd.DataFrame) -> str:
    """Returns the page of the results."""
    lines = []
    for name, epsilon in ((name, epsilon) for name in dict.fromkeys(figures["statistic"]) for epsilon in EPSILONS):
        own = figures[(figures["statistic"] == name) & (figures["epsilon"] == epsilon)]
        told = "-" if name in TESTS else f"{own['told'].sum() / own['n'].sum():.2f}"
        texts = [_shares(own, *pair) for pair in (("held", "told"), ("rejected", "tests"))]
        lines.append([name, f"{epsilon:g}", told, *texts, ", ".join(sorted(set(own["commit"])))])
    total, tables = int(figures["n"].min()), ", ".join(dict.fromkeys(figures["table"]))
    return f"""# Statistics: coverage and level

`PINQ_DATA=... python -m benchmarks.accuracy.coverage`, {figures["date"].max()}; *commit* is that of the code that
was measured.

Rows are drawn from each table as from a population, and counted with noise: {total} draws or more for each
table, statistic and epsilon, as many again for levels. Tables: {tables}.
*Told*: the share of numbers that are not hidden because there is no power. *Coverage*: how often a
95 % interval that is told holds the population's number, over all tables. *Level*: how often a test at .05 rejects
where nothing depends on the groups. In brackets the least and the greatest of the tables that tell a
fifth of the draws. Figures of each table: [figures.csv](figures.csv).

Of single tables, coverage is outside .93 to .97 by more than two standard errors in
{_outside(figures, "held", "told", 0.93, 0.97)}, and a level outside .035 to .065 in
{_outside(figures, "rejected", "tests", 0.035, 0.065)}.

{markdown(["statistic", "epsilon", "told", "coverage", "level", "commit"], lines)}
"""


def _outside(figures: pd.DataFrame, part: str, of: str, low: float, high: float) -> str:
    """Returns how many figures of a table are outside of bounds by more than two standard errors, and their names."""
    most = figures[figures[of] >= figures["n"] / 5]
    share, (below, above) = most[part] / most[of], (2 * np.sqrt(end * (1 - end) / most[of]) for end in (low, high))
    out = most[(share < low - below) | (share > high + above)].assign(share=share)
    named = [f"{row.statistic} of {row.table} at {row.epsilon:g}: {row.share:.3f}" for row in out.itertuples()]
    return f"{len(out)} of {len(most)}" + (f" ({'; '.join(named)})" if named else "")


def _shares(own: pd.DataFrame, part: str, of: str) -> str:
    """Returns a share over all tables, with the least and the greatest of a table."""
    if not own[of].sum():
        return "-"
    most = own[own[of] >= own["n"] / 5]
    shares = most[part] / most[of]
    return f"{own[part].sum() / own[of].sum():.3f}" + (
        f" ({shares.min():.3f} to {shares.max():.3f})" if len(most) else ""
    )


def main() -> None:
    """Measures all cells in turn, until each has its draws or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=[], help="some of the statistics")
    given = parser.parse_args()
    end, path, commit = time.monotonic() + 60 * given.minutes, RESULTS / "statistics" / "figures.csv", commit_of()
    path.parent.mkdir(exist_ok=True)
    kept: dict[tuple[Any, ...], dict[Any, Any]] = {}
    if path.exists():
        kept = {tuple(row[key] for key in KEYS): row for row in pd.read_csv(path).to_dict("records")}
    todo = [cell for one in (*simulated(), *real()) for cell in cells(one, EPSILONS, given.only)]
    for start in range(0, given.draws, 25):
        for cell in todo:
            key, new = (cell.table, cell.name, cell.epsilon), {"commit": commit, "date": time.strftime("%Y-%m-%d")}
            old = kept.get(key, {})
            if time.monotonic() > end or (old.get("commit") == commit and old["n"] > start):
                continue
            before = old if start and old.get("commit") == commit else {}
            measured = {name: before.get(name, 0) + value for name, value in cell.measure(25, start).items()}
            kept[key] = (
                dict(zip(KEYS, key, strict=True)) | {name: round(value, 4) for name, value in measured.items()} | new
            )
        figures = pd.DataFrame(kept.values()).astype({"n": int})
        figures.to_csv(path, index=False, lineterminator="\n")
        path.with_name("README.md").write_text(page(figures), encoding="utf-8")
        print(f"{start + 25} draws of each, {end - time.monotonic():.0f} seconds left", flush=True)
        if time.monotonic() > end:
            break
    told = figures[figures["commit"] == commit][["told", "held", "tests", "rejected"]].sum()
    pairs = {"coverage": ("held", "told"), "level": ("rejected", "tests")}
    print(", ".join(f"{name} {told[part] / told[of]:.3f}" for name, (part, of) in pairs.items() if told[of]))


if __name__ == "__main__":
    main()
