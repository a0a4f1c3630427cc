# SPDX-License-Identifier: Apache-2.0
"""``%%pinq``: a notebook's cell as an SQL statement to a handle; ``%load_ext pinq`` makes it known."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from miners.fronts.sql import sql
from miners.tables.columns import required_handle

if TYPE_CHECKING:
    from miners.budget.plan import Plan
    from miners.tables.table import Table

__all__ = ["load_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """Makes ``%%pinq`` known to a shell of IPython."""
    magics: Any = import_module("IPython.core.magic_arguments")  # whoever calls this has it

    def pinq(line: str, cell: str) -> Table | Plan:
        """Answers the cell's SELECT with noise: ``%%pinq h --epsilon 0.1``."""
        given = magics.parse_argstring(known, line)
        handle = required_handle(shell.user_ns.get(given.handle))
        return sql(handle, cell, epsilon=given.epsilon, level=given.level, reuse=given.reuse)

    arguments = [
        magics.argument("handle", help="The name of the handle that is asked."),
        magics.argument("--epsilon", required=True, help="The cost of the statement."),
        magics.argument("--level", type=float, default=0.95, help="Of the intervals."),
        magics.argument("--reuse", action="store_true", help="Take stored answers where this was asked before, free."),
    ]
    known: Any = pinq
    for argument in reversed(arguments):
        known = argument(known)
    known = magics.magic_arguments()(known)
    shell.register_magic_function(known, "cell", "pinq")
