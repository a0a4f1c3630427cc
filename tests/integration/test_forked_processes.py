# SPDX-License-Identifier: Apache-2.0
"""Commands that the tests start end as those of a shell do."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.processes.forked_processes import PinqProcess


def test_a_command_is_killed_any_number_of_times(tmp_path: Path) -> None:
    """It has ended for a moment before anybody knows of it; killing it then is no error."""
    for number in range(10):
        said = tmp_path / str(number)
        process = PinqProcess([], output=said, errors=said, program="import time; time.sleep(60)")
        while process.poll() is None:
            process.kill()
        assert process.wait() == -signal.SIGKILL
