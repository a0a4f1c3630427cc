# SPDX-License-Identifier: Apache-2.0
"""The acts of a data provider: propose and check a policy, grant and revoke, open, simulate.

Printed results are for the provider alone unless they say otherwise. Read ``local.py`` first: it joins policy, ledger,
engine and curator to a handle.
"""
