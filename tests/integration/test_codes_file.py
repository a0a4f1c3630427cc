# SPDX-License-Identifier: Apache-2.0
"""The file that keeps the codes of a large source: used again while nothing changed, and nothing raw in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pinq.engine import open_engine, opening
from pinq.engine.codes import BLOCK_ROWS, arrow_schema, in_blocks
from pinq.engine.encoding import Encoder
from pinq.engine.sources import OpenSource, Piece
from pinq.errors import InternalError, PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cross, Shards, Values, bind
from pinq.ledger.log import Head
from pinq.policy.policy import Policy
from tests.support.requests.handles import encoded_rows, engine_over
from tests.support.requests.recorded_calls import noting

ROOT = Path(__file__).parents[2]
WHOLE = PartSet([Block(Part())])


@pytest.fixture
def large(tiny_policy: Policy, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    """A policy whose source is too large for memory, and a state folder of its own."""
    frame.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 10)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tiny_policy.model_copy(update={"source": "t.parquet", "memory_limit": "200MB", "folder": tmp_path})


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry whenever a source is encoded."""
    made: list[str] = []
    right = Encoder.encoded
    monkeypatch.setattr(Encoder, "encoded", noting(right, made, lambda own, source: source))
    return made


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "state" / "pinq").glob("*"))


def rows(policy: Policy, salt: bytes = b"salt") -> list[tuple[int, ...]]:
    engine = engine_over(policy, salt=salt)
    found = encoded_rows(engine)
    engine.close()
    return sorted(found)


