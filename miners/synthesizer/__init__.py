# SPDX-License-Identifier: Apache-2.0
"""Synthetic rows with the relations of the private rows: a graphical model of noisy tables.

Read ``synthesizer.py`` first: the selection of tables. ``graphical_model.py`` fits a distribution
to them, and ``SyntheticTable`` draws rows from it and estimates tables.
"""
