# SPDX-License-Identifier: Apache-2.0
"""Where a policy's source is: its real files, and whether they are delimited text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pinq.errors import PolicyError
from pinq.public.dialect import Dialect, is_delimited
from pinq.public.policy import Policy

__all__ = [
    "FileFacts",
    "file_facts",
    "missing_path",
    "source_dialect",
    "source_facts",
    "source_files",
    "source_grows",
    "source_path",
    "state_folder",
]

FileFacts = tuple[str | int, ...]
"""A file's path, and what changes with its content; the path alone where there is no file."""

_OWN = re.compile(r"\.(ledger(-wal|-shm|\.head)?|claim)$")


def source_path(policy: Policy) -> Path | None:
    """Returns where the source is, links resolved; of a list, where its first entry is.

    Of a pattern the folder is resolved. None for data that the caller passes, or that Spark has.
    """
    return next(iter(_paths(policy)), None)


def source_files(policy: Policy) -> list[Path]:
    """Returns the real files of the source, each once.

    They are what its patterns match and its folders hold (ledgers and claims never), and each
    other path that it names, there or not. In a folder, what begins with ``.`` or ``_`` is left out.

    Raises:
        PolicyError: A folder holds a file that is no table.
    """
    return sorted({file for path in _paths(policy) for file in _files_of(path, policy)})


def source_grows(policy: Policy) -> bool:
    """Says whether files can join the source that no other file replaces."""
    paths = _paths(policy)
    return len(paths) > 1 or any(_is_pattern(path) or path.is_dir() for path in paths)


def missing_path(policy: Policy) -> Path | None:
    """Returns the first path of the source at which there is no file; None where there is none."""
    for path in _paths(policy):
        files = list(_files_of(path, policy))
        if not files or not all(file.exists() for file in files):
            return path
    return None


def source_facts(policy: Policy) -> tuple[FileFacts, ...]:
    """Returns what changes with the content of the source's files, and reads none of them."""
    files = source_files(policy)
    beside = [file.with_name(file.name + ".wal") for file in files]  # a database's latest rows
    return tuple(map(file_facts, (*files, *beside)))


def file_facts(file: Path) -> FileFacts:
    """Returns a file's path, and what changes with its content."""
    try:
        facts = file.stat()
    except OSError:
        return (str(file),)
    return (str(file), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def source_dialect(policy: Policy) -> Dialect | None:
    """Returns how the source is written, where it is delimited text.

    It is where its files' names say so, or the policy.

    Raises:
        PolicyError: Some of them are delimited text, others are not.
    """
    if policy.csv is not None or not policy.named_paths:
        return policy.csv
    files = source_files(policy)
    text = [is_delimited(file.name) for file in files]
    if any(text) and not all(text):
        lines, table = files[text.index(True)], files[text.index(False)]
        raise PolicyError(
            f"The files of {policy.dataset!r} are of two kinds, such as {lines.name} and {table.name}; "
            "name files of one kind."
        )
    return Dialect() if any(text) else None


def state_folder() -> Path:
    """Returns the provider's folder for what belongs beside no source."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pinq"


def _paths(policy: Policy) -> list[Path]:
    """The paths that the source names, links resolved."""
    if policy.database is not None:
        return [Path(os.path.realpath(policy.folder / policy.database.database))]
    return [_resolved(policy.folder / path) for path in policy.named_paths]


def _resolved(path: Path) -> Path:
    if _is_pattern(path):
        return Path(os.path.realpath(path.parent)) / path.name
    return Path(os.path.realpath(path))


def _files_of(path: Path, policy: Policy) -> Iterator[Path]:
    """Yields the real files at one path, some of them twice where links lead to them."""
    if policy.database is not None:
        yield path
    elif _is_pattern(path):
        yield from (Path(os.path.realpath(file)) for file in path.parent.glob(path.name) if _is_data(file))
    elif path.is_dir():
        for file in path.rglob("*"):
            hidden = any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
            if not hidden and _is_data(file):
                _require_table(file, policy)
                yield Path(os.path.realpath(file))
    else:
        yield path


def _is_data(file: Path) -> bool:
    return file.is_file() and not _OWN.search(file.name)


def _require_table(file: Path, policy: Policy) -> None:
    """``PolicyError`` for a file that seems to be no table and is in a folder by mistake."""
    if policy.csv is None and not is_delimited(file.name) and not file.name.lower().endswith(".parquet"):
        raise PolicyError(
            f"The folder of {policy.dataset!r} holds {file.name}, which is named neither .parquet nor .csv nor .tsv. "
            "Keep other files elsewhere, or name the table's files by a pattern."
        )


def _is_pattern(path: Path) -> bool:
    return any(sign in path.name for sign in "*?[")
