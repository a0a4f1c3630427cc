# SPDX-License-Identifier: Apache-2.0
"""One model from several data owners, each with its own handle, policy and ledger.

Queries go to all of them at once; the failure of one is handled. Read ``federation.py`` first.
"""
