# SPDX-License-Identifier: Apache-2.0
"""The opening of an engine: it reads a policy's source piece by piece, and keeps only codes.

The codes of a large source are kept in the provider's state folder. Each file of the source has a fingerprint of its
content, the policy's declarations, the salt and the encoder. Equal fingerprints mean equal codes. So of a source that
grows by files only the new ones are read, unless its privacy unit is more than a row. A file of codes is written under
a unique name, readable by its owner only, and renamed when it is complete.

Privacy:
    A file's rows are encoded independently of other files, so their codes may come from an earlier
    opening. Each unit keeps the ``max_rows`` rows with the smallest keyed hashes (``encoding.py``),
    chosen from the rows of all files at each encoding. A unit is identified by its text. If one file
    wrote it as a whole number and another as a float, it would be two units with twice the rows, so
    such files are refused.
    Held by: tests/integration/test_source_files.py.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import (
    BLOCK_ROWS,
    Codes,
    FileCodes,
    MappedCodes,
    RowBlock,
    arrow_schema,
    in_blocks,
    write_codes,
)
from pinq.engine.encoding import Encoder, EncodingReport, Losses, candidate_columns
from pinq.engine.sources import OpenSource, Piece, is_large, opened, require_share
from pinq.engine.spark import SparkEngine, open_spark, spark_frame
from pinq.engine.spills import lock
from pinq.errors import PinqError, PolicyError
from pinq.policy.files import facts_with_log, source_files, source_path, state_folder
from pinq.policy.policy import Policy

_log = logging.getLogger("pinq.engine.opening")
PART = ".part"  # the suffix of a file that is being written
Files = Sequence[tuple[Path | None, str]]
"""The source's files with their fingerprints; None and "" for data that the caller passed."""
_BEFORE = "that were read at an earlier opening"


def open_engine(
    policy: Policy, *, data: object = None, salt: bytes, report: bool = False
) -> tuple[ArrayEngine | SparkEngine, EncodingReport | None]:
    """Encodes the source of a policy and opens an engine over it.

    Args:
        policy: The reviewed policy.
        data: A table instead of the policy's source: an Arrow table, a pandas frame, an object with
            ``__arrow_c_stream__``, or a frame of Spark, which Spark encodes and counts.
        salt: The key of the coins of rows; the same salt gives the same coins.
        report: Whether omitted and clamped rows are counted, too (another pass).

    Raises:
        PolicyError: The source cannot be read, lacks a declared column, changes while it is read,
            or has more unreadable lines than the policy allows; or the disk is full. With ``report``
            unreadable lines are only counted.
        ModuleNotFoundError: The package for this kind of source is not installed.
    """
    with _reading(policy, report=report):
        if (frame := spark_frame(policy, data)) is not None:
            return open_spark(policy, frame, salt=salt, report=report)
        return _encoded(policy, data, salt, report=report)


@contextmanager
def _reading(policy: Policy, *, report: bool) -> Iterator[None]:
    """Turns any error of a source into one ``PolicyError``."""
    try:
        yield
    except (PinqError, ModuleNotFoundError, KeyboardInterrupt, SystemExit):
        raise
    except OSError as error:  # such as a full disk; an incomplete file of codes is deleted
        why = error.strerror or "the disk failed"
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read, or its codes not kept: {why}.") from None
    except BaseException as error:  # a panic of a Rust library is not an Exception
        _log.exception("the source of %r cannot be read", policy.dataset)
        # The text may quote a value, so only the provider's own check repeats it.
        why = f": {(str(error) or type(error).__name__).splitlines()[0]}" if report else "; `pinq check` says why."
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read{why}") from None


def _encoded(policy: Policy, data: object, salt: bytes, *, report: bool) -> tuple[ArrayEngine, EncodingReport | None]:
    """Opens an engine over codes in this process; arguments as of ``open_engine``."""
    # Files are listed once, before reading: the next opening sees files that are added later.
    source = _Source.listed(policy, salt, data)
    codes_file = None if report else source.kept()
    before = None if codes_file is None else codes_file.mapped()
    if before is not None and [file.fingerprint for file in before.files] == source.fingerprints:
        return ArrayEngine(before, policy.schema_, salt), None
    losses = Losses(policy) if report else None
    with opened(policy, data, source.files) as rows:
        codes = source.encoded(
            _Gathering(policy, rows, salt, losses, by_file=codes_file is not None), before, codes_file
        )
    encoding = None if losses is None else losses.report(codes.rows, rows.lines)
    return ArrayEngine(codes, policy.schema_, salt), encoding


