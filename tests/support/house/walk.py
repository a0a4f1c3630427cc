# SPDX-License-Identifier: Apache-2.0
"""The walk of a fit: the files and the calls through which one small fit passes, from handle to ledger and back.

It runs in a process of its own, with the packages of the tree in which it was started::

    PYTHONPATH=TREE python tests/support/house/walk.py
"""

from __future__ import annotations

import json
import os
import sys
from types import FrameType

PACKAGES = ("pinq", "miners")


def walk() -> dict[str, int]:
    """Counts the files and the calls of named functions of a DiffPC45 fit of depth 1, after a fit that fills caches.

    Its epsilon is so large that every walk makes the same choice.
    """
    import pinq
    from miners import DiffPC45

    handle = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=1000)
    DiffPC45(epsilon=100, max_depth=1).fit(handle, "income")
    files, calls = set[str](), 0
    homes = tuple(os.path.join(os.getcwd(), package, "") for package in PACKAGES)

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(homes) and not code.co_name.startswith("<"):
            files.add(code.co_filename)
            calls += 1

    miner = DiffPC45(epsilon=100, max_depth=1)
    sys.setprofile(note)
    miner.fit(handle, "income")
    sys.setprofile(None)
    return {"files": len(files), "calls": calls}


if __name__ == "__main__":
    print(json.dumps(walk()))
