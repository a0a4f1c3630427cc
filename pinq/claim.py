# SPDX-License-Identifier: Apache-2.0
"""One table, one ledger: finds the ledger of a source under whatever name, spelling or policy it is reached.

The ledger lies beside the source's real path by default, so two policies over one file, or two spellings of its path, meet
in one budget. A policy that wants its ledger elsewhere leaves a *claim* beside the source; another policy that names
another ledger is then refused, rather than given a fresh budget unnoticed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pinq.errors import PolicyError
from pinq.policy import DatabaseTable, Policy

__all__ = ["ledger_url"]


def ledger_url(policy: Policy) -> str:
    """The file or URL of the policy's ledger; records the claim.

    Raises:
        PolicyError: The source is already guarded by another ledger.
    """
    wanted = _wanted(policy)
    base = _base(policy)
    if base is None:  # data passed by the caller: there is no file to keep a claim beside
        return wanted or str(policy.folder / f"{policy.dataset}.ledger")
    default, claim = base.with_name(base.name + ".ledger"), base.with_name(base.name + ".claim")
    held = claim.read_text(encoding="utf-8").strip() if claim.exists() else str(default) if default.exists() else None
    if held is None:
        held = wanted or str(default)
        if held != str(default):
            _write(claim, held)
    if wanted is not None and wanted != held:
        raise PolicyError(
            f"The source of {policy.dataset!r} is already guarded by the ledger {held}, and the policy names {wanted}. A second ledger would be a second "
            f"budget for the same people. Use `ledger: {held}` (or none); to move the ledger, move the file and then delete {claim if claim.exists() else default}."
        )
    return held


def _wanted(policy: Policy) -> str | None:
    if policy.ledger is None or "://" in policy.ledger:
        return policy.ledger
    return os.path.realpath(policy.folder / policy.ledger)


def _base(policy: Policy) -> Path | None:
    """Where what belongs to the source is kept: beside it, or in the user's state folder where its own is not writable."""
    path = policy.source_path()
    if path is None:
        return None
    name = path.name.translate(str.maketrans("*?[]", "____"))
    if isinstance(policy.source, DatabaseTable):
        name += f".{hashlib.blake2b(f'{policy.source.schema_name}.{policy.source.table}'.lower().encode(), digest_size=6).hexdigest()}"
    if os.access(path.parent, os.W_OK):
        return path.parent / name
    state = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "pinq"
    return state / f"{hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()}-{name}"


def _write(claim: Path, held: str) -> None:
    claim.parent.mkdir(parents=True, exist_ok=True)
    try:
        with claim.open("x", encoding="utf-8") as file:
            file.write(held + "\n")
    except FileExistsError:  # another process was first; its claim holds, and the caller's next look sees it
        return
