# SPDX-License-Identifier: Apache-2.0
"""How an engine is opened: a policy's source is read piece by piece, and only codes are kept."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import Codes
from pinq.engine.gathering import Gathering
from pinq.engine.mapped import MappedCodes, blocks_of, map_codes, write_codes
from pinq.engine.pieces import opened
from pinq.engine.raw import is_large
from pinq.engine.report import EncodingReport, Losses
from pinq.engine.sources import source_files, source_grows
from pinq.engine.spark import SparkEngine, open_spark, spark_frame
from pinq.engine.store import CodesFile, fingerprints
from pinq.errors import PolicyError
from pinq.public.policy import Policy

__all__ = ["open_engine"]


def open_engine(
    policy: Policy, *, data: object = None, salt: bytes, report: bool = False
) -> tuple[ArrayEngine | SparkEngine, EncodingReport | None]:
    """Encodes the source of a policy and opens an engine over it.

    The codes of a large source are kept in the provider's state folder, and those of each of its
    files are used again as long as the file, policy and salt are the same.

    Args:
        policy: Reviewed.
        data: In place of the policy's source: an Arrow table, a pandas frame, anything with
            ``__arrow_c_stream__``, or a frame of Spark, which is encoded and counted there.
        salt: Keys the coins of rows; the same salt gives the same coins.
        report: Also count what was left out and clamped (another pass).

    Raises:
        PolicyError: The source cannot be read, lacks a declared column, changes while it is read,
            or has more unreadable lines than the policy allows; or no room is left for its codes.
            With ``report`` unreadable lines are counted only.
    """
    if (frame := spark_frame(policy, data)) is not None:
        return open_spark(policy, frame, salt=salt, report=report)
    # Listed once, before anything is read: a file that comes later is seen by the next opening.
    source = _Source.listed(policy, salt, data)
    kept = None if report else source.kept()
    before = None if kept is None else kept.mapped()
    if before is not None and [file.fingerprint for file in before.files] == source.fingerprints:
        return ArrayEngine(before.codes, policy.schema_, salt), None
    losses = Losses(policy) if report else None
    try:
        with opened(policy, data, source.files) as rows:
            apart = kept is not None
            gathering = Gathering(policy, rows, salt, losses, apart=apart, units=apart and source_grows(policy))
            codes = source.encoded(gathering, before, kept)
    except duckdb.Error as error:
        # What DuckDB says may quote a value, so only the provider's own check repeats it.
        why = f": {str(error).splitlines()[0]}" if report else "; `pinq check` says why."
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read{why}") from None
    except OSError as error:  # a full disk; what was written so far is gone
        why = error.strerror or "the disk failed"
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read, or its codes not kept: {why}.") from None
    engine = ArrayEngine(codes, policy.schema_, salt)
    return engine, None if losses is None else losses.report(codes.rows, rows.lines)


@dataclass(frozen=True)
class _Source:
    """A policy's source as it was listed.

    Attributes:
        files: Its files; none for data that the caller passed.
        fingerprints: Of each.
        large: Whether its codes are not held in memory; of what a server streams nobody knows.
    """

    policy: Policy
    salt: bytes
    files: list[Path]
    fingerprints: list[str]
    large: bool

    @classmethod
    def listed(cls, policy: Policy, salt: bytes, data: object) -> _Source:
        """Lists the files as they are now."""
        files = source_files(policy) if data is None else []
        large = is_large(files) or (data is None and policy.served_by is not None)
        return cls(policy, salt, files, fingerprints(policy, salt, files), large)

    def kept(self) -> CodesFile | None:
        """Finds the file for a large source's codes; None where none can be written.

        None also for a small source; what was kept of it while it was large is deleted.
        """
        if not self.files:
            return None
        try:
            CodesFile.sweep()
            kept = CodesFile(self.policy)
            if not self.large:
                kept.forget()
                return None
            return kept if kept.make_folder() else None
        except (OSError, RuntimeError):  # a read-only folder, or a user without a home
            return None

    def encoded(self, gathering: Gathering, before: MappedCodes | None, kept: CodesFile | None) -> Codes:
        """Encodes the rows: in memory, in the file that is kept, or in one without a name."""
        files = list(zip(self.files, self.fingerprints, strict=True))
        blocks = blocks_of(gathering.columns(files or [(None, "")], before))
        if kept is not None:
            return kept.written(blocks, gathering.files, self._require_unchanged, units=gathering.units).codes
        if not self.large:
            codes = Codes(blocks, self.policy.schema_)
            self._require_unchanged()
            return codes
        with tempfile.TemporaryFile(prefix="pinq-") as file:
            write_codes(file, blocks, gathering.files)
            self._require_unchanged()
            return map_codes(file, self.policy.schema_).codes

    def _require_unchanged(self) -> None:
        """``PolicyError`` where a file is not as it was listed: half of it may be new."""
        if fingerprints(self.policy, self.salt, self.files) != self.fingerprints:
            raise PolicyError(f"The source of {self.policy.dataset!r} changed while it was read. Open it again.")
