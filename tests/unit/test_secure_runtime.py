# SPDX-License-Identifier: Apache-2.0
"""MPyC made a library: what its import leaves alone."""

from __future__ import annotations

import subprocess
import sys


def test_the_first_import_leaves_a_running_loop_alone() -> None:
    """In a notebook an event loop runs already; it is neither closed nor replaced."""
    code = """
import asyncio
from miners.secure.mpyc_runtime import simulate

async def work(runtime):
    return len(runtime.parties)

async def notebook():
    loop = asyncio.get_running_loop()
    assert simulate(work, 8) == 1
    await asyncio.sleep(0)
    return asyncio.get_running_loop() is loop

print(asyncio.run(notebook()))
"""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "True\n", ended.stderr
