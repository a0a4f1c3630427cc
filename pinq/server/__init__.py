# SPDX-License-Identifier: Apache-2.0
"""The wall for real: datasets behind HTTPS, for analysts (``api``) and for the provider (``page``).

It keeps no state but open datasets; what makes a retry safe is the ledger. Read ``app.py`` first,
then ``api/gate.py``.
"""
