# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on secrets that several parties share, without trees.

Read ``arithmetic.py`` first, then ``rounds.py``.
"""
