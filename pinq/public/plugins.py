# SPDX-License-Identifier: Apache-2.0
"""``plugin`` loads what a package registered under a name, so that its user need not import it.

The provider's side and the miners may not import each other. What one needs of the other is an
entry point:

- ``computation`` in the group ``pinq.secure``: a ``SecureComputation`` of
  ``pinq.public.secure_computation``, for the command ``pinq secure``
- ``simulate`` in the group ``pinq.provider``: ``pinq.simulate``, for miners that try settings on
  made-up rows
- ``miners`` in the group ``pinq.selftest``: a name and a ``miners.canaries.Fit`` for each miner that
  the provider's ``pinq selftest`` fits
- ``odometer`` in the group ``pinq.provider``: a class like ``pinq.ledger.odometer.Odometer``, for
  parties that price their sums
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pinq.errors import QueryError

__all__ = ["plugin"]


@cache
def plugin(group: str, name: str, missing: str) -> Any:
    """Loads the one object that is registered in a group under a name.

    Args:
        group: The entry points' group.
        name: The entry point's name.
        missing: The error's first sentence where nothing is registered; it says what to install.

    Raises:
        QueryError: No package registers it, or several do.
    """
    registered = tuple(entry_points(group=group, name=name))
    if not registered:
        raise QueryError(
            f"{missing} No installed package registers `{name}` in the group `{group}`; "
            "a checkout is installed with pip install -e."
        )
    if len(registered) > 1:
        homes = ", ".join(sorted(entry.value for entry in registered))
        raise QueryError(
            f"several installed packages register `{name}` in the group `{group}`: {homes}. Keep one of them."
        )
    return registered[0].load()
