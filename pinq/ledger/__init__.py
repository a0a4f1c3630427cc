# SPDX-License-Identifier: Apache-2.0
"""The durable record: an append-only log of grants, charges and answers, and what it means.

Nothing here sees a row of the table. Read ``composition.py`` first, then ``state.py``.
"""
