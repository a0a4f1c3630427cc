# SPDX-License-Identifier: Apache-2.0
"""The version of the rows: an engine over a policy's rows, and the number of their version.

A dataset is a sequence of tables, its versions. Equal partitions of two versions are two
partitions, so a query of one version pays for no query of the next (privacy.md 9.1;
pinq/ledger/composition.py).

Privacy:
    Adjacency: sequences of tables that differ by one unit's rows. Claim: both have the same version at each opening.
    Why: a version depends on the provider's declarations (``rows_version``, and all keys of the policy that decide how
    rows are read), on facts of the source's files that change at each writing, and on the number of openings if a
    source has no such facts; never on rows. Sizes of files depend on rows, but each writing changes a file's time too,
    so a size alone never decides. Contents are compared for a declared version alone: if they differ, the dataset is
    open to nobody. Held by: tests/integration/provider/test_versions.py, tests/privacy/test_changing_tables.py.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pinq.engine import ArrayEngine, SparkEngine, open_engine
from pinq.errors import PolicyError, closed_on_error
from pinq.language.parts import Part, closed_parts, no_cohort
from pinq.ledger.events import Begun, Signature, here
from pinq.ledger.ledger import Ledger
from pinq.policy.files import FileFacts, source_facts
from pinq.policy.policy import Policy
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy


@dataclass(frozen=True)
class OpenRows:
    """The rows of one opening.

    Attributes:
        source: The facts of the source's files, from before the files were read.
        closed: The numbers of the closed cohorts' versions, by the keys of their parts.
    """

    engine: ArrayEngine | SparkEngine
    source: tuple[FileFacts, ...]
    version: int
    closed: Mapping[bytes, int] = field(default_factory=dict)


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
    with closed_on_error(engine):
        if data is None and source_facts(policy) != source:
            raise PolicyError(f"The source of {policy.dataset!r} changed while it was read. Open it again.")
        version = version_of(policy, ledger, source, engine)
        closed = {
            part.key: ledger.begin(rows, lambda contents=contents: contents, by=here())  # type: ignore[misc]
            for part, rows, contents in cohorts_of(policy, engine)
        }
        return OpenRows(engine, source, version, closed)


def version_of(
    policy: Policy,
    ledger: Ledger,
    source: tuple[FileFacts, ...],
    engine: ArrayEngine | SparkEngine,
    by: Signature | None = None,
) -> int:
    """Finds the version of an engine's rows, and logs it if it is new; errors as ``Ledger.begin``.

    ``source`` has the facts of the source's files, from before they were read.
    """
    return ledger.begin(rows_of(policy, source), engine.contents, by=by or here())


def cohorts_of(policy: Policy, engine: ArrayEngine | SparkEngine) -> list[tuple[Part, Begun, str]]:
    """Finds each closed cohort: its part, the facts that identify its rows, and their digest."""
    if policy.cohorts is None:
        return []
    parts = closed_parts(policy.cohorts, policy.schema_)
    first = next(iter(parts.values()))
    assert first.partition is not None
    contents, partition = engine.contents_by(first.partition.axes[0]), first.partition.key.hex()
    facts = Begun(0, "", _digest(policy.schema_.row_digest), declared="closed", table=policy.table, partition=partition)
    return [
        (part, replace(facts, why=f"the cohort {name}, closed", cohort=name), digest)
        for (name, part), digest in zip(parts.items(), contents, strict=False)  # later cohorts are open
    ]


def correct(policy: str | os.PathLike[str] | Policy, cohort: str, by: Signature) -> int:
    """Begins a new version of a closed cohort whose rows were corrected; returns its number.

    The cost of answers about its earlier rows stays spent. A person who moved to another cohort lost the cost of both.

    Args:
        policy: The policy, or that of its table.
        cohort: The name of the cohort.
        by: The signature of the act, with a reason.

    Raises:
        QueryError: There is no such closed cohort.
        PolicyError: Its rows did not change.
    """
    loaded = load_policy(policy).at()
    with closing(open_ledger(loaded, create=False, by=by)) as ledger:
        engine, _ = open_engine(loaded, salt=ledger.salt)
        with closing(engine):
            closed = {rows.cohort: (rows, contents) for _, rows, contents in cohorts_of(loaded, engine)}
        if cohort not in closed:
            raise no_cohort(cohort, [*closed])
        rows, contents = closed[cohort]
        before = ledger.log.run(lambda log: log.state.rows.get(rows.place))
        if before is None or before.contents == contents:
            raise PolicyError(f"The rows of the cohort {cohort} are those that it had when it was closed.")
        rows = replace(rows, why=f"the cohort {cohort}, corrected")
        return ledger.begin(rows, lambda: contents, by=by, anew=True)


def rows_of(policy: Policy, source: tuple[FileFacts, ...]) -> Begun:
    """The facts that identify rows; the number of their version is not set yet."""
    # A file is identified by its path relative to the policy, so the whole folder may be moved.
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
