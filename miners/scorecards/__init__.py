# SPDX-License-Identifier: Apache-2.0
"""Scorecards: points of each value that add up to a prediction, learned from one handle.

Read ``scorecard.py`` first; a fitted one is a ``Card``.
"""
