# SPDX-License-Identifier: Apache-2.0
"""``main`` is the process of one party on this machine."""

from __future__ import annotations

import pickle
import sys

from miners.secure.session.local import Assignment
from miners.secure.session.party import role_of, run_party
from pinq.errors import PinqError

__all__ = ["main"]


def main() -> None:
    """Takes part in one session.

    Only ``miners.secure.session.local`` starts this, with assignments of its own making.
    """
    job: Assignment = pickle.loads(sys.stdin.buffer.read())
    role = role_of(job.session, job.party, job.holding, job.lookups)
    try:
        learned = run_party(job.session, job.party, None, role.run, bits=role.growth.bits, listen="127.0.0.1", wait=120)
    except PinqError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.buffer.write(pickle.dumps(learned))


if __name__ == "__main__":
    main()
