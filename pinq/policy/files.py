# SPDX-License-Identifier: Apache-2.0
"""The files of a policy's source: their paths, their form, and facts that change with them. None is read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from pinq.errors import PolicyError
from pinq.policy.dialect import TABLE_FILES, Dialect, is_text
from pinq.policy.policy import Policy

FileFacts = tuple[str | int, ...]
"""A file's path, and facts that change with its content; the path alone for a missing file."""

_OWN = re.compile(r"\.(ledger(-wal|-shm|\.head)?|claim)$")


def source_path(policy: Policy) -> Path | None:
    """Returns the path of the source, or of the first entry of a list, with links resolved.

    Only the folder of a pattern is resolved. None for the caller's data, or for a table of Spark.
    """
    return next(iter(_paths(policy)), None)


def source_files(policy: Policy) -> list[Path]:
    """Returns the real files of the source, each once.

    Patterns and folders give the files that they hold, without ledgers, claims and names that begin with
    ``.`` or ``_`` (in folders). Every other path gives itself, even if the file is missing.

    Raises:
        PolicyError: A folder holds a file that is no table, or cannot be listed.
    """
    try:
        tables = tables_of(policy)
        return sorted({file for table in tables for path in _paths(table) for file in _files_of(path, table)})
    except OSError as error:
        why = error.strerror or "the disk failed"
        raise PolicyError(f"The files of {policy.dataset!r} cannot be listed: {why}.") from None


def missing_path(policy: Policy) -> Path | None:
    """Returns the first path of the source without a file; None if every path has one."""
    for table in tables_of(policy):
        for path in _paths(table):
            files = list(_files_of(path, table))
            if not files or not all(file.exists() for file in files):
                return path
    return None


def source_facts(policy: Policy) -> tuple[FileFacts, ...]:
    """Returns facts that change with the content of the source's files, without reading them."""
    return tuple(fact for file in source_files(policy) for fact in facts_with_log(file))


def facts_with_log(file: Path) -> tuple[FileFacts, ...]:
    """Returns the facts of a file and of its write-ahead logs, which a database may have.

    SQLite leaves an empty log after reading, and may change the owner of a log; neither counts as a change.
    """
    log, sqlite_log = (file_facts(file.with_name(file.name + end)) for end in (".wal", "-wal"))
    return (file_facts(file), log, *([sqlite_log[:3]] if sqlite_log[1:] and sqlite_log[1] else []))


def file_facts(file: Path) -> FileFacts:
    """Returns a file's path, and facts that change with its content."""
    try:
        facts = file.stat()
    except OSError:
        return (str(file),)
    return (str(file), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def source_dialect(policy: Policy) -> Dialect | None:
    """Returns the dialect of a source that is read as text (delimited text, sheets of workbooks); else None.

    The names of its files, or the policy, decide whether it is text.

    Raises:
        PolicyError: Some of its files are text, others are not.
    """
    if policy.csv is not None or not policy.named_paths:
        return policy.csv
    files = source_files(policy)
    text = [is_text(file.name) for file in files]
    if any(text) and not all(text):
        lines, table = files[text.index(True)], files[text.index(False)]
        raise PolicyError(
            f"The files of {policy.dataset!r} are of two kinds, such as {lines.name} and {table.name}; "
            "name files of one kind."
        )
    return Dialect() if any(text) else None


def state_folder() -> Path:
    """Returns the provider's folder for files that do not lie beside a source."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pinq"


def tables_of(policy: Policy) -> Iterable[Policy]:
    """The tables whose files a table reads: the table itself, or the tables that its SELECT joins."""
    return (policy,) if policy.joined is None else policy.joined.tables.values()


def _paths(policy: Policy) -> list[Path]:
    """The paths that the source names, with links resolved."""
    if policy.database is not None:
        return [Path(os.path.realpath(policy.folder / policy.database.database))]
    return [_resolved(policy.folder / path) for path in policy.named_paths]


def _resolved(path: Path) -> Path:
    if _is_pattern(path):
        return Path(os.path.realpath(path.parent)) / path.name
    return Path(os.path.realpath(path))


def _files_of(path: Path, policy: Policy) -> Iterator[Path]:
    """Yields the real files at one path; a file with links to it may come twice."""
    if policy.database is not None:
        yield path
    elif _is_pattern(path):
        yield from (Path(os.path.realpath(file)) for file in path.parent.glob(path.name) if _is_data(file))
    elif _is_folder(path):
        for file in path.rglob("*"):
            if not _is_data(file) or any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
                continue
            if policy.csv is None and not is_text(file.name) and not file.name.lower().endswith(".parquet"):
                raise PolicyError(
                    f"The folder of {policy.dataset!r} holds {file.name}, which is no table of a kind that is read: "
                    f"{TABLE_FILES}. Keep other files elsewhere, or name the table's files by a pattern."
                )
            yield Path(os.path.realpath(file))
    else:
        yield path


def _is_folder(path: Path) -> bool:
    """Whether a folder lies there. A path that the disk refuses is an error, which Python 3.14's ``is_dir`` hides."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_data(file: Path) -> bool:
    return file.is_file() and not _OWN.search(file.name)


def _is_pattern(path: Path) -> bool:
    return any(sign in path.name for sign in "*?[")
