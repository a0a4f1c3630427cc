# SPDX-License-Identifier: Apache-2.0
"""Noisy sums of all parties' counts, for miners that ask for counts.

It knows how parties add their histograms with the noise of one curator, what that costs each of
them, and how DP-TopDown grows on such sums. The exact counts of one party are in ``additions.py``
and leave it only as shares. Read ``together.py`` first.
"""
