# SPDX-License-Identifier: Apache-2.0
"""The acts of a data provider: propose and check a policy, grant and revoke, open, simulate.

It may see the rows and the log; nothing of what it prints is for analysts unless it says so.
Read ``local.py`` first: it joins policy, ledger, engine and curator to a handle.
"""
