# SPDX-License-Identifier: Apache-2.0
"""What noise inside the computation costs: accuracy on Car and Adult split among four holders, beside noise that each holder adds alone, and DP-TopDown.

Every method sees the same training rows dealt to four holders and is scored on the same test rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.datasets import load, stratified_folds
from miners import DPTopDown, Federation
from miners.secure import SecureID3
from miners.secure.plain import plain_id3
from miners.secure.rules import Budget
from miners.secure.task import Branch, Holding, Task, hold, to_tree
from pinq.provider.simulation import simulate
from pinq.public.schema import Categorical, Schema

HOLDERS = 4
EPSILONS = ("0.25", "0.5", "1", "2", "4")
DEPTHS = {"car": 3, "adult": 2}
STOP_SHARE = Fraction(1, 20)
FOLDS = 10


def secure(epsilon: str, depth: int, colluding: int) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """Noise drawn by all holders together."""
    return lambda tables, target, schema: (
        SecureID3(epsilon=epsilon, depth=depth, colluding=colluding).fit(tables, target, schema=schema).tree_
    )


def alone(epsilon: str, depth: int) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """The same rules where each holder sends its own counts with noise of its own: every sum has four noises, and every candidate's histogram needs a share of the loss."""
    return lambda tables, target, schema: _from_noisy_counts(
        tables, target, schema, Budget.spread(Fraction(epsilon), depth)
    )


def topdown(epsilon: str, strategy: str) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """DP-TopDown, whose holders answer a coordinator's questions with noise of their own, at its defaults."""

    def fit(tables: Sequence[pd.DataFrame], target: str, schema: Schema) -> Any:
        with Federation([simulate(schema, data=table, epsilon=1000) for table in tables]) as federation:
            return DPTopDown(epsilon=epsilon, strategy=strategy).fit(federation, target).tree_

    return fit


def exact(depth: int) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """Plain ID3, without privacy."""

    def fit(tables: Sequence[pd.DataFrame], target: str, schema: Schema) -> Any:
        task = Task.of(schema, target, [len(table) for table in tables])
        return to_tree(task, plain_id3(task, Holding.joined([hold(task, table) for table in tables]), STOP_SHARE, 8))

    return fit


