# SPDX-License-Identifier: Apache-2.0
"""Datasets behind HTTPS, for analysts.

It keeps no state but open datasets; the ledger makes a retry safe. Read ``app.py`` first,
then ``gate.py``.
"""
