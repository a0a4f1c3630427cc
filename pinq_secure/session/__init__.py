# SPDX-License-Identifier: Apache-2.0
"""The agreement of the parties before a computation, and the connections between their processes.

It knows the session file, one party's part in each protocol, the connections between parties, and
how to run all of them on one machine. The computations are in the folders beside it. Read
``session.py`` first, then ``party.py``.
"""
