# SPDX-License-Identifier: Apache-2.0
"""The process of one party on this machine: reads its assignment from standard input, writes what it learned to standard output."""

from __future__ import annotations

import pickle
import sys

from miners.secure.local import Assignment
from miners.secure.network import run_party
from miners.secure.protocols import Part
from pinq.errors import PinqError

__all__ = ["main"]


def main() -> None:
    """Takes part in one session. Only ``miners.secure.local`` starts this, with assignments of its own making."""
    job: Assignment = pickle.loads(sys.stdin.buffer.read())
    session = job.session
    part = Part(
        session.protocol,
        session.task,
        session.rule(),
        job.holding,
        job.party,
        [one.lookups for one in session.parties],
        job.mine,
    )
    try:
        found = run_party(session, job.party, None, part.run, bits=part.rule.bits, listen="127.0.0.1", wait=120)
    except PinqError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
