# SPDX-License-Identifier: Apache-2.0
"""Every engine against a table counted row by row in numpy, on hostile names and values. A new one is listed in ``tests/support/tables/engines.py``."""

from __future__ import annotations

import inspect
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import pinq.engine
from pinq.engine import (
    Listed,
    Moments,
    RowBlock,
    Sparse,
    TableRequest,
    count,
    count_request,
    encode,
    open_engine,
    rows as row_codes,
)
from pinq.engine.tables import Form
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cross, Cuts, Groups, Shards, Values, bind
from pinq.policy.policy import Policy
from pinq.public.schema import Numeric, Schema
from tests.support.oracles.tabulation import encode as encode_by_rows, members, tabulate
from tests.support.tables.engines import ENGINES, HOSTILE, TEXTS, WHOLE, Lookups, Opener, every_engine, examples, worlds


def spec_of(draw: Any, name: str, column: Any) -> Any:
    if isinstance(column, Numeric):
        grid = sorted(draw(st.sets(st.integers(1, column.cells - 1), min_size=1, max_size=3)))
        return Cuts(name, tuple(column.edge(cell) for cell in grid))
    if draw(st.booleans()):
        return Values(name)
    labels = list(column.labels)
    owner = draw(st.lists(st.integers(0, 2), min_size=len(labels), max_size=len(labels)))  # 2: in no group
    groups = [tuple(label for label, group in zip(labels, owner, strict=True) if group == which) for which in (0, 1)]
    groups = [group for group in groups if group]
    return Groups(name, tuple(groups)) if groups else Values(name)


@st.composite
def measures(draw: Any, schema: Schema) -> Moments | Lookups | None:
    """Nothing, or the sums of a column or of a function of the row."""
    numeric = [name for name, column in schema.columns.items() if isinstance(column, Numeric)]
    shifts = ((0, True), (2, True), (0, False))
    columns = [Moments(name, shift, squares) for name in numeric for shift, squares in shifts]
    names = draw(st.lists(st.sampled_from(list(schema.columns)), min_size=1, max_size=3))
    inputs = tuple(bind(spec_of(draw, name, schema.columns[name]), schema).axes[0] for name in names)
    random = np.random.default_rng(draw(st.integers(0, 9)))
    tables = tuple(random.integers(-100, 100, (2, axis.size + 1)) for axis in inputs)
    return draw(st.sampled_from([None, *columns, Lookups(inputs, tables)]))


@every_engine
def test_an_open_engine_has_no_problem_and_a_closed_one_says_so(opener: Opener) -> None:
    """Readiness hears it before a question is charged."""
    sexes = {"s": {"type": "categorical", "values": ["f", "m"]}}
    engine = opener(
        Policy(dataset="d", cap=1, max_rows=9, columns=sexes), data=pd.DataFrame({"s": ["f", "m"]}), salt=b"salt"
    )[0]
    assert engine.problem() == ""
    engine.close()
    assert engine.problem() == "its engine is closed"


def test_all_engines_are_here() -> None:
    """Whatever class of ``pinq.engine`` can tabulate."""
    kinds = (getattr(pinq.engine, name) for name in pinq.engine.__all__)
    engines = [kind for kind in kinds if inspect.isclass(kind) and hasattr(kind, "tabulate")]
    assert [kind.__name__ for kind in engines if not getattr(kind, "_is_protocol", False)] == list(ENGINES)


