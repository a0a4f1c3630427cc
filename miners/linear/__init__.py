# SPDX-License-Identifier: Apache-2.0
"""Linear models from second moments: regression, discriminants, components.

Read ``moments.py`` first.
"""
