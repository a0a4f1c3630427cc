# SPDX-License-Identifier: Apache-2.0
"""Synthetic rows with the relations of the private rows: a graphical model of noisy tables.

Read ``purchase.py`` first: the prices of tables. ``fitting.py`` selects and buys them,
``graphical_model.py`` fits a distribution to them, and ``synthetic_table.py`` draws rows from it
and estimates tables. ``synthesizer.py`` is the miner.
"""
