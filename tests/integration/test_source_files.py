# SPDX-License-Identifier: Apache-2.0
"""One table over several files and folders: what is read, what is read again, and whose rows are kept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq.engine import open_engine
from pinq.engine.encoding import Encoder
from pinq.errors import PolicyError
from pinq.policy.files import source_files, source_path
from pinq.policy.policy import Policy
from pinq.provider.claim import ledger_url
from pinq.provider.policy_file import load_policy
from tests.support.requests.handles import encoded_rows
from tests.support.requests.recorded_calls import noting

Codes = Counter[tuple[int, ...]]
COLUMNS: dict[str, Any] = {
    "ward": {"type": "categorical", "values": ["a", "b", "c"], "nullable": True},
    "cost": {"type": "numeric", "lower": 0, "upper": 10, "step": "0.5"},
}
BY_PERSON = {"column": "who", "max_rows": 2}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data, where every source is too large for memory, and a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 10)
    (tmp_path / "data" / "late").mkdir(parents=True)
    return tmp_path / "data"


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry whenever a piece of a source is encoded."""
    made: list[str] = []
    right = Encoder.encoded
    monkeypatch.setattr(Encoder, "encoded", noting(right, made, lambda own, source: source))
    return made


def people(rows: int = 300) -> pd.DataFrame:
    """Rows of a hundred persons, of whom each has rows everywhere in the table."""
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "who": [f"p{number}" for number in random.integers(0, 100, rows)],
            "ward": random.choice(np.array(["a", "b", "c", None], dtype=object), rows),
            "cost": random.integers(0, 21, rows) / 2,
        }
    )


def policy(place: Path, source: Any, **words: Any) -> Policy:
    return Policy(
        **{"dataset": "t", "cap": 1, "max_rows": 999, "columns": COLUMNS} | words, source=source, folder=place
    )


def codes(policy: Policy) -> Codes:
    engine, _ = open_engine(policy, salt=b"salt")
    found = Counter(encoded_rows(engine))
    engine.close()
    return found


def in_one(place: Path, frame: pd.DataFrame, **words: Any) -> Codes:
    """The codes of the same rows in one file that stands alone."""
    alone = place.parent / "alone"
    alone.mkdir(exist_ok=True)
    frame.to_parquet(alone / "all.parquet")
    return codes(policy(alone, "all.parquet", **{"dataset": "alone"} | words))


def parts(place: Path, frame: pd.DataFrame) -> Iterator[tuple[Path, pd.DataFrame]]:
    """Writes pieces of a table into files of two folders, one after another; yields what is there by then."""
    borders = [0, 40, 41, 200, len(frame)]
    names = ["1.parquet", "late/2.parquet", "3.parquet", "late/4.parquet"]
    for number, name in enumerate(names):
        frame.iloc[borders[number] : borders[number + 1]].to_parquet(place / name)
        yield place / name, frame.iloc[: borders[number + 1]]


@pytest.mark.parametrize("unit", ["row", BY_PERSON], ids=["row", "person"])
def test_a_table_that_grows_by_files_encodes_only_the_new_ones(unit: Any, place: Path, encodings: list[str]) -> None:
    """After each file it has the rows of one file with all of them; of persons all files are read, at once."""
    for path, so_far in parts(place, people()):
        encodings.clear()
        assert codes(policy(place, ".", privacy_unit=unit)) == codes(policy(place, ".", privacy_unit=unit))
        assert len(encodings) == 1
        assert unit != "row" or encodings == [f"read_parquet(['{path}'])"]
        assert codes(policy(place, ".", privacy_unit=unit)) == in_one(place, so_far, privacy_unit=unit)


@pytest.mark.parametrize("unit", ["row", BY_PERSON], ids=["row", "person"])
@pytest.mark.parametrize("change", ["changed", "gone", "touched"])
def test_a_file_that_changes_or_goes_is_noticed(unit: Any, change: str, place: Path, encodings: list[str]) -> None:
    """The others are encoded again only where a unit's bound chooses from the rows of all."""
    *_, (_, frame) = parts(place, people())
    whole = policy(place, ["*.parquet", "late"], privacy_unit=unit)
    codes(whole)
    encodings.clear()
    if change == "changed":
        frame.iloc[:7].to_parquet(place / "3.parquet")
        frame = pd.concat([frame.iloc[:41], frame.iloc[:7], frame.iloc[200:]])
    elif change == "gone":
        (place / "3.parquet").unlink()
        frame = pd.concat([frame.iloc[:41], frame.iloc[200:]])
    else:
        os.utime(place / "3.parquet")
    assert codes(whole) == in_one(place, frame, privacy_unit=unit)
    encodings.pop()  # of the file that stands alone
    again = {"changed": 1, "gone": 0, "touched": 1}[change]
    assert len(encodings) == (again if unit == "row" else 1)


