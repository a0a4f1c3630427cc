# SPDX-License-Identifier: Apache-2.0
"""Codes of a large table in a file that is mapped into memory: written once, opened at once.

::

    codes of column 0 of the first 2^18 rows | of column 1 | ... | of the next 2^18 rows | ...
    | footer: JSON | its length, 8 bytes | "pinq-codes"

The file holds codes and nothing raw. It is written under another name and renamed when it is whole,
readable by its owner alone. A fingerprint of source, policy and salt says whether it still is what
encoding would make.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from pinq.engine.codes import BLOCK_ROWS, Block, Codes, kinds_of
from pinq.engine.sources import source_files, source_path, state_folder
from pinq.public.policy import Policy

__all__ = ["CodesFile", "blocks_of", "map_codes", "write_codes"]

FORMAT = 1
_END = b"pinq-codes"
_ALIGNED = 64
# No writer pauses for so long.
ABANDONED_SECONDS = 86_400


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
        files = []
        for file in source_files(self._policy):
            for part in (file, file.with_name(file.name + ".wal")):  # a database's latest rows are beside it
                if part.exists():
                    stat = part.stat()
                    files.append([str(part), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino])
        declared = self._policy.model_dump_json(include={"columns", "privacy_unit", "source", "csv"})
        text = json.dumps([FORMAT, duckdb.__version__, declared, files])
        return hashlib.blake2b(text.encode(), key=hashlib.blake2b(self._salt).digest()).hexdigest()

    def reopened(self) -> Codes | None:
        """Opens the codes that were written; None where there are none, or other ones."""
        try:
            return map_codes(self.path, self._policy, self.fingerprint)
        except (FileNotFoundError, PermissionError, ValueError):
            return None

    def written(self, blocks: Iterable[Block], fingerprint: str) -> Codes:
        """Writes codes, in place of those that were there, and opens them."""
        self._sweep()
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            write_codes(fresh, blocks, fingerprint)
            os.replace(fresh, self.path)
        finally:
            fresh.unlink(missing_ok=True)
        return map_codes(self.path, self._policy, fingerprint)

    def _sweep(self) -> None:
        """Deletes what processes that were killed while they wrote have left behind."""
        for file in self.path.parent.glob(f"{self.path.name}.*"):
            if file.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                file.unlink(missing_ok=True)

    def forget(self) -> None:
        """Deletes codes that are of no use any more."""
        self.path.unlink(missing_ok=True)


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


def write_codes(path: Path, blocks: Iterable[Block], fingerprint: str) -> None:
    """Writes codes to a new file that only its owner can read."""
    rows = 0
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        for block in blocks:
            for codes in block.columns.values():
                file.write(codes.tobytes())
                file.write(bytes(-codes.nbytes % _ALIGNED))
            rows += block.rows
        footer = json.dumps({"rows": rows, "fingerprint": fingerprint}).encode()
        file.write(footer + len(footer).to_bytes(8, "little") + _END)
        file.flush()
        os.fsync(file.fileno())


def map_codes(path: Path, policy: Policy, fingerprint: str) -> Codes:
    """Maps a file of codes into memory.

    Raises:
        ValueError: It is no such file, or has another fingerprint.
        FileNotFoundError: There is none.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tail = len(mapped) - len(_END) - 8
    if tail < 0 or mapped[tail + 8 :] != _END:
        raise ValueError("no codes")
    length = int.from_bytes(mapped[tail : tail + 8], "little")
    footer = json.loads(mapped[tail - length : tail])
    if footer["fingerprint"] != fingerprint:
        raise ValueError("other codes")
    return Codes(_mapped_blocks(mapped, policy, footer["rows"]), mapped)


def _mapped_blocks(mapped: mmap.mmap, policy: Policy, rows: int) -> Iterator[Block]:
    """The blocks of a mapped file."""
    offset = 0
    for start in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - start)
        columns: dict[Hashable, np.ndarray] = {}
        for name, kind in kinds_of(policy.schema_).items():
            columns[name] = np.frombuffer(mapped, kind, count, offset)
            offset += columns[name].nbytes + -columns[name].nbytes % _ALIGNED
        yield Block(columns, count)
