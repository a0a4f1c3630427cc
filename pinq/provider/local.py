# SPDX-License-Identifier: Apache-2.0
"""Handles in the provider's own process: ``pinq.open``, and the ledger of a policy."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NoReturn

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Closed
from pinq.curator.monitor import Curator
from pinq.curator.work import MAX_WORK, Meter
from pinq.engine import Engine, open_engine
from pinq.errors import LedgerError, QueryError, unspent
from pinq.ledger.database import NoLedger
from pinq.ledger.events import Signature, here
from pinq.ledger.ledger import Ledger
from pinq.provider.arguments import require_name
from pinq.provider.claim import claims, ledger_url, masked
from pinq.provider.history import history
from pinq.provider.policy_file import load_policy
from pinq.public.checks import first_of
from pinq.public.epsilon import Epsilon
from pinq.public.policy import Policy
from pinq.public.queries import Answer, Asked, Budget, Preview, Request
from pinq.public.schema import Schema

__all__ = ["LocalSession", "budget", "curator_of", "declare", "guarding_ledger", "open", "open_ledger", "read_ledger"]

LOOKS, LOOK_SECONDS = 10, 0.1  # for a ledger that another process is just making


class LocalSession:
    """A curator in this process, for one analyst.

    Schema and requests cross the line as text, as they do between processes: the curator computes
    from its own plain values alone, whatever objects a request was built of.
    """

    def __init__(self, name: str, analyst: str, curator: Curator) -> None:
        self.name, self.schema = name, Schema.model_validate_json(curator.schema.model_dump_json(by_alias=True))
        self._analyst = analyst
        self._curator: Curator | Any = curator
        ledger = curator.ledger
        place = id(ledger) if ledger.url == "sqlite://" else ledger.url  # of those in memory each is another
        self.account = f"{place} {name} {analyst}"

    def ask(self, request: Request) -> Answer:
        """The answer of the curator."""
        with self._curator.refusing(self._analyst, str(request.id)):
            received = Request.received(request.to_json())
        return self._curator.ask(self._analyst, received)

    @unspent()
    def preview(self, request: Request) -> Preview:
        """What it would cost."""
        return self._curator.preview(self._analyst, Request.received(request.to_json()))

    def budget(self) -> Budget:
        """The analyst's budget as the ledger has it now."""
        return budget(self._curator.ledger, self._analyst)

    def history(self, start: int = 0) -> list[Asked]:
        """The analyst's own lines of the log, with the answers, from one on."""
        return list(history(self._curator.ledger, self._analyst, start))

    def terms(self) -> str:
        """What the analyst's grant allows, as the ledger has it now."""
        return str(self._curator.ledger.grants()[self._analyst].terms)

    def close(self) -> None:
        """Frees the encoded copy and the ledger's connections."""
        self._curator.close()
        self._curator = Closed()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A handle cannot be pickled: it would carry the way to the data, or its budget, elsewhere. Open "
            "it again where it is needed."
        )


def open(policy: str | os.PathLike[str] | Policy, *, analyst: str, data: Any = None) -> PrivateQueryable:
    """Opens a dataset for an analyst, in this process.

    In one process nothing can be kept from code that looks for it: this handle keeps an honest
    analyst honest.

    Args:
        policy: A policy file, or a loaded policy; reviewed.
        analyst: Who asks; needs a grant (``pinq grant``).
        data: A table instead of the policy's source: of Arrow, pandas, polars or DuckDB, or another
            with ``__arrow_c_stream__``, whose rows are read once and not kept.

    Raises:
        PolicyError: Wrong or unreviewed policy, or a source that does not fit it.
        NotAuthorised: No valid grant.
        LedgerError: A ledger that cannot be trusted.
    """
    require_name(analyst)
    loaded = load_policy(policy)
    ledger = open_ledger(loaded, provider=False)
    ledger.authorise(analyst)
    engine, _ = open_engine(loaded, data=data, salt=ledger.salt)
    return PrivateQueryable(LocalSession(loaded.dataset, analyst, curator_of(loaded, ledger, engine)))


