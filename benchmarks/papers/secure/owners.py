# SPDX-License-Identifier: Apache-2.0
"""Methods that learn a tree from the tables of several owners, each a function of an epsilon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from benchmarks.harness.datasets import load
from miners import FederatedTopDown, Federation
from miners.fitted.tree import Tree
from pinq.provider.local import simulate
from pinq.public.schema import Categorical, Schema
from pinq_secure import SecureID3
from pinq_secure.id3.public_tree import LossSplit
from pinq_secure.id3.task import Holding, Task, hold
from tests.support.oracles.id3 import Branch, plain_id3, to_tree

__all__ = ["OWNERS", "Fit", "coarse", "exact", "noise_alone", "noise_inside", "topdown"]

OWNERS = 4
STOP_SHARE = Fraction(1, 20)
ALPHA = 8  # the constant of the Gini measure that keeps it whole
UNLIMITED_EPSILON = 1000
Fit: TypeAlias = Callable[[Sequence[pd.DataFrame], str, Schema, str], Tree]


@cache
def coarse(name: str) -> tuple[Schema, str, pd.DataFrame]:
    """Returns a data set's categorical columns only, so that every method splits in the same manner."""
    schema, target, rows = load(name)
    columns = {
        column: Categorical(values=declared.values, nullable=declared.nullable and column != target)
        for column, declared in schema.columns.items()
        if isinstance(declared, Categorical) and column != "fold"
    }
    return Schema(columns=columns, max_rows=schema.max_rows), target, rows[list(columns)].dropna(subset=[target])


def noise_inside(depth: int, colluding: int) -> Fit:
    """Returns the method whose noise is drawn by all owners together."""
    return partial(_noise_inside, depth, colluding)


def _noise_inside(
    depth: int, colluding: int, tables: Sequence[pd.DataFrame], target: str, schema: Schema, epsilon: str
) -> Tree:
    return SecureID3(epsilon=epsilon, depth=depth, colluding=colluding).fit(tables, target, schema=schema).tree_


def topdown(strategy: Any) -> Fit:
    """Returns DP-TopDown at its defaults, whose owners answer a coordinator with noise of their own."""
    return partial(_topdown, strategy)


def _topdown(strategy: Any, tables: Sequence[pd.DataFrame], target: str, schema: Schema, epsilon: str) -> Tree:
    with Federation([simulate(schema, data=table, epsilon=UNLIMITED_EPSILON) for table in tables]) as federation:
        return FederatedTopDown(epsilon=epsilon, strategy=strategy).fit(federation, target).tree_


def exact(depth: int) -> Fit:
    """Returns plain ID3, without privacy."""
    return partial(_exact, depth)


def _exact(depth: int, tables: Sequence[pd.DataFrame], target: str, schema: Schema, epsilon: str) -> Tree:
    task = Task.of(schema, target, [len(table) for table in tables])
    holding = Holding.joined([hold(task, table) for table in tables])
    return to_tree(task, plain_id3(task, holding, STOP_SHARE, ALPHA))


def noise_alone(depth: int) -> Fit:
    """Returns the same rules where each owner sends its own counts with noise of its own.

    Every sum has as many noises as owners, and every candidate's histogram needs a share of the loss.
    """
    return partial(_noise_alone, depth)


def _noise_alone(depth: int, tables: Sequence[pd.DataFrame], target: str, schema: Schema, epsilon: str) -> Tree:
    task = Task.of(schema, target, [len(table) for table in tables])
    holdings = [hold(task, table) for table in tables]
    growth = _Growth(task, holdings, LossSplit.spread(Fraction(epsilon), depth), np.random.default_rng())
    return to_tree(task, growth.branches())


@dataclass(frozen=True)
class _OpenNode:
    """A node that is to be split or labelled: its index, its rows at each owner, its attributes."""

    index: int
    inside: Sequence[np.ndarray]
    attributes: tuple[int, ...]


@dataclass(frozen=True)
class _Growth:
    """ID3 from sums of counts to which each owner added noise."""

    task: Task
    holdings: Sequence[Holding]
    budget: LossSplit
    random: np.random.Generator

    def branches(self) -> list[Branch]:
        """Grows the tree, nodes in the order in which they were opened."""
        task, tree = self.task, [Branch()]
        everything = [np.ones(holding.codes.shape[1], dtype=bool) for holding in self.holdings]
        waiting = [_OpenNode(0, everything, tuple(range(len(task.sizes))))]
        root_size = 0.0
        while waiting:
            node = waiting.pop(0)
            size = 0.0
            deep = len(task.sizes) - len(node.attributes) == self.budget.depth
            if not deep:
                size = float(self._noisy([np.array(rows.sum()) for rows in node.inside], self.budget.size))
                root_size = root_size or size
            if deep or size <= float(STOP_SHARE) * root_size:
                tree[node.index] = Branch(label=self._label(node))
                continue
            chosen = max(node.attributes, key=lambda attribute: self._score(node, attribute))
            tree[node.index] = Branch(chosen, tuple(range(len(tree), len(tree) + task.sizes[chosen])))
            for child in self._children(node, chosen, len(tree)):
                waiting.append(child)
                tree.append(Branch())
        return tree

    def _children(self, node: _OpenNode, chosen: int, first: int) -> list[_OpenNode]:
        attributes = tuple(attribute for attribute in node.attributes if attribute != chosen)
        children = []
        for value in range(self.task.sizes[chosen]):
            pairs = zip(self.holdings, node.inside, strict=True)
            inside = [rows & (holding.codes[chosen] == value) for holding, rows in pairs]
            children.append(_OpenNode(first + value, inside, attributes))
        return children

    def _label(self, node: _OpenNode) -> int:
        """Returns the class with the most noisy votes."""
        pairs = zip(self.holdings, node.inside, strict=True)
        votes = [np.bincount(holding.codes[-1, rows], minlength=self.task.classes) for holding, rows in pairs]
        return int(self._noisy(votes, self.budget.vote).argmax())

    def _score(self, node: _OpenNode, attribute: int) -> float:
        """Returns how many rows a split would put right, from a noisy histogram."""
        shape = (self.task.sizes[attribute], self.task.classes)
        histograms = []
        for holding, rows in zip(self.holdings, node.inside, strict=True):
            codes = np.ravel_multi_index((holding.codes[attribute, rows], holding.codes[-1, rows]), shape)
            histograms.append(np.bincount(codes, minlength=shape[0] * shape[1]).reshape(shape))
        share = self.budget.choice / len(node.attributes)
        return float(self._noisy(histograms, share).max(axis=1).sum())

    def _noisy(self, counts: Sequence[np.ndarray], loss: Fraction) -> np.ndarray:
        """Returns the sum of all owners' counts, each with geometric noise of its own."""
        shape, success = (len(counts), *np.shape(counts[0])), 1 - np.exp(-float(loss))
        noise = self.random.geometric(success, shape) - self.random.geometric(success, shape)
        return np.asarray((np.array(counts) + noise).sum(axis=0))
