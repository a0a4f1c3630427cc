# SPDX-License-Identifier: Apache-2.0
"""``SecureFederation`` presents several parties as one owner, with the noise of one.

In a session every party runs the same miner on the same public answers (``fit_jointly``), so all send the same queries
in the same order; each adds up over its rows (``OwnRows``), and shares the numbers with its share of the noise.
``noisy_sum`` is the smallest part, for other miners.

Noise of many units takes long to draw jointly, so each party first rounds derivatives, in units of 2^-16 rows, to
coarser ones: up or down at random, so that no sum is biased.

Privacy:
    Opens: in each round noisy sums: for a tree the class counts of some nodes, by the values of each attribute, or of
    leaves; for a scorecard counts of the target, alone or in the cells of each attribute, or derivatives in the cells
    of one. Claim: the rows of every party lose at most ``epsilon``, the charge of its ledger, to everybody outside and
    to any ``colluding`` parties together. Why: all opened values are noisy sums, each at its query's loss over the
    schema's distance. Their joint cost is the ledger's own recursion, rounded up to whole nano-epsilons, and a party
    that would pass its limit refuses before anything is shared. The next query follows from the opened values. The size
    of noise depends on the query, so parties with different queries must not add up. Queries can differ: fits decide by
    floating-point numbers, which another machine may round differently. So a round compares the query first
    (``pinq_secure.mpc.rounds``). Noise DLap(``sensitivity`` / epsilon) in every number hides a row. Counts: a row is in
    one cell. Derivatives: a party's exact sums S become floor((S + U) / step), one U for each number, uniform on 0 ..
    step - 1 and drawn independently of all rows. For every U, a row whose vector moves S_i by v_i moves the rounded
    number by less than |v_i| / step + 1, and not at all for v_i = 0. A vector has ``width`` entries, all in one cell,
    of L1 norm at most ``bound``: in all at most bound / step + width units, which is whole, so its floor. The field
    holds sums and noise, because its bits follow from the smallest losses and the largest number of units. Assumes:
    parties draw their noise by the protocol, and nobody sees the time of the draw (``pinq_secure.mpc.rounds``). A
    person with rows at several parties has this loss at each of them. Held by:
    tests/unit/secure/test_secure_topdown.py, tests/privacy/test_secure_noise.py,
    tests/unit/secure/test_secure_card_session.py, tests/e2e/test_secure_session.py; and of the units
    tests/unit/secure/test_secure_scorecard.py, exhaustively on small tables.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeVar, Union, cast

import numpy as np

from miners.budget.plan import Pricing, count_scale, count_variance
from miners.federated.federation import (
    Ability,
    CountSource,
    Dropped,
    FederatedParts,
    OwnerQuery,
    Sums,
    progress_of,
)
from miners.fitted.route import Frame, encode
from pinq.analyst.queryable import Parts
from pinq.analyst.session import Session
from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock, kinds_of
from pinq.engine.tables import TableRequest
from pinq.errors import BudgetExceeded, QueryError
from pinq.language.derivatives import Derivatives
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Budget
from pinq.language.specs import bind
from pinq.ledger.composition import Costs, Demand
from pinq.public.checks import Shown, many
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.noise import SYSTEM, Bits
from pinq.public.schema import Schema
from pinq_secure.id3.task import Holding, Task, require_tables
from pinq_secure.mpc.arithmetic import Arithmetic, signed_bits, threshold_of
from pinq_secure.mpc.noise import noise_bound, own_noise
from pinq_secure.mpc.rounds import Opened, Rounds

if TYPE_CHECKING:  # they import scikit-learn and pandas, which no other protocol needs
    from miners.federated.scorecard import OwnersCardMiner
    from miners.federated.topdown import FederatedTopDown

ALL = "all parties"
FINENESS = 32  # units to an entry of a vector, at least: rounding adds at most a thirty-second of noise
KEY = 32  # bytes, more than the key of a part or a partition has
Miner = Union["FederatedTopDown", "OwnersCardMiner"]
"""A miner whose fit asks for counts and sums alone."""
M = TypeVar("M", bound=Miner)
T = TypeVar("T")


class OwnRows:
    """One party's rows, in an engine of this process.

    Args:
        schema: The public columns.
        codes: The code of each row in each column that queries may name, or another code that no query
            distinguishes from it; arrays of one length.
    """

    def __init__(self, schema: Schema, codes: Mapping[str, np.ndarray]) -> None:
        kinds, rows = kinds_of(schema), len(next(iter(codes.values())))
        columns: dict[Hashable, np.ndarray] = {name: column.astype(kinds[name]) for name, column in codes.items()}
        whole = RowBlock(columns, rows)
        blocks = [whole.rows_in(slice(start, start + BLOCK_ROWS)) for start in range(0, rows, BLOCK_ROWS)]
        self._engine = ArrayEngine(Codes(blocks, schema), schema, b"")  # no query draws shards, so no coin has a key

    @classmethod
    def of_holding(cls, task: Task, holding: Holding) -> OwnRows:
        """A session's holding: rows distinguished by the values of the splits."""
        *attributes, classes = holding.codes
        codes = {task.target: classes}
        for split, values in zip(task.splits, attributes, strict=True):
            # The first code of a value stands for all of them: no query tells them apart.
            edges = bind(split, task.schema).axes[0].edges(task.schema.column(split.column).codes)
            codes[split.column] = np.array(edges)[values]
        return cls(task.schema, {name: column.repeat(holding.counts) for name, column in codes.items()})

    @classmethod
    def of_tables(cls, schema: Schema, tables: Sequence[Frame]) -> OwnRows:
        """All rows of several tables, without rows that have an undeclared value."""
        codes = {name: np.concatenate([encode(schema, name, table) for table in tables]) for name in schema.columns}
        is_declared = np.all([column >= 0 for column in codes.values()], axis=0)
        return cls(schema, {name: column[is_declared] for name, column in codes.items()})

    def table(self, parts: PartSet) -> np.ndarray:
        """The counts of rows of each part, shape ``parts.shape``."""
        counts = self._engine.tabulate(parts) if len(parts) else [np.zeros(0, dtype=np.int64)]
        return cast(np.ndarray, counts[0]).reshape(parts.shape)

    def derivatives(self, parts: PartSet, sums: Sums, schema: Schema) -> np.ndarray:
        """The sums of derivatives over the rows of one part, exact, shape (cells, width)."""
        vectors, cells = sums.loss.vectors(schema), TableRequest(bind(sums.by, schema).axes)
        (totals,) = self._engine.tabulate(parts, [cells], vectors)
        return cast(np.ndarray, totals).reshape(-1, vectors.width)


