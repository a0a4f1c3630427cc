# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface for analysts: how a request comes in, which limits it meets, how it is answered.

It trusts nothing that a request says. Read ``gate.py`` first.
"""
