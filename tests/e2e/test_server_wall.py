# SPDX-License-Identifier: Apache-2.0
"""The wall between two users of one machine: the analyst's process has a URL, a token and the wheel; nothing else can be reached from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import chi2_contingency

import pinq
from miners import DiffPID3
from tests.servers import Certificate, Server, publish, serving, token_of
from tests.wheels import another_user, environment

TREES, EPSILON = 150, 0.2
FALSE_ALARM = 1e-7

# What the analyst runs. It fails where it can read anything of the provider's, or where it needs anything of the provider's side.
ANALYST = """
import importlib, json, os, sys
import pinq
from miners import DiffPID3

url, authority, trees, epsilon, *forbidden = sys.argv[1:]
for name in ("duckdb", "opendp", "sqlalchemy", "fastapi", "uvicorn", "yaml"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"the analyst's side must not bring {name}")
readable = []
for file in forbidden:
    try:
        readable.append(open(file, "rb").read(1))
    except PermissionError:
        pass
with pinq.connect(url, verify=authority) as h:
    sure = DiffPID3(epsilon=300, max_depth=1).fit(h, "income")
    roots = []
    for _ in range(int(trees)):
        split = DiffPID3(epsilon=epsilon, max_depth=1, criterion="gini", attributes=["sex", "job"]).fit(h, "income").tree_.nodes[0].split
        roots.append("none" if split is None else split.column)
    json.dump({"user": os.geteuid(), "readable": len(readable), "sure": repr(sure.tree_.to_json()), "cost": str(sure.cost_), "roots": roots, "spent": str(h.budget.spent)}, sys.stdout)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into."""
    folder = Path(tempfile.mkdtemp(prefix="pinq-wall-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def mined_by_another_user(
    server: Server, token: str, folder: Path, python: Path, forbidden: list[Path]
) -> dict[str, Any]:
    """Runs the analyst's program as a user who owns nothing."""
    authority = folder / "authority.pem"
    assert server.certificate is not None
    shutil.copyfile(server.certificate.authority, authority)
    authority.chmod(0o644)
    words = [server.url(), authority, TREES, EPSILON, *forbidden]
    environment = {"PINQ_TOKEN": token, "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(python), "-c", ANALYST, *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **another_user(),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_mining_through_the_wall(wheel: Path, tmp_path: Path, open_folder: Path) -> None:
    """An analyst's process with the base wheel alone, of another user where we may start one, mines over TLS; it reads no file of the provider's,
    and what it finds equals what the handle in process finds: the very tree where noise is next to none, choices of the same law where it is not."""
    policy = publish(tmp_path / "provider", max_rows=1000)
    (tmp_path / "provider").chmod(0o700)
    token = token_of(policy, "ana", 400)
    public = open_folder / wheel.name
    shutil.copyfile(wheel, public)
    python = environment(open_folder / "env", public)
    with serving(policy, folder=tmp_path, certificate=Certificate.make(tmp_path)) as server:
        forbidden = [*(tmp_path / "provider").iterdir(), tmp_path / "key.pem"]
        assert any(file.suffix == ".parquet" for file in forbidden)
        assert any(".ledger" in file.name for file in forbidden)
        found = mined_by_another_user(server, token, open_folder, python, forbidden)
    token_of(policy, "local", 400)
    with pinq.open(policy, analyst="local") as near:
        sure = DiffPID3(epsilon=300, max_depth=1).fit(near, "income")
        roots = []
        for _ in range(TREES):
            split = (
                DiffPID3(epsilon=str(EPSILON), max_depth=1, criterion="gini", attributes=["sex", "job"])
                .fit(near, "income")
                .tree_.nodes[0]
                .split
            )
            roots.append("none" if split is None else split.column)
        spent = near.budget.spent
    assert found["sure"] == repr(sure.tree_.to_json())
    assert (found["cost"], found["spent"]) == (str(sure.cost_), str(spent))
    # Two samples of one law: the root's attribute, where noise decides. A chi-square test with a false alarm in ten million.
    here, there = Counter(roots), Counter(found["roots"])
    names = sorted(here | there)
    assert len(names) > 1, "no noise, no test"
    assert (
        chi2_contingency([[here[name] + 0.5 for name in names], [there[name] + 0.5 for name in names]]).pvalue
        > FALSE_ALARM
    )
    if os.geteuid() != 0:
        pytest.skip(
            "NOT ROOT: mined through the server, but as the same user, so that unreadable files could not be tested"
        )
    assert found["user"] != 0
    assert found["readable"] == 0, "the analyst's process could read the provider's files"
