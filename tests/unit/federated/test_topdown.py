# SPDX-License-Identifier: Apache-2.0
"""FederatedTopDown: that it learns, what its splits are made of, and what it refuses."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from miners import FederatedTopDown, Federation
from miners.federated.federation import OwnerTally
from miners.federated.growing import splitting_functions
from miners.growth.candidates import CRITERIA, impurity_reduction
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Groups, Values
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.oracles.topdown import plain_topdown
from tests.support.requests.data_owners import SCHEMA, STRATEGIES, federation, rows
from tests.support.requests.handles import simulated

# What it learns


ONE, ALIKE, UNLIKE = (4000,), (1000, 1000, 1000, 1000), (3960, 30, 10, 0)


@pytest.mark.parametrize(
    ("strategy", "sizes"),
    [*((strategy, UNLIKE) for strategy in STRATEGIES), ("turns", ONE), ("turns", ALIKE), ("noisy_counts", ONE)],
    ids=str,
)
def test_it_learns(strategy: Any, sizes: Any) -> None:
    with federation(*sizes, epsilon=20) as owners:
        fitted = FederatedTopDown(epsilon=20, strategy=strategy).fit(owners, "y")
        assert fitted.score(rows(1000, 99)) > 0.95


@pytest.mark.parametrize("criterion", ["gini", "entropy", "max"])
def test_without_noise_it_is_algorithm_1(criterion: Any) -> None:
    """Node by node the tree that counting all rows in one place grows, split after split."""
    tables = [rows(1200, seed).assign(y=noisy_labels(1200, seed)) for seed in (1, 2)]
    with Federation([simulated(SCHEMA, data=table, epsilon=10**6) for table in tables]) as owners:
        miner = FederatedTopDown(
            epsilon=10**6, strategy="noisy_counts", criterion=criterion, max_nodes=9, max_depth=5, at_once=1
        )
        work = miner._checked(SCHEMA, "y").among(2).strategy
        grown = work.grow(owners)
        for node in grown:
            node.pool(owners)
    functions = [
        split for own in splitting_functions(SCHEMA, "y", attributes=None, splits=None) for split in own.splits
    ]
    plain = plain_topdown(pd.concat(tables), "y", functions, criterion, max_nodes=9, max_depth=5)
    assert [node.split for node in grown] == [node.split for node in plain]
    # Nothing is asked of the root itself, whose rows nobody knows.
    assert [round(node.rows) for node in grown[1:]] == [len(node.rows) for node in plain[1:]]
    assert len(plain) > 5


def noisy_labels(count: int, seed: int) -> Any:
    """A third of the labels of ``rows`` anew, by a rule of x too, so that every split gains something of its own."""
    table, random = rows(count, seed), np.random.default_rng(seed)
    return np.where(random.random(count) < 0.1 + table["x"] / 250, random.choice(["n", "p"], count), table["y"])


def test_one_handle_needs_no_federation() -> None:
    handle = simulated(SCHEMA, data=rows(2000), epsilon=20)
    fitted = FederatedTopDown(epsilon=20).fit(handle, "y")
    assert fitted.score(rows(1000, 99)) > 0.95
    assert repr(fitted.card_).startswith("Tree of 1 owner, strategy 'turns'")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_owner_may_lack_a_class(strategy: Any) -> None:
    some = [rows(1500, 1), rows(1500, 2)]
    handles = [
        simulated(SCHEMA, data=table[table["y"] == label], epsilon=20) for table, label in zip(some, "np", strict=True)
    ]
    with Federation([*handles, simulated(SCHEMA, data=rows(1500, 3), epsilon=20)]) as owners:
        assert FederatedTopDown(epsilon=20, strategy=strategy).fit(owners, "y").score(rows(1000, 99)) > 0.9


def test_splitting_functions_of_the_callers_own() -> None:
    with federation(2000, 2000, epsilon=20) as owners:
        for strategy in STRATEGIES:
            fitted = FederatedTopDown(
                epsilon=6, strategy=strategy, splits={"x": [50], "job": [["a", "b"]]}, max_depth=2
            ).fit(owners, "y")
            assert {node.split for node in fitted.tree_.nodes if node.split} == {
                Cuts("x", (50,)),
                next(iter(splitting_functions(SCHEMA, "y", attributes=["job"], splits={"job": [["a", "b"]]}))).splits[
                    0
                ],
            }


def test_a_sum_that_comes_as_one_is_enough() -> None:
    """The seam for sums under encryption: ``tally`` may answer for all owners at once, with the noise of one."""

    class Summed(Federation):
        def tally(self, questions: Any) -> Any:
            return [
                {"together": OwnerTally(np.sum([one.counts for one in found.values()], axis=0), 1e-12)}
                for found in super().tally(questions)
            ]

    for strategy in STRATEGIES:
        with Summed([simulated(SCHEMA, data=rows(800, seed), epsilon=10**4) for seed in range(2)]) as owners:
            fitted = FederatedTopDown(epsilon=10**4, strategy=strategy).fit(owners, "y")
            assert fitted.tree_.nodes[0].rows == pytest.approx(1600, abs=1)
            assert fitted.score(rows(1000, 99)) > 0.95


# What it is made of


@pytest.mark.parametrize("nullable", [False, True])
def test_one_table_serves_all_splits_of_a_column(nullable: bool) -> None:
    """Added up, its cells are each split's own cells."""
    schema = Schema(
        columns={
            "x": Numeric(lower=0, upper=9, integer=True, nullable=nullable),
            "c": Categorical(values=tuple("abc"), nullable=nullable),
            "y": SCHEMA.columns["y"],
        },
        max_rows=500,
    )
    splits: dict[str, Any] = {"x": [2, 5, 6], "c": ["a", ["b", None] if nullable else "b"]}
    with simulated(schema, rows=400, epsilon=10**6) as handle:
        for one in splitting_functions(schema, "y", splits=splits):
            table = handle.partition(one.base, Values("y")).noisy_count(epsilon=10**4)
            for split, found in zip(one.splits, one.tables(np.asarray(table)[None])[0], strict=True):
                assert np.array_equal(found, handle.partition(split, Values("y")).noisy_count(epsilon=10**4))


