# SPDX-License-Identifier: Apache-2.0
"""The version of the rows: an engine over a policy's rows, and the number of their version.

A dataset is a sequence of tables, its versions. Equal partitions of two versions are two
partitions, so a query of one version pays for no query of the next (privacy.md 9.1;
pinq/ledger/composition.py).

Privacy:
    Adjacency: sequences of tables that differ by one unit's rows. Claim: which version an opening
    has is the same for both. Why: it follows from what the provider declares (``rows_version``, and
    what else in the policy decides how rows are read), from facts of the source's files that change
    by writing, whatever was written, and from the number of openings where a source has no such
    facts; never from what the rows are. Sizes of files follow rows, so two tables of
    one size may be told from two of different sizes only where nothing else of these facts changed;
    but a file is never written without its time of change. Contents are compared for a declared
    version alone: where they differ the dataset is not open to anybody.
    Held by: tests/integration/provider/test_versions.py, tests/privacy/test_changing_tables.py.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pinq.engine import ArrayEngine, SparkEngine, open_engine
from pinq.engine.sources import FileFacts, source_facts
from pinq.errors import PolicyError
from pinq.ledger.events import Begun, Signature, here
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy


@dataclass(frozen=True)
class OpenRows:
    """The rows of one opening.

    Attributes:
        engine: The engine that counts them.
        source: The facts of the source's files, from before the files were read.
        version: The number of their version.
    """

    engine: ArrayEngine | SparkEngine
    source: tuple[FileFacts, ...]
    version: int


def open_rows(policy: Policy, ledger: Ledger, data: object = None) -> OpenRows:
    """Encodes a policy's source and finds the version of its rows.

    Args:
        policy: The reviewed policy.
        ledger: The ledger of the dataset.
        data: A table to encode instead; None for the policy's source.

    Raises:
        PolicyError: As ``open_engine``; or the rows changed under a declared version.
    """
    policy = policy.at()
    source = source_facts(policy) if data is None else ()
    engine, _ = open_engine(policy, data=data, salt=ledger.salt)
    try:
        if data is None and source_facts(policy) != source:
            raise PolicyError(f"The source of {policy.dataset!r} changed while it was read. Open it again.")
        return OpenRows(engine, source, version_of(policy, ledger, source, engine))
    except BaseException:
        engine.close()
        raise


def version_of(
    policy: Policy,
    ledger: Ledger,
    source: tuple[FileFacts, ...],
    engine: ArrayEngine | SparkEngine,
    by: Signature | None = None,
) -> int:
    """Finds the version of rows that were read, and logs it if it is new; errors as ``Ledger.begin``.

    Args:
        policy: The policy under which they were read.
        ledger: The ledger of the dataset.
        source: The facts of the source's files, from before the files were read; empty without files.
        engine: The engine with the rows.
        by: The signature of the act; by default this process's user's.
    """
    return ledger.begin(rows_of(policy, source), engine.contents, by=by or here())


def rows_of(policy: Policy, source: tuple[FileFacts, ...]) -> Begun:
    """The facts that identify rows; the number of their version is not known yet."""
    # A file is known by its place from the policy on, so a folder may be moved with all that is in it.
    files = [[os.path.relpath(str(name), policy.folder), *facts] for name, *facts in source]
    return Begun(
        number=0,
        why=_words(policy, source),
        reading=_digest(policy.reading),
        source=_digest(files) if source else "",
        declared=policy.rows_version or "",
        columns=policy.schema_.row_digest if policy.rows_version else "",
        table=policy.table,
    )


def _words(policy: Policy, source: tuple[FileFacts, ...]) -> str:
    """The facts in words."""
    if policy.rows_version:
        return f"declared as {policy.rows_version!r}"
    written = [int(facts[2]) for facts in source if len(facts) > 1]
    if not written:
        return "opened anew, of a source without files"
    files = f"{len(written):,} files, the last" if len(written) > 1 else f"{Path(str(source[0][0])).name},"
    at = datetime.fromtimestamp(max(written) / 1e9, UTC).isoformat(timespec="seconds")
    return f"{files} written at {at}"


def _digest(facts: object) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
