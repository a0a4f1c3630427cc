# SPDX-License-Identifier: Apache-2.0
"""Copies a ledger, wherever it is kept, as one moment had it: for a backup, and back."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from pinq.ledger.database import ROWS_AT_A_TIME
from pinq.ledger.log import Log, open_database

__all__ = ["copy", "set_aside"]


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str], heads: Path | None = None) -> str:
    """Puts the events and answers of one ledger in the place of another's, which may be new.

    The source may be in use. The copy's chain is verified, and its heads name its last event.

    Args:
        source: A file or URL.
        target: A file or URL; what it holds goes, in one transaction.
        heads: A folder whose head of this ledger goes along.

    Returns:
        The last event, ``SEQ:HASH``.

    Raises:
        LedgerError: One cannot be used, or the copy is not whole.
    """
    origin, made = open_database(source, read_only=True), open_database(target)
    log = Log(made)
    try:
        with origin.transaction(write=False, after=1) as rows, made.transaction(write=True):
            made.run("DELETE FROM answers")
            made.run("DELETE FROM events")
            while some := list(islice(rows, ROWS_AT_A_TIME)):
                answers = {answer.seq: answer.payload for answer in origin.answers([row.seq for row in some])}
                for row in some:
                    made.append(row, answers.get(row.seq))
            made.commit()
        log.replay()
        log.check_answers()
        made.settle(whole=True)
        log.seal(heads)
        return f"{log.seq}:{log.last}"
    finally:
        origin.close()
        log.close()


def set_aside(file: Path) -> None:
    """Gives the files of a ledger other names, so that another one can take their place.

    The log beside it goes first: SQLite must never find it beside another file.
    """
    aside = file.with_name(f"{file.name}.replaced")
    for end in ("-wal", "-shm", "", ".head"):
        if Path(f"{file}{end}").exists():
            os.replace(f"{file}{end}", f"{aside}{end}")
