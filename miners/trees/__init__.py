# SPDX-License-Identifier: Apache-2.0
"""Trees and forests that learn from one handle, a file for each family of algorithms.

What they share of ``fit`` and ``plan`` is in ``tree_miner.py``; what an algorithm does its own way
is a strategy, and how a tree grows is in ``growth``, both in ``frontier.py`` there. Read
``tree_miner.py`` first, then ``diffp_c45.py``.
"""
