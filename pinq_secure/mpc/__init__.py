# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on secrets that several parties share, without trees.

It deals, compares and opens numbers, bounds their length, and lets parties draw a noise that none of them knows. Read
``arithmetic.py`` first, then ``rounds.py``.
"""
