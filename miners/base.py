# SPDX-License-Identifier: Apache-2.0
"""What all classifiers that grow a tree share: checks of what callers pass, and everything that follows ``fit``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from miners.tree import Tree, as_array
from miners.tree_json import read_json
from miners.tree_route import encode, encode_values
from pinq.epsilon import NANO, exact, show, to_nano
from pinq.errors import BudgetExceeded, QueryError
from pinq.schema import Schema, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pinq.queryable import PrivateQueryable

__all__ = ["TreeClassifier", "plain", "public_schema", "read_stored", "require_budget", "whole_number"]

VERSION = 1


class TreeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose fitted state is a ``Tree``.

    Attributes:
        tree_: The fitted ``Tree``.
        classes_: The declared values of the target, shape (classes,); sorted, as scikit-learn takes for granted. ``tree_.classes`` has them as declared.
        schema_: The public schema under which the tree was grown.
        cost_: What ``fit`` really spent, exact.
    """

    tree_: Tree
    classes_: np.ndarray
    schema_: Schema
    cost_: Fraction

    @property
    def unspent_(self) -> Fraction:
        """What of ``epsilon`` the fit did not spend: a "paper" tree whose leaves all came early, or questions that had been paid for before."""
        check_is_fitted(self, "tree_")
        return exact(to_nano(self.epsilon)) - self.cost_

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class for each row of a pandas or Arrow table, shape (rows,)."""
        check_is_fitted(self, "tree_")
        return self.tree_.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities for each row, shape (rows, classes), columns in the order of ``classes_``."""
        check_is_fitted(self, "tree_")
        shares: np.ndarray = self.tree_.predict_proba(X)[:, _sorted(self.tree_.classes)]
        return shares

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted.

        Args:
            X: A pandas or Arrow table.
            y: The true classes; by default the target's column of ``X``. A missing or undeclared class counts as not predicted.
            sample_weight: A weight for each row.
        """
        check_is_fitted(self, "tree_")
        tree = self.tree_
        truth = encode(tree.schema, tree.target, X) if y is None else encode_values(tree.schema, tree.target, y)
        predicted = tree.probabilities.argmax(axis=1)[tree.apply(X)]
        if len(truth) != len(predicted):
            raise QueryError(f"`y` has {len(truth):,} values for {len(predicted):,} rows.")
        if not len(truth):
            raise QueryError("there is no row to score.")
        return float(np.average(truth == predicted, weights=sample_weight))

    def export_text(self, *, max_depth: int | None = None) -> str:
        """The tree as indented text."""
        check_is_fitted(self, "tree_")
        return self.tree_.export_text(max_depth=max_depth)

    def export_graphviz(self, *, max_depth: int | None = None) -> str:
        """The tree in Graphviz's DOT language; see ``Tree.export_graphviz``."""
        check_is_fitted(self, "tree_")
        return self.tree_.export_graphviz(max_depth=max_depth)

    def plot(self, ax: Axes | None = None, *, max_depth: int | None = None) -> Axes:
        """Draws the tree with matplotlib; see ``Tree.plot``."""
        check_is_fitted(self, "tree_")
        return self.tree_.plot(ax, max_depth=max_depth)

    def to_json(self) -> str:
        """The fitted miner as text: its parameters, what it cost, its tree."""
        check_is_fitted(self, "tree_")
        params = {name: plain(value) for name, value in self.get_params(deep=False).items()}
        return json.dumps(
            {"format": f"pinq-{type(self).__name__}", "version": VERSION, "params": params, "cost": show(int(self.cost_ * NANO)), "tree": self.tree_.to_dict()},
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads what ``to_json`` wrote. ``QueryError`` where it is something else."""
        found, params, cost = read_stored(cls, text, VERSION)
        miner: Self = cls(**params)
        return miner._fitted(Tree.from_dict(found.get("tree")), cost)

    def _fitted(self, tree: Tree, cost: Fraction) -> Self:
        self.tree_, self.cost_, self.schema_ = tree, cost, tree.schema
        self.classes_ = as_array(tree.classes)[_sorted(tree.classes)]
        return self


def public_schema(handle: Any) -> Schema:
    """The schema of a handle; ``QueryError`` where something else, a table for instance, was passed."""
    schema = getattr(handle, "schema", None)
    if not isinstance(schema, Schema) or not callable(getattr(handle, "parts", None)):
        raise QueryError(
            f"`fit` learns from a private handle, not from {type(handle).__name__}; open one with pinq.open, "
            "or pinq.simulate to try for free; miners.PublicRows lets scikit-learn cross-validate on rows that anybody may see. Nothing was spent."
        )
    return schema


def require_budget(handle: PrivateQueryable, needed: Fraction, *, name: str) -> None:
    """``BudgetExceeded`` before the first question, so that no budget goes into half a tree."""
    # Every part of a tree's last level costs what its root costs in one question of the whole epsilon, shared partitions included.
    remaining = handle.preview("noisy_count", epsilon=needed).remaining + needed if needed else Fraction(0)
    if needed > remaining:
        raise BudgetExceeded(
            f"{name} needs an epsilon of {show(int(needed * NANO))}; {show(int(remaining * NANO))} remains. Ask for less. Nothing was spent.",
            asked=needed,
            remaining=Fraction(remaining),
            scope="analyst",
        )


def read_stored(kind: Any, text: str | bytes, version: int) -> tuple[dict[str, Any], dict[str, Any], Fraction]:
    """What every stored miner has: the whole object, its parameters, what it cost. ``QueryError`` where the text is something else."""
    found, name, known = read_json(text), kind.__name__, kind._get_param_names()
    if not isinstance(found, dict) or found.get("format") != f"pinq-{name}" or found.get("version") != version:
        raise QueryError(f"this is not a stored {name}: its `format` must be 'pinq-{name}' and its `version` {version}.")
    params = found.get("params")
    if not isinstance(params, dict) or not set(params) <= set(known):
        raise QueryError(f"`params` of a stored {name} must be an object with no other keys than {', '.join(known)}.")
    cost: Any = found.get("cost")
    # A fit whose questions were all paid for before costs nothing.
    return found, params, Fraction(0) if cost == "0" else exact(to_nano(cost, name="cost"))


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """A parameter that must be a whole number in a range, else ``QueryError``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise QueryError(f"`{name}` is {value!r}; it must be a whole number from {low} to {high}. Nothing was spent.")
    return int(value)


def _sorted(classes: Sequence[Value]) -> np.ndarray:
    """The places of the classes in sorted order; as declared where they do not compare."""
    try:
        return np.argsort(as_array(classes), kind="stable")
    except TypeError:
        return np.arange(len(classes))


def plain(value: Any) -> Any:
    """A parameter as JSON has it; an exact loss becomes decimal text, which means the same."""
    if isinstance(value, (Fraction, Decimal)):
        return show(to_nano(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    return value
