# SPDX-License-Identifier: Apache-2.0
"""Where the codes of a large source are kept, and what says that they still are right.

One file in the provider's state folder holds them (``mapped.py``). It is written under a name that
nobody else has, readable by its owner alone, and renamed when it is whole. What was written is what
is opened, whoever else writes one meanwhile. Each of the source's files has a fingerprint of its
content, of what the policy declares, of the salt and of the encoder: it says whether the codes that
are kept of it are what encoding would make. So of a source that grew by files, only these are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from pinq.engine.codes import RowBlock
from pinq.engine.mapped import FileCodes, MappedCodes, map_codes, write_codes
from pinq.engine.sources import file_facts, source_path, state_folder
from pinq.public.policy import Policy

__all__ = ["CodesFile", "digest_of", "fingerprints"]

PART = ".part"  # ends the name of a file that is being written


def digest_of(*folders: Path) -> str:
    """Returns a digest of the modules in some folders: their source, or what was compiled of it."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(file for folder in folders for file in folder.glob("*.py*")):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


# What decides a row's codes, the engine and what both sides know, as it is when it is loaded.
ENCODER = digest_of(Path(__file__).parent, Path(__file__).parents[1] / "public")


def fingerprints(policy: Policy, salt: bytes, files: Sequence[Path]) -> list[str]:
    """Identifies what encoding makes of each of a source's files.

    Args:
        policy: What it declares of columns, unit and text counts, and not how it names the files.
        salt: Keys the hashes of units.
        files: As they are now.
    """
    declared = policy.model_dump_json(include={"columns", "privacy_unit", "csv"})
    table = None if policy.database is None else policy.database.model_dump()
    common = hashlib.blake2b(
        json.dumps([ENCODER, duckdb.__version__, declared, table]).encode(), key=hashlib.blake2b(salt).digest()
    )
    prints = []
    for file in files:
        own = common.copy()
        beside = file.with_name(file.name + ".wal")  # a database's latest rows
        own.update(json.dumps([file_facts(file), file_facts(beside)]).encode())
        prints.append(own.hexdigest())
    return prints


class CodesFile:
    """Where the codes of a policy's source are kept, in the provider's state folder.

    Args:
        policy: Whose source. What a list of files begins with names it, so that it may grow.
    """

    def __init__(self, policy: Policy) -> None:
        self._schema = policy.schema_
        name = hashlib.blake2b(f"{policy.dataset} {_named(policy)}".encode(), digest_size=8)
        self.path = state_folder() / f"{name.hexdigest()}-{policy.dataset}.codes"

    def make_folder(self) -> bool:
        """Makes the folder where there is none; says whether others cannot write there."""
        folder = self.path.parent
        for above in reversed((folder, *folder.parents)):
            above.mkdir(exist_ok=True, mode=0o700)
        facts = folder.stat()
        if facts.st_uid == os.geteuid() and not facts.st_mode & 0o022:
            folder.chmod(0o700)
        return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022 and os.access(folder, os.W_OK)

    def mapped(self) -> MappedCodes | None:
        """Maps the codes that were written; None where there are none, or a damaged file is."""
        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                return map_codes(file, self._schema, self.forget)
        except (OSError, ValueError):
            return None

    def written(
        self, blocks: Iterable[RowBlock], files: Sequence[FileCodes], unchanged: Callable[[], None], *, units: bool
    ) -> MappedCodes:
        """Writes codes, in place of those that were there, and maps them.

        Args:
            blocks: The codes; see ``write_codes``.
            files: What they have of each of the source's files; read when all blocks are there.
            unchanged: Called when all is written; where it raises, the file is not kept.
            units: Whether units' hashes are among the columns.
        """
        descriptor, name = self._part()
        with os.fdopen(descriptor, "w+b") as file:
            try:
                write_codes(file, blocks, files, units=units)
                mapped = map_codes(file, self._schema, self.forget)
                unchanged()
                os.replace(name, self.path)
            finally:
                Path(name).unlink(missing_ok=True)
        return mapped

    def _part(self) -> tuple[int, str]:
        """Makes and locks a file with a name of its own to be written."""
        while True:
            descriptor, name = tempfile.mkstemp(prefix=f"{self.path.name}.", suffix=PART, dir=self.path.parent)
            _lock(descriptor)
            if Path(name).exists():  # else it was swept before it was locked
                return descriptor, name
            os.close(descriptor)

    @staticmethod
    def sweep() -> None:
        """Deletes what processes that were killed while they wrote codes of any source have left behind.

        A file is locked while it is written, and the system takes a lock from a process that ends.
        """
        for file in state_folder().glob(f"*{PART}"):
            with suppress(OSError), file.open("rb") as left:  # being written, or swept by somebody else
                _lock(left.fileno(), fails=True)
                file.unlink()

    def forget(self) -> None:
        """Deletes codes that are of no use any more."""
        self.path.unlink(missing_ok=True)


def _lock(descriptor: int, *, fails: bool = False) -> None:
    """Locks a file until it is closed. Where another process has it locked it waits, or ``fails``: ``OSError``."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if fails else 0))


def _named(policy: Policy) -> str:
    table = "" if policy.database is None else policy.database.model_dump_json()
    return f"{source_path(policy)} {table}"
