# SPDX-License-Identifier: Apache-2.0
"""The ``pinq`` command: it parses, calls what the other rooms offer, and prints.

It decides nothing about privacy or budgets. Read ``main.py`` first.
"""
