# SPDX-License-Identifier: Apache-2.0
"""Measures the real privacy loss of an installed system: ``pinq selftest``.

Worst neighbouring tables go through policy, ledger, engine and curator like any others (on request
through a server too), and what comes back bounds the loss from below. It can refute a claim and
never prove one. Read ``claims.py`` first: what is asked, on which neighbours; ``run.py`` asks.
"""

from pinq.provider.selftest.run import Progress, Report, selftest

__all__ = ["Progress", "Report", "selftest"]
