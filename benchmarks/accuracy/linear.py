# SPDX-License-Identifier: Apache-2.0
"""Linear models: beside our other miners, beside diffprivlib, their intervals, their norm and their time.

    PEERS_PYTHON=.venv-cards/bin/python python -m benchmarks.accuracy.linear --runs 5

Writes benchmarks/results/linear/README.md, and those of its sections that docs/linear.md has. Without ``PEERS_PYTHON``
diffprivlib is left out, without ``PINQ_DATA`` the tables of UCI.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.linear_cases import cases, least_squares
from benchmarks.accuracy.trees import UNLIMITED_EPSILON
from benchmarks.harness.datasets import load, why_missing
from benchmarks.harness.origin import commit_of
from benchmarks.harness.publish import RESULTS, ROOT
from benchmarks.harness.tables import markdown, replace_section
from miners import (
    PCA,
    DiffPC45,
    LinearDiscriminant,
    LinearRegression,
    QuadraticDiscriminant,
    Scorecard,
    ScorecardRegressor,
)
from miners.fitted.model_card import determination
from miners.fitted.route import encode
from miners.linear.moments import Norm
from miners.tables import correlation
from pinq.language.products import Products
from pinq.public.schema import Categorical, Numeric, Schema

__all__ = ["main"]

EPSILONS = (0.1, 0.25, 0.5, 1.0, 4.0)
REGRESSED = (0.1, 0.5, 1.0, 4.0, 16.0)
INTERVALS = (0.1, 1.0, 4.0)
REGRESSIONS = (
    ("appliances_energy", "appliances"),
    ("credit_default", "limit_bal"),
    ("adult", "hours_per_week"),
    ("loans", "interest_rate"),
    ("cps", "wage"),
)
CURVES = ("robot_navigation", "banknote", "cmc", "creditspain", "hins", "credit_default", "adult")
DISCRIMINANTS = (LinearDiscriminant, QuadraticDiscriminant)
FEW = 3  # values that one column of a page can have
PEERS = Path(__file__).with_name("linear_peers.py")
PAGE = ROOT / "docs" / "linear.md"
Rows = Iterator[Sequence[object]]


def gaussian_classes(seed: int, apart: float) -> tuple[Schema, pd.DataFrame]:
    """60,000 rows of ten normal classes of rank 12 in 49 columns from 0 to 255, each with a shape half its own."""
    draw, rows, width, rank = np.random.default_rng(seed), 60_000, 49, 12
    common, means = draw.normal(size=(width, rank)), draw.normal(size=(10, rank))
    classes, points = draw.integers(0, 10, rows), np.empty((rows, width))
    for number in range(10):
        mine = classes == number
        shape = 0.6 * common + 0.8 * draw.normal(size=(width, rank))
        points[mine] = draw.normal(size=(int(mine.sum()), rank)) @ shape.T + apart * (common @ means[number])
    points += 0.5 * draw.normal(size=points.shape)
    points = np.clip(0.5 + points / (6.4 * np.sqrt(rank)), 0, 1)
    frame = pd.DataFrame(np.rint(255 * points), columns=[f"x{number}" for number in range(width)])
    columns: dict[str, Any] = {str(name): Numeric(lower=0, upper=255, integer=True) for name in frame}
    columns["label"] = Categorical(values=tuple(f"c{number}" for number in range(10)))
    return Schema(columns=columns, max_rows=rows), frame.assign(label=[f"c{number}" for number in classes])


def classified(runs: int) -> Rows:
    """Share of 10,000 test rows whose class is predicted."""
    kinds: dict[str, Callable[[float], Any]] = {
        "LinearDiscriminant": lambda epsilon: LinearDiscriminant(epsilon=epsilon),
        "QuadraticDiscriminant": lambda epsilon: QuadraticDiscriminant(epsilon=epsilon),
        "Scorecard": lambda epsilon: Scorecard(epsilon=epsilon),
        "naive Bayes": lambda epsilon: Scorecard(epsilon=epsilon, steps=0),
        "DiffPC45": lambda epsilon: DiffPC45(epsilon=epsilon),
    }
    for apart in (1.0, 0.5):
        schema, frame = gaussian_classes(1, apart)
        with pinq.simulate(schema, data=frame[:50_000], epsilon=UNLIMITED_EPSILON) as handle:
            for epsilon in EPSILONS:
                found = [
                    np.mean([make(epsilon).fit(handle, "label").score(frame[50_000:]) for _ in range(runs)])
                    for make in kinds.values()
                ]
                yield [f"{apart:g}", f"{epsilon:g}", *(f"{share:.3f}" for share in found)]


def curved(runs: int) -> Rows:
    """Share of a quarter of the rows whose class is predicted, another quarter each run."""
    for data in CURVES:
        if why_missing(data):
            continue
        schema, target, rows = load(data)
        rows = rows[list(schema.columns)].dropna(subset=[target])
        for epsilon in (0.5, 1.0, 4.0, 16.0):
            found = []
            for run in range(runs):
                tested = np.random.default_rng(run).random(len(rows)) < 0.25
                with pinq.simulate(schema, data=rows[~tested], epsilon=UNLIMITED_EPSILON) as handle:
                    fits = [kind(epsilon=epsilon).fit(handle, target) for kind in DISCRIMINANTS]
                found.append([fit.score(rows[tested]) for fit in fits])
            error = np.std(np.diff(found), ddof=1) / np.sqrt(runs)
            yield [data, f"{epsilon:g}", *(f"{share:.3f}" for share in np.mean(found, axis=0)), f"{error:.3f}"]


def _within(schema: Schema, frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Features from -1 to 1: a number over its bounds (missing: 0), an indicator for each value but the first."""
    features = []
    for name in columns:
        if name in schema.numeric_columns:
            column = schema.numeric_columns[name]
            number = 2 * (frame[name].to_numpy(float) - float(column.low)) / float(column.high - column.low) - 1
            features.append(np.nan_to_num(np.clip(number, -1, 1))[:, None])
        else:
            codes = encode(schema, name, frame)
            features.append((codes[:, None] == np.arange(1, schema.columns[name].codes)).astype(float))
    return np.concatenate(features, axis=1)


