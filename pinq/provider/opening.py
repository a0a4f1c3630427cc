# SPDX-License-Identifier: Apache-2.0
"""The ledger of a policy, opened for the provider, for an analyst, or for reading; and the curator over it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pinq.errors import LedgerError, QueryError, closed_on_error
from pinq.ledger.database import NoLedger
from pinq.ledger.events import Signature, here
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.claim import claims, ledger_url, masked, require_one_person
from pinq.public.checks import first_of
from pinq.public.epsilon import Epsilon

if TYPE_CHECKING:
    from pinq.curator.deadline import Meter
    from pinq.curator.monitor import Curator
    from pinq.engine import Engine

LEDGER_RETRIES, RETRY_SECONDS = 10, 0.1  # for a ledger that another process is making now
MAX_NAME = 128  # characters of an analyst's name


def require_name(analyst: object) -> None:
    """Raises ``QueryError`` unless this can be an analyst's name."""
    name = analyst if isinstance(analyst, str) else ""
    if not name or name != name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise QueryError(
            f"is {repr(analyst)[:60]}",
            parameter="analyst",
            allowed=f"1 to {MAX_NAME} printable characters without blanks around them",
        )


def curator_of(
    policy: Policy,
    ledger: Ledger,
    engine: Engine,
    version: int,
    closed: Mapping[bytes, int],
    meter: Meter | None = None,
) -> Curator:
    """Makes the curator of a policy's dataset, under the policy's limit of work.

    ``closed`` has the numbers of the closed cohorts' versions.
    """
    from pinq.curator.monitor import Curator
    from pinq.curator.price import MAX_WORK

    return Curator(
        policy.schema_,
        ledger,
        engine,
        max_work=policy.max_work or MAX_WORK,
        meter=meter,
        version=version,
        table=policy.table,
        closed=closed,
    )


def open_ledger(
    policy: Policy,
    *,
    create: bool = True,
    provider: bool = True,
    by: Signature | None = None,
    heads: Path | None = None,
) -> Ledger:
    """Opens the ledger of a reviewed policy, or makes a missing one with ``create``; logs the policy if it changed.

    Unless it is an act of the ``provider``, it makes no ledger and never raises the cap. ``heads`` is a folder for
    another head.

    Raises:
        PolicyError: Unreviewed, or the source is guarded by another ledger.
        LedgerError: It cannot be trusted.
    """
    policy.require_reviewed()
    with closed_on_error(guarding_ledger(policy, create=create and provider, heads=heads)) as ledger:
        declare(policy, ledger, may_raise=provider, by=by)
        return ledger


def read_ledger(policy: Policy | None, file: str | os.PathLike[str] | None = None) -> Ledger:
    """Opens a ledger for reading only: a policy's ledger, or the one in a file.

    Raises:
        QueryError: Neither is given.
        PolicyError: The source is guarded by another ledger.
        LedgerError: The ledger does not exist, is another dataset's, or cannot be trusted.
    """
    if policy is None and file is None:
        raise QueryError("name a policy, or a ledger (--ledger FILE).")
    if file is not None and re.match(r"https?:/|[a-z+]{2,}:/[^/]", str(file)):  # a path has one slash left
        raise QueryError("a ledger to read is a file; that of a database server is named by its policy.")
    if policy is None or file is not None:
        return Ledger(str(file), None if policy is None else policy.dataset, read_only=True)
    return guarding_ledger(policy, read_only=True)


def guarding_ledger(
    policy: Policy, *, create: bool = False, read_only: bool = False, heads: Path | None = None
) -> Ledger:
    """Opens the ledger that guards a policy's source; does not log the policy.

    If the source has a claim, ``create`` makes no ledger, because a new one would return the spent budget.

    Raises:
        PolicyError: Another ledger guards the source, or two tables name different columns of persons.
        LedgerError: The ledger does not exist, or cannot be trusted.
    """
    require_one_person(policy)
    before = [claim for table in policy.each for claim in claims(table)]
    path = Path(ledger_url(policy, read_only=True))
    gone = not path.exists() and path.with_name(f"{path.name}.head").exists()  # then no claim is written either
    url, *_ = [ledger_url(table, create=create and not gone, read_only=read_only) for table in policy.each]
    fresh = create and not before
    for _ in range(LEDGER_RETRIES):
        try:
            return Ledger(url, policy.dataset, create=fresh, read_only=read_only, heads=heads)
        except NoLedger:
            if not before:
                raise
            time.sleep(RETRY_SECONDS)  # the process that made the claim may be about to make the ledger
    raise LedgerError(
        f"The ledger {masked(url)} is gone: the source of {policy.dataset!r} has a claim that names it "
        f"({first_of(before, 3)}). Put it back, or restore a backup (`pinq restore`)."
    )


def declare(policy: Policy, ledger: Ledger, *, may_raise: bool, by: Signature | None = None) -> None:
    """Logs a reviewed policy if it changed; a higher cap only if ``may_raise``.

    Raises ``LedgerError`` as ``Ledger.declare`` does.
    """
    cap = Epsilon(policy.cap_nano)
    ledger.declare(policy.digest, cap, policy.logged, may_raise=may_raise, by=by or here())
