# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface for analysts: a request's way in, its limits, its answer.

It trusts nothing that a request says. Read ``gate.py`` first.
"""
