# SPDX-License-Identifier: Apache-2.0
"""Sums of derivatives over many blocks, by several threads, and from memory: those of a loop over the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pinq.engine import arrays
from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import Codes, RowBlock, kinds_of
from pinq.engine.tables import TableRequest
from pinq.public.parts import Block, Part, PartSet
from pinq.public.points import Points
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import Cross, Cuts, Groups, Values, bind
from tests.catalogue import DERIVATIVES, losses_on
from tests.oracles import tabulate

SCHEMA = Schema(
    max_rows=1000,
    columns={
        "y": Categorical(values=("n", "o", "p"), nullable=True),
        "a": Categorical(values=("u", "v"), nullable=True),
        "b": Categorical(values=tuple("abcdefghij")),
        "x": Numeric(lower=0, upper=30, integer=True, nullable=True),
    },
)
SPECS: tuple[Any, ...] = (Values("a"), Values("b"), Cuts("x", (4, 9, 20)), Groups("b", (("c", "d"), ("e",))))
SCORES = (
    Points(
        (*SPECS, Cross((Values("a"), Cuts("x", (15,))))),
        ((9, -5, 2), tuple(range(10)), (300, 7, 0, 1, 2), (8, -8), tuple(range(9))),
    ),
    Points(SPECS[:2], ((-400, 900, 0), tuple(range(0, -100, -10))), base=30),
)
LOSSES = [loss for kind in DERIVATIVES.values() for loss in losses_on(kind, SCHEMA, *SCORES)]
WHOLE = PartSet([Block(Part())])
KNOWN = WHOLE.split(bind(Groups("y", (("n", "o", "p"),)), SCHEMA))  # the rows that have a class
TABLES = [TableRequest(bind(spec, SCHEMA).axes) for spec in SPECS]


def _codes() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        name: random.integers(0, column.codes, 230).astype(kinds_of(SCHEMA)[name])
        for name, column in SCHEMA.columns.items()
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[ArrayEngine]:
    """Rows in blocks of 50, taken in pieces of 16 by two threads."""
    codes = _codes()
    blocks = [
        RowBlock({name: column[start : start + 50] for name, column in codes.items()}, min(50, 230 - start))
        for start in range(0, 230, 50)
    ]
    with pytest.MonkeyPatch.context() as small:
        small.setattr(arrays, "BLOCK_ROWS", 1)
        small.setattr(arrays, "PIECE_ROWS", 16)
        small.setattr("os.cpu_count", lambda: 2)
        opened = ArrayEngine(Codes(blocks, SCHEMA), SCHEMA, b"salt")
        assert opened._threads == 2
        yield opened
        opened.close()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("parts", [WHOLE, KNOWN], ids=["all rows", "rows with a class"])
def test_sums_are_those_of_a_loop(engine: ArrayEngine, loss: Any, parts: PartSet) -> None:
    """Bit for bit, however rows are cut up; also where the target may be missing, and again from memory, in another order."""
    vectors = loss.vectors(SCHEMA)
    wanted = [tabulate(parts, table.axes, dict(_codes()), vectors) for table in TABLES]
    for number, table in enumerate(engine.tabulate(parts, TABLES, vectors)):
        assert (np.asarray(table) == wanted[number]).all()
    for number in (2, 0):
        (table,) = engine.tabulate(parts, [TABLES[number]], vectors)
        assert (np.asarray(table) == wanted[number]).all()


def test_kept_sums_are_of_one_part_and_one_loss(engine: ArrayEngine) -> None:
    """The sums of all rows are not those of the rows that have a class, nor is one loss another."""
    first, second = (loss.vectors(SCHEMA) for loss in LOSSES[:2])
    asked = [(WHOLE, first), (KNOWN, first), (KNOWN, second), (WHOLE, second), (WHOLE, first)]
    for parts, vectors in asked:
        (table,) = engine.tabulate(parts, TABLES[:1], vectors)
        assert (np.asarray(table) == tabulate(parts, TABLES[0].axes, dict(_codes()), vectors)).all()
