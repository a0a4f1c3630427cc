# SPDX-License-Identifier: Apache-2.0
"""Every error that the package raises.

::

    PinqError
    ├── PolicyError        the provider's declaration is wrong, unreviewed or does not fit its source
    ├── Refusal            the request is not carried out; the refusal itself costs nothing
    │   ├── QueryError         a request or an argument is malformed (also a ValueError)
    │   ├── BudgetExceeded     a request would pass the limit
    │   ├── NotAllowed         the grant's terms forbid the request
    │   └── TooManyRequests    asked too fast; try again later
    ├── NotAuthorised      no such grant or token, or it has expired or was revoked
    ├── Unavailable        the server cannot be reached, is not one, or is busy; safe to try again
    ├── LedgerError        the durable record is damaged, cut, rolled back or out of reach
    ├── SessionError       a computation among several parties could not start, or broke off
    ├── EngineError        the data could not be read; the charge stands, the text never varies
    └── InternalError      cannot happen; please report

A ``Refusal`` is not the same as a refusal in the ledger (its record is ``Refused``). The ledger logs
each refusal by ``charge``: BudgetExceeded, NotAllowed, TooManyRequests, and NotAuthorised. A
QueryError is raised before the charge and is not logged.

Type, text and attributes of an error depend on the policy, the request and the ledger, never on
rows. Each class has a stable ``code`` that programs may compare.

The text "Nothing was spent." appears if the error's ``charged`` is 0. Only code that knows the
charge sets it: the curator from its ledger, a handle whose request was not sent (0), a fit from the
budget before and after. Elsewhere it is None.

An error about a parameter has three facts: its Python name, the fault, the allowed values.
``str(error)`` uses Python's names, and ``error.worded(names)`` those of another interface: the
command line calls ``epsilon`` --epsilon. So no interface edits a text.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

__all__ = [
    "BudgetExceeded",
    "EngineError",
    "InternalError",
    "LedgerError",
    "NotAllowed",
    "NotAuthorised",
    "PinqError",
    "PolicyError",
    "QueryError",
    "SessionError",
    "TooManyRequests",
    "Unavailable",
]


# Every import of this package imports this module first, so the error about another project's ``pinq`` is here.
if not hasattr(sys.modules["pinq"], "DISTRIBUTION"):
    raise ImportError(
        f"{sys.modules['pinq'].__file__} belongs to another project that is imported as `pinq` too. "
        "Run: pip uninstall pinq pinq-miners, then install pinq-miners again."
    )

UNSPENT = "Nothing was spent."


def printable(text: str) -> str:
    """Shows each character that does not print (controls, marks of direction) as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class PinqError(Exception):
    """The root of the package's errors; ``code`` is stable across releases.

    Attributes:
        charged: The cost of the failed call, exact; None if it is unknown. The text ends with it.
        retry_after: Seconds to wait before a new attempt; None if unknown.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> try:
        ...     h.noisy_count(epsilon=20)
        ... except pinq.PinqError as error:
        ...     print(error.code, error.charged)
        budget 0
    """

    code = "pinq"
    charged: Fraction | None = None
    retry_after: float | None = None

    @property
    def facts(self) -> Mapping[str, object]:
        """The attributes that are sent beside the code and the text, by name."""
        return {}

    def __str__(self) -> str:
        return self.worded({})

    def worded(self, names: Mapping[str, str]) -> str:
        """Returns the text with the parameter names of an interface.

        Args:
            names: The interface's name of each Python parameter; others keep Python's name.
        """
        text = self._text(names).replace(f" {UNSPENT}", "")  # the text may say it, but only `charged` is certain
        return text if self.charged is None else f"{text} {_bill(self.charged)}"

    def __reduce__(self) -> tuple[object, ...]:
        """Its pickle, by arguments and attributes: the constructors differ."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def _text(self, names: Mapping[str, str]) -> str:
        """The text without the sentence about the charge."""
        return super().__str__()


class PolicyError(PinqError):
    """The policy file is wrong, unreviewed, or does not fit its source.

    Examples:
        >>> import pinq
        >>> try:
        ...     pinq.load_policy("policies/missing.yaml")
        ... except pinq.PolicyError as error:
        ...     print(error.code)
        policy
    """

    code = "policy"


class Refusal(PinqError):
    """The request is refused."""


class QueryError(Refusal, ValueError):
    """The request names something that does not exist or is not allowed.

    Args:
        problem: The text; with a parameter, the fault in it, as "is 0".
        parameter: The Python name of the wrong parameter.
        allowed: The allowed values: "a whole number from 1 to 9". Empty if the problem names them.

    Attributes:
        parameter, allowed: The same; ``parameter`` is None if no parameter is wrong.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> try:
        ...     h.noisy_avg("sex", epsilon=0.1)
        ... except pinq.QueryError as error:
        ...     print(error)
        `sex` is categorical; a numeric column is needed here. Nothing was spent.
    """

    code = "query"
    parameter: str | None = None
    allowed = ""

    def __init__(self, problem: str, *, parameter: str | None = None, allowed: str = "") -> None:
        super().__init__(problem)
        self.parameter, self.allowed = parameter, allowed

    @property
    def facts(self) -> Mapping[str, object]:
        """The parts of the message, if a parameter is wrong."""
        if self.parameter is None:
            return {}
        return {"parameter": self.parameter, "problem": self.problem, "allowed": self.allowed or None}

    @property
    def problem(self) -> str:
        """The text without the parameter's name and its allowed values."""
        text = str(self.args[0])
        return text if self.parameter is None else " ".join(text.split())

    def _text(self, names: Mapping[str, str]) -> str:
        if self.parameter is None:
            return self.problem
        subject = names.get(self.parameter, f"`{self.parameter}`")
        # A text that was cut off ends with three dots, and keeps them.
        problem = self.problem if self.problem.endswith("...") else self.problem.removesuffix(".")
        return f"{subject} {problem}{f'; it must be {self.allowed}' if self.allowed else ''}."


