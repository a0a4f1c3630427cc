# SPDX-License-Identifier: Apache-2.0
"""``Role`` runs one party's part in a protocol, from its own rows to what it learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miners.fitted.tree import Tree
from miners.secure.id3.public_tree import Progress, grow_public
from miners.secure.id3.rules import Exact, Rule
from miners.secure.id3.secret_tree import Lookup, classify_all, grow_paths, grow_secret
from miners.secure.id3.sources import LocalTables, Records, Source
from miners.secure.id3.task import Branch, Task, to_tree
from miners.secure.mpc.arithmetic import Arithmetic, Opened
from miners.secure.mpc.runtime import Runtime
from miners.secure.sums.joint import Joint, grow_jointly
from pinq.public.secure_computation import Holding

__all__ = ["Outcome", "Role"]


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
class Role:
    """A party's part.

    Attributes:
        protocol: ``sid3``, ``sid3p``, ``sid3t``, ``sid3s`` or ``topdown``.
        task: The public facts.
        rule: How the tree grows; new for each run.
        holding: This party's rows.
        party: Its number.
        lookups: How many rows each party looks up.
        own_lookups: The rows that this one looks up, the value of each attribute; shape (rows,
            attributes).
        plays: How many parties this process is: 1, or all in a simulation.
        progress: Called with a line of text for each step.
    """

    protocol: str
    task: Task
    rule: Rule | Joint
    holding: Holding
    party: int
    lookups: Sequence[int] = ()
    own_lookups: np.ndarray | None = None
    plays: int = 1
    progress: Progress = lambda text: None

    async def run(self, runtime: Runtime) -> Outcome:
        """Takes part, to the end."""
        arithmetic = Arithmetic(runtime, self.rule.bits, self.plays)
        if isinstance(self.rule, Joint):
            tree = await grow_jointly(arithmetic, self.task, self.rule, self.holding, self.progress)
            return self._outcome(arithmetic, tree=tree)
        if self.protocol == "sid3p":
            return await self._public(arithmetic, LocalTables(arithmetic, self.task, self.holding), self.rule)
        began = runtime.clock()
        records = Records(arithmetic, self.task)
        await records.share(self.holding, self.party)
        sharing = runtime.clock() - began
        self.progress("all records are shared")
        if self.protocol == "sid3":
            return await self._public(arithmetic, records, self.rule, sharing)
        assert isinstance(self.rule, Exact)
        secret: Lookup
        if self.protocol == "sid3t":
            secret = await grow_secret(arithmetic, self.task, records, self.rule, self.progress)
        else:
            secret = await grow_paths(arithmetic, self.task, records)
        bits = self._lookup_bits()
        classes = await classify_all(arithmetic, self.task, secret, self.lookups, bits, self.party)
        return self._outcome(arithmetic, depths=secret.depths, looked_up=classes, sharing=sharing)

    async def _public(self, arithmetic: Arithmetic, source: Source, rule: Rule, sharing: float = 0.0) -> Outcome:
        branches = await grow_public(arithmetic, self.task, source, rule, self.progress)
        return self._outcome(arithmetic, tree=to_tree(self.task, branches), branches=tuple(branches), sharing=sharing)

    def _lookup_bits(self) -> np.ndarray | None:
        """Encodes the rows to look up as bits for each value, shape (rows, values)."""
        if self.own_lookups is None or not len(self.own_lookups):
            return None
        bits = np.zeros((len(self.own_lookups), sum(self.task.sizes)), dtype=object)
        for start, codes in zip(self.task.starts, self.own_lookups.T, strict=True):
            bits[np.arange(len(codes)), start + codes] = 1
        return bits

    def _outcome(
        self,
        arithmetic: Arithmetic,
        *,
        tree: Tree | None = None,
        branches: tuple[Branch, ...] | None = None,
        depths: tuple[int, ...] | None = None,
        looked_up: np.ndarray | None = None,
        sharing: float = 0.0,
    ) -> Outcome:
        classes = np.zeros(0, dtype=np.int64) if looked_up is None else looked_up
        return Outcome(tree, branches, depths, classes, tuple(arithmetic.opened), sharing)