def test_codes_are_written_once(large: Policy, frame: pd.DataFrame, encodings: list[str], tmp_path: Path) -> None:
    """The second opening reads the file, which its owner alone can read; tables, shards included, are the same."""
    in_memory = engine_over(large, data=frame, salt=b"salt")
    encodings.clear()
    parts = WHOLE.split(bind(Cross((Values("sex"), Shards(3))), large.schema_))
    for _ in range(2):
        engine = engine_over(large, salt=b"salt")
        assert engine.rows() == 40
        assert engine.tabulate(parts)[0].tolist() == in_memory.tabulate(parts)[0].tolist()
        engine.close()
    assert len(encodings) == 1
    (file,) = kept(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"nurse" not in file.read_bytes()


@pytest.mark.parametrize("change", ["source", "policy", "salt", "encoder", "cut", "not codes"])
def test_what_changed_is_encoded_again(
    change: str,
    large: Policy,
    frame: pd.DataFrame,
    encodings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another source, policy, salt or line of the encoder, or a file that is not whole, is never used; the one file is replaced."""
    before = rows(large)
    (file,) = kept(tmp_path)
    policy, salt = large, b"salt"
    if change == "source":
        frame.iloc[:7].to_parquet(tmp_path / "t.parquet")
    elif change == "policy":
        policy = large.model_copy(update={"columns": {"sex": large.columns["sex"]}})
    elif change == "salt":
        salt = b"other"
    elif change == "encoder":
        rooms = [Path(shutil.copytree(ROOT / "pinq" / room, tmp_path / room)) for room in opening.READERS]
        assert opening.digest_of_code(*rooms) == opening.ENCODER
        with (rooms[0] / "encoding.py").open("a") as source:
            source.write("# a line more")
        monkeypatch.setattr(opening, "ENCODER", opening.digest_of_code(*rooms))
    else:
        file.write_bytes(file.read_bytes()[:-1] if change == "cut" else b"")
    after = rows(policy, salt)
    assert len(encodings) == 2
    assert kept(tmp_path) == [file]
    assert len(after) == (7 if change == "source" else 40)
    assert change in ("source", "policy") or after == before


@pytest.mark.parametrize(
    "footer",
    [
        "[]",
        "{}",
        "1",
        "nothing",
        '{"rows": "40", "units": false, "files": %s, "checksums": %c}',
        '{"rows": -1, "units": false, "files": %s, "checksums": %c}',
        '{"rows": 0, "units": false, "files": %s, "checksums": %c}',
        '{"rows": 39, "units": false, "files": %s, "checksums": %c}',
        '{"rows": 40, "units": false, "files": %s, "checksums": {}}',
        '{"rows": 40, "units": true, "files": %s, "checksums": %c}',
        '{"rows": 1000000000, "units": false, "files": %s, "checksums": %c}',
        "[" * 100_000,
        None,
    ],
)
def test_a_damaged_footer_is_no_codes(footer: str | None, large: Policy, encodings: list[str], tmp_path: Path) -> None:
    """Whatever a file says of itself, the dataset opens: its source is encoded again."""
    before = rows(large)
    (file,) = kept(tmp_path)
    reader = pa.ipc.open_file(pa.py_buffer(file.read_bytes()))
    noted = reader.get_batch_with_custom_metadata(1).custom_metadata
    right = json.loads(noted[b"footer"])
    damaged = (footer or "").replace("%s", json.dumps(right["files"])).replace("%c", json.dumps(right["checksums"]))
    own = {"footer": damaged, "checksum": str(zlib.crc32(damaged.encode()))}
    with pa.ipc.new_file(file, reader.schema) as sink:
        sink.write_batch(reader.get_batch(0))
        sink.write_batch(reader.get_batch(1), custom_metadata=None if footer is None else own)
    assert rows(large) == before
    assert len(encodings) == 2


@pytest.mark.parametrize("batches", [0, 1])
def test_a_file_of_other_columns_or_batches_is_no_codes(
    batches: int, large: Policy, encodings: list[str], tmp_path: Path
) -> None:
    """Arrow reads it, and nothing in it is what the policy declares."""
    before = rows(large)
    (file,) = kept(tmp_path)
    other = pa.record_batch({"c0": pa.array([0, 1], pa.uint8())})
    noted = pa.ipc.open_file(pa.py_buffer(file.read_bytes())).get_batch_with_custom_metadata(1).custom_metadata
    with pa.ipc.new_file(file, other.schema) as sink:
        for _ in range(batches):
            sink.write_batch(other, custom_metadata=noted)
    assert rows(large) == before
    assert len(encodings) == 2


def test_any_flipped_bit_is_noticed_or_changes_nothing(large: Policy, encodings: list[str], tmp_path: Path) -> None:
    """What a file says of itself has a checksum, and each column has one: the rows are right, or there is an error."""
    before = rows(large)
    (file,) = kept(tmp_path)
    content = file.read_bytes()
    random = np.random.default_rng(0)
    for place in [content.index(b'"rows":40') + 8, *random.integers(0, len(content), 20).tolist()]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(8))
        file.write_bytes(flipped)
        engine = engine_over(large, salt=b"salt")
        try:
            engine.tabulate(WHOLE.split(bind(Shards(2), large.schema_)))  # looks at all columns
            assert sorted(encoded_rows(engine)) == before
        except InternalError as error:
            assert "damaged" in str(error)
        engine.close()
    assert len(encodings) > 1


def test_damaged_codes_are_noticed_when_they_are_read(large: Policy, encodings: list[str], tmp_path: Path) -> None:
    """Not before, for all would have to be read at open; then nothing is answered, and the file is deleted."""
    before = rows(large)
    (file,) = kept(tmp_path)
    content = bytearray(file.read_bytes())
    job = pa.ipc.open_file(pa.py_buffer(bytes(content))).get_batch(0).column(list(large.columns).index("job"))
    content[content.index(job.buffers()[1].to_pybytes()[:40]) + 3] ^= 1
    file.write_bytes(content)
    engine = engine_over(large, salt=b"salt")
    sex, job = (WHOLE.split(bind(Values(name), large.schema_)) for name in ("sex", "job"))
    assert engine.tabulate(sex)[0].tolist() == [20, 20]
    with pytest.raises(InternalError, match="damaged; they are deleted"):
        engine.tabulate(job)
    with pytest.raises(InternalError, match="damaged"):
        engine.tabulate(job)
    assert kept(tmp_path) == []
    assert rows(large) == before
    assert len(encodings) == 2


def test_writers_of_one_file_open_what_each_wrote(large: Policy, tmp_path: Path) -> None:
    """Two writers of one process number, a thread each or a container each, cannot write into each other's file."""
    file, both = opening.CodesFile(large), threading.Barrier(2, timeout=20)
    assert file.make_folder()

    def write(code: int) -> list[int]:
        schema = arrow_schema(large.schema_)
        block = pa.RecordBatch.from_arrays([pa.array([code] * 5, field.type) for field in schema], schema=schema)
        waited = (block for block in [block] * 3 if both.wait() >= 0)
        written = file.written(in_blocks(waited), [], lambda: None)
        return sorted({int(code) for block in written.blocks for column in block.columns.values() for code in column})

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, (0, 1))) == [[0], [1]]
    assert kept(tmp_path) == [file.path]


