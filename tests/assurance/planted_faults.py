# SPDX-License-Identifier: Apache-2.0
"""Plants faults in a copy of the packages, one at a time, and says which test catches each.

``python -m tests.assurance.planted_faults`` runs the suspected test files for each fault, up to the
first test that fails or does not end in time, and writes the table of
``benchmarks/results/planted-faults.md``. A fault that nothing catches ends it with status 1: then a
test is missing. Tests that caught a fault must pass without it, as the last step shows.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.origin import commit_of
from tests.assurance.faults import FAULTS, Fault
from tests.support.house.checkout import ROOT

LIMIT = 400.0  # seconds of the tests of one fault: a minute on a core of their own, and several beside others
COPIES = 2  # of the packages, with a fault in each
RESULTS = ROOT / "benchmarks" / "results" / "planted-faults.md"
COPIED = (
    "pinq",
    "pinq_secure",
    "miners",
    "pinq_workbench",
    "pinq_demo",
    "tests",
    "tools",
    "policies",
    "data",
    "docs",
    "benchmarks",
    "examples",
    "pyproject.toml",
    "README.md",
)


@dataclass(frozen=True)
class Outcome:
    """What noticed a fault.

    Attributes:
        fault: The fault.
        caught: The first test that failed, or that did not end in time; None where all passed.
        ended: Whether that test ended.
        seconds: The time of all.
    """

    fault: Fault
    caught: str | None
    ended: bool
    seconds: float


def main() -> int:
    """Plants every fault, or those whose description has the words of the command line."""
    chosen = [fault for fault in FAULTS if all(word in fault.what for word in sys.argv[1:])]
    commit = commit_of()
    with tempfile.TemporaryDirectory() as folder:
        copies = [_copied(Path(folder) / str(number)) for number in range(COPIES)]
        with ThreadPoolExecutor(COPIES) as pool:
            shares = pool.map(_planted_in, copies, [chosen[number::COPIES] for number in range(COPIES)])
            found = {outcome.fault: outcome for share in shares for outcome in share}
        outcomes = [found[fault] for fault in chosen]
        caught = list(dict.fromkeys(outcome.caught for outcome in outcomes if outcome.caught))
        wrong = _first_failure(tuple(caught), copies[0], LIMIT * len(caught))[0] if caught else None
    if wrong:
        raise SystemExit(f"{wrong} fails without a fault too, so it has caught nothing.")
    if chosen == list(FAULTS):
        RESULTS.write_text(table(outcomes, commit), encoding="utf-8")
    return int(any(outcome.caught is None for outcome in outcomes))


def _copied(copy: Path) -> Path:
    """Copies the packages and their tests."""
    copy.mkdir()
    for name in COPIED:
        here = ROOT / name
        shutil.copytree(here, copy / name) if here.is_dir() else shutil.copy(here, copy)
    return copy


def _planted_in(copy: Path, faults: list[Fault]) -> list[Outcome]:
    """Plants faults in a copy, one after the other, and prints what catches each."""
    outcomes = []
    for fault in faults:
        outcomes.append(planted(fault, copy))
        print(f"{fault.what}: {outcomes[-1].caught or 'NOT CAUGHT'} ({outcomes[-1].seconds:.0f} s)", flush=True)
    return outcomes


def planted(fault: Fault, copy: Path) -> Outcome:
    """Runs the suspected tests on a copy with the fault, and takes the fault out again."""
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        raise SystemExit(f"{fault.file} has the text of {fault.what!r} {text.count(fault.right)} times, not once.")
    file.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    began = time.monotonic()
    try:
        caught, ended = _first_failure(fault.tests, copy, LIMIT)
    finally:
        file.write_text(text, encoding="utf-8")
    return Outcome(fault, caught, ended, time.monotonic() - began)


def _first_failure(tests: tuple[str, ...], copy: Path, limit: float) -> tuple[str | None, bool]:
    """Runs tests in the copy up to the first that fails, or runs when the time is over; and whether it ended."""
    options = ["-x", "-v", "--no-header", "-p", "no:cacheprovider", "-p", "hypothesispytest", "--tb=no"]
    options.append("--hypothesis-profile=first")
    ran = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env=os.environ
        | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = ran.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(ran.pid, signal.SIGKILL)  # with the servers that its tests have started
        out, _ = ran.communicate()
        running = out.splitlines()[-1].strip()
        if running.startswith("tests/") and not re.search(r" (PASSED|SKIPPED|XFAIL)\b", running):
            return running, False
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", out, flags=re.MULTILINE)
    if failed:
        return str(failed[0]), True
    if ran.returncode != 0:
        raise SystemExit(out[-4000:])
    return None, True


def table(outcomes: list[Outcome], commit: str) -> str:
    """Writes the page."""
    caught = sum(outcome.caught is not None for outcome in outcomes)
    rows = [f"| {outcome.fault.what} | `{outcome.fault.file}` | {_short(outcome)} |" for outcome in outcomes]
    return "\n".join(
        [
            "# Planted faults",
            "",
            f"Each of {len(outcomes)} mistakes was made in a copy of the packages of commit {commit}, by itself; {caught}",
            "were caught. The test is the first that failed, or that was still running when the time was over",
            f"({LIMIT:.0f} seconds; marked so); others may notice too. Each of these tests passes without the mistake.",
            "Again: `python -m tests.assurance.planted_faults`, part of `make assurance`.",
            "",
            "| mistake | where | caught by |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _short(outcome: Outcome) -> str:
    if outcome.caught is None:
        return "**nothing**"
    file, _, name = outcome.caught.partition("::")
    test = f"`{Path(file).name}`: {name.split('[')[0].removeprefix('test_').replace('_', ' ')}"
    return test if outcome.ended else f"{test} (does not end)"


if __name__ == "__main__":
    sys.exit(main())
