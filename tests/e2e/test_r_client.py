# SPDX-License-Identifier: Apache-2.0
"""The R package, installed by R and run by R, against a real server over TLS."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.integration.provider.test_year_of_a_registry import arrive
from tests.support.house.checkout import ROOT
from tests.support.processes.servers import COLUMNS, Certificate, Server, people, publish, serving, token_of

PACKAGES = ("httr2", "jsonlite", "openssl", "testthat")


def _r(*lines: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["Rscript", "--vanilla", "-e", "; ".join(lines)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | env,
    )


def _able() -> bool:
    if shutil.which("Rscript") is None:
        return False
    needed = ", ".join(f'"{name}"' for name in PACKAGES)
    return _r(f"stopifnot(sapply(c({needed}), requireNamespace, quietly = TRUE))").returncode == 0


@dataclass(frozen=True)
class Setting:
    """A server with a table, and R with the package installed."""

    server: Server
    token: str
    package: Path
    library: Path

    def run(self, *lines: str) -> str:
        """What R prints, over a handle's address, token and authority."""
        assert self.server.certificate is not None
        ran = _r(
            f'.libPaths("{self.library}")',
            *lines,
            PINQ_TEST_URL=self.server.url(),
            PINQ_TEST_TOKEN=self.token,
            PINQ_TEST_CA=str(self.server.certificate.authority),
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """The package as R installs it, beside a running server."""
    if not _able():  # asked here, for starting R takes a second, and each process collects all tests
        pytest.skip("needs R with httr2, jsonlite and testthat")
    folder = tmp_path_factory.mktemp("r")
    (folder / "library").mkdir()
    package = shutil.copytree(ROOT / "clients" / "r", folder / "pinq")
    installing = ["R", "CMD", "INSTALL", "--no-docs", f"--library={folder / 'library'}", str(package)]
    built = subprocess.run(installing, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stdout + built.stderr
    born = people().assign(born=[date(1950, 1, 1) + timedelta(days=30 * number) for number in range(400)])
    columns = COLUMNS | {"born": {"type": "date", "lower": "1950-01-01", "upper": "1982-12-31"}}
    policy = publish(folder / "policies", frame=born, columns=columns)
    token, certificate = token_of(policy, epsilon=800), Certificate.make(folder)
    with serving(policy, folder=folder, certificate=certificate) as server:
        yield Setting(server, token, package, folder / "library")


def test_the_r_client_passes_its_own_tests_against_a_real_server(setting: Setting) -> None:
    """Counts, sums, averages, parts, choices, reuse, errors and history come back as they should."""
    tests = f'"{setting.package}/tests/testthat"'
    printed = setting.run(
        f'testthat::test_dir({tests}, package = "pinq", load_package = "installed", reporter = "summary")'
    )
    assert "Skipped" not in printed, printed
    assert "DONE" in printed, printed


def test_the_page_on_r_runs(setting: Setting, tmp_path: Path) -> None:
    """Its blocks work one after another, and print what the page speaks of."""
    page = (ROOT / "docs" / "r-client.md").read_text(encoding="utf-8")
    script = tmp_path / "page.R"
    script.write_text("".join(re.findall(r"```r\n(.*?)```", page, flags=re.DOTALL)), encoding="utf-8")
    text = script.read_text(encoding="utf-8")
    opening = 'connect("https://stats.example.org:8443/people", verify = "authority.pem")'
    assert text.count(opening) == 1
    here = 'connect(Sys.getenv("PINQ_TEST_URL"), Sys.getenv("PINQ_TEST_TOKEN"), verify = Sys.getenv("PINQ_TEST_CA"))'
    script.write_text(text.replace(opening, here), encoding="utf-8")
    printed = setting.run(f'pdf("{tmp_path}/plots.pdf")', f'source("{script}", echo = TRUE)')
    for words in ("Nothing was spent.", "would remain", "women <- part"):
        assert words in printed


def test_tables_and_cohorts(setting: Setting, tmp_path: Path) -> None:
    """A table is an address, and a month of a closed cohort costs as the cohort does: three at 1 cost 1, and visits 1."""
    policy = arrive(tmp_path, 3)
    token, certificate = token_of(policy, epsilon=9), Certificate.make(tmp_path)
    with serving(policy, folder=tmp_path, certificate=certificate) as server:
        words = f'"{token}", verify = "{certificate.authority}"'
        printed = setting.run(
            "library(pinq)",
            f'noisy_count(connect("{server.url("registry.visits")}", {words}), epsilon = 1)',
            f'patients <- connect("{server.url("registry.patients")}", {words})',
            'months <- partition(patients, calendar("admitted", "month"))',
            'for (month in c("2026-01", "2026-02", "2026-03")) noisy_count(part(months, month), epsilon = 1)',
            'cat("spent", budget(patients)$spent, "\\n")',
            f'said <- tryCatch(connect("{server.url("registry")}", {words}), error = conditionMessage)',
            'cat("said", said, "\\n")',
        )
    assert "spent 2 \n" in printed, printed
    assert "said No valid grant under this name for this dataset" in printed, printed
