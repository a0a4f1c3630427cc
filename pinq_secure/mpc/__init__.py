# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on secrets that several parties share, and nothing of trees.

It knows how numbers are dealt out, compared and opened, how long they become, and how parties draw
a noise that none of them knows. Read ``arithmetic.py`` first, then ``rounds.py``.
"""
