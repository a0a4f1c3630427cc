# SPDX-License-Identifier: Apache-2.0
"""The durable record: an append-only log of grants, charges and answers, and what it means.

Budgets are a replay of the log; the recursion by which parts of partitions are charged is in
``composition.py``. Nothing here sees a row of the table. Read ``composition.py`` first, then
``state.py``.
"""
