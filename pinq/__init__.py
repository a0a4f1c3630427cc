# SPDX-License-Identifier: Apache-2.0
"""A budgeted, differentially private handle on a table that may not be handed out.

The provider writes a policy and grants a budget (the ``pinq`` command); the analyst opens a handle and asks through five verbs.
Names load when they are first used, so the analyst's side needs neither an engine nor a noise library.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinq.client import connect as connect
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
    from pinq.local import open as open
    from pinq.policy import Policy as Policy
    from pinq.policy import load_policy as load_policy
    from pinq.queries import Preview as Preview
    from pinq.queryable import Budget as Budget
    from pinq.queryable import Parts as Parts
    from pinq.queryable import PrivateQueryable as PrivateQueryable
    from pinq.schema import Categorical as Categorical
    from pinq.schema import Numeric as Numeric
    from pinq.schema import PrivacyUnit as PrivacyUnit
    from pinq.schema import Schema as Schema
    from pinq.scores import AbsoluteError as AbsoluteError
    from pinq.scores import Balance as Balance
    from pinq.scores import ClassCount as ClassCount
    from pinq.scores import EnoughRows as EnoughRows
    from pinq.scores import Gini as Gini
    from pinq.scores import InfoGain as InfoGain
    from pinq.scores import MaxClass as MaxClass
    from pinq.scores import MutualInformation as MutualInformation
    from pinq.scores import SquaredError as SquaredError
    from pinq.simulation import simulate as simulate
    from pinq.specs import AnyCross as AnyCross
    from pinq.specs import AnyCut as AnyCut
    from pinq.specs import AnyGrouping as AnyGrouping
    from pinq.specs import Cross as Cross
    from pinq.specs import Cuts as Cuts
    from pinq.specs import Groups as Groups
    from pinq.specs import Shards as Shards
    from pinq.specs import Values as Values

__version__ = "0.1.0"

# What an engine says of a failure may follow the rows: it goes where the provider sends it, never to stderr by default.
logging.getLogger("pinq").addHandler(logging.NullHandler())

_HOMES = {
    "client": ("connect",),
    "errors": (
        "BudgetExceeded", "EngineError", "InternalError", "LedgerError", "NotAllowed", "NotAuthorised", "PinqError", "PolicyError", "QueryError", "TooManyRequests", "Unavailable",
    ),
    "local": ("open",),
    "specs": ("AnyCross", "AnyCut", "AnyGrouping", "Cross", "Cuts", "Groups", "Shards", "Values"),
    "policy": ("Policy", "load_policy"),
    "queries": ("Preview",),
    "queryable": ("Budget", "Parts", "PrivateQueryable"),
    "schema": ("Categorical", "Numeric", "PrivacyUnit", "Schema"),
    "scores": ("AbsoluteError", "Balance", "ClassCount", "EnoughRows", "Gini", "InfoGain", "MaxClass", "MutualInformation", "SquaredError"),
    "simulation": ("simulate",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(set(_HOME) - {"open"})  # a star import must not hide the built-in open
_NEEDS_PROVIDER = {"duckdb", "opendp", "sqlalchemy", "yaml"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pinq' has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(f"pinq.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in _NEEDS_PROVIDER:
            raise
        raise ModuleNotFoundError(f"pinq.{name} needs the provider's side: pip install 'pinq-miners[provider]'", name=error.name) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
