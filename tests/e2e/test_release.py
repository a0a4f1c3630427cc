# SPDX-License-Identifier: Apache-2.0
"""A release: one version, archives that hold the packages alone, and a demo for people who have no clone."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.house.checkout import ROOT
from tests.support.processes.wheels import environment, run
from tools import release

PLACES = sorted({place.partition("#")[0] for place in release.PLACES})


def test_one_version_is_everywhere() -> None:
    assert list(release.strays(ROOT)) == []


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The files that carry the version."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    return tmp_path


def test_one_command_writes_a_version(copied: Path) -> None:
    """R and charts write a candidate in their own form; what was written reads back as one version."""
    release.write_version(copied, "1.2.3rc4")
    assert list(release.strays(copied)) == []
    texts = {place: (copied / place).read_text(encoding="utf-8") for place in PLACES}
    assert '__version__ = "1.2.3rc4"' in texts["pinq/__init__.py"]
    assert "\nVersion: 1.2.3.9004\n" in texts["clients/r/DESCRIPTION"]
    assert "\nversion: 1.2.3-rc.4\n" in texts["deploy/helm/pinq/Chart.yaml"]
    assert re.search(r"^date-released: \d{4}-\d\d-\d\d$", texts["CITATION.cff"], flags=re.MULTILINE)
    release.write_version(copied, "1.2.3")
    release.write_version(copied, "1.2.3")
    assert (copied / "CITATION.cff").read_text(encoding="utf-8").count("date-released") == 1
    (copied / "CITATION.cff").write_text("version: 9.9.9\n", encoding="utf-8")
    assert list(release.strays(copied)) == ["CITATION.cff has ['9.9.9'], pinq/__init__.py has 1.2.3"]


def ended(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A command that may fail."""
    return subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, check=False)


def test_what_is_no_version_is_refused() -> None:
    done = ended(sys.executable, ROOT / "tools" / "release.py", "version", "next")
    assert (done.returncode, "'next' is no version" in done.stderr) == (1, True)


LINKS = "https://example.org/pinq/blob/v0/"


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick dry run of a release; it refuses archives with other contents."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    run(
        sys.executable,
        ROOT / "tools" / "release.py",
        "build",
        "--quick",
        "--folder",
        folder,
        "--links",
        LINKS,
        cwd=ROOT,
    )
    return folder


def test_the_dry_run_leaves_checksums_of_all_artefacts(artefacts: Path) -> None:
    lines = (artefacts / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: checksum for checksum, name in map(str.split, lines)}
    assert set(sums) == {file.name for file in artefacts.iterdir()} - {"SHA256SUMS"}
    assert {Path(name).suffix for name in sums} == {".whl", ".gz", ".tgz"}
    for name, checksum in sums.items():
        assert hashlib.sha256((artefacts / name).read_bytes()).hexdigest() == checksum


def test_the_page_of_an_index_leads_to_files_of_the_version(artefacts: Path) -> None:
    """An index shows README.md without the files around it: each link within the repository begins with its address."""
    (wheel,) = artefacts.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        page = archive.read(name).decode()
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert f"Project-URL: Source, {LINKS}" in page
    assert f"{LINKS}docs/pictures/tree.png?raw=true" in links
    assert len(links) > 30
    for link in links:
        assert link.startswith(("https://", "#")), link
        if link.startswith(LINKS):
            assert (ROOT / link.removeprefix(LINKS).partition("?")[0].partition("#")[0]).exists(), link


def test_the_demo_runs_from_the_wheel_in_an_empty_environment(artefacts: Path, tmp_path: Path) -> None:
    """The distribution's own name is a command, as `uvx` and `pipx run` want it. What is missing is named before work."""
    (wheel,) = artefacts.glob("*.whl")
    python = environment(tmp_path / "demo", wheel, "demo")
    said = run(python.parent / "pinq-miners", "demo", cwd=tmp_path)
    assert "Refused: This would cost epsilon 0.3" in said
    assert json.loads((tmp_path / "pinq-demo" / "tree.json").read_text(encoding="utf-8"))
    (tmp_path / "pinq-demo" / "thesis.txt").write_text("kept", encoding="utf-8")
    again = ended(python.parent / "pinq", "demo", cwd=tmp_path)
    assert (again.returncode, "'thesis.txt', which the demo did not make" in again.stderr) == (1, True)
    assert (tmp_path / "pinq-demo" / "tree.json").exists()
    bare = environment(tmp_path / "bare", wheel)
    done = ended(bare.parent / "pinq", "demo", cwd=tmp_path)
    assert (done.returncode, "pip install 'pinq-miners[demo] @ file://" in done.stderr) == (1, True)
    assert re.search(r"uvx --from 'pinq-miners\[demo\] @ file://\S+' pinq-miners demo$", done.stderr.strip())


def test_another_project_of_the_import_name_is_named(artefacts: Path, tmp_path: Path) -> None:
    """Its files lie in our folder: if ours came last, all works and a warning says so; else nothing works but the reason."""
    (wheel,) = artefacts.glob("*.whl")
    python = environment(tmp_path / "both", wheel)
    packages = next((tmp_path / "both" / "lib").glob("python*")) / "site-packages"
    (packages / "pinq-0.1.1.dist-info").mkdir()
    (packages / "pinq-0.1.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pinq\nVersion: 0.1.1\n")
    ours = ended(python, "-c", "import pinq, miners; miners.DiffPC45, pinq.Values('a')", cwd=tmp_path)
    assert (ours.returncode, "pip uninstall pinq pinq-miners" in ours.stderr) == (0, True), ours.stderr
    (packages / "pinq" / "__init__.py").write_text("from pinq.queryable import Queryable\n")
    (packages / "pinq" / "queryable.py").write_text("class Queryable: ...\n")
    for words in ([python, "-c", "from miners import DiffPC45"], [python.parent / "pinq", "--help"]):
        theirs = ended(*words, cwd=tmp_path)
        assert (theirs.returncode, "belongs to another project" in theirs.stderr) == (1, True), theirs.stderr


def test_the_image_gets_every_package_of_the_wheel() -> None:
    """A package whose command is registered must be there, or no command starts."""
    copied = set(re.findall(r"^COPY (\w+) \w+$", (ROOT / "deploy" / "Containerfile").read_text(), flags=re.MULTILINE))
    admitted = set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE))
    assert copied == release.PACKAGES | {"data", "policies"}
    assert copied <= admitted