@every_engine
@given(st.data())
@settings(max_examples=examples(60, 1000))
def test_tables_are_those_of_the_rows(opener: Opener, data: st.DataObject) -> None:
    """Any parts, any columns, any values: the engine's counts, sums and squares are those that a loop over the rows gives."""
    policy, frame = data.draw(worlds())
    schema = policy.schema_
    names = list(schema.columns)

    def partition() -> Any:
        chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        specs = tuple(spec_of(data.draw, name, schema.columns[name]) for name in chosen)
        return bind(specs[0] if len(specs) == 1 else Cross(specs), schema)

    parts, aside = WHOLE, []
    for _ in range(data.draw(st.integers(0, 3))):
        parts = (
            parts.split(partition())
            if data.draw(st.booleans())
            else parts.split_each([partition() for _ in range(len(parts))])
        )
        if len(parts) > 12:
            keep = sorted(data.draw(st.sets(st.integers(0, len(parts) - 1), min_size=1, max_size=6)))
            rest = sorted(set(range(len(parts))) - set(keep))
            aside.append(parts.take(np.array(rest[:4], dtype=np.int64)))
            parts = parts.take(np.array(keep))
    parts = PartSet.union([parts, *aside])
    requests, axes = [], []
    forms: list[Form] = ["dense", "sparse"]
    for _ in range(data.draw(st.integers(1, 3))):
        own = [
            bind(spec_of(data.draw, name, schema.columns[name]), schema).axes[0]
            for name in data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
        ]
        axes.append(own)
        requests.append(TableRequest(tuple(own), data.draw(st.sampled_from(forms if own else forms[:1]))))
    moments = data.draw(measures(schema))
    codes = encode_by_rows(frame, schema)
    engine, report = opener(policy, data=frame, salt=b"salt", report=True)
    try:
        assert report is not None
        assert engine.rows() == report.encoded_rows == len(next(iter(codes.values())))
        assert report.source_rows == len(frame)
        found = engine.tabulate(parts, requests, moments)
    finally:
        engine.close()
    for own, table in zip(axes, found, strict=True):
        null = schema.columns[moments.column].null_code if isinstance(moments, Moments) else None
        want = tabulate(parts, own, codes, moments, null)
        if isinstance(table, Sparse):
            shape = (len(parts), *(axis.size for axis in own))
            dense = np.zeros((math.prod(shape), *want.shape[len(shape) :]), dtype=object)
            dense[table.places] = table.values
            assert (np.diff(table.places) > 0).all()
            table = dense.reshape(want.shape)
        assert table.shape == want.shape
        assert (table == want).all()


@given(st.data())
@settings(max_examples=25)
def test_tables_of_batches_add_up(data: st.DataObject) -> None:
    """Batches that are encoded and counted apart, each in whatever process, give the tables of the whole.

    What goes to a worker and what comes back is pickled.
    """
    policy, frame = data.draw(worlds())
    schema, names = policy.schema_, list(policy.columns)
    parts = WHOLE
    for name in data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
        parts = parts.split(bind(spec_of(data.draw, name, schema.columns[name]), schema))
    axes = tuple(bind(Values(name), schema).axes[0] for name in names if schema.columns[name].codes < 50)
    tables = [TableRequest(axes[:1]), TableRequest(axes[:2], "sparse"), TableRequest()]
    numeric = [name for name, column in schema.columns.items() if isinstance(column, Numeric)]
    booleans: Any = st.booleans()
    moments = Moments(numeric[0], squares=True) if numeric and data.draw(booleans) else None
    listed = [] if moments else [TableRequest(axes, "listed")]
    request = pickle.dumps(count_request(parts, [*tables, *listed], moments, schema=schema))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(frame)), max_size=3))), len(frame)]
    total: Any = None
    for low, high in itertools.pairwise(cuts):
        batch = pa.Table.from_pandas(frame[low:high], preserve_index=False)
        block = RowBlock.from_arrow(encode(batch, policy), schema)
        counts = pickle.loads(pickle.dumps(count(block, pickle.loads(request))))
        total = counts if total is None else total.merged(counts)
    engine, _ = open_engine(policy, data=frame, salt=b"")
    whole = engine.tabulate(parts, [*tables, *listed], moments)
    for mine, theirs in zip(total.tables(), whole, strict=True):
        assert _plain(mine) == _plain(theirs)
    engine.close()


def _plain(table: Any) -> Any:
    """A table of any form as lists, in one order."""
    if isinstance(table, Listed):
        return sorted(zip(table.parts.tolist(), *table.codes.tolist(), table.counts.tolist(), strict=True))
    return (table.places.tolist(), table.values.tolist()) if isinstance(table, Sparse) else table.tolist()


@given(st.data())
@settings(max_examples=60)
def test_paths_down_are_searched_where_tables_are_large(data: st.DataObject) -> None:
    """Parts of cuts are searched where a table of all would be large: the same parts."""
    schema = Policy(
        dataset="s",
        cap=1,
        max_rows=99,
        columns={
            "a": {"type": "categorical", "values": ["x", "y", "z"], "nullable": True},
            "c": {"type": "numeric", "lower": 0, "upper": 30, "integer": True},
        },
    ).schema_
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    codes = {"a": random.integers(0, 4, 60), "c": random.integers(0, 31, 60)}
    parts, values = WHOLE, data.draw(st.sampled_from([1, 20, 60, 2**18]))
    for _ in range(data.draw(st.integers(1, 3))):
        names = data.draw(st.lists(st.sampled_from("ac"), min_size=len(parts), max_size=len(parts)))
        specs = [spec_of(data.draw, name, schema.columns[name]) for name in names]
        parts = parts.split_each([bind(spec, schema) for spec in specs])
        keep = sorted(data.draw(st.sets(st.integers(0, len(parts) - 1), min_size=1, max_size=5)))
        parts = parts.take(np.array(keep))
    block = RowBlock({name: column.astype(np.uint8) for name, column in codes.items()}, 60)
    with pytest.MonkeyPatch.context() as small:
        for name, limit in (("TABLES_BYTES", 6), ("MAX_VALUES", values)):
            small.setattr(row_codes, name, limit)
        found = count(block, count_request(parts, schema=schema)).tables()[0]
    assert np.array_equal(np.asarray(found), tabulate(parts, [], codes))


