# SPDX-License-Identifier: Apache-2.0
"""``SecureFederation`` makes several parties one holder, with the noise of one.

A miner asks it as a ``CountSource``, for counts or for sums of derivatives. In a session every party
runs the same miner on the same public answers, so all ask the same questions in the same order; each
counts its own rows and shares those counts, with its share of the noise added. ``noisy_sum`` is the
smallest useful piece of it, for other miners to build on: the sum of all parties' histograms.

Privacy:
    Claim: the rows of every party lose at most ``epsilon``, what its own ledger was charged, to
    everybody outside and to any ``colluding`` parties together.
    Why: all that is opened are noisy sums, each at its question's loss over the schema's distance.
    What they cost together is the ledger's own recursion, rounded
    up to whole nano-epsilons, and a party that would pass its limit refuses before anything is
    shared. Which question comes next follows from what was opened.
    Assumes: parties draw their noise as they should, and the time that this takes is not seen
    (``miners.secure.mpc.rounds``). People with rows at several parties lose it once at each.
    Held by: tests/unit/secure/test_secure_topdown.py, tests/privacy/test_secure_noise.py.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np

from miners.budget.plan import Pricing, count_scale, count_variance
from miners.federated.federation import (
    Ability,
    CountSource,
    Dropped,
    FederatedParts,
    HolderQuestion,
    progress_of,
    unknown_holder,
)
from miners.fitted.route import Frame
from miners.secure.id3.task import require_tables
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.bounds import noise_bound, signed_bits
from miners.secure.mpc.noise import Below, own_noise
from miners.secure.mpc.shares import threshold_of
from miners.secure.sums.additions import Addition, OwnRows, Units, addition_of, require_sums
from pinq.analyst.queryable import divided
from pinq.errors import BudgetExceeded, QueryError
from pinq.public.derivatives import Derivatives
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.parts import Block, Part, PartSet
from pinq.public.plugins import install_line, plugin
from pinq.public.queries import Budget, Preview
from pinq.public.schema import Schema

__all__ = ["JointSum", "OwnTables", "SecureFederation", "noisy_sum", "noisy_sum_bits", "simulate_noisy_sum"]


def noisy_sum_bits(rows: int, parties: int, epsilon: Fraction) -> int:
    """Bounds the bits of sums of histograms of at most ``rows`` rows in all.

    A cell is at most ``rows``, each party's noise at most its bound.
    """
    # 1,000 rows, three parties at epsilon 1: 1,000 + 3 * 71 = 1,213, which takes 12 bits with a
    # sign.
    return signed_bits(rows + parties * noise_bound(epsilon))


async def noisy_sum(arithmetic: Arithmetic, histogram: np.ndarray, epsilon: Fraction, colluding: int) -> np.ndarray:
    """Opens the sum of all parties' histograms, with separate discrete Laplace noise in each cell.

    Args:
        arithmetic: Among the parties, of at least ``noisy_sum_bits`` bits.
        histogram: This party's whole numbers, any shape, the same for all.
        epsilon: The cost of the release for one row, which counts in one cell; exact.
        colluding: The number of parties that may pool the noise that they drew.

    Returns:
        The noisy sums, int64.

    Privacy:
        Adjacency: one row of one party comes or goes and changes one cell by 1. Claim: epsilon-DP
        against outsiders and against any ``colluding`` parties.
        Why: cells are disjoint parts, and each gets at least DLap(1/epsilon) that these parties do
        not know (miners/secure/mpc/noise.py). Only the noisy sums are opened. With ``colluding=0``
        the noise is exactly one DLap(1/epsilon); with c of m parties its variance is m / (m - c)
        times that. Held by: tests/privacy/test_secure_noise.py.
    """
    table = np.asarray(histogram)
    noise = own_noise(table.shape, epsilon, arithmetic.parties - colluding, secrets.randbelow, arithmetic.plays)
    shares = await arithmetic.sum_of_inputs(table.astype(object) + noise)
    return (await arithmetic.open(shares, "noisy sum")).astype(np.int64)


def simulate_noisy_sum(
    histograms: Sequence[np.ndarray], epsilon: Fraction, *, rows: int, colluding: int = 0
) -> np.ndarray:
    """Draws the values that ``noisy_sum`` would open, with all parties in this process.

    It is for experiments; the parties are not protected from this process.

    Args:
        histograms: One for each party, of one shape.
        epsilon: Privacy loss of the release for one row.
        rows: The largest number of rows of all parties together.
        colluding: The number of parties that may pool their noise.
    """
    if not histograms or not 0 <= colluding < len(histograms):
        raise QueryError(
            f"is {colluding}", parameter="colluding", allowed=f"at least 0 and below the {len(histograms)} histograms"
        )
    shapes = [np.shape(histogram) for histogram in histograms]
    if len(set(shapes)) > 1:
        raise QueryError(f"the histograms have the shapes {', '.join(map(str, shapes))}; they must be the same.")
    total = np.sum(histograms, axis=0)
    if np.abs(total).max(initial=0) > rows:
        raise QueryError(
            f"a cell of the histograms' sum is beyond `rows`, {rows:,}. "
            "Declare as many as all parties together may have."
        )
    noise = own_noise(total.shape, epsilon, len(histograms) - colluding, secrets.randbelow, len(histograms))
    return (total + noise).astype(np.int64)


ALL = "all parties"
KEY = 32  # bytes, more than a part or a partition is known by
NO_ODOMETER = f"Pricing sums as a ledger would needs the provider's side: {install_line('provider')}."
OwnTables = Callable[[Below], Sequence[np.ndarray]]
"""Counts this process's rows, in whole units; draws what rounding needs."""
T = TypeVar("T")


