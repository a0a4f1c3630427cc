# SPDX-License-Identifier: Apache-2.0
"""``simulated`` opens a free handle on public rows, for miners that try settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pinq.public.epsilon import Loss
from pinq.public.plugins import install_line, plugin
from pinq.public.schema import Schema

if TYPE_CHECKING:
    from miners.fitted.route import Frame
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["simulated"]

MISSING = f"Trying settings on public rows needs the provider's side: {install_line('provider')}."


class Simulator(Protocol):
    """A simulator opens a handle on public rows; ``pinq.simulate`` is one."""

    def __call__(self, schema: Schema, *, data: Frame, epsilon: Loss) -> PrivateQueryable: ...


def simulated(schema: Schema, *, data: Frame, epsilon: Loss) -> PrivateQueryable:
    """Opens a handle on public rows, with the noise and the refusals of a real one.

    Miners import nothing of the provider's side. That side registers the simulator
    (``pinq.public.plugins``).

    Args:
        schema: The schema that the rows are encoded by.
        data: A pandas or Arrow table.
        epsilon: The handle's budget.
    """
    simulate: Simulator = plugin("pinq.provider", "simulate", MISSING)
    return simulate(schema, data=data, epsilon=epsilon)
