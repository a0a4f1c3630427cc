# SPDX-License-Identifier: Apache-2.0
"""What describes a node: the histogram of a categorical target, or the ends of a numeric one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq.public.specs import Values

if TYPE_CHECKING:
    from pinq.analyst.queryable import Parts

__all__ = ["ask_classes", "ask_ends"]


def ask_classes(parts: Parts, target: str, epsilon: Epsilon) -> np.ndarray:
    """Returns the noisy histogram of a categorical target in each part, shape (parts, classes)."""
    counts = parts.partition(Values(target)).noisy_count(epsilon=epsilon)
    return np.asarray(counts).reshape(len(parts), -1)


def ask_ends(parts: Parts, schema: Schema, target: str, epsilon: Epsilon) -> np.ndarray:
    """Returns the noisy weights of the two ends of a numeric target in each part, shape (parts, 2).

    A row at a share s of the way from the target's lower bound to its upper one counts 1 - s and s:
    of two rows at 2 and 8 on a range from 0 to 10 the ends are 0.8 + 0.2 and 0.2 + 0.8.

    This is the two-bin average of the layer, taken apart again: the noise in each end is that of a
    count at the same epsilon, and nothing more is paid for the number of rows. A noisy end below 0
    is not told apart from 0.
    """
    column = schema.numeric(target)
    low, high = column.number(0), column.number(column.cells - 1)
    answer = parts.noisy_avg(target, epsilon=epsilon)
    shares = ((answer.numbers - low) / (high - low)).ravel()
    rows = np.asarray(answer.facts.rows).reshape(-1, 1)
    return np.asarray(rows * np.column_stack([1 - shares, shares]))
