# SPDX-License-Identifier: Apache-2.0
"""A budgeted, differentially private handle on a table that may not be handed out.

The provider writes a policy and grants a budget (the ``pinq`` command); the analyst opens a handle
and asks through five verbs. Names load when they are first used, so the analyst's side needs
neither an engine nor a noise library.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinq.analyst.client import connect as connect
    from pinq.analyst.queryable import Parts as Parts
    from pinq.analyst.queryable import PrivateQueryable as PrivateQueryable
    from pinq.errors import BudgetExceeded as BudgetExceeded
    from pinq.errors import EngineError as EngineError
    from pinq.errors import InternalError as InternalError
    from pinq.errors import LedgerError as LedgerError
    from pinq.errors import NotAllowed as NotAllowed
    from pinq.errors import NotAuthorised as NotAuthorised
    from pinq.errors import PinqError as PinqError
    from pinq.errors import PolicyError as PolicyError
    from pinq.errors import QueryError as QueryError
    from pinq.errors import TooManyRequests as TooManyRequests
    from pinq.errors import Unavailable as Unavailable
    from pinq.provider.local import open as open
    from pinq.provider.local import simulate as simulate
    from pinq.provider.policy_file import load_policy as load_policy
    from pinq.provider.proposal import propose as propose
    from pinq.public.derivatives import Logistic as Logistic
    from pinq.public.derivatives import Residuals as Residuals
    from pinq.public.derivatives import Softmax as Softmax
    from pinq.public.points import Points as Points
    from pinq.public.policy import Policy as Policy
    from pinq.public.products import Products as Products
    from pinq.public.queries import Budget as Budget
    from pinq.public.queries import Preview as Preview
    from pinq.public.schema import Categorical as Categorical
    from pinq.public.schema import Date as Date
    from pinq.public.schema import DateTime as DateTime
    from pinq.public.schema import Numeric as Numeric
    from pinq.public.schema import PrivacyUnit as PrivacyUnit
    from pinq.public.schema import Schema as Schema
    from pinq.public.scores import AbsoluteError as AbsoluteError
    from pinq.public.scores import Balance as Balance
    from pinq.public.scores import ClassCount as ClassCount
    from pinq.public.scores import EnoughRows as EnoughRows
    from pinq.public.scores import Gini as Gini
    from pinq.public.scores import Gradient as Gradient
    from pinq.public.scores import InfoGain as InfoGain
    from pinq.public.scores import MaxClass as MaxClass
    from pinq.public.scores import Misfit as Misfit
    from pinq.public.scores import MutualInformation as MutualInformation
    from pinq.public.scores import SquaredError as SquaredError
    from pinq.public.specs import AnyCross as AnyCross
    from pinq.public.specs import AnyCut as AnyCut
    from pinq.public.specs import AnyGrouping as AnyGrouping
    from pinq.public.specs import Calendar as Calendar
    from pinq.public.specs import Cross as Cross
    from pinq.public.specs import Cuts as Cuts
    from pinq.public.specs import Groups as Groups
    from pinq.public.specs import Shards as Shards
    from pinq.public.specs import Values as Values

    sql: Any  # of the package miners, which this one may not import

__version__ = "0.1.0"

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
    "public.specs": ("AnyCross", "AnyCut", "AnyGrouping", "Calendar", "Cross", "Cuts", "Groups", "Shards", "Values"),
    "provider.policy_file": ("load_policy",),
    "provider.proposal": ("propose",),
    "public.derivatives": ("Logistic", "Residuals", "Softmax"),
    "public.products": ("Products",),
    "public.points": ("Points",),
    "public.policy": ("Policy",),
    "public.queries": ("Budget", "Preview"),
    "analyst.queryable": ("Parts", "PrivateQueryable"),
    "public.schema": ("Categorical", "Date", "DateTime", "Numeric", "PrivacyUnit", "Schema"),
    "public.scores": (
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
