# SPDX-License-Identifier: Apache-2.0
"""Accuracy of what users get without saying anything: the miners' defaults, on UCI's data sets.

``trees.py`` and ``scorecards.py`` measure the defaults; ``defaults.py`` shows how good the rule for the depth is.
"""
