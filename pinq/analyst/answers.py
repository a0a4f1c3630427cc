# SPDX-License-Identifier: Apache-2.0
"""Answers that say what they are: numbers and arrays that also carry their ``epsilon``, ``scale`` and ``interval(0.95)``.

What is computed from them (a sum of two, a slice) is a plain number or array: its noise is no
longer that of one release.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pinq.errors import QueryError
from pinq.public.accuracy import laplace_interval
from pinq.public.queries import Answer

__all__ = ["Facts", "NoisyArray", "NoisyFloat", "NoisyInt", "noisy"]


@dataclass(frozen=True)
class Facts:
    """What is known of an answer's noise; public.

    Attributes:
        epsilon: What it was charged.
        scale: Scale of the discrete Laplace noise, in units of the answer; for an average in units
            times rows.
        grid: Distance of neighbouring possible answers, likewise.
        rows: For an average: the noisy number of rows of each part.
        bounds: For an average: where it must lie.
    """

    epsilon: Fraction
    scale: float | None
    grid: float | None
    rows: np.ndarray | None = None
    bounds: tuple[float, float] = (-np.inf, np.inf)

    def scales(self) -> Any:
        """The scale, or one for each average; infinite where there seem to be no rows."""
        if self.rows is None or self.scale is None:
            return self.scale
        found = np.full(self.rows.shape, np.inf)
        np.divide(self.scale, self.rows, out=found, where=self.rows > 0)
        return found

    def interval(self, value: Any, level: float) -> tuple[Any, Any]:
        """Lower and upper ends that hold the exact answer with probability at least ``level``.

        For an average U/(U+L) both noisy bins are within k of their exact sums with that
        probability, if each is with (1 + level) / 2; then the exact share lies within k / (U+L) of
        the noisy one, whatever the two are.
        """
        if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
            raise QueryError(
                f"is {level!r}", parameter="level", allowed="between 0 and 1, both excluded, for example 0.95"
            )
        if self.scale is None or self.grid is None:
            raise QueryError(
                "this answer was stored by a version of pinq that did not keep its scale, so it has no interval."
            )
        if self.rows is None:
            half: Any = laplace_interval(self.scale / self.grid, level) * self.grid
        else:
            half = np.full(self.rows.shape, np.inf)
            np.divide(
                laplace_interval(self.scale / self.grid, (1 + level) / 2) * self.grid,
                self.rows,
                out=half,
                where=self.rows > 0,
            )
        return np.maximum(value - half, self.bounds[0]), np.minimum(value + half, self.bounds[1])


class _Noisy:
    facts: Facts

    @property
    def epsilon(self) -> Fraction:
        """What the whole answer was charged, exact."""
        return self.facts.epsilon

    @property
    def scale(self) -> Any:
        """Scale of the noise in the answer's units; for averages one each, and only about right."""
        return _single(self.facts.scales())

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Lower and upper end between which the exact answer lies with probability ``level`` or a little more; free.

        Of counts they are whole numbers, as counts are; of an array an array each.
        """
        value: Any = self
        plain = +value  # the sign makes it plain
        low, high = (np.asarray(end) for end in self.facts.interval(plain, level))
        if np.asarray(plain).dtype.kind == "i":
            low, high = (np.rint(end).astype(np.int64) for end in (low, high))
        return _single(low), _single(high)


class NoisyInt(_Noisy, int):
    """A noisy count: an int with ``epsilon``, ``scale`` and ``interval()``."""


class NoisyFloat(_Noisy, float):
    """A noisy sum or average: a float with ``epsilon``, ``scale`` and ``interval()``."""


class NoisyArray(_Noisy, np.ndarray):
    """Noisy numbers: an array with ``epsilon``, ``scale`` and ``interval()``; whatever is computed from it is a plain array."""

    def __getitem__(self, item: Any) -> Any:
        return self.view(np.ndarray)[item]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"] = tuple(_plain(one) for one in kwargs["out"])
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


def noisy(
    answer: Answer, shape: tuple[int, ...], kind: type[np.generic], bounds: tuple[float, float] | None = None
) -> Any:
    """An answer's numbers in their parts' shape: a number where that is (), else an array.

    Args:
        answer: Counts, sums or averages.
        shape: The parts' shape.
        kind: int64 or float64.
        bounds: Of the column, for averages.
    """
    values = np.array(answer.values, dtype=kind).reshape(shape)
    rows = None if answer.rows is None else np.array(answer.rows, dtype=np.float64).reshape(shape)
    facts = Facts(Fraction(answer.epsilon), answer.scale, answer.grid, rows, bounds or (-np.inf, np.inf))
    found: Any = (
        (NoisyInt if kind is np.int64 else NoisyFloat)(values.item()) if shape == () else values.view(NoisyArray)
    )
    found.facts = facts
    return found


def _single(value: Any) -> Any:
    """A number where there is but one."""
    return value.item() if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0 else value


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, NoisyArray) else value