def test_default_splitting_functions_are_the_papers() -> None:
    """Ten evenly spaced thresholds; each value against the rest, and of two values one."""
    numbers, values, two = splitting_functions(
        SCHEMA.model_copy(update={"columns": {**SCHEMA.columns, "two": Categorical(values=("u", "v"))}}), "y"
    )
    assert [split.points for split in numbers.splits if isinstance(split, Cuts)] == [
        (float(point),) for point in (1, 10, 20, 30, 40, 50, 60, 70, 80, 90)
    ]
    assert values.splits == (
        Groups("job", (("a",), ("b", "c"))),
        Groups("job", (("b",), ("a", "c"))),
        Groups("job", (("c",), ("a", "b"))),
    )
    assert len(two.splits) == 1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_split_promises_what_it_takes_away(criterion: str) -> None:
    pure, useless, empty = np.array([[5.0, 0], [0, 5]]), np.array([[5.0, 5], [2, 2]]), np.array([[-1.0, 0], [0, -3]])
    assert impurity_reduction(criterion, np.array([pure, useless, empty])).tolist() == pytest.approx([1, 0, 0])


@pytest.mark.parametrize("decay", [True, False])
def test_shares_add_up(decay: bool) -> None:
    """With decay a level gets half of the one above."""
    miner = FederatedTopDown(
        strategy="noisy_counts", leaf_fraction=Fraction(1, 3), max_depth=6, budget=None if decay else "uniform"
    )
    levels = [line for line in miner.plan(SCHEMA, "y").lines if line.level < 6]
    assert sum(line.epsilon for line in levels) == Fraction(666666667, 10**9)  # in whole nano-epsilons
    shares = [sum(line.epsilon for line in levels if line.level == level) for level in range(6)]
    ratios = [float(above / below) for above, below in itertools.pairwise(shares)]
    assert ratios == pytest.approx([2.0 if decay else 1.0] * 5, rel=1e-6)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"strategy": "secured"}, "must be one of 'turns', 'noisy_counts', 'secure', 'local_rnm', 'single'"),
        ({"criterion": "gain_ratio"}, "'entropy', 'gini', 'max'"),
        ({"budget": "uniforms"}, "did you mean 'uniform'"),
        ({"leaf_fraction": 1}, "above 0 and below 1"),
        ({"leaf_fraction": "half"}, "above 0 and below 1"),
        ({"max_nodes": 0}, "1 to 65,536"),
        ({"at_once": 0}, "1 to 65,536"),
        ({"max_depth": 61}, "0 to 60"),
        ({"attributes": ["z"]}, "no column 'z'"),
        ({"splits": {"y": [["n"]]}}, "which is not an attribute"),
        ({"splits": {"x": [200]}}, "out of bounds"),
        ({"splits": {"x": "50"}}, "a list of thresholds, or how many"),
        ({"splits": {"x": 0}}, "1 to 4,096"),
        ({"splits": {"job": 3}}, "a list of values"),
        ({"splits": {"job": [["a", "b", "c"]]}}, "leaves one side without a value"),
        ({"splits": {"job": []}}, "is empty"),
        ({"splits": {"job": ["z"]}}, "'z'"),
        ({"splits": [50]}, "must map names of columns"),
        ({"epsilon": 0}, "epsilon"),
    ],
    ids=str,
)
@pytest.mark.parametrize("strategy", ["turns", "noisy_counts"])
def test_what_is_wrong_is_said_and_nothing_spent(strategy: Any, params: Any, said: str) -> None:
    both = federation(10, 10)
    with pytest.raises(QueryError, match=said):
        FederatedTopDown(**{"strategy": strategy, **params}).fit(both, "y")
    assert set(both.spent().values()) == {0}