def _peer(arrays: dict[str, Any], asked: Sequence[tuple[str, float, int]]) -> list[Any] | None:
    """The answers of diffprivlib; None without the name of its interpreter."""
    python = os.environ.get("PEERS_PYTHON")
    if python is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        np.savez(file, **arrays)
        command, asking = [python, str(PEERS), str(file)], json.dumps(asked)
        done = subprocess.run(command, input=asking, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def regressed(runs: int) -> Rows:
    """R² on a quarter of the rows, another quarter each run; the same rows and bounds for all."""
    for data, target in REGRESSIONS:
        if why_missing(data):
            continue
        schema, _, rows = load(data)
        names = [name for name in schema.columns if name not in (target, "fold")]
        schema = Schema(columns={name: schema.columns[name] for name in (*names, target)}, max_rows=schema.max_rows)
        rows = rows.dropna(subset=[target])
        found: dict[float, list[list[float]]] = {epsilon: [] for epsilon in REGRESSED}
        best = []
        for run in range(runs):
            tested = np.random.default_rng(run).random(len(rows)) < 0.25
            train, test, truth = rows[~tested], rows[tested], rows[tested][target].to_numpy(float)
            arrays = {name: _within(schema, own, names) for name, own in (("train", train), ("test", test))}
            own = schema.numeric(target)
            arrays["target"] = _within(schema, train, [target])[:, 0]
            theirs = _peer(arrays, [("regression", epsilon, run) for epsilon in REGRESSED])
            points = np.insert(arrays["train"], 0, 1, axis=1)
            exact = np.linalg.lstsq(points, train[target].to_numpy(float), rcond=None)[0]
            best.append(determination(truth, np.insert(arrays["test"], 0, 1, axis=1) @ exact, None))
            low, half = float(own.low), float(own.high - own.low) / 2
            with pinq.simulate(schema, data=train[[*names, target]], epsilon=UNLIMITED_EPSILON) as handle:
                for place, epsilon in enumerate(REGRESSED):
                    kinds = (LinearRegression, ScorecardRegressor)
                    scores = [kind(epsilon=epsilon).fit(handle, target).score(test) for kind in kinds]
                    if theirs is not None:
                        inside = low + half * (np.clip(np.array(theirs[place]), -1, 1) + 1)
                        scores.append(determination(truth, inside, None))
                    found[epsilon].append(scores)
        for epsilon, each in found.items():
            means = [f"{share:.3f}" for share in np.mean(each, axis=0)]
            yield [f"{data}, {target}", str(len(points.T) - 1), f"{np.mean(best):.3f}", f"{epsilon:g}", *means]


def turned(runs: int) -> Rows:
    """The largest principal angle, in degrees, between the first components and the exact ones."""
    tables: list[tuple[str, int, np.ndarray]] = []
    if not why_missing("appliances_energy"):
        schema, target, rows = load("appliances_energy")
        points = _within(schema, rows, [n for n in schema.columns if n != target])
        tables += [(f"appliances_energy, {width} columns", 3, points[:, :width]) for width in (6, 12, points.shape[1])]
    schema, frame = gaussian_classes(1, 1.0)
    tables.append(("ten classes of rank 12", 5, _within(schema, frame, list(schema.numeric_columns))))
    for name, count, points in tables:
        exact = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][:count]
        columns = {f"x{number}": Numeric(lower=-1, upper=1) for number in range(points.shape[1])}
        within = Schema(columns=columns, max_rows=len(points))
        asked = [("pca", epsilon, run) for epsilon in EPSILONS for run in range(runs)]
        theirs = _peer({"train": points, "components": count}, asked)
        with pinq.simulate(
            within, data=pd.DataFrame(points, columns=list(columns)), epsilon=UNLIMITED_EPSILON
        ) as handle:
            for place, epsilon in enumerate(EPSILONS):
                fits = [PCA(epsilon=epsilon, n_components=count, scaled=False).fit(handle) for _ in range(runs)]
                ours = np.mean([_angle(exact, miner.components_) for miner in fits])
                shown = "not measured"
                if theirs is not None:
                    found = [other for other in theirs[place * runs : (place + 1) * runs] if other is not None]
                    angles = [_angle(exact, np.array(other)) for other in found]
                    shown = f"{np.mean(angles):.1f}" if angles else "no answer in 10 s"
                yield [f"{name}, first {count}", f"{epsilon:g}", f"{ours:.1f}", shown]


