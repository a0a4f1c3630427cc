# SPDX-License-Identifier: Apache-2.0
"""Ports for servers of tests; no other test and no client gets the same port meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import socket
from contextlib import suppress

__all__ = ["free_port"]

FIRST, OF_A_WORKER, WORKERS = 20_000, 1_000, 12
APART = 10  # workers of a server take the next ones for their metrics

# Systems give outgoing connections ports from 32,768 on, so a free port above can become a client's at any moment.
# These ports are below: a thousand for each worker of a run, beginning at a random one.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_numbers = itertools.count(random.randrange(OF_A_WORKER))


def free_port() -> int:
    """A port that nobody listens on now."""
    for number in _numbers:
        port = FIRST + OF_A_WORKER * _worker + APART * number % OF_A_WORKER
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError("ports do not end")
