# SPDX-License-Identifier: Apache-2.0
"""The image as a container: ``make test-image`` builds it and runs this; elsewhere it is skipped.

``PINQ_IMAGE`` names the image, ``PINQ_CONTAINERS`` what runs it with its options, such as ``podman --runtime runc``.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import pinq
from tests.support.processes.servers import COLUMNS, Certificate, people

IMAGE = os.environ.get("PINQ_IMAGE", "")
ENGINE = shlex.split(os.environ.get("PINQ_CONTAINERS", "podman"))
ROOT_IS_SHUT = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")

pytestmark = pytest.mark.skipif(not IMAGE, reason="make test-image builds the image and runs it")


def engine(*words: str, check: bool = True) -> str:
    done = subprocess.run([*ENGINE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Policies, tables and a certificate, as they are mounted."""
    for folder in ("policies", "data", "tls"):
        (tmp_path / folder).mkdir()
    people().to_parquet(tmp_path / "data" / "people.parquet")
    policy = {"dataset": "people", "source": "/data/people.parquet", "cap": 1000, "max_rows": 1000, "columns": COLUMNS}
    text = pinq.Policy.model_validate(policy).to_yaml()
    (tmp_path / "policies" / "people.yaml").write_text(text)
    made = Certificate.make(tmp_path / "tls")
    made.cert.rename(tmp_path / "tls" / "tls.crt")
    made.key.rename(tmp_path / "tls" / "tls.key")
    for file in (tmp_path, *tmp_path.rglob("*")):
        file.chmod(0o755 if file.is_dir() else 0o644)
    return tmp_path


@pytest.fixture
def container(files: Path) -> Iterator[str]:
    """A running container; its root cannot be written to, and it may do nothing that needs a right."""
    mounts = {"policies": "/etc/pinq/policies", "tls": "/etc/pinq/tls", "data": "/data"}
    volumes = [word for name, there in mounts.items() for word in ("-v", f"{files / name}:{there}:ro")]
    name = f"pinq-test-{os.getpid()}"
    engine("run", "-d", "--name", name, "--network", "host", *LIMITS, *ROOT_IS_SHUT, *volumes, IMAGE)
    try:
        yield name
    finally:
        engine("rm", "-f", "-v", name, check=False)


def test_the_container_serves_reloads_and_stops(container: str, files: Path) -> None:
    """Nobody special answers in a root that is shut; a policy is read again; the end is clean and in time."""

    def lines(event: str) -> list[dict[str, Any]]:
        done = subprocess.run([*ENGINE, "logs", container], capture_output=True, text=True, check=True)
        texts = (done.stdout + done.stderr).splitlines()
        return [
            line for line in map(json.loads, (text for text in texts if text.startswith("{"))) if line["event"] == event
        ]

    def answers() -> bool:
        try:
            return httpx.get("https://127.0.0.1:8443/readyz", verify=False, trust_env=False).json()["ready"] is True
        except httpx.TransportError:
            return False

    until(answers)
    assert engine("exec", container, "id", "-u").strip() == "10001"
    written = subprocess.run([*ENGINE, "exec", container, "touch", "/x"], capture_output=True, text=True, check=False)
    assert "Read-only" in written.stderr
    granted = engine("exec", container, "pinq", "grant", "/etc/pinq/policies/people.yaml", "ana", "--epsilon", "1")
    (token,) = [line for line in granted.splitlines() if line.startswith("pinq_")]
    with pinq.connect(
        "https://127.0.0.1:8443/people", token=token, verify=str(files / "tls" / "authority.pem")
    ) as handle:
        assert abs(handle.noisy_count(epsilon=1) - 400) < 60
    health = json.loads(engine("inspect", container))[0]["Config"]["Healthcheck"]["Test"]
    engine("exec", container, *health[1:])
    policy = files / "policies" / "people.yaml"
    policy.write_text(policy.read_text().replace("cap: 1000", "cap: 900"))
    engine("kill", "-s", "HUP", container)
    until(lambda: len(lines("reloaded")) == 1)
    assert lines("reloaded")[0]["changed"] == ["people (cap)"]
    engine("stop", "-t", "40", container)
    assert json.loads(engine("inspect", container))[0]["State"]["ExitCode"] in (0, 143)
    assert len(lines("stopped")) == 1
