# SPDX-License-Identifier: Apache-2.0
"""Privacy losses as integers of nano-epsilons (1e-9), and the error of an answer at a loss.

Binary floats make three charges of 0.1 more than a grant of 0.3. So a loss is read as the caller's decimal number, held
as an integer count of nano-epsilons, and rounded *up*: a charge is never less than the requested loss, and noise is
calibrated to the charge (``privacy.md`` 1.7a: exact fractions, never floats).
"""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from pinq.errors import QueryError
from pinq.public.checks import brief

NANO = 10**9
MAX_EPSILON = 10**6
# Decimal alone would also read "1_0", " 1 " and the digits of other scripts, which other readers
# take otherwise or not at all.
_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Exact(Fraction):
    """An exact number that formats as ``f"{spent:.2f}"``; Python's fractions do from 3.12 on."""

    def __format__(self, form: str) -> str:
        return format(float(self), form) if form else str(self)

    def __repr__(self) -> str:
        return repr(Fraction(self))


@dataclass(frozen=True, order=True, slots=True)
class Epsilon:
    """A privacy loss, exact: a whole number of nano-epsilons.

    It compares and adds up with other losses only, and never becomes a float on the way to a mechanism. A difference of
    two may be negative.
    """

    nano: int

    @classmethod
    def of(cls, loss: EpsilonLike, *, name: str = "epsilon") -> Epsilon:
        """Reads a loss as a caller wrote it, rounded up.

        Args:
            loss: A number greater than 0, at most ``MAX_EPSILON``; a float is read by its shortest
                decimal form.
            name: The name of the argument in errors.

        Raises:
            QueryError: Not a number, NaN, infinite, less than a nano-epsilon, or too large.
        """
        if isinstance(loss, cls) and 0 < loss.nano <= MAX_EPSILON * NANO:
            return loss
        try:
            nano = _fraction(loss) * NANO
        except (ValueError, TypeError, ArithmeticError, InvalidOperation):
            nano = Fraction(0)
        # A third of 1 is 333,333,334 nano-epsilons.
        up = math.ceil(nano)
        if not 0 < up <= MAX_EPSILON * NANO:
            raise QueryError(
                f"is {brief(loss, 40)}",
                parameter=name,
                allowed=f"a finite number greater than 0 and at most {MAX_EPSILON}",
            )
        if nano < 1:
            raise _too_fine(loss, name)
        return cls(up)

    @classmethod
    def exactly(cls, loss: EpsilonLike, *, name: str = "epsilon") -> Epsilon:
        """Reads a loss that a provider allows; it is never rounded, because rounded up it would be more.

        Raises:
            QueryError: As in ``of``, or finer than a nano-epsilon.
        """
        epsilon = cls.of(loss, name=name)
        if not is_exact(loss):
            raise _too_fine(loss, name)
        return epsilon

    @property
    def figures(self) -> str:
        """Four figures, and at least two of the existing decimals; rounded to the nearest."""
        # .123456 is written .1235, 12.3456 is 12.35, and 1,234.567 is 1234.57.
        step = 10 ** min(7, max(0, len(str(self.nano)) - 4))
        return str(Epsilon(round(Fraction(self.nano, step)) * step))

    @property
    def exact(self) -> Exact:
        return Exact(self.nano, NANO)

    def per_row(self, distance: int) -> Fraction:
        """The largest loss by each single row if neighbours differ by so many rows.

        Privacy:
            Noise for one row at ``epsilon / distance`` hides ``distance`` rows at ``epsilon``
            (group privacy, privacy.md 1.1).
        """
        return Fraction(self.nano, NANO * distance)

    def __add__(self, other: Epsilon) -> Epsilon:
        return Epsilon(self.nano + other.nano) if isinstance(other, Epsilon) else NotImplemented

    def __sub__(self, other: Epsilon) -> Epsilon:
        return Epsilon(self.nano - other.nano) if isinstance(other, Epsilon) else NotImplemented

    def __mul__(self, times: int) -> Epsilon:
        return Epsilon(self.nano * times) if isinstance(times, int) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, shares: int) -> Epsilon:
        """One of so many equal shares, rounded down, so that all shares together are at most the loss."""
        return Epsilon(self.nano // shares) if isinstance(shares, int) else NotImplemented

    def __bool__(self) -> bool:
        return self.nano != 0

    def __float__(self) -> float:
        """The nearest float, for people and reports; never for noise or charges."""
        return float(self.exact)

    def __str__(self) -> str:
        """The shortest decimal, such as ``0.25``."""
        sign = "-" if self.nano < 0 else ""
        whole, rest = divmod(abs(self.nano), NANO)
        return sign + (f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole))


