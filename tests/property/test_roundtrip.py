# SPDX-License-Identifier: Apache-2.0
"""What is written can be read: policies as YAML, specs, requests and answers as JSON."""

from __future__ import annotations

import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from pinq.language import scores
from pinq.language.derivatives import Logistic, Residuals, Softmax
from pinq.language.parts import Block, Part, PartSet
from pinq.language.points import Points
from pinq.language.products import Products
from pinq.language.queries import Answer, Asked, Request, WireParts
from pinq.language.scores import Balance, ClassCount, EnoughRows, Gradient, Misfit, MutualInformation
from pinq.language.specs import AnyCross, AnyCut, AnyGrouping, Cross, Cuts, Groups, Shards, Spec, Values, bind
from pinq.language.wire import Description, HistoryPage
from pinq.policy.plain_yaml import read_yaml
from pinq.policy.policy import Policy
from pinq.provider.policy_file import load_policy
from pinq.public.schema import Categorical, Numeric, Schema

# `make explore` crosses the wire with ten thousand schemas and requests.
CROSSINGS = settings(max_examples=10_000 if os.environ.get("PINQ_EXPLORE") else 75)

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
NAMES = TEXT.filter(bool)
TEXTS: st.SearchStrategy[Any] = st.one_of(
    TEXT,
    st.sampled_from(["", "k" * 10_000, "\U0001f60a\u0301", "None", "1e5"]),
    st.sampled_from(
        [
            "yes",
            "null",
            "~",
            "1",
            "1.0",
            "1.5e3",
            "01070",
            "12:30",
            "+7",
            "1_0",
            "true",
            "2020-01-01",
            "0x1",
            "- a",
            "a: b",
            "#",
            "é\n",
            "\x85",
            "﻿",
        ]
    ),
)
KINDS: tuple[st.SearchStrategy[Any], ...] = (TEXTS, st.integers(-(10**18), 10**18), st.booleans())
DECIMALS = st.decimals(min_value=-(10**9), max_value=10**9, places=4)


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


CATEGORICAL = st.builds(
    lambda values, nullable, unreviewed: {
        "type": "categorical",
        "values": values,
        "nullable": nullable,
        "unreviewed": unreviewed,
    },
    st.one_of(*[st.lists(kind, min_size=1, max_size=6, unique_by=text) for kind in KINDS]),
    st.booleans(),
    st.sampled_from([(), ("values",)]),
)


