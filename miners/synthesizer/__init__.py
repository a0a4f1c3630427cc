# SPDX-License-Identifier: Apache-2.0
"""Synthetic rows with the relations of the private rows: a graphical model of noisy tables.

Read ``purchase.py`` first: the prices of tables; ``synthesizer.py`` is the miner.
"""