@dataclass(frozen=True)
class Units:
    """The whole units of a loss's rounded sums.

    Attributes:
        step: The number of the loss's units in one whole unit.
        sensitivity: The largest change of all numbers together by a row.
        unit: A whole unit in the loss's natural units.
    """

    step: int
    sensitivity: int
    unit: float

    @classmethod
    def of(cls, loss: Derivatives, schema: Schema) -> Self:
        """The coarsest power of two with ``FINENESS`` units for each entry of the bound."""
        # Vectors of two entries and a bound of 65,536 units: 65,536 // (32 * 2) = 1,024, so 1,024
        # of the loss's units make one, and a row moves at most 64 + 2 of these.
        vectors = loss.vectors(schema)
        step = 1 << max(0, (vectors.bound // (FINENESS * vectors.width)).bit_length() - 1)
        rounding = vectors.width if step > 1 else 0
        return cls(step, vectors.bound // step + rounding, step / loss.unit)

    def rounded(self, sums: np.ndarray, source: Bits) -> np.ndarray:
        """Rounds exact sums, int64 in the loss's units, to whole units, each up or down at random."""
        # In steps of 4, a sum of 10 becomes 2 for the draws 0 and 1, and 3 for 2 and 3: 2.5 on
        # average.
        moved = [(total + source.below(self.step)) // self.step for total in sums.ravel().tolist()]
        return np.array(moved, dtype=np.int64).reshape(sums.shape)


def most_units(width: int) -> int:
    """The largest change by a row, in units, of sums of so many entries, for any loss.

    A step is more than half of bound / (``FINENESS`` width), so bound / step is less than twice
    ``FINENESS`` units an entry; rounding adds one to each.
    """
    return (2 * FINENESS + 1) * width


@dataclass(frozen=True)
class Addition:
    """One query to all parties.

    Attributes:
        sums: The derivatives to add up in the cells of a spec; None to count rows.
    """

    parts: PartSet
    sums: Sums | None
    schema: Schema
    epsilon: Epsilon

    @cached_property
    def units(self) -> Units:
        """The whole units of the numbers."""
        return Units(1, 1, 1) if self.sums is None else Units.of(self.sums.loss, self.schema)

    @property
    def loss(self) -> Fraction:
        """The loss of one unit."""
        # A loss of .6 at a distance of 2, for sums that a row moves by 66 units: .3 / 66 for each.
        return self.epsilon.per_row(self.schema.distance) / self.units.sensitivity

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers: a count of each part, or a vector in each cell."""
        if self.sums is None:
            return self.parts.shape
        return bind(self.sums.by, self.schema).size, self.sums.loss.vectors(self.schema).width

    @property
    def identity(self) -> bytes:
        """A digest that is equal for equal queries at all parties."""
        sums = b"" if self.sums is None else repr((self.sums.loss.identity, self.sums.by.identity)).encode()
        keys = [
            block.part.key.rjust(KEY) + (block.partition.key if block.partition else b"").rjust(KEY)
            for block in self.parts.blocks
        ]
        return b"".join([f"{self.epsilon} {len(keys)};".encode(), sums, *keys])

    def table(self, rows: OwnRows, source: Bits) -> np.ndarray:
        """A party's numbers, in whole units, which must only be shared."""
        if self.sums is None:
            return rows.table(self.parts)
        return self.units.rounded(rows.derivatives(self.parts, self.sums, self.schema), source)


@dataclass(frozen=True)
class JointSum:
    """One addition of all parties, with concatenated numbers.

    Attributes:
        price: The cost to each party.
    """

    additions: Sequence[Addition]
    price: Fraction

    @property
    def identity(self) -> bytes:
        return hashlib.sha256(b"".join(addition.identity for addition in self.additions)).digest()

    @property
    def size(self) -> int:
        return sum(math.prod(addition.shape) for addition in self.additions)

    def table(self, rows: OwnRows, source: Bits) -> np.ndarray:
        """A party's numbers; draws the bits of rounding."""
        return np.concatenate([addition.table(rows, source).ravel() for addition in self.additions])

    def noise(self, honest: int, source: Bits, plays: int = 1) -> np.ndarray:
        return np.concatenate([own_noise(one.shape, one.loss, honest, source, plays).ravel() for one in self.additions])

    def cut(self, sums: np.ndarray) -> list[np.ndarray]:
        """Cuts concatenated numbers into arrays again."""
        shapes = [addition.shape for addition in self.additions]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        pieces = np.split(sums.astype(np.int64), ends)
        return [cells.reshape(shape) for cells, shape in zip(pieces, shapes, strict=True)]


AddUp = Callable[[JointSum, OwnRows], np.ndarray]
"""Returns the noisy sums over all parties, end to end."""


class SecureFederation(Shown, CountSource):
    """The parties of a secure computation, which add up their counts as one owner, ``"all parties"``.

    In a session (``protocol: topdown``) each party makes one with its own rows; ``simulated`` makes one with all rows,
    for trials.

    Args:
        schema: The public columns; ``max_rows`` is the largest number of rows of all parties
            together.
        rows: The rows that this process counts.
        add_up: A function of the queries and of this process's counts; it returns the noisy sums
            over all parties.
        epsilon: The largest cost of all queries, in the schema's terms.
        parties: The number of parties.
        colluding: The number of parties that may pool the noise that they drew.
        say: A function that is called with a line of text after each round.

    Attributes:
        name: The one owner that stands for all parties.
        abilities: Counts come as sums.
        dropped: Empty, because no party is dropped.
        rounds: The number of additions.
        requests: The same, by owner.

    Examples:
        >>> import pandas as pd, pinq
        >>> schema = pinq.Schema(columns={"sex": pinq.Categorical(values=("F", "M"))}, max_rows=100)
        >>> tables = [pd.DataFrame({"sex": ["F", "M", "M"]}) for _ in range(3)]
        >>> together = SecureFederation.simulated(tables, schema=schema, epsilon=1000)
        >>> together.parts().partition(pinq.Values("sex")).noisy_count(epsilon=1000)["all parties"].tolist()
        [[3, 6]]
    """

    name = ALL
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
        self._costs = Costs()  # adds up as a ledger does
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

        The parties are not protected from this process.

        Args:
            tables: One pandas or Arrow table for each of at least three parties.
            schema: The public columns.
            epsilon: The largest cost of all queries.
            rows: The largest number of rows of a party, public; by default the rows of its table.
            colluding: The number of parties that may pool the noise that they drew; by default the
                number that secret sharing tolerates.
            say: A function that is called with a line of text after each round.
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

        def add_up(query: JointSum, own_rows: OwnRows) -> np.ndarray:
            return query.table(own_rows, SYSTEM) + query.noise(len(tables) - pooling, SYSTEM, len(tables))

        return cls(
            schema.model_copy(update={"max_rows": max_rows}),
            OwnRows.of_tables(schema, tables),
            add_up,
            epsilon=epsilon,
            parties=len(tables),
            colluding=pooling,
            say=say,
        )

    def distance(self, owner: str) -> int:
        return self.schema.distance

    def parts(self) -> FederatedParts:
        # Splitting parts needs a session's schema alone; `ask` has the answers.
        return FederatedParts(self, {ALL: Parts(cast("Session", self), PartSet([Block(Part())]))})

    def ask(self, queries: Sequence[OwnerQuery]) -> list[dict[str, np.ndarray]]:
        """Sends several queries of counts or sums, in one addition of all parties.

        Raises:
            QueryError: A query is of another kind, or needs too much noise; nothing was spent.
            BudgetExceeded: Too little remains; nothing was shared.
        """
        began = time.monotonic()
        additions = [self._addition(query) for query in queries]
        before = self.budget.spent
        for addition in additions:
            # All are charged before a row is read, so an unpaid query leaves no trace.
            self._require("This", self._costs.price(Demand.of(addition.parts), addition.epsilon))
            self._costs.charge(Demand.of(addition.parts), addition.epsilon)
        joint = JointSum(additions, self.budget.spent - before)
        sums = joint.cut(self._add_up(joint, self._rows))
        self.rounds += 1
        self.requests[ALL] += 1
        opened, seconds = sum(map(np.size, sums)), time.monotonic() - began
        self._say(f"round {self.rounds}: {opened:,} noisy sums opened in {seconds:.1f} s")
        return [{ALL: numbers * addition.units.unit} for addition, numbers in zip(additions, sums, strict=True)]

    def _addition(self, query: OwnerQuery) -> Addition:
        """The addition of a query; raises ``QueryError`` if parties cannot answer it."""
        if query.verb not in ("noisy_count", "noisy_sum"):
            raise QueryError(
                f"parties that add up their counts cannot answer {query.verb}; use strategy='secure' or 'noisy_counts'."
            )
        parts: PartSet = query.parts.of(ALL).part_set
        if query.sums is not None:
            if len(parts) != 1:
                raise QueryError(f"sums of derivatives are asked of one part, not of {len(parts):,}.")
            query.sums.loss.check(self.schema)
        addition = Addition(parts, query.sums, self.schema, query.epsilon[ALL])
        noise_bound(addition.loss)  # too much noise is refused before the charge
        return addition

    def attempt(self, *, epsilon: EpsilonLike, act: str = "This") -> None:
        """Raises ``BudgetExceeded`` if an act needs more than remains; nothing is shared."""
        self._require(act, self._costs.price(Demand.of(PartSet([Block(Part())])), Epsilon.of(epsilon)))

    def _require(self, name: str, price: Epsilon) -> None:
        remaining = self._limit - self._costs.spent
        if price > remaining:
            raise BudgetExceeded(
                f"{name} would cost each party epsilon {price}; {remaining} remains. Nothing was shared.",
                asked=price.exact,
                remaining=remaining.exact,
                scope="analyst",
            )

    @property
    def budget(self) -> Budget:
        """The budget and spending of each party, the same for all."""
        spent = self._costs.spent
        return Budget(self._limit.exact, spent.exact, (self._limit - spent).exact)

    def variance(self, owner: str, epsilon: EpsilonLike) -> float:
        """The variance of the noise in one sum, larger than one owner's if parties may pool their noise."""
        return self._variance_factor * count_variance(count_scale(self.schema, Epsilon.of(epsilon)))

    def sum_variance(self, owner: str, loss: Derivatives, epsilon: EpsilonLike) -> float:
        units = Units.of(loss, self.schema)
        scale = units.sensitivity * units.unit * count_scale(self.schema, Epsilon.of(epsilon))
        return self._variance_factor * 2 * scale**2

    def spent(self) -> dict[str, Fraction | None]:
        return {ALL: self.budget.spent}

    def budgets(self) -> dict[str, Budget | None]:
        return {ALL: self.budget}

    def each(self, act: Callable[[Pricing], T]) -> dict[str, T]:
        return {ALL: act(self)}

    def __repr__(self) -> str:
        return (
            f"SecureFederation of {self._parties} parties, {many(self.rounds, 'round')} so far\n"
            f"  {ALL}: {self.budget!r}, {many(self.requests[ALL], 'request')}"
        )


def sum_bits(miner: Miner, task: Task) -> int:
    """The bits of every sum, from the miner's smallest losses.

    Raises ``QueryError`` if its noise would be too large, or the miner refuses.
    """

    def bits(epsilon: Epsilon, units: int) -> int:
        """The bits of sums to which a row adds at most so many units."""
        per_unit = epsilon.per_row(task.schema.distance) / units
        return noisy_sum_bits(units * task.max_rows, len(task.rows), per_unit)

    needed = miner.sums_needed(task.schema, task.target)
    sums = 0 if needed.sums is None else bits(needed.sums, most_units(needed.width))
    return max(bits(needed.count, 1), sums)


async def fit_jointly(
    miner: M,
    task: Task,
    holding: Holding,
    add: Callable[[np.ndarray], Awaitable[np.ndarray]],
    rounds: Rounds,
    *,
    colluding: int,
    plays: int,
    progress: Callable[[str], None],
) -> M:
    """Runs one party's side of a miner, which must be new; returns the fitted miner.

    Its fit runs in a separate thread, and each round of its queries is one addition of all parties, by ``add``. A
    process that plays all parties adds alone.
    """
    loop, fitting = asyncio.get_running_loop(), True

    async def opened(total: JointSum, rows: OwnRows) -> np.ndarray:
        if not fitting:  # the session ended while the fit was at work
            raise asyncio.CancelledError

        async def added(noise: np.ndarray, source: Bits) -> np.ndarray:
            # After the charge; and rounding draws from where the noise did, so that a round that is
            # asked again has the same numbers.
            sums = await add(noise + await asyncio.to_thread(total.table, rows, source))
            rounds.opened.append(Opened("noisy sum", tuple(sums.tolist())))
            return sums

        def draw(source: Bits) -> np.ndarray:
            return total.noise(len(task.rows) - colluding, source, plays)

        return await rounds.ask("noisy sum", total.price, total.size, draw, added, query=total.identity)

    together = SecureFederation(
        task.schema,
        OwnRows.of_holding(task, holding),
        lambda asked, own: asyncio.run_coroutine_threadsafe(opened(asked, own), loop).result(),
        epsilon=miner.epsilon,
        parties=len(task.rows),
        colluding=colluding,
        say=progress,
    )
    try:
        await asyncio.to_thread(miner.fit, together, task.target)
        return miner
    finally:
        fitting = False


def noisy_sum_bits(rows: int, parties: int, epsilon: Fraction) -> int:
    """A bound of the bits of sums of histograms with at most ``rows`` rows together.

    A cell is at most ``rows``, each party's noise at most its bound.

    Examples:
        >>> from fractions import Fraction
        >>> from pinq_secure import noisy_sum_bits
        >>> noisy_sum_bits(1000, 3, Fraction(1)) < 64
        True
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
        not know (pinq_secure/mpc/noise.py). Only the noisy sums are opened. With ``colluding=0``
        the noise is exactly one DLap(1/epsilon); with c of m parties its variance is m / (m - c)
        times that. Held by: tests/privacy/test_secure_noise.py.
    """
    table = np.asarray(histogram)
    noise = own_noise(table.shape, epsilon, arithmetic.parties - colluding, SYSTEM, arithmetic.plays)
    shares = await arithmetic.sum_of_inputs(table.astype(object) + noise)
    return (await arithmetic.open(shares, "noisy sum")).astype(np.int64)


def simulate_noisy_sum(
    histograms: Sequence[np.ndarray], epsilon: Fraction, *, rows: int, colluding: int = 0
) -> np.ndarray:
    """The values that ``noisy_sum`` would open, with all parties in this process.

    The parties are not protected from this process.

    Args:
        histograms: One for each party, of one shape.
        epsilon: Privacy loss of the release for one row.
        rows: The largest number of rows of all parties together.
        colluding: The number of parties that may pool their noise.

    Examples:
        >>> from fractions import Fraction
        >>> import numpy as np
        >>> from pinq_secure import simulate_noisy_sum
        >>> counts = [np.array([5, 7]), np.array([1, 2]), np.array([4, 0])]
        >>> simulate_noisy_sum(counts, Fraction(1000), rows=100).tolist()  # next to no noise
        [10, 9]
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
    noise = own_noise(total.shape, epsilon, len(histograms) - colluding, SYSTEM, len(histograms))
    return (total + noise).astype(np.int64)
