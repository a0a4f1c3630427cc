# SPDX-License-Identifier: Apache-2.0
"""One party of MPyC's own ID3 demo, timed from the moment that all are connected.

Runs the demo's file as it is, ``python demo_party.py DEMO -M3 -I0 ...``, and prints seconds,
processor seconds and bytes as JSON.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
import time

from mpyc.runtime import mpc


def main() -> None:
    """Wraps MPyC's start and shutdown, between which the protocol runs."""
    start, shutdown = mpc.start, mpc.shutdown
    began: list[float] = []

    async def timed_start() -> None:
        await start()
        began[:] = [time.perf_counter(), time.process_time()]

    async def timed_shutdown() -> None:
        while mpc._pc_level > mpc._program_counter[1]:
            await asyncio.sleep(0)
        seconds, processor = time.perf_counter() - began[0], time.process_time() - began[1]
        sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
        await shutdown()
        print(json.dumps({"seconds": seconds, "processor": processor, "bytes": sent}), file=sys.stderr)

    mpc.start, mpc.shutdown = timed_start, timed_shutdown
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
