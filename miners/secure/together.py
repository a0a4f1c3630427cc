# SPDX-License-Identifier: Apache-2.0
"""Several parties as one holder: its counts are sums over all of them, added up on secret shares, with the noise of one.

Whoever asks is any miner that asks a ``Federation`` for counts. In a session every party runs the
same miner on the same public answers, so all ask the same questions in the same order; each counts
its own rows and shares those counts, with its share of the noise added.

Privacy:
    Claim: the rows of every party lose at most ``limit``, what its own ledger was charged, to
    everybody outside and to any ``colluding`` parties together.
    Why: all that is opened are noisy sums (``miners.secure.histogram``), each at its question's
    loss over the schema's distance. What they cost together is the ledger's own recursion
    (``pinq.ledger.composition``), and a party that would pass its limit refuses before anything is
    shared. Which question comes next follows from what was opened.
    Held by: tests/unit/secure/test_secure_topdown.py, tests/privacy/test_secure_noise.py.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from miners.federated.federation import Federation, Question
from miners.federated.splitting import first_codes
from miners.fitted.route import encode
from miners.secure.histogram import simulate_noisy_sums
from miners.secure.mpyc_runtime import threshold_of
from miners.secure.task import Holding, Task
from pinq.analyst.queryable import Budget, PrivateQueryable
from pinq.errors import BudgetExceeded, QueryError
from pinq.ledger.composition import Costs, Demand
from pinq.public.epsilon import NANO, Loss, exact, show, to_nano
from pinq.public.parts import Part, PartSet
from pinq.public.queries import Asked, Preview, Request
from pinq.public.schema import Schema
from pinq.public.specs import Partition, bind

__all__ = ["OwnRows", "SecureFederation"]

ALL = "all parties"
KEY = 32  # bytes, more than a part or a partition is known by
AddUp = Callable[[Sequence[np.ndarray], Sequence[Fraction], bytes], Sequence[np.ndarray]]


class OwnRows:
    """One party's rows, to be counted by any parts.

    Args:
        codes: Of each column that may be asked for a code of each distinct row, or another code
            that no question tells apart from it.
        counts: How often each occurs.
    """

    def __init__(self, codes: Mapping[str, np.ndarray], counts: np.ndarray) -> None:
        self._codes, self._counts = codes, counts
        self._rows: dict[bytes, np.ndarray] = {Part().key: np.arange(len(counts))}

    @classmethod
    def of_holding(cls, task: Task, holding: Holding) -> OwnRows:
        """The rows of a session's party, which are known by the values that the task's splits tell apart."""
        firsts = [first_codes(bind(split, task.schema).axes[0]) for split in task.splits]
        codes = {
            split.column: first[places]
            for split, first, places in zip(task.splits, firsts, holding.places, strict=False)
        }
        return cls(codes | {task.target: holding.places[-1]}, holding.counts)

    @classmethod
    def of_tables(cls, schema: Schema, tables: Sequence[Any]) -> OwnRows:
        """All rows of several pandas or Arrow tables; those with an undeclared value are left out, as behind pinq's wall."""
        codes = {name: np.concatenate([encode(schema, name, table) for table in tables]) for name in schema.columns}
        known = np.all([one >= 0 for one in codes.values()], axis=0)
        return cls({name: one[known] for name, one in codes.items()}, np.ones(int(known.sum()), dtype=np.int64))

    def table(self, parts: PartSet) -> np.ndarray:
        """Exact numbers of rows, shape ``parts.shape``."""
        found = [self._block(self._within(block.part), block.partition) for block in parts.blocks]
        return np.concatenate(found or [np.zeros(0, dtype=np.int64)]).reshape(parts.shape)

    def _block(self, rows: np.ndarray, partition: Partition | None) -> np.ndarray:
        if partition is None:
            return self._counts[rows].sum(keepdims=True)
        return np.bincount(self._cells(partition, rows), self._counts[rows], partition.size).astype(np.int64)

    def _within(self, part: Part) -> np.ndarray:
        """Which rows are in a part; remembered, for those below it are asked next."""
        if part.key not in self._rows:
            assert part.parent is not None
            assert part.partition is not None
            above = self._within(part.parent)
            self._rows[part.key] = above[self._cells(part.partition, above) == part.index]
        return self._rows[part.key]

    def _cells(self, partition: Partition, rows: np.ndarray) -> np.ndarray:
        places = tuple(axis.parts_of(self._codes[str(axis.column)][rows]) for axis in partition.axes)
        return np.ravel_multi_index(places, partition.shape)


@dataclass
class _Account:
    """What stands behind the handle on all parties: the budget of one of them, and no other way to ask than through the federation."""

    schema: Schema
    limit: int
    name: str = ALL
    costs: Costs = field(default_factory=Costs)

    def charge(self, parts: PartSet, epsilon: Fraction) -> None:
        demand, nano = Demand.of(parts), int(epsilon * NANO)
        price, left = self.costs.price(demand, nano), self.limit - self.costs.spent
        if price > left:
            raise BudgetExceeded(
                f"This would cost each party epsilon {show(price)}; {show(left)} remains. Nothing was shared.",
                asked=exact(price),
                remaining=exact(left),
                scope="analyst",
            )
        self.costs.charge(demand, nano)

    def ask(self, request: Request) -> NoReturn:
        raise QueryError(
            f"{request.verb} was asked of one handle on all parties; ask their federation for counts, `together.parts().noisy_count(...)`. Nothing was spent."
        )

    def preview(self, request: Request) -> Preview:
        price = self.costs.price(Demand.of(request.parts.bind(self.schema)), to_nano(request.epsilon))
        return Preview(
            exact(price),
            exact(self.limit - self.costs.spent - price),
            "the noise of one holder, wider where parties may pool theirs",
        )

    def budget(self) -> Budget:
        return Budget(exact(self.limit), exact(self.costs.spent), exact(self.limit - self.costs.spent))

    def history(self) -> list[Asked]:
        return []

    def terms(self) -> str:
        return "counts, summed over all parties"

    def close(self) -> None:
        pass


