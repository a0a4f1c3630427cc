# SPDX-License-Identifier: Apache-2.0
"""The parent of several servers' processes: what it does when it is told to stop while they still start."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from pinq.server.log import RequestLog
from pinq.server.workers import Workers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_who_is_told_to_stop_while_starting_announces_nothing(tmp_path: Path) -> None:
    """The last worker may listen after SIGTERM closed the socket: nobody is told an address then, and nothing fails."""
    announced: list[str] = []
    with closing(RequestLog(tmp_path / "log")) as log, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        workers = Workers(1, bound, log, lambda: announced.append(str(bound.getsockname())))
        try:
            workers._stop()
            workers._workers[0].is_up = True
            workers._look()
        finally:
            os.close(workers._alive)
            os.close(workers._parent)
    assert announced == []