def test_lists_patterns_and_folders_name_the_same_table(place: Path) -> None:
    """Each file counts once, however often and by whatever links it is named."""
    *_, (_, frame) = parts(place, people())
    (place / "link").symlink_to(place / "late")
    sources: list[Any] = [
        ".",
        ["*.parquet", "late/*.parquet"],
        ["1.parquet", "3.parquet", "late"],
        ["1.parquet", "late/../1.parquet", "3.parquet", "link", "late/4.parquet"],
    ]
    for number, source in enumerate(sources):
        assert codes(policy(place, source, dataset=f"t{number}")) == in_one(place, frame)


@pytest.fixture(params=["kept", "in memory"])
def size(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source whose codes are kept file by file, or a small one, whose files are read together."""
    if request.param == "in memory":
        monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 10**6)
    return str(request.param)


@pytest.mark.parametrize("unit", ["row", BY_PERSON], ids=["row", "person"])
def test_small_files_are_read_together(unit: Any, size: str, place: Path, encodings: list[str]) -> None:
    """A thousand of them would take a thousand queries; their rows are those of one file either way."""
    *_, (_, frame) = parts(place, people())
    assert codes(policy(place, ".", privacy_unit=unit)) == in_one(place, frame, privacy_unit=unit)
    assert len(encodings) == (5 if size == "kept" and unit == "row" else 2)


def test_a_folder_that_says_more_of_its_rows_speaks_for_its_own_files(size: str, place: Path) -> None:
    """``ward=b`` gives a column that the file lacks; a file beside that folder has it by itself."""
    frame = people()
    for ward in ("ward=b", "ward=7", "."):
        (place / ward).mkdir(exist_ok=True)
        frame.drop(columns=[] if ward == "." else ["ward"]).to_parquet(place / ward / "1.parquet")
    named = policy(place, ".")
    assert codes(named) == in_one(place, pd.concat([frame, frame.assign(ward="b")]))


def test_files_of_unlike_types_are_read_each_by_its_own(size: str, place: Path) -> None:
    """A file of whole numbers first does not round those of the next; columns may stand in another order."""
    frame = people()
    frame.assign(cost=frame["cost"].round().astype(int)).to_parquet(place / "1.parquet")
    frame[["cost", "ward"]].to_parquet(place / "2.parquet")
    rounded = frame.assign(cost=frame["cost"].round())
    assert codes(policy(place, "*.parquet")) == in_one(place, pd.concat([rounded, frame]))


@pytest.mark.parametrize("kept", [True, False], ids=["grown", "at once"])
def test_files_that_write_a_unit_differently_are_no_table_together(
    kept: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person would be 5 here and 5.00 there, and keep twice the rows. Whole numbers and their texts agree."""
    if not kept:
        monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 10**6)
    whole = people().assign(who=np.arange(300) % 100)
    whole.to_parquet(place / "1.parquet")
    together = policy(place, ["*.parquet"], privacy_unit=BY_PERSON)
    before = codes(together)
    whole.assign(who=whole["who"].astype(str)).to_parquet(place / "2.parquet")
    grown = codes(together)
    assert grown == in_one(place, pd.concat([whole, whole]), privacy_unit=BY_PERSON)
    assert grown.total() == before.total()
    whole.assign(
        who=pd.Series([Decimal(f"{who}.00") for who in whole["who"]], index=whole.index, dtype=object)
    ).to_parquet(place / "3.parquet")
    with pytest.raises(PolicyError, match=r"'who' as DECIMAL\(4,2\) and as whole numbers or text: one unit would"):
        codes(together)


def test_a_list_of_files_of_persons_is_read_whole_where_it_grew(place: Path, encodings: list[str]) -> None:
    """Once for each list, as a person's rows are chosen from all of them; opened again, it is not read."""
    frame = people()
    for number in range(3):
        frame.iloc[100 * number : 100 * (number + 1)].to_parquet(place / f"{number}.parquet")
    for source in ("0.parquet", ["0.parquet", "1.parquet"], ["0.parquet", "1.parquet", "2.parquet"], "0.parquet"):
        encodings.clear()
        whole = policy(place, source, privacy_unit=BY_PERSON)
        found = codes(whole)
        assert codes(whole) == found
        assert len(encodings) == 1
        rows = 100 * (1 if isinstance(source, str) else len(source))
        assert found == in_one(place, frame.iloc[:rows], privacy_unit=BY_PERSON)


