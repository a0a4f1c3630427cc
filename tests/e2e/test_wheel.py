# SPDX-License-Identifier: Apache-2.0
"""What one would ship: a wheel that installs and works in a fresh environment."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.wheels import environment, run


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """The base install imports and shows its help; with the provider's side it answers a question."""
    python = environment(tmp_path / "env", wheel)
    assert "grant" in run(tmp_path / "env" / "bin" / "pinq", "--help", cwd=tmp_path)
    run(python, "-c", "import pinq, miners; from miners import DiffPID3; from pinq import Values", cwd=tmp_path)
    missing = subprocess.run([str(python), "-c", "import duckdb"], cwd=tmp_path, capture_output=True, check=False)
    assert missing.returncode != 0, "the analyst's side must not bring the engine"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[provider]", cwd=tmp_path)
    code = (
        "import pinq\n"
        "schema = pinq.Schema(columns={'a': {'type': 'categorical', 'values': ['x', 'y']}}, max_rows=1000)\n"
        "print(pinq.simulate(schema, rows=500, epsilon=2).noisy_count(epsilon=2))\n"
    )
    assert 400 < int(run(python, "-c", code, cwd=tmp_path)) < 600
    assert len(list((tmp_path / "env" / "lib").rglob("site-packages/pinq/py.typed"))) == 1
    assert len(list((tmp_path / "env" / "lib").rglob("site-packages/miners/py.typed"))) == 1


@pytest.mark.slow
def test_the_wheel_brings_what_the_page_is_made_of(wheel: Path) -> None:
    """Templates, style sheet and icon are in it."""
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("pinq/server/page/templates/")}
    assert found == {
        f"pinq/server/page/templates/{file.name}"
        for file in (ROOT / "pinq" / "server" / "page" / "templates").iterdir()
    }
    assert len(found) > 8
