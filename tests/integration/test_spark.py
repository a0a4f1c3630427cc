# SPDX-License-Identifier: Apache-2.0
"""The engine inside Spark: what breaks there, and one tree. Its tables are tested in tests/contract/test_every_engine.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miners import DiffPC45
from pinq.engine import TableRequest, open_engine
from pinq.engine.tables import Form
from pinq.errors import PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cross, Shards, Values, bind
from pinq.policy.policy import Policy
from pinq.provider.claim import ledger_url
from tests.support.house.checkout import ROOT
from tests.support.requests.handles import engine_over
from tests.support.tables.spark import ON_SPARK, Slow, frame_of, session

pytestmark = ON_SPARK
WHOLE = PartSet([Block(Part())])
POLICY = Policy(
    dataset="visits",
    cap=10**6,
    max_rows=10**5,
    columns={
        "ward": {"type": "categorical", "values": ["a", "b", "c"]},
        "sick": {"type": "categorical", "values": ["no", "yes"]},
    },
)


def visits(rows: int = 6000) -> pa.Table:
    ward = np.arange(rows) % 3
    return pa.table({"ward": np.array(["a", "b", "c"])[ward], "sick": np.array(["no", "yes"])[(ward > 0).astype(int)]})


def by_ward(engine: Any, check: Callable[[], None] | None = None) -> list[int]:
    (table,) = engine.tabulate(WHOLE.split(bind(Values("ward"), POLICY.schema_)), check=check)
    return table.tolist()


# In a process of its own: the other tests need their session.
ENDED = """
import pandas as pd
from pinq.policy.policy import Policy
from tests.support.tables.spark import open_on_spark, session
sexes = {"s": {"type": "categorical", "values": ["f", "m"]}}
policy = Policy(dataset="d", cap=1, max_rows=9, columns=sexes)
engine, _ = open_on_spark(policy, data=pd.DataFrame({"s": ["f", "m"]}), salt=b"salt")
assert engine.problem() == "", engine.problem()
session().stop()
print(engine.problem())
"""


def test_a_session_that_ended_is_a_problem() -> None:
    """A server is not ready then, before a question is charged."""
    done = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.splitlines()[-1:] == ["its session of Spark has ended"], done.stderr


def spark_policy(folder: Path, rows: pa.Table, name: str = "visits.parquet") -> Policy:
    """A policy over a Parquet folder of two files that Spark reads by its path."""
    (folder / name).mkdir()
    for number in range(2):
        pq.write_table(rows.slice(number * rows.num_rows // 2, rows.num_rows // 2), folder / name / f"{number}.parquet")
    session()
    return POLICY.model_copy(update={"source": {"spark": f"parquet.`{folder / name}`"}, "folder": folder})


def broken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that break off."""
    yield from batches
    raise ValueError("value 'secret' is wrong")


def test_a_tree_is_grown_on_a_frame_of_spark(tmp_path: Path, granted: Callable[..., Any]) -> None:
    """A handle on it is like any other: same verbs, same charges, and the tree that the rows make."""
    policy = POLICY.model_copy(update={"folder": tmp_path})
    handle = granted(1000, policy=policy, data=frame_of(visits()))
    tree = DiffPC45(epsilon=100, max_depth=1).fit(handle, "sick")
    assert tree.predict(pd.DataFrame({"ward": ["a", "b", "c"]})).tolist() == ["no", "yes", "yes"]
    assert 0 < handle.budget.spent <= 100


def test_shards_are_those_of_one_machine() -> None:
    """A restart of Spark's session on other partitions deals each row into the same shard as plain arrays do."""
    parts = WHOLE.split(bind(Cross((Values("ward"), Shards(7))), POLICY.schema_))
    found = []
    for data in (visits(), frame_of(visits(), 1), frame_of(visits(), 5)):
        engine = engine_over(POLICY, data=data, salt=b"salt")
        found.append(engine.tabulate(parts)[0].tolist())
        engine.close()
    assert found[0] == found[1] == found[2]


