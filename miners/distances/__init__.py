# SPDX-License-Identifier: Apache-2.0
"""Distances between categories: DP-DILCA, and what follows from released tables."""
