# SPDX-License-Identifier: Apache-2.0
"""``pinq.open``: an analyst's handle on a policy's rows, in the provider's own process."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Closed
from pinq.curator.monitor import Curator
from pinq.errors import unspent
from pinq.language.queries import Answer, Asked, Budget, Preview, Request
from pinq.policy.policy import Policy
from pinq.provider.history import budget, history
from pinq.provider.opening import curator_of, open_ledger, require_name
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import open_rows
from pinq.public.schema import Schema


class LocalSession:
    """A curator in this process, for one analyst.

    Schema and requests are passed as text, as between processes: the curator computes only with its
    own plain values, not with the analyst's objects.
    """

    def __init__(self, name: str, analyst: str, curator: Curator, policy: Policy | None = None) -> None:
        self.name, self.tables = name, () if policy is None else tuple(policy.tables)
        self.cohorts = None if policy is None else policy.cohorts
        self.schema = Schema.model_validate_json(curator.schema.model_dump_json(by_alias=True))
        self._analyst = analyst
        self._curator: Curator | Any = curator
        ledger = curator.ledger
        place = id(ledger) if ledger.url == "sqlite://" else ledger.url  # of those in memory each is another
        self.account = f"{place} {ledger.dataset if self.tables else name} {analyst}"

    def ask(self, request: Request) -> Answer:
        """The answer of the curator."""
        with self._curator.refusing(self._analyst, str(request.id)):
            return self._curator.ask(self._analyst, Request.received(request.to_json()))

    @unspent()
    def preview(self, request: Request) -> Preview:
        """The cost and the expected error of a request."""
        return self._curator.preview(self._analyst, Request.received(request.to_json()))

    @unspent()
    def attempt(self, request: Request) -> None:
        """Refuses a request that exceeds the remaining budget, and logs the refusal; charges nothing."""
        self._curator.attempt(self._analyst, Request.received(request.to_json()))

    def budget(self, part: str = "") -> Budget:
        """The analyst's budget as the ledger has it now, for queries below a part of the whole table."""
        return budget(self._curator.ledger, self._analyst, self._curator.version_below(part))

    def history(self, start: int = 0) -> list[Asked]:
        """The analyst's own lines of the log, with the answers, without the first ``start``."""
        return list(history(self._curator.ledger, self._analyst, start, self._curator.version))

    def terms(self) -> str:
        """The terms of the analyst's grant, as the ledger has them now."""
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


def open(
    policy: str | os.PathLike[str] | Policy, *, analyst: str, data: Any = None, table: str | None = None
) -> PrivateQueryable:
    """Opens a dataset for an analyst, in this process.

    In one process, code can reach everything. So this handle is for honest analysts: it protects
    them from mistakes.

    Args:
        policy: A policy file, or a loaded policy; reviewed.
        analyst: The analyst's name; needs a grant (``pinq grant``).
        data: A table instead of the policy's source: of Arrow, pandas, polars or DuckDB, or another
            with ``__arrow_c_stream__``. Its rows are read once and not kept.
        table: The table's name, where the policy has several.

    Raises:
        PolicyError: Wrong or unreviewed policy, or a source that does not fit it.
        NotAuthorised: No valid grant.
        LedgerError: A ledger that cannot be trusted.
    """
    import pandas  # noqa: F401 - before anything is asked, as in ``pinq.connect``

    require_name(analyst)
    loaded = load_policy(policy).at(table)
    ledger = open_ledger(loaded, provider=False)
    ledger.authorise(analyst)
    rows = open_rows(loaded, ledger, data)
    curator = curator_of(loaded, ledger, rows.engine, rows.version, rows.closed)
    return PrivateQueryable(LocalSession(loaded.name, analyst, curator, loaded))
