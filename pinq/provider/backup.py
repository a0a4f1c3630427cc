# SPDX-License-Identifier: Apache-2.0
"""Backs up a ledger, and restores one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pinq.errors import LedgerError, PolicyError
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import Head, copy, set_aside
from pinq.ledger.state import Account
from pinq.policy.files import state_folder
from pinq.policy.policy import Policy
from pinq.provider.claim import ledger_url
from pinq.provider.opening import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import ZERO

Where = str | os.PathLike[str] | Policy


def heads_folder() -> Path:
    """The folder in which servers of this user keep heads of their ledgers."""
    return state_folder() / "heads"


def backup(policy: Where, file: str | os.PathLike[str]) -> str:
    """Writes a dataset's ledger, as it is now, into a new SQLite file with a head beside it.

    The ledger may be in use, and may be in PostgreSQL.

    Returns:
        The last event, ``SEQ:HASH``. With it, ``pinq audit --expect`` checks later whether the
        ledger still has this event.

    Raises:
        PolicyError: Wrong policy, or the file exists.
        LedgerError: There is no ledger, or it cannot be trusted.
    """
    target = Path(file)
    if target.exists():
        raise PolicyError(f"{target} exists; a backup is a file of its own.")
    loaded = load_policy(policy)
    with closing(read_ledger(loaded)) as ledger:
        ledger.verify()
    part = target.with_name(f"{target.name}.part")
    for fragment in target.parent.glob(f"{part.name}*"):  # of an interrupted backup
        fragment.unlink()
    last = copy(ledger_url(loaded, read_only=True), part)
    os.replace(f"{part}.head", f"{target}.head")
    os.replace(part, target)
    return last


def loss(policy: Where, file: str | os.PathLike[str]) -> str:
    """The events and budgets that a return to a backup would forget, in words; empty for none.

    Raises:
        PolicyError: Wrong policy.
        LedgerError: The backup, or the ledger, cannot be trusted.
    """
    loaded = load_policy(policy)
    with (
        closing(Ledger(os.fspath(file), loaded.dataset, read_only=True)) as then,
        closing(read_ledger(loaded)) as now,
    ):
        then.verify()
        # A ledger of 9 events that begins with the backup's 7 events would lose two. If event 6 differs, so
        # do all later events, which are chained to it.
        hashes = {event.seq: event.hash for event in then.log.events()}
        later = sum(hashes.get(event.seq) != event.hash for event in now.log.events())
        budgets = "; ".join(_changes(now.accounts(), then.accounts())) or "no budget changes"
        return f"{later} event{'s' * (later > 1)} would be forgotten: {budgets}" if later else ""


def restore(policy: Where, file: str | os.PathLike[str], *, forget: bool = False) -> str:
    """Replaces a policy's ledger by a backup.

    Servers that have it open stop. With ``forget``, restores even if events would be forgotten, or if the present
    ledger cannot be read.

    A ledger in a file is kept beside the new one, as ``.replaced``.

    Returns:
        The last event, ``SEQ:HASH``.

    Raises:
        PolicyError: Wrong policy.
        LedgerError: The backup cannot be trusted, or is another dataset's; or budget would come
            back without ``forget``.
    """
    loaded = load_policy(policy)
    with closing(Ledger(os.fspath(file), loaded.dataset, read_only=True)) as ledger:
        ledger.verify()
        last = ledger.log.seq
    url = ledger_url(loaded, create=True)
    target = None if "://" in url else Path(url)
    refusal = "Nothing was restored. `--forget` does it all the same: analysts could spend that budget again."
    if not forget and (target is None or target.exists()):
        try:
            lost = loss(loaded, file)
        except LedgerError as error:
            raise LedgerError(f"What would be forgotten cannot be told: {error} {refusal}") from None
        if lost:
            raise LedgerError(f"{lost}. {refusal}")
    last_head = None if target is None or target.exists() else Head(Path(f"{target}.head")).read()
    if last_head is not None and last_head[0] > last and not forget:
        raise LedgerError(
            f"The ledger {target} is gone, and its head names event {last_head[0]}; "
            f"the backup ends at event {last}. {refusal}"
        )
    if target is not None:
        set_aside(target)
    return copy(file, url, heads_folder())


def _changes(now: dict[str, Account], then: dict[str, Account]) -> Iterator[str]:
    """Yields the changes of each present analyst's account, in words."""
    for name, account in now.items():
        before = then.get(name)
        spent, state = (ZERO, "no grant") if before is None else (before.spent, before.state)
        if spent != account.spent:
            yield f"{name} spent {account.spent}, of which {account.spent - spent} would come back"
        if state != account.state:
            yield f"{name} is {account.state}, and would be {state}"
