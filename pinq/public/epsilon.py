# SPDX-License-Identifier: Apache-2.0
"""Privacy losses as integers: one nano-epsilon is 1e-9.

Binary floats make three charges of 0.1 more than a grant of 0.3. So a loss is read as the decimal
number that the caller wrote, held as an integer count of nano-epsilons, and rounded *up*: a charge
is never less than what was asked, and noise is calibrated to the charge (``privacy.md`` 1.7a: exact
fractions, never floats).
"""

from __future__ import annotations

import math
import numbers
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from pinq.errors import QueryError

__all__ = ["MAX_EPSILON", "NANO", "Loss", "exact", "exact_nano", "figures", "is_exact", "show", "to_nano"]

NANO = 10**9
MAX_EPSILON = 10**6
# Decimal alone would also read "1_0", " 1 " and the digits of other scripts, which other readers
# take otherwise or not at all.
_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

Loss = int | float | str | Decimal | Fraction
"""What a caller may write for a loss. ``0.1`` and ``"0.1"`` both mean one tenth exactly."""


def to_nano(epsilon: Loss, *, name: str = "epsilon") -> int:
    """Reads a loss as nano-epsilons, rounded up.

    Args:
        epsilon: Greater than 0, at most ``MAX_EPSILON``; a float is read by its shortest decimal
            form.
        name: What the error calls it.

    Raises:
        QueryError: Not a number, NaN, infinite, not positive, or too large.
    """
    try:
        value = _fraction(epsilon)
    except (ValueError, TypeError, ArithmeticError, InvalidOperation):
        value = None
    if value is None or not 0 < value <= MAX_EPSILON:
        shown = repr(epsilon)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        raise QueryError(f"`{name}` is {shown}; it must be a finite number greater than 0 and at most {MAX_EPSILON}.")
    return math.ceil(value * NANO)


def is_exact(epsilon: Loss) -> bool:
    """Whether a loss, which ``to_nano`` can read, is a whole number of nano-epsilons."""
    return (_fraction(epsilon) * NANO).denominator == 1


def exact_nano(epsilon: Loss, *, name: str = "epsilon") -> int:
    """Reads a loss that a provider allows as nano-epsilons. Never rounded: up, it would be more than what was written.

    Raises:
        QueryError: As in ``to_nano``, or finer than a nano-epsilon.
    """
    nano = to_nano(epsilon, name=name)
    if not is_exact(epsilon):
        raise QueryError(
            f"`{name}` is {str(epsilon)[:40]}; the smallest step of a loss is {show(1)}, so write at most nine decimals."
        )
    return nano


def exact(nano: int) -> Fraction:
    """The loss that a count of nano-epsilons stands for."""
    return Fraction(nano, NANO)


def show(nano: int) -> str:
    """A count of nano-epsilons as the shortest decimal, e.g. ``0.25``."""
    sign, nano = ("-", -nano) if nano < 0 else ("", nano)
    whole, rest = divmod(nano, NANO)
    return sign + (f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole))


def figures(nano: int) -> str:
    """A count of nano-epsilons cut after three figures. Not rounded: what is spent never looks like the limit too early."""
    step = 10 ** min(9, max(0, len(str(nano)) - 3))
    return show(nano // step * step)


def _fraction(value: object) -> Fraction:
    if isinstance(value, bool):
        raise TypeError("a truth value is not a loss")
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    if isinstance(value, numbers.Integral):  # numpy integers
        return Fraction(int(value))
    if isinstance(value, numbers.Real) and not isinstance(value, Decimal):  # floats, numpy floats
        value = repr(float(value))
    if isinstance(value, str) and not _DECIMAL_TEXT.fullmatch(value):
        raise ValueError("not a decimal number")
    if isinstance(value, (str, Decimal)):
        number = Decimal(value)
        # Fraction(Decimal("1e999999999")) would build the number; its size is known before that.
        # What is closer to 0 than any float counts as 0.
        if not number.is_finite() or number.adjusted() > 12 or number.adjusted() < -330:
            raise ValueError("too large, or too close to 0")
        return Fraction(number)
    raise TypeError("not a number")
