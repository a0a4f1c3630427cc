# SPDX-License-Identifier: Apache-2.0
"""Public tables in which a column's values are looked up, read once when a policy is.

Privacy:
    A table is public: it may be read, checked and refused before anything private is. Each key
    stands in it once, so a row finds one value or none, by itself: stability 1. Its pairs are part
    of the column's domain by their digest: another table makes another column, and the charges of
    the two add up.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import duckdb

from pinq.engine.sources import literal, quoted
from pinq.errors import PolicyError
from pinq.public.checks import closest
from pinq.public.columns import Lookup
from pinq.public.policy import Policy

__all__ = ["with_lookups"]

MAX_PAIRS = 10**6


def with_lookups(policy: Policy) -> Policy:
    """Reads the lookup tables of a policy.

    Returns:
        The policy with their pairs, and in each column the digest of its own.

    Raises:
        PolicyError: A table cannot be read, has a key twice, or is not the one that was declared.
    """
    pairs, columns = dict(policy.lookups), dict(policy.columns)
    for name, column in policy.columns.items():
        if column.lookup is not None and name not in pairs:
            pairs[name] = _pairs(policy.folder / column.lookup.file, column.lookup, name)
            lookup = _pinned(column.lookup, pairs[name], name)
            columns[name] = column.model_copy(update={"lookup": lookup})
    return policy.model_copy(update={"columns": columns, "lookups": pairs}) if pairs != policy.lookups else policy


def _pairs(file: Path, lookup: Lookup, name: str) -> dict[str, str]:
    """The pairs of a table, as texts. A row without key or value is passed over."""
    where = f"The lookup table {file} of column {name!r}"
    if not _is_file(file):
        raise PolicyError(f"{where} is not there.")
    text = f"read_csv({literal(str(file))}, header = true, all_varchar = true)"
    table = f"read_parquet({literal(str(file))})" if file.suffix == ".parquet" else text
    with duckdb.connect() as connection:
        try:
            known = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()]
            for column in (lookup.key, lookup.value):
                if column not in known:
                    raise PolicyError(f"{where} has no column {column!r}{closest(column, known)}.")
            # One row more than is allowed tells a table that is too long from one that is just as
            # long.
            fields = ", ".join(f"CAST({quoted(column)} AS VARCHAR)" for column in (lookup.key, lookup.value))
            rows = connection.execute(f"SELECT {fields} FROM {table} LIMIT {MAX_PAIRS + 1}").fetchall()
        except duckdb.Error as error:
            raise PolicyError(f"{where} cannot be read: {str(error).splitlines()[0]}") from None
    if len(rows) > MAX_PAIRS:
        raise PolicyError(f"{where} has more than {MAX_PAIRS:,} rows.")
    pairs: dict[str, str] = {}
    for key, value in rows:
        if key is not None and value is not None and pairs.setdefault(key, value) != value:
            raise PolicyError(f"{where} has the key {key!r} twice, with different values.")
    return pairs


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _pinned(lookup: Lookup, pairs: dict[str, str], name: str) -> Lookup:
    digest = hashlib.blake2b(json.dumps(sorted(pairs.items())).encode(), digest_size=16).hexdigest()
    if lookup.digest not in (None, digest):
        raise PolicyError(
            f"The lookup table of column {name!r} has the digest {digest}, and the policy declares {lookup.digest}. "
            "With another table it is another column: declare its digest, or leave `digest` out."
        )
    return lookup.model_copy(update={"digest": digest})
