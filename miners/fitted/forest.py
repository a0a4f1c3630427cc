# SPDX-License-Identifier: Apache-2.0
"""A fitted forest averages the answers of trees for one target under one schema.

It is public data like each of its trees.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from miners.fitted.node import as_array, read_json, target_of
from miners.fitted.route import encode_rows, length
from miners.fitted.tree import Tree, mean_importances, stacked
from pinq.errors import QueryError
from pinq.public.checks import is_whole
from pinq.public.schema import Schema, Value

if TYPE_CHECKING:
    import pandas as pd

    from miners.fitted.route import Frame

__all__ = ["Forest"]

FORMAT = "pinq-forest"
VERSION = 1
MAX_NAMED = 5  # columns in its one-line text


class Forest:
    """A forest holds trees that predict together. Immutable; equal when all its trees are equal.

    A row goes down each tree. Class probabilities and means are averaged, every tree counting
    alike: a leaf of few rows leans on its parent already.

    Args:
        trees: At least one; all with the same schema and target.

    Attributes:
        classes: The declared values of the target; none of a numeric target.

    Raises:
        QueryError: No tree, or trees that do not go together.
    """

    kept_as: ClassVar[str] = "forest"  # the attribute of a miner that holds it, without its underscore

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.trees = tuple(trees)
        if not self.trees:
            raise QueryError("a forest needs at least one tree.")
        self.schema: Schema = self.trees[0].schema
        self.target: str = self.trees[0].target
        self.classes: tuple[Value, ...] = self.trees[0].classes
        common = (self.target, self.trees[0].within, self.schema)
        if any((tree.target, tree.within, tree.schema) != common for tree in self.trees):
            raise QueryError("the trees of a forest must have one schema and one target, within one range.")

    def __eq__(self, other: object) -> bool:
        return self.trees == other.trees if isinstance(other, Forest) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.trees)

    def __len__(self) -> int:
        return len(self.trees)

    @property
    def n_leaves(self) -> int:
        """Returns the number of leaves of all trees."""
        return sum(tree.n_leaves for tree in self.trees)

    @property
    def depth(self) -> int:
        """Returns the number of splits above the deepest leaf of all trees."""
        return max(tree.depth for tree in self.trees)

    @cached_property
    def usage(self) -> dict[str, float]:
        """Returns the share of all splits that each column makes, the most used column first."""
        splits = [node.split for tree in self.trees for node in tree.nodes]
        used = Counter(split.column for split in splits if split is not None)
        return {column: count / used.total() for column, count in used.most_common()}

    @cached_property
    def importances(self) -> dict[str, float]:
        """Returns how much each column's splits tell apart, as shares of 1; trees count alike."""
        return mean_importances(self.trees)

    def to_frame(self) -> pd.DataFrame:
        """Returns a row for each node of each tree; see ``Tree.to_frame``."""
        return stacked(tree.to_frame() for tree in self.trees)

    def rules(self) -> pd.DataFrame:
        """Returns a rule for each leaf of each tree; see ``Tree.rules``."""
        return stacked(tree.rules() for tree in self.trees)

    def tree(self, number: int) -> Tree:
        """Returns one of its trees. ``QueryError`` where there is none of that number."""
        if not is_whole(number, 0, len(self.trees) - 1):
            raise QueryError(
                f"is {number!r}", parameter="tree", allowed=f"a whole number from 0 to {len(self.trees) - 1}"
            )
        return self.trees[number]

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Returns class probabilities, shape (rows, classes), in the order of ``classes``.

        The rows are those of a pandas or Arrow table.
        """
        return self._average(frame, [tree.probabilities for tree in self.trees])

    def predict(self, frame: Frame) -> np.ndarray:
        """Returns the likeliest class or the mean for each row, shape (rows,).

        In a tie it is the class that is declared first.
        """
        if not self.classes:
            return self._average(frame, [tree.values for tree in self.trees])
        result: np.ndarray = as_array(self.classes)[self.predict_proba(frame).argmax(axis=1)]
        return result

    def _average(self, frame: Frame, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the mean over the trees of the answer at each row's node."""
        rows = length(frame)
        codes = encode_rows(self.schema, dict.fromkeys(name for tree in self.trees for name in tree.columns), frame)
        # Two trees that give a row shares of .9 and .6: .75.
        result = np.zeros((rows, *answers[0].shape[1:]))
        for tree, answer in zip(self.trees, answers, strict=True):
            result += answer[tree.route(codes, rows)]
        return result / len(self.trees)

    def export_text(self, *, max_depth: int | None = None) -> str:
        """Returns all trees as indented text."""
        return "\n\n".join([repr(self), *(tree.export_text(max_depth=max_depth) for tree in self.trees)])

    def to_json(self) -> str:
        """Returns the forest as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Returns the forest as plain lists, dicts, texts and numbers.

        What its trees have in common stands there once.
        """
        common = {
            key: value for key, value in self.trees[0].to_dict().items() if key not in ("format", "version", "nodes")
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            **common,
            "trees": [tree.to_dict()["nodes"] for tree in self.trees],
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Forest:
        """Reads what ``to_json`` wrote. ``QueryError`` unless it is a whole and valid forest."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, stored: object) -> Forest:
        """Reads what ``to_dict`` wrote. ``QueryError`` unless it is a whole and valid forest."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT or stored.get("version") != VERSION:
            raise QueryError(
                f"this is not a stored forest: its `format` must be {FORMAT!r} and its `version` {VERSION}."
            )
        trees = stored.get("trees")
        if not isinstance(trees, list):
            raise QueryError("the stored forest has no list of `trees`.")
        first = Tree.from_dict({**stored, "format": "pinq-tree", "nodes": trees[0] if trees else None})
        return cls([first, *(first.with_nodes(nodes) for nodes in trees[1:])])

    def __repr__(self) -> str:
        trees = f"{len(self.trees):,} {'tree' if len(self.trees) == 1 else 'trees'}"
        leaves = f"{self.n_leaves:,} {'leaf' if self.n_leaves == 1 else 'leaves'}"
        target = target_of(self.schema, self.target, self.trees[0].within)
        text = f"Forest for {target}: depth {self.depth}, {trees}, {leaves}"
        if not self.usage:
            return text
        columns = [f"{column} {share:.0%}" for column, share in list(self.usage.items())[:MAX_NAMED]]
        more = ", ..." if len(self.usage) > MAX_NAMED else ""
        return f"{text}; splits by {', '.join(columns)}{more}"

    def _repr_html_(self) -> str:
        """Returns the forest as a notebook shows it."""
        first = f"<details><summary>its first tree</summary>{self.trees[0]._repr_html_()}</details>"
        return f"<p>{escape(repr(self))}</p>{first}"
