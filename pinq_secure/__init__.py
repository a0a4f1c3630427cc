# SPDX-License-Identifier: Apache-2.0
"""Secure multi-party computation of trees and scorecards, on secret shares.

Read ``mpc/arithmetic.py`` first. The package stands above ``pinq`` and ``miners``. Names are imported at their first
use: a party's process needs neither scikit-learn nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinq_secure.secure_id3 import SecureID3, SecurePlan
    from pinq_secure.session.session import Member, Session, load_session
    from pinq_secure.sums import SecureFederation, noisy_sum, noisy_sum_bits, simulate_noisy_sum

__all__ = [
    "Member",
    "SecureFederation",
    "SecureID3",
    "SecurePlan",
    "Session",
    "load_session",
    "noisy_sum",
    "noisy_sum_bits",
    "simulate_noisy_sum",
]

_HOMES = {
    "secure_id3": ("SecureID3", "SecurePlan"),
    "session.session": ("Member", "Session", "load_session"),
    "sums": ("SecureFederation", "noisy_sum", "noisy_sum_bits", "simulate_noisy_sum"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'pinq_secure' has no attribute {name!r}; it has {', '.join(__all__)}")
    value: object = getattr(import_module(f"pinq_secure.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