def measure(runs: int, kept: Path) -> list[dict[str, Any]]:
    """One accuracy for each data set, method, epsilon and fold; goes on where it stopped."""
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(one["data"], one["method"], one["epsilon"], one["run"]) for one in found}
    for run in range(runs):
        for name, depth in DEPTHS.items():
            schema, target, rows = load(name)
            schema, rows = _coarse(schema, target, rows)
            fold = stratified_folds(rows[target].to_numpy(), FOLDS, run // FOLDS)
            train, test = rows[fold != run % FOLDS].sample(frac=1, random_state=run), rows[fold == run % FOLDS]
            tables = [train.iloc[number::HOLDERS] for number in range(HOLDERS)]
            methods: dict[tuple[str, str], Any] = {("plain ID3, not private", ""): exact(depth)}
            for epsilon in EPSILONS:
                methods["noise inside, none collude", epsilon] = secure(epsilon, depth, 0)
                methods["noise inside, one colludes", epsilon] = secure(epsilon, depth, 1)
                methods["each holder its own noise", epsilon] = alone(epsilon, depth)
                for strategy in ("turns", "local_rnm", "noisy_counts"):
                    methods[f"DPTopDown, {strategy}", epsilon] = topdown(epsilon, strategy)
            for (method, epsilon), fit in methods.items():
                if (name, method, epsilon, run) in done:
                    continue
                accuracy = float((fit(tables, target, schema).predict(test) == test[target].to_numpy()).mean())
                found.append(
                    {"data": name, "method": method, "epsilon": epsilon, "run": run, "accuracy": round(accuracy, 5)}
                )
                with kept.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
        print(f"run {run + 1} of {runs}", flush=True)
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """Mean accuracy and its standard error, in Markdown."""
    lines = [
        "| data | method | runs | " + " | ".join(f"ε = {epsilon}" for epsilon in EPSILONS) + " |",
        "|---" * (3 + len(EPSILONS)) + "|",
    ]
    for name in dict.fromkeys(one["data"] for one in found):
        for method in dict.fromkeys(one["method"] for one in found if one["data"] == name):
            cells, runs = [], 0
            for epsilon in EPSILONS:
                scores = [
                    one["accuracy"]
                    for one in found
                    if one["data"] == name and one["method"] == method and one["epsilon"] in (epsilon, "")
                ]
                runs = max(runs, len(scores))
                cells.append(
                    f"{100 * np.mean(scores):.1f} ± {100 * np.std(scores) / max(1, len(scores) - 1) ** 0.5:.1f}"
                    if scores
                    else ""
                )
            lines.append(f"| {name} | {method} | {runs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _coarse(schema: Schema, target: str, rows: pd.DataFrame) -> tuple[Schema, pd.DataFrame]:
    """Categorical columns only, missing values as a value of their own: every method splits in the same way."""
    kept = {
        name: column for name, column in schema.columns.items() if isinstance(column, Categorical) and name != "fold"
    }
    rows = rows[list(kept)].dropna(subset=[target])
    columns = {
        name: Categorical(values=column.values, nullable=column.nullable and name != target)
        for name, column in kept.items()
    }
    return Schema(columns=columns, max_rows=schema.max_rows), rows


def _from_noisy_counts(tables: Sequence[pd.DataFrame], target: str, schema: Schema, budget: Budget) -> Any:
    task = Task.of(schema, target, [len(table) for table in tables])
    holdings, random = [hold(task, table) for table in tables], np.random.default_rng()
    tree, most = [Branch()], 0.0
    waiting = [(0, [np.ones(one.places.shape[1], dtype=bool) for one in holdings], tuple(range(len(task.sizes))))]

    def noisy(exact: list[np.ndarray], loss: float) -> np.ndarray:
        shape, stay = (len(exact), *np.shape(exact[0])), 1 - np.exp(-loss)
        return (np.array(exact) + random.geometric(stay, shape) - random.geometric(stay, shape)).sum(axis=0)

    def scored(inside: list[np.ndarray], attribute: int, loss: float) -> float:
        shape = (task.sizes[attribute], task.classes)
        cells = [
            np.ravel_multi_index((one.places[attribute, rows], one.places[-1, rows]), shape)
            for one, rows in zip(holdings, inside, strict=True)
        ]
        return float(
            noisy([np.bincount(one, minlength=shape[0] * shape[1]).reshape(shape) for one in cells], loss)
            .max(axis=1)
            .sum()
        )

    while waiting:
        place, inside, remaining = waiting.pop(0)
        leaf = len(task.sizes) - len(remaining) == budget.depth
        if not leaf:
            size = float(noisy([np.array(rows.sum()) for rows in inside], float(budget.size)))
            most = most or size
            leaf = size <= float(STOP_SHARE) * most
        if leaf:
            votes = noisy(
                [
                    np.bincount(one.places[-1, rows], minlength=task.classes)
                    for one, rows in zip(holdings, inside, strict=True)
                ],
                float(budget.vote),
            )
            tree[place] = Branch(label=int(votes.argmax()))
            continue
        chosen = max(remaining, key=lambda one: scored(inside, one, float(budget.choice) / len(remaining)))
        tree[place] = Branch(chosen, tuple(range(len(tree), len(tree) + task.sizes[chosen])))
        for value in range(task.sizes[chosen]):
            below = [rows & (one.places[chosen] == value) for one, rows in zip(holdings, inside, strict=True)]
            waiting.append((len(tree), below, tuple(one for one in remaining if one != chosen)))
            tree.append(Branch())
    return to_tree(task, tree)