@every_engine
def test_every_hostile_name_and_value_at_once(opener: Opener) -> None:
    """Quotes, unicode, reserved words and the engine's own internal names are names like any other."""
    random = np.random.default_rng(0)
    names = HOSTILE
    frame = pd.DataFrame({name: random.choice(TEXTS, 200) for name in names})
    policy = Policy(
        dataset="h", cap=1, max_rows=1000, columns={name: {"type": "categorical", "values": TEXTS} for name in names}
    )
    schema = policy.schema_
    engine, _ = opener(policy, data=frame, salt=b"x")
    for name in names:
        table = engine.tabulate(WHOLE.split(bind(Cross((Values(name), Shards(2))), schema)))[0].reshape(-1, 2)
        assert table.sum(axis=1).tolist() == [int((frame[name] == text).sum()) for text in TEXTS]
    engine.close()


@every_engine
@pytest.mark.parametrize("count", [255, 256, 257, 10_000])
def test_ten_thousand_values(opener: Opener, count: int) -> None:
    """Histograms, groups, single parts and their mixtures over domains at and beyond the width of one byte."""
    random = np.random.default_rng(count)
    values = [f"värde '{i}\"" for i in range(count)]
    frame = pd.DataFrame(
        {"v": random.choice(values, 3000), "s": random.choice(["f", "m"], 3000), "x": random.integers(0, 5000, 3000)}
    )
    columns = {
        "v": {"type": "categorical", "values": values},
        "s": {"type": "categorical", "values": ["f", "m"]},
        "x": {"type": "numeric", "lower": 0, "upper": 4999, "integer": True},
    }
    policy = Policy(dataset="wide", cap=1, max_rows=5000, columns=columns)
    schema = policy.schema_
    codes = encode_by_rows(frame, schema)
    engine, _ = opener(policy, data=frame, salt=b"x")
    by_value, by_sex = bind(Values("v"), schema), bind(Values("s"), schema)
    men, women = WHOLE.split(by_sex)
    few = random.choice(count, 150, replace=False)
    halves = bind(Groups("v", (tuple(values[: count // 2]), tuple(values[count // 2 : -1]))), schema)
    cut = bind(Cuts("x", tuple(range(10, 4990, 10))), schema)
    mixed = [
        WHOLE.split(by_value),
        WHOLE.split(by_sex).split(by_value),
        PartSet([*(Block(Part(men, by_value, int(i))) for i in few), Block(women, by_value)]),
        PartSet([*(Block(Part(men, by_value, int(i)), cut) for i in few[:3]), Block(women, halves)]),
        WHOLE.split(by_value).take(few[:4]).split(halves),
    ]
    for parts in mixed:
        found = engine.tabulate(parts)[0]
        if len(parts) > 2000:  # the loop over rows is too slow: count by codes
            flat = (
                codes["v"]
                if len(parts) == count
                else codes["s"] * count + codes["v"]
                if len(parts) == 2 * count
                else None
            )
            if flat is not None:
                assert (found == np.bincount(flat, minlength=len(parts))).all()
                continue
        some = random.choice(len(parts), min(300, len(parts)), replace=False)
        assert found[some].tolist() == [int(members(parts.at(int(i)), codes).sum()) for i in some]
    engine.close()


@every_engine
def test_a_tree_sixty_levels_deep(opener: Opener) -> None:
    """As deep as a request may go: the last level still counts its rows."""
    frame = pd.DataFrame({"x": np.arange(100)})
    policy = Policy(
        dataset="deep",
        cap=1,
        max_rows=1000,
        columns={"x": {"type": "numeric", "lower": 0, "upper": 99, "integer": True}},
    )
    schema = policy.schema_
    engine, _ = opener(policy, data=frame, salt=b"")
    part, leaves = Part(), []
    for cut in range(1, 61):
        partition = bind(Cuts("x", (cut,)), schema)
        leaves.append(Block(Part(part, partition, 0)))
        part = Part(part, partition, 1)
    assert engine.tabulate(PartSet([*leaves, Block(part)]))[0].tolist() == [1] * 60 + [40]
    engine.close()
