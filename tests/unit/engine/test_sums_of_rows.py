# SPDX-License-Identifier: Apache-2.0
"""Sums of derivatives and of squares over many blocks, by several threads, and from memory: those of a loop over the rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from pinq.engine import arrays, counting
from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import Codes, RowBlock, kinds_of
from pinq.engine.counting import Counts, count, count_request
from pinq.engine.tables import Moments, Sparse, TableRequest
from pinq.language import derivatives
from pinq.language.parts import Block, Part, PartSet
from pinq.language.points import Points
from pinq.language.products import Products
from pinq.language.specs import Axis, Cross, Cuts, Groups, Shards, Values, bind
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.oracles.tabulation import tabulate
from tests.support.requests.catalogue import DERIVATIVES, losses_on

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
LOSSES: list[Any] = [loss for kind in DERIVATIVES.values() for loss in losses_on(kind, SCHEMA, *SCORES)]
LOSSES += [Products(("x", "b", "y"), limit=1.5), Products(("a", "x"), fixed="x", pairs="squares")]
WHOLE = PartSet([Block(Part())])
KNOWN = WHOLE.split(bind(Groups("y", (("n", "o", "p"),)), SCHEMA))  # the rows that have a class
BY_CLASS = WHOLE.split(bind(Values("y"), SCHEMA))
SOME = PartSet([Block(Part(Part(), bind(Values("b"), SCHEMA), value)) for value in (7, 2)])
TABLES = [TableRequest(bind(spec, SCHEMA).axes) for spec in SPECS]


def _codes() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        name: random.integers(0, column.codes, 230).astype(kinds_of(SCHEMA)[name])
        for name, column in SCHEMA.columns.items()
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[ArrayEngine]:
    """Rows in blocks of 50, taken in pieces of 16 by two threads; 4 words add up."""
    codes = _codes()
    blocks = [
        RowBlock({name: column[start : start + 50] for name, column in codes.items()}, min(50, 230 - start))
        for start in range(0, 230, 50)
    ]
    with pytest.MonkeyPatch.context() as small:
        small.setattr(counting, "NUMBERS_AT_ONCE", 64)
        small.setattr(derivatives, "ROWS", (4,))
        small.setattr("pinq.engine.arrays.THREADS", 2)
        opened = ArrayEngine(Codes(blocks, SCHEMA), SCHEMA, b"salt")
        yield opened
        opened.close()


@pytest.mark.parametrize(
    ("loss", "parts"), list(zip(LOSSES, cycle((WHOLE, KNOWN, BY_CLASS, SOME, KNOWN)), strict=False))
)
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


@pytest.mark.parametrize("squares", [True, False])
@pytest.mark.parametrize("parts", [WHOLE, BY_CLASS], ids=["all", "by class"])
def test_moments_of_occupied_codes_are_those_of_a_loop(engine: ArrayEngine, parts: PartSet, squares: bool) -> None:
    """Beside a dense table, sorted some rows at a time by each thread; rows without the number do not count."""
    moments, codes, null = Moments("x", 0, squares), _codes(), SCHEMA.numeric("x").null_code
    fine = Axis("b", 10, ())
    occupied, dense = engine.tabulate(parts, [TableRequest((fine,), "sparse"), TABLES[0]], moments)
    wanted = tabulate(parts, [fine], dict(codes), moments, null)
    table = np.zeros_like(wanted).reshape(-1, wanted.shape[-1])
    assert isinstance(occupied, Sparse)
    table[occupied.places] = occupied.values
    assert (table == wanted.reshape(table.shape)).all()
    assert (np.asarray(dense) == tabulate(parts, TABLES[0].axes, dict(codes), moments, null)).all()


def test_kept_cells_of_rows_stay_within_their_room(engine: ArrayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows' cells in joint tables are kept for the next loss; what was not asked for longest makes room, and sums stay the same."""
    (first, second), codes = (loss.vectors(SCHEMA) for loss in LOSSES[:2]), dict(_codes())
    sizes = set[int]()
    for room in (2**28, 5000, 0):
        monkeypatch.setattr(engine._kept, "room", room)
        engine.forget()
        for tables, vectors in ((TABLES, first), (TABLES[2:], second), (TABLES, second), (TABLES[2:], first)):
            got = engine.tabulate(WHOLE, tables, vectors)
            for table, request in zip(got, tables, strict=True):
                assert (np.asarray(table) == tabulate(WHOLE, request.axes, codes, vectors)).all()
        assert engine._kept._taken == sum(nbytes for _, nbytes in engine._kept._values.values()) <= room
        sizes.add(engine._kept._taken)
    assert len(sizes) > 1