@dataclass(frozen=True)
class JointSum:
    """One addition of all parties.

    Attributes:
        shapes: Of the arrays that are added.
        epsilons: The loss of a unit in each.
        price: What it costs each party.
        identity: Digest of what is asked.
    """

    shapes: Sequence[tuple[int, ...]]
    epsilons: Sequence[Fraction]
    price: Fraction
    identity: bytes

    def noise(self, honest: int, below: Below, plays: int = 1) -> list[np.ndarray]:
        """Draws what this process adds; see ``own_noise``."""
        pairs = zip(self.shapes, self.epsilons, strict=True)
        return [own_noise(shape, epsilon, honest, below, plays) for shape, epsilon in pairs]


AddUp = Callable[[JointSum, OwnTables], Sequence[np.ndarray]]


class _SummedParts:
    """Parts of all parties' tables together.

    They cannot be asked one by one, only as questions of their federation.
    """

    def __init__(self, schema: Schema, part_set: PartSet) -> None:
        self._schema, self.part_set = schema, part_set

    def partition(self, *specs: object) -> _SummedParts:
        return _SummedParts(self._schema, divided(self.part_set, specs, self._schema))

    def __getitem__(self, chosen: slice | Sequence[int] | np.ndarray) -> _SummedParts:
        try:
            positions = np.arange(len(self))[chosen]
        except IndexError:
            raise QueryError(f"positions must be whole numbers from 0 to {len(self) - 1}.") from None
        return _SummedParts(self._schema, self.part_set.take(positions))

    def __len__(self) -> int:
        return len(self.part_set)

    @staticmethod
    def union(*collections: _SummedParts) -> _SummedParts:
        return _SummedParts(collections[0]._schema, PartSet.union([parts.part_set for parts in collections]))

    def __repr__(self) -> str:
        return f"{len(self)} parts of {ALL}"


