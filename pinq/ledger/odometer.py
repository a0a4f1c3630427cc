# SPDX-License-Identifier: Apache-2.0
"""``Odometer`` adds up the costs of one party's queries, as a ledger would.

A party of a secure computation is charged for each round. This odometer prices the questions of a
round as that party's ledger would price them. Registered as ``odometer``;
see ``pinq.public.plugins``.
"""

from __future__ import annotations

from pinq.language.parts import PartSet
from pinq.ledger.composition import Costs, Demand
from pinq.public.epsilon import Epsilon


class Odometer:
    """The cost of all questions so far."""

    def __init__(self) -> None:
        self._costs = Costs()

    @property
    def spent(self) -> Epsilon:
        """The cost of all charged questions."""
        return self._costs.spent

    def price(self, parts: PartSet, epsilon: Epsilon) -> Epsilon:
        """Returns the growth of ``spent`` if each part were queried at ``epsilon``."""
        return self._costs.price(Demand.of(parts), epsilon)

    def charge(self, parts: PartSet, epsilon: Epsilon) -> None:
        """Adds a question of ``epsilon`` to each of these parts."""
        self._costs.charge(Demand.of(parts), epsilon)