class SecureFederation(Federation):
    """Parties that add up their counts under secret sharing, as a federation of one holder, ``"all parties"``. It answers questions for counts, no others.

    A party's side of a session (``protocol: topdown``) makes one of its own rows; ``simulated``
    makes one of everybody's, for trying.

    Args:
        schema: The public columns; ``max_rows`` is what all parties may have together.
        rows: What this process counts.
        add_up: Takes this process's counts, their losses and a digest of what they are counts of,
            and returns the noisy sums over all parties.
        epsilon: The most that all questions may cost, in the schema's terms.
        parties: How many there are.
        colluding: How many of them may pool the noise that they drew.
        say: Called with a line of text after each round.

    Examples:
        >>> import pandas as pd, pinq
        >>> schema = pinq.Schema(columns={"sex": pinq.Categorical(values=("F", "M"))}, max_rows=100)
        >>> tables = [pd.DataFrame({"sex": ["F", "M", "M"]}) for _ in range(3)]
        >>> together = SecureFederation.simulated(tables, schema=schema, epsilon=1000)
        >>> together.parts().partition(pinq.Values("sex")).noisy_count(epsilon=1000)["all parties"].tolist()
        [[3, 6]]
    """

    adds_up = True

    def __init__(
        self,
        schema: Schema,
        rows: OwnRows,
        add_up: AddUp,
        *,
        epsilon: Loss,
        parties: int,
        colluding: int,
        say: Callable[[str], object] | None = None,
    ) -> None:
        self._account = _Account(schema, to_nano(epsilon))
        self._rows, self._add_up = rows, add_up
        self._wider = parties / (parties - colluding)
        super().__init__({ALL: PrivateQueryable(self._account)}, say=say)

    @classmethod
    def simulated(
        cls,
        tables: Sequence[Any],
        *,
        schema: Schema,
        epsilon: Loss = 1,
        rows: int | None = None,
        colluding: int | None = None,
        say: Callable[[str], object] | None = None,
    ) -> SecureFederation:
        """All parties in this process: the same numbers by the same steps, on unmasked shares, so it protects no party from this process.

        Args:
            tables: One pandas or Arrow table for each of at least three parties.
            schema: The public columns.
            epsilon: The most that all questions may cost.
            rows: The most rows that a party may have, public; by default as many as its table has.
            colluding: How many parties may pool the noise they drew; by default as many as the
                sharing withstands.
            say: Called with a line of text after each round.
        """
        if isinstance(tables, (str, bytes, Mapping)) or not isinstance(tables, Sequence) or len(tables) < 3:
            raise QueryError(
                "at least three tables are needed, in a list, one for each party; two parties of which one may be curious cannot share a secret."
            )
        if rows is not None and (most := max(map(len, tables))) > rows:
            raise QueryError(f"`rows` is {rows}; a table has {most:,}. Declare as many as any party may have.")
        pooling = threshold_of(len(tables)) if colluding is None else colluding
        if not 0 <= pooling < len(tables):
            raise QueryError(
                f"`colluding` is {colluding}; it must be at least 0 and below the number of parties, {len(tables)}."
            )
        together = schema.model_copy(
            update={"max_rows": sum(max(1, len(table)) if rows is None else rows for table in tables)}
        )

        def add_up(totals: Sequence[np.ndarray], epsilons: Sequence[Fraction], _: bytes) -> list[np.ndarray]:
            return simulate_noisy_sums(totals, epsilons, rows=together.max_rows, parties=len(tables), colluding=pooling)

        return cls(
            together,
            OwnRows.of_tables(schema, tables),
            add_up,
            epsilon=epsilon,
            parties=len(tables),
            colluding=pooling,
            say=say,
        )

    def ask(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """The noisy sums that answer some questions for counts: all of them one addition of all parties."""
        began = time.monotonic()
        if other := next((one.verb for one in questions if one.verb != "noisy_count"), None):
            raise QueryError(
                f"parties that add up their counts cannot answer {other}; use strategy='secure' or 'noisy_counts'. Nothing was spent."
            )
        asked = [(question.parts.of(ALL).part_set, question.epsilon[ALL]) for question in questions]
        for parts, epsilon in asked:
            self._account.charge(parts, epsilon)
        found = self._add_up(
            [self._rows.table(parts) for parts, _ in asked],
            [epsilon / self.schema.distance for _, epsilon in asked],
            _digest(asked),
        )
        self.rounds += 1
        self.requests[ALL] += 1
        self._say(
            f"round {self.rounds}: {sum(len(parts) for parts, _ in asked):,} noisy sums opened in {time.monotonic() - began:.1f} s"
        )
        return [{ALL: counts} for counts in found]

    def variance(self, holder: str, epsilon: Fraction) -> float:
        """Of the noise in one sum; wider than one holder's where parties may pool what they drew."""
        return self._wider * super().variance(holder, epsilon)


def _digest(asked: Sequence[tuple[PartSet, Fraction]]) -> bytes:
    """The same for the same questions, wherever they are asked."""
    whole = hashlib.sha256()
    for parts, epsilon in asked:
        whole.update(f"{epsilon} {len(parts.blocks)};".encode())
        for block in parts.blocks:
            whole.update(
                block.part.key.rjust(KEY) + (b"" if block.partition is None else block.partition.key).rjust(KEY)
            )
    return whole.digest()
