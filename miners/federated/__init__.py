# SPDX-License-Identifier: Apache-2.0
"""One model from several holders, each with a handle, a policy and a ledger of its own.

It knows what to ask of all of them at once and what to do when one fails. Read ``federation.py``
first.
"""
