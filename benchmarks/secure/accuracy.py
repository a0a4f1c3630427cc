# SPDX-License-Identifier: Apache-2.0
"""What noise inside the computation costs: accuracy on Car and Adult split among four holders, beside noise that each holder adds alone.

Every method sees the same training rows dealt to four holders and is scored on the same test rows. Results of other distributed miners
(``topdown``) can be put into the same table: a line for each (data, method, epsilon, run) in the file of runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import load, stratified_folds
from miners.secure import SecureID3
from miners.secure.plain import plain_id3
from miners.secure.task import Holding, Task, hold, to_tree
from pinq.parts import Values
from pinq.schema import Categorical, Schema

HOLDERS = 4
EPSILONS = ("0.25", "0.5", "1", "2", "4")
DEPTHS = {"car": 3, "adult": 3}
FOLDS = 10


def secure(epsilon: str, depth: int, colluding: int) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """Noise drawn by all holders together."""
    return lambda tables, target, schema: SecureID3(epsilon=epsilon, depth=depth, colluding=colluding).fit(tables, target, schema=schema).tree_


def alone(epsilon: str, depth: int) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """The same tree where each holder releases its own counts with noise of its own, as without secure aggregation: the sum has four times the variance.

    Scores need the counts of every candidate: all its histograms share the level's loss.
    """

    def fit(tables: Sequence[pd.DataFrame], target: str, schema: Schema) -> Any:
        return _noisy_counts(tables, target, schema, float(epsilon), depth)

    return fit


def exact(depth: int) -> Callable[[Sequence[pd.DataFrame], str, Schema], Any]:
    """Plain ID3, without privacy."""

    def fit(tables: Sequence[pd.DataFrame], target: str, schema: Schema) -> Any:
        task = Task.of(schema, target, [len(table) for table in tables])
        return to_tree(task, plain_id3(task, Holding.joined([hold(task, table) for table in tables]), Fraction(1, 20), 8))

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
            for (method, epsilon), fit in methods.items():
                if (name, method, epsilon, run) in done:
                    continue
                accuracy = float((fit(tables, target, schema).predict(test) == test[target].to_numpy()).mean())
                found.append({"data": name, "method": method, "epsilon": epsilon, "run": run, "accuracy": round(accuracy, 5)})
                with kept.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
        print(f"run {run + 1} of {runs}", flush=True)
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """Mean accuracy and its standard error, in Markdown."""
    lines = ["| data | method | runs | " + " | ".join(f"ε = {epsilon}" for epsilon in EPSILONS) + " |", "|---" * (3 + len(EPSILONS)) + "|"]
    for name in dict.fromkeys(one["data"] for one in found):
        for method in dict.fromkeys(one["method"] for one in found if one["data"] == name):
            cells, runs = [], 0
            for epsilon in EPSILONS:
                scores = [one["accuracy"] for one in found if one["data"] == name and one["method"] == method and one["epsilon"] in (epsilon, "")]
                runs = max(runs, len(scores))
                cells.append(f"{100 * np.mean(scores):.1f} ± {100 * np.std(scores) / max(1, len(scores) - 1) ** 0.5:.1f}" if scores else "")
            lines.append(f"| {name} | {method} | {runs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _coarse(schema: Schema, target: str, rows: pd.DataFrame) -> tuple[Schema, pd.DataFrame]:
    """Categorical columns only, missing values as a value of their own: every method splits in the same way."""
    kept = {name: column for name, column in schema.columns.items() if isinstance(column, Categorical)}
    rows = rows[list(kept)].dropna(subset=[target])
    columns = {name: Categorical(values=column.values, nullable=column.nullable and name != target) for name, column in kept.items()}
    return Schema(columns=columns, max_rows=schema.max_rows), rows


def _noisy_counts(tables: Sequence[pd.DataFrame], target: str, schema: Schema, epsilon: float, depth: int) -> Any:
    from miners.node import Node
    from miners.tree import Tree

    task = Task.of(schema, target, [len(table) for table in tables])
    holdings = [hold(task, table) for table in tables]
    random = np.random.default_rng()
    level_loss, vote = 0.8 * epsilon / max(1, depth), 0.2 * epsilon
    nodes: list[Node | None] = [None]
    waiting = [(0, [np.ones(one.places.shape[1], dtype=bool) for one in holdings], tuple(range(len(task.sizes))))]

    def counts(inside: Sequence[np.ndarray], attribute: int, loss: float) -> np.ndarray:
        table = np.zeros((task.sizes[attribute], task.classes))
        for one, rows in zip(holdings, inside, strict=True):
            np.add.at(table, (one.places[attribute, rows], one.places[-1, rows]), 1)
            table += random.geometric(1 - np.exp(-loss), table.shape) - random.geometric(1 - np.exp(-loss), table.shape)
        return table

    while waiting:
        place, inside, remaining = waiting.pop(0)
        if depth == 0 or not remaining or len(task.sizes) - len(remaining) == depth:
            votes = np.zeros(task.classes)
            for one, rows in zip(holdings, inside, strict=True):
                votes += np.bincount(one.places[-1, rows], minlength=task.classes)
                votes += random.geometric(1 - np.exp(-vote), task.classes) - random.geometric(1 - np.exp(-vote), task.classes)
            nodes[place] = Node(counts=tuple(float(number == votes.argmax()) for number in range(task.classes)))
            continue
        chosen = max(remaining, key=lambda one: counts(inside, one, level_loss / len(remaining)).max(axis=1).sum())
        children = tuple(range(len(nodes), len(nodes) + task.sizes[chosen]))
        nodes[place] = Node(split=Values(task.splits[chosen].column), children=children)
        for value in range(task.sizes[chosen]):
            below = [rows & (one.places[chosen] == value) for one, rows in zip(holdings, inside, strict=True)]
            waiting.append((len(nodes), below, tuple(one for one in remaining if one != chosen)))
            nodes.append(None)
    return Tree(task.schema, target, [node for node in nodes if node is not None])
