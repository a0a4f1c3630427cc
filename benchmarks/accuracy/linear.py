# SPDX-License-Identifier: Apache-2.0
"""Linear models: beside our other miners, beside diffprivlib, their intervals, their norm and their time.

    PEERS_PYTHON=.venv-cards/bin/python python -m benchmarks.accuracy.linear --runs 5

Writes benchmarks/results/linear/README.md. What diffprivlib measures is left out without
``PEERS_PYTHON``; tables of UCI without PINQ_DATA.
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
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.trees import UNLIMITED_EPSILON
from benchmarks.harness.datasets import load, why_missing
from benchmarks.harness.publish import RESULTS
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
REGRESSIONS = (("appliances_energy", "appliances"), ("credit_default", "limit_bal"), ("adult", "hours_per_week"))
CURVES = ("robot_navigation", "banknote", "cmc", "creditspain", "hins", "credit_default", "adult")
DISCRIMINANTS = (LinearDiscriminant, QuadraticDiscriminant)
PEERS = Path(__file__).with_name("linear_peers.py")
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
            found = np.zeros(2)
            for run in range(runs):
                tested = np.random.default_rng(run).random(len(rows)) < 0.25
                with pinq.simulate(schema, data=rows[~tested], epsilon=UNLIMITED_EPSILON) as handle:
                    fits = [kind(epsilon=epsilon).fit(handle, target) for kind in DISCRIMINANTS]
                found += [fit.score(rows[tested]) / runs for fit in fits]
            yield [data, f"{epsilon:g}", *(f"{share:.3f}" for share in found)]


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
    """What diffprivlib answers; None where its interpreter is not named."""
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
    """R² on a quarter of the rows, the same split, rows and bounds for all."""
    for data, target in REGRESSIONS:
        if why_missing(data):
            continue
        schema, _, rows = load(data)
        names = [name for name in schema.columns if name not in (target, "fold")]
        schema = Schema(columns={name: schema.columns[name] for name in (*names, target)}, max_rows=schema.max_rows)
        rows = rows.dropna(subset=[target])
        tested = np.random.default_rng(5).random(len(rows)) < 0.25
        train, test, truth = rows[~tested], rows[tested], rows[tested][target].to_numpy(float)
        arrays = {name: _within(schema, own, names) for name, own in (("train", train), ("test", test))}
        own = schema.numeric(target)
        arrays["target"] = _within(schema, train, [target])[:, 0]
        asked = [("regression", epsilon, run) for epsilon in EPSILONS for run in range(runs)]
        theirs = _peer(arrays, asked)
        exact = np.linalg.lstsq(np.insert(arrays["train"], 0, 1, axis=1), train[target].to_numpy(float), rcond=None)[0]
        fitted = determination(truth, np.insert(arrays["test"], 0, 1, axis=1) @ exact, None)
        with pinq.simulate(schema, data=train[[*names, target]], epsilon=UNLIMITED_EPSILON) as handle:
            for place, epsilon in enumerate(EPSILONS):
                ours = [
                    np.mean([kind(epsilon=epsilon).fit(handle, target).score(test) for _ in range(runs)])
                    for kind in (LinearRegression, ScorecardRegressor)
                ]
                shown = "not measured"
                if theirs is not None:
                    low, half = float(own.low), float(own.high - own.low) / 2
                    found = [np.array(theirs[place * runs + run]) for run in range(runs)]
                    inside = [low + half * (np.clip(numbers, -1, 1) + 1) for numbers in found]
                    shown = f"{np.mean([determination(truth, numbers, None) for numbers in inside]):.3f}"
                yield [f"{data}, {target}", f"{epsilon:g}", f"{ours[0]:.3f}", shown, f"{ours[1]:.3f}", f"{fitted:.3f}"]


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
    """How many 95 % intervals of coefficients hold the true one, over normal columns of given correlation."""
    for rows, width, alike in ((5_000, 5, 0.0), (20_000, 10, 0.5), (200_000, 25, 0.7)):
        for epsilon in (0.2, 1.0, 4.0):
            held, widths = list[bool](), list[float]()
            for run in range(runs):
                draw = np.random.default_rng(run)
                gaps = np.abs(np.subtract.outer(np.arange(width), np.arange(width)))
                points = draw.multivariate_normal(np.zeros(width), alike**gaps if alike else np.eye(width), size=rows)
                true = draw.normal(size=width) * (draw.random(width) < 0.6) / np.sqrt(width)
                frame = pd.DataFrame(points, columns=[f"x{number}" for number in range(width)])
                frame["y"] = points @ true + draw.normal(size=rows)
                columns = {str(name): Numeric(lower=-8, upper=6) for name in frame if name != "y"}
                schema = Schema(columns={**columns, "y": Numeric(lower=-20, upper=20)}, max_rows=rows)
                with pinq.simulate(schema, data=frame, epsilon=UNLIMITED_EPSILON) as handle:
                    table = LinearRegression(epsilon=epsilon).fit(handle, "y").to_frame()[1:]
                held += list((table["low"] <= true) & (true <= table["high"]))
                widths.append(float((table["high"] - table["low"]).mean()))
            yield [
                f"{rows:,}",
                str(width),
                f"{alike:g}",
                f"{epsilon:g}",
                f"{np.mean(held):.3f}",
                f"{np.mean(widths):.3f}",
            ]


def correlated(runs: int) -> Rows:
    """How many 95 % intervals of correlations hold the exact one, over 20,000 rows of 8 columns."""
    rows, width = 20_000, 8
    gaps = np.abs(np.subtract.outer(np.arange(width), np.arange(width)))
    kinds: dict[str, tuple[np.ndarray, bool]] = {
        "normal, independent": (np.eye(width), False),
        "normal, neighbours correlate by .5": (0.5**gaps, False),
        "normal, one factor, all by .5": (0.5 + 0.5 * np.eye(width), False),
        "normal, one factor, all by .9": (0.9 + 0.1 * np.eye(width), False),
        "Student's t of 5 degrees, one factor, all by .5": (0.5 + 0.5 * np.eye(width), True),
    }
    schema = Schema(columns={f"x{number}": Numeric(lower=-8, upper=8) for number in range(width)}, max_rows=rows)
    for name, (alike, heavy) in kinds.items():
        for epsilon in (0.2, 0.5, 1.0):
            held, off = list[bool](), list[float]()
            for run in range(runs):
                draw = np.random.default_rng(run)
                points = draw.multivariate_normal(np.zeros(width), alike, size=rows)
                points /= np.sqrt(draw.chisquare(5, size=(rows, 1)) / 5) if heavy else 1
                frame = pd.DataFrame(np.clip(points, -8, 8), columns=list(schema.columns))
                exact = frame.corr().to_numpy().ravel()
                with pinq.simulate(schema, data=frame, epsilon=UNLIMITED_EPSILON) as handle:
                    found = correlation(handle, epsilon=epsilon).frame[exact < 1 - 1e-9]
                exact = exact[exact < 1 - 1e-9]
                held += list((found["low"] <= exact) & (exact <= found["high"]))
                off += list(np.abs(found["value"] - exact))
            yield [name, f"{epsilon:g}", f"{np.mean(held):.3f}", f"{np.mean(off):.3f}"]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None, help="sections to measure again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs, file = options.runs, RESULTS / "linear" / "README.md"
    miners = ["LinearDiscriminant", "QuadraticDiscriminant", "Scorecard", "naive Bayes", "DiffPC45"]
    sections: dict[str, tuple[str, Sequence[str], Callable[[], Rows]]] = {
        "classes": (
            "Ten normal classes of rank 12 in 49 columns, 50,000 rows: share of test rows whose class is predicted. "
            "*Apart*: how far the classes' means are.",
            ["apart", "epsilon", *miners],
            lambda: classified(max(2, runs // 2)),
        ),
        "curves": (
            "Share of a quarter of the rows whose class is predicted, on real tables.",
            ["table", "epsilon", *miners[:2]],
            lambda: curved(runs),
        ),
        "regression": (
            "R² on a quarter of the rows; the same rows and bounds for all, predictions cut to the bounds.",
            ["table", "epsilon", "LinearRegression", "diffprivlib", "ScorecardRegressor", "least squares, exact"],
            lambda: regressed(runs),
        ),
        "components": (
            "Largest principal angle between the first components and the exact ones, in degrees; columns over "
            "their bounds. diffprivlib draws components by rejection, which may not end on many columns.",
            ["table", "epsilon", "PCA", "diffprivlib"],
            lambda: turned(runs),
        ),
        "intervals": (
            "95 % intervals of coefficients that hold the true one, and their mean width; normal columns that "
            "correlate with their neighbours.",
            ["rows", "columns", "correlation", "epsilon", "held", "width"],
            lambda: covered(8 * runs),
        ),
        "correlations": (
            "95 % intervals of correlations that hold the exact one, and the mean error; 20,000 rows of 8 columns.",
            ["columns", "epsilon", "held", "error"],
            lambda: correlated(runs),
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
        table = [list(map(str, row)) for row in rows()]
        text = f"{what}\n\n{markdown(headings, table)}"
        print(text, flush=True)
        replace_section(file, name, text, heading="Linear models")


if __name__ == "__main__":
    main()
