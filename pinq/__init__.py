# SPDX-License-Identifier: Apache-2.0
"""A budgeted, differentially private handle on a table that may not be handed out.

The provider writes a policy and grants a budget (the ``pinq`` command); the analyst opens a handle
and sends queries by five methods. Names load when they are first used, so the analyst's side needs
neither an engine nor a noise library.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress
from os import listdir
from os.path import dirname
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinq.analyst.client import connect as connect
    from pinq.analyst.queryable import Parts as Parts, PrivateQueryable as PrivateQueryable
    from pinq.errors import (
        BudgetExceeded as BudgetExceeded,
        EngineError as EngineError,
        InternalError as InternalError,
        LedgerError as LedgerError,
        NotAllowed as NotAllowed,
        NotAuthorised as NotAuthorised,
        PinqError as PinqError,
        PolicyError as PolicyError,
        QueryError as QueryError,
        TooManyRequests as TooManyRequests,
        Unavailable as Unavailable,
    )
    from pinq.language.derivatives import Logistic as Logistic, Residuals as Residuals, Softmax as Softmax
    from pinq.language.points import Points as Points
    from pinq.language.products import Products as Products
    from pinq.language.queries import Budget as Budget, Preview as Preview
    from pinq.language.scores import (
        AbsoluteError as AbsoluteError,
        Balance as Balance,
        ClassCount as ClassCount,
        EnoughRows as EnoughRows,
        Gini as Gini,
        Gradient as Gradient,
        InfoGain as InfoGain,
        MaxClass as MaxClass,
        Misfit as Misfit,
        MutualInformation as MutualInformation,
        SquaredError as SquaredError,
    )
    from pinq.language.specs import (
        AnyCross as AnyCross,
        AnyCut as AnyCut,
        AnyGrouping as AnyGrouping,
        Calendar as Calendar,
        Cross as Cross,
        Cuts as Cuts,
        Groups as Groups,
        Ranges as Ranges,
        Shards as Shards,
        Values as Values,
    )
    from pinq.policy.policy import Policy as Policy
    from pinq.provider.local import open as open, simulate as simulate
    from pinq.provider.policy_file import load_policy as load_policy
    from pinq.provider.proposal import propose as propose
    from pinq.public.schema import (
        Categorical as Categorical,
        Date as Date,
        DateTime as DateTime,
        Numeric as Numeric,
        PrivacyUnit as PrivacyUnit,
        Schema as Schema,
    )

    sql: Any  # of the package miners, which this one may not import

__version__ = "0.1.0"
DISTRIBUTION = "pinq-miners"  # an index has another project under the name ``pinq``, which is imported so too

# The two write files into one folder; whichever is removed takes files of the other along.
with suppress(OSError):  # an archive of modules has no folder
    if any(name.startswith("pinq-") and name.endswith("-info") for name in listdir(dirname(__path__[0]))):
        warnings.warn(
            f"The package 'pinq' is installed beside {DISTRIBUTION}; it is another project with the same import name. "
            f"Run: pip uninstall pinq {DISTRIBUTION}, then install {DISTRIBUTION} again.",
            stacklevel=2,
        )

# What an engine says of a failure may follow the rows: it goes where the provider sends it, never
# to stderr by default.
logging.getLogger("pinq").addHandler(logging.NullHandler())

_HOMES = {
    "analyst.client": ("connect",),
    "errors": (
        "BudgetExceeded",
        "EngineError",
        "InternalError",
        "LedgerError",
        "NotAllowed",
        "NotAuthorised",
        "PinqError",
        "PolicyError",
        "QueryError",
        "TooManyRequests",
        "Unavailable",
    ),
    "provider.local": ("open", "simulate"),
    "language.specs": (
        "AnyCross",
        "AnyCut",
        "AnyGrouping",
        "Calendar",
        "Cross",
        "Cuts",
        "Groups",
        "Ranges",
        "Shards",
        "Values",
    ),
    "provider.policy_file": ("load_policy",),
    "provider.proposal": ("propose",),
    "language.derivatives": ("Logistic", "Residuals", "Softmax"),
    "language.products": ("Products",),
    "language.points": ("Points",),
    "policy.policy": ("Policy",),
    "language.queries": ("Budget", "Preview"),
    "analyst.queryable": ("Parts", "PrivateQueryable"),
    "public.schema": ("Categorical", "Date", "DateTime", "Numeric", "PrivacyUnit", "Schema"),
    "language.scores": (
        "AbsoluteError",
        "Balance",
        "ClassCount",
        "EnoughRows",
        "Gini",
        "Gradient",
        "InfoGain",
        "MaxClass",
        "Misfit",
        "MutualInformation",
        "SquaredError",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_FRONTS = {"sql": "fronts.sql", "load_ipython_extension": "fronts.sql"}  # what the package miners has

__all__ = sorted({*_HOME, "sql"} - {"open"})  # a star import must not hide the built-in open


def __getattr__(name: str) -> object:
    from pinq.public.plugins import optional, room_of_miners

    if name in _FRONTS:
        return getattr(room_of_miners(_FRONTS[name]), name)
    if name not in _HOME:
        raise AttributeError(f"module 'pinq' has no attribute {name!r}")
    value = getattr(optional(f"pinq.{_HOME[name]}", "provider", f"pinq.{name} needs the provider's side"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "sql", "__version__"])