class SecureFederation(CountSource):
    """The parties of a secure computation, which add up their counts as one owner, ``"all parties"``.

    It is a ``CountSource``. In a session (``protocol: topdown``) each party makes one with its own
    rows; ``simulated`` makes one with all rows, for trials.

    Args:
        schema: The public columns; ``max_rows`` is the largest number of rows of all parties
            together.
        rows: The rows that this process counts.
        add_up: A function of the queries and of this process's counts; it returns the noisy sums
            over all parties.
        epsilon: The largest cost of all queries, in the schema's terms.
        parties: The number of parties.
        colluding: The number of parties that may pool the noise that they drew.
        say: Called with a line of text after each round.

    Attributes:
        abilities: Counts come as sums.
        schema: The public columns.
        dropped: Empty, because no party is dropped.
        rounds: The number of additions.
        requests: The same, by holder.

    Examples:
        >>> import pandas as pd, pinq
        >>> schema = pinq.Schema(columns={"sex": pinq.Categorical(values=("F", "M"))}, max_rows=100)
        >>> tables = [pd.DataFrame({"sex": ["F", "M", "M"]}) for _ in range(3)]
        >>> together = SecureFederation.simulated(tables, schema=schema, epsilon=1000)
        >>> together.parts().partition(pinq.Values("sex")).noisy_count(epsilon=1000)["all parties"].tolist()
        [[3, 6]]
    """

    abilities: frozenset[Ability] = frozenset({"sums"})

    def __init__(
        self,
        schema: Schema,
        rows: OwnRows,
        add_up: AddUp,
        *,
        epsilon: EpsilonLike,
        parties: int,
        colluding: int,
        say: Callable[[str], object] | None = None,
    ) -> None:
        self.schema = schema
        self.dropped: list[Dropped] = []
        self.rounds, self.requests = 0, {ALL: 0}
        self._limit = Epsilon.of(epsilon)
        self._odometer = plugin("pinq.provider", "odometer", NO_ODOMETER)()  # adds up as a ledger does
        self._rows, self._add_up = rows, add_up
        self._parties = parties
        # Parties that may pool their noise leave the sum less of it, so each draws more.
        self._variance_factor = parties / (parties - colluding)
        self._say = progress_of(say)

    @classmethod
    def simulated(
        cls,
        tables: Sequence[Frame],
        *,
        schema: Schema,
        epsilon: EpsilonLike = 1,
        rows: int | None = None,
        colluding: int | None = None,
        say: Callable[[str], object] | None = None,
    ) -> SecureFederation:
        """Makes a federation of all parties in this process.

        The numbers have the same distribution. The parties are not protected from this process.

        Args:
            tables: One pandas or Arrow table for each of at least three parties.
            schema: The public columns.
            epsilon: The largest cost of all queries.
            rows: The largest number of rows of a party, public; by default the rows of its table.
            colluding: The number of parties that may pool the noise that they drew; by default the
                number that secret sharing tolerates.
            say: Called with a line of text after each round.
        """
        require_tables(tables)
        longest = max(map(len, tables))
        if rows is not None and longest > rows:
            raise QueryError(f"`rows` is {rows}; a table has {longest:,}. Declare as many as any party may have.")
        pooling = threshold_of(len(tables)) if colluding is None else colluding
        if not 0 <= pooling < len(tables):
            allowed = f"at least 0 and below the number of parties, {len(tables)}"
            raise QueryError(f"is {colluding}", parameter="colluding", allowed=allowed)
        max_rows = sum(max(1, len(table)) if rows is None else rows for table in tables)

        def add_up(asked: JointSum, totals: OwnTables) -> list[np.ndarray]:
            noise = asked.noise(len(tables) - pooling, secrets.randbelow, len(tables))
            pairs = zip(totals(secrets.randbelow), noise, strict=True)
            return [(total + drawn).astype(np.int64) for total, drawn in pairs]

        return cls(
            schema.model_copy(update={"max_rows": max_rows}),
            OwnRows.of_tables(schema, tables),
            add_up,
            epsilon=epsilon,
            parties=len(tables),
            colluding=pooling,
            say=say,
        )

    @property
    def holders(self) -> list[str]:
        """One name, which stands for all parties."""
        return [ALL]

    def require_holder(self, holder: str) -> None:
        """Raises ``QueryError`` where there is no holder of this name."""
        if holder != ALL:
            raise unknown_holder(holder, self.holders)

    def distance(self, holder: str) -> int:
        """Returns the number of rows by which two neighbouring tables may differ."""
        return self.schema.distance

    def parts(self) -> FederatedParts:
        """Returns the whole of all tables, as a collection of one part."""
        return FederatedParts(self, {ALL: _SummedParts(self.schema, PartSet([Block(Part())]))})

    def ask(self, questions: Sequence[HolderQuestion]) -> list[dict[str, np.ndarray]]:
        """Sends several queries of counts or sums, in one addition of all parties.

        Raises:
            QueryError: A query is of another kind, or needs too much noise; nothing was spent.
            BudgetExceeded: Too little remains; nothing was shared.
        """
        began = time.monotonic()
        additions = [addition_of(question, question.parts.of(ALL).part_set, self.schema) for question in questions]
        epsilons = [question.epsilon[ALL] for question in questions]
        # A loss of .6 at a distance of 2, for sums that a row moves by 66 units: .3 / 66 for each
        # unit.
        per_unit = [
            epsilon.per_row(self.schema.distance) / addition.units.sensitivity
            for addition, epsilon in zip(additions, epsilons, strict=True)
        ]
        for loss in per_unit:
            noise_bound(loss)  # what would need too much noise is refused before it costs
        before = self.budget.spent
        for addition, epsilon in zip(additions, epsilons, strict=True):
            # All are charged before a row is looked at, so a question that cannot be paid leaves no
            # trace.
            self._charge(addition.parts, epsilon)
        price = self.budget.spent - before
        asked = JointSum([addition.shape for addition in additions], per_unit, price, _digest(additions, epsilons))
        sums = self._add_up(asked, lambda below: [addition.table(self._rows, below) for addition in additions])
        self.rounds += 1
        self.requests[ALL] += 1
        opened, seconds = sum(map(np.size, sums)), time.monotonic() - began
        self._say(f"round {self.rounds}: {opened:,} noisy sums opened in {seconds:.1f} s")
        return [{ALL: numbers * addition.units.unit} for addition, numbers in zip(additions, sums, strict=True)]

    def _charge(self, parts: PartSet, epsilon: Epsilon) -> None:
        """Charges a question. ``BudgetExceeded`` where too little remains."""
        price, remaining = self._odometer.price(parts, epsilon), self._limit - self._odometer.spent
        if price > remaining:
            raise BudgetExceeded(
                f"This would cost each party epsilon {price}; {remaining} remains. Nothing was shared.",
                asked=price.exact,
                remaining=remaining.exact,
                scope="analyst",
            )
        self._odometer.charge(parts, epsilon)

    def preview(self, verb: str, *, epsilon: EpsilonLike) -> Preview:
        """Prices a query of counts of the whole table."""
        require_sums(verb)
        price = self._odometer.price(PartSet([Block(Part())]), Epsilon.of(epsilon))
        remaining = self._limit - self._odometer.spent - price
        return Preview(price.exact, remaining.exact, "the noise of one holder, wider where parties may pool theirs")

    @property
    def budget(self) -> Budget:
        """The budget and spending of each party, the same for all."""
        spent = self._odometer.spent
        return Budget(self._limit.exact, spent.exact, (self._limit - spent).exact)

    def variance(self, holder: str, epsilon: EpsilonLike) -> float:
        """Returns the variance of the noise in one sum.

        It is larger than one owner's if parties may pool their noise.
        """
        return self._variance_factor * count_variance(count_scale(self.schema, Epsilon.of(epsilon)))

    def sum_variance(self, holder: str, loss: Derivatives, epsilon: EpsilonLike) -> float:
        """Returns the variance of the noise in one sum of derivatives, in natural units."""
        units = Units.of(loss, self.schema)
        scale = units.sensitivity * units.unit * count_scale(self.schema, Epsilon.of(epsilon))
        return self._variance_factor * 2 * scale**2

    def spent(self) -> dict[str, Fraction | None]:
        """Returns the cost of the queries so far to each party."""
        return {ALL: self.budget.spent}

    def budgets(self) -> dict[str, Budget | None]:
        """Returns the budget of each party."""
        return {ALL: self.budget}

    def each(self, act: Callable[[Pricing], T]) -> dict[str, T]:
        """Applies a function to the budget of each party, which is the same for all."""
        return {ALL: act(self)}

    def __repr__(self) -> str:
        return (
            f"SecureFederation of {self._parties} parties, {self.rounds} rounds so far\n"
            f"  {ALL}: {self.budget!r}, {self.requests[ALL]} requests"
        )


def _digest(additions: Sequence[Addition], epsilons: Sequence[Epsilon]) -> bytes:
    """Digests questions, so that equal digests mean the same questions, wherever they are asked."""
    digest = hashlib.sha256()
    for addition, epsilon in zip(additions, epsilons, strict=True):
        digest.update(f"{epsilon} {len(addition.parts.blocks)};".encode() + addition.identity)
        for block in addition.parts.blocks:
            partition = b"" if block.partition is None else block.partition.key
            digest.update(block.part.key.rjust(KEY) + partition.rjust(KEY))
    return digest.digest()
