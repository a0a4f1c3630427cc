# SPDX-License-Identifier: Apache-2.0
"""This room learns distances between categories by DP-DILCA.

It queries contexts and contingency tables; everything after that is arithmetic. Read ``dilca.py``
first.
"""
