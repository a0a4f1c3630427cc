# SPDX-License-Identifier: Apache-2.0
"""The R package, installed by R and run by R, against a real server over TLS."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pinq
from miners.statistics import cells
from pinq.public.checks import text_of
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


VALUES: dict[str, list[Any]] = {
    "code": [10, 1, 2, 100_000, -9],
    "truth": [True, False],
    "word": ["1.0", "2.0", "yes", "1e5", "007"],
    "plain": ["a", "b"],
}
GIVEN: list[tuple[str, Any]] = [
    *(("1", 1), ("2", 2), ("10", 10), ("-9", -9), ("100000", 100_000), ("1e5", 100_000), ("3", 3), ("1.5", 1.5)),
    *(("TRUE", True), ("FALSE", False), ('"1"', "1"), ('"true"', "true"), ('"yes"', "yes"), ('"YES"', "YES")),
    *(('"1.0"', "1.0"), ('"007"', "007"), ("7", 7), ('"1e5"', "1e5"), ('"b"', "b"), ('" b"', " b"), ('""', "")),
]
"""Values as R writes them, and as Python does."""


def test_a_value_is_the_same_in_r(setting: Setting, tmp_path: Path) -> None:
    """A part, a group and the value of an event that R names are those that Python does, or are refused alike."""
    columns = {name: {"type": "categorical", "values": values} for name, values in VALUES.items()}
    frame = pd.DataFrame({name: [values[i % len(values)] for i in range(60)] for name, values in VALUES.items()})
    policy = publish(tmp_path, "cells", frame, columns=columns)
    token, certificate = token_of(policy, epsilon=900), Certificate.make(tmp_path)
    with (
        serving(policy, folder=tmp_path, certificate=certificate) as server,
        pinq.connect(server.url("cells"), token=token, verify=certificate.authority) as handle,
    ):
        lines = [
            "library(pinq)",
            f'h <- connect("{server.url("cells")}", "{token}", verify = "{certificate.authority}")',
        ]
        lines.append(
            'at <- function(code) tryCatch(code, error = function(e) if (inherits(e, "QueryError")) 0 else stop(e))'
        )
        expected = []
        for name in VALUES:
            parts, axis = handle.partition(pinq.Values(name)), cells.Axis.of(handle, name, None)
            lines.append(f'p <- partition(h, values("{name}"))')
            for number, (text, value) in enumerate(GIVEN):
                a_place = isinstance(value, (int, float)) and not isinstance(value, bool) and name in ("truth", "plain")
                # What R shows of a value is its text, so a text is a part's label too.
                place = (
                    VALUES[name].index(own[0]) + 1 if (own := [v for v in VALUES[name] if text_of(v) == value]) else 0
                )
                place = place or (0 if a_place else found(partial(parts.__getitem__, value)) or 0)
                counted = found(partial(axis.position, value, "observed"))
                group = found(partial(handle.partition, pinq.Groups(name, ((value,),))))
                expected.append((name, text, place, 0 if counted is None else counted + 1, int(group is not None)))
                asked = f'{{noisy_count(partition(h, groups("{name}", list({text}))), epsilon = 0.001); 1}}'
                position = f'pinq:::position(h, values("{name}"), {text}, "observed")'
                lines.append(
                    f'cat("{number}", {"0" if a_place else f"at(part(p, {text})$path[[1]]$index + 1)"}, at({position}), '
                    f'at({asked}), "\\n")'
                )
        (tmp_path / "values.R").write_text("\n".join(lines), encoding="utf-8")
        printed = setting.run(f'source("{tmp_path}/values.R")')
    told = [tuple(map(int, line.split()))[1:] for line in printed.splitlines() if line[:1].isdigit()]
    assert [(*one[:2], *said) for one, said in zip(expected, told, strict=True)] == expected


def found(call: Callable[[], Any]) -> Any:
    """What a call finds, the number of a part from 1; None where it is refused."""
    try:
        answer = call()
    except pinq.QueryError:
        return None
    return answer if isinstance(answer, int) else answer._parts.blocks[0].part.index + 1


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
