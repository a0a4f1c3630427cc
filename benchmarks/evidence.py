# SPDX-License-Identifier: Apache-2.0
"""Claims of the pages, measured again by one command each: ``make evidence`` writes docs/evidence.md.

``python -m benchmarks.evidence --only demo`` measures some of them. A changed figure is printed
beside the earlier one; a slow machine makes nothing fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date

from benchmarks.harness.origin import commit_of
from tests.support.house.checkout import ROOT

PAGE = ROOT / "docs" / "evidence.md"
KEPT = ROOT / "benchmarks" / "results" / "evidence.json"
HEAD = """\
# Evidence

Each claim with the command that measures it again, in a clone after `make setup`, and with the commit that it was last
measured on. `make evidence` runs all of them, in under two hours on two cores, writes this page again, and prints what
moved.
[Assurance](assurance.md) has the larger runs, [from paper to code](papers.md) the experiments of the papers.

| claim | figure | command | commit | date | minutes |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Claim:
    """A claim of the pages.

    Attributes:
        name: A short name.
        text: The claim.
        command: The shell command that measures it.
        figure: A regular expression for the figure in the command's output.
    """

    name: str
    text: str
    command: str
    figure: str


ASSURED = "PINQ_ASSURANCE=1 python -m pytest -q -p no:randomly tests/"
CLAIMS = (
    Claim("tests", "all tests pass, long ones too", "make test SELECT=", r"(\d+ passed(?:, \d+ skipped)?)"),
    Claim(
        "proof",
        "the composition rule is proved, and the product's totals are the kernel's",
        "make prove",
        r"([\d,]+ random logs cost what the proof says, and [\d,]+ wrong totals were refused)",
    ),
    Claim(
        "selftest",
        "no claimed privacy loss is refuted on dummy rows",
        "pinq selftest --minutes 5 --json",
        r'("holds": true,\s+"power": ".*")',
    ),
    Claim(
        "faults",
        "planted faults are caught by tests that are named for them",
        "python -m tests.assurance.planted_faults",
        r"Each of (\d+ mistakes) was made in a copy of the packages of commit \w+, by itself(; \d+\s+were caught)",
    ),
    Claim(
        "checker",
        "a checker that shares no code agrees with the audit, and finds changes in a log",
        f"{ASSURED}integration/test_verify_log.py",
        r"\| (random ledgers[^|]*\| [\d,]+ \| [^|]+)(\|)\n\|( changes[^|]*\| [\d,]+ \| [^|]+) \|",
    ),
    Claim(
        "kills",
        "`kill -9` loses no charge and repeats none",
        f"{ASSURED}e2e/test_crash.py",
        r"\| kills [^|]*\| ([\d,]+) (\| [^|]+) \|",
    ),
    Claim(
        "requests",
        "malformed requests charge nothing",
        f"{ASSURED}e2e/test_server_fuzz.py",
        r"\| malformed requests \| ([\d,]+) (\| [^|]+) \|",
    ),
    Claim(
        "demo",
        "accuracy of a private tree on Adult at epsilon 1",
        "pinq demo --folder build/demo",
        r"DiffPC45, epsilon 1 +([\d.]+)",
    ),
    Claim(
        "forests",
        "error of a median forest on Banknote at epsilon 4, by mean and by vote of its trees",
        "python -m benchmarks.papers.diprime.choices join",
        r"\| banknote \| DiPriMe \| 4 \| ([.\d]+) (\| [.\d]+)",
    ),
    Claim(
        "coverage",
        "95 % intervals of statistics hold, and tests at .05 reject a true hypothesis, as often as said",
        "python -m benchmarks.accuracy.coverage --minutes 8",
        r"(coverage [.\d]+, level [.\d]+)",
    ),
    Claim(
        "studies",
        "errors at epsilon 1: of a survival curve of 228 rows, of odds ratios over the exact ones; power of chi-square",
        "python -m benchmarks.accuracy.studies",
        r"\n\| 1 \| ([.\d-]+)( \| [.\d]+ \| [.\d]+)",
    ),
    Claim("house", "the size of the code, in statements", "python -m tests.figures", r"\nstatements +([\d,]+)"),
)
NOT_YET = {"figure": "not measured by this command yet", "commit": "", "date": "", "minutes": ""}
LEFT = ("build/assurance.md", "benchmarks/results/planted-faults.md")  # tables that commands leave


def measure(claim: Claim) -> dict[str, str]:
    """Runs a claim's command, and returns its figure with commit, date and minutes."""
    began = time.monotonic()
    environment = {"PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": str(ROOT / "build")}
    environment |= {name: os.environ[name] for name in ("PINQ_DATA",) if name in os.environ}
    command = f"rm -f {LEFT[0]}; {claim.command}; cat {' '.join(LEFT)}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    found = re.findall(claim.figure, done.stdout)
    if not found:
        print(f"{claim.name}: no figure\n{done.stdout[-2000:]}{done.stderr[-2000:]}", flush=True)
    return {
        "figure": " ".join("".join(found[-1]).replace("|", ":").split()) if found else "not measured",
        "commit": commit_of(),
        "date": str(date.today()),
        "minutes": f"{(time.monotonic() - began) / 60:.0f}",
    }


def main() -> None:
    """Measures the claims, keeps the figures and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[claim.name for claim in CLAIMS], help="some of the claims")
    only = parser.parse_args().only
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for claim in CLAIMS:
        if only is None or claim.name in only:
            new, old = measure(claim), kept.get(claim.name, {"figure": "nothing", "commit": "-"})
            moved = "as before" if new["figure"] == old["figure"] else f"moved from {old['figure']} at {old['commit']}"
            print(f"{claim.name}: {new['figure']} ({moved}; {new['minutes']} min)", flush=True)
            kept[claim.name] = new
            KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(HEAD + "".join(row(claim, kept.get(claim.name, NOT_YET)) for claim in CLAIMS), encoding="utf-8")


def row(claim: Claim, new: dict[str, str]) -> str:
    """Returns a claim's line of the page."""
    return (
        f"| {claim.text} | {new['figure']} | `{claim.command}` | {new['commit']} | {new['date']} | {new['minutes']} |\n"
    )


if __name__ == "__main__":
    main()
