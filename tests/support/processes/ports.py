# SPDX-License-Identifier: Apache-2.0
"""Ports for servers of tests, of which no other test and no client gets one meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import socket
from contextlib import suppress

__all__ = ["free_port"]

FIRST, OF_A_WORKER, WORKERS = 20_000, 1_000, 12
APART = 10  # workers of a server take the next ones for their metrics

# Systems give outgoing connections ports from 32,768 on, so one of those that was free a moment ago
# may be a client's now. These are below, a thousand for each worker of a run, from anywhere among them.
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