def test_large_tables_are_added_by_workers_in_one_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adds up a share of the cells of all, whatever the form of the tables; blocks are of more tasks than count."""
    monkeypatch.setattr("pinq.engine.spark.DIRECT_BYTES", 0)
    monkeypatch.setattr("pinq.engine.spark.PIECE_BYTES", 8)
    axes = tuple(bind(Values(name), POLICY.schema_).axes[0] for name in POLICY.columns)
    tables = [TableRequest(axes, form) for form in get_args(Form)]
    engines = [engine_over(POLICY, data=data, salt=b"") for data in (visits(), frame_of(visits(), 7))]
    (dense, sparse, listed), (wanted, *_) = (engine.tabulate(WHOLE, tables) for engine in reversed(engines))
    assert dense.tolist() == wanted.tolist() == [[[2000, 0], [0, 2000], [0, 2000]]]
    assert (sparse.places.tolist(), sparse.values.tolist()) == ([0, 3, 5], [2000] * 3)
    assert sorted(zip(*listed.codes.tolist(), listed.counts.tolist(), strict=True)) == [
        (0, 0, 2000),
        (1, 1, 2000),
        (2, 1, 2000),
    ]
    for engine in engines:
        engine.close()


def test_a_source_that_changes_is_not_answered_from_half(tmp_path: Path) -> None:
    """Codes that Spark lost are made again from the source; once that is another one, nothing is answered."""
    policy = spark_policy(tmp_path, visits())
    engine = engine_over(policy, salt=b"")
    assert by_ward(engine) == [2000] * 3
    session().catalog.clearCache()  # what the loss of all workers does
    assert by_ward(engine) == [2000] * 3
    pq.write_table(visits(9), tmp_path / "visits.parquet" / "1.parquet")
    session().catalog.clearCache()
    with pytest.raises(Exception, match=r"changed|FILE|file"):
        by_ward(engine)
    engine.close()


def test_sources_that_spark_cannot_read(tmp_path: Path) -> None:
    """The table is named, a missing column too; a missing file of an open source gives no half table."""
    session()
    with pytest.raises(PolicyError, match=r"does not know the table 'nowhere\.at_all'"):
        open_engine(POLICY.model_copy(update={"source": {"spark": "nowhere.at_all"}}), salt=b"")
    with pytest.raises(PolicyError, match="no column 'sick'"):
        open_engine(POLICY, data=frame_of(visits().select(["ward"])), salt=b"")
    policy = spark_policy(tmp_path, visits())
    (tmp_path / "visits.parquet" / "0.parquet").write_bytes(b"PAR1 no parquet PAR1")
    with pytest.raises(PolicyError, match=r"cannot be read|cannot be reached"):
        open_engine(policy, salt=b"")
    with pytest.raises(PolicyError, match="cannot be read; `pinq check` says why") as error:
        open_engine(POLICY, data=frame_of(visits()).mapInArrow(broken, "ward string, sick string"), salt=b"")
    assert "secret" not in str(error.value)


def test_a_worker_that_is_killed_gives_one_error(tmp_path: Path) -> None:
    """The charge stands, the text is the usual one, and the next request is answered."""
    policy = POLICY.model_copy(update={"folder": tmp_path})
    engine = engine_over(policy, data=frame_of(visits()), salt=b"")
    slow = Slow(str(tmp_path / "worker"), (bind(Values("ward"), policy.schema_).axes[0],))

    def kill() -> None:
        if os.path.lexists(slow.file) and not os.path.exists(slow.file + ".done"):
            Path(slow.file + ".done").touch()
            os.kill(int(os.readlink(slow.file)), signal.SIGKILL)

    with pytest.raises(Exception, match=r"(?i)crashed|worker"):
        engine.tabulate(WHOLE, [TableRequest()], slow, kill)
    assert os.path.exists(slow.file + ".done")
    assert by_ward(engine) == [2000] * 3
    engine.close()


def test_a_caller_who_gives_up_stops_spark(tmp_path: Path) -> None:
    """The job is cancelled long before it would end."""
    engine = engine_over(POLICY, data=frame_of(visits()), salt=b"")
    slow = Slow(str(tmp_path / "worker"), (bind(Values("ward"), POLICY.schema_).axes[0],))

    def check() -> None:
        if os.path.lexists(slow.file):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.tabulate(WHOLE, [TableRequest()], slow, check)
    Path(slow.file + ".done").touch()
    assert by_ward(engine, lambda: None) == [2000] * 3
    engine.close()


def test_a_table_of_spark_has_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two policies over one table meet in it, and a second ledger is refused."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    source = {"source": {"spark": "health.visits"}}
    first = Policy.model_validate(POLICY.model_dump() | source).model_copy(update={"folder": tmp_path / "one"})
    second = first.model_copy(update={"folder": tmp_path / "two"})
    assert ledger_url(first, create=True) == str(tmp_path / "one" / "visits.ledger")
    assert ledger_url(second) == ledger_url(first)
    with pytest.raises(PolicyError, match="already guarded by the ledger"):
        ledger_url(second.model_copy(update={"ledger": "own.ledger"}))