@dataclass(frozen=True)
class _Source:
    """A policy's source as it was listed.

    Attributes:
        large: Whether its codes are kept in a file; a server's stream, of unknown length, is large.
    """

    policy: Policy
    salt: bytes
    files: list[Path]
    fingerprints: list[str]
    large: bool

    @classmethod
    def listed(cls, policy: Policy, salt: bytes, data: object) -> _Source:
        files = source_files(policy) if data is None else []
        large = is_large(files) or (data is None and policy.served_by is not None)
        return cls(policy, salt, files, fingerprints(policy, salt, files), large)

    def kept(self) -> CodesFile | None:
        """The file for a large source's codes; None for a small source, or if no file can be written.

        A file from a time when the source was large is deleted.
        """
        if not self.files:
            return None
        try:
            CodesFile.sweep()
            codes_file = CodesFile(self.policy)
            if not self.large:
                codes_file.forget()
                return None
            return codes_file if codes_file.make_folder() else None
        except (OSError, RuntimeError):  # such as a read-only folder, or a user without a home
            return None

    def encoded(self, gathering: _Gathering, before: MappedCodes | None, codes_file: CodesFile | None) -> Codes:
        """Encodes the rows: in memory, in the kept file, or in an unnamed temporary file."""
        files, schema = list(zip(self.files, self.fingerprints, strict=True)), self.policy.schema_
        blocks = in_blocks(gathering.batches(files or [(None, "")], before))
        if codes_file is not None:
            return codes_file.written(blocks, gathering.files, self._require_unchanged)
        if not self.large:
            codes = Codes([RowBlock.from_arrow(block, schema) for block in blocks], schema)
            self._require_unchanged()
            return codes
        with tempfile.TemporaryFile(prefix="pinq-") as file:
            write_codes(file, arrow_schema(schema), blocks, gathering.files)
            self._require_unchanged()
            return MappedCodes(file, schema)

    def _require_unchanged(self) -> None:
        """Raises ``PolicyError`` if a file changed since it was listed."""
        if fingerprints(self.policy, self.salt, self.files) != self.fingerprints:
            raise PolicyError(f"The source of {self.policy.dataset!r} changed while it was read. Open it again.")


