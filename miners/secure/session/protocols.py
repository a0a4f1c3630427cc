# SPDX-License-Identifier: Apache-2.0
"""``Role`` runs one party's part in a protocol, from its own rows to what it learns.

Each protocol is a class that knows its steps: ``SID3``, ``SID3P``, ``SID3T``, ``SID3S``, and
``Summed``, behind which stands a miner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

import numpy as np

from miners.fitted.tree import Tree
from miners.secure.id3.public_tree import Progress, grow_public
from miners.secure.id3.rules import Exact, Rule
from miners.secure.id3.secret_tree import Lookup, classify_all, grow_paths, grow_secret
from miners.secure.id3.sources import LocalTables, Records, Source
from miners.secure.id3.task import Branch, Task, to_tree
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.mpc.runtime import Runtime
from miners.secure.sums.joint import Adder, Joint, SumsMiner, fit_jointly
from pinq.secure_computation import Holding

if TYPE_CHECKING:
    from miners.federated.scorecard import HoldersCardMiner
    from miners.federated.topdown import DPTopDown

__all__ = ["SID3", "SID3P", "SID3S", "SID3T", "Growth", "Outcome", "Role", "Summed"]

R = TypeVar("R", bound=Rule)


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

    summed: bool

    @property
    def bits(self) -> int:
        """The longest numbers that are compared, or added up."""

    async def take_part(self, role: Role, side: Runtime | Adder, rounds: Rounds) -> Outcome:
        """Runs one party's part, from its own rows to what it learns.

        Args:
            role: Whose part.
            side: Adds up, where the protocol is ``summed``; else computes on shares.
            rounds: Asks what has noise.
        """


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

    async def run(self, side: Runtime | Adder, rounds: Rounds | None = None) -> Outcome:
        """Takes part, to the end; by default in the rounds of a simulation."""
        return await self.growth.take_part(self, side, rounds or Rounds())

    def records(self, arithmetic: Arithmetic) -> Records:
        """Returns all parties' records, to be shared."""
        return Records(arithmetic, self.task, self.holding, self.party)

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
class Id3(ABC, Generic[R]):
    """A protocol of ID3, by the paper's names."""

    summed = False
    rule: R

    @property
    def bits(self) -> int:
        return self.rule.bits

    async def take_part(self, role: Role, side: Runtime | Adder, rounds: Rounds) -> Outcome:
        return await self.learned(role, Arithmetic(cast(Runtime, side), self.bits, rounds, role.plays))

    @abstractmethod
    async def learned(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        """Grows the tree."""

    async def public(self, role: Role, arithmetic: Arithmetic, source: Source) -> Outcome:
        """Grows a public tree of what a source counts."""
        branches = tuple(await grow_public(arithmetic, role.task, source, self.rule, role.progress))
        return Outcome(to_tree(role.task, branches), branches, opened=tuple(arithmetic.opened))


class SID3P(Id3[Rule]):
    """Each party shares counts of its own rows; the tree is public."""

    async def learned(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        return await self.public(role, arithmetic, LocalTables(arithmetic, role.task, role.holding))


class SID3(Id3[Rule]):
    """Each party shares its records; the tree is public."""

    async def learned(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        records = role.records(arithmetic)
        return replace(await self.public(role, arithmetic, records), sharing_seconds=records.seconds)


class SID3T(Id3[Exact]):
    """Each party shares its records; of the tree only the lengths of paths are public."""

    async def learned(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        records = role.records(arithmetic)
        await records.share()
        tree = await grow_secret(arithmetic, role.task, records, self.rule, role.progress)
        return await role.look_up(arithmetic, tree, records.seconds)


class SID3S(Id3[Exact]):
    """Each party shares its records; nothing of the tree is public."""

    async def learned(self, role: Role, arithmetic: Arithmetic) -> Outcome:
        records = role.records(arithmetic)
        await records.share()
        return await role.look_up(arithmetic, await grow_paths(arithmetic, role.task, records), records.seconds)


@dataclass(frozen=True)
class Summed:
    """A protocol of a miner that asks for noisy sums alone; what it learns is public.

    Attributes:
        joint: How the miner learns.
    """

    summed = True
    joint: Joint[DPTopDown] | Joint[HoldersCardMiner]

    @property
    def bits(self) -> int:
        return self.joint.bits

    async def take_part(self, role: Role, side: Runtime | Adder, rounds: Rounds) -> Outcome:
        fitted: object = await fit_jointly(
            cast(Adder, side), rounds, cast("Joint[SumsMiner]", self.joint), role.holding, role.progress, role.plays
        )
        opened = tuple(rounds.opened)
        tree = getattr(fitted, "tree_", None)  # a scorecard has none
        return Outcome(tree, scorecard=cast("HoldersCardMiner | None", fitted if tree is None else None), opened=opened)