def _angle(one: np.ndarray, other: np.ndarray) -> float:
    least = np.linalg.svd(one @ np.linalg.qr(other.T)[0])[1].min()
    return float(np.degrees(np.arccos(np.clip(least, -1, 1))))


def covered(runs: int) -> Rows:
    """The coverage of 95 % intervals of the worst coefficient: of the true one, and of least squares."""
    for epsilon in INTERVALS:
        held: dict[str, list[np.ndarray]] = {}
        for run in range(runs):
            for case in cases(run):
                with pinq.simulate(case.schema, data=case.frame, epsilon=UNLIMITED_EPSILON) as handle:
                    table = LinearRegression(epsilon=epsilon).fit(handle, case.target).to_frame()
                own = table.set_index("term").loc[list(case.true)]
                known = least_squares(case.schema, case.frame, case.target)
                low, high = own["low"].to_numpy(), own["high"].to_numpy()
                inside = [(low <= these) & (these <= high) for these in map(np.array, _both(case.true, known))]
                held.setdefault(case.name, []).append(np.array([*inside, np.isinf(high)]))
        for name, shares in held.items():
            true, own_, hidden = np.mean(shares, axis=0)
            yield [name, f"{epsilon:g}", f"{true.min():.2f}", f"{own_.min():.2f}", f"{hidden.mean():.2f}"]


def _both(true: dict[str, float], known: dict[str, float]) -> list[list[float]]:
    return [list(true.values()), [known[term] for term in true]]


def correlated(runs: int) -> Rows:
    """The coverage of 95 % intervals of correlations: of all pairs, and of the worst; their half-width."""
    for epsilon in (*INTERVALS, 16.0, 64.0, 256.0, 1024.0):
        for name, (schema, draw) in _correlations().items():
            held, halves = list[np.ndarray](), list[float]()
            for run in range(runs):
                frame = draw(np.random.default_rng(run))
                exact = frame.fillna(frame.mean()).corr().to_numpy().ravel()
                with pinq.simulate(schema, data=frame, epsilon=UNLIMITED_EPSILON) as handle:
                    found = correlation(handle, epsilon=epsilon).frame
                low, high = found["low"].to_numpy(), found["high"].to_numpy()
                other = (~np.eye(frame.shape[1], dtype=bool)).ravel() & ~np.isnan(exact)
                held.append(((low <= exact) & (exact <= high))[other])
                halves.append(float((high - low)[other].mean()) / 2)
            each = np.mean(held, axis=0)
            yield [name, f"{epsilon:g}", f"{each.mean():.2f}", f"{each.min():.2f}", f"{np.mean(halves):.3f}"]


