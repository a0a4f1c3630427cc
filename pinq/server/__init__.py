# SPDX-License-Identifier: Apache-2.0
"""Datasets behind HTTPS, for analysts.

It keeps no state but open datasets; what makes a retry safe is the ledger. Read ``app.py`` first,
then ``api/gate.py``.
"""