def test_half_of_a_source_that_changes_meanwhile_is_never_opened(
    large: Policy, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes while it is read opens nothing; one that comes meanwhile is seen by the next opening."""
    pattern = large.model_copy(update={"source": "*.parquet"})
    right = OpenSource.pieces
    writes = iter(["t.parquet", "u.parquet"])

    def pieces(source: OpenSource, files: Sequence[Path]) -> Iterator[Piece]:
        yield from right(source, files)
        if (name := next(writes, None)) is not None:
            frame.to_parquet(tmp_path / name)

    monkeypatch.setattr(OpenSource, "pieces", pieces)
    with pytest.raises(PolicyError, match="changed while it was read"):
        rows(pattern)
    assert kept(tmp_path) == []
    assert len(rows(pattern)) == 40
    assert len(rows(pattern)) == 80
    assert len(kept(tmp_path)) == 1


def test_a_folder_that_others_may_write_keeps_nothing(large: Policy, encodings: list[str], tmp_path: Path) -> None:
    """Nor is what lies there opened: whoever else may write there could have put it there."""
    rows(large)
    (tmp_path / "state" / "pinq").chmod(0o770)
    assert len(rows(large)) == 40
    assert len(encodings) == 2


def test_a_link_is_neither_read_nor_written_through(large: Policy, encodings: list[str], tmp_path: Path) -> None:
    """A link in the file's place is replaced; what it points to stays."""
    rows(large)
    (file,) = kept(tmp_path)
    target = file.rename(tmp_path / "elsewhere")
    before = target.read_bytes()
    file.symlink_to(target)
    rows(large)
    assert len(encodings) == 2
    assert not file.is_symlink()
    assert target.read_bytes() == before


def test_a_report_and_a_source_in_memory_keep_nothing(
    large: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is only looked at is not kept, and codes of a source that fits into memory by now are deleted."""
    engine, report = open_engine(large, salt=b"check", report=True)
    assert report is not None
    assert engine.rows() == 40
    assert kept(tmp_path) == []
    rows(large)
    assert len(kept(tmp_path)) == 1
    monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 2**30)
    rows(large)
    assert kept(tmp_path) == []


@pytest.mark.parametrize("folder", ["file", "home"])
def test_a_state_folder_is_not_needed(
    folder: str, large: Policy, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be kept, codes go to a file without a name: the same rows, encoded each time."""
    if folder == "file":
        (tmp_path / "state").write_text("not a folder")
    else:
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setattr(Path, "home", _no_home)
    assert len(rows(large)) == len(frame)


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_file_that_could_not_be_finished_is_taken_away(
    large: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is one clear error at open, and leaves neither codes nor half of them."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PolicyError, match="its codes not kept: No space left"):
        rows(large)
    assert kept(tmp_path) == []


def test_what_a_killed_writer_left_is_swept_up(
    large: Policy, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any start of any dataset deletes it, at once; a file that somebody is writing stays."""
    rows(large)
    (file,) = kept(tmp_path)
    written, left = opening.CodesFile(large)._part(), file.with_name("other.codes.1.part")
    left.write_bytes(b"codes")
    rows(large)  # whose codes are there: nothing is written
    assert kept(tmp_path) == sorted([file, Path(written[1])])
    os.close(written[0])  # as the system does where a process was killed
    frame.to_parquet(tmp_path / "small.parquet")
    monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 2**30)
    rows(large.model_copy(update={"dataset": "small", "source": "small.parquet"}))
    assert kept(tmp_path) == [file]


def test_folders_of_the_state_are_their_owners_alone(large: Policy, tmp_path: Path) -> None:
    """Those that codes, heads and claims make, and one that others could read before."""
    Head(tmp_path / "state" / "pinq" / "heads" / "h").write(1, "")
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (tmp_path / "state").rglob("*") if folder.is_dir()} == {
        0o700
    }
    (tmp_path / "state" / "pinq").chmod(0o755)
    rows(large)
    assert stat.S_IMODE((tmp_path / "state" / "pinq").stat().st_mode) == 0o700


def test_a_kill_leaves_nothing_raw(tmp_path: Path) -> None:
    """A process that is killed while it encodes a large text, units and all, leaves none of its words behind."""
    program = """
import os, signal, sys
from pathlib import Path
from pinq.engine import open_engine, sources
from pinq.engine.sources import OpenSource
from pinq.policy.policy import Policy
sources.IN_MEMORY_BYTES, pieces = 0, OpenSource.pieces

def until_killed(source, file):
    for piece in pieces(source, file):
        yield piece
        os.kill(os.getpid(), signal.SIGKILL)

OpenSource.pieces = until_killed
open_engine(Policy(dataset="t", source="t.csv", cap=1, max_rows=9999, folder=Path(sys.argv[1]), columns={
    "a": {"type": "categorical", "values": ["secret-word", "b"]},
}, privacy_unit={"column": "who", "max_rows": 2}), salt=b"salt")
"""
    data, left = tmp_path / "data", tmp_path / "left"
    data.mkdir()
    left.mkdir()
    (data / "t.csv").write_text("a,who\n" + "secret-word,secret-name\nb,c\n" * 4000)
    environment = os.environ | {"TMPDIR": str(left), "XDG_STATE_HOME": str(left)}
    done = subprocess.run([sys.executable, "-c", program, str(data)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not any(b"secret" in file.read_bytes() for file in left.rglob("*") if file.is_file())


def test_blocks_are_cut_wherever_batches_end() -> None:
    """Rows that come in batches of any size make blocks of one size, in their order; nothing is lost."""
    sizes = [0, 5, BLOCK_ROWS, 3, BLOCK_ROWS - 8, 2 * BLOCK_ROWS + 1, 0]
    numbers = np.arange(sum(sizes), dtype=np.uint32)
    batches = np.split(numbers, np.cumsum(sizes)[:-1])
    blocks = list(in_blocks(pa.record_batch({"a": batch}) for batch in batches))
    assert [block.num_rows for block in blocks] == [BLOCK_ROWS] * 4 + [1]
    assert np.array_equal(np.concatenate([block["a"].to_numpy() for block in blocks]), numbers)


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="no system that maps files as Linux does")
def test_a_file_that_is_cut_while_it_is_mapped_fails_questions_and_not_the_process(
    large: Policy, tmp_path: Path
) -> None:
    """Codes that were read, and codes that were not: where the file's end is gone, neither is looked at."""
    engine = engine_over(large, salt=b"salt")
    split = WHOLE.split(bind(Values("sex"), large.schema_))
    known = engine.tabulate(split)[0].tolist()
    (file,) = kept(tmp_path)
    with file.open("r+b") as opened:
        opened.truncate(64)
    by_both = split.split(bind(Shards(3), large.schema_))
    for parts in (by_both, WHOLE.split(bind(Cross((Values("sex"), Shards(2))), large.schema_))):
        with pytest.raises(InternalError, match="was cut while it was in use"):
            engine.tabulate(parts)
    assert engine.problem() == "the file of its codes was cut"
    assert engine.tabulate(split)[0].tolist() == known  # counted before, and remembered
    engine.close()
