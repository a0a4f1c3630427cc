# SPDX-License-Identifier: Apache-2.0
"""``pinq.open``: an analyst's handle in the provider's own process; ``pinq.simulate``: one on dummy rows."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Closed
from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.errors import QueryError, unspent
from pinq.language.queries import Answer, Asked, Budget, Preview, Request
from pinq.ledger.events import FREE, Terms
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.history import budget, history
from pinq.provider.opening import curator_of, open_ledger, require_name
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import open_rows
from pinq.public.checks import whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema


class LocalSession:
    """A curator in this process, for one analyst; requests are passed as text, as between processes."""

    def __init__(self, name: str, analyst: str, curator: Curator, policy: Policy | None = None) -> None:
        self.name, self.tables = name, () if policy is None else tuple(policy.tables)
        self.cohorts = None if policy is None else policy.cohorts
        self.schema = Schema.model_validate_json(curator.schema.model_dump_json(by_alias=True))
        self._analyst = analyst
        self._curator: Curator | Any = curator
        ledger = curator.ledger
        log = id(ledger) if ledger.url == "sqlite://" else ledger.url  # ledgers in memory have one URL
        self.account = f"{log} {ledger.dataset if self.tables else name} {analyst}"

    def ask(self, request: Request) -> Answer:
        with self._curator.refusing(self._analyst, str(request.id)):
            return self._curator.ask(self._analyst, Request.received(request.to_json()))

    @unspent()
    def preview(self, request: Request) -> Preview:
        return self._curator.preview(self._analyst, Request.received(request.to_json()))

    @unspent()
    def attempt(self, request: Request) -> None:
        """Refuses a request that exceeds the remaining budget, and logs the refusal; charges nothing."""
        self._curator.attempt(self._analyst, Request.received(request.to_json()))

    def budget(self, part: str = "") -> Budget:
        return budget(self._curator.ledger, self._analyst, self._curator.version_below(part))

    def history(self, start: int = 0) -> list[Asked]:
        return list(history(self._curator.ledger, self._analyst, start, self._curator.version))

    def terms(self) -> str:
        return str(self._curator.ledger.grants()[self._analyst].terms)

    def close(self) -> None:
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

    Code in the same process can reach everything. So this handle is for honest analysts: it protects
    from mistakes.

    Args:
        policy: A policy file, or a loaded policy; reviewed.
        analyst: The analyst's name; needs a grant (``pinq grant``).
        data: A table instead of the policy's source: of Arrow, pandas, polars or DuckDB, or an object
            with ``__arrow_c_stream__``. Its rows are read once and not kept.
        table: The table's name, if the policy has several.

    Raises:
        PolicyError: Wrong or unreviewed policy, or a source that does not fit it.
        NotAuthorised: No valid grant.
        LedgerError: A ledger that cannot be trusted.
    """
    import pandas  # noqa: F401 - imported before the first query, as in ``pinq.connect``

    require_name(analyst)
    loaded = load_policy(policy).at(table)
    ledger = open_ledger(loaded, provider=False)
    ledger.authorise(analyst)
    rows = open_rows(loaded, ledger, data)
    curator = curator_of(loaded, ledger, rows.engine, rows.version, rows.closed)
    return PrivateQueryable(LocalSession(loaded.name, analyst, curator, loaded))


MAX_ROWS = 10**8
UNLIMITED = 2**63


def simulate(
    schema: Schema | Policy | str | os.PathLike[str],
    *,
    rows: int = 10_000,
    epsilon: EpsilonLike = 1.0,
    data: Any = None,
    seed: int = 0,
    table: str | None = None,
) -> PrivateQueryable:
    """Opens a handle on dummy rows, for the trial of a script before it spends anything.

    Args:
        schema: A handle's ``schema``, a policy, or a policy file.
        rows: The number of dummy rows.
        epsilon: The budget, enforced like a real one.
        data: Rows that fit the schema, for example public rows, instead of dummy rows.
        seed: Seed of the dummy rows. It never affects the noise.
        table: The table's name, if ``schema`` is a policy of several.

    Returns:
        A handle named ``simulated``. Its answers say nothing about any real table.

    Raises:
        QueryError: An unknown table, or no name where the policy has several tables.

    Examples:
        >>> import pinq
        >>> pinq.simulate("policies/adult.yaml", rows=1000, epsilon=2)
        PrivateQueryable(simulated; 13 columns, Budget(epsilon=2, spent=0, remaining=2))
    """
    if not isinstance(schema, Schema):
        schema = load_policy(schema).at(table).schema_
    elif table is not None:
        raise QueryError(f"is {table!r}; a schema is of one table, without a name", parameter="table")
    rows = whole_number("rows", rows, 0, MAX_ROWS)
    budget = Epsilon.of(epsilon)
    ledger = Ledger("sqlite://", "simulated")
    ledger.declare(schema.digest, budget, {})
    ledger.grant("simulated", budget, terms=Terms(stored_bytes=UNLIMITED))  # the ledger ends with the handle
    # Dummy rows have no persons. Epsilon keeps its meaning: the schema decides the distance of neighbours.
    columns = {name: column.as_given for name, column in schema.columns.items()}
    policy = Policy(dataset="simulated", cap=Decimal(10**6), max_rows=schema.max_rows, columns=columns, folder=Path())
    table = dummy_rows(schema, rows, seed) if data is None else data
    engine, _ = open_engine(policy, data=table, salt=ledger.salt)
    return PrivateQueryable(_Simulated("simulated", "simulated", Curator(schema, ledger, engine)))


class _Simulated(LocalSession):
    def terms(self) -> str:
        """No terms: the limit of stored bytes does not matter for a temporary ledger."""
        _ = self.budget()  # raises if the session is closed
        return str(FREE)


def dummy_rows(schema: Schema, rows: int, seed: int = 0) -> pa.Table:
    """Makes random dummy rows.

    Each column has a random skew and depends on one hidden number, so miners find a pattern.

    Returns:
        An Arrow table of ``rows`` rows. With a privacy unit it has the unit's column too, and each
        unit has ``max_rows`` rows.
    """
    random = np.random.default_rng(seed)
    hidden = random.random(rows)
    columns: dict[str, pa.Array] = {}
    for name, column in schema.columns.items():
        leaning = np.clip(hidden + random.normal(0, random.uniform(0.1, 0.6), rows), 0, 1 - 1e-9)
        codes = (leaning ** random.uniform(0.7, 2.5) * column.cells).astype(np.int64)
        missing = random.random(rows) < 0.05 if column.nullable else np.zeros(rows, dtype=bool)
        if column.type != "categorical":
            within = 0 if column.integer else random.random(rows)  # the place of a number in its cell
            lower, upper = float(column.lower), float(column.upper)
            values = np.clip(lower + (codes + within) * float(column.width), lower, upper)
            columns[name] = pa.array(column.shown(values), mask=missing)
        else:
            texts = np.array(list(column.texts), dtype=object)
            columns[name] = pa.array(texts[codes], pa.string(), mask=missing)
    if schema.bounded_unit is not None:
        # With at most three rows each, rows 0 to 2 are unit 0, and rows 3 to 5 unit 1.
        columns[schema.bounded_unit.column] = pa.array(np.arange(rows) // schema.bounded_unit.max_rows)
    return pa.table(columns)
