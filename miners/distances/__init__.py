# SPDX-License-Identifier: Apache-2.0
"""Distances between categories (DP-DILCA), and what follows from released tables.

It asks for contexts and contingency tables; everything after that is arithmetic. Read ``dilca.py``
first.
"""
