# SPDX-License-Identifier: Apache-2.0
"""One table, one ledger, however it is reached."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from pinq.errors import PolicyError
from pinq.policy.policy import Policy
from pinq.provider.claim import ledger_url

COLUMNS = {"a": {"type": "categorical", "values": ["x", "y"]}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    pd.DataFrame({"a": ["x", "y"]}).to_parquet(tmp_path / "a.parquet")
    return tmp_path


def policy(folder: Path, **fields: Any) -> Policy:
    return Policy(
        **{"dataset": "t", "source": "a.parquet", "cap": 1, "max_rows": 9, "columns": COLUMNS, "folder": folder}
        | fields
    )


@pytest.mark.parametrize(
    "source", ["./a.parquet", "sub/../a.parquet", "link.parquet", "a.parque[t]", "*.parquet", "sub/link.parquet"]
)
def test_every_spelling_meets_in_one_ledger(place: Path, source: str) -> None:
    """Dots, links and patterns lead to the ledger of the real file."""
    first = ledger_url(policy(place), create=True)
    (place / "sub").mkdir()
    (place / "link.parquet").symlink_to(place / "a.parquet")
    (place / "sub" / "link.parquet").symlink_to(place / "a.parquet")
    assert ledger_url(policy(place, source=source), create=True) == first


def test_a_pattern_first_then_a_file(place: Path) -> None:
    """A ledger that was made through a pattern also guards each file that it matched, and files that came later."""
    first = ledger_url(policy(place, source="*.parquet"), create=True)
    assert ledger_url(policy(place)) == first
    pd.DataFrame({"a": ["x"]}).to_parquet(place / "b.parquet")
    assert ledger_url(policy(place, source="*.parquet")) == first
    assert ledger_url(policy(place, source="b.parquet"), create=True) == first


def test_another_ledger_is_refused(place: Path) -> None:
    """A second policy cannot bring a budget of its own, and the refusal says which ledger holds."""
    first = ledger_url(policy(place, ledger="one.ledger"), create=True)
    with pytest.raises(PolicyError, match=f"already guarded by the ledger {first}"):
        ledger_url(policy(place, ledger="two.ledger"), create=True)
    assert ledger_url(policy(place), create=True) == first
    with pytest.raises(PolicyError, match="already guarded"):
        ledger_url(policy(place, source="*.parquet", ledger="three.ledger"), create=True)


def test_relative_urls_start_at_the_policy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory decides nothing."""
    (place / "elsewhere").mkdir()
    first = ledger_url(policy(place, ledger="sqlite:///l.ledger"), create=True)
    monkeypatch.chdir(place / "elsewhere")
    assert ledger_url(policy(place, ledger="sqlite:///l.ledger"), create=True) == first == str(place / "l.ledger")


def test_hard_links_are_refused(place: Path) -> None:
    """Through each hard link a file looks like another one."""
    os.link(place / "a.parquet", place / "b.parquet")
    with pytest.raises(PolicyError, match="hard links"):
        ledger_url(policy(place, source="b.parquet"), create=True)


def test_looking_writes_nothing(place: Path) -> None:
    """Only making a ledger claims a source."""
    ledger_url(policy(place, ledger="one.ledger"))
    assert sorted(path.name for path in place.iterdir()) == ["a.parquet"]


def test_claims_keep_no_password(place: Path) -> None:
    """A URL's password is not written beside the data; the URL with it is what is used."""
    url = "postgresql+psycopg://ana:secret@db/pinq"
    assert ledger_url(policy(place, ledger=url), create=True) == url
    assert "secret" not in (place / "a.parquet.claim").read_text()
    assert ledger_url(policy(place, ledger=url)) == url


def test_tables_of_one_database_are_different_sources(place: Path) -> None:
    """Case does not make another table."""
    with duckdb.connect(str(place / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'x' a; CREATE TABLE u AS SELECT 'y' a")
    urls = [
        ledger_url(policy(place, source={"database": "d.duckdb", "table": table}), create=True)
        for table in ("t", "u", "T")
    ]
    assert urls[0] == urls[2] != urls[1]


def test_an_unwritable_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ledger and claim go to the user's state folder, and hold also once the folder can be written."""
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    right = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != place and right(path, mode))
    first = ledger_url(policy(place), create=True)
    assert Path(first).is_relative_to(state)
    monkeypatch.setattr("os.access", right)
    assert ledger_url(policy(place), create=True) == first