ZERO = Epsilon(0)

EpsilonLike = int | float | str | Decimal | Fraction | Epsilon
"""What a caller may write for a loss. ``0.1`` and ``"0.1"`` both mean one tenth exactly."""


def is_exact(epsilon: EpsilonLike) -> bool:
    """Whether a loss, which ``Epsilon.of`` can read, is a whole number of nano-epsilons."""
    return (_fraction(epsilon) * NANO).denominator == 1


def _too_fine(loss: EpsilonLike, name: str) -> QueryError:
    problem = f"is {str(loss)[:40]}; the smallest step of a loss is {Epsilon(1)}, so write at most nine decimals."
    return QueryError(problem, parameter=name)


def _fraction(value: object) -> Fraction:
    match value:
        case Epsilon():
            return value.exact
        case bool():
            raise TypeError("a truth value is not a loss")
        case int() | Fraction():
            return Fraction(value)
        case str() if not _DECIMAL_TEXT.fullmatch(value):
            raise ValueError("not a decimal number")
        case str() | Decimal():
            number = Decimal(value)
        case numbers.Integral():  # numpy integers
            return Fraction(int(value))
        case numbers.Real():  # floats, numpy floats
            number = Decimal(repr(float(value)))
        case _:
            raise TypeError("not a number")
    # Fraction(Decimal("1e999999999")) would build the number, so its size is checked first.
    if not number.is_finite() or number.adjusted() > 12 or number.adjusted() < -330:
        raise ValueError("too large, or too close to 0")
    return Fraction(number)


# How exact a noisy answer is: functions of the request alone, so showing them is free. Discrete Laplace noise
# of a scale has P(z) = (1 - p)/(1 + p) p^|z| on the integers, p = exp(-1/scale) (privacy.md, notation and 2.1).


def standard_deviation(scale: float) -> float:
    """The standard deviation of the noise, in rows: sqrt(2p) / (1 - p)."""
    if scale <= 0:
        return 0.0
    return math.exp(-0.5 / scale) * math.sqrt(2) / -math.expm1(-1 / scale)


def laplace_interval(scale: float, level: float = 0.95) -> int:
    """The smallest whole k such that the noise is in [-k, k] with probability at least ``level``.

    From P(|noise| > k) = 2 p^(k+1) / (1 + p).

    Args:
        scale: Scale of the discrete Laplace law, in rows.
        level: Between 0 and 1, both excluded.
    """
    if scale <= 0:
        return 0
    p = math.exp(-1 / scale)
    tail = (1 - level) * (1 + p) / 2
    # A hair is taken off before rounding up, or 2.0000000001 would become 3.
    return max(0, math.ceil(-scale * math.log(tail) - 1 - 1e-9))


def figures(number: float, digits: int = 3) -> str:
    """Writes a number with few figures and no powers of ten: 13,700 or 0.0124."""
    return f"{float(f'{number:.{digits}g}'):,.12g}"


def max_belief(epsilon: float, before: float) -> float:
    """The largest belief after the answers, from a belief before them; both between 0 and 1.

    Odds grow by at most e^epsilon: from .5 at epsilon 1 to .731.
    """
    return before / (before + (1 - before) * math.exp(-epsilon))
