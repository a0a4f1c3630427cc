# SPDX-License-Identifier: Apache-2.0
"""Where a policy's source is: its real files, and whether they are delimited text."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pinq.public.dialect import Dialect, is_delimited
from pinq.public.policy import Policy, SparkTable

__all__ = ["source_dialect", "source_files", "source_path", "state_folder"]

_OWN = re.compile(r"\.(ledger(-wal|-shm|\.head)?|claim)$")


def source_path(policy: Policy) -> Path | None:
    """Returns where the source is, links resolved.

    Of a pattern the folder is resolved. None for data that the caller passes, or that Spark has.
    """
    if policy.source is None or isinstance(policy.source, SparkTable):
        return None
    path = policy.folder / (policy.source if isinstance(policy.source, str) else policy.source.database)
    if _is_pattern(path):
        return Path(os.path.realpath(path.parent)) / path.name
    return Path(os.path.realpath(path))


def source_files(policy: Policy) -> list[Path]:
    """Returns the real files of the source.

    They are what a pattern matches (ledgers and claims never), else the one path, there or not.
    """
    path = source_path(policy)
    if path is None:
        return []
    if not isinstance(policy.source, str) or not _is_pattern(path):
        return [path]
    matches = (file for file in path.parent.glob(path.name) if file.is_file() and not _OWN.search(file.name))
    return sorted({Path(os.path.realpath(file)) for file in matches})


def source_dialect(policy: Policy) -> Dialect | None:
    """Returns how the source is written, where it is delimited text.

    It is where its (first) file's name says so, or the policy.
    """
    if policy.csv is not None or not isinstance(policy.source, str):
        return policy.csv
    return Dialect() if any(is_delimited(file.name) for file in source_files(policy)[:1]) else None


def state_folder() -> Path:
    """Returns the provider's folder for what belongs beside no source."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pinq"


def _is_pattern(path: Path) -> bool:
    return any(sign in path.name for sign in "*?[")
