# SPDX-License-Identifier: Apache-2.0
"""Noisy numbers and arrays that carry their ``epsilon``, ``scale`` and ``interval(0.95)``.

The result of a computation with answers (a sum of two, a slice) is a plain number or array, because its noise is not
that of one release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np

from pinq.errors import QueryError
from pinq.language.parts import PartSet
from pinq.language.queries import Answer
from pinq.public.checks import Shown, is_number
from pinq.public.columns import CutPoint
from pinq.public.epsilon import Epsilon, laplace_interval
from pinq.public.schema import Numeric

if TYPE_CHECKING:
    import pandas as pd


SHOWN_LEVEL = 0.95  # of the intervals in a notebook

End = TypeVar("End", int, float, date, datetime)


@dataclass(frozen=True)
class Dates:
    """Numbers that are shown as dates.

    Attributes:
        column: The column, which formats them.
        numbers: The unrounded numbers, in the column's unit since 1970.
    """

    column: Numeric
    numbers: np.ndarray


@dataclass(frozen=True)
class NoiseInfo:
    """The public facts about an answer's noise.

    Attributes:
        scale: Scale of the discrete Laplace noise, in units of the answer; for an average in units
            times rows.
        grid: Distance of neighbouring possible answers, likewise.
        rows: For an average: the noisy number of rows of each part.
        bounds: For an average: the interval in which it must lie.
        parts: The parts of an array's numbers; None of a single number.
        dates: For an average of dates: the column.
    """

    epsilon: Fraction
    scale: float | None
    grid: float | None
    rows: np.ndarray | None = None
    bounds: tuple[float, float] = (-np.inf, np.inf)
    parts: PartSet | None = None
    dates: Dates | None = None

    def scales(self) -> np.ndarray | None:
        """The scale, or one for each average; infinite if its noisy rows are not above 0."""
        return None if self.scale is None else self._widths(self.scale)

    def interval(self, value: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Ends that contain the exact answer with probability at least ``level``.

        An average is a share s of two noisy bins, U/(U+L), and off by ((1 - s) noise of U - s noise
        of L) / (U+L). A mean of symmetric, log-concave noises is within k at least as often as one
        of them (Proschan 1965, "Peakedness of distributions of convex combinations").
        """
        if not is_number(level, 0, 1) or level in (0, 1):
            raise QueryError(
                f"is {level!r}", parameter="level", allowed="between 0 and 1, both excluded, for example 0.95"
            )
        if self.scale is None or self.grid is None:
            raise QueryError(
                "this answer was stored by a version of pinq that did not keep its scale, so it has no interval."
            )
        half = self._widths(laplace_interval(self.scale / self.grid, level) * self.grid)
        middle = value if self.dates is None else self.dates.numbers
        low, high = np.maximum(middle - half, self.bounds[0]), np.minimum(middle + half, self.bounds[1])
        if self.dates is not None:
            return self.dates.column.shown(np.floor(low)), self.dates.column.shown(np.ceil(high))
        if value.dtype.kind == "i":  # ends of counts are whole numbers, as counts are
            return np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)
        return low, high

    def frame(self, values: np.ndarray, level: float) -> pd.DataFrame:
        from pinq.analyst.frames import NUMBERS, keys_of, with_axes

        # Values of shape (3, 2) for 3 parts: two lines for each part.
        part_shape = values.shape if self.parts is None else values.shape[len(self.parts.shape) :]
        keys = keys_of(self.parts if self.parts is not None and self.parts.shape else None)
        numbers = {"value": values, "scale": np.full(values.shape, np.nan)}
        scales = self.scales()
        if scales is not None:
            numbers["low"], numbers["high"] = self.interval(values, level)
            numbers["scale"] = np.broadcast_to(scales, values.shape)
        columns = {name: array.reshape(-1) for name, array in numbers.items()}
        table = (
            with_axes(keys, part_shape).assign(low=np.nan, high=np.nan).assign(**columns, epsilon=float(self.epsilon))
        )
        return table[[name for name in table if name not in NUMBERS] + list(NUMBERS)]

    def _widths(self, width: float) -> np.ndarray:
        if self.rows is None:
            return np.array(width)
        widths = np.full(self.rows.shape, np.inf)
        np.divide(width, self.rows, out=widths, where=self.rows > 0)
        return widths


class _Noisy(Shown):
    facts: NoiseInfo

    @property
    def numbers(self) -> np.ndarray:
        """The answers as plain numbers; dates in their column's unit since 1970, not rounded."""
        return np.asarray(self) if self.facts.dates is None else self.facts.dates.numbers

    @property
    def epsilon(self) -> Fraction:
        return self.facts.epsilon

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """Returns the answer as a table with the facts about its noise; free.

        Args:
            level: The probability with which ``low`` and ``high`` hold the exact number, for each row
                alone.

        Returns:
            A row for each part: a column for each of its specs, then ``value``, ``low``, ``high``, ``scale`` of the
            noise, and ``epsilon``, the charge of all parts together. A loss's sums also have ``entry``, and ``cell``
            with ``by``.
        """
        return self.facts.frame(np.asarray(self), level)

    def _repr_html_(self) -> str:
        from pinq.analyst.frames import answer_html

        if not hasattr(self, "facts"):
            return super()._repr_html_()
        loss = Epsilon.of(self.epsilon)
        if self.facts.scale is None:
            return answer_html(f"epsilon {loss}", self.to_frame())
        title = f"epsilon {loss}; low and high hold the exact number with {SHOWN_LEVEL:.0%}"
        return answer_html(title, self.to_frame(SHOWN_LEVEL).drop(columns="epsilon"))


