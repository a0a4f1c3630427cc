# SPDX-License-Identifier: Apache-2.0
"""Every error that the package raises.

::

    PinqError
    ├── PolicyError        the provider's declaration is wrong, unreviewed or does not fit its source
    ├── QueryError         a request is malformed; nothing was spent (also a ValueError)
    ├── BudgetExceeded     a request would pass the limit; nothing was spent
    ├── NotAuthorised      no such grant or token, or it has expired or was revoked
    ├── NotAllowed         the grant's terms forbid the request; nothing was spent
    ├── TooManyRequests    asked too fast; nothing was spent, try again later
    ├── Unavailable        the server cannot be reached, is not one, or is busy; safe to try again
    ├── LedgerError        the durable record is damaged, cut, rolled back or out of reach
    ├── SessionError       a computation among several parties could not start, or broke off
    ├── EngineError        the data could not be read; the charge stands, the text never varies
    └── InternalError      cannot happen; please report

Type, text and attributes of an error depend on the policy, the request and the ledger, never on
rows. Each class has a stable ``code`` that programs may compare.
"""

from __future__ import annotations

from fractions import Fraction

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


class PinqError(Exception):
    """The root of the package's errors; ``code`` is stable across releases."""

    code = "pinq"


class PolicyError(PinqError):
    """The policy file is wrong, unreviewed, or does not fit its source."""

    code = "policy"


class QueryError(PinqError, ValueError):
    """The request names something that does not exist or is not allowed. Nothing was spent."""

    code = "query"


class BudgetExceeded(PinqError):
    """The request costs more than what remains. Nothing was spent; the refusal is in the log.

    Attributes:
        asked: What the request would have cost, exact.
        remaining: What is left, exact.
        scope: ``"analyst"`` when the analyst's own limit refused, ``"cap"`` for the cap over all
            analysts.
    """

    code = "budget"

    def __init__(self, message: str, *, asked: Fraction, remaining: Fraction, scope: str) -> None:
        super().__init__(message)
        self.asked, self.remaining, self.scope = asked, remaining, scope


class NotAuthorised(PinqError):
    """One text for a missing, an expired and a revoked grant."""

    code = "not-authorised"

    def __init__(self) -> None:
        super().__init__("No valid grant under this name for this dataset. Ask the data provider for one (pinq grant).")


class NotAllowed(PinqError):
    """The grant's terms forbid the request: its verb, a column, or its size. Nothing was spent; the refusal is in the log."""

    code = "not-allowed"


class TooManyRequests(PinqError):
    """Asked faster than allowed. Nothing was spent.

    Attributes:
        retry_after: Seconds after which it is worth trying again.
    """

    code = "too-many-requests"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(PinqError):
    """No answer from the server. The same request may be sent again: one request id is answered once and charged once."""

    code = "unavailable"


class LedgerError(PinqError):
    """The ledger cannot be trusted or reached. The dataset stays closed until the provider decides."""

    code = "ledger"


class SessionError(PinqError):
    """A computation among several parties could not start, or broke off; the text says which party and what to do."""

    code = "session"


class EngineError(PinqError):
    """The engine failed after the charge. One text for every cause, because the cause may depend on rows."""

    code = "engine"

    def __init__(self) -> None:
        super().__init__(
            "The data could not be read for this request. What it cost stays charged, because a failure "
            "may depend on the rows. The provider finds the details in the log of its own process."
        )


class InternalError(PinqError):
    """A state that should not be reachable. Please report it."""

    code = "internal"