def _correlations() -> dict[str, tuple[Schema, Callable[[np.random.Generator], pd.DataFrame]]]:
    """Schemas, and functions that draw 5,000 rows of six columns that correlate by .5, or all rows of a table."""
    laws: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
        "normal": lambda z, _: z,
        "lognormal": lambda z, _: np.exp(z),
        "Student's t of 3 degrees": lambda z, draw: z / np.sqrt(draw.chisquare(3, size=(len(z), 1)) / 3),
    }
    names = [f"x{number}" for number in range(6)]
    found: dict[str, tuple[Schema, Callable[[np.random.Generator], pd.DataFrame]]] = {}
    for name, law in laws.items():

        def drawn(draw: np.random.Generator, law: Any = law) -> pd.DataFrame:
            z = draw.multivariate_normal(np.zeros(6), 0.5 + 0.5 * np.eye(6), size=5_000)
            return pd.DataFrame(np.clip(law(z, draw), -50, 50), columns=names)

        columns: dict[str, Any] = {one: Numeric(lower=-50, upper=50) for one in names}
        found[name] = Schema(columns=columns, max_rows=5_000), drawn
    for data in ("loans", "cps", "creditspain"):
        if not why_missing(data):
            schema, _, rows = load(data)
            numbers = Schema(columns=dict(schema.numeric_columns), max_rows=schema.max_rows)
            found[data] = numbers, partial(_whole, rows[list(schema.numeric_columns)])
    return found


def _whole(rows: pd.DataFrame, _: np.random.Generator) -> pd.DataFrame:
    return rows


def shortened() -> Rows:
    """Noise in a correlation of two columns at epsilon 1, by the unit of columns and what a row is shortened to."""
    for data, target in REGRESSIONS:
        if why_missing(data):
            continue
        schema, _, rows = load(data)
        names = [name for name in schema.numeric_columns if name != target]
        points = _within(schema, rows, names)
        deviations, width = points.std(axis=0), len(names)
        scaled = np.clip((points - points.mean(axis=0)) / deviations, -4, 4)
        # A product of two columns over their bounds is so many products in deviations.
        square = float(np.median(1 / deviations) ** 2)
        limits = [
            _triangle(np.ones((1, width)))[0] * square,
            np.median(_triangle(points)) * square,
            np.median((1 + np.abs(scaled).sum(axis=1)) ** 2),
            np.median(_triangle(scaled)),
            Norm(width, 0).limit("all"),
        ]
        yield [data, str(width), *(f"{np.sqrt(2) * limit / len(points):.4f}" for limit in limits)]


def _triangle(points: np.ndarray) -> np.ndarray:
    """The L1 norm of the upper triangle of each row's products, with a constant."""
    sizes, squares = 1 + np.abs(points).sum(axis=1), 1 + (points**2).sum(axis=1)
    norms: np.ndarray = (sizes**2 + squares) / 2
    return norms


def timed() -> Rows:
    """CPU seconds of both passes over ten million rows of 14 columns."""
    rows, draw = 10_000_000, np.random.default_rng(0)
    frame = pd.DataFrame({f"x{number}": draw.normal(50, 12, rows).astype(np.float32) for number in range(14)})
    schema = Schema(columns={str(name): Numeric(lower=0, upper=100, step="0.1") for name in frame}, max_rows=rows)
    with pinq.simulate(schema, data=frame, epsilon=UNLIMITED_EPSILON) as handle:
        del frame
        for pairs, limit in (("squares", 11.5), ("all", 10.0)):
            began = time.process_time()
            handle.noisy_sum(Products(tuple(schema.columns), pairs=pairs, limit=limit), epsilon=1)  # type: ignore[arg-type]
            yield [pairs, f"{time.process_time() - began:.1f}"]