def test_lines_of_all_files_count_for_the_share_of_unreadable_ones(place: Path) -> None:
    """Those of a file that was read at an earlier opening too."""
    words = {"csv": {"max_unreadable": 0.3}}
    (place / "1.csv").write_text("ward,cost\na,1\nb,2\nbroken\nc,3\n")
    assert codes(policy(place, "*.csv", **words)).total() == 3
    (place / "2.csv").write_text("ward,cost\nbroken\n")
    with pytest.raises(PolicyError, match="More lines"):
        codes(policy(place, "*.csv", **words))
    (place / "2.csv").write_text("ward,cost\na,1\n")
    assert codes(policy(place, "*.csv", **words)).total() == 4
    (place / "3.csv").write_text("ward,cost\n")
    assert codes(policy(place, "*.csv", **words, privacy_unit="row")).total() == 4


def test_what_is_no_table_in_a_folder_is_named(place: Path) -> None:
    """Nothing is left out silently but hidden files and the ledger's own; two kinds of files are no table."""
    people().to_parquet(place / "1.parquet")
    for name in ("_SUCCESS", ".hidden.parquet", "1.parquet.claim", "late.ledger", "late.ledger-wal"):
        (place / name).touch()
    assert source_files(policy(place, ".")) == [place / "1.parquet"]
    (place / "notes.txt").touch()
    with pytest.raises(PolicyError, match=r"holds notes\.txt, which is no table of a kind that is read"):
        codes(policy(place, "."))
    (place / "notes.txt").rename(place / "notes.csv")
    with pytest.raises(PolicyError, match=r"two kinds, such as notes\.csv and 1\.parquet"):
        codes(policy(place, "."))
    with pytest.raises(PolicyError, match=r"There is no source .*none-\*\.parquet"):
        codes(policy(place, ["1.parquet", "none-*.parquet"]))
    with pytest.raises(PolicyError, match="There is no source"):
        codes(policy(place, ["1.parquet", "2.parquet"]))


def test_files_that_meet_in_two_tables_meet_in_one_ledger(place: Path) -> None:
    """A list's ledger lies beside its first path; each of its files has a claim, a new one from the next opening on."""
    *_, (_, _) = parts(place, people())
    url = ledger_url(policy(place, ["late", "1.parquet"]), create=True)
    assert url == str(place / "late.ledger")
    assert ledger_url(policy(place, ["1.parquet", "3.parquet"]), create=True) == url
    assert ledger_url(policy(place, "3.parquet")) == url
    people().to_parquet(place / "5.parquet")
    ledger_url(policy(place, "5.parquet"), create=True)
    with pytest.raises(PolicyError, match="already guarded by the ledger"):
        ledger_url(policy(place, "*.parquet"))


def test_a_list_of_files_stands_in_a_policy(place: Path) -> None:
    """It survives being written and read; a wrong one is explained in the file's words."""
    written = policy(place, ["1.parquet", "late"])
    (place / "p.yaml").write_text(written.to_yaml())
    assert load_policy(place / "p.yaml").source == ("1.parquet", "late")
    assert source_path(written) == place / "1.parquet"
    (place / "p.yaml").write_text(written.to_yaml().replace("late", "7"))
    with pytest.raises(PolicyError, match=r"source\.1: it is 7; it must be text"):
        load_policy(place / "p.yaml")


class Hostile:
    """Rows whose reading raises something.

    Args:
        raised: The exception.
    """

    def __init__(self, raised: BaseException) -> None:
        self._raised = raised

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Raises it."""
        raise self._raised


@pytest.mark.parametrize(
    "raised",
    [OverflowError("of 17"), MemoryError(), RecursionError("of 17"), type("Panic", (BaseException,), {})("17")],
)
def test_whatever_a_source_raises_is_one_error_with_one_text(tmp_path: Path, raised: BaseException) -> None:
    """A library's panic is no Exception; no text says anything of rows."""
    policy = Policy.model_validate({"dataset": "t", "cap": 1, "max_rows": 9, "columns": COLUMNS, "folder": tmp_path})
    with pytest.raises(PolicyError) as told:
        open_engine(policy, data=Hostile(raised), salt=b"")
    assert str(told.value) == "The source of 't' cannot be read; `pinq check` says why."
    with pytest.raises(KeyboardInterrupt):
        open_engine(policy, data=Hostile(KeyboardInterrupt()), salt=b"")


def test_files_that_cannot_be_listed_are_an_error_of_the_source(tmp_path: Path) -> None:
    """A path that no disk takes."""
    policy = Policy.model_validate(
        {"dataset": "t", "source": f"{'n' * 300}/", "cap": 1, "max_rows": 9, "columns": COLUMNS, "folder": tmp_path}
    )
    with pytest.raises(PolicyError, match="'t' cannot be listed: File name too long"):
        source_files(policy)
