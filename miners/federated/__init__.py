# SPDX-License-Identifier: Apache-2.0
"""One model from several data owners, each with its own handle, policy and ledger.

It sends queries to all of them at once, and handles the failure of one. Read ``federation.py``
first.
"""
