# SPDX-License-Identifier: Apache-2.0
"""One table, one ledger: finds the ledger of a source, for any path or policy that names it.

Each data file has a *claim* beside its real path, which names the ledger that guards it. So two policies over one file,
two spellings of its path, symbolic links and patterns lead to the same ledger. A policy that names another ledger is
refused: it would give a new budget.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from pinq.errors import PolicyError
from pinq.policy.files import source_files, source_path, state_folder
from pinq.policy.policy import Policy


def ledger_url(policy: Policy, *, create: bool = False, read_only: bool = False) -> str:
    """Finds the file or URL of the policy's ledger; with ``create`` claims an unclaimed source, unless ``read_only``.

    Raises:
        PolicyError: Another ledger guards the source, or a file has hard links, which cannot be
            followed.
    """
    path, groups = source_path(policy), _claims(policy)
    # All ledgers that claims name, and a ledger at the default place. Any that differs from the
    # policy's ledger guards the source already.
    claimed = {_read(claim) for files in groups for claim in files if claim.exists()}
    if path is None:
        default = str(policy.folder / f"{policy.dataset}.ledger")
        default = os.path.realpath(default) if groups else default
    else:
        home = path.parent if os.access(path.parent, os.W_OK) else state_folder()
        stem = path.name.translate(str.maketrans("*?[]", "____")) + _table(policy)
        default = str(home / (f"{stem}.ledger" if home == path.parent else f"{_digest(str(path))}-{stem}.ledger"))
        claimed |= {default} if os.path.exists(default) else set()
    chosen = _named_ledger(policy) or next(iter(claimed), default)
    for guard in sorted(claimed - {masked(chosen)}):
        raise PolicyError(
            f"The source of {policy.dataset!r} is already guarded by the ledger {guard}, and this policy "
            f"leads to {masked(chosen)}. A second ledger would be "
            f"a second budget for the same people. Use `ledger: {guard}`; to move a ledger, move its file "
            f"and its head, then delete the claims beside the data."
        )
    if (create or claimed) and not read_only:
        for files in groups:
            _claim(files, masked(chosen), policy)
    return chosen


def claims(policy: Policy) -> list[Path]:
    """The existing claims of the policy's source."""
    return [claim for files in _claims(policy) for claim in files if claim.exists()]


def require_one_person(policy: Policy) -> None:
    """Raises ``PolicyError`` if two tables read one file with different columns of persons: a row is one person's."""
    persons = dict[Path, str]()
    for table in policy.each:
        unit = "" if table.bounded_unit is None else table.bounded_unit.column
        for first, *_ in _claims(table):
            if persons.setdefault(first, unit) != unit:
                raise PolicyError(
                    f"Two tables of {policy.dataset!r} read one source, and their persons stand in {persons[first]!r} "
                    f"and in {unit!r}: a row would be of two people. Name the same column in both."
                )


def _claims(policy: Policy) -> list[list[Path]]:
    """The possible places of the claim of each file; a table of Spark or of a server has one, in the state folder."""
    if policy.joined is not None:  # the joined tables have their claims
        return []
    if policy.served_by is not None:
        return [[state_folder() / f"{_digest(policy.served_by)}.claim"]]
    return [_claim_files(file, policy) for file in source_files(policy)]


def _claim(files: list[Path], claimed: str, policy: Policy) -> None:
    """Writes a claim if there is none, completely or not at all; then checks that no other process was first."""
    if not any(file.exists() for file in files):
        claim = next((file for file in files if os.access(file.parent, os.W_OK)), files[-1])
        for folder in reversed(claim.parents):  # only its owner can read a new folder
            folder.mkdir(exist_ok=True, mode=0o700)
        # The claim is written under another name and then linked. So only one process succeeds, and nobody
        # reads half a claim.
        fresh = claim.with_name(f"{claim.name}.{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(claimed + "\n")
        try:
            os.link(fresh, claim)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    if any(_read(file) != claimed for file in files if file.exists()):
        raise PolicyError(f"Another ledger claimed the source of {policy.dataset!r} at the same moment. Try again.")


def _claim_files(file: Path, policy: Policy) -> list[Path]:
    """Lists the possible places of a file's claim: beside it, or in the user's state folder."""
    if file.exists() and file.stat().st_nlink > 1:
        raise PolicyError(
            f"{file} has several hard links, and through each it would look like another source with a budget "
            f"of its own. "
            "Give the provider a file of its own (a copy), or use symbolic links."
        )
    name = f"{file.name}{_table(policy)}.claim"
    return [file.parent / name, state_folder() / f"{_digest(str(file))}-{name}"]


def _named_ledger(policy: Policy) -> str | None:
    text = policy.ledger
    if text is None or ("://" in text and not text.startswith("sqlite")):
        return text
    path = text.removeprefix("sqlite:///")
    if "://" in path or "?" in path or not path:
        raise PolicyError(f"`ledger` of {policy.dataset!r} is {text!r}; write an SQLite ledger as a plain path.")
    return os.path.realpath(policy.folder / path)


def masked(url: str) -> str:
    """A URL without its password, because claims must not hold secrets."""
    return re.sub(r"(://[^:/@]*):.*@", r"\1@", url)


def _table(policy: Policy) -> str:
    source = policy.database
    return "" if source is None else "." + _digest(f"{source.schema_name}.{source.table}".lower())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _read(claim: Path) -> str:
    return claim.read_text(encoding="utf-8").strip()
