# SPDX-License-Identifier: Apache-2.0
"""The agreement of the parties before a computation, and the connections between their processes.

Read ``session.py`` first, then ``party.py``.
"""
