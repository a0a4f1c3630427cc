# SPDX-License-Identifier: Apache-2.0
"""Linear models from second moments: regression, discriminants, components.

Its inputs are the columns' declarations and noisy sums. Read ``moments.py`` first.
"""
