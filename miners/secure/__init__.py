# SPDX-License-Identifier: Apache-2.0
"""Trees among parties that trust no one, on secret shares: ID3 and DP-TopDown.

In import order: ``runtime`` (what a library for secret sharing must offer), ``bounds`` and
``segments`` (public arithmetic), ``mpyc_runtime`` (MPyC), ``arithmetic`` (secrets), ``noise``,
``task`` (what is known), ``rules`` (when to stop, how to split), ``sources``, ``public_tree``,
``secret_tree``, ``own_rows``, ``together`` and ``joint`` (noisy sums), ``session`` (what is
agreed), ``protocols`` (one party's part), ``connection``, ``network`` and ``party`` (how parties
talk), ``local`` (all on one machine), ``provider`` (what ``pinq secure`` uses). Read ``arithmetic``
first. Names are imported when they are first used: a party's process needs neither scikit-learn nor
pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'miners.secure' has no attribute {name!r}; it has {', '.join(__all__)}")
    value: object = getattr(import_module(f"miners.secure.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