def curator_of(
    policy: Policy, ledger: Ledger, engine: Engine, before: Curator | None = None, meter: Meter | None = None
) -> Curator:
    """Makes the curator of a policy's dataset, under the policy's limit of work.

    Args:
        policy: Reviewed.
        ledger: The dataset's.
        engine: Over the dataset's codes.
        before: The dataset's curator so far, where there is one.
        meter: Counts analysts' work; None for one of its own.
    """
    work = policy.max_work or MAX_WORK
    return Curator(policy.schema_, ledger, engine, max_work=work, before=before, meter=meter)


def open_ledger(
    policy: Policy,
    *,
    create: bool = True,
    provider: bool = True,
    by: Signature | None = None,
    heads: Path | None = None,
) -> Ledger:
    """The ledger of a reviewed policy; logs the policy where it changed.

    Args:
        policy: Whose ledger.
        create: Make it where there is none.
        provider: Whether this is the provider's own act. An analyst's opening makes no ledger and
            never raises the cap.
        by: Whose act it is; by default this process's user's.
        heads: A folder for another head of the ledger.

    Raises:
        PolicyError: Unreviewed, or the source is guarded by another ledger.
        LedgerError: It cannot be trusted.
    """
    policy.require_reviewed()
    create = create and provider
    ledger = guarding_ledger(policy, create=create, heads=heads)
    declare(policy, ledger, may_raise=provider, by=by)
    return ledger


def read_ledger(policy: Policy | None, file: str | os.PathLike[str] | None = None) -> Ledger:
    """Opens a ledger of which nothing is changed: a policy's, or the one in a file.

    Raises:
        QueryError: Neither is given.
        PolicyError: The source is guarded by another ledger.
        LedgerError: There is none, it is another dataset's, or it cannot be trusted.
    """
    if policy is None and file is None:
        raise QueryError("name a policy, or a ledger (--ledger FILE).")
    if policy is None or file is not None:
        return Ledger(str(file), None if policy is None else policy.dataset, read_only=True)
    return guarding_ledger(policy, read_only=True)


def guarding_ledger(
    policy: Policy, *, create: bool = False, read_only: bool = False, heads: Path | None = None
) -> Ledger:
    """Opens the ledger that guards a policy's source; logs nothing of the policy.

    Args:
        policy: Whose.
        create: Make it, unless the source has a claim: then there was one, and a fresh one would
            give back what was spent.
        read_only: Change nothing.
        heads: A folder for another head of the ledger.

    Raises:
        PolicyError: The source is guarded by another ledger.
        LedgerError: It is not there, or cannot be trusted.
    """
    before = claims(policy)
    url = ledger_url(policy, create=create, read_only=read_only)
    # A ledger that is gone with its head beside is told by the head.
    fresh = create and (not before or Path(f"{url}.head").exists())
    for _ in range(LOOKS):
        try:
            return Ledger(url, policy.dataset, create=fresh, read_only=read_only, heads=heads)
        except NoLedger:
            if not before:
                raise
            time.sleep(LOOK_SECONDS)  # the process that made the claim may be about to make the ledger
    raise LedgerError(
        f"There is no ledger {masked(url)}, though the source of {policy.dataset!r} has a claim that names it: it was "
        "moved or deleted. Put it back, or restore a backup (`pinq restore`). Or delete the claim "
        f"({first_of(before, 3)}) and accept that what was spent before no longer counts."
    )


def declare(policy: Policy, ledger: Ledger, *, may_raise: bool, by: Signature | None = None) -> None:
    """Logs a reviewed policy where it changed; a higher cap only if ``may_raise``.

    ``LedgerError`` as ``Ledger.declare``.
    """
    digest, cap, rule = policy.schema_.digest, Epsilon(policy.cap_nano), policy.cap_rule
    ledger.declare(digest, cap, policy.logged, rule=rule, may_raise=may_raise, by=by or here())


def budget(ledger: Ledger, analyst: str) -> Budget:
    """Returns an analyst's budget; what the cap over all analysts leaves bounds what remains."""
    account = ledger.accounts()[analyst]
    return Budget(account.limit.exact, account.spent.exact, account.remaining.exact)
