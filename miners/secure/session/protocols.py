# SPDX-License-Identifier: Apache-2.0
"""``Role`` runs one party's part in a session, from its own rows to what it learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from miners.fitted.tree import Tree
from miners.secure.id3.public_tree import Progress, grow_public
from miners.secure.id3.rules import Exact, Rule
from miners.secure.id3.secret_tree import classify_all, grow_paths, grow_secret
from miners.secure.id3.sources import LocalTables, Records, Source
from miners.secure.id3.task import Branch, Task, to_tree
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.mpyc_runtime import MPyC
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.sums.joint import fit_jointly
from pinq.secure_computation import Holding

if TYPE_CHECKING:
    from miners.federated.scorecard import HoldersCardMiner
    from miners.federated.topdown import DPTopDown
    from miners.secure.session.session import Session

__all__ = ["Growth", "Outcome", "Role"]


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


@dataclass(frozen=True)
class Role:
    """A party's part; new for each run.

    Attributes:
        session: What was agreed.
        holding: This party's rows.
        party: Its number.
        own_lookups: The rows that it looks up, the value of each attribute; shape (rows,
            attributes).
        plays: How many parties this process is: 1, or all in a simulation.
        progress: Called with a line of text for each step.
    """

    session: Session
    holding: Holding
    party: int = 0
    own_lookups: np.ndarray | None = None
    plays: int = 1
    progress: Progress = lambda text: None

    async def run(self, side: MPyC, rounds: Rounds | None = None) -> Outcome:
        """Takes part, to the end.

        Args:
            side: Adds up, for a miner of sums; else this party's side of MPyC.
            rounds: Asks what has noise; by default those of a simulation.
        """
        session, asked = self.session, rounds or Rounds()
        miner, task = session.miner(), session.task
        if miner is not None:
            fitted = await fit_jointly(
                miner,
                task,
                self.holding,
                side,
                asked,
                colluding=session.trusted_noise,
                plays=self.plays,
                progress=self.progress,
            )
            if session.protocol == "topdown":
                return Outcome(cast("DPTopDown", fitted).tree_, opened=tuple(asked.opened))
            return Outcome(scorecard=cast("HoldersCardMiner", fitted), opened=tuple(asked.opened))
        lookups = [member.lookups for member in session.parties]
        if self.plays > 1:  # all rows are one party's, and so is all that is looked up
            task, lookups = task.merged(), [sum(lookups)]
        arithmetic = Arithmetic(side, session.bits, asked, self.plays)
        own = np.zeros((0, len(task.sizes)), dtype=np.int64) if self.own_lookups is None else self.own_lookups
        growth = Growth(arithmetic, task, session.rule(), self.holding, self.party, self.progress)
        return await growth.learned(session.protocol, lookups, own)


@dataclass(frozen=True)
class Growth:
    """One party's side of ID3, in each of its forms."""

    arithmetic: Arithmetic
    task: Task
    rule: Rule
    holding: Holding
    party: int = 0
    progress: Progress = lambda text: None

    async def learned(self, protocol: str, lookups: Sequence[int], own_lookups: np.ndarray) -> Outcome:
        """Grows the tree; a secret one is used to look rows up."""
        arithmetic, task, opened = self.arithmetic, self.task, self.arithmetic.opened
        if protocol == "sid3p":
            branches = await self._public(LocalTables(arithmetic, task, self.holding))
            return Outcome(to_tree(task, branches), branches, opened=tuple(opened))
        records = Records(arithmetic, task, self.holding, self.party)
        if protocol == "sid3":
            branches = await self._public(records)
            return Outcome(to_tree(task, branches), branches, opened=tuple(opened), sharing_seconds=records.seconds)
        await records.share()
        if protocol == "sid3t":
            tree = await grow_secret(arithmetic, task, records, cast(Exact, self.rule), self.progress)
        else:
            tree = await grow_paths(arithmetic, task, records)
        classes = await classify_all(arithmetic, task, tree, lookups, own_lookups, self.party)
        return Outcome(depths=tree.depths, looked_up=classes, opened=tuple(opened), sharing_seconds=records.seconds)

    async def _public(self, source: Source) -> tuple[Branch, ...]:
        return tuple(await grow_public(self.arithmetic, self.task, source, self.rule, self.progress))
