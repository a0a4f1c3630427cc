# SPDX-License-Identifier: Apache-2.0
"""Two neighbouring tables, many times over: each *cell* of one column holds a copy.

A question to all cells is one request and one charge. The answer of a cell depends on the rows of
that cell alone, and the noise of cells is independent, so one request is as many independent draws
of the question on one copy. ``max_rows`` is declared for one copy: that is the table for which the
claim is made.

A ``Door`` is how such tables are asked: in this process, or through a server of its own.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pinq.analyst.client import connect
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import Unavailable
from pinq.provider.grants import grant
from pinq.provider.local import open as open_here
from pinq.public.policy import Policy
from pinq.public.schema import Adjacency, Categorical, Column, Numeric, PrivacyUnit
from pinq.public.specs import Values

__all__ = ["ANALYST", "Door", "Pair", "Row", "World", "in_process", "publish", "through_a_server"]

ANALYST, CELL, PERSON = "selftest", "cell", "person"
LIMIT = 10**6
MAX_CELLS = 20_000
MAX_TABLE = 400_000  # rows of all copies together

COLUMNS: dict[str, Column] = {
    **{name: Categorical(values=("u", "v")) for name in ("a", "b", "c")},
    "g": Categorical(values=("u", "v", "w")),
    "y": Categorical(values=("n", "p")),
    "x": Numeric(lower=Decimal(0), upper=Decimal(100), integer=True),
    "z": Numeric(lower=Decimal(0), upper=Decimal(15), integer=True),
}


class Row(NamedTuple):
    """A row of one copy; ``person`` tells the copy's people apart."""

    a: str = "u"
    b: str = "u"
    c: str = "u"
    g: str = "u"
    y: str = "p"
    x: int = 0
    z: int = 0
    person: int = 0


class _Terms(TypedDict, total=False):
    adjacency: Adjacency
    privacy_unit: Literal["row"] | PrivacyUnit


@dataclass(frozen=True)
class Pair:
    """Two tables that are neighbours, and what a policy says of them.

    Attributes:
        before, after: The rows of one copy.
        adjacency: In which sense they are neighbours.
        unit_rows: Rows that one person may have; None where a row is the privacy unit.
    """

    before: Sequence[Row]
    after: Sequence[Row]
    adjacency: Adjacency = "add-remove"
    unit_rows: int | None = None

    @property
    def max_rows(self) -> int:
        """Rows of the larger table: what its policy declares."""
        return max(len(self.before), len(self.after), 1)

    def cells(self, draws: int) -> int:
        """How many copies a table holds, where so many draws are wanted."""
        return min(draws, MAX_CELLS, MAX_TABLE // self.max_rows)

    def terms(self) -> _Terms:
        """What a policy says of neighbours."""
        terms: _Terms = {"adjacency": self.adjacency}
        if self.unit_rows is not None:
            terms["privacy_unit"] = PrivacyUnit(column=PERSON, max_rows=self.unit_rows)
        return terms


@dataclass(frozen=True)
class World:
    """One of the two tables, with its policy and a granted budget, in files.

    Attributes:
        policy: The policy's file.
        cells: How many copies there are.
        token: With which a server is asked.
    """

    policy: Path
    cells: int
    token: str = field(repr=False)

    @property
    def partition(self) -> Values:
        """What cuts the table into copies."""
        return Values(CELL)


def publish(pair: Pair, folder: Path, draws: int) -> tuple[World, World]:
    """Writes both tables and their policies, and grants a budget on each."""
    cells = pair.cells(draws)
    return (
        _publish(pair, pair.before, cells, folder, "before"),
        _publish(pair, pair.after, cells, folder, "after"),
    )


def _publish(pair: Pair, rows: Sequence[Row], cells: int, folder: Path, name: str) -> World:
    labels = tuple(range(cells))
    pq.write_table(_table(rows, cells), folder / f"{name}.parquet")
    policy = Policy(
        dataset=name,
        source=f"{name}.parquet",
        cap=Decimal(LIMIT),
        max_rows=pair.max_rows,
        columns={CELL: Categorical(values=labels), **COLUMNS},
        **pair.terms(),
    )
    file = folder / f"{name}.yaml"
    file.write_text(policy.to_yaml(), encoding="utf-8")
    return World(file, cells, grant(file, ANALYST, LIMIT).token)


def _table(rows: Sequence[Row], cells: int) -> pa.Table:
    copies: Mapping[str, np.ndarray] = {
        name: np.tile(np.array([getattr(row, name) for row in rows], dtype=_kind(name)), cells) for name in Row._fields
    }
    cell = np.repeat(np.arange(cells), len(rows))
    person = cell * (max((row.person for row in rows), default=0) + 1) + copies[PERSON]
    return pa.table({CELL: cell, **copies, PERSON: person})


def _kind(name: str) -> str:
    return "U1" if name in "abcgy" else "i8"


Door = Callable[[tuple[World, ...]], AbstractContextManager[list[PrivateQueryable]]]
"""Opens a handle on each world."""

MAIN = "from pinq.cli.main import main; main()"
STARTING = 60.0  # seconds


@contextmanager
def in_process(worlds: tuple[World, ...]) -> Iterator[list[PrivateQueryable]]:
    """Opens each world in this process."""
    handles = [open_here(world.policy, analyst=ANALYST) for world in worlds]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.close()


@contextmanager
def through_a_server(worlds: tuple[World, ...]) -> Iterator[list[PrivateQueryable]]:
    """Serves all worlds by ``pinq serve`` on this machine, and connects to each."""
    port = _free_port()
    command = [sys.executable, "-c", MAIN, "serve", *(str(world.policy) for world in worlds)]
    log = worlds[0].policy.with_suffix(".log")
    with log.open("wb") as output:
        server = subprocess.Popen([*command, "--port", str(port), "--insecure-http"], stdout=output, stderr=output)
    try:
        _wait(port, server, log)
        root = f"http://127.0.0.1:{port}"
        handles = [
            connect(f"{root}/{world.policy.stem}", token=world.token, insecure_http=True, timeout=600.0)
            for world in worlds
        ]
        yield handles
        for handle in handles:
            handle.close()
    finally:
        server.terminate()
        server.wait(timeout=STARTING)


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Unavailable(f"The server of the test did not start: {log.read_text(errors='replace')[-500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
