# SPDX-License-Identifier: Apache-2.0
"""Trees and forests that learn from one handle, a file for each family of algorithms.

``tree_miner.py``, to read first, has the common ``fit`` and ``plan``. The differences of an algorithm are a strategy;
strategies and the growth of trees are in ``growth/frontier.py``.
"""