def test_a_column_of_very_many_values_needs_declared_groups() -> None:
    wide = Schema(columns={"zip": Categorical(values=tuple(range(2000))), "y": SCHEMA.columns["y"]}, max_rows=100)
    with pytest.raises(QueryError, match="`zip` has 2,000 values; at most 1,024"):
        splitting_functions(wide, "y")
    assert len(splitting_functions(wide, "y", splits={"zip": [list(range(1000))]})[0].splits) == 1


@pytest.mark.parametrize("several", [[], {}, ()], ids=["list", "dict", "tuple"])
def test_several_handles_are_to_be_a_federation(several: Any) -> None:
    with pytest.raises(QueryError, match=r"wrap several handles: Federation\(\[...\]\)"):
        FederatedTopDown().fit(several, "y")
    with pytest.raises(QueryError, match=r"not from DataFrame; open one with pinq\.open"):
        FederatedTopDown().fit(rows(3), "y")  # type: ignore[arg-type]


@pytest.mark.parametrize(("target", "said"), [("x", "numeric"), ("z", "no column")])
def test_a_wrong_target_is_said(target: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        FederatedTopDown().fit(federation(10), target)


def test_it_can_be_stored_with_its_card() -> None:
    fitted = FederatedTopDown(epsilon=1, splits={"x": (20, 50)}, max_depth=2, leaf_fraction=0.25).fit(
        federation(200, 300), "y"
    )
    again = FederatedTopDown.from_json(fitted.to_json())
    assert again.get_params() == {**fitted.get_params(), "splits": {"x": [20, 50]}}
    assert (again.tree_, again.cost_, again.card_) == (fitted.tree_, fitted.cost_, fitted.card_)
    with pytest.raises(QueryError, match="`card`"):
        FederatedTopDown.from_json(fitted.to_json().replace('"rounds"', '"turns"'))
