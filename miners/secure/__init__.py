# SPDX-License-Identifier: Apache-2.0
"""Trees among parties that trust no one, on secret shares (MPyC): ID3, exact or with differential privacy inside, and DP-TopDown on noisy sums.

In import order: ``bounds`` and ``segments`` (public arithmetic), ``arithmetic`` (secrets),
``noise``, ``task`` (what is known), ``rules`` (when to stop, how to split), ``sources``,
``public_tree``, ``secret_tree``, ``together`` and ``joint`` (noisy sums), ``protocols`` (one
party's part); ``session`` (what is agreed), ``network`` (how parties talk), ``local`` (all on one
machine). Names are imported when they are first used: a party's process needs neither scikit-learn
nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from miners.secure.histogram import noisy_sum, noisy_sum_bits, simulate_noisy_sum
    from miners.secure.secure_id3 import SecureID3, SecurePlan
    from miners.secure.session import Member, Session, load_session
    from miners.secure.together import SecureFederation

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
    "histogram": ("noisy_sum", "noisy_sum_bits", "simulate_noisy_sum"),
    "secure_id3": ("SecureID3", "SecurePlan"),
    "session": ("Member", "Session", "load_session"),
    "together": ("SecureFederation",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'miners.secure' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"miners.secure.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
