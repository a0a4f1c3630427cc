# SPDX-License-Identifier: Apache-2.0
"""``pinq.simulate``: a free handle on dummy rows, with the methods, noise and refusals of a real one, and no log."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pinq.analyst.queryable import PrivateQueryable
from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.ledger.events import FREE, Terms
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.local import LocalSession
from pinq.provider.policy_file import load_policy
from pinq.public.checks import whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema

MAX_ROWS = 10**8
UNLIMITED = 2**63


def simulate(
    schema: Schema | Policy | str | os.PathLike[str],
    *,
    rows: int = 10_000,
    epsilon: EpsilonLike = 1.0,
    data: Any = None,
    seed: int = 0,
) -> PrivateQueryable:
    """Opens a handle on dummy rows, for the trial of a script before it spends anything.

    Args:
        schema: A handle's ``schema``, a policy, or a policy file.
        rows: The number of dummy rows.
        epsilon: The budget, enforced like a real one.
        data: Rows that fit the schema, for example public rows, instead of dummy rows.
        seed: Seed of the dummy rows. It never affects the noise.

    Returns:
        A handle named ``simulated``. Its answers say nothing about any real table.

    Examples:
        >>> import pinq
        >>> pinq.simulate("policies/adult.yaml", rows=1000, epsilon=2)
        PrivateQueryable(simulated; 13 columns, Budget(epsilon=2, spent=0, remaining=2))
    """
    if not isinstance(schema, Schema):
        schema = load_policy(schema).at().schema_
    rows = whole_number("rows", rows, 0, MAX_ROWS)
    budget = Epsilon.of(epsilon)
    ledger = Ledger("sqlite://", "simulated")
    ledger.declare(schema.digest, budget, {})
    ledger.grant("simulated", budget, terms=Terms(stored_bytes=UNLIMITED))  # it is gone with the handle
    # Dummy rows have no persons; epsilon keeps its meaning, for neighbours stay as far apart as
    # the schema says.
    given = {name: column.as_given for name, column in schema.columns.items()}
    policy = Policy(dataset="simulated", cap=Decimal(10**6), max_rows=schema.max_rows, columns=given, folder=Path())
    table = dummy_rows(schema, rows, seed) if data is None else data
    engine, _ = open_engine(policy, data=table, salt=ledger.salt)
    return PrivateQueryable(_Simulated("simulated", "simulated", Curator(schema, ledger, engine)))


class _Simulated(LocalSession):
    def terms(self) -> str:
        """No terms: the limit of stored bytes does not matter for a ledger that is gone soon."""
        _ = self.budget()  # a closed one refuses
        return str(FREE)


def dummy_rows(schema: Schema, rows: int, seed: int = 0) -> pa.Table:
    """Makes random dummy rows.

    Each column has its own skew and depends on one hidden number, so miners find a pattern in the
    rows.

    Returns:
        An Arrow table of ``rows`` rows. With a privacy unit it has the unit's column too, and each
        unit has the largest number of rows that it may have.
    """
    random = np.random.default_rng(seed)
    hidden = random.random(rows)
    columns: dict[str, pa.Array] = {}
    for name, column in schema.columns.items():
        leaning = np.clip(hidden + random.normal(0, random.uniform(0.1, 0.6), rows), 0, 1 - 1e-9)
        codes = (leaning ** random.uniform(0.7, 2.5) * column.cells).astype(np.int64)
        missing = random.random(rows) < 0.05 if column.nullable else np.zeros(rows, dtype=bool)
        if column.type != "categorical":
            within = 0 if column.integer else random.random(rows)  # where in its cell a number lies
            lower, upper = float(column.lower), float(column.upper)
            values = np.clip(lower + (codes + within) * float(column.width), lower, upper)
            columns[name] = pa.array(column.shown(values), mask=missing)
        else:
            texts = np.array(list(column.texts), dtype=object)
            columns[name] = pa.array(texts[codes], pa.string(), mask=missing)
    if schema.bounded_unit is not None:
        # Of at most three rows each: rows 0 to 2 are unit 0, rows 3 to 5 unit 1.
        columns[schema.bounded_unit.column] = pa.array(np.arange(rows) // schema.bounded_unit.max_rows)
    return pa.table(columns)
