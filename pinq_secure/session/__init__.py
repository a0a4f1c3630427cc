# SPDX-License-Identifier: Apache-2.0
"""The agreement of the parties before a computation, and the connections between their processes.

It has the session file, one party's part in each protocol, the connections between parties, and the simulation of all
of them on one machine. Read ``session.py`` first, then ``party.py``.
"""
