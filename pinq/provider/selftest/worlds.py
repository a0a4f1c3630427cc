# SPDX-License-Identifier: Apache-2.0
"""Two neighbouring tables, many times over: each *cell* of one column holds a copy. And how they are asked.

A question to all cells is one request and one charge. The answer of a cell depends on the rows of
that cell alone, and the noise of cells is independent, so one request is as many independent draws
of the question on one copy. ``max_rows`` is declared for one copy: that is the table for which the
claim is made.
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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pinq.analyst.client import connect
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import Unavailable
from pinq.provider.grants import grant
from pinq.provider.local import open as open_here
from pinq.public.policy import Policy
from pinq.public.schema import Adjacency, Categorical, Column, PrivacyUnit, Schema, Value
from pinq.public.specs import Values

__all__ = [
    "ANALYST",
    "CELL",
    "LIMIT",
    "MADE_UP",
    "PERSON",
    "Door",
    "Pair",
    "Row",
    "World",
    "in_process",
    "publish",
    "publish_table",
    "through_a_server",
    "values_of",
]

ANALYST, CELL, PERSON = "selftest", "copy of the selftest", "person of the selftest"
LIMIT = 10**6
MAX_CELLS = 20_000
MAX_TABLE = 400_000  # rows of all copies together

MADE_UP = Schema.model_validate(
    {
        "max_rows": 1,
        "columns": {
            "y": {"type": "categorical", "values": ["n", "p"]},
            "z": {"type": "numeric", "lower": 0, "upper": 15, "integer": True},
            **{name: {"type": "categorical", "values": ["u", "v"]} for name in "abc"},
            "g": {"type": "categorical", "values": ["u", "v", "w"]},
            "x": {"type": "numeric", "lower": 0, "upper": 100, "integer": True},
            "low": {"type": "numeric", "lower": -100, "upper": 10, "nullable": True},
            "day": {"type": "date", "lower": "2024-02-28", "upper": "2024-12-31"},
            "hour": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-01-02", "step": 60, "nullable": True},
            "told": {"type": "categorical", "values": [True, False], "nullable": True},
            "one": {"type": "categorical", "values": ["only"]},
            "same": {"type": "numeric", "lower": 3, "upper": 3, "integer": True},
        },
    }
)
"""Every kind of column, and ends: one value, equal bounds, a calendar of one year."""

Row = Mapping[str, int]
"""A row of one copy by the codes of its columns, 0 where none is said; ``PERSON`` tells the copy's people apart."""


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

    @property
    def neighbours(self) -> str:
        """In which sense, for people."""
        rows = "a row" if self.unit_rows is None else f"a person of {self.unit_rows} rows"
        return f"{rows} {'comes' if self.adjacency == 'add-remove' else 'is replaced'}"

    def cells(self, draws: int) -> int:
        """How many copies a table holds, where so many draws are wanted."""
        return min(draws, MAX_CELLS, MAX_TABLE // self.max_rows)


@dataclass(frozen=True)
class World:
    """A table with its policy and a granted budget, in files.

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


def publish(pair: Pair, schema: Schema, folder: Path, draws: int) -> tuple[World, World]:
    """Writes both tables and their policies, and grants a budget on each."""
    cells = pair.cells(draws)
    unit = {} if pair.unit_rows is None else {"privacy_unit": PrivacyUnit(column=PERSON, max_rows=pair.unit_rows)}
    terms = {"max_rows": pair.max_rows, "adjacency": pair.adjacency, **unit}
    # What a formula makes of a source is not asked for: its column is made up itself.
    columns = {name: column.as_given.model_copy(update={"unreviewed": ()}) for name, column in schema.columns.items()}
    columns[CELL] = Categorical(values=tuple(range(cells)))
    before, after = (
        publish_table(folder, name, columns, _table(rows, cells, schema), **terms)
        for name, rows in (("before", pair.before), ("after", pair.after))
    )
    return World(before[0], cells, before[1]), World(after[0], cells, after[1])


def publish_table(
    folder: Path, name: str, columns: Mapping[str, Column], table: pa.Table, **terms: Any
) -> tuple[Path, str]:
    """Writes a table and its policy; the policy's file, and the token of a budget on it."""
    pq.write_table(table, folder / f"{name}.parquet")
    policy = Policy(dataset=name, source=f"{name}.parquet", cap=Decimal(LIMIT), columns=columns, **terms)
    file = folder / f"{name}.yaml"
    file.write_text(policy.to_yaml(), encoding="utf-8")
    return file, grant(file, ANALYST, LIMIT).token


def _table(rows: Sequence[Row], cells: int, schema: Schema) -> pa.Table:
    copies = {name: pa.chunked_array([values_of(rows, name, schema)] * cells) for name in schema.columns}
    cell = np.repeat(np.arange(cells), len(rows))
    # People 0 to 2 of the first copy, 3 to 5 of the second.
    people = np.array([row.get(PERSON, 0) for row in rows], dtype=np.int64)
    return pa.table({**copies, CELL: cell, PERSON: cell * (people.max(initial=0) + 1) + np.tile(people, cells)})


def values_of(rows: Sequence[Row], name: str, schema: Schema) -> pa.Array:
    """The raw values of a column in some rows."""
    codes = [row.get(name, 0) for row in rows]
    if name in schema.numeric_columns:
        column, values = schema.numeric_columns[name], dict[int, Value | float | None]()
        values = {code: None if code == column.null_code else column.point(column.number(code)) for code in codes}
        kind = pa.string() if column.unit else pa.float64()
    else:
        values = dict(enumerate(schema.categorical_columns[name].labels))
        kind = pa.array(schema.categorical_columns[name].values).type
    return pa.array([values[code] for code in codes], kind)


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