def wide(headings: Sequence[str], rows: Rows) -> str:
    """A table in Markdown: of rows that differ in epsilon alone, a line with a column for each, if values are few."""
    if "epsilon" not in headings[-FEW - 1 :]:
        return markdown(headings, rows)
    place, lines, epsilons = headings.index("epsilon"), dict[tuple[str, ...], dict[str, str]](), dict[str, None]()
    for row in rows:
        texts = [*map(str, row)]
        epsilons[texts[place]] = None
        lines.setdefault(tuple(texts[:place]), {})[texts[place]] = " / ".join(texts[place + 1 :])
    table = [[*keys, *(own.get(epsilon, "") for epsilon in epsilons)] for keys, own in lines.items()]
    return markdown([*headings[:place], *epsilons], table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None, help="sections to measure again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs, file, commit = options.runs, RESULTS / "linear" / "README.md", commit_of()
    miners = ["LinearDiscriminant", "QuadraticDiscriminant", "Scorecard", "naive Bayes", "DiffPC45"]
    sections: dict[str, tuple[str, Sequence[str], Callable[[], Rows]]] = {
        "classes": (
            "Share of test rows whose class is predicted, of ten normal classes of rank 12 in 49 columns, 50,000 rows "
            f"(means of {max(2, runs // 2)} runs): {' / '.join(miners)}. *Apart*: how far the classes' means are.",
            ["apart", "epsilon", *miners],
            lambda: classified(max(2, runs // 2)),
        ),
        "curves": (
            f"Share of a quarter of the rows whose class is predicted, another quarter in each of {4 * runs} runs: "
            f"{' / '.join(miners[:2])} / standard error of their difference.",
            ["table", "epsilon", *miners[:2], "error"],
            lambda: curved(4 * runs),
        ),
        "regression": (
            f"R² on a quarter of the rows, another quarter in each of {runs} runs; predictions cut to the bounds, "
            "which are the same for all: LinearRegression / ScorecardRegressor / diffprivlib.",
            ["table", "columns", "least squares", "epsilon", "LinearRegression", "ScorecardRegressor", "diffprivlib"],
            lambda: regressed(runs),
        ),
        "components": (
            "Largest principal angle between the first components and the exact ones, in degrees; columns over their "
            f"bounds (means of {runs} runs): PCA / diffprivlib. diffprivlib draws components by rejection: no answer "
            "means that no draw was accepted within ten seconds of processor time.",
            ["table", "epsilon", "PCA", "diffprivlib"],
            lambda: turned(runs),
        ),
        "intervals": (
            f"Share of {20 * runs} fits in which the 95 % interval of the worst coefficient holds the true one / the "
            "least squares of the same rows / share of coefficients that are not estimated. 5,000 rows; of cps and "
            "loans 5,000 drawn with replacement.",
            ["case", "epsilon", "true", "least squares", "not estimated"],
            lambda: covered(20 * runs),
        ),
        "correlations": (
            f"Share of {4 * runs} tables in which the 95 % interval of a correlation holds Pearson's of the same rows, "
            "missing numbers at the mean: mean of all pairs of columns / worst pair / mean half-width. 5,000 rows of "
            "six columns that correlate by .5 on the normal scale, or all rows of a table.",
            ["columns", "epsilon", "all pairs", "worst pair", "half-width"],
            lambda: correlated(4 * runs),
        ),
        "norms": (
            "Deviation of the noise in a correlation at epsilon 1, by what rows' products are shortened to. *Bounds*: "
            "columns over their bounds, no row shortened; *median*: to the median row. Then columns in deviations: to "
            "the square of the median L1 norm, to the median row's triangle, to what the miners take.",
            ["table", "columns", "bounds", "median", "square", "triangle", "taken"],
            shortened,
        ),
        "time": ("CPU seconds of a pass over 10,000,000 rows of 14 columns.", ["products", "seconds"], timed),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, (what, headings, rows) in sections.items():
        if options.only is not None and name not in options.only:
            continue
        text = f"{what}\n\n{wide(headings, rows())}\n\nOf commit {commit}."
        print(text, flush=True)
        replace_section(file, name, text, heading="Linear models")
        if f"<!-- {name} -->" in PAGE.read_text(encoding="utf-8"):
            replace_section(PAGE, name, text, heading="")


if __name__ == "__main__":
    main()
