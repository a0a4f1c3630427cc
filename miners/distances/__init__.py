# SPDX-License-Identifier: Apache-2.0
"""Distances between categories by DP-DILCA.

Contexts and contingency tables are queried; all else is arithmetic. Read ``dilca.py`` first.
"""
