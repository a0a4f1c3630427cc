# SPDX-License-Identifier: Apache-2.0
"""What a fit must be able to pay before its first question, and what it paid in the end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Self

from miners.budget.plan import Pricing, loss_text, warn_before_fit
from pinq.analyst.reuse import recording, reusing
from pinq.analyst.session import Session
from pinq.errors import BudgetExceeded, NotAllowed, PinqError, QueryError, Refusal, TooManyRequests
from pinq.public.epsilon import Epsilon, Exact

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.public.certificate import Certificate
    from pinq.public.queries import Answer, Request

__all__ = ["Bill", "begin_fit", "patient", "require_budget"]

UNSEEDED = (
    "random_state is not given, so another fit draws other questions and finds no paid answers; give a number "
    "beside reuse=True."
)


_log = logging.getLogger("miners")
QUIET = 2.0  # seconds of a fit before it says how far it has come


class Bill:
    """Reads off the ledger what the questions inside a ``with`` block cost.

    A refusal that ends the block says so too; an interrupt (Ctrl-C) gets a note that says so.

    Attributes:
        total: Once it ended without an error: what was spent, exact.
    """

    total: Fraction

    def __init__(self, handle: PrivateQueryable) -> None:
        self._handle = handle

    def __enter__(self) -> Self:
        self._before = self._handle.budget.spent
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.total = self._spent()
        elif isinstance(error, Refusal):
            error.charged = None
            with suppress(PinqError):  # whoever cannot look cannot say
                error.charged = self._spent()
        elif isinstance(error, KeyboardInterrupt):
            with suppress(PinqError):
                paid = f"The answers so far have cost epsilon {loss_text(self._spent())}."
                error.add_note(f"{paid} The same call with reuse=True takes them at no cost and goes on.")

    def _spent(self) -> Fraction:
        return Exact(self._handle.budget.spent - self._before)


def patient(session: Session) -> Callable[[Request], Answer]:
    """Returns what waits where the grant asks for a slower pace, and says so in the log of ``miners``.

    Fits and tables ask many questions. Refused in the middle, what was paid would be lost to most.
    """

    def ask(request: Request) -> Answer:
        while True:
            try:
                return session.ask(request)
            except TooManyRequests as error:
                if error.retry_after is None:
                    raise
                _log.warning("Waiting %.0f s: %s", error.retry_after, error)
                time.sleep(error.retry_after)

    return ask


def showing(act: str, total: Epsilon, session: Session) -> Callable[[Request], Answer]:
    """Returns what shows how far a fit has come, in a line on standard error, once it takes two seconds.

    Args:
        act: Who asks.
        total: What all questions cost.
        session: What answers.
    """
    start, paid = time.monotonic(), 0.0

    def ask(request: Request) -> Answer:
        nonlocal paid
        answer = session.ask(request)
        paid += float(request.epsilon)
        seconds, share = time.monotonic() - start, min(1.0, paid / float(total.exact))
        if seconds >= QUIET:
            text = f"{act}: {share:.0%} of the queries, {seconds:.0f} s, about {seconds / share - seconds:.0f} s left "
            print(text, end="\n" if share == 1 else "\r", file=sys.stderr, flush=True)
        return answer

    return ask


def begin_fit(
    miner: object, handle: PrivateQueryable, target: object, total: Epsilon, hopes: Sequence[str], *, reuse: bool
) -> tuple[PrivateQueryable, Callable[[], Certificate]]:
    """Refuses a fit that cannot be paid, warns of what can be hoped for.

    With ``reuse`` a fit whose first question was paid for goes on as far as its answers reach; one
    that nobody paid for needs all of its epsilon as ever.

    Args:
        miner: What is going to be fitted.
        handle: On what.
        target: What is to be predicted, for the log; None for nothing.
        total: What all questions cost.
        hopes: What ``plan`` would warn of.
        reuse: Whether answers that were paid for will do.

    Returns:
        Whom to ask, and what gives the certificate afterwards.

    Raises:
        QueryError: ``reuse`` is not True or False.
        BudgetExceeded: Less than ``total`` remains.
    """
    if not isinstance(reuse, bool):
        raise QueryError(f"is {reuse!r}", parameter="reuse", allowed="True or False")
    require = partial(require_budget, handle, total, name=f"{type(miner).__name__}.fit")
    if not reuse:
        require()
    elif getattr(miner, "random_state", 0) is None:
        hopes = [*hopes, UNSEEDED]
    warn_before_fit(miner, handle, total, hopes, reuse=reuse, stacklevel=4)
    act = f"miners.{type(miner).__name__}.fit"
    handle = handle.named(act if target is None else f"{act} of {target}").through(patient)
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        handle = handle.through(partial(showing, act, total))
    return recording(reusing(handle, require) if reuse else handle)


def require_budget(handle: Pricing, needed: Epsilon, *, name: str) -> None:
    """Raises ``BudgetExceeded`` unless so much remains as all questions of a name cost together.

    It is asked before the first question, so that no budget goes into half a tree.
    """
    # Which parts a fit is going to ask follows from answers, so one count of the whole table stands
    # for them all: the steps of a path add up to ``needed``, and disjoint parts cost what one of
    # them costs, so the fit is affordable where that one count is.
    asked = needed.exact
    try:
        remaining = handle.preview("noisy_count", epsilon=needed).remaining + asked
    except NotAllowed:  # the terms bind each question of the fit, not the count that stands for them
        remaining = handle.budget.remaining
    if asked > remaining:
        raise BudgetExceeded(
            f"{name} needs an epsilon of {needed}; {loss_text(remaining)} remains. Ask for less.",
            asked=asked,
            remaining=remaining,
            scope="analyst",
        )
