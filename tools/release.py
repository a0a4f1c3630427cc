# SPDX-License-Identifier: Apache-2.0
"""The artefacts of a release, and the one version that all of them carry. RELEASING.md says when to run what.

``python tools/release.py version 0.1.0rc1`` writes a version into each file that repeats it.
``python tools/release.py build`` makes the artefacts in ``dist/``; nothing is uploaded.
``python tools/release.py build --links https://github.com/NAME/pinq/blob/v0.1.0rc1/`` does so for an index, whose page
shows README.md without the files around it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = "pinq/__init__.py"
NUMBER = r"[0-9]+\.[0-9]+\.[0-9]+(?:rc[0-9]+)?"
# The files that carry the version, each with the pattern around it; the first is where it lives.
PLACES = {
    HOME: (r'^(__version__ = ")', r'(")$'),
    "CITATION.cff": (r"^(version: )", r"()$"),
    "clients/r/DESCRIPTION": (r"^(Version: )", r"()$"),
    "deploy/helm/pinq/Chart.yaml": (r"^(version: )", r"()$"),
    "deploy/helm/pinq/Chart.yaml#app": (r'^(appVersion: ")', r'(")$'),
    "deploy/helm/pinq/values.yaml": (r'^(  tag: ")', r'(")$'),
}
PACKAGES = {"pinq", "miners", "pinq_secure", "pinq_workbench", "pinq_demo"}
DESCRIBED = {"LICENSE", "README.md", "pyproject.toml"}
# A candidate of R's package and of the chart: 0.1.0rc1 is 0.1.0.9001 and 0.1.0-rc.1 there.
FORMS = {"clients/r/DESCRIPTION": "{}.900{}", "deploy/helm/pinq/Chart.yaml": "{}-rc.{}"}


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="write a version into each file that repeats it").add_argument("version")
    build = commands.add_parser("build", help="make the artefacts; nothing is uploaded")
    build.add_argument("--folder", type=Path, default=ROOT / "dist", help="the artefacts' folder, which is emptied")
    build.add_argument("--links", default="", help="the address of the version's files; README's links begin with it")
    build.add_argument("--quick", action="store_true", help="only sdist, wheel, R package, chart and checksums")
    asked = parser.parse_args()
    if asked.command == "version":
        if not re.fullmatch(NUMBER, asked.version):
            sys.exit(f"{asked.version!r} is no version: 0.1.0, or 0.1.0rc1 for a candidate")
        write_version(ROOT, asked.version)
    else:
        make(asked.folder, links=asked.links, quick=asked.quick)


def version_of(root: Path) -> str:
    """Returns the version, from the file where it lives."""
    found = re.search(r'^__version__ = "(.+)"$', (root / HOME).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found, HOME
    return found[1]


def form(place: str, version: str) -> str:
    """Returns a version as a file of this place writes it."""
    number, _, candidate = version.partition("rc")
    return FORMS.get(place, "{}rc{}").format(number, candidate) if candidate else version


def write_version(root: Path, version: str) -> None:
    """Writes a version into each of its places, and today as the day of the release."""
    for place, (before, after) in PLACES.items():
        file = root / place.partition("#")[0]
        text = file.read_text(encoding="utf-8")
        text, times = re.subn(rf"{before}.*?{after}", rf"\g<1>{form(place, version)}\g<2>", text, flags=re.MULTILINE)
        assert times == 1, f"{place}: {times} places for a version"
        file.write_text(text, encoding="utf-8")
    citation = root / "CITATION.cff"
    text = re.sub(r"^date-released: .*\n", "", citation.read_text(encoding="utf-8"), flags=re.MULTILINE)
    citation.write_text(re.sub(r"^(version: .*\n)", rf"\g<1>date-released: {date.today()}\n", text, flags=re.MULTILINE))


def strays(root: Path) -> Iterator[str]:
    """Yields a sentence for each file whose version is another."""
    version = version_of(root)
    for place, (before, after) in PLACES.items():
        text = (root / place.partition("#")[0]).read_text(encoding="utf-8")
        found = re.findall(rf"{before}(.*?){after}", text, flags=re.MULTILINE)
        if [one[1] for one in found] != [form(place, version)]:
            yield f"{place} has {[one[1] for one in found]}, {HOME} has {version}"


def absolute(text: str, links: str) -> str:
    """Returns a page whose links within the repository begin with an address; pictures are asked for as they are."""
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)([^)\s]+)", rf"\g<1>{links}\g<2>?raw=true", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)([^)\s]+)", rf"\g<1>{links}\g<2>", text)


def make(folder: Path, *, links: str, quick: bool) -> None:
    """Makes the artefacts and says, for each, where it is or why it is missing."""
    if others := list(strays(ROOT)):
        sys.exit("\n".join([*others, "Run: python tools/release.py version VERSION"]))
    version = version_of(ROOT)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:  # what an earlier build left in the checkout would get in
        for name in PACKAGES:
            shutil.copytree(ROOT / name, Path(place) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in DESCRIBED:
            shutil.copy(ROOT / name, place)
        if links:
            page = Path(place, "README.md")
            page.write_text(absolute(page.read_text(encoding="utf-8"), links), encoding="utf-8")
            with Path(place, "pyproject.toml").open("a", encoding="utf-8") as project:
                project.write(f'\n[project.urls]\nSource = "{links}"\n')
        run(sys.executable, "-m", "build", *(["--no-isolation"] if quick else []), "--outdir", folder, place)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    look(wheel, source)
    chart = folder / f"pinq-chart-{form('deploy/helm/pinq/Chart.yaml', version)}.tgz"
    with tarfile.open(chart, "w:gz") as archive:
        archive.add(ROOT / "deploy" / "helm" / "pinq", "pinq")
    missing = []
    if shutil.which("R"):
        run("R", "CMD", "build", "--no-build-vignettes", ROOT / "clients" / "r", cwd=folder)
    else:
        missing.append("the R package: R is not installed")
    if not quick:
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
        bill_of_materials(wheel, folder / f"pinq-miners-{version}.cdx.json")
        run("make", "-C", ROOT, "docs")
        shutil.make_archive(str(folder / f"pinq-miners-{version}-docs"), "gztar", ROOT / "build" / "site")
        image = [str(ROOT / "deploy" / "build"), f"localhost/pinq:{version}"]
        if subprocess.run(image, check=False).returncode:  # no builder, or none that works
            missing.append("the image: see the builder's words above")
    files = sorted(file for file in folder.iterdir() if file.is_file())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(f"{version} in {folder}:\n{sums}", end="")
    print("".join(f"NOT MADE: {one}\n" for one in missing), end="")


def look(wheel: Path, source: Path) -> None:
    """Refuses archives that hold something else than the packages and what describes them."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == PACKAGES, f"{wheel.name} holds {sorted(tops)}"
    assert {"pinq_demo/adult.parquet", "pinq_demo/adult.yaml"} <= set(names), "the demo's table is missing"
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2].partition("/")[0] for name in archive.getnames()}
    others = inside - PACKAGES - DESCRIBED - {"", "PKG-INFO", "pinq_miners.egg-info", "setup.cfg"}
    assert not others, f"{source.name} holds {sorted(others)}"


def bill_of_materials(wheel: Path, target: Path) -> None:
    """Writes what an installation with all extras brings along, in CycloneDX's form."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[all]")
        run(sys.executable, "-m", "cyclonedx_py", "environment", python, "--output-file", target)


def run(*words: object, cwd: Path | None = None) -> None:
    """Runs a command that must succeed."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