@st.composite
def numerics(draw: Any) -> dict[str, Any]:
    lower, upper = sorted([draw(DECIMALS), draw(DECIMALS)])
    if draw(st.booleans()):
        lower, upper = Decimal(int(lower)), Decimal(int(upper))
        return {
            "type": "numeric",
            "lower": lower,
            "upper": upper,
            "integer": True,
            "step": max(Decimal(1), (upper - lower) // 1000),
            "nullable": draw(st.booleans()),
        }
    upper = upper if upper > lower else lower + 1
    cuts = sorted(draw(st.sets(st.integers(1, 99), max_size=4)))
    return {
        "type": "numeric",
        "lower": lower,
        "upper": upper,
        "cuts": [lower + (upper - lower) * cut / 100 for cut in cuts],
        "step": draw(st.sampled_from([None, upper - lower])),
    }


DIALECTS = st.fixed_dictionaries(
    {},
    optional={
        "delimiter": st.sampled_from(list(";|\t ^-[:#")),
        "quote": st.sampled_from(['"', "'", ""]),
        "decimal": st.just(","),
        "thousands": st.sampled_from([".", " ", "'", "\u00a0", "\u202f", None]),
        "encoding": st.sampled_from(["latin-1", "utf-8"]),
        "header": st.just(True) | st.lists(NAMES, min_size=1, max_size=3),
        "max_unreadable": st.floats(0, 1),
    },
)


@st.composite
def policies(draw: Any) -> Policy:
    columns = draw(
        st.dictionaries(
            NAMES | st.sampled_from(["cuts", "lower", "cap", "columns", "null", "yes", "1"]),
            st.one_of(CATEGORICAL, numerics()),
            min_size=1,
            max_size=4,
        )
    )
    folded = {name.casefold(): name for name in columns}
    fields: dict[str, Any] = {
        "dataset": draw(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,20}\Z")),
        "cap": draw(
            st.one_of(st.integers(1, 10**6), st.decimals(Decimal("0.000001"), 1000, places=6).filter(lambda d: d > 0))
        ),
        "max_rows": draw(st.integers(1, 2**33)),
        "columns": {name: columns[name] for name in folded.values()},
    }
    for name, values in {
        "source": st.one_of(NAMES, st.fixed_dictionaries({"database": NAMES, "table": NAMES, "schema": NAMES})),
        "ledger": NAMES,
        "adjacency": st.sampled_from(["add-remove", "substitute"]),
        "privacy_unit": st.one_of(
            st.just("row"),
            st.fixed_dictionaries(
                {"column": NAMES.filter(lambda n: n not in columns), "max_rows": st.integers(1, 100)}
            ),
        ),
        "memory_limit": st.sampled_from(["512MB", "1.5 GB"]),
        "unreviewed": st.sampled_from([("max_rows",), ()]),
    }.items():
        if draw(st.booleans()):
            fields[name] = draw(values)
    if isinstance(fields.get("source"), str) and draw(st.booleans()):
        fields["csv"] = draw(DIALECTS)
    return Policy(**fields)


LOOKS = ("cells", "codes", "digest", "labels", "texts", "width", "tolerance", "origin", "row_digest")


@st.composite
def specs_of(draw: Any, name: str, column: Categorical | Numeric) -> Spec:
    """A spec that cuts this very column."""
    if isinstance(column, Numeric):
        edges = draw(st.sets(st.integers(1, column.cells - 1), min_size=1, max_size=3)) if column.cells > 1 else set()
        return (
            Cuts(name, tuple(column.edge(edge) for edge in sorted(edges))) if edges else Shards(draw(st.integers(1, 9)))
        )
    labels = draw(st.permutations(column.labels))
    first = draw(st.integers(1, len(labels)))
    groups = tuple(group for group in (tuple(labels[:first]), tuple(labels[first:])) if group)
    return draw(st.sampled_from([Values(name), Groups(name, groups)]))


@given(policies().map(lambda policy: policy.schema_), st.data())
@CROSSINGS
def test_schemas_and_what_is_asked_of_them_survive_the_wire(schema: Schema, data: Any) -> None:
    """What the other side reads is equal, types included, whatever was looked at before; a spec cuts it into the same parts of the same names."""
    before = schema.digest
    for declared in (schema, *schema.columns.values()):
        for name in data.draw(st.sets(st.sampled_from(LOOKS))):
            getattr(declared, name, None)
    named = data.draw(st.sampled_from(list(schema.columns.items())))
    spec = data.draw(specs_of(*named))
    partition = bind(spec, schema)
    sent = Description(dataset="d", analyst="a", schema=schema, digest=schema.digest, terms="").model_dump_json(
        by_alias=True
    )
    there = Description.model_validate_json(sent)
    assert there.columns == schema
    assert repr(list(there.columns.columns.items())) == repr(list(schema.columns.items()))
    assert {before} == {schema.digest, there.digest, there.columns.digest}
    asked = Request(id="i", verb="noisy_count", epsilon="1", parts=WireParts.of(PartSet([Block(Part(), partition)])))
    (block,) = Request.received(asked.to_json()).parts.bind(there.columns).blocks
    assert block.partition is not None
    assert block.partition.key == partition.key
    assert repr([axis.labels for axis in block.partition.axes]) == repr([axis.labels for axis in partition.axes])
    answer = Answer(id="i", verb="exp_mech", epsilon="1", values=(0, -1), chosen=(spec,))
    asked_once = Asked(
        at="2026-01-01T00:00:00+00:00", about=str(named[0]), spent="1", outcome="answered", answer=answer
    )
    (line,) = HistoryPage.model_validate_json(HistoryPage(lines=(asked_once,)).model_dump_json(exclude_none=True)).lines
    assert repr(line) == repr(asked_once)


def test_policies_survive_yaml(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever can be declared reads back equal from its YAML, schema digest included."""
    folder = tmp_path_factory.mktemp("yaml")

    @given(policies())
    @CROSSINGS
    def check(policy: Policy) -> None:
        file = folder / "p.yaml"
        file.write_text(policy.to_yaml(), encoding="utf-8", newline="")
        again = load_policy(file)
        assert again.model_dump() == policy.model_dump()
        assert again.schema_.digest == policy.schema_.digest
        assert again.folder == Path(folder).resolve()
        assert again.to_yaml() == policy.to_yaml()
        assert yaml.safe_load(policy.to_yaml()) == read_yaml(policy.to_yaml())  # other tools read policies by YAML 1.1

    check()


LABELS = st.one_of(TEXT, st.integers(-(10**12), 10**12), st.booleans(), st.none())
PLAIN = st.one_of(
    st.builds(Values, NAMES),
    st.builds(Cuts, NAMES, st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4).map(tuple)),
    st.builds(Groups, NAMES, st.lists(st.lists(LABELS, max_size=3).map(tuple), max_size=3).map(tuple)),
    st.builds(Shards, st.integers(1, 65535), st.integers(0, 2**63 - 1)),
)
SPECS = st.one_of(PLAIN, st.builds(Cross, st.lists(PLAIN, min_size=1, max_size=3).map(tuple)))
CROSSES = st.lists(
    st.one_of(st.builds(Values, NAMES), st.builds(Cuts, NAMES, st.just((1.5, 2.0)))),
    min_size=1,
    max_size=5,
    unique_by=lambda spec: spec.column,
).flatmap(lambda specs: st.builds(AnyCross, st.just(tuple(specs)), st.integers(1, len(specs))))
CANDIDATES = st.one_of(SPECS, st.builds(AnyCut, NAMES), st.builds(AnyGrouping, NAMES, st.integers(0, 2**31)), CROSSES)
TABLES = st.lists(st.tuples(SPECS, st.lists(st.integers(-(2**40), 2**40), max_size=4).map(tuple)), max_size=3)
POINTS = st.builds(
    lambda terms, base: Points(tuple(spec for spec, _ in terms), tuple(table for _, table in terms), base),
    TABLES,
    st.integers(-(2**40), 2**40),
)
DERIVATIVES = st.one_of(
    st.builds(Logistic, NAMES, st.lists(LABELS, max_size=3).map(tuple), POINTS, st.floats(0.1, 1)),
    st.builds(Softmax, NAMES, st.lists(POINTS, max_size=3).map(tuple), st.booleans(), st.floats(0.1, 3)),
    st.builds(Residuals, NAMES, POINTS, st.floats(0.1, 30_000), st.booleans()),
)
PRODUCTS = st.builds(
    Products,
    st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple),
    constant=st.floats(0.1, 1),
    pairs=st.sampled_from(["all", "squares", "sums"]),
    limit=st.none() | st.floats(0.1, 100),
    missing=st.booleans(),
)
# What is chosen among candidates, every score of a target alone included; what stands by itself has no candidates.
ALONE: list[Any] = [ClassCount, EnoughRows]
SCORES = st.one_of(
    st.builds(Balance, st.sampled_from([None, 0.25, "1/3"])),
    st.builds(Gradient, DERIVATIVES, st.floats(0, 2**40)),
    st.builds(Misfit, st.tuples(st.builds(Values, NAMES)), st.just(((1, -2),)), st.integers(0, 99), st.just((50,))),
    st.builds(MutualInformation, st.builds(Cuts, NAMES, st.just((1.5,)))),
    *(st.builds(score, NAMES) for score in scores.SCORES.values() if score not in (Balance, Gradient, Misfit, *ALONE)),
)
ASKED = st.one_of(
    st.just({"verb": "noisy_count"}),
    st.fixed_dictionaries({"verb": st.sampled_from(["noisy_sum", "noisy_avg"]), "column": NAMES}),
    st.fixed_dictionaries(
        {
            "verb": st.just("noisy_sum"),
            "column": DERIVATIVES | PRODUCTS,
            "by": st.none() | st.lists(SPECS, min_size=1, max_size=3).map(tuple),
        }
    ),
    st.fixed_dictionaries(
        {"verb": st.just("exp_mech"), "score": st.builds(ClassCount, NAMES), "textbook": st.booleans()}
    ),
    st.fixed_dictionaries(
        {"verb": st.just("exp_mech"), "score": st.builds(EnoughRows, st.integers(0, 2**40), st.integers(0, 64))}
    ),
    st.fixed_dictionaries(
        {
            "verb": st.just("exp_mech"),
            "score": SCORES,
            "candidates": st.lists(st.lists(CANDIDATES, max_size=3).map(tuple), max_size=2).map(tuple),
            "which": st.lists(st.integers(0, 3), max_size=3).map(tuple),
            "textbook": st.booleans(),
            "each": st.sampled_from([None, True, False]),
        }
    ),
)
PARTS = st.builds(
    WireParts,
    specs=st.lists(SPECS, max_size=3).map(tuple),
    nodes=st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=4).map(tuple),
)


@given(
    st.builds(
        lambda asked, **common: Request(**common, **asked),
        ASKED,
        id=st.text("abc0-", min_size=1, max_size=64),
        epsilon=st.just("0.1"),
        parts=PARTS,
        reuse=st.sampled_from([None, True, False]),
    )
)
@CROSSINGS
def test_requests_survive_the_wire(request: Request) -> None:
    """A request reads back equal, types of its values included, and its text is canonical."""
    again = Request.received(request.to_json())
    assert again == request
    assert repr(again) == repr(request)
    assert again.to_json() == request.to_json()


@given(
    st.builds(
        Answer,
        id=st.just("i"),
        verb=st.just("noisy_sum"),
        epsilon=st.just("0.1"),
        values=st.one_of(
            st.lists(st.integers(-(2**62), 2**62)).map(tuple),
            st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
        ),
        chosen=st.lists(SPECS, max_size=3).map(tuple),
        scale=st.none() | st.floats(0, 1e300),
        grid=st.none() | st.floats(0, 1e300),
    )
)
@CROSSINGS
def test_answers_survive_the_ledger(answer: Answer) -> None:
    """An answer reads back with every digit: 64-bit counts, floats, and the chosen specs, types of their values included."""
    again = Answer.from_json(answer.text)
    assert again == answer
    assert repr(again) == repr(answer)


@given(
    st.integers(-(10**6), 10**6),
    st.integers(1, 1000),
    st.sampled_from(["1", "0.1", "0.25", "0.001", "7"]),
    st.integers(0, 999),
)
def test_grid_edges_are_thresholds(lower: int, cells: int, step: str, cell: int) -> None:
    """A cut at a grid edge is that edge: the number at it falls to the right, the threshold is the cell, and the spec of a chosen cut reads back."""
    width = Decimal(step)
    column = Numeric(lower=lower, upper=lower + width * cells, step=width)
    cell = cell % cells
    if cells > 1 and cell:
        edge = column.edge(cell)
        assert column.threshold(edge, "x") == cell
        assert column.encode([edge])[0] == cell
    assert Fraction(lower) <= Fraction(Decimal(repr(column.number(cell)))) + Fraction(1, 10**6)
