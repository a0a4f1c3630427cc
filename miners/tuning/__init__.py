# SPDX-License-Identifier: Apache-2.0
"""Trying settings where nothing is private: made-up tables, public rows, a search for an epsilon.

It never asks a private handle. Read ``suggestion.py`` first.
"""
