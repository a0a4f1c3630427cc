# SPDX-License-Identifier: Apache-2.0
"""Codes of a large table in a file that is mapped into memory: written once, opened at once.

::

    codes of column 0 of the first 2^18 rows | of column 1 | ... | of the next 2^18 rows | ...
    | footer: JSON | its length, 8 bytes | "pinq-codes"

The file holds codes and nothing raw. It is written under a name that nobody else has, readable by
its owner alone, and renamed when it is whole. What was written is what is opened, whoever else
writes one meanwhile. A fingerprint of source, policy, salt and encoder says whether it still is
what encoding would make.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import duckdb
import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from pinq.engine.codes import BLOCK_ROWS, Block, Codes, kinds_of
from pinq.engine.sources import source_files, source_path, state_folder
from pinq.public.policy import Policy

__all__ = ["CodesFile", "blocks_of", "digest_of", "map_codes", "write_codes"]

_END = b"pinq-codes"
_ALIGNED = 64
# No writer pauses for so long.
ABANDONED_SECONDS = 86_400


def digest_of(*folders: Path) -> str:
    """Returns a digest of the modules in some folders: their source, or what was compiled of it."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(file for folder in folders for file in folder.glob("*.py*")):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


# What decides a row's codes, the engine and what both sides know, as it is when it is loaded.
ENCODER = digest_of(Path(__file__).parent, Path(__file__).parents[1] / "public")


class CodesFile:
    """Where the codes of a policy's source are kept, in the provider's state folder.

    Args:
        policy: Whose source.
        salt: Keys the hashes that choose a unit's rows.
    """

    def __init__(self, policy: Policy, salt: bytes) -> None:
        self._policy, self._salt = policy, salt
        name = hashlib.blake2b(f"{policy.dataset} {policy.source} {source_path(policy)}".encode(), digest_size=8)
        self.path = state_folder() / f"{name.hexdigest()}-{policy.dataset}.codes"

    @property
    def fingerprint(self) -> str:
        """Identifies what encoding reads: the source's files as they are, policy, salt, encoder."""
        files = source_files(self._policy)
        beside = [file.with_name(file.name + ".wal") for file in files]  # a database's latest rows
        declared = self._policy.model_dump_json(include={"columns", "privacy_unit", "source", "csv"})
        text = json.dumps([ENCODER, duckdb.__version__, declared, [*map(_as_it_is, (*files, *beside))]])
        return hashlib.blake2b(text.encode(), key=hashlib.blake2b(self._salt).digest()).hexdigest()

    def make_folder(self) -> bool:
        """Makes the folder where there is none; says whether others cannot write there."""
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = folder.stat()
        return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022 and os.access(folder, os.W_OK)

    def reopened(self, fingerprint: str) -> Codes | None:
        """Opens the codes that were written; None where there are none, or other ones."""
        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                return map_codes(file, self._policy, fingerprint)
        except (OSError, ValueError):
            return None

    def written(self, blocks: Iterable[Block], fingerprint: str) -> Codes:
        """Writes codes, in place of those that were there, and opens them.

        Args:
            blocks: The codes.
            fingerprint: Taken before the source was opened. Where it is another one by the time
                that all is written, the file is not kept.
        """
        self._sweep()
        descriptor, name = tempfile.mkstemp(prefix=f"{self.path.name}.", dir=self.path.parent)
        with os.fdopen(descriptor, "w+b") as file:
            try:
                write_codes(file, blocks, fingerprint)
                codes = map_codes(file, self._policy, fingerprint)
                if self.fingerprint == fingerprint:
                    os.replace(name, self.path)
            finally:
                Path(name).unlink(missing_ok=True)
        return codes

    def _sweep(self) -> None:
        """Deletes what processes that were killed while they wrote have left behind."""
        for file in self.path.parent.glob(f"{self.path.name}.*"):
            with suppress(FileNotFoundError):  # another writer sweeps too
                if file.lstat().st_mtime < time.time() - ABANDONED_SECONDS:
                    file.unlink()

    def forget(self) -> None:
        """Deletes codes that are of no use any more."""
        self.path.unlink(missing_ok=True)


def _as_it_is(file: Path) -> tuple[str | int, ...]:
    """Returns what changes with a file's content; its path alone where none can be looked at."""
    try:
        facts = file.stat()
    except OSError:
        return (str(file),)
    return (str(file), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def blocks_of(columns: Iterable[Mapping[Any, np.ndarray]]) -> Iterator[Block]:
    """Yields blocks of ``BLOCK_ROWS`` rows, the last of fewer, from batches of any size."""
    waiting: list[Mapping[Any, np.ndarray]] = []
    rows = 0
    for batch in columns:
        waiting.append(batch)
        rows += len(next(iter(batch.values())))
        if rows >= BLOCK_ROWS:
            joined = _joined(waiting)
            for start in range(0, rows - BLOCK_ROWS + 1, BLOCK_ROWS):
                yield Block({name: codes[start : start + BLOCK_ROWS] for name, codes in joined.items()}, BLOCK_ROWS)
            rest = rows - rows % BLOCK_ROWS
            waiting, rows = [{name: codes[rest:] for name, codes in joined.items()}], rows % BLOCK_ROWS
    if rows:
        yield Block(_joined(waiting), rows)


def _joined(batches: list[Mapping[Any, np.ndarray]]) -> Mapping[Any, np.ndarray]:
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([columns[name] for columns in batches]) for name in batches[0]}


def write_codes(file: IO[bytes], blocks: Iterable[Block], fingerprint: str) -> None:
    """Writes codes to an empty file."""
    rows = 0
    for block in blocks:
        for codes in block.columns.values():
            file.write(codes.tobytes())
            file.write(bytes(-codes.nbytes % _ALIGNED))
        rows += block.rows
    footer = _Footer(rows=rows, fingerprint=fingerprint).model_dump_json().encode()
    file.write(footer + len(footer).to_bytes(8, "little") + _END)
    file.flush()
    os.fsync(file.fileno())


class _Footer(BaseModel):
    """What stands at a file's end."""

    model_config = ConfigDict(strict=True, extra="forbid")
    rows: NonNegativeInt
    fingerprint: str


def map_codes(file: IO[bytes], policy: Policy, fingerprint: str) -> Codes:
    """Maps a file of codes into memory.

    Raises:
        ValueError: It is no such file, is damaged, or has another fingerprint.
    """
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tail = len(mapped) - len(_END) - 8
    if tail < 0 or mapped[tail + 8 :] != _END:
        raise ValueError("no codes")
    end = tail - int.from_bytes(mapped[tail : tail + 8], "little")
    if end < 0:
        raise ValueError("no footer")
    footer = _Footer.model_validate_json(mapped[end:tail])
    if footer.fingerprint != fingerprint:
        raise ValueError("other codes")
    return Codes(_mapped_blocks(mapped, policy, footer.rows, end), mapped)


def _mapped_blocks(mapped: mmap.mmap, policy: Policy, rows: int, end: int) -> Iterator[Block]:
    """The blocks of a mapped file; ``ValueError`` where so many rows do not reach to the end."""
    offset = 0
    for start in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - start)
        columns: dict[Hashable, np.ndarray] = {}
        for name, kind in kinds_of(policy.schema_).items():
            columns[name] = np.frombuffer(mapped, kind, count, offset)
            offset += columns[name].nbytes + -columns[name].nbytes % _ALIGNED
        yield Block(columns, count)
    if offset != end:
        raise ValueError("other rows")