def test_a_turn_ends_between_the_cells_of_two_tables(engine: ArrayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows' cells in many tables take long, so whether a turn is over is looked at before each."""
    made, make, turns = list[Any](), arrays._cells_of, iter([None, TimeoutError])

    def noted(axes: tuple[Axis, ...], block: RowBlock) -> np.ndarray:
        made.append(axes)
        return make(axes, block)

    def check() -> None:
        if (error := next(turns)) is not None:
            raise error

    monkeypatch.setattr(arrays, "_cells_of", noted)
    engine.forget()
    wanted = [bind(spec, SCHEMA).axes for spec in SPECS[:2]]
    with pytest.raises(TimeoutError):
        engine._with_cells(wanted, engine._blocks, check)
    assert set(made) == {wanted[0]}


def test_what_is_kept_of_located_rows_is_where_they_are(engine: ArrayEngine) -> None:
    """Not the shards and cells that the request looked at: those have a room of their own."""
    shard = Block(Part(Part(), bind(Shards(2, key=1), SCHEMA), 0))
    for parts in (SOME, PartSet([shard])):
        engine.tabulate(parts, TABLES, LOSSES[0].vectors(SCHEMA))
    kept = [rows.block for location in engine._located.values() for rows in location.rows]
    assert len(kept) >= 10
    assert all(block.columns.keys() == SCHEMA.columns.keys() for block in kept)


@pytest.mark.parametrize(("most", "held"), [(0, 0), (2**16, 1)], ids=["many cells", "few cells"])
def test_sums_of_many_cells_are_added_up_without_words(most: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many cells as rows nothing waits in words, which would take memory and time of its own: the sums are the same."""
    monkeypatch.setattr(counting, "CARRIED_CELLS", most)
    codes: dict[Any, np.ndarray] = dict(_codes())
    vectors = LOSSES[0].vectors(SCHEMA)
    for parts in (WHOLE, BY_CLASS):
        request = count_request(parts, TABLES, vectors, schema=SCHEMA)
        waiting = [tally._cells._words.size for tally in Counts(request).tallies]  # type: ignore[attr-defined]
        assert any(waiting) == bool(held)
        for table, asked in zip(count(RowBlock(codes, 230), request).tables(), TABLES, strict=True):
            assert (np.asarray(table) == tabulate(parts, asked.axes, dict(_codes()), vectors)).all()


@pytest.mark.parametrize("few", [0, 20, 10**9])
def test_products_of_few_and_of_many_rows_are_the_same(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a cell's products are added up one by one or together."""
    monkeypatch.setattr(counting, "FEW_ROWS", few)
    products = Products(("a", "x", "b"), pairs="squares").bind(SCHEMA)
    words = np.random.default_rng(1).integers(-4096, 4097, (products.packing.words, 60)).astype(np.float64)
    cell = np.repeat([2, 0, 3], [30, 5, 25])
    cells = counting.MultipliedCells(products, 4)
    cells.add(cell, 60, words)
    cells.add(cell[:0], 0, words[:, :0])
    each = products.packing.unpacked(words)
    assert cells.numbers().T.tolist() == [each[:, cell == one].sum(axis=1).tolist() for one in range(4)]


def test_a_request_that_travels_is_small_and_counts_the_same() -> None:
    """Pickled for a worker it has the losses' own tables, not those over joint tables, and gives the same sums of each block."""
    codes: dict[Any, np.ndarray] = dict(_codes())
    whole = RowBlock(codes, 230)
    for loss in LOSSES[::3]:
        vectors = loss.vectors(SCHEMA)
        sent = pickle.dumps(count_request(WHOLE, TABLES, vectors, schema=SCHEMA))
        assert len(sent) < 100_000
        halves = [count(whole.rows_in(part), pickle.loads(sent)) for part in (slice(0, 99), slice(99, 230))]
        for half in halves:
            half.fill(half.pieces(1))
        merged = halves[0].merged(halves[1])
        for table, request in zip(merged.tables(), TABLES, strict=True):
            assert (np.asarray(table) == tabulate(WHOLE, request.axes, codes, vectors)).all()
