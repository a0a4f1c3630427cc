# SPDX-License-Identifier: Apache-2.0
"""Levels in turns: each level's splits are chosen by one holder alone, with a loss that it need not spread over the other levels.

A noisy choice sees a gain of g per row among n rows at loss e as n g e, against noise of a fixed
size. The holders' people are disjoint, so each has the whole epsilon: a quarter of the rows at four
times the loss is as clear as all rows at once, and nothing has to be added up in the clear. What is
given up is that a quarter of the rows is a sample. Only the classes of the leaves are asked of
everybody.

Privacy:
    Claim: at each holder, every way from the root to a leaf costs ``Task.epsilon`` in all, in the
    terms of its policy.
    Why: a holder is asked for its size, for the splits of its own levels, and for each leaf's
    histogram with what is left. Nodes of a level are disjoint. Whose turn it is follows from noisy
    sizes. Held by: tests/unit/federated/test_topdown.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from miners.budget.schedule import spread
from miners.federated.buds import Bud, Task, ask_choices, ask_leaves, branch, gather
from pinq.public.epsilon import NANO, exact
from pinq.public.scores import Score

__all__ = ["Turns", "deal", "dealt_losses", "grow_in_turns"]


@dataclass(frozen=True)
class Turns:
    """How a tree grows in turns.

    Attributes:
        attributes: The columns that are split.
        candidates: What each node may be split by.
        score: By what holders choose.
        depth: Levels of splits.
        max_nodes: How many nodes may be split. A level that would pass it is not begun; what it
            would have cost goes to the leaves.
        size: The loss of each holder's size; 0 where there is one holder, who has all turns.
        leaves: What the leaves' histograms get at least.
        decay: Whether each of a holder's levels gets half of the one before, instead of as much.
    """

    attributes: Sequence[str]
    candidates: Sequence[Any]
    score: Score
    depth: int
    max_nodes: int
    size: Fraction
    leaves: Fraction
    decay: bool = False


def deal(sizes: Mapping[str, float], levels: int) -> list[str]:
    """Whose turn each level is: in proportion to the sizes, by D'Hondt's rule, the largest first; holders of few rows may get none.

    So each choice is about as clear as any other: twice the rows, twice as many turns, half the
    loss for each.
    """
    turns: list[str] = []
    for _ in range(levels):
        turns.append(max(sizes, key=lambda name: max(sizes[name], 1.0) / (turns.count(name) + 1)))
    return turns


def dealt_losses(
    left: Mapping[str, int], rows: Mapping[str, float], levels: int, *, decay: bool
) -> list[tuple[str, Fraction]]:
    """Who chooses at each level, and at which loss; nobody where nobody has anything left for it.

    Args:
        left: Nano-epsilons that each holder has for choices.
        rows: How much a holder's choice sees for each of them.
        levels: How many there are.
        decay: Whether each of a holder's levels gets half of the one before.
    """
    able = {name: rows[name] * nano for name, nano in left.items() if nano >= 2**levels}
    turns = deal(able, levels) if able else []
    weights = {
        name: [2 ** (mine - 1 - turn) if decay else 1 for turn in range(mine)]
        for name in able
        if (mine := turns.count(name))
    }
    losses = {name: iter(spread(left[name], some)) for name, some in weights.items()}
    return [(name, exact(next(losses[name]))) for name in turns]


def grow_in_turns(task: Task, how: Turns) -> list[Bud]:
    """Grows a tree level by level; the root first, each node before its children."""
    root = Bud(task.federation.parts(), 0)
    sizes = _sizes(task, how, root)
    buds, frontier = [root], [root]
    turns = _turns(task, how, sizes, how.depth, root)
    splits = 0
    while turns and frontier and splits + len(frontier) <= how.max_nodes:
        chooser, epsilon = turns[0]
        parts, frontier = gather(frontier)
        chosen = ask_choices(task, parts, how.candidates, score=how.score, epsilon={chooser: epsilon})
        if chooser not in chosen:  # it was dropped: whoever is left takes its turns
            turns = _turns(task, how, sizes, len(turns), frontier[0])
            continue
        for bud in frontier:
            bud.pay(chooser, epsilon)
        grows = [(bud, split) for bud, split in zip(frontier, chosen[chooser], strict=True) if split is not None]
        frontier = branch(task, buds, [bud for bud, _ in grows], [split for _, split in grows]) if grows else []
        splits += len(grows)
        turns = turns[1:]
    ask_leaves(task, [bud for bud in buds if bud.split is None])
    return buds


def _sizes(task: Task, how: Turns, root: Bud) -> dict[str, float]:
    """Each holder's noisy number of rows, where it matters; over the distance of its neighbours, by which its choices are blurred."""
    if not how.size or not how.depth:
        return dict.fromkeys(task.federation.holders, 1.0)
    found = root.parts.noisy_count(epsilon=how.size, reuse=task.reuse)
    for name in found:
        root.pay(name, how.size)
    return {name: float(count[0]) / task.federation.handle(name).schema.distance for name, count in found.items()}


def _turns(task: Task, how: Turns, sizes: Mapping[str, float], levels: int, bud: Bud) -> list[tuple[str, Fraction]]:
    """Who chooses at each of the levels that are left, and at which loss."""
    left = {
        name: int((task.epsilon - how.leaves - bud.paid.get(name, Fraction(0))) * NANO)
        for name in task.federation.holders
    }
    return dealt_losses(left, sizes, levels, decay=how.decay)