class _NoisyNumber(_Noisy, Generic[End]):
    @property
    def scale(self) -> float | None:
        """Scale of the noise in the answer's units; for an average an approximation."""
        scales = self.facts.scales()
        return None if scales is None else float(scales)

    def interval(self, level: float = 0.95) -> tuple[End, End]:
        """The ends of an interval that contains the exact answer with probability at least ``level``; free."""
        low, high = self.facts.interval(np.asarray(self), level)
        return low.item(), high.item()


class NoisyInt(_NoisyNumber[int], int):
    """A noisy count: an int with ``epsilon``, ``scale`` and ``interval()``, whose ends are whole numbers too."""


class NoisyFloat(_NoisyNumber[float], float):
    """A noisy sum or average: a float with ``epsilon``, ``scale`` and ``interval()``.

    It prints with its interval of 95 %, to two digits of the noise: ``40.43 (40.1 to 40.76)``.
    """

    def __repr__(self) -> str:
        low, high = self.interval(SHOWN_LEVEL) if self.facts.scale is not None else (-np.inf, np.inf)
        if not 0 < high - low < np.inf:
            return float.__repr__(self)
        digits = max(0, 2 - math.ceil(math.log10((high - low) / 2)))
        value, low_text, high_text = (f"{end:,.{digits}f}" for end in (float(self), low, high))
        return f"{value} ({low_text} to {high_text})"


class NoisyDate(_NoisyNumber[date], date):
    """A noisy average of dates, the nearest date; ``scale`` is in days, and ends of ``interval()`` are dates."""

    def __new__(cls, *fields: Any) -> Any:
        return date(*fields)  # of computations such as `answer + timedelta(days=1)`

    def __reduce__(self) -> Any:
        return date, (self.year, self.month, self.day)


class NoisyDateTime(_NoisyNumber[datetime], datetime):
    """A noisy average of times, the nearest minute; ``scale`` is in minutes, and ends of ``interval()`` are times."""

    def __new__(cls, *fields: Any, **more: Any) -> Any:
        return datetime(*fields, **more)

    def __reduce__(self) -> Any:
        return datetime, (self.year, self.month, self.day, self.hour, self.minute)


class NoisyArray(_Noisy, np.ndarray):
    """An array of noisy numbers, with ``epsilon``, ``scale`` and ``interval()``.

    Computed results, ``T``, ``reshape`` and ``copy`` are arrays without these attributes.
    """

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}"
            if "facts" in vars(self)
            else "an array that was made of an answer has no `epsilon`, `scale`, `interval()` or `to_frame()`: take "
            "these from the answer itself."
        )

    @property
    def scale(self) -> float | np.ndarray | None:
        """Scale of the noise in the answers' units; for averages an approximation for each."""
        scales = self.facts.scales()
        return float(scales) if scales is not None and scales.ndim == 0 else scales

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The ends of intervals that contain each exact number with probability at least ``level``; free."""
        return self.facts.interval(self.view(np.ndarray), level)

    def __getitem__(self, item: Any) -> Any:
        return self.view(np.ndarray)[item]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


def noisy(
    answer: Answer,
    shape: tuple[int, ...],
    kind: type[np.int64] | type[np.float64],
    averaged: Numeric | None = None,
    parts: PartSet | None = None,
    within: tuple[CutPoint, CutPoint] | None = None,
) -> NoisyInt | NoisyFloat | NoisyDate | NoisyDateTime | NoisyArray:
    """Reads an answer's numbers in their parts' shape: a number for (), else an array."""
    values = np.array(answer.values, dtype=kind).reshape(shape)
    rows = None if answer.rows is None else np.array(answer.rows, dtype=np.float64).reshape(shape)
    facts = NoiseInfo(Fraction(answer.epsilon), answer.scale, answer.grid, rows, parts=parts if shape else None)
    shown = values
    if averaged is not None:
        shown = averaged.shown(values)
        first, last = averaged.cells_within(within, "")
        bounds = (averaged.number(first), averaged.number(last))
        # Averages stay within the middles of the first cell and the last.
        facts = replace(facts, bounds=bounds, dates=Dates(averaged, values) if shown.dtype.kind == "M" else None)
    numbers = shown.view(NoisyArray) if shape else _number(shown)
    numbers.facts = facts
    return numbers


def _number(shown: np.ndarray) -> NoisyInt | NoisyFloat | NoisyDate | NoisyDateTime:
    match shown.item():
        case int() as count:
            return NoisyInt(count)
        case datetime() as moment:
            return datetime.__new__(NoisyDateTime, *moment.timetuple()[:5])
        case date() as day:
            return date.__new__(NoisyDate, *day.timetuple()[:3])
        case number:
            return NoisyFloat(number)


def _plain(value: object) -> object:
    return value.view(np.ndarray) if isinstance(value, NoisyArray) else value
