# SPDX-License-Identifier: Apache-2.0
"""Every protocol grows the tree that plain ID3 grows, on hundreds of random tables and on real ones, and what is opened is what was promised."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.datasets import load, why_missing
from pinq.public.schema import Categorical, Schema
from pinq_secure.id3.public_tree import ExactRules, LossSplit, NoisyRules
from pinq_secure.id3.secret_tree import MAX_PATHS
from pinq_secure.id3.task import Holding, Task, hold
from pinq_secure.mpc.arithmetic import ALONE, Arithmetic, Sharing, run_to_end
from pinq_secure.mpc.rounds import Opened
from pinq_secure.session.party import Outcome, grow, take_part
from tests.support.oracles.id3 import Branch, plain_id3, plain_paths, to_tree
from tests.support.processes.secure_parties import patients, random_task, session_of

TABLES = 50


def run(
    protocol: str, task: Task, holding: Holding, share: Fraction, alpha: int, mine: np.ndarray | None = None
) -> Outcome:
    rule = ExactRules(task, share, alpha)
    looked_up = [0 if mine is None else len(mine)]
    return run_to_end(grow(Arithmetic(ALONE, rule.bits), task, rule, holding, protocol, looked_up, mine))


def cases(seed: int) -> list[tuple[Task, Holding, Fraction, int]]:
    rng = np.random.default_rng(seed)
    return [(*random_task(rng), Fraction(int(rng.integers(0, 4)), 20), int(rng.integers(1, 10))) for _ in range(TABLES)]


def walk(tree: list[Branch], row: np.ndarray) -> int | None:
    node = tree[0]
    while node.attribute is not None:
        node = tree[node.children[row[node.attribute]]]
    return node.label


def every_row(task: Task) -> np.ndarray:
    """Some combinations of values."""
    return np.stack([np.random.default_rng(3).integers(0, size, 6) for size in task.sizes], axis=1)


@pytest.mark.parametrize("protocol", ["sid3", "sid3p"])
def test_public_trees_equal_the_plain_one(protocol: str) -> None:
    """Node by node, ties and empty branches included."""
    for task, holding, share, alpha in cases(1):
        expected = to_tree(task, plain_id3(task, holding, share, alpha))
        assert run(protocol, task, holding, share, alpha).tree == expected


def test_a_secret_tree_answers_like_the_plain_one() -> None:
    """SID3T: the classes of looked-up rows and the lengths of paths."""
    for task, holding, share, alpha in cases(2):
        tree, rows = plain_id3(task, holding, share, alpha), every_row(task)
        outcome = run("sid3t", task, holding, share, alpha, rows)
        assert outcome.looked_up.tolist() == [walk(tree, row) for row in rows]
        assert outcome.depths is not None
        assert max(outcome.depths) == _depth(tree)


def test_a_used_attribute_is_not_chosen_again() -> None:
    """SID3T with alpha = 1, where the paper's rule (subtract 1 from a used attribute's score) would choose the first attribute twice and lose the odd row."""
    schema = Schema(
        columns={
            "a": Categorical(values=(0, 1)),
            "b": Categorical(values=tuple(range(10))),
            "y": Categorical(values=(0, 1)),
        },
        max_rows=40,
    )
    mixed = np.stack([np.zeros(10, dtype=int), np.arange(10), np.arange(10) == 9])
    pure = np.stack([np.ones(30, dtype=int), np.arange(30) % 10, np.ones(30, dtype=int)])
    task, holding = (
        Task.of(schema, "y", (40,)),
        Holding(np.concatenate([mixed, pure], axis=1), np.ones(40, dtype=np.int64)),
    )
    assert plain_id3(task, holding, Fraction(0), 1)[0].attribute == 0
    assert run("sid3t", task, holding, Fraction(0), 1, mixed[:2].T).looked_up.tolist() == mixed[2].tolist()


def test_the_tree_of_all_paths_answers_like_the_plain_one() -> None:
    """SID3S: the most frequent class of a combination, or of its longest prefix that has rows."""
    for task, holding, share, alpha in cases(3):
        labels, rows = plain_paths(task, holding), every_row(task)
        assert run("sid3s", task, holding, share, alpha, rows).looked_up.tolist() == [
            labels[tuple(row)] for row in rows
        ]


@pytest.mark.parametrize("name", ["balance_scale", "car", "spect"])
def test_the_papers_data_sets(name: str) -> None:
    """All four protocols agree with the plain tree on the data of the paper's table; SPECT has too many paths for SID3S."""
    if reason := why_missing(name):
        pytest.skip(reason)
    schema, target, rows = load(name)
    task = Task.of(schema, target, (len(rows),))
    holding = hold(task, rows)
    tree = plain_id3(task, holding, Fraction(1, 20), 8)
    assert len(tree) > 20
    for protocol in ("sid3", "sid3p"):
        assert run(protocol, task, holding, Fraction(1, 20), 8).tree == to_tree(task, tree)
    asked = holding.each[:-1, :10].T
    assert run("sid3t", task, holding, Fraction(1, 20), 8, asked).looked_up.tolist() == [
        walk(tree, row) for row in asked
    ]
    if math.prod(task.sizes) <= MAX_PATHS:
        labels = plain_paths(task, holding)
        assert run("sid3s", task, holding, Fraction(1, 20), 8, asked).looked_up.tolist() == [
            labels[tuple(row)] for row in asked
        ]
    assert (math.prod(task.sizes) > MAX_PATHS) == (name == "spect")


