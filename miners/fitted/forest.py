# SPDX-License-Identifier: Apache-2.0
"""A fitted forest: trees for one target under one schema, whose answers are averaged. Public data like each of its trees."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from miners.fitted.json_form import read_json
from miners.fitted.route import encode
from miners.fitted.tree import Tree, as_array, length, said
from pinq.errors import QueryError
from pinq.public.schema import Schema, Value

__all__ = ["Forest"]

FORMAT = "pinq-forest"
VERSION = 1
MOST_NAMED = 5


class Forest:
    """Trees that predict together. Immutable; equal when all of its trees are equal.

    A row goes down each tree. Class probabilities and means are averaged, every tree counting
    alike: a leaf of few rows leans on its parent already.

    Args:
        trees: At least one; all with the same schema and target.

    Attributes:
        classes: The declared values of the target; none of a numeric target.

    Raises:
        QueryError: No tree, or trees that do not go together.
    """

    kept_as = "forest"  # under this name a miner keeps it

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.trees = tuple(trees)
        if not self.trees:
            raise QueryError("a forest needs at least one tree.")
        self.schema: Schema = self.trees[0].schema
        self.target: str = self.trees[0].target
        self.classes: tuple[Value, ...] = self.trees[0].classes
        if any((tree.target, tree.schema) != (self.target, self.schema) for tree in self.trees):
            raise QueryError("the trees of a forest must have one schema and one target.")

    def __eq__(self, other: object) -> bool:
        return self.trees == other.trees if isinstance(other, Forest) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.trees)

    def __len__(self) -> int:
        return len(self.trees)

    @property
    def n_leaves(self) -> int:
        """Leaves of all trees."""
        return sum(tree.n_leaves for tree in self.trees)

    @property
    def depth(self) -> int:
        """Splits above the deepest leaf."""
        return max(tree.depth for tree in self.trees)

    @cached_property
    def usage(self) -> dict[str, float]:
        """For each column by which nodes are split, how large a share of the splits it makes; the most used first."""
        used = Counter(node.split.column for tree in self.trees for node in tree.nodes if node.split is not None)
        return {column: count / used.total() for column, count in used.most_common()}

    def tree(self, number: int) -> Tree:
        """One of its trees. ``QueryError`` where there is none of that number."""
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 0 <= number < len(self.trees):
            raise QueryError(f"`tree` is {number!r}; it must be a whole number from 0 to {len(self.trees) - 1}.")
        return self.trees[number]

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Class probabilities for each row of a pandas or Arrow table, shape (rows, classes), columns in the order of ``classes``."""
        return self._average(frame, [tree.probabilities for tree in self.trees])

    def predict(self, frame: Any) -> np.ndarray:
        """The likeliest class for each row, the first declared one in a tie; or the mean; shape (rows,)."""
        if not self.classes:
            return self._average(frame, [tree.values for tree in self.trees])
        result: np.ndarray = as_array(self.classes)[self.predict_proba(frame).argmax(axis=1)]
        return result

    def _average(self, frame: Any, answers: Sequence[np.ndarray]) -> np.ndarray:
        rows = length(frame)
        codes = {
            name: encode(self.schema, name, frame)
            for name in dict.fromkeys(name for tree in self.trees for name in tree.columns)
        }
        result = np.zeros((rows, *answers[0].shape[1:]))
        for tree, answer in zip(self.trees, answers, strict=True):
            result += answer[tree.route(codes, rows)]
        return result / len(self.trees)

    def export_text(self, *, max_depth: int | None = None) -> str:
        """All trees as indented text."""
        return "\n\n".join([repr(self), *(tree.export_text(max_depth=max_depth) for tree in self.trees)])

    def to_json(self) -> str:
        """The forest as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """The forest as plain lists, dicts, texts and numbers; what its trees have in common stands there once."""
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
    def from_dict(cls, found: Any) -> Forest:
        """Reads what ``to_dict`` made. ``QueryError`` unless it is a whole and valid forest."""
        if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
            raise QueryError(
                f"this is not a stored forest: its `format` must be {FORMAT!r} and its `version` {VERSION}."
            )
        if not isinstance(found.get("trees"), list):
            raise QueryError("the stored forest has no list of `trees`.")
        common = Tree.from_dict(
            {**found, "format": "pinq-tree", "nodes": found["trees"][0] if found["trees"] else None}
        )
        return cls([common, *(common.with_nodes(nodes) for nodes in found["trees"][1:])])

    def __repr__(self) -> str:
        many = f"{len(self.trees):,} {'tree' if len(self.trees) == 1 else 'trees'}, {self.n_leaves:,} {'leaf' if self.n_leaves == 1 else 'leaves'}"
        most = [f"{column} {share:.0%}" for column, share in list(self.usage.items())[:MOST_NAMED]]
        more = ", ..." if len(self.usage) > MOST_NAMED else ""
        return f"Forest for {said(self.schema, self.target)}: depth {self.depth}, {many}" + (
            f"; splits by {', '.join(most)}{more}" if most else ""
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p><details><summary>its first tree</summary>{self.trees[0]._repr_html_()}</details>"
