# SPDX-License-Identifier: Apache-2.0
"""One party's part in each protocol, from its own rows to what it learns. The same steps in a simulation and in a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miners.fitted.tree import Tree
from miners.secure.arithmetic import Arithmetic, Opened
from miners.secure.joint import Joint, grow_jointly
from miners.secure.public_tree import Progress, grow_public
from miners.secure.rules import Exact, Rule
from miners.secure.secret_tree import PathTree, SecretTree, classify_all, grow_paths, grow_secret
from miners.secure.sources import LocalTables, Records, Source
from miners.secure.task import Branch, Holding, Task, to_tree

__all__ = ["Outcome", "Part"]


@dataclass(frozen=True)
class Outcome:
    """What a party learned.

    Attributes:
        tree: The public tree; None where it stays secret.
        branches: The same over numbered attributes, of ID3.
        depths: SID3T: the length of the path to each leaf.
        looked_up: The classes of the rows that this party looked up, by number.
        opened: Everything that was opened to this party, in order.
        sharing_seconds: Of the run, the time that sharing the records took.
    """

    tree: Tree | None
    branches: tuple[Branch, ...] | None
    depths: tuple[int, ...] | None
    looked_up: np.ndarray
    opened: tuple[Opened, ...]
    sharing_seconds: float


@dataclass(frozen=True)
class Part:
    """A party's part.

    Attributes:
        protocol: ``sid3``, ``sid3p``, ``sid3t``, ``sid3s`` or ``topdown``.
        task: What all know.
        rule: How the tree grows; new for each run.
        holding: This party's rows.
        party: Its number.
        lookups: How many rows each party looks up.
        mine: The rows that this one looks up, the value of each attribute; shape (rows,
            attributes).
        plays: How many parties this process is: 1, or all in a simulation.
        progress: Told what happens.
    """

    protocol: str
    task: Task
    rule: Rule | Joint
    holding: Holding
    party: int
    lookups: Sequence[int] = ()
    mine: np.ndarray | None = None
    plays: int = 1
    progress: Progress = lambda text: None

    async def run(self, runtime: Any) -> Outcome:
        """Takes part, to the end."""
        arithmetic = Arithmetic(runtime, self.rule.bits, self.plays)
        if isinstance(self.rule, Joint):
            tree = await grow_jointly(arithmetic, self.task, self.rule, self.holding, self.progress)
            return Outcome(tree, None, None, np.zeros(0, dtype=np.int64), tuple(arithmetic.opened), 0.0)
        if self.protocol == "sid3p":
            source: Source = LocalTables(arithmetic, self.task, self.holding)
            return self._outcome(
                arithmetic, await grow_public(arithmetic, self.task, source, self.rule, self.progress), None, 0.0
            )
        began = runtime._loop.time()
        records = Records(arithmetic, self.task)
        await records.share(self.holding, self.party)
        sharing = runtime._loop.time() - began
        self.progress("all records are shared")
        if self.protocol == "sid3":
            return self._outcome(
                arithmetic, await grow_public(arithmetic, self.task, records, self.rule, self.progress), None, sharing
            )
        assert isinstance(self.rule, Exact)
        secret: SecretTree | PathTree
        if self.protocol == "sid3t":
            secret = await grow_secret(arithmetic, self.task, records, self.rule, self.progress)
        else:
            secret = await grow_paths(arithmetic, self.task, records)
        looked_up = await classify_all(arithmetic, self.task, secret, self.lookups, self._bits(), self.party)
        return self._outcome(arithmetic, None, secret, sharing, looked_up)

    def _bits(self) -> np.ndarray | None:
        """The rows to look up, a bit for each value of each attribute."""
        if self.mine is None or not len(self.mine):
            return None
        bits = np.zeros((len(self.mine), sum(self.task.sizes)), dtype=object)
        for start, places in zip(self.task.starts, self.mine.T, strict=True):
            bits[np.arange(len(places)), start + places] = 1
        return bits

    def _outcome(
        self,
        arithmetic: Arithmetic,
        branches: Sequence[Branch] | None,
        secret: SecretTree | PathTree | None,
        sharing: float,
        looked_up: np.ndarray | None = None,
    ) -> Outcome:
        depths = secret.depths if isinstance(secret, SecretTree) else None
        found = np.zeros(0, dtype=np.int64) if looked_up is None else looked_up
        opened = tuple(arithmetic.opened)
        if branches is None:
            return Outcome(None, None, depths, found, opened, sharing)
        return Outcome(to_tree(self.task, branches), tuple(branches), depths, found, opened, sharing)
