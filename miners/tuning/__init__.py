# SPDX-License-Identifier: Apache-2.0
"""Trials of settings on dummy tables and public rows, where nothing is private.

It never queries a private handle. Read ``suggestion.py`` first.
"""
