# SPDX-License-Identifier: Apache-2.0
"""The versions that ``make test-oldest`` installs are the lower bounds that users are promised."""

from __future__ import annotations

from tests.oldest import constraints
from tests.support.house.checkout import ROOT


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """One line for each dependency, and no dependency without a lower bound."""
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    assert lines[1:] == [f"{name}=={version}" for name, version in constraints().items()]
    assert {"pydantic", "pandas", "numpy", "duckdb", "starlette", "gmpy2", "matplotlib", "psycopg"} <= set(
        constraints()
    )
