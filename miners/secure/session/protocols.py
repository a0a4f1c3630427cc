# SPDX-License-Identifier: Apache-2.0
"""``Role`` runs one party's part in a protocol, from its own rows to what it learns.

Each protocol is a class that knows its steps: ``SID3``, ``SID3P``, ``SID3T``, ``SID3S``, ``TopDown``,
``Boosted``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from miners.fitted.tree import Tree
from miners.secure.id3.public_tree import Progress, grow_public
from miners.secure.id3.rules import Exact, Rule
from miners.secure.id3.secret_tree import Lookup, classify_all, grow_paths, grow_secret
from miners.secure.id3.sources import LocalTables, Records, Source
from miners.secure.id3.task import Branch, Task, to_tree
from miners.secure.mpc.arithmetic import Arithmetic, Opened
from miners.secure.mpc.runtime import Runtime
from miners.secure.sums.joint import Joint, SumsMiner, fit_jointly
from pinq.public.secure_computation import Holding

if TYPE_CHECKING:
    from miners.federated.scorecard import HoldersCardMiner
    from miners.federated.topdown import DPTopDown

__all__ = ["SID3", "SID3P", "SID3S", "SID3T", "Boosted", "Growth", "Outcome", "Role", "TopDown"]

M = TypeVar("M", bound=SumsMiner)


@dataclass(frozen=True)
class Outcome:
    """What a party learned.

    Attributes:
        tree: The public tree; None where it stays secret.
        branches: The same over numbered attributes, of ID3.
        depths: SID3T: the length of the path to each leaf.
        looked_up: The classes of the rows that this party looked up, by number.
        scorecard: The fitted miner of a scorecard.
        opened: Everything that was opened to this party, in order.
        sharing_seconds: Of the run, the time that sharing the records took.
    """

    tree: Tree | None = None
    branches: tuple[Branch, ...] | None = None
    depths: tuple[int, ...] | None = None
    looked_up: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scorecard: HoldersCardMiner | None = None
    opened: tuple[Opened, ...] = ()
    sharing_seconds: float = 0.0


class Growth(Protocol):
    """One protocol, with the rule by which its model grows; new for each run."""

    @property
    def bits(self) -> int:
        """The longest numbers that are compared."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        """Runs one party's part, from its own rows to what it learns."""


@dataclass(frozen=True)
class Role:
    """A party's part.

    Attributes:
        growth: The protocol.
        task: The public facts.
        holding: This party's rows.
        party: Its number.
        lookups: How many rows each party looks up.
        own_lookups: The rows that this one looks up, the value of each attribute; shape (rows,
            attributes).
        plays: How many parties this process is: 1, or all in a simulation.
        progress: Called with a line of text for each step.
    """

    growth: Growth
    task: Task
    holding: Holding
    party: int
    lookups: Sequence[int] = ()
    own_lookups: np.ndarray | None = None
    plays: int = 1
    progress: Progress = lambda text: None

    async def run(self, runtime: Runtime) -> Outcome:
        """Takes part, to the end."""
        return await self.growth.take_part(self, Arithmetic(runtime, self.growth.bits, self.plays))

    async def share_records(self, arithmetic: Arithmetic) -> tuple[Records, float]:
        """Shares the records of all parties; returns them, and the seconds that it took."""
        began = arithmetic.runtime.clock()
        records = Records(arithmetic, self.task)
        await records.share(self.holding, self.party)
        seconds = arithmetic.runtime.clock() - began
        self.progress("all records are shared")
        return records, seconds

    async def grow_public(
        self, arithmetic: Arithmetic, source: Source, rule: Rule, sharing_seconds: float = 0.0
    ) -> Outcome:
        """Grows a public tree of what the source counts."""
        branches = tuple(await grow_public(arithmetic, self.task, source, rule, self.progress))
        return Outcome(
            to_tree(self.task, branches), branches, opened=tuple(arithmetic.opened), sharing_seconds=sharing_seconds
        )

    async def look_up(self, arithmetic: Arithmetic, tree: Lookup, sharing_seconds: float) -> Outcome:
        """Looks all parties' rows up in a secret tree."""
        bits = self._lookup_bits()
        classes = await classify_all(arithmetic, self.task, tree, self.lookups, bits, self.party)
        return Outcome(
            depths=tree.depths,
            looked_up=classes,
            opened=tuple(arithmetic.opened),
            sharing_seconds=sharing_seconds,
        )

    def _lookup_bits(self) -> np.ndarray | None:
        """Encodes the rows to look up as bits for each value, shape (rows, values)."""
        if self.own_lookups is None or not len(self.own_lookups):
            return None
        bits = np.zeros((len(self.own_lookups), sum(self.task.sizes)), dtype=object)
        for start, codes in zip(self.task.starts, self.own_lookups.T, strict=True):
            bits[np.arange(len(codes)), start + codes] = 1
        return bits


@dataclass(frozen=True)
class _Id3:
    """A protocol of ID3, by the paper's names."""

    rule: Rule

    @property
    def bits(self) -> int:
        return self.rule.bits


@dataclass(frozen=True)
class _ExactId3:
    """A protocol of ID3 whose tree stays secret, so it has no noise."""

    rule: Exact

    @property
    def bits(self) -> int:
        return self.rule.bits


class SID3P(_Id3):
    """Each party shares counts of its own rows; the tree is public."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        return await role.grow_public(arithmetic, LocalTables(arithmetic, role.task, role.holding), self.rule)


class SID3(_Id3):
    """Each party shares its records; the tree is public."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        records, seconds = await role.share_records(arithmetic)
        return await role.grow_public(arithmetic, records, self.rule, seconds)


class SID3T(_ExactId3):
    """Each party shares its records; of the tree only the lengths of paths are public."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        records, seconds = await role.share_records(arithmetic)
        tree = await grow_secret(arithmetic, role.task, records, self.rule, role.progress)
        return await role.look_up(arithmetic, tree, seconds)


class SID3S(_ExactId3):
    """Each party shares its records; nothing of the tree is public."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        records, seconds = await role.share_records(arithmetic)
        return await role.look_up(arithmetic, await grow_paths(arithmetic, role.task, records), seconds)


@dataclass(frozen=True)
class _Summed(Generic[M]):
    """A protocol of a miner that asks for noisy sums alone; what it learns is public."""

    joint: Joint[M]

    @property
    def bits(self) -> int:
        return self.joint.bits

    async def fitted(self, role: Role, arithmetic: Arithmetic) -> M:
        """Returns the fitted miner, the same at every party."""
        return await fit_jointly(arithmetic, role.task, self.joint, role.holding, role.progress)


class TopDown(_Summed["DPTopDown"]):
    """DP-TopDown on noisy sums of all parties' counts; the tree is public."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        fitted: DPTopDown = await self.fitted(role, arithmetic)
        return Outcome(fitted.tree_, opened=tuple(arithmetic.opened))


class Boosted(_Summed["HoldersCardMiner"]):
    """A scorecard on noisy sums of all parties' counts and derivatives; the card is public."""

    async def take_part(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        fitted = await self.fitted(role, arithmetic)
        return Outcome(scorecard=fitted, opened=tuple(arithmetic.opened))
