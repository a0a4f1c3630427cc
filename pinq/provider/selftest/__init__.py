# SPDX-License-Identifier: Apache-2.0
"""Measures the real privacy loss of an installed system: ``pinq selftest``.

Worst neighbouring tables go through policy, ledger, engine and curator like any others (on request through a server
too), and the answers bound the loss from below. It can refute a claim and never prove one. Read ``claims.py`` first,
then ``run.py``.
"""

from pinq.provider.selftest.run import Progress, Report, selftest

__all__ = ["Progress", "Report", "selftest"]
