# SPDX-License-Identifier: Apache-2.0
"""The ``pinq`` command: it parses, calls functions of the other rooms, and prints.

It decides nothing about privacy or budgets. Read ``main.py`` first.
"""