class BudgetExceeded(Refusal):
    """The request costs more than what remains; the refusal is in the log.

    Attributes:
        asked: The cost of the request, exact.
        remaining: The remaining epsilon, exact.
        scope: ``"analyst"`` for the analyst's own limit, ``"cap"`` for the cap over all analysts.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> try:
        ...     h.noisy_count(epsilon=20)
        ... except pinq.BudgetExceeded as error:
        ...     print(error.asked, error.remaining, error.scope)
        20 10 analyst
    """

    code = "budget"

    def __init__(self, message: str, *, asked: Fraction, remaining: Fraction, scope: str) -> None:
        super().__init__(message)
        self.asked, self.remaining, self.scope = asked, remaining, scope

    @property
    def facts(self) -> Mapping[str, object]:
        """The three attributes, exact."""
        return {"asked": self.asked, "remaining": self.remaining, "scope": self.scope}


class NotAuthorised(PinqError):
    """The grant is missing, expired or revoked; the text is the same for all three."""

    code = "not-authorised"

    def __init__(self) -> None:
        super().__init__(
            "No valid grant under this name for this dataset: the token is mistyped or another dataset's, or the grant "
            "has expired, was revoked or got another token. The address of a dataset with several tables ends in "
            "DATASET.TABLE. Ask the data provider for a grant (pinq grant)."
        )


class NotAllowed(Refusal):
    """The grant's terms forbid the request (verb, column or size); the refusal is in the log."""

    code = "not-allowed"


class TooManyRequests(Refusal):
    """The queries come faster than allowed; ``retry_after`` is the number of seconds to wait."""

    code = "too-many-requests"
    retry_after: float

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def facts(self) -> Mapping[str, object]:
        """The seconds to wait."""
        return {"retry_after": self.retry_after}


class Unavailable(PinqError):
    """No answer from the server. The same request may be sent again: one id is charged once.

    Attributes:
        remedy: The parameter that may help, by its name in Python; the text ends with it.
    """

    code = "unavailable"
    remedy: str | None = None

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    def _text(self, names: Mapping[str, str]) -> str:
        text = super()._text(names)
        return text if self.remedy is None else f"{text} {names.get(self.remedy, f'`{self.remedy}`')}."


class LedgerError(PinqError):
    """The ledger cannot be trusted or reached; the dataset stays closed.

    The provider decides how to continue.
    """

    code = "ledger"


class SessionError(PinqError):
    """A computation among several parties could not start, or broke off.

    The text says which party, and what to do.
    """

    code = "session"


class EngineError(PinqError):
    """The engine failed after the charge.

    The text is the same for every cause, including stopped work, because the cause may depend on
    rows.
    """

    code = "engine"

    def __init__(self) -> None:
        super().__init__(
            "The data could not be read for this request, or not in the time that it had. Its cost stays charged, "
            "because a failure may depend on the rows. The provider finds the details in the log of its own process."
        )


class InternalError(PinqError):
    """A state that should not be reachable. Please report it."""

    code = "internal"


class unspent(ContextDecorator):
    """A ``with`` block or a decorated function that charges nothing, so its refusals get ``charged = 0``."""

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refusal):
            error.charged = Fraction(0)


Closable = TypeVar("Closable", bound=Any)


@contextmanager
def closed_on_error(resource: Closable) -> Iterator[Closable]:
    """Closes a resource if its block fails. Otherwise the block's user owns the open resource."""
    try:
        yield resource
    except BaseException:
        resource.close()
        raise


def _bill(charged: Fraction) -> str:
    return (
        f"Epsilon {Decimal(charged.numerator) / Decimal(charged.denominator):f} was spent until then."
        if charged
        else UNSPENT
    )
