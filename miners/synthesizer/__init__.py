# SPDX-License-Identifier: Apache-2.0
"""Synthetic rows that look like the private ones: a graphical model of noisy tables.

Read ``synthesizer.py`` first: which tables are bought. ``graphical_model.py`` fits a distribution to them, and
``SyntheticTable`` draws rows from it and says what it knows.
"""
