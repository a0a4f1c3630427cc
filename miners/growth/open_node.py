# SPDX-License-Identifier: Apache-2.0
"""A node while its tree grows, with all that was answered about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from miners.fitted.node import Split
from pinq.public.epsilon import Epsilon
from pinq.public.parts import Part
from pinq.public.specs import Partition

__all__ = ["OpenNode"]


@dataclass(eq=False)
class OpenNode:
    """A node while its tree grows.

    Attributes:
        part: Where it is, by the splits above it.
        used: Columns that its path does not split again.
        size: Noisy number of rows, None where it was not asked.
        size_scale: Scale of the noise in ``size``.
        cells: Noisy rows of each class, the missing class last where there is one, or of the two
            ends of a numeric target; None where they were not asked.
        variance: Of the noise in each of ``cells``.
        left: What its path has left, where leaves are described only once all trees have grown.
        path_end: How many splits are kept on the longest path through it, once that was asked.
    """

    part: Part = field(default_factory=Part)
    used: frozenset[str] = frozenset()
    split: Split | None = None
    children: tuple[int, ...] = ()
    size: float | None = None
    size_scale: float | None = None
    cells: np.ndarray | None = None
    variance: float = float("inf")
    cells_scale: float | None = None
    left: Epsilon | None = None
    path_end: int = 0

    @property
    def rows(self) -> float:
        """The noisy number of rows as far as it is known yet; infinite where nothing was asked."""
        if self.size is not None:
            return self.size
        return float("inf") if self.cells is None else float(self.cells.sum())

    def observe(self, cells: np.ndarray, variance: float, scale: float | None = None) -> None:
        """Averages one more set of noisy class counts in, the surer one weighing more."""
        if self.cells is None:
            self.cells, self.variance, self.cells_scale = np.asarray(cells, dtype=np.float64), variance, scale
            return
        # 10 of variance 4, then 20 of variance 1: the second weighs 4/5, so 18 of variance 4/5.
        weight = self.variance / (self.variance + variance)
        self.cells = self.cells + weight * (cells - self.cells)
        self.variance, self.cells_scale = self.variance * variance / (self.variance + variance), None

    def branch(self, split: Split, partition: Partition, first: int, used: frozenset[str]) -> list[Self]:
        """Splits the node.

        Args:
            split: By what.
            partition: The same, bound to the schema.
            first: The number of the first child among the nodes of the tree.
            used: Columns that the paths below do not split again.

        Returns:
            The children, in the order of the parts.
        """
        self.split, self.children = split, tuple(range(first, first + partition.size))
        return [self.child(Part(self.part, partition, index), used) for index in range(partition.size)]

    def child(self, part: Part, used: frozenset[str]) -> Self:
        """Returns an open node below, of which nothing is known yet."""
        return type(self)(part, used)