def test_what_is_opened_is_what_was_promised() -> None:
    """SID3 and SID3P open a stop bit for each node, the class of each leaf and the attribute of each other node; SID3T stop bits and the asker's classes; SID3S those alone."""
    for task, holding, share, alpha in cases(4)[:15]:
        tree, rows = plain_id3(task, holding, share, alpha), every_row(task)
        expected = _promised(task, tree)
        for protocol in ("sid3", "sid3p"):
            assert _merged(run(protocol, task, holding, share, alpha).opened) == expected
        outcome = run("sid3t", task, holding, share, alpha, rows)
        assert {opening.what for opening in outcome.opened} <= {"stop", "looked up"}
        assert sum(len(opening.values) for opening in outcome.opened if opening.what == "looked up") == len(rows)
        assert {opening.what for opening in run("sid3s", task, holding, share, alpha, rows).opened} == {"looked up"}


def test_nothing_is_opened_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every opening comes from one of the two recorded ones, or from inside a comparison or a zero test, where what is opened is masked."""
    callers: set[str] = set()
    real = Sharing.opened

    def opened(self: Sharing, *args: Any, **kwargs: Any) -> Any:
        callers.add(sys._getframe(1).f_code.co_name)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Sharing, "opened", opened)
    (task, holding), share = random_task(np.random.default_rng(8), 40, 4), Fraction(1, 20)
    for protocol in ("sid3", "sid3p", "sid3t", "sid3s"):
        run(protocol, task, holding, share, 8, every_row(task))
    assert callers == {"open", "_is_zero", "is_negative", "_signs"}


def test_noisy_trees_open_what_was_promised() -> None:
    """A noisy number of rows once, then stop bits, classes and attributes; with hardly any noise the size and the shape are the exact ones."""
    frame = patients(300, 5)
    session = session_of("sid3p", [100, 100, 100], noise="discrete-laplace", epsilon="1000", depth=2)
    holding = hold(session.task, frame)
    outcome = run_to_end(take_part(session, ALONE, holding, plays=3))
    assert outcome.opened[0] == Opened("noisy rows", (300,))
    assert {opening.what for opening in outcome.opened[1:]} == {"stop", "class", "attribute"}
    assert outcome.tree
    assert outcome.tree.depth == 2
    first = outcome.tree.nodes[0].split
    assert first
    assert str(getattr(first, "column", "")) in ("smokes", "age")


def test_budgets_add_up() -> None:
    """Whatever the depth, the questions on one path cost epsilon in all, exactly."""
    for depth in range(12):
        assert LossSplit.spread(Fraction(7, 10), depth).total == Fraction(7, 10)


@pytest.mark.parametrize(
    ("fields", "share"),
    [({}, 1), ({"adjacency": "substitute"}, 2), ({"privacy_unit": {"column": "person", "max_rows": 3}}, 3)],
)
def test_noise_grows_with_the_distance_of_neighbours(fields: dict[str, Any], share: int) -> None:
    """A row that is replaced, or a person with several rows, gets a part of the loss for each row; what is charged stays epsilon."""
    session = session_of("sid3p", [50] * 3, noise="discrete-laplace", epsilon="0.6", depth=2, **fields)
    rule = session.rule()
    assert isinstance(rule, NoisyRules)
    assert rule.budget.total * share == Fraction(3, 5)
    assert session.nano == 600_000_000


def test_noise_fits_its_field_at_the_extreme() -> None:
    """The largest noise that a share can have, from every party, on a full table, still compares rightly."""
    session = session_of("sid3p", [50] * 3, noise="discrete-laplace", epsilon="0.5", depth=1)
    rule = session.rule()
    assert isinstance(rule, NoisyRules)
    most = max(2 * rule._largest(loss) for loss in (rule.budget.size, rule.budget.choice, rule.budget.vote))
    assert most < 2 ** (rule.bits - 1)


def _depths(tree: list[Branch]) -> list[int]:
    depths = [0] * len(tree)
    for number, node in enumerate(tree):
        for child in node.children:
            depths[child] = depths[number] + 1
    return depths


def _depth(tree: list[Branch]) -> int:
    return max(depth for depth, node in zip(_depths(tree), tree, strict=True) if node.attribute is None)


def _promised(task: Task, tree: list[Branch]) -> list[Opened]:
    """What the docstrings of ``ExactRules`` and ``grow_public`` say is opened for a plain tree, level by level."""
    depths, expected = _depths(tree), []
    for level in range(max(depths) + 1):
        nodes = [node for node, depth in zip(tree, depths, strict=True) if depth == level]
        if level < len(task.sizes):
            expected.append(Opened("stop", tuple(int(node.attribute is None) for node in nodes)))
        expected.append(Opened("class", tuple(node.label for node in nodes if node.label is not None)))
        # The attribute is opened as its place among those that the path has left.
        expected.append(
            Opened(
                "attribute",
                tuple(
                    _position(tree, number)
                    for number, depth in enumerate(depths)
                    if depth == level and tree[number].attribute is not None
                ),
            )
        )
    return [opening for opening in expected if opening.values]


def _position(tree: list[Branch], number: int) -> int:
    used, child = [], number
    while child:
        parent = next(above for above, node in enumerate(tree) if child in node.children)
        used.append(tree[parent].attribute)
        child = parent
    attribute = tree[number].attribute
    assert attribute is not None
    return attribute - sum(earlier < attribute for earlier in used if earlier is not None)


def _merged(opened: tuple[Opened, ...]) -> list[Opened]:
    return [opening for opening in opened if opening.values]
