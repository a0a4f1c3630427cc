# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on secrets that several parties share, and nothing of trees.

It knows what a library for secret sharing must offer, how long the numbers become, and how parties
draw a noise that none of them knows. Only ``mpyc_runtime.py`` imports MPyC. Read ``arithmetic.py``
first, then ``bounds.py``.
"""