class _Gathering:
    """Reads and encodes an open source.

    With ``by_file`` it reads file by file, so that the codes of each file can be kept. Otherwise small files are read
    together, which takes a fraction of the time.
    """

    def __init__(
        self,
        policy: Policy,
        source: OpenSource,
        salt: bytes,
        losses: Losses | None,
        *,
        by_file: bool = True,
    ) -> None:
        self._policy, self._source, self._salt, self._losses = policy, source, salt, losses
        self._by_file = by_file
        self.files: list[FileCodes] = []
        self._encoders: dict[tuple[tuple[str, str], ...], Encoder] = {}

    def batches(self, files: Files, before: MappedCodes | None) -> Iterator[pa.RecordBatch]:
        """Yields the codes of the kept rows in batches.

        Raises:
            PolicyError: More lines were unreadable than the policy allows.
        """
        return self._row_by_row(files, before) if self._policy.bounded_unit is None else self._chosen(files)

    def _row_by_row(self, files: Files, before: MappedCodes | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the files in order, from kept codes or newly encoded."""
        kept_files = {} if before is None else {file.fingerprint: file for file in before.files}
        lines = self._source.lines
        one_by_one = [([] if file is None else [file], fingerprint) for file, fingerprint in files]
        turns = one_by_one if self._by_file else [([file for file, _ in files if file is not None], "")]
        for together, fingerprint in turns:
            if before is not None and fingerprint in kept_files:
                # Lines of kept files count as if they were read again.
                self.files.append(kept_files[fingerprint])
                lines.total += kept_files[fingerprint].lines
                if kept_files[fingerprint].lost:
                    lines.add(_BEFORE, kept_files[fingerprint].lost, "")
                yield from before.rows_of(kept_files[fingerprint])
                continue
            rows, total, lost = 0, lines.total, lines.lost
            for encoder, piece in self._pieces(together):
                for batch in self._fetched(encoder.encoded(piece.name)):
                    rows += batch.num_rows
                    yield batch
            total, lost = lines.total - total, lines.lost - lost
            self.files.append(FileCodes(fingerprint=fingerprint, rows=rows, lines=total, lost=lost))
        self._require_share()

    def _chosen(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Yields the rows that each unit keeps, after all files were encoded."""
        connection, kinds = self._source.connection, set[str]()
        columns = ", ".join(f"{name} {kind}" for name, kind in candidate_columns(self._policy).items())
        connection.execute(f"CREATE TEMP TABLE candidates ({columns})")
        for encoder, piece in self._pieces([file for file, _ in files if file is not None]):
            kinds.add(encoder.unit_kind)
            connection.execute(f"INSERT INTO candidates {encoder.encoded(piece.name)}")
        self._require_share()
        unit = self._policy.bounded_unit
        if unit is not None and len(kinds) > 1:  # depends on the files' types alone
            raise PolicyError(
                f"The files of {self._policy.dataset!r} have {unit.column!r} as {' and as '.join(sorted(kinds))}: "
                "one unit would be known by two texts, and keep twice the rows. "
                "Give the column one type in all of them."
            )
        self.files += [FileCodes(fingerprint=fingerprint) for _, fingerprint in files]
        yield from self._fetched(Encoder.bounded(self._policy, self._salt, "candidates"))

    def _pieces(self, files: Sequence[Path]) -> Iterator[tuple[Encoder, Piece]]:
        for piece in self._source.pieces(files):
            types = tuple(piece.types.items())
            if types not in self._encoders:
                self._encoders[types] = Encoder(self._source.connection, self._policy, piece.types, self._salt)
            encoder = self._encoders[types]
            if self._losses is not None:
                self._losses.add(self._source.connection, encoder, piece.name)
            yield encoder, piece

    def _require_share(self) -> None:
        if self._losses is None:
            require_share(self._policy, self._source.lines)

    def _fetched(self, query: str) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._policy.schema_)
        for batch in self._source.connection.sql(query).to_arrow_reader(BLOCK_ROWS):
            columns = [codes.cast(field.type) for codes, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def digest_of_code(*folders: Path) -> str:
    """Returns a digest of the modules in some folders, of source or compiled code."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(file for folder in folders for file in folder.glob("*.py*")):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


# The packages whose code decides a row's codes; their digest is taken when they are loaded.
READERS = ("engine", "public", "policy")
ENCODER = digest_of_code(*(Path(__file__).parents[1] / room for room in READERS))


def fingerprints(policy: Policy, salt: bytes, files: Sequence[Path]) -> list[str]:
    """Identifies the codes of each of a source's files; columns, unit and text format count, names do not."""
    declared = policy.model_dump_json(include={"columns", "privacy_unit", "csv"})
    table = policy.reading if policy.joined else None if policy.database is None else policy.database.model_dump()
    common = hashlib.blake2b(
        json.dumps([ENCODER, duckdb.__version__, declared, table]).encode(), key=hashlib.blake2b(salt).digest()
    )
    prints = []
    for file in files:
        digest = common.copy()
        digest.update(json.dumps(facts_with_log(file)).encode())
        prints.append(digest.hexdigest())
    return prints


class CodesFile:
    """The file with the codes of a policy's source, in the provider's state folder.

    Named by the first of a list of files, so the list may grow.
    """

    def __init__(self, policy: Policy) -> None:
        self._schema = policy.schema_
        table = policy.table if policy.joined else "" if policy.database is None else policy.database.model_dump_json()
        name = hashlib.blake2b(f"{policy.dataset} {source_path(policy)} {table}".encode(), digest_size=8)
        self.path = state_folder() / f"{name.hexdigest()}-{policy.dataset}.codes"

    def make_folder(self) -> bool:
        """Makes the folder if it does not exist; returns whether this user alone can write to it."""
        folder = self.path.parent
        for above in reversed((folder, *folder.parents)):
            above.mkdir(exist_ok=True, mode=0o700)
        facts = folder.stat()
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            return False
        folder.chmod(0o700)
        return os.access(folder, os.W_OK)

    def mapped(self) -> MappedCodes | None:
        """Maps the kept codes; None if there is no file, or a damaged one."""
        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                return MappedCodes(file, self._schema, self.forget)
        except (OSError, ValueError, pa.ArrowException):
            return None

    def written(
        self,
        blocks: Iterable[pa.RecordBatch],
        files: Sequence[FileCodes],
        unchanged: Callable[[], None],
    ) -> MappedCodes:
        """Writes codes in place of earlier ones, and maps them.

        The result maps the file of this call, even if another process replaces it meanwhile. If ``unchanged`` raises,
        the file is not kept.
        """
        descriptor, name = self._part()
        with os.fdopen(descriptor, "w+b") as file:
            try:
                write_codes(file, arrow_schema(self._schema), blocks, files)
                mapped = MappedCodes(file, self._schema, self.forget)
                unchanged()
                os.replace(name, self.path)
            finally:
                Path(name).unlink(missing_ok=True)
        return mapped

    def _part(self) -> tuple[int, str]:
        """Makes and locks a file with a unique name."""
        while True:
            descriptor, name = tempfile.mkstemp(prefix=f"{self.path.name}.", suffix=PART, dir=self.path.parent)
            lock(descriptor)
            if Path(name).exists():  # else another process swept it before it was locked
                return descriptor, name
            os.close(descriptor)

    @staticmethod
    def sweep() -> None:
        """Deletes the incomplete files of killed processes, for all sources.

        A file is locked while it is written, and the system unlocks the files of a process that ends.
        """
        for file in state_folder().glob(f"*{PART}"):
            with suppress(OSError), file.open("rb") as stream:  # is being written, or was swept by another process
                lock(stream.fileno(), fails=True)
                file.unlink()

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
