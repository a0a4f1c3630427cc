# SPDX-License-Identifier: Apache-2.0
"""The provider's log of requests, where it cannot be written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pinq.server.log import RequestLog
from pinq.server.readiness import Readiness


def test_lines_are_json_and_for_the_provider_alone(tmp_path: Path) -> None:
    """One object a line, mode 0600, nothing that is None."""
    log = RequestLog(tmp_path / "log")
    log.write("request", route="query", analyst=None)
    log.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line).keys() == {"at", "event", "route"}
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full to stand for a full disk")
def test_a_full_disk_loses_lines_and_nothing_else() -> None:
    """Writing raises nothing and counts what is lost, for the provider's alarms to see."""
    log = RequestLog(Path("/dev/full"))
    log.write("request")
    log.write("request")
    assert log.lost == 2
    registry = CollectorRegistry()
    nothing = SimpleNamespace(served={}, failed=())  # a server without a dataset, which no command starts
    registry.register(Readiness(nothing, SimpleNamespace(problem="", ends=0), log))  # type: ignore[arg-type]
    assert b"pinq_lost_log_lines_total 2.0" in generate_latest(registry)
    log.close()
