# SPDX-License-Identifier: Apache-2.0
"""A file system that turns read-only under a running server, as ext4 does after an error of its disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.servers import Certificate, ask, publish, serving, token_of

MKFS = shutil.which("mkfs.ext4")
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or MKFS is None, reason="only root mounts, and needs mkfs.ext4")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """An ext4 file system of 24 MB in a file; it goes read-only at its first error."""
    image, folder = tmp_path / "disk", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(24 * 2**20)
    subprocess.run([str(MKFS), "-q", "-F", str(image)], check=True)
    done = subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_turns_read_only_is_not_ready_and_gives_what_it_has(mounted: Path, tmp_path: Path) -> None:
    """New questions are refused, answered ids are not; readiness and the log say why, and the ledger is whole afterwards."""
    policy = publish(mounted / "served")
    token, log = token_of(policy), tmp_path / "requests.log"
    certificate = Certificate.make(tmp_path)
    with (
        serving(policy, folder=tmp_path, certificate=certificate, options=("--log", str(log))) as server,
        server.http(Authorization=f"Bearer {token}") as client,
    ):
        answered = ask(client, id="one")
        assert answered.status_code == 200
        assert client.get("/readyz").status_code == 200
        subprocess.run(["mount", "-o", "remount,abort", str(mounted)], check=True)
        refused = ask(client, id="two")
        assert (refused.status_code, refused.json()["code"]) == (503, "ledger")
        end = time.monotonic() + 60
        while client.get("/readyz").status_code == 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        again = ask(client, id="one")
        assert (again.status_code, again.text) == (200, answered.text)
        assert client.get("/healthz").status_code == 200
        history = client.get("/v1/people/history")
        assert (history.status_code, len(history.json()["lines"])) == (200, 1), history.text
        server.stop()
    assert any(word in log.read_text() for word in ("readonly", "read-only", "disk I/O"))
